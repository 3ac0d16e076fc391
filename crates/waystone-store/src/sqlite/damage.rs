//! What is wrong with a database as a whole, and whether it can be used as it is.

use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;

use rusqlite::{Connection, ErrorCode, OptionalExtension, ffi, params};
use waystone_core::clock::Timestamp;

use super::connection::open_untouched;
use super::migration::{VERSION, apply, cannot_open, has_room, is_confirmed, known_schema, schema, version};
use super::seal::Keys;
use super::search::is_of_words;
use crate::OpenError;
use crate::directory::DataDirectory;
use crate::platform::open_private_file;

/// Why the database must be replaced; `None` when it can be used. One of a newer version, or one that cannot be looked at just now, is
/// an error, and not touched.
pub(crate) fn why_unusable(directory: &DataDirectory) -> Result<Option<String>, OpenError> {
    let path = directory.database();
    match path.metadata() {
        Ok(metadata) if metadata.len() > 0 => {}
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(OpenError::Unusable { path, error }),
        _ => return Ok(Some("it is missing".to_owned())),
    }
    let look = || -> rusqlite::Result<Result<Option<String>, u32>> {
        let db = open_untouched(&path, directory.keys())?;
        let found = version(&db)?;
        if found > VERSION && is_confirmed(&db, found)? {
            return Ok(Err(found));
        }
        Ok(Ok(damage(&db)?))
    };
    match look() {
        Ok(Err(found)) => Err(OpenError::Newer { path, found, known: VERSION }),
        Ok(Ok(damage)) => Ok(damage),
        Err(error) if is_damage(&error) => Ok(Some(error.to_string())),
        Err(error) => Err(cannot_open(&path, &error)),
    }
}

/// Makes a copy of a database in a file of its own, with the present schema. Says why it cannot be used, if so.
pub(crate) fn why_unusable_copy(
    from: &Path,
    to: &Path,
    keys: &Arc<Keys>,
    at: Timestamp,
) -> Result<Option<String>, OpenError> {
    open_private_file(to).map_err(|error| OpenError::Unusable { path: to.to_owned(), error })?;
    let copy = || -> rusqlite::Result<Result<(), u32>> {
        let db = open_untouched(from, keys)?;
        let found = version(&db)?;
        if found > VERSION && is_confirmed(&db, found)? {
            return Ok(Err(found));
        }
        // Nothing of it changes, but SQLite takes it for a write.
        db.pragma_update(None, "query_only", false)?;
        db.execute("VACUUM INTO ?1", params![to.display().to_string()])?;
        Ok(Ok(()))
    };
    match copy() {
        Ok(Err(found)) => return Err(OpenError::Newer { path: from.to_owned(), found, known: VERSION }),
        Ok(Ok(())) => {}
        Err(error) if is_of_copy(&error) => return Err(cannot_copy(from, to, &error)),
        Err(error) => return Ok(Some(error.to_string())),
    }
    // What was copied is read from our own file from here on: only what is wrong with its content is damage.
    match apply(to, keys, at).and_then(|()| open_untouched(to, keys)).and_then(|db| damage(&db)) {
        Ok(damage) => Ok(damage),
        Err(error) if is_of_moment(&error) => Err(cannot_copy(from, to, &error)),
        Err(error) => Ok(Some(error.to_string())),
    }
}

/// Whether an error tells of the disk or of the machine, and not of what stands in a file that was just written.
fn is_of_moment(error: &rusqlite::Error) -> bool {
    let codes = [
        ErrorCode::SystemIoFailure,
        ErrorCode::DiskFull,
        ErrorCode::CannotOpen,
        ErrorCode::OutOfMemory,
        ErrorCode::DatabaseBusy,
        ErrorCode::DatabaseLocked,
        ErrorCode::ReadOnly,
        ErrorCode::PermissionDenied,
        ErrorCode::OperationInterrupted,
    ];
    error.sqlite_error_code().is_some_and(|code| codes.contains(&code))
}

/// Whether a copy could not be written. Nothing is wrong with what was to be copied then.
fn is_of_copy(error: &rusqlite::Error) -> bool {
    let written = [
        ffi::SQLITE_FULL,
        ffi::SQLITE_IOERR_WRITE,
        ffi::SQLITE_IOERR_FSYNC,
        ffi::SQLITE_IOERR_DIR_FSYNC,
        ffi::SQLITE_IOERR_TRUNCATE,
    ];
    error.sqlite_error().is_some_and(|error| written.contains(&error.extended_code))
}

fn cannot_copy(from: &Path, to: &Path, error: &rusqlite::Error) -> OpenError {
    let path = to.to_owned();
    match error.sqlite_error_code() {
        Some(ErrorCode::DiskFull) => OpenError::Full { path },
        _ if !has_room(to) => OpenError::Full { path },
        _ => {
            let message = format!("the backup {} could not be copied: {error}", from.display());
            OpenError::Unrepaired { path, message }
        }
    }
}

/// Whether an error tells of the database, and not of the moment.
pub(crate) fn is_damage(error: &rusqlite::Error) -> bool {
    match error.sqlite_error_code() {
        Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => true,
        // What every database of ours has is gone, an index of words is no longer one, or the header names a format that no one writes.
        Some(ErrorCode::Unknown) => {
            let message = error.to_string();
            ["no such ", "malformed", "invalid fts5", "unsupported file format"]
                .iter()
                .any(|part| message.contains(part))
        }
        // A value is not of the type that it has in every database of ours.
        None => true,
        _ => false,
    }
}

/// Whether the two bytes of the header say so that tell how the file is to be read and written. With another number there SQLite only
/// reads, and finds nothing wrong with that.
fn is_marked_as_log(db: &Connection) -> bool {
    let mut header = [0; 20];
    let read = db.path().map(|path| File::open(path).and_then(|mut file| file.read_exact(&mut header)));
    matches!(read, Some(Ok(()))) && header[18..] == [2, 2]
}

/// The first thing that is wrong with a database as a whole.
pub(crate) fn damage(db: &Connection) -> rusqlite::Result<Option<String>> {
    let (found, is_ours) = (version(db)?, schema(db)? == known_schema()?);
    // An older one is brought to the present schema when it is opened.
    if !matches!((found, is_ours), (VERSION, true) | (1..VERSION, false)) {
        return Ok(Some(format!("version {found} is not what its tables are")));
    }
    if !is_marked_as_log(db) {
        return Ok(Some("its header does not say that it has a write-ahead log".to_owned()));
    }
    // Of words nothing is lost with what is damaged: they are made anew.
    let mut check = db.prepare("PRAGMA integrity_check")?;
    let found = check.query_map([], |row| row.get::<_, String>(0))?;
    for found in found {
        let found = found?;
        if found != "ok" && !is_of_words(&found) {
            return Ok(Some(found));
        }
    }
    db.prepare("SELECT \"table\" || ' has a row that refers to nothing' FROM pragma_foreign_key_check")?
        .query_row([], |row| row.get(0))
        .optional()
}
