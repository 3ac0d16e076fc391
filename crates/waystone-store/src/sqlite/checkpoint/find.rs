//! The index by which checkpoints are found in lists: names, tags and other metadata. Housekeeping brings it up to the newest checkpoint;
//! those after it are looked at one by one, so that a list has what was saved a moment ago.

use rusqlite::{Connection, params};
use waystone_core::find::terms;

use super::parse_metadata;
use crate::sqlite::error::{DbResult, behind};
use crate::sqlite::seal::is_sealed;

/// How many checkpoints are indexed in one transaction. Writers wait meanwhile.
const ROWS_MAX: usize = 100;

/// Checkpoints that are to be indexed: after which key they come, and the terms of each by its key.
pub(crate) struct Pending {
    after: i64,
    rows: Vec<(i64, String)>,
}

/// Reads some of the checkpoints that are not indexed; `None` when all are. In a sealed store none ever is.
pub(crate) fn read_unindexed(db: &Connection) -> DbResult<Option<Pending>> {
    if is_sealed(db)? {
        return Ok(None);
    }
    let after: i64 =
        db.prepare_cached("SELECT coalesce(min(found_key), 0) FROM search_index")?.query_row([], |row| row.get(0))?;
    let mut statement =
        db.prepare_cached("SELECT key, metadata, tags FROM checkpoint WHERE key > ?1 ORDER BY key LIMIT ?2")?;
    let rows = statement.query_map(params![after, ROWS_MAX], |row| {
        // What cannot be read is not found; `doctor` puts it right, and then it is indexed anew.
        let metadata = row.get_ref(1)?.as_str().ok().and_then(|text| parse_metadata(text).ok()).unwrap_or_default();
        let tags = row.get_ref(2)?.as_str().ok().and_then(|text| serde_json::from_str::<Vec<String>>(text).ok());
        Ok((row.get(0)?, terms(&metadata, &tags.unwrap_or_default())))
    })?;
    let rows: Vec<(i64, String)> = rows.collect::<Result<_, _>>()?;
    rows.iter().try_fold(after, |after, (key, _)| behind(after, *key))?;
    Ok((!rows.is_empty()).then_some(Pending { after, rows }))
}

/// Writes what was read, unless something before it changed meanwhile.
pub(crate) fn write_found(db: &Connection, pending: &Pending) -> rusqlite::Result<()> {
    let last = pending.rows.last().map_or(pending.after, |(key, _)| *key);
    let is_next = db
        .prepare_cached("UPDATE search_index SET found_key = ?2 WHERE found_key = ?1")?
        .execute(params![pending.after, last])?;
    if is_next == 0 {
        return Ok(());
    }
    for (key, terms) in &pending.rows {
        db.prepare_cached("DELETE FROM checkpoint_term WHERE rowid = ?1")?.execute(params![key])?;
        if !terms.is_empty() {
            db.prepare_cached("INSERT INTO checkpoint_term (rowid, terms) VALUES (?1, ?2)")?
                .execute(params![key, terms])?;
        }
    }
    Ok(())
}
