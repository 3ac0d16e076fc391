//! Backups: whole copies of the database, in folders named by their time. The newest few of those that are made by themselves are kept.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use waystone_core::clock::Timestamp;

use crate::directory::{DATABASE, DataDirectory};
use crate::platform::{create_private_dir, create_private_file, sync_directory};

const KEPT: usize = 3;
const DAY_MS: i64 = 24 * 60 * 60 * 1000;
/// What a copy is called until it is whole.
const UNFINISHED: &str = "unfinished.db";

/// The database of a backup.
pub(crate) fn database_in(backup: &Path) -> PathBuf {
    backup.join(DATABASE)
}

/// The folders of finished backups, newest first.
pub(crate) fn list(directory: &DataDirectory) -> io::Result<Vec<PathBuf>> {
    let entries = match fs::read_dir(directory.backups()) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let mut backups: Vec<PathBuf> = entries.map(|entry| Ok(entry?.path())).collect::<io::Result<_>>()?;
    backups.retain(|path| database_in(path).is_file());
    backups.sort();
    backups.reverse();
    Ok(backups)
}

/// Whether there is none that is younger than a day.
pub(crate) fn is_due(directory: &DataDirectory, now: Timestamp) -> io::Result<bool> {
    let Some(newest) = list(directory)?.into_iter().next() else { return Ok(true) };
    let day_ago = directory.backup(Timestamp::from_ms(now.ms() - DAY_MS));
    // One from the future was made by a clock that was wrong.
    let day_ahead = directory.backup(Timestamp::from_ms(now.ms() + DAY_MS));
    Ok(newest <= day_ago || newest > day_ahead)
}

/// An empty file in a folder of its own, which is filled and then takes its name.
pub(crate) struct Unfinished {
    folder: PathBuf,
}

impl Unfinished {
    /// Begins a copy in `folder`, which must hold nothing else.
    pub(crate) fn begin(folder: &Path) -> io::Result<Self> {
        create_private_dir(folder)?;
        let unfinished = Self { folder: folder.to_owned() };
        match fs::remove_file(unfinished.path()) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        if fs::read_dir(folder)?.next().is_some() {
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, "it is not empty"));
        }
        create_private_file(&unfinished.path())?;
        Ok(unfinished)
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.folder.join(UNFINISHED)
    }

    /// Makes it durable and gives it its name.
    pub(crate) fn finish(self) -> io::Result<PathBuf> {
        fs::File::open(self.path())?.sync_all()?;
        let database = database_in(&self.folder);
        fs::rename(self.path(), &database)?;
        sync_directory(&self.folder)?;
        self.folder.parent().map_or(Ok(()), sync_directory)?;
        Ok(database)
    }

    /// Leaves nothing behind.
    pub(crate) fn abandon(self) {
        let _ = fs::remove_file(self.path());
        let _ = fs::remove_dir(&self.folder);
    }
}

/// Removes all but the newest, and what is left of those that broke off. Only for who has the turn to write files.
pub(crate) fn rotate(directory: &DataDirectory) -> io::Result<()> {
    let kept = list(directory)?;
    for entry in fs::read_dir(directory.backups())? {
        let path = entry?.path();
        if !kept.iter().take(KEPT).any(|backup| *backup == path) && is_ours(&path) {
            fs::remove_dir_all(&path)?;
        }
    }
    sync_directory(&directory.backups())
}

/// Whether it is a folder that a backup made, and not what someone put there.
fn is_ours(path: &Path) -> bool {
    let names = fs::read_dir(path).map(|entries| entries.flatten().map(|entry| entry.file_name()).collect::<Vec<_>>());
    names.is_ok_and(|names| names.iter().all(|name| name == DATABASE || name == UNFINISHED))
}
