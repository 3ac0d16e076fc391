//! `waystone doctor`

use std::sync::Arc;

use clap::Args;
use waystone_core::Engine;
use waystone_core::api::{Checkup, Finding, FindingKind};
use waystone_core::clock::Clock;
use waystone_core::store::Scope;
use waystone_store::Root;

use super::failure::Failure;
use super::render::{Out, advance, bar, count, table, thousands};

#[derive(Debug, Default, Args)]
pub(crate) struct Doctor {
    /// First bring back from the files what is missing in the database, or a database that cannot be used; no other process
    /// may have the data directory open
    #[arg(long)]
    pub(super) repair: bool,
    /// First make all that is kept for search anew, from what it is made of
    #[arg(long)]
    reindex: bool,
}

/// Brings the database back from the files before it is opened. Says on standard error what was done.
pub(crate) fn repair(root: Root<'_>, clock: &Arc<dyn Clock>) -> anyhow::Result<Vec<Finding>> {
    let bar = bar("reading files");
    let repaired = waystone_store::repair(root, clock, &mut |done, total| advance(&bar, done, total))?;
    bar.finish_and_clear();
    let mut notes = Vec::new();
    if let Some(damage) = repaired.damage {
        notes.push(format!("the database was rebuilt from its files: {damage}"));
    }
    match repaired.backup {
        Some(backup) => notes.push(format!(
            "it began with the backup in {}; segments, tasks, conversations and the log are as they were then",
            backup.display()
        )),
        None if !notes.is_empty() => {
            notes.push(
                "there was no good backup, and segments, tasks and conversations have no other copy: they are gone"
                    .to_owned(),
            );
        }
        None => {}
    }
    if let Some(folder) = repaired.set_aside {
        notes.push(format!("the damaged one is in {}", folder.display()));
    }
    super::warn(&notes);
    Ok(repaired.findings)
}

/// Compares and heals the copies of everything. `before` is what a repair found.
pub(crate) async fn run(
    doctor: Doctor,
    engine: &Engine,
    scope: &Scope,
    out: &Out,
    before: Vec<Finding>,
) -> anyhow::Result<()> {
    if doctor.reindex {
        let bar = bar("indexing");
        let texts = engine.reindex(scope, |done, total| advance(&bar, done, total)).await?;
        bar.finish_and_clear();
        if !out.json {
            super::note(&format!("{} indexed anew", count(texts, "text")));
        }
    }
    let bar = bar("comparing");
    let checkup = engine.check_copies(scope, |done, total| advance(&bar, done, total)).await?.with(before);
    bar.finish_and_clear();
    out.print(&checkup, show)?;
    if checkup.sound {
        return Ok(());
    }
    let message = "not everything is whole".to_owned();
    let hint =
        "`waystone doctor --repair` brings back what only the files have; what is lost in both copies needs a backup";
    Err(Failure { code: "CHECKPOINT_CORRUPT", message, hint: hint.to_owned() }.into())
}

fn show(checkup: &Checkup) -> String {
    if checkup.findings.is_empty() {
        return format!("All is well: {}.\n", whole(checkup));
    }
    let rows = checkup
        .findings
        .iter()
        .map(|finding| vec![word(finding.kind).to_owned(), finding.subject.clone(), finding.message.clone()]);
    let found = table(&["WHAT", "WHERE", "WHY"], rows);
    format!("checked {} in {}\n{found}", count(checkup.checkpoints, "checkpoint"), count(checkup.files, "file"))
}

/// What there is, and in how many copies.
fn whole(checkup: &Checkup) -> String {
    const ONCE: &str = "in the database and the backups";
    let (saved, said) = (checkup.checkpoints, checkup.conversation_checkpoints);
    let is = if said == 1 { "is" } else { "are" };
    match (saved, said) {
        (0, 0) => "there is no checkpoint yet".to_owned(),
        (0, _) => format!("{} of conversations {is} {ONCE}", count(said, "checkpoint")),
        (1, 0) => "1 checkpoint, in two copies".to_owned(),
        (_, 0) => format!("{}, each in two copies", count(saved, "checkpoint")),
        (1, _) => format!("1 checkpoint, in two copies; {} of conversations {is} {ONCE}", thousands(said)),
        _ => {
            let saved = count(saved, "checkpoint");
            format!("{saved}, each in two copies; {} of conversations {is} {ONCE}", thousands(said))
        }
    }
}

fn word(kind: FindingKind) -> &'static str {
    match kind {
        FindingKind::RowHealed | FindingKind::MirrorHealed => "healed",
        FindingKind::Restored => "restored",
        FindingKind::HeldBack => "held back",
        FindingKind::Lost => "lost",
        FindingKind::Unhealed => "damaged",
        FindingKind::Orphan => "orphan",
    }
}
