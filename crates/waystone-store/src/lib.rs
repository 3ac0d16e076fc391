//! Where Waystone keeps things: one SQLite database in a data directory that any number of processes share.
//!
//! This crate has the only SQL and the only code that touches data files. It has no policy: what is allowed and what is
//! best comes in with each call.

mod background;
mod backup;
mod directory;
mod key;
mod lock;
mod maintenance;
mod mirror;
mod platform;
mod repair;
mod seal;
mod sqlite;

use std::path::{Path, PathBuf};

pub use directory::{make_exports, open_log, open_prompt};
pub use key::{Rekeyed, encrypt_store, rotate_key};
pub use mirror::file_name;
pub use platform::sync_directory;
pub use repair::{Repaired, find_backup, repair, restore_from};
pub use seal::{KeyMark, MasterKey, NoKey, NoRandomness};
pub use sqlite::Sqlite;

/// By which key what is in a data directory is sealed; by none when it is plain. Nothing when there is nothing in it.
pub fn find_key_mark(root: &Path) -> Option<Option<KeyMark>> {
    directory::DataDirectory::find(root).ok().and_then(|directory| sqlite::find_mark(&directory))
}

/// The same of a backup.
pub fn find_key_mark_of_backup(from: &Path) -> Option<Option<KeyMark>> {
    let database = if from.is_dir() { backup::database_in(from) } else { from.to_owned() };
    sqlite::find_mark_of_copy(&database)
}

/// A data directory, and the key of what is sealed in it.
#[derive(Debug, Clone, Copy)]
pub struct Root<'a> {
    pub path: &'a Path,
    /// What opens a sealed store. It seals nothing by itself.
    pub key: Option<&'a MasterKey>,
    /// A store that is made is sealed, and a plain one is refused.
    pub seals: bool,
}

impl<'a, P: AsRef<Path> + ?Sized> From<&'a P> for Root<'a> {
    fn from(path: &'a P) -> Self {
        Self { path: path.as_ref(), key: None, seals: false }
    }
}

/// Why a data directory cannot be used. What to do about it is its hint.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error("cannot use {path}: {error}")]
    Unusable { path: PathBuf, error: std::io::Error },
    #[error("{path} belongs to another user")]
    ForeignOwner { path: PathBuf },
    #[error("{path} is open to other users (mode {mode:o})")]
    OpenToOthers { path: PathBuf, mode: u32 },
    #[error("{path} is on a network file system ({kind}), where several processes cannot share a database safely")]
    NetworkFileSystem { path: PathBuf, kind: &'static str },
    #[error("{path} is in use by {}", name_processes(.pids))]
    InUse { path: PathBuf, pids: Vec<u32> },
    #[error("{path} was not made by waystone: {error}")]
    Planted { path: PathBuf, error: std::io::Error },
    #[error("{path} was written by a newer version of waystone (schema {found}, this one knows {known})")]
    Newer { path: PathBuf, found: u32, known: u32 },
    #[error("what is in {path} is sealed, and there is no key")]
    Sealed { path: PathBuf },
    #[error("what is in {path} is sealed with another key")]
    OtherKey { path: PathBuf },
    #[error("what is in {path} is not sealed")]
    NotSealed { path: PathBuf },
    #[error("there is nothing in {path}, and a process that only reads makes nothing")]
    Nothing { path: PathBuf },
    #[error(
        "{path} has an older format (schema {found}, this one knows {known}), which a process that only reads does not change"
    )]
    Older { path: PathBuf, found: u32, known: u32 },
    #[error("{path} has a log with changes in it, which cannot be read where nothing can be written: {message}")]
    Unread { path: PathBuf, message: String },
    #[error("{path} is missing, but copies of what was in it are there")]
    Lost { path: PathBuf },
    #[error("{path} cannot be opened because the disk is full")]
    Full { path: PathBuf },
    #[error("{path} cannot be used: {message}")]
    Database { path: PathBuf, message: String },
    #[error("{path} is no backup that can be used: {message}")]
    Backup { path: PathBuf, message: String },
    #[error("there is nothing in {path}")]
    Empty { path: PathBuf },
    #[error("the key of {path} could not be changed: {message}")]
    Rekey { path: PathBuf, message: String },
    #[error("{path} is under the new key, but copies are left that are not: {message}")]
    Unsettled { path: PathBuf, message: String },
    #[error("{path} could not be brought back: {message}")]
    Unrepaired { path: PathBuf, message: String },
}

impl OpenError {
    /// The next thing to do.
    pub fn hint(&self) -> String {
        let hint = match self {
            Self::Unusable { error, .. } if error.kind() == std::io::ErrorKind::PermissionDenied => {
                "let this user write to it, only read it with --read-only, or choose another directory with --data-dir or WAYSTONE_DATA_DIR"
            }
            Self::Unusable { .. } | Self::ForeignOwner { .. } => {
                "choose another directory with --data-dir or WAYSTONE_DATA_DIR"
            }
            Self::OpenToOthers { path, .. } => return format!("close it with `chmod 700 {}`", path.display()),
            Self::NetworkFileSystem { .. } => "choose a local directory",
            Self::InUse { .. } => "stop them and try again",
            Self::Planted { .. } => {
                "find out who put it there, and take it away; the data directory itself may be reached by a link"
            }
            Self::Newer { .. } => "upgrade this program",
            Self::Sealed { .. } | Self::OtherKey { .. } => {
                "name the key that it was made with, with WAYSTONE_KEY_FILE, or its passphrase, with WAYSTONE_PASSPHRASE; one in the keychain is found when that is unlocked"
            }
            Self::NotSealed { .. } => "seal it with `waystone key encrypt-store`, or set encryption to disabled",
            Self::Nothing { .. } => "choose another directory with --data-dir, or start without --read-only",
            Self::Older { .. } => {
                "bring it to the present with any command without --read-only, such as `waystone status`"
            }
            Self::Unread { .. } => {
                "end the process that writes to it, or copy the whole directory to where it can be written"
            }
            Self::Lost { .. } => "bring it back with `waystone doctor --repair`",
            Self::Full { .. } => "free some room and try again",
            Self::Database { .. } => "`waystone doctor --repair` brings back what was saved",
            Self::Backup { .. } => {
                "name the directory that `waystone backup` made, or one in backups/ of a data directory"
            }
            Self::Empty { .. } => "choose another directory with --data-dir or WAYSTONE_DATA_DIR",
            Self::Unsettled { .. } => {
                "keep the new key, without it nothing comes back; make room if the disk is full, and run the command again with the new key set"
            }
            Self::Rekey { .. } => "what is there is as it was; `waystone doctor` says whether it is whole",
            Self::Unrepaired { .. } => "nothing was lost by it; see that there is room, and try again",
        };
        hint.to_owned()
    }
}

fn name_processes(pids: &[u32]) -> String {
    match pids {
        [] => "another process".to_owned(),
        [pid] => format!("process {pid}"),
        pids => format!("processes {}", pids.iter().map(u32::to_string).collect::<Vec<_>>().join(", ")),
    }
}
