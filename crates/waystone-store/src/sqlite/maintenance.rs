//! What housekeeping does in the database. When it does so is in [`crate::maintenance`].

use std::fs::File;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use rusqlite::{Connection, params};
use waystone_core::clock::{Clock, Timestamp};
use waystone_core::store::{CONTEXT_LIFE_MS, EVENT_LIFE_MS, KEY_LIFE_MS};
use waystone_core::{Error, GRACE_DAYS, Limits};

use super::backup::{Copy, Copying};
use super::checkpoint;
use super::clock::{is_believed, is_near};
use super::connection::{BUSY_MAX, open_writer};
use super::error::{DbResult, file_error};
use super::garbage;
use super::mirror;
use super::retention::{Cleared, PassedOver, Traces};
use super::search;
use super::usage;
use super::view;
use crate::OpenError;
use crate::backup::is_due;
use crate::directory::DataDirectory;
use crate::lock::lock_within;
use crate::platform::open_private_file;

const MIB: u64 = 1024 * 1024;
/// From here the log is copied into the database as far as readers allow.
const PASSIVE_BYTES: u64 = 4 * MIB;
/// From here readers that hold the log back are waited for.
const RESTART_BYTES: u64 = 64 * MIB;
/// How much is removed in one transaction, so that writers wait only briefly.
const EXPIRE_ROWS: usize = 1000;
const EXPIRE_CONTEXTS: usize = 32;
/// So many texts are read before their tokens are written.
const COUNTED_AT_ONCE: usize = 100;
const DAY_MS: i64 = 24 * 60 * 60 * 1000;
/// How many files are written before that is recorded.
const MIRROR_PAGE: usize = 64;
/// How long housekeeping waits, for its turn to write and for readers. It has time: the next round comes in a second.
pub(super) const WAIT_MAX: Duration = Duration::from_millis(500);

pub(crate) struct Upkeep {
    pub(crate) directory: DataDirectory,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) limits: Limits,
    write_lock: File,
    /// Opened when this process first has something to do.
    db: Option<Connection>,
    /// What the database's version was when its log had been copied whole.
    copied_version: Option<i64>,
    /// Names this start of the program.
    start: String,
    /// Whether someone waits for what is done: then it waits longer for its turn, and what it commits is durable.
    is_on_demand: bool,
    /// Whether it was said that the store is nearly full.
    pub(super) is_nearly_full: bool,
    /// What is left of what was removed.
    pub(super) traces: Traces,
    pub(super) cleared: Cleared,
    /// What could not be removed since this was last forgotten.
    pub(super) passed: PassedOver,
}

impl Upkeep {
    pub(crate) fn new(directory: DataDirectory, clock: Arc<dyn Clock>, limits: Limits) -> Result<Self, OpenError> {
        let write_lock = open_private_file(&directory.write_lock())
            .map_err(|error| OpenError::Unusable { path: directory.write_lock(), error })?;
        let start = clock.new_id();
        Ok(Self {
            directory,
            clock,
            limits,
            write_lock,
            db: None,
            copied_version: None,
            start,
            is_on_demand: false,
            is_nearly_full: false,
            traces: Traces::default(),
            cleared: Cleared::default(),
            passed: PassedOver::default(),
        })
    }

    /// For one thing that someone asked for.
    pub(crate) fn on_demand(directory: DataDirectory, clock: Arc<dyn Clock>, limits: Limits) -> Result<Self, Error> {
        let upkeep = Self::new(directory, clock, limits).map_err(|error| Error::broken(error.to_string()))?;
        Ok(Self { is_on_demand: true, ..upkeep })
    }

    /// Folds the write-ahead log back into the database when it has grown and changed.
    pub(crate) fn checkpoint_log(&mut self) -> rusqlite::Result<()> {
        let size = self.directory.write_ahead_log().metadata().map_or(0, |metadata| metadata.len());
        if size < PASSIVE_BYTES {
            return Ok(());
        }
        let version = self.db()?.pragma_query_value(None, "data_version", |row| row.get(0))?;
        if self.copied_version == Some(version) {
            return Ok(());
        }
        let is_whole = checkpoint(self.db()?, "PASSIVE")?;
        self.copied_version = is_whole.then_some(version);
        if !is_whole && size >= RESTART_BYTES {
            self.locked(|db| checkpoint(db, "RESTART"))?;
        }
        Ok(())
    }

    /// Forgets events, idempotency keys and contexts given to views whose time is over, if the time can be believed.
    pub(crate) fn expire(&mut self) -> DbResult<()> {
        if !self.is_time_believed()? {
            return Ok(());
        }
        let now = self.clock.now().ms();
        let expire_keys =
            |db: &Connection| db.execute("DELETE FROM idempotency_key WHERE at_ms < ?1", params![now - KEY_LIFE_MS]);
        self.locked(expire_keys)?;
        while self
            .locked(|db| expire_events(db, now - EVENT_LIFE_MS, now + DAY_MS))?
            .is_some_and(|count| count >= EXPIRE_ROWS)
        {}
        self.locked(|db| garbage::expire_plans(db, now))?;
        while self.locked(|db| in_transaction(db, |db| view::expire(db, now - CONTEXT_LIFE_MS, EXPIRE_CONTEXTS)))?
            == Some(EXPIRE_CONTEXTS)
        {}
        Ok(())
    }

    /// Whether the clock can be right, as far as that can be told.
    pub(super) fn is_time_believed(&mut self) -> DbResult<bool> {
        let (now, start) = (self.clock.now(), self.start.clone());
        if self.is_on_demand {
            return Ok(is_near(self.db()?, now.ms())?);
        }
        Ok(self.locked(|db| in_transaction(db, |db| is_believed(db, now.ms(), &start)))? == Some(true))
    }

    /// Removes what was deleted so long ago that it cannot be restored any more, and deletes what no one has used for long, if the time can be
    /// believed. False if it was over before all was done.
    pub(crate) fn purge(&mut self, is_over: &dyn Fn() -> bool) -> DbResult<bool> {
        if !self.is_time_believed()? {
            return Ok(true);
        }
        let now = self.clock.now();
        let before = Timestamp::from_ms(now.ms() - GRACE_DAYS * DAY_MS);
        // None of them waits for another that fails.
        let segments = self.remove_old_segments(before, now, is_over);
        let expired = self.remove_expired(before, is_over);
        let retired = self.retire(now, is_over);
        Ok(segments? & expired? & retired?)
    }

    fn remove_old_segments(&mut self, before: Timestamp, now: Timestamp, is_over: &dyn Fn() -> bool) -> DbResult<bool> {
        while !is_over() {
            if self.remove_segments(before, EXPIRE_ROWS, false, now)? < EXPIRE_ROWS {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// One transaction, in its turn.
    pub(super) fn in_turn<T>(&mut self, work: impl FnOnce(&Connection) -> DbResult<T>) -> DbResult<Option<T>> {
        let done = self.locked(|db| {
            let transaction = db.unchecked_transaction()?;
            let done = work(&transaction);
            if done.is_ok() {
                transaction.commit()?;
            }
            Ok(done)
        })?;
        done.transpose()
    }

    /// Counts the tokens of segments for which they are an estimate.
    pub(crate) fn count_tokens(&mut self, is_over: impl Fn() -> bool) -> DbResult<()> {
        while !is_over() {
            let counted = usage::count_estimated(self.db()?, COUNTED_AT_ONCE)?;
            if counted.is_empty() {
                break;
            }
            let now = self.clock.now();
            if self.in_turn(|db| usage::write_counted(db, &counted, now))?.is_none() {
                break;
            }
        }
        Ok(())
    }

    /// Brings what is kept for search up to what it is made from. With `is_last` also what was indexed a moment ago.
    pub(crate) fn index(&mut self, is_last: bool, is_over: impl Fn() -> bool) -> DbResult<()> {
        if !search::is_made(self.db()?)? {
            self.locked(|db| in_transaction(db, |db| search::begin_anew(db, false)))?;
            while self.in_turn(search::make_anew)?.is_some_and(|left| left > 0) && !is_over() {}
        }
        while let Some(pending) = checkpoint::read_unindexed(self.db()?)?.filter(|_| !is_over()) {
            if self.locked(|db| in_transaction(db, |db| checkpoint::write_found(db, &pending)))?.is_none() {
                break;
            }
        }
        while self.locked(|db| in_transaction(db, search::follow))? == Some(true) && !is_over() {}
        while !is_over() {
            let now = self.clock.now();
            let pending = search::read_pending(self.db()?, (!is_last).then_some(now))?;
            if pending.is_empty() {
                break;
            }
            let written = self.locked(|db| in_transaction(db, |db| search::write_indexed(db, &pending, now)))?;
            if written.is_none() {
                break;
            }
        }
        Ok(())
    }

    /// Begins the copy of a day, if there is none yet and something to copy.
    pub(crate) fn begin_backup(&mut self) -> DbResult<Option<Copying>> {
        let now = self.clock.now();
        let failed = |directory: &DataDirectory, error: io::Error| file_error(&directory.backups(), &error);
        let is_due = is_due(&self.directory, now).map_err(|error| failed(&self.directory, error))?;
        let newest: i64 = self.db()?.query_row("SELECT max(operation_seq) FROM space", [], |row| row.get(0))?;
        if !is_due || newest == 0 {
            return Ok(None);
        }
        let copy = Copy::new(&self.directory, None, now)?;
        Ok(Some(Copying::start(copy).map_err(|error| failed(&self.directory, error))?))
    }

    /// Writes the files of groups that had changed at the beginning, until all are written or it `is_over`. Between pages the log is
    /// folded back: there may be thousands.
    pub(crate) fn mirror(&mut self, is_over: impl Fn() -> bool) -> DbResult<()> {
        let (directory, now) = (self.directory.clone(), self.clock.now());
        let newest: i64 = self.db()?.query_row("SELECT max(operation_seq) FROM space", [], |row| row.get(0))?;
        let mut after = (0, 0);
        loop {
            let dirty = mirror::list_dirty(self.db()?, after, MIRROR_PAGE)?;
            let dirty: Vec<_> = dirty.into_iter().filter(|(_, changed)| *changed <= newest).collect();
            let Some(last) = dirty.last() else { return Ok(()) };
            after = *last;
            let mut mirrored = Vec::new();
            for (key, _) in dirty {
                if is_over() {
                    break;
                }
                let turn = mirror::take_turn(&directory)?;
                let snapshot = self.db()?.unchecked_transaction()?;
                match mirror::write(&directory, &snapshot, key, now, &turn) {
                    Ok(done) => mirrored.extend(done),
                    Err(error) => tracing::warn!(%error, "a mirror file was not written; it is tried again"),
                }
            }
            // Not marked in time, they are written once more in the next round.
            self.locked(|db| mirror::mark_mirrored(db, &mirrored))?;
            if is_over() {
                return Ok(());
            }
            self.checkpoint_log()?;
        }
    }

    pub(super) fn db(&mut self) -> rusqlite::Result<&Connection> {
        if self.db.is_none() {
            let db = open_writer(&self.directory.database(), self.directory.keys())?;
            db.busy_timeout(self.wait())?;
            if !self.is_on_demand {
                // No one is promised what housekeeping commits: after a power cut it is done again.
                db.execute_batch("PRAGMA synchronous = NORMAL;")?;
            }
            self.db = Some(db);
        }
        Ok(self.db.as_ref().expect("it was opened above"))
    }

    fn wait(&self) -> Duration {
        if self.is_on_demand { BUSY_MAX } else { WAIT_MAX }
    }

    /// Copies the whole log into the database and cuts it off, so that nothing stands in it any more. False when its turn did not come or
    /// readers held it for longer than they are waited for; writers wait meanwhile.
    pub(super) fn cut_log(&mut self, readers_max: Duration) -> rusqlite::Result<bool> {
        let wait = self.wait();
        let is_cut = self.locked(|db| {
            db.busy_timeout(readers_max)?;
            // Copied whole is not enough: a reader at its end keeps it as it is.
            let is_cut = db.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| Ok(row.get::<_, i64>(0)? == 0));
            db.busy_timeout(wait)?;
            is_cut
        })?;
        Ok(is_cut == Some(true))
    }

    /// Takes its turn like every other writer; `None` when that did not come in time.
    pub(super) fn locked<T>(
        &mut self,
        work: impl FnOnce(&Connection) -> rusqlite::Result<T>,
    ) -> rusqlite::Result<Option<T>> {
        if !lock_within(|| self.write_lock.try_lock(), self.wait()).unwrap_or(false) {
            return Ok(None);
        }
        let done = self.db().and_then(work);
        let _ = self.write_lock.unlock();
        done.map(Some)
    }
}

pub(super) fn in_transaction<T>(
    db: &Connection,
    work: impl FnOnce(&Connection) -> rusqlite::Result<T>,
) -> rusqlite::Result<T> {
    let transaction = db.unchecked_transaction()?;
    let done = work(&transaction)?;
    transaction.commit()?;
    Ok(done)
}

/// Folds the log back before it takes the room that folding it back needs. Then nothing could be written any more, whatever is
/// freed: writers are faster than housekeeping, and the log never gives room back. Only for who has the turn to write.
/// How much room there is costs a call to the system, so it is asked only when the log has grown.
pub(crate) fn make_room(
    directory: &DataDirectory,
    db: &Connection,
    free_bytes: impl FnOnce() -> u64,
) -> rusqlite::Result<()> {
    let log_bytes = directory.write_ahead_log().metadata().map_or(0, |metadata| metadata.len());
    // The database grows by no more than the log holds; the same again is left for what is written until the next look.
    if log_bytes < PASSIVE_BYTES || free_bytes() >= 2 * log_bytes {
        return Ok(());
    }
    db.busy_timeout(WAIT_MAX)?;
    let folded = checkpoint(db, "TRUNCATE");
    db.busy_timeout(BUSY_MAX)?;
    folded.map(drop)
}

/// Whether the whole log was copied.
pub(crate) fn checkpoint(db: &Connection, mode: &str) -> rusqlite::Result<bool> {
    db.query_row(&format!("PRAGMA wal_checkpoint({mode})"), [], |row| {
        let (log, copied): (i64, i64) = (row.get(1)?, row.get(2)?);
        Ok(log == copied)
    })
}

/// Only from the old end, up to the first that is still young, whatever a clock that was once wrong wrote on those
/// behind it: a subscriber is told that it missed something by what is missing before the first event there is. One from the future is not
/// young: behind it nothing would go before that time has come. Of each space up to `EXPIRE_ROWS` are looked at and removed.
fn expire_events(db: &Connection, before_ms: i64, ahead_ms: i64) -> rusqlite::Result<usize> {
    db.execute(
        "DELETE FROM event WHERE (space, seq) IN
             (SELECT e.space, e.seq FROM space AS s JOIN event AS e ON e.space = s.space AND e.seq <
                  (SELECT coalesce(min(seq) FILTER (WHERE at_ms >= ?1 AND at_ms < ?3), max(seq) + 1)
                   FROM (SELECT seq, at_ms FROM event WHERE space = s.space ORDER BY seq LIMIT ?2)))",
        params![before_ms, EXPIRE_ROWS, ahead_ms],
    )
}

#[cfg(test)]
mod tests;
