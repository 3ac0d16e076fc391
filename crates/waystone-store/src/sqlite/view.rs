//! Contexts that came with a request for a view, kept by their hash for a while.

use rusqlite::{Connection, OptionalExtension, params};
use waystone_core::canon::Hash;
use waystone_core::pack::Packed;
use waystone_core::store::{NewContext, Scope};

use super::error::DbResult;
use super::segment::check_room;

/// Keeps a context, or keeps one that is there for longer.
pub(crate) fn keep(db: &Connection, scope: &Scope, new: &NewContext) -> DbResult<()> {
    let touched = db
        .prepare_cached(
            "UPDATE given_context SET used_at_ms = max(used_at_ms, ?3) WHERE space = ?1 AND hash = keyed(?2)",
        )?
        .execute(params![scope.space, new.hash.0, new.at.ms()])?;
    if touched > 0 {
        return Ok(());
    }
    let (more, max) = (new.packed.bytes.len() as u64, new.total_bytes_max);
    check_room(db, scope, more, max)?;
    db.prepare_cached(
        "INSERT INTO given_context (space, hash, raw_bytes, size_bytes, used_at_ms, bytes)
         VALUES (?1, keyed(?2), ?3, ?4, ?5, sealed(?6, 'context', keyed(?2)))",
    )?
    .execute(params![scope.space, new.hash.0, new.packed.raw_bytes, more, new.at.ms(), new.packed.bytes])?;
    db.prepare_cached("UPDATE space SET size_bytes = size_bytes + ?2 WHERE space = ?1")?
        .execute(params![scope.space, more])?;
    Ok(())
}

pub(crate) fn find(db: &Connection, scope: &Scope, hash: Hash) -> DbResult<Option<Packed>> {
    Ok(db
        .prepare_cached("SELECT unsealed(bytes, 'context', hash), raw_bytes FROM given_context WHERE space = ?1 AND hash = keyed(?2)")?
        .query_row(params![scope.space, hash.0], |row| {
            Ok(Packed { bytes: row.get(0)?, base: None, raw_hash: hash, raw_bytes: row.get(1)? })
        })
        .optional()?)
}

/// Removes up to `limit` that were last given before that time. Returns how many there were.
pub(crate) fn expire(db: &Connection, before_ms: i64, limit: usize) -> rusqlite::Result<usize> {
    let old: Vec<(i64, i64, i64)> = db
        .prepare_cached(
            "SELECT key, space, size_bytes FROM given_context WHERE used_at_ms < ?1 ORDER BY used_at_ms LIMIT ?2",
        )?
        .query_map(params![before_ms, limit], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?
        .collect::<Result<_, _>>()?;
    for (key, space, size_bytes) in &old {
        db.prepare_cached("DELETE FROM given_context WHERE key = ?1")?.execute(params![key])?;
        db.prepare_cached("UPDATE space SET size_bytes = size_bytes - ?2 WHERE space = ?1")?
            .execute(params![space, size_bytes])?;
    }
    Ok(old.len())
}
