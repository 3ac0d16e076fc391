//! What was removed before and is there again: in a copy, in a database that was brought back, or by an import.

use std::collections::{BTreeMap, BTreeSet};

use rusqlite::{Connection, OptionalExtension, params};
use serde_json::json;

use super::{erase_words, forget_words, overwriting, remove_rows};
use crate::directory::DataDirectory;
use crate::mirror::tombstone::{self, Removed};
use crate::sqlite::conversation;
use crate::sqlite::error::{DbResult, file_error};
use crate::sqlite::migration::version;

/// Removes what was removed from another database of the same data directory, with all that would tell of it: from a copy, or from one
/// that was brought back. Returns how many checkpoints that were.
pub(crate) fn remove_again(db: &Connection, removed: &Removed) -> DbResult<u64> {
    let mut doomed: BTreeMap<i64, BTreeSet<i64>> = BTreeMap::new();
    for id in removed {
        // By the index of ids, which begins with the space.
        let found: Option<(i64, i64)> = db
            .prepare_cached("SELECT session, key FROM space CROSS JOIN checkpoint USING (space) WHERE id = ?1")?
            .query_row(params![id], |row| Ok((row.get(0)?, row.get(1)?)))
            .optional()?;
        if let Some((session, key)) = found {
            doomed.entry(session).or_default().insert(key);
        }
    }
    // A conversation is gone only if it is named itself: it lives on without its checkpoints.
    let mut gone = BTreeSet::new();
    for id in removed {
        if let Some(session) = conversation::find_session(db, id)? {
            let keys = doomed.entry(session).or_default();
            let mut all = db.prepare_cached("SELECT key FROM checkpoint WHERE session = ?1")?;
            for key in all.query_map(params![session], |row| row.get(0))? {
                keys.insert(key?);
            }
            gone.insert(session);
        }
    }
    overwriting(db, || {
        doomed.iter().try_for_each(|(session, keys)| remove_again_of(db, *session, keys, gone.contains(session)))
    })?;
    if !doomed.is_empty() {
        forget_words(db)?;
    }
    Ok(doomed.values().map(|keys| keys.len() as u64).sum())
}

/// Those of the checkpoints that are there and not deleted, with their sessions. What a removal that broke off left is deleted.
pub(crate) fn list_live(db: &Connection, removed: &Removed) -> DbResult<Vec<(String, String)>> {
    let mut statement = db.prepare_cached(
        "SELECT s.id, c.id FROM json_each(?1) AS named CROSS JOIN space CROSS JOIN checkpoint AS c USING (space)
             JOIN session AS s ON s.key = c.session
         WHERE c.id = named.value AND c.archived_at_ms IS NULL AND s.archived_at_ms IS NULL",
    )?;
    let live = statement.query_map(params![json!(removed).to_string()], |row| Ok((row.get(0)?, row.get(1)?)))?;
    Ok(live.collect::<Result<_, _>>()?)
}

/// Those that are there in any state, and those that name a session that is there. What a removal that broke off left is.
pub(crate) fn list_present(db: &Connection, removed: &Removed) -> DbResult<Removed> {
    let mut statement = db.prepare_cached(
        "SELECT c.id FROM json_each(?1) AS named CROSS JOIN space CROSS JOIN checkpoint AS c USING (space) WHERE c.id = named.value
         UNION ALL
         SELECT s.id FROM json_each(?1) AS named CROSS JOIN space CROSS JOIN session AS s USING (space) WHERE s.id = named.value",
    )?;
    let present = statement.query_map(params![json!(removed).to_string()], |row| row.get(0))?;
    Ok(present.collect::<Result<_, _>>()?)
}

/// From this format on rows say whether an import brought them.
const IMPORTED_SINCE: u32 = 8;

/// Forgets that something was removed which an import brought back, that died before it could say so. What is there and was not imported is of
/// an older database that was put back: it stays removed. Only for who has the turn to write files, or the directory alone.
pub(crate) fn forget_live(directory: &DataDirectory, db: &Connection, removed: &mut Removed) -> DbResult<()> {
    // An older one is copied before it is brought to the present format.
    if version(db)? < IMPORTED_SINCE {
        return Ok(());
    }
    let mut is_imported =
        db.prepare_cached("SELECT imported FROM space CROSS JOIN checkpoint USING (space) WHERE id = ?1")?;
    let mut live: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (session, id) in list_live(db, removed)? {
        if is_imported.query_row(params![id], |row| row.get(0))? {
            removed.remove(&id);
            live.entry(session).or_default().push(id);
        }
    }
    for (session, ids) in &live {
        tombstone::take_away(directory, session, ids.iter().map(String::as_str))
            .map_err(|error| file_error(&directory.tombstones(), &error))?;
    }
    Ok(())
}

fn remove_again_of(db: &Connection, session: i64, keys: &BTreeSet<i64>, is_gone: bool) -> DbResult<()> {
    remove_rows(db, session, keys)?;
    db.execute("UPDATE checkpoint_group SET mirrored_seq = 0 WHERE session = ?1", params![session])?;
    let left = db.prepare_cached("SELECT 1 FROM checkpoint WHERE session = ?1")?.exists(params![session])?;
    if left {
        return Ok(());
    }
    let (space, id, project, is_live): (i64, String, String, bool) = db
        .prepare_cached("SELECT space, id, project, archived_at_ms IS NULL FROM session WHERE key = ?1")?
        .query_row(params![session], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?)))?;
    let is_conversation = conversation::find_session(db, &id)?.is_some();
    if is_conversation && !is_gone {
        return Ok(());
    }
    erase_words(db, space, &project, &id)?;
    if is_conversation {
        conversation::remove(db, session)?;
    }
    db.execute("DELETE FROM checkpoint_group WHERE session = ?1", params![session])?;
    db.execute("DELETE FROM session WHERE key = ?1", params![session])?;
    db.execute("UPDATE space SET session_count = session_count - ?2 WHERE space = ?1", params![space, is_live])?;
    Ok(())
}
