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

/// The folders of finished backups that were made by themselves, newest first. One from the future was made by a clock that was wrong: it
/// counts as the oldest. What a person put there is none of them.
pub(crate) fn list(directory: &DataDirectory, now: Timestamp) -> io::Result<Vec<PathBuf>> {
    let entries = match fs::read_dir(directory.backups()) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let mut backups: Vec<PathBuf> = entries.map(|entry| Ok(entry?.path())).collect::<io::Result<_>>()?;
    backups.retain(|path| directory.is_backup(path) && database_in(path).is_file());
    let day_ahead = directory.backup(Timestamp::from_ms(now.ms() + DAY_MS));
    backups.sort_by(|a, b| (*a > day_ahead, b).cmp(&(*b > day_ahead, a)));
    Ok(backups)
}

/// Whether there is none that is younger than a day.
pub(crate) fn is_due(directory: &DataDirectory, now: Timestamp) -> io::Result<bool> {
    let day = |ms: i64| directory.backup(Timestamp::from_ms(now.ms() + ms));
    let is_recent = |newest: &PathBuf| *newest > day(-DAY_MS) && *newest <= day(DAY_MS);
    Ok(!list(directory, now)?.first().is_some_and(is_recent))
}

/// An empty file in a folder of its own, which is filled and then takes its name.
pub(crate) struct Unfinished {
    folder: PathBuf,
    /// By which others know that someone is at it.
    lock: Option<fs::File>,
}

impl Unfinished {
    /// Begins a copy in `folder`, which must hold nothing else.
    pub(crate) fn begin(folder: &Path) -> io::Result<Self> {
        create_private_dir(folder)?;
        let mut unfinished = Self { folder: folder.to_owned(), lock: None };
        match fs::remove_file(unfinished.path()) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        if fs::read_dir(folder)?.next().is_some() {
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, "it is not empty"));
        }
        let file = create_private_file(&unfinished.path())?;
        file.lock()?;
        unfinished.lock = Some(file);
        Ok(unfinished)
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.folder.join(UNFINISHED)
    }

    /// Makes it durable.
    pub(crate) fn sync(&self) -> io::Result<()> {
        fs::File::open(self.path())?.sync_all()
    }

    /// Gives it its name.
    pub(crate) fn finish(self) -> io::Result<PathBuf> {
        self.sync()?;
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
pub(crate) fn rotate(directory: &DataDirectory, now: Timestamp) -> io::Result<()> {
    let kept = list(directory, now)?;
    for entry in fs::read_dir(directory.backups())? {
        let path = entry?.path();
        let is_kept = kept.iter().take(KEPT).any(|backup| *backup == path);
        if !is_kept && directory.is_backup(&path) && !is_being_made(&path) {
            fs::remove_dir_all(&path)?;
        }
    }
    sync_directory(&directory.backups())
}

/// Removes copies that broke off, and that no one is at: they may hold what was there when they were begun. Returns those that stay.
/// Only for who has the turn to write files.
pub(crate) fn remove_unfinished(directory: &DataDirectory) -> io::Result<Vec<PathBuf>> {
    let entries = match fs::read_dir(directory.backups()) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let mut left = Vec::new();
    for entry in entries {
        let path = entry?.path();
        let is_unfinished = directory.is_backup(&path) && path.join(UNFINISHED).is_file() && !is_being_made(&path);
        // One that was put there under that name beside a whole copy goes alone.
        let remove = || match database_in(&path).exists() {
            true => fs::remove_file(path.join(UNFINISHED)),
            false => fs::remove_dir_all(&path),
        };
        if is_unfinished && let Err(error) = remove() {
            tracing::warn!(%error, backup = %path.display(), "a backup that broke off could not be removed; it is tried again");
            left.push(path);
        }
    }
    Ok(left)
}

fn is_being_made(backup: &Path) -> bool {
    fs::File::open(backup.join(UNFINISHED)).is_ok_and(|file| file.try_lock_shared().is_err())
}
