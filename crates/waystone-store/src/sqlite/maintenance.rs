//! What housekeeping does in the database. When it does so is in [`crate::maintenance`].

use std::fs::File;
use std::sync::Arc;
use std::time::Duration;

use rusqlite::{Connection, params};
use waystone_core::clock::Clock;
use waystone_core::store::{EVENT_LIFE_MS, KEY_LIFE_MS};

use super::connection::{BUSY_MAX, open_writer};
use super::error::DbResult;
use super::mirror;
use crate::OpenError;
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
/// How many files are written before that is recorded.
const MIRROR_PAGE: usize = 64;
/// How long housekeeping waits, for its turn to write and for readers. It has time: the next round comes in a second.
const WAIT_MAX: Duration = Duration::from_millis(500);

pub(crate) struct Upkeep {
    pub(crate) directory: DataDirectory,
    clock: Arc<dyn Clock>,
    write_lock: File,
    /// Opened when this process first has something to do.
    db: Option<Connection>,
    /// What the database's version was when its log had been copied whole.
    copied_version: Option<i64>,
}

impl Upkeep {
    pub(crate) fn new(directory: DataDirectory, clock: Arc<dyn Clock>) -> Result<Self, OpenError> {
        let write_lock = open_private_file(&directory.write_lock())
            .map_err(|error| OpenError::Unusable { path: directory.write_lock(), error })?;
        Ok(Self { directory, clock, write_lock, db: None, copied_version: None })
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

    /// Forgets events and idempotency keys whose time is over.
    pub(crate) fn expire(&mut self) -> rusqlite::Result<()> {
        let now = self.clock.now().ms();
        let expire_keys =
            |db: &Connection| db.execute("DELETE FROM idempotency_key WHERE at_ms < ?1", params![now - KEY_LIFE_MS]);
        self.locked(expire_keys)?;
        while self.locked(|db| expire_events(db, now - EVENT_LIFE_MS))? == Some(EXPIRE_ROWS) {}
        Ok(())
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

    fn db(&mut self) -> rusqlite::Result<&Connection> {
        if self.db.is_none() {
            let db = open_writer(&self.directory.database())?;
            db.busy_timeout(WAIT_MAX)?;
            // No one is promised what housekeeping commits: after a power cut it is done again.
            db.execute_batch("PRAGMA synchronous = NORMAL;")?;
            self.db = Some(db);
        }
        Ok(self.db.as_ref().expect("it was opened above"))
    }

    /// Takes its turn like every other writer; `None` when that did not come in time.
    fn locked<T>(&mut self, work: impl FnOnce(&Connection) -> rusqlite::Result<T>) -> rusqlite::Result<Option<T>> {
        if !lock_within(|| self.write_lock.try_lock(), WAIT_MAX).unwrap_or(false) {
            return Ok(None);
        }
        let done = self.db().and_then(work);
        let _ = self.write_lock.unlock();
        done.map(Some)
    }
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

/// Only from the old end: events in between stay, whatever a clock that was once wrong wrote on them.
fn expire_events(db: &Connection, before_ms: i64) -> rusqlite::Result<usize> {
    db.execute(
        "DELETE FROM event WHERE at_ms < ?1 AND (space, seq) IN
             (SELECT space, seq FROM event ORDER BY space, seq LIMIT ?2)",
        params![before_ms, EXPIRE_ROWS],
    )
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use waystone_testkit::contexts::Random;
    use waystone_testkit::{Harness, audit};

    use super::*;

    fn upkeep(h: &Harness) -> Upkeep {
        Upkeep::new(DataDirectory::prepare(h.data_dir()).unwrap(), h.clock.clone()).unwrap()
    }

    fn log_bytes(h: &Harness) -> u64 {
        h.data_dir().join("waystone.db-wal").metadata().map_or(0, |metadata| metadata.len())
    }

    /// A log that is due, and the turn to keep house: the store would do so on its own from the second second on.
    async fn grown_log(h: &Harness) -> (Upkeep, File) {
        let upkeep = upkeep(h);
        let turn = open_private_file(&upkeep.directory.maintenance_lock()).unwrap();
        turn.lock().unwrap();
        let mut random = Random::new(1);
        for n in 0..12 {
            h.save("s", json!({ "n": n, "text": random.text(500_000) })).await;
        }
        assert!(log_bytes(h) > PASSIVE_BYTES);
        (upkeep, turn)
    }

    #[tokio::test]
    async fn a_log_that_has_grown_is_folded_back_and_starts_over() {
        let h = Harness::new();
        let (mut upkeep, _turn) = grown_log(&h).await;
        let size = || log_bytes(&h);
        upkeep.checkpoint_log().unwrap();
        assert!(upkeep.copied_version.is_some());
        h.save("s", json!({ "n": 12 })).await;
        assert!(size() <= PASSIVE_BYTES, "the log starts over and is cut back: {}", size());
        h.check_invariants().await;
    }

    #[tokio::test]
    async fn a_log_is_folded_back_while_there_is_room_for_it() {
        let h = Harness::new();
        let (mut upkeep, _turn) = grown_log(&h).await;
        let size = || log_bytes(&h);
        let (grown, directory) = (size(), upkeep.directory.clone());
        make_room(&directory, upkeep.db().unwrap(), || 2 * grown).unwrap();
        assert_eq!(size(), grown, "there is room enough");
        make_room(&directory, upkeep.db().unwrap(), || 2 * grown - 1).unwrap();
        assert_eq!(size(), 0);
        h.check_invariants().await;
    }

    #[tokio::test]
    async fn what_was_kept_for_a_while_is_forgotten_when_its_time_is_over() {
        let h = Harness::new();
        for n in 0..30 {
            h.try_save(json!({ "sessionId": "s", "context": { "n": n }, "idempotencyKey": format!("k{n}") }))
                .await
                .unwrap();
            h.clock.advance_ms(EVENT_LIFE_MS / 10);
        }
        upkeep(&h).expire().unwrap();
        let db = audit::open(h.data_dir());
        let count = |table: &str| -> u64 {
            db.query_row(&format!("SELECT count(*) FROM {table}"), [], |row| row.get(0)).unwrap()
        };
        assert_eq!((count("event"), count("idempotency_key"), count("operation")), (10, 1, 30));
        h.check_invariants().await;
    }

    #[tokio::test]
    async fn housekeeping_does_not_wait_for_ever_for_its_turn() {
        let h = Harness::new();
        let mut upkeep = upkeep(&h);
        let other = open_private_file(&upkeep.directory.write_lock()).unwrap();
        other.lock().unwrap();
        upkeep.expire().unwrap();
        assert!(upkeep.locked(|_| Ok(())).unwrap().is_none());
    }
}
