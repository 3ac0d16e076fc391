//! The database copied whole, while others read and write. It is the one long read there is: the write-ahead log grows meanwhile.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use rusqlite::{Connection, InterruptHandle, params};
use waystone_core::Error;
use waystone_core::api::BackedUp;
use waystone_core::clock::Timestamp;
use waystone_core::error::Unavailable;

use super::connection::{open_alone, open_writer};
use super::error::{DbResult, file_error, unreadable};
use super::migration::{VERSION, make, version};
use super::mirror::take_turn;
use super::retention::{forget_live, list_present, remove_again};
use super::seal::Keys;
use crate::backup::{Unfinished, database_in, list, remove_unfinished, rotate};
use crate::directory::DataDirectory;
use crate::mirror::tombstone::{self, Removed};
use crate::platform::free_bytes;

/// How often someone who wants it to end is heard.
const POLL: Duration = Duration::from_millis(5);
/// What must be left beside a copy.
const SPARE_BYTES: u64 = 16 * 1024 * 1024;

/// A copy that is to be made.
pub(crate) struct Copy {
    directory: DataDirectory,
    db: Connection,
    /// Where to; one of its own in `backups/` when left out.
    to: Option<PathBuf>,
    at: Timestamp,
}

impl Copy {
    pub(crate) fn new(directory: &DataDirectory, to: Option<PathBuf>, at: Timestamp) -> DbResult<Self> {
        Ok(Self { directory: directory.clone(), db: open_writer(&directory.database(), directory.keys())?, to, at })
    }

    fn interrupt_handle(&self) -> InterruptHandle {
        self.db.get_interrupt_handle()
    }

    /// Makes the copy. What was removed meanwhile is removed from it too, before it has its name.
    pub(crate) fn make(&self) -> DbResult<BackedUp> {
        // One that was begun at the same moment is someone else's.
        let own = || {
            let mut later = (0..1000).map(|ms| self.directory.backup(Timestamp::from_ms(self.at.ms() + ms)));
            later.find(|folder| !folder.exists()).unwrap_or_else(|| self.directory.backup(self.at))
        };
        let folder = self.to.clone().unwrap_or_else(own);
        let failed = |error: io::Error| match error.kind() {
            io::ErrorKind::AlreadyExists => {
                let message = format!("{} is not empty; a backup has a directory of its own", folder.display());
                Error::InvalidInput(message).into()
            }
            _ => file_error(&folder, &error),
        };
        let unfinished = Unfinished::begin(&folder).map_err(failed)?;
        let done = self.fill(&unfinished.path()).and_then(|(sessions, checkpoints)| {
            // What takes long comes before others wait: so much of what was removed as no one can bring back.
            let mut gone = tombstone::read_all(&self.directory).map_err(failed)?;
            for present in list_present(&self.db, &gone)? {
                gone.remove(&present);
            }
            remove_from(&unfinished.path(), self.directory.keys(), &gone, self.at)?;
            unfinished.sync().map_err(failed)?;
            let turn = take_turn(&self.directory)?;
            let mut removed = tombstone::read_all(&self.directory).map_err(failed)?;
            removed.retain(|id| !gone.contains(id));
            forget_live(&self.directory, &self.db, &mut removed)?;
            remove_from(&unfinished.path(), self.directory.keys(), &removed, self.at)?;
            Ok((sessions, checkpoints, turn))
        });
        let (sessions, checkpoints, _turn) = match done {
            Ok(done) => done,
            Err(error) => {
                unfinished.abandon();
                return Err(error);
            }
        };
        let database = unfinished.finish().map_err(failed)?;
        if self.to.is_none() {
            rotate(&self.directory, self.at).map_err(failed)?;
        }
        let size_bytes = database.metadata().map_or(0, |metadata| metadata.len());
        Ok(BackedUp { path: folder.display().to_string(), size_bytes, sessions, checkpoints, warnings: Vec::new() })
    }

    /// Returns how many sessions and checkpoints are in it.
    fn fill(&self, path: &Path) -> DbResult<(u64, u64)> {
        let size = self.directory.database().metadata().map_or(0, |metadata| metadata.len());
        let parent = path.parent().unwrap_or(path);
        if free_bytes(parent).is_ok_and(|free| free < size + SPARE_BYTES) {
            let message = format!("storage: a backup takes {size} bytes, and there is no room for it");
            return Err(Error::StorageUnavailable { reason: Unavailable::Full, message }.into());
        }
        self.db.execute("VACUUM INTO ?1", params![path.display().to_string()])?;
        let copy = open_alone(path, self.directory.keys())?;
        Ok(copy
            .query_row("SELECT session_count, checkpoint_count FROM space", [], |row| Ok((row.get(0)?, row.get(1)?)))?)
    }
}

/// Copies all that there is, for who has the directory alone.
pub(crate) fn copy_whole(directory: &DataDirectory, at: Timestamp) -> Result<BackedUp, Error> {
    Ok(Copy::new(directory, None, at)?.make()?)
}

/// Removes checkpoints from a copy that no one else has open.
fn remove_from(path: &Path, keys: &Arc<Keys>, removed: &Removed, at: Timestamp) -> DbResult<()> {
    if removed.is_empty() {
        return Ok(());
    }
    let mut db = open_alone(path, keys)?;
    if version(&db)? < VERSION {
        let ids = serde_json::json!(removed).to_string();
        let has_any = "SELECT EXISTS (SELECT 1 FROM checkpoint WHERE id IN (SELECT value FROM json_each(?1)))
                           OR EXISTS (SELECT 1 FROM session WHERE id IN (SELECT value FROM json_each(?1)))";
        if !db.query_row(has_any, params![ids], |row| row.get(0))? {
            return Ok(());
        }
        // What removes asks for what a copy of an older format does not have.
        drop(db);
        make(path, keys, at).map_err(|error| unreadable("a backup", error))?;
        db = open_alone(path, keys)?;
        db.pragma_update(None, "journal_mode", "DELETE")?;
    }
    let transaction = db.unchecked_transaction()?;
    remove_again(&transaction, removed)?;
    transaction.commit()?;
    Ok(())
}

/// Removes checkpoints from every backup in the data directory. Returns those from which they could not be removed. Only for who has the turn
/// to write files.
pub(crate) fn remove_from_all(directory: &DataDirectory, removed: &Removed, now: Timestamp) -> DbResult<Vec<PathBuf>> {
    let failed = |error: io::Error| file_error(&directory.backups(), &error);
    let mut unclean = remove_unfinished(directory).map_err(failed)?;
    for backup in list(directory, now).map_err(failed)? {
        if let Err(error) = remove_from(&database_in(&backup), directory.keys(), removed, now) {
            tracing::warn!(%error, backup = %backup.display(), "nothing could be removed from a backup; it is tried again");
            unclean.push(backup);
        }
    }
    Ok(unclean)
}

/// A copy that is being made beside everything else. Dropping it breaks it off.
pub(crate) struct Copying {
    is_over: Arc<AtomicBool>,
    interrupt: InterruptHandle,
    thread: Option<JoinHandle<()>>,
}

impl Copying {
    pub(crate) fn start(copy: Copy) -> io::Result<Self> {
        let (is_over, interrupt) = (Arc::new(AtomicBool::new(false)), copy.interrupt_handle());
        let told = Arc::clone(&is_over);
        let thread = std::thread::Builder::new().name("backup".to_owned()).spawn(move || {
            if told.load(Ordering::Acquire) {
                return;
            }
            match copy.make() {
                Ok(made) => tracing::info!(path = made.path, bytes = made.size_bytes, "a backup was made"),
                Err(_) if told.load(Ordering::Acquire) => {}
                Err(error) => tracing::warn!(%error, "no backup could be made; it is tried again"),
            }
        })?;
        Ok(Self { is_over, interrupt, thread: Some(thread) })
    }

    pub(crate) fn is_finished(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }
}

impl Drop for Copying {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Release);
        // It may be between two statements, where nothing is heard.
        while !self.is_finished() {
            self.interrupt.interrupt();
            std::thread::sleep(POLL);
        }
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
