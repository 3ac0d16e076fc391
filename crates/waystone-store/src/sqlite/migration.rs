//! The schema, made and changed one numbered file at a time. `user_version` is the number of the newest one applied, set in
//! the same transaction: a crash leaves a file applied or not.

use std::path::Path;
use std::sync::Arc;

use rusqlite::{Connection, ErrorCode, params};
use waystone_core::clock::Timestamp;

use super::backup::Copy;
use super::connection::{Source, open_empty, open_new, open_untouched};
use super::open::find_mark;
use super::seal::{Keys, STORE};
use crate::OpenError;
use crate::directory::DataDirectory;
use crate::platform::{free_bytes, open_private_file, sync_directory};

const MIGRATIONS: [&str; 13] = [
    include_str!("../../migrations/sqlite/0001_foundation.sql"),
    include_str!("../../migrations/sqlite/0002_mirror.sql"),
    include_str!("../../migrations/sqlite/0003_view.sql"),
    include_str!("../../migrations/sqlite/0004_segment.sql"),
    include_str!("../../migrations/sqlite/0005_search.sql"),
    include_str!("../../migrations/sqlite/0006_housekeeping.sql"),
    include_str!("../../migrations/sqlite/0007_seal.sql"),
    include_str!("../../migrations/sqlite/0008_origin.sql"),
    include_str!("../../migrations/sqlite/0009_conversation.sql"),
    include_str!("../../migrations/sqlite/0010_tool_call.sql"),
    include_str!("../../migrations/sqlite/0011_window.sql"),
    include_str!("../../migrations/sqlite/0012_beginning.sql"),
    include_str!("../../migrations/sqlite/0013_removal.sql"),
];

#[expect(clippy::cast_possible_truncation, reason = "a handful of files")]
pub(crate) const VERSION: u32 = MIGRATIONS.len() as u32;

/// With less room than this a failure to open is laid to it.
const ROOM_BYTES_MIN: u64 = 256 * 1024;

/// The version stands in the header twice, the second time with this added: one that was garbled is told from a newer one.
const APPLICATION: u32 = 0x5753_0000;

/// Whether both places in the header name `version`.
pub(crate) fn is_confirmed(db: &Connection, version: u32) -> rusqlite::Result<bool> {
    let found: u32 = db.pragma_query_value(None, "application_id", |row| row.get(0))?;
    Ok(found.wrapping_sub(version) == APPLICATION)
}

/// Whether the schema is the one this program knows. A newer one is an error, and nothing is touched.
pub(crate) fn is_current(directory: &DataDirectory) -> Result<bool, OpenError> {
    let path = directory.database();
    let is_empty = path.metadata().map_or(true, |metadata| metadata.len() == 0);
    let found = match is_empty {
        true => 0,
        false => open_untouched(&path, directory.keys())
            .and_then(|db| version(&db))
            .map_err(|error| cannot_open(&path, &error))?,
    };
    // A fresh database beside what is left of another would hide all that was saved.
    if found == 0 && (directory.has_copies() || directory.rebuilt().exists()) {
        return Err(OpenError::Lost { path });
    }
    if found > VERSION {
        return Err(OpenError::Newer { path, found, known: VERSION });
    }
    Ok(found == VERSION)
}

/// From where a process reads that changes nothing, if the schema is the one this program knows.
pub(crate) fn find_source(directory: &DataDirectory) -> Result<Source, OpenError> {
    let path = directory.database();
    let size = |path: &Path| path.metadata().map_or(0, |metadata| metadata.len());
    if size(&path) == 0 {
        let is_lost = directory.has_copies() || directory.rebuilt().exists();
        return Err(if is_lost { OpenError::Lost { path } } else { OpenError::Nothing { path } });
    }
    let look = |source: &Source| source.open().and_then(|db| version(&db));
    let mut source = Source::Only(directory.clone());
    let mut found = look(&source);
    if found.is_err() && size(&directory.write_ahead_log()) == 0 {
        source = Source::Frozen(directory.clone());
        found = look(&source);
    }
    match found {
        Ok(VERSION) => Ok(source),
        Ok(found) if found < VERSION => Err(OpenError::Older { path, found, known: VERSION }),
        Ok(found) => Err(OpenError::Newer { path, found, known: VERSION }),
        Err(error) if size(&directory.write_ahead_log()) > 0 => {
            Err(OpenError::Unread { path, message: error.to_string() })
        }
        Err(error) => Err(cannot_open(&path, &error)),
    }
}

/// Applies what is missing. Only for a process that has the directory alone.
pub(crate) fn run(directory: &DataDirectory, now: Timestamp) -> Result<(), OpenError> {
    let path = directory.database();
    let unusable = |error| OpenError::Unusable { path: path.clone(), error };
    let look = || open_untouched(&path, directory.keys()).and_then(|db| version(&db));
    // One without a table is what a process left that was killed while it made the first; there is nothing in it to copy.
    let has_any = path.metadata().is_ok_and(|metadata| metadata.len() > 0);
    if has_any && look().map_err(|error| cannot_open(&path, &error))? > 0 {
        if !directory.keys().is_sealed() && find_mark(directory).flatten().is_some() {
            return Err(OpenError::Sealed { path });
        }
        // What a newer version makes of it an older one cannot read.
        let copied = Copy::new(directory, None, now).and_then(|copy| copy.make());
        copied.map_err(|error| match has_room(&path) {
            true => {
                OpenError::Database { path: path.clone(), message: format!("it could not be copied first: {error}") }
            }
            false => OpenError::Full { path: path.clone() },
        })?;
    }
    make(&path, directory.keys(), now)?;
    sync_directory(directory.root()).map_err(unusable)?;
    // Folders above it may have been made with it. Some belong to others and cannot be synced by us; those were there before.
    directory.root().ancestors().skip(1).for_each(|folder| drop(sync_directory(folder)));
    Ok(())
}

/// Makes a database with the present schema, or brings one to it.
pub(crate) fn make(path: &Path, keys: &Arc<Keys>, now: Timestamp) -> Result<(), OpenError> {
    open_private_file(path).map_err(|error| OpenError::Unusable { path: path.to_owned(), error })?;
    apply(path, keys, now).map_err(|error| cannot_open(path, &error))
}

/// The same for a file that is there.
pub(crate) fn apply(path: &Path, keys: &Arc<Keys>, now: Timestamp) -> rusqlite::Result<()> {
    let mut db = open_new(path, keys)?;
    for number in version(&db)?..VERSION {
        let transaction = db.transaction()?;
        transaction.execute_batch(MIGRATIONS[number as usize])?;
        if number == 0 {
            add_first_space(&transaction, now)?;
        }
        if number + 1 == VERSION {
            // Also when the process that began to make it died.
            let sql = "UPDATE space SET wrapped_key = new_key(?1)
                       WHERE operation_seq = 0 AND row_seq = 0 AND wrapped_key IS NULL";
            transaction.execute(sql, params![STORE])?;
        }
        transaction.pragma_update(None, "user_version", number + 1)?;
        transaction.pragma_update(None, "application_id", APPLICATION + number + 1)?;
        transaction.commit()?;
    }
    Ok(())
}

/// Takes the store's own key into use. A key that does not fit what is there, or none where one is needed, is refused.
pub(crate) fn unlock(source: &Source) -> Result<(), OpenError> {
    let (path, keys) = (source.directory().database(), source.directory().keys());
    let wrapped: Option<Vec<u8>> = source
        .open()
        .and_then(|db| db.query_row("SELECT wrapped_key FROM space", [], |row| row.get(0)))
        .map_err(|error| cannot_open(&path, &error))?;
    match (wrapped, keys.is_sealed()) {
        (None, false) => Ok(()),
        (None, true) => Err(OpenError::NotSealed { path }),
        (Some(_), false) => Err(OpenError::Sealed { path }),
        (Some(wrapped), true) => keys.unlock(&wrapped).map_err(|_| OpenError::OtherKey { path }),
    }
}

fn add_first_space(db: &Connection, now: Timestamp) -> rusqlite::Result<()> {
    db.execute(
        "INSERT INTO space (space, created_at_ms, row_seq, operation_seq, operation_hash, event_seq, session_count,
                            checkpoint_count, size_bytes)
         VALUES (1, ?1, 0, 0, randomblob(32), 0, 0, 0, 0)",
        params![now.ms()],
    )?;
    db.execute("INSERT INTO chain (space, first_seq, genesis) SELECT space, 1, operation_hash FROM space", [])?;
    Ok(())
}

/// What the schema of this program consists of.
pub(crate) fn known_schema() -> rusqlite::Result<Vec<String>> {
    let db = open_empty()?;
    MIGRATIONS.iter().try_for_each(|migration| db.execute_batch(migration))?;
    schema(&db)
}

/// What the schema of a database consists of.
pub(crate) fn schema(db: &Connection) -> rusqlite::Result<Vec<String>> {
    let mut statement = db.prepare("SELECT coalesce(sql, name) FROM sqlite_schema ORDER BY type, name")?;
    statement.query_map([], |row| row.get(0))?.collect()
}

pub(crate) fn version(db: &Connection) -> rusqlite::Result<u32> {
    db.pragma_query_value(None, "user_version", |row| row.get(0))
}

pub(crate) fn cannot_open(path: &Path, error: &rusqlite::Error) -> OpenError {
    let path = path.to_owned();
    if error.sqlite_error_code() == Some(ErrorCode::ReadOnly) {
        return OpenError::Unusable { path, error: std::io::ErrorKind::PermissionDenied.into() };
    }
    match has_room(&path) {
        true => OpenError::Database { path, message: error.to_string() },
        false => OpenError::Full { path },
    }
}

/// Whether a failure has another cause than a full disk. SQLite needs room for its index of the log even to read.
pub(crate) fn has_room(path: &Path) -> bool {
    free_bytes(path.parent().unwrap_or(path)).map_or(true, |free| free >= ROOM_BYTES_MIN)
}

#[cfg(test)]
mod tests {
    use waystone_testkit::harness::private_dir;

    use super::*;

    /// The data directory that a process leaves which is killed when it has made so much of the schema.
    fn leave_behind(folder: &Path, migrations: usize) -> DataDirectory {
        let directory = DataDirectory::prepare(folder).unwrap();
        open_private_file(&directory.database()).unwrap();
        let db = open_new(&directory.database(), directory.keys()).unwrap();
        for (number, migration) in (1_u32..).zip(&MIGRATIONS[..migrations]) {
            db.execute_batch(migration).unwrap();
            if number == 1 {
                add_first_space(&db, Timestamp::from_ms(1)).unwrap();
            }
            db.pragma_update(None, "user_version", number).unwrap();
            db.pragma_update(None, "application_id", APPLICATION + number).unwrap();
        }
        directory
    }

    #[test]
    fn a_first_start_that_was_killed_anywhere_is_taken_up_by_the_next() {
        for migrations in 0..MIGRATIONS.len() {
            let folder = private_dir();
            let directory = leave_behind(folder.path(), migrations);
            assert!(!is_current(&directory).unwrap());
            run(&directory, Timestamp::from_ms(2)).unwrap_or_else(|error| panic!("after {migrations}: {error}"));
            assert!(is_current(&directory).unwrap(), "after {migrations}");
        }
    }

    #[test]
    fn a_database_without_a_table_beside_copies_of_another_is_not_filled() {
        let folder = private_dir();
        let directory = leave_behind(folder.path(), 0);
        std::fs::create_dir_all(folder.path().join("contexts").join("s")).unwrap();
        std::fs::write(folder.path().join("contexts").join("s").join("a.json.zst"), "a copy").unwrap();
        assert!(matches!(is_current(&directory), Err(OpenError::Lost { .. })));
    }

    #[test]
    fn what_cannot_be_written_is_no_damage_that_a_repair_would_mend() {
        let code = rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_READONLY);
        let error = cannot_open(Path::new("waystone.db"), &rusqlite::Error::SqliteFailure(code, None));
        assert!(matches!(error, OpenError::Unusable { .. }) && error.hint().contains("--read-only"), "{error:?}");
    }
}
