//! Rows of checkpoints removed for good: what was a delta against one of them is packed anew, and whatever else tells of them goes too.

use std::collections::{BTreeSet, HashMap};

use rusqlite::{Connection, OptionalExtension, params};
use waystone_core::canon::Hash;
use waystone_core::id::CheckpointId;
use waystone_core::pack::{Base, pack, pack_delta};

use crate::sqlite::checkpoint::{find_text, write_bytes};
use crate::sqlite::error::{DbResult, unreadable};

/// Removes checkpoints of one session by their keys. The session's counts follow, its operations are the caller's.
pub(crate) fn remove_rows(db: &Connection, session: i64, doomed: &BTreeSet<i64>) -> DbResult<()> {
    for (key, base) in find_dependents(db, session, doomed)? {
        rebase(db, key, base)?;
    }
    // A delta refers to its base, so the newest goes first.
    for key in doomed.iter().rev() {
        db.prepare_cached("UPDATE checkpoint SET base = NULL WHERE key = ?1")?.execute(params![key])?;
    }
    for key in doomed {
        db.prepare_cached("DELETE FROM checkpoint WHERE key = ?1")?.execute(params![key])?;
    }
    forget_index(db, session, doomed)?;
    recount_session(db, session)
}

/// Does what removes something. Pages that are freed by it are overwritten, and by nothing else: it costs writes.
pub(crate) fn overwriting<T>(db: &Connection, work: impl FnOnce() -> DbResult<T>) -> DbResult<T> {
    db.pragma_update(None, "secure_delete", true)?;
    let done = work();
    db.pragma_update(None, "secure_delete", "FAST")?;
    done
}

/// What stays and is a delta against what goes, in order, each with what it can be a delta against: the nearest before that stays.
fn find_dependents(db: &Connection, session: i64, doomed: &BTreeSet<i64>) -> DbResult<Vec<(i64, Option<i64>)>> {
    let mut statement =
        db.prepare_cached("SELECT key, base FROM checkpoint WHERE session = ?1 AND base IS NOT NULL ORDER BY seq")?;
    let bases: Vec<(i64, i64)> =
        statement.query_map(params![session], |row| Ok((row.get(0)?, row.get(1)?)))?.collect::<Result<_, _>>()?;
    let base_of: HashMap<i64, i64> = bases.iter().copied().collect();
    let staying = |key: i64| {
        // Bounded, should the rows be damaged and lead in a circle.
        let mut steps = std::iter::successors(Some(key), |key| base_of.get(key).copied()).take(base_of.len() + 1);
        steps.find(|key| !doomed.contains(key))
    };
    let dependents = bases.iter().filter(|(key, base)| doomed.contains(base) && !doomed.contains(key));
    Ok(dependents.map(|(key, base)| (*key, staying(*base))).collect())
}

/// Packs a checkpoint as a delta against another one, or alone. One whose text is lost stays as it is, without a base: its mirror may have it.
fn rebase(db: &Connection, key: i64, base: Option<i64>) -> DbResult<()> {
    let Some((_, text)) = find_whole(db, key)? else {
        db.prepare_cached("UPDATE checkpoint SET base = NULL WHERE key = ?1")?.execute(params![key])?;
        return Ok(());
    };
    let known = match base {
        Some(base) => find_whole(db, base)?.map(|(id, text)| (base, id, text)),
        None => None,
    };
    let packed = match &known {
        Some((_, id, before)) => pack_delta(&text, Base { id: id.clone(), raw_hash: Hash::of(before) }, before),
        None => pack(&text),
    };
    let packed = packed.map_err(|error| unreadable("a context", error))?;
    db.prepare_cached("UPDATE checkpoint SET base = ?2, size_bytes = ?3 WHERE key = ?1")?.execute(params![
        key,
        known.map(|(key, ..)| key),
        packed.bytes.len()
    ])?;
    write_bytes(db, key, &packed.bytes)
}

/// A text, if it is there. One whose row has a value that cannot be read is lost like one whose bytes are.
fn find_whole(db: &Connection, key: i64) -> DbResult<Option<(CheckpointId, Vec<u8>)>> {
    match find_text(db, key) {
        Err(error) if error.is_damage() => Ok(None),
        found => found.map(|(id, text)| text.map(|text| (id, text))),
    }
}

/// What is searched no longer has the words of what is gone; housekeeping indexes what the session has now.
fn forget_index(db: &Connection, session: i64, doomed: &BTreeSet<i64>) -> DbResult<()> {
    // A backup may be from before there was an index.
    if !db.prepare_cached("SELECT 1 FROM sqlite_schema WHERE name = 'checkpoint_index'")?.exists([])? {
        return Ok(());
    }
    let indexed: Option<(i64, Option<i64>)> = db
        .prepare_cached("SELECT key, checkpoint FROM checkpoint_index WHERE session = ?1")?
        .query_row(params![session], |row| Ok((row.get(0)?, row.get(1)?)))
        .optional()?;
    let Some((key, Some(checkpoint))) = indexed else { return Ok(()) };
    if doomed.contains(&checkpoint) {
        db.prepare_cached("DELETE FROM checkpoint_word WHERE rowid = ?1")?.execute(params![key])?;
        db.prepare_cached("DELETE FROM checkpoint_index WHERE key = ?1")?.execute(params![key])?;
        db.prepare_cached(
            "INSERT INTO checkpoint_index (session, indexed_at_ms, stale, pieces) VALUES (?1, 0, 1, x'')",
        )?
        .execute(params![session])?;
    }
    Ok(())
}

/// Writes the indexes of words anew. FTS5 only marks what is deleted, and the words of it stay until then.
pub(crate) fn forget_words(db: &Connection) -> DbResult<()> {
    for table in ["checkpoint_word", "checkpoint_term", "segment_word"] {
        // A backup may be from before there was one.
        if db.prepare_cached("SELECT 1 FROM sqlite_schema WHERE name = ?1")?.exists(params![table])? {
            overwriting(db, || Ok(db.execute_batch(&format!("INSERT INTO {table} ({table}) VALUES ('optimize')"))?))?;
        }
    }
    overwrite_free(db)
}

/// So much of what is free is overwritten at once.
const OVERWRITTEN_BYTES_MAX: i64 = 64 * 1024 * 1024;

/// Overwrites pages that were freed before, as the indexes of words were merged: they are taken for something that is nothing, and
/// given back.
fn overwrite_free(db: &Connection) -> DbResult<()> {
    let pragma = |name: &str| db.pragma_query_value(None, name, |row| row.get::<_, i64>(0));
    let (free, size) = (pragma("freelist_count")?, pragma("page_size")?);
    // Some are taken for the table itself.
    let bytes = ((free - 2) * (size - 4)).min(OVERWRITTEN_BYTES_MAX);
    if bytes > 0 {
        db.execute_batch("CREATE TABLE overwritten (bytes BLOB NOT NULL) STRICT")?;
        db.execute("INSERT INTO overwritten (bytes) VALUES (zeroblob(?1))", params![bytes])?;
        overwriting(db, || Ok(db.execute_batch("DROP TABLE overwritten")?))?;
    }
    Ok(())
}

/// Counts anew what a session and the space keep count of, after checkpoints of it went or came.
pub(crate) fn recount_session(db: &Connection, session: i64) -> DbResult<()> {
    let read = || -> rusqlite::Result<(i64, i64, i64)> {
        db.prepare_cached(
            "SELECT space, size_bytes, iif(archived_at_ms IS NULL, checkpoint_count, 0) FROM session WHERE key = ?1",
        )?
        .query_row(params![session], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))
    };
    let (space, size_before, count_before) = read()?;
    db.prepare_cached(
        "UPDATE session AS s SET
             head = (SELECT key FROM checkpoint WHERE session = s.key AND archived_at_ms IS NULL ORDER BY seq DESC LIMIT 1),
             checkpoint_count = (SELECT count(*) FROM checkpoint WHERE session = s.key AND archived_at_ms IS NULL),
             size_bytes = (SELECT coalesce(sum(size_bytes), 0) FROM checkpoint WHERE session = s.key)
         WHERE key = ?1",
    )?
    .execute(params![session])?;
    let (_, size, count) = read()?;
    db.prepare_cached(
        "UPDATE space SET size_bytes = size_bytes + ?2, checkpoint_count = checkpoint_count + ?3 WHERE space = ?1",
    )?
    .execute(params![space, size - size_before, count - count_before])?;
    Ok(())
}
