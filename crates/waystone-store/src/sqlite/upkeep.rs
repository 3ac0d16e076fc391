//! What housekeeping does in the database. When it does so is in [`crate::maintenance`].

use std::fs::File;
use std::sync::Arc;

use rusqlite::{Connection, params};
use waystone_core::clock::Clock;

use super::connection::open_writer;
use crate::OpenError;
use crate::directory::DataDirectory;
use crate::platform::open_private_file;

const MIB: u64 = 1024 * 1024;
const DAY_MS: i64 = 24 * 60 * 60 * 1000;
/// From here the log is copied into the database as far as readers allow.
const PASSIVE_BYTES: u64 = 4 * MIB;
/// From here readers are waited for, so that the log starts over.
const RESTART_BYTES: u64 = 64 * MIB;
/// How much is removed in one transaction, so that writers wait only briefly.
const EXPIRE_ROWS: i64 = 1000;

pub(crate) struct Upkeep {
    pub(crate) directory: DataDirectory,
    clock: Arc<dyn Clock>,
    write_lock: File,
    /// Opened when this process first has something to do.
    db: Option<Connection>,
}

impl Upkeep {
    pub(crate) fn new(directory: DataDirectory, clock: Arc<dyn Clock>) -> Result<Self, OpenError> {
        let write_lock = open_private_file(&directory.write_lock())
            .map_err(|error| OpenError::Unusable { path: directory.write_lock(), error })?;
        Ok(Self { directory, clock, write_lock, db: None })
    }

    /// Folds the write-ahead log back into the database when it has grown.
    pub(crate) fn checkpoint_log(&mut self) -> rusqlite::Result<()> {
        let size = self.directory.write_ahead_log().metadata().map_or(0, |metadata| metadata.len());
        if size < PASSIVE_BYTES {
            return Ok(());
        }
        if size < RESTART_BYTES {
            return checkpoint(self.db()?, "PASSIVE");
        }
        self.locked(|db| checkpoint(db, "RESTART"))
    }

    /// Forgets events after seven days and idempotency keys after one.
    pub(crate) fn expire(&mut self) -> rusqlite::Result<()> {
        let now = self.clock.now().ms();
        self.locked(|db| {
            db.execute("DELETE FROM idempotency_key WHERE at_ms < ?1", params![now - DAY_MS])?;
            Ok(())
        })?;
        while self.locked(|db| expire_events(db, now - 7 * DAY_MS))? == EXPIRE_ROWS as usize {}
        Ok(())
    }

    fn db(&mut self) -> rusqlite::Result<&Connection> {
        if self.db.is_none() {
            self.db = Some(open_writer(&self.directory.database())?);
        }
        Ok(self.db.as_ref().expect("it was opened above"))
    }

    /// Queues like every other writer.
    fn locked<T>(&mut self, work: impl FnOnce(&Connection) -> rusqlite::Result<T>) -> rusqlite::Result<T> {
        if let Err(error) = self.write_lock.lock() {
            tracing::warn!(%error, "cannot take write.lock");
        }
        let done = self.db().and_then(work);
        let _ = self.write_lock.unlock();
        done
    }
}

fn checkpoint(db: &Connection, mode: &str) -> rusqlite::Result<()> {
    db.query_row(&format!("PRAGMA wal_checkpoint({mode})"), [], |_| Ok(()))
}

/// Only from the old end: events in between stay, whatever a clock that was once wrong wrote on them.
fn expire_events(db: &Connection, before_ms: i64) -> rusqlite::Result<usize> {
    db.execute(
        "DELETE FROM event WHERE at_ms < ?1 AND (space, seq) IN
             (SELECT space, seq FROM event ORDER BY space, seq LIMIT ?2)",
        params![before_ms, EXPIRE_ROWS],
    )
}
