//! Where Waystone keeps things: one SQLite database in a data directory that any number of processes share.
//!
//! This crate has the only SQL and the only code that touches data files. It has no policy: what is allowed and what is
//! best comes in with each call.

mod background;
mod directory;
mod lock;
mod maintenance;
mod mirror;
mod platform;
mod repair;
mod sqlite;

use std::path::PathBuf;

pub use directory::open_log;
pub use repair::{Repaired, repair};
pub use sqlite::Sqlite;

/// Why a data directory cannot be used. Each message ends with `; ` and what to do.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error("cannot use {path}: {error}; choose another directory with --data-dir or WAYSTONE_DATA_DIR")]
    Unusable { path: PathBuf, error: std::io::Error },
    #[error("{path} belongs to another user; choose another directory with --data-dir or WAYSTONE_DATA_DIR")]
    ForeignOwner { path: PathBuf },
    #[error("{path} is open to other users (mode {mode:o}); close it with `chmod 700 {path}`")]
    OpenToOthers { path: PathBuf, mode: u32 },
    #[error(
        "{path} is on a network file system ({kind}), where several processes cannot share a database safely; choose a local directory"
    )]
    NetworkFileSystem { path: PathBuf, kind: &'static str },
    #[error("{path} is in use by {}; stop them and try again", name_processes(.pids))]
    InUse { path: PathBuf, pids: Vec<u32> },
    #[error(
        "{path} was written by a newer version of waystone (schema {found}, this one knows {known}); upgrade this program"
    )]
    Newer { path: PathBuf, found: u32, known: u32 },
    #[error("{path} is missing, but copies of what was in it are there; bring it back with `waystone doctor --repair`")]
    Lost { path: PathBuf },
    #[error("{path} cannot be opened because the disk is full; free some room and try again")]
    Full { path: PathBuf },
    #[error("{path} cannot be used: {message}; `waystone doctor --repair` brings back what was saved")]
    Database { path: PathBuf, message: String },
}

fn name_processes(pids: &[u32]) -> String {
    match pids {
        [] => "another process".to_owned(),
        [pid] => format!("process {pid}"),
        pids => format!("processes {}", pids.iter().map(u32::to_string).collect::<Vec<_>>().join(", ")),
    }
}
