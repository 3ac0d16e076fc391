//! The only place that opens databases, so that every connection has the same settings.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::functions::FunctionFlags;
use rusqlite::{Connection, ErrorCode, OpenFlags};

use super::checkpoint::parse_metadata;
use super::seal::{self, Keys};

/// How long SQLite waits for other connections.
pub(crate) const BUSY_MAX: Duration = Duration::from_secs(5);

/// For the writer thread and housekeeping. Commits sync the log before they return; checkpoints happen in housekeeping.
///
/// What SQLite cannot open for writing it opens for reading, and stays with that as long as the connection lives. So one that
/// cannot write is opened once more: a fault that passes must not last. After that reads go on, and writes say why they fail.
pub(crate) fn open_writer(path: &Path, keys: &Arc<Keys>) -> rusqlite::Result<Connection> {
    let db = open_for_commits(path, keys)?;
    if !is_read_only(&db)? {
        return Ok(db);
    }
    drop(db);
    open_for_commits(path, keys)
}

fn open_for_commits(path: &Path, keys: &Arc<Keys>) -> rusqlite::Result<Connection> {
    let db = open(path, OpenFlags::SQLITE_OPEN_READ_WRITE, keys)?;
    // The log is cut back to this size when it starts over.
    db.execute_batch("PRAGMA synchronous = FULL; PRAGMA wal_autocheckpoint = 0; PRAGMA journal_size_limit = 4194304;")?;
    Ok(db)
}

/// Asks all three files: the database, its log, and the log's index. Whether others are writing just now does not matter.
fn is_read_only(db: &Connection) -> rusqlite::Result<bool> {
    db.busy_timeout(Duration::ZERO)?;
    let begun = db.execute_batch("BEGIN IMMEDIATE; ROLLBACK;");
    db.busy_timeout(BUSY_MAX)?;
    Ok(db.is_readonly("main")? || begun.is_err_and(|error| error.sqlite_error_code() == Some(ErrorCode::ReadOnly)))
}

/// For a look at a database that may not be ours: closing it changes nothing.
pub(crate) fn open_untouched(path: &Path, keys: &Arc<Keys>) -> rusqlite::Result<Connection> {
    let db = open(path, OpenFlags::SQLITE_OPEN_READ_WRITE, keys)?;
    db.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
    db.execute_batch("PRAGMA query_only = ON;")?;
    Ok(db)
}

/// For a copy that no one else has open. It is a file by itself: there is no log beside it.
pub(crate) fn open_alone(path: &Path, keys: &Arc<Keys>) -> rusqlite::Result<Connection> {
    let db = open(path, OpenFlags::SQLITE_OPEN_READ_WRITE, keys)?;
    db.execute_batch("PRAGMA synchronous = EXTRA;")?;
    Ok(db)
}

/// For reads beside the writer. It may write to the shared index of the log, but never to the database.
pub(crate) fn open_reader(path: &Path, keys: &Arc<Keys>) -> rusqlite::Result<Connection> {
    let db = open(path, OpenFlags::SQLITE_OPEN_READ_WRITE, keys)?;
    db.execute_batch("PRAGMA query_only = ON;")?;
    db.create_scalar_function(
        "has_words",
        2,
        FunctionFlags::SQLITE_UTF8 | FunctionFlags::SQLITE_DETERMINISTIC,
        |context| {
            let metadata = parse_metadata(context.get_raw(0).as_str()?);
            let query = context.get_raw(1).as_str()?;
            Ok(metadata.is_ok_and(|metadata| metadata.has_words(query)))
        },
    )?;
    Ok(db)
}

/// For making the schema, when this process has the directory alone. Until the journal is a write-ahead log, SQLite keeps a
/// rollback journal and unlinks it to commit; EXTRA makes the unlinking durable too. Otherwise a power cut could bring that
/// journal back, and the whole database would be rolled back to nothing.
pub(crate) fn open_new(path: &Path, keys: &Arc<Keys>) -> rusqlite::Result<Connection> {
    let db = open(path, OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE, keys)?;
    db.execute_batch("PRAGMA synchronous = EXTRA; PRAGMA journal_mode = WAL;")?;
    Ok(db)
}

/// An empty database in memory, to compare with.
pub(crate) fn open_empty() -> rusqlite::Result<Connection> {
    Connection::open_in_memory()
}

#[expect(clippy::disallowed_methods, reason = "this is the one home of opening databases")]
fn open(path: &Path, flags: OpenFlags, keys: &Arc<Keys>) -> rusqlite::Result<Connection> {
    let db = Connection::open_with_flags(path, flags | OpenFlags::SQLITE_OPEN_NO_MUTEX)?;
    db.busy_timeout(BUSY_MAX)?;
    db.set_prepared_statement_cache_capacity(64);
    // Otherwise a statement on a table with a partial index is prepared anew whenever a parameter has another value.
    db.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    db.execute_batch("PRAGMA temp_store = MEMORY; PRAGMA trusted_schema = OFF; PRAGMA foreign_keys = ON;")?;
    seal::register(&db, keys)?;
    // Whichever connection closes last folds the log back, so all of them sync alike.
    #[cfg(target_os = "macos")]
    db.execute_batch("PRAGMA fullfsync = ON; PRAGMA checkpoint_fullfsync = ON;")?;
    Ok(db)
}
