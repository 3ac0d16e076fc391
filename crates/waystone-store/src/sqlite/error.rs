//! What can go wrong inside a transaction: a decision of ours, or SQLite.

use std::io;
use std::path::Path;

use rusqlite::ErrorCode;
use waystone_core::Error;
use waystone_core::error::Unavailable;

use super::damage::is_damage;

#[derive(Debug)]
pub(crate) enum DbError {
    Refused(Error),
    Sqlite(rusqlite::Error),
}

pub(crate) type DbResult<T> = Result<T, DbError>;

impl From<Error> for DbError {
    fn from(error: Error) -> Self {
        Self::Refused(error)
    }
}

impl From<rusqlite::Error> for DbError {
    fn from(error: rusqlite::Error) -> Self {
        Self::Sqlite(error)
    }
}

impl From<DbError> for Error {
    fn from(error: DbError) -> Self {
        match error {
            DbError::Refused(error) => error,
            DbError::Sqlite(error) => {
                Self::StorageUnavailable { reason: reason(&error), message: format!("storage: {error}") }
            }
        }
    }
}

impl DbError {
    /// Whether it may not be so in a moment, or with more room: nothing is wrong with what it was about.
    pub(crate) fn is_of_moment(&self) -> bool {
        matches!(self.reason(), Some(Unavailable::Busy | Unavailable::Full))
    }

    /// Whether something that is kept is not what was written.
    pub(crate) fn is_damage(&self) -> bool {
        self.reason() == Some(Unavailable::Damaged)
    }

    fn reason(&self) -> Option<Unavailable> {
        match self {
            Self::Refused(Error::StorageUnavailable { reason, .. }) => Some(*reason),
            Self::Refused(_) => None,
            Self::Sqlite(error) => Some(reason(error)),
        }
    }

    /// Whether there was no room.
    pub(crate) fn is_full(&self) -> bool {
        self.reason() == Some(Unavailable::Full)
    }
}

pub(crate) fn is_full(error: &Error) -> bool {
    matches!(error, Error::StorageUnavailable { reason: Unavailable::Full, .. })
}

impl std::fmt::Display for DbError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Refused(error) => error.fmt(f),
            Self::Sqlite(error) => error.fmt(f),
        }
    }
}

fn reason(error: &rusqlite::Error) -> Unavailable {
    match error.sqlite_error_code() {
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => Unavailable::Busy,
        Some(ErrorCode::DiskFull) => Unavailable::Full,
        _ if is_damage(error) => Unavailable::Damaged,
        _ => Unavailable::Broken,
    }
}

/// Housekeeping did not get its turn to write.
pub(crate) fn busy() -> DbError {
    let message = "storage: others were writing for too long".to_owned();
    DbError::Refused(Error::StorageUnavailable { reason: Unavailable::Busy, message })
}

pub(crate) fn closed() -> Error {
    Error::StorageUnavailable { reason: Unavailable::Broken, message: "the store is closed".to_owned() }
}

/// A data file cannot be read or written.
pub(crate) fn file_error(path: &Path, error: &io::Error) -> DbError {
    let reason = match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Unavailable::Full,
        _ => Unavailable::Broken,
    };
    DbError::Refused(Error::StorageUnavailable { reason, message: format!("storage: {}: {error}", path.display()) })
}

pub(crate) fn missing_id() -> DbError {
    unreadable("an id", "it is missing")
}

/// A stored value is not what we write.
/// The key of the row behind another. A page that is garbled may give the same row again, and a walk from row to row would not end.
pub(crate) fn behind(after: i64, key: i64) -> DbResult<i64> {
    match key > after {
        true => Ok(key),
        false => Err(unreadable("the order of rows", format_args!("{key} stands behind {after}"))),
    }
}

pub(crate) fn unreadable(what: &str, error: impl std::fmt::Display) -> DbError {
    DbError::Refused(Error::StorageUnavailable {
        reason: Unavailable::Damaged,
        message: format!("storage: {what} cannot be read: {error}"),
    })
}
