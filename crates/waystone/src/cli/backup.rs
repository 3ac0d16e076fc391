//! `waystone backup` and `waystone restore-from`

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Context;
use clap::Args;
use waystone_core::Engine;
use waystone_core::api::Finding;
use waystone_core::clock::Clock;
use waystone_core::store::Scope;
use waystone_store::Root;

use super::render::{Out, advance, bar, bytes, count, spinner};
use crate::settings::{DATA_DIR, Settings};

#[derive(Debug, Args)]
pub(crate) struct Backup {
    /// Where to: an empty directory, or one that is made; one in the data directory when left out
    directory: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct RestoreFrom {
    /// The directory of the backup
    pub(super) directory: PathBuf,
    /// Do not ask
    #[arg(long, short)]
    pub(super) yes: bool,
}

pub(crate) async fn run(
    backup: Backup,
    engine: &Engine,
    scope: &Scope,
    out: &Out,
    settings: &Settings,
) -> anyhow::Result<()> {
    // What is printed can be typed as it stands, and must not put it in the place of something else.
    let place = match settings.is_given(DATA_DIR) {
        true => format!(" --data-dir {}", settings.data_dir.display()),
        false => String::new(),
    };
    let to = backup.directory.map(|path| std::path::absolute(&path)).transpose()?;
    let to = to.as_ref().map(|path| path.to_str().context("the directory's name is not text")).transpose()?;
    let spinner = spinner("copying");
    let made = engine.back_up(scope, to).await;
    spinner.finish_and_clear();
    out.print(&made?, |made| {
        let (sessions, checkpoints) = (count(made.sessions, "session"), count(made.checkpoints, "checkpoint"));
        let (path, size) = (&made.path, bytes(made.size_bytes));
        format!(
            "copied {sessions} with {checkpoints} to {path} ({size})\n\
             `waystone{place} restore-from {path}` puts it in the place of what is there\n"
        )
    })
}

/// Puts a backup in the place of what is there, before the store is opened. Says on standard error what was done.
pub(crate) fn restore(command: &RestoreFrom, root: Root<'_>, clock: &Arc<dyn Clock>) -> anyhow::Result<Vec<Finding>> {
    waystone_store::find_backup(&command.directory)?;
    if !command.yes {
        let question = format!(
            "Put {} in the place of all that is in {}? What is there now is kept aside in damaged/.",
            command.directory.display(),
            root.path.display()
        );
        super::render::ask(&question, "a backup is put in place", "nothing was changed")?;
    }
    let bar = bar("restoring");
    let restored = waystone_store::restore_from(root, &command.directory, clock, &mut |done, total| {
        advance(&bar, done, total);
    })?;
    bar.finish_and_clear();
    super::note(&format!("{} is in place", command.directory.display()));
    if let Some(folder) = restored.set_aside {
        super::note(&format!("what was there is in {}", folder.display()));
    }
    Ok(restored.findings)
}
