//! What the store holds, read in one transaction.

use rusqlite::{Connection, params};
use waystone_core::api::Status;
use waystone_core::id::SessionId;
use waystone_core::store::{Scope, Used};

use super::error::DbResult;
use super::migration::version;
use super::session;
use crate::directory::DataDirectory;
use crate::lock;

pub(crate) fn read(db: &Connection, scope: &Scope, directory: &DataDirectory) -> DbResult<Status> {
    let schema_version = version(db)?;
    let size = |path: std::path::PathBuf| path.metadata().map_or(0, |metadata| metadata.len());
    Ok(db.query_row(
        "SELECT session_count, checkpoint_count, size_bytes, operation_seq FROM space WHERE space = ?1",
        params![scope.space],
        |row| {
            Ok(Status {
                version: env!("CARGO_PKG_VERSION").to_owned(),
                data_dir: directory.root().display().to_string(),
                schema_version,
                session_count: row.get(0)?,
                checkpoint_count: row.get(1)?,
                total_size_bytes: row.get(2)?,
                database_bytes: size(directory.database()) + size(directory.write_ahead_log()),
                operation_count: row.get(3)?,
                processes: lock::processes(directory),
                encrypted: directory.keys().is_sealed(),
                read_only: false,
                warnings: Vec::new(),
            })
        },
    )?)
}

pub(crate) fn find_used(db: &Connection, scope: &Scope, session: Option<&SessionId>) -> DbResult<Used> {
    let total = db
        .prepare_cached("SELECT size_bytes FROM space WHERE space = ?1")?
        .query_row(params![scope.space], |row| row.get(0))?;
    let session = session.map(|id| session::find_row(db, scope, id)).transpose()?.flatten();
    Ok(Used { session: session.map_or(0, |row| row.size_bytes), total, ..Used::default() })
}
