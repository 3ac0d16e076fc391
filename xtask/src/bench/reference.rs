//! What the disk and SQLite do at their best, on the same disk in the same run.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};

use rusqlite::{Connection, params};

/// Appends 4 KiB to a file and syncs it.
pub(super) struct Appender(File);

impl Appender {
    pub(super) fn new(path: &Path) -> anyhow::Result<Self> {
        Ok(Self(OpenOptions::new().create(true).append(true).open(path)?))
    }

    pub(super) fn append(&mut self) -> anyhow::Result<Duration> {
        let block = [7u8; 4096];
        let started = Instant::now();
        self.0.write_all(&block)?;
        self.0.sync_data()?;
        Ok(started.elapsed())
    }
}

/// Commits a row of 200 bytes to a database with the same settings as ours.
pub(super) struct RowWriter(Connection);

impl RowWriter {
    #[expect(clippy::disallowed_methods, reason = "a reference database, not a store")]
    pub(super) fn new(path: &Path) -> anyhow::Result<Self> {
        let db = Connection::open(path)?;
        db.execute_batch("PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA wal_autocheckpoint = 0;")?;
        db.execute_batch("CREATE TABLE row (key INTEGER PRIMARY KEY, value BLOB NOT NULL) STRICT")?;
        Ok(Self(db))
    }

    pub(super) fn insert(&mut self) -> anyhow::Result<Duration> {
        let started = Instant::now();
        self.0.prepare_cached("INSERT INTO row (value) VALUES (?1)")?.execute(params![[7u8; 200]])?;
        Ok(started.elapsed())
    }
}
