//! `waystone key`

use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::{Args, Subcommand};
use serde_json::json;
use waystone_core::Engine;
use waystone_core::Error;
use waystone_core::clock::Clock;
use waystone_core::store::Scope;
use waystone_store::{MasterKey, OpenError, Rekeyed, Root, Sqlite, encrypt_store, rotate_key};
use zeroize::Zeroizing;

use super::failure::Failure;
use super::render::{Out, advance, ask, bar, plain};
use crate::key::{self, Home};
use crate::settings::Settings;

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Make a key; what is sealed with it cannot be read without it, by no one
    Generate {
        /// The file to write it to, which must not be there yet; standard output when left out
        #[arg(long, short, value_name = "FILE")]
        output: Option<PathBuf>,
    },
    /// Write the key of the data directory down, wherever it is kept, to be kept in another place too
    Export {
        /// The file to write it to, which must not be there yet; standard output when left out
        #[arg(long, short, value_name = "FILE")]
        output: Option<PathBuf>,
    },
    /// Give the data directory another key; no other process may have it open
    #[command(
        after_help = "Backups in the data directory are made anew. Copies elsewhere, and whoever has read them with the old key, keep the old one."
    )]
    Rotate(Rotate),
    /// Seal a data directory that is there; no other process may have it open
    #[command(
        after_help = "The key is the one that is set with WAYSTONE_KEY_FILE or WAYSTONE_PASSPHRASE, and otherwise a new one in the system's keychain. What was plain is removed, exports and copies elsewhere excepted; a disk may still hold traces of it."
    )]
    EncryptStore {
        /// Do not ask
        #[arg(long, short)]
        yes: bool,
    },
}

#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
pub(crate) struct Rotate {
    /// Write the new key to a file, which must not be there yet
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Keep the new key in the system's keychain
    #[arg(long)]
    keychain: bool,
    /// Make the new key of the passphrase in WAYSTONE_NEW_PASSPHRASE
    #[arg(long)]
    passphrase: bool,
}

impl Rotate {
    /// Where the new key is, and how it is named.
    fn place(&self) -> String {
        match (&self.output, self.keychain) {
            (Some(path), _) => {
                let path = plain(&path.display().to_string());
                format!("in {path}: set WAYSTONE_KEY_FILE={path}, and keep a copy of it where the data is not")
            }
            (None, true) => "in the system's keychain: unset WAYSTONE_KEY_FILE and WAYSTONE_PASSPHRASE".to_owned(),
            (None, false) => "made of the new passphrase: set WAYSTONE_PASSPHRASE to it".to_owned(),
        }
    }

    fn home(&self, settings: &Settings) -> anyhow::Result<Home> {
        match (&self.output, self.keychain) {
            (Some(path), _) if path.as_os_str() == "-" => {
                Err(Error::InvalidInput("a new key goes to a file, where it is safe before it is used".to_owned())
                    .into())
            }
            (Some(path), _) => Ok(Home::File(path.clone())),
            (None, true) => Ok(Home::Keychain),
            (None, false) => match &settings.new_passphrase {
                Some(passphrase) => Ok(Home::Passphrase(Zeroizing::clone(passphrase))),
                None => Err(Error::InvalidInput("WAYSTONE_NEW_PASSPHRASE is not set".to_owned()).into()),
            },
        }
    }
}

impl Command {
    /// Whether it changes the store.
    pub(crate) fn is_change(&self) -> bool {
        matches!(self, Self::Rotate(_) | Self::EncryptStore { .. })
    }
}

/// What needs no store.
pub(crate) fn run(command: &Command, settings: &Settings, out: &Out) -> anyhow::Result<()> {
    match command {
        Command::Generate { output } => {
            let made = MasterKey::generate()?;
            give(&made, output.as_deref(), settings, out, |shown| {
                format!("WAYSTONE_KEY_FILE={shown} WAYSTONE_ENCRYPTION=enabled seals a new data directory with it.")
            })
        }
        Command::Export { output } => match key::find_own(settings)? {
            Some(found) => give(&found, output.as_deref(), settings, out, |shown| {
                format!("WAYSTONE_KEY_FILE={shown} opens the data directory.")
            }),
            None => Err(Failure {
                code: "INVALID_INPUT",
                message: format!("there is no key that opens {}", settings.data_dir.display()),
                hint: "`waystone status` says whether it is sealed; if it is, name its key with WAYSTONE_KEY_FILE or WAYSTONE_PASSPHRASE, or unlock the keychain".to_owned(),
            }
            .into()),
        },
        Command::Rotate(_) | Command::EncryptStore { .. } => Ok(()),
    }
}

/// Writes a key to a file, or prints it.
fn give(
    key: &MasterKey,
    path: Option<&Path>,
    settings: &Settings,
    out: &Out,
    next: impl Fn(&str) -> String,
) -> anyhow::Result<()> {
    let Some(path) = path else {
        let text = key::text(key);
        return out.print(&json!({ "key": text.trim() }), |_| text.to_string());
    };
    key::check_place(path, &settings.data_dir)?;
    key::write(key, path)?;
    out.print(&json!({ "path": path }), |_| {
        let shown = plain(&path.display().to_string());
        format!(
            "wrote a key to {shown}\nKeep a copy where the data is not: without it nothing that it sealed comes back.\n{}\n",
            next(&shown)
        )
    })
}

/// Looks whether everything is whole, and heals what is not: after a change of the key there is no other copy to heal from.
async fn check(settings: &Settings, clock: &Arc<dyn Clock>) -> anyhow::Result<()> {
    let key = key::find_own(settings)?;
    let root = Root { path: &settings.data_dir, key: key.as_ref(), seals: false };
    let store = match Sqlite::open(root, Arc::clone(clock), &settings.limits) {
        // A change that died left it so, after it had looked.
        Err(OpenError::Lost { .. }) => return Ok(()),
        opened => Arc::new(opened?),
    };
    let engine = Engine::new(store, Arc::clone(clock), settings.limits.clone(), settings.project.clone());
    let bar = bar("comparing");
    let checkup = engine.check_copies(&Scope::local(&settings.user), |done, total| advance(&bar, done, total)).await;
    bar.finish_and_clear();
    engine.close().await;
    match checkup?.sound {
        true => Ok(()),
        false => Err(Failure {
            code: "CHECKPOINT_CORRUPT",
            message: "not everything is whole, and a change of the key leaves no other copy".to_owned(),
            hint: "`waystone doctor` says what is damaged, `waystone doctor --repair` brings back what it can"
                .to_owned(),
        }
        .into()),
    }
}

/// Does what changes the store, before that is opened. Returns the key that opens it from then on.
pub(crate) async fn change(
    command: &Command,
    settings: &Settings,
    clock: &Arc<dyn Clock>,
) -> anyhow::Result<Option<MasterKey>> {
    let root = |key| Root { path: &settings.data_dir, key, seals: false };
    let mark = waystone_store::find_key_mark(&settings.data_dir);
    if let (Command::EncryptStore { yes: false }, Some(None)) = (command, mark) {
        let question = format!(
            "Seal all that is in {}? There is no way back: without the key nothing of it can be read any more.",
            settings.data_dir.display()
        );
        ask(&question, "a data directory is sealed", "nothing was sealed")?;
    }
    if mark.is_some() {
        check(settings, clock).await?;
    }
    let (key, done) = match command {
        Command::Rotate(rotate) => {
            let (old, home) = (key::find_own(settings)?, rotate.home(settings)?);
            let (new, done) = rotate_key(root(old.as_ref()), || home.make(settings), clock)?;
            super::note(&format!(
                "the data directory has another key, {}; the old one opens only copies that were made before. Agents must know of it: run `waystone install` again",
                rotate.place()
            ));
            (new, done)
        }
        Command::EncryptStore { .. } => {
            let bar = bar("sealing");
            let progress = &mut |done, total| advance(&bar, done, total);
            let done = encrypt_store(root(None), || key::find_to_seal(settings), clock, progress)?;
            bar.finish_and_clear();
            super::note(
                "the data directory is sealed: keep the key, without it nothing comes back. Whoever opens it needs the key now (WAYSTONE_PASSPHRASE, WAYSTONE_KEY_FILE or the keychain); agents too: run `waystone install` again. Heads of the audit that were kept before no longer fit",
            );
            done
        }
        Command::Generate { .. } | Command::Export { .. } => return Ok(None),
    };
    tell(&done, if matches!(command, Command::Rotate(_)) { "under the old key" } else { "plain" });
    Ok(Some(key))
}

/// So many of what was removed are named.
const NAMED_MAX: usize = 3;

/// `was` is what was wrong with what was removed.
fn tell(done: &Rekeyed, was: &str) {
    super::note("a new backup was made under the new key");
    if !done.removed.is_empty() {
        let (copies, were) = if done.removed.len() == 1 { ("copy", "was") } else { ("copies", "were") };
        let named: Vec<String> = done.removed.iter().take(NAMED_MAX).map(|path| path.display().to_string()).collect();
        let more = if done.removed.len() > NAMED_MAX { ", …" } else { "" };
        super::note(&format!(
            "{} older {copies} removed, which {were} {was}: {}{more}",
            done.removed.len(),
            named.join(", ")
        ));
    }
    for path in &done.left {
        super::warn(&[format!("{} is plain or under another key; remove it if it is not needed", path.display())]);
    }
}
