//! The only place that opens databases, so that every connection has the same settings.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::functions::FunctionFlags;
use rusqlite::{Connection, ErrorCode, OpenFlags};

use super::checkpoint::parse_metadata;
use super::seal::{self, Keys};
use crate::directory::DataDirectory;

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
    // The log is cut back to this size when it starts over. What is deleted inside of a page that is written anyway is overwritten.
    db.execute_batch(
        "PRAGMA synchronous = FULL; PRAGMA wal_autocheckpoint = 0; PRAGMA journal_size_limit = 4194304;
         PRAGMA secure_delete = FAST;",
    )?;
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

/// From where it is read, and how.
#[derive(Debug, Clone)]
pub(crate) enum Source {
    /// Beside a writer of this process.
    Beside(DataDirectory),
    /// By a process that only reads, beside writers of others.
    Only(DataDirectory),
    /// From where no one writes: neither a log nor its index can be made there.
    Frozen(DataDirectory),
}

impl Source {
    pub(crate) fn directory(&self) -> &DataDirectory {
        let (Self::Beside(directory) | Self::Only(directory) | Self::Frozen(directory)) = self;
        directory
    }

    pub(crate) fn open(&self) -> rusqlite::Result<Connection> {
        match self {
            Self::Beside(directory) => open_reader(&directory.database(), directory.keys()),
            Self::Only(directory) => {
                with_words(open(&directory.database(), OpenFlags::SQLITE_OPEN_READ_ONLY, directory.keys())?)
            }
            Self::Frozen(directory) => {
                let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_URI;
                with_words(open(Path::new(&frozen_uri(&directory.database())), flags, directory.keys())?)
            }
        }
    }
}

fn frozen_uri(path: &Path) -> String {
    let escape = |byte: u8| match byte {
        b'/' | b'.' | b'-' | b'_' | b'0'..=b'9' | b'A'..=b'Z' | b'a'..=b'z' => char::from(byte).to_string(),
        _ => format!("%{byte:02x}"),
    };
    let path: String = path.as_os_str().as_encoded_bytes().iter().copied().map(escape).collect();
    format!("file:{path}?immutable=1")
}

/// For reads beside the writer. It may write to the shared index of the log, but never to the database.
pub(crate) fn open_reader(path: &Path, keys: &Arc<Keys>) -> rusqlite::Result<Connection> {
    with_words(open(path, OpenFlags::SQLITE_OPEN_READ_WRITE, keys)?)
}

fn with_words(db: Connection) -> rusqlite::Result<Connection> {
    db.execute_batch("PRAGMA query_only = ON;")?;
    db.create_scalar_function(
        "has_words",
        2,
        FunctionFlags::SQLITE_UTF8 | FunctionFlags::SQLITE_DETERMINISTIC,
        |context| {
            // What cannot be read has no words.
            let metadata = parse_metadata(context.get_raw(0).as_str_or_null()?.unwrap_or_default());
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
    // What stands in a database that someone else has written must not make this process do more than read and write it. Extensions cannot
    // be loaded unless that is asked for.
    db.set_db_config(DbConfig::SQLITE_DBCONFIG_DEFENSIVE, true)?;
    db.execute_batch(
        "PRAGMA temp_store = MEMORY; PRAGMA trusted_schema = OFF; PRAGMA cell_size_check = ON; PRAGMA foreign_keys = ON;",
    )?;
    seal::register(&db, keys)?;
    // Whichever connection closes last folds the log back, so all of them sync alike.
    #[cfg(target_os = "macos")]
    db.execute_batch("PRAGMA fullfsync = ON; PRAGMA checkpoint_fullfsync = ON;")?;
    Ok(db)
}

#[cfg(test)]
mod tests {
    use waystone_testkit::harness::private_dir;

    use super::*;

    #[test]
    fn a_database_cannot_make_the_process_do_more_than_read_and_write_it() {
        let directory = private_dir();
        let path = directory.path().join("a.db");
        let db = open_new(&path, &Arc::default()).unwrap();
        db.execute_batch("CREATE TABLE a (b); CREATE VIRTUAL TABLE f USING fts5(t);").unwrap();
        for refused in [
            "PRAGMA writable_schema = ON; UPDATE sqlite_schema SET sql = 'garbage'",
            "UPDATE f_data SET block = x'00'",
            "SELECT load_extension('libc.so.6')",
        ] {
            assert!(db.execute_batch(refused).is_err(), "{refused}");
        }
        let on = |pragma: &str| db.pragma_query_value(None, pragma, |row| row.get::<_, bool>(0)).unwrap();
        assert_eq!((on("cell_size_check"), on("trusted_schema")), (true, false));
    }

    #[test]
    fn a_path_stands_in_a_uri_byte_for_byte() {
        assert_eq!(frozen_uri(Path::new("/a b/c?d#e%/é.db")), "file:/a%20b/c%3fd%23e%25/%c3%a9.db?immutable=1");
    }
}
