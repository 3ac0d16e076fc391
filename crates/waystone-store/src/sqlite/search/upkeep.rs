//! How the index follows what it is made from. Segments are indexed as they are put; what sessions last saved is indexed by housekeeping,
//! some time after the save. All of it can be made anew.

use rusqlite::{Connection, OptionalExtension, params};
use waystone_core::clock::Timestamp;
use waystone_core::meaning::{Piece, pieces};
use waystone_core::search::{indexed, text_of_context};

use super::table;
use crate::sqlite::checkpoint;
use crate::sqlite::error::DbResult;
use crate::sqlite::seal::is_sealed;
use crate::sqlite::segment::reindex;

/// How the index is made. It is made anew where it was made by another number.
const VERSION: i64 = 3;
/// How much is done in one transaction: operations that are looked at, sessions, and bytes of text that are indexed. Writers wait meanwhile.
const OPERATIONS_MAX: i64 = 1000;
const SESSIONS_MAX: usize = 16;
/// Of so many sessions that were used last it is looked whether they are indexed.
const LOOKED_MAX: usize = 64;
const BYTES_MAX: usize = 256 * 1024;
/// A session that saves all the time is indexed no more often.
const REST_MS: i64 = 10_000;

/// The checkpoint that session `s` is found by; none where it was deleted, or is a conversation: its messages are found, and its checkpoints
/// only say where it stood and how it is led.
const FOUND_BY: &str = "iif(s.archived_at_ms IS NULL AND NOT EXISTS (SELECT 1 FROM conversation AS c WHERE c.session = s.key), s.head, NULL)";

/// What a session is to be found by.
pub(crate) struct Pending {
    session: i64,
    checkpoint: Option<i64>,
    text: String,
    pieces: Vec<Piece>,
}

/// Takes note of sessions that operations changed since the last time. Returns whether there may be more.
pub(crate) fn follow(db: &Connection) -> rusqlite::Result<bool> {
    let behind: Option<(i64, i64, i64)> = db
        .prepare_cached(
            "SELECT i.space, i.followed_seq, s.operation_seq FROM search_index AS i JOIN space AS s ON s.space = i.space
             WHERE i.followed_seq < s.operation_seq LIMIT 1",
        )?
        .query_row([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))
        .optional()?;
    let Some((space, followed, newest)) = behind else { return Ok(false) };
    let until = newest.min(followed + OPERATIONS_MAX);
    db.prepare_cached(
        "INSERT INTO checkpoint_index (session, indexed_at_ms, stale, pieces)
             SELECT DISTINCT s.key, 0, 1, x'' FROM operation AS o, json_each(o.subject) AS handle
             JOIN session AS s ON s.space = o.space AND s.id = substr(handle.value, length('ws:session:') + 1)
             WHERE o.space = ?1 AND o.seq > ?2 AND o.seq <= ?3 AND o.kind <> 'checkpoint.loaded'
                 AND handle.value LIKE 'ws:session:%'
         ON CONFLICT (session) DO UPDATE SET stale = 1",
    )?
    .execute(params![space, followed, until])?;
    db.prepare_cached("UPDATE search_index SET followed_seq = ?2 WHERE space = ?1")?.execute(params![space, until])?;
    Ok(true)
}

/// Takes every session for changed: there are rows that no operation added.
pub(crate) fn mark_all_stale(db: &Connection) -> rusqlite::Result<()> {
    db.execute_batch(
        "INSERT INTO checkpoint_index (session, indexed_at_ms, stale, pieces) SELECT key, 0, 1, x'' FROM session WHERE true
         ON CONFLICT (session) DO UPDATE SET stale = 1, indexed_at_ms = 0",
    )
}

/// Reads some of the sessions that changed. `at` leaves those alone that were indexed a moment ago.
pub(crate) fn read_pending(db: &Connection, at: Option<Timestamp>) -> DbResult<Vec<Pending>> {
    let mut statement = db.prepare_cached(&format!(
        "SELECT i.session, {FOUND_BY} FROM checkpoint_index AS i JOIN session AS s ON s.key = i.session
         WHERE i.stale = 1 AND (?1 IS NULL OR i.indexed_at_ms NOT BETWEEN ?1 - ?2 AND ?1) ORDER BY i.session LIMIT ?3"
    ))?;
    let rows = statement.query_map(params![at.map(Timestamp::ms), REST_MS, SESSIONS_MAX], |row| {
        Ok((row.get(0)?, row.get::<_, Option<i64>>(1)?))
    })?;
    let rows: Vec<(i64, Option<i64>)> = rows.collect::<Result<_, _>>()?;
    let is_sealed = is_sealed(db)?;
    let (mut pending, mut bytes) = (Vec::new(), 0);
    for (session, checkpoint) in rows {
        let text = match checkpoint {
            // What is sealed is read when it is searched, and its words stay in memory.
            _ if is_sealed => String::new(),
            // What cannot be read is not found; `doctor` tells of it.
            Some(key) => checkpoint::find_with_text(db, key)?.1.map(|raw| text_of_context(&raw)).unwrap_or_default(),
            None => String::new(),
        };
        bytes += text.len();
        pending.push(Pending { session, checkpoint, pieces: pieces(&text), text: indexed(&text) });
        if bytes >= BYTES_MAX {
            break;
        }
    }
    Ok(pending)
}

/// What is looked for in sessions that were saved a moment ago and are not indexed as they are, with their ids: of those used last, a few.
pub(crate) fn read_unindexed(db: &Connection, space: i64) -> DbResult<Vec<(String, String)>> {
    if !is_behind(db, space)? {
        return Ok(Vec::new());
    }
    let mut statement = db.prepare_cached(&format!(
        "SELECT s.id, found FROM
             (SELECT s.id, s.key, {FOUND_BY} AS found FROM session AS s
              WHERE s.space = ?1 AND s.archived_at_ms IS NULL ORDER BY s.accessed_seq DESC LIMIT ?2) AS s
             JOIN checkpoint AS c ON c.key = found LEFT JOIN checkpoint_index AS i ON i.session = s.key
         WHERE i.checkpoint IS NOT found AND c.raw_bytes <= ?3 LIMIT ?4"
    ))?;
    let rows = statement.query_map(params![space, LOOKED_MAX, BYTES_MAX, SESSIONS_MAX], |row| {
        Ok((row.get(0)?, row.get::<_, i64>(1)?))
    })?;
    let mut found = Vec::new();
    for row in rows {
        let (id, checkpoint) = row?;
        if let Some(raw) = checkpoint::find_with_text(db, checkpoint)?.1 {
            found.push((id, text_of_context(&raw)));
        }
    }
    Ok(found)
}

/// Writes what was read. A session that changed meanwhile stays stale.
pub(crate) fn write_indexed(db: &Connection, pending: &[Pending], at: Timestamp) -> rusqlite::Result<()> {
    for Pending { session, checkpoint, text, pieces } in pending {
        let before: Option<i64> = db
            .prepare_cached("SELECT key FROM checkpoint_index WHERE session = ?1")?
            .query_row(params![session], |row| row.get(0))
            .optional()?;
        if let Some(before) = before {
            db.prepare_cached("DELETE FROM checkpoint_word WHERE rowid = ?1")?.execute(params![before])?;
            db.prepare_cached("DELETE FROM checkpoint_index WHERE key = ?1")?.execute(params![before])?;
        }
        let pieces: Vec<u8> = pieces.iter().flat_map(|piece| piece.to_le_bytes()).collect();
        let added: Option<i64> = db
            .prepare_cached(&format!(
                "INSERT INTO checkpoint_index (session, checkpoint, indexed_at_ms, stale, pieces)
                 SELECT s.key, ?2, ?3, {FOUND_BY} IS NOT ?2, ?4 FROM session AS s WHERE s.key = ?1 RETURNING key"
            ))?
            .query_row(params![session, checkpoint, at.ms(), pieces], |row| row.get(0))
            .optional()?;
        if let Some(key) = added
            && !text.is_empty()
        {
            db.prepare_cached("INSERT INTO checkpoint_word (rowid, text) VALUES (?1, ?2)")?
                .execute(params![key, text])?;
        }
    }
    Ok(())
}

/// Whether the index is all there and of this version.
pub(crate) fn is_made(db: &Connection) -> rusqlite::Result<bool> {
    db.prepare_cached("SELECT NOT EXISTS (SELECT 1 FROM search_index WHERE version <> ?1 OR next_segment IS NOT NULL)")?
        .query_row(params![VERSION], |row| row.get(0))
}

/// Begins to make all of it anew, or goes on where it was left if that was begun.
pub(crate) fn begin_anew(db: &Connection, is_forced: bool) -> rusqlite::Result<()> {
    let begun = db.execute(
        "UPDATE search_index SET version = ?1, next_segment = 0 WHERE version <> ?1 OR ?2",
        params![VERSION, is_forced],
    )?;
    if begun == 0 {
        return Ok(());
    }
    if is_forced {
        // What is there may be damaged.
        table::create_anew(db)?;
    } else {
        db.execute_batch("INSERT INTO checkpoint_term (checkpoint_term) VALUES ('delete-all')")?;
    }
    db.execute_batch("UPDATE search_index SET found_key = 0")?;
    mark_all_stale(db)
}

/// Makes the index of some segments anew. Returns how many are left.
pub(crate) fn make_anew(db: &Connection) -> DbResult<u64> {
    let next: Option<i64> =
        db.query_row("SELECT min(next_segment) FROM search_index WHERE next_segment IS NOT NULL", [], |row| {
            row.get(0)
        })?;
    let Some(next) = next else { return Ok(0) };
    let last = reindex(db, next, BYTES_MAX)?;
    db.execute(
        "UPDATE search_index SET next_segment = ?1, round = round + iif(?1 IS NULL, 1, 0) WHERE next_segment IS NOT NULL",
        params![last.map(|last| last + 1)],
    )?;
    let Some(last) = last else { return Ok(0) };
    Ok(db.query_row("SELECT 1 + count(*) FROM segment WHERE key > ?1", params![last], |row| row.get(0))?)
}

/// Whether a session was saved that is not indexed as it is.
pub(super) fn is_behind(db: &Connection, space: i64) -> rusqlite::Result<bool> {
    db.prepare_cached(
        "SELECT EXISTS (SELECT 1 FROM checkpoint_index WHERE stale = 1)
             OR EXISTS (SELECT 1 FROM operation AS o JOIN search_index AS i ON i.space = o.space
                        WHERE o.space = ?1 AND o.seq > i.followed_seq AND o.kind IN ('checkpoint.saved', 'session.imported'))",
    )?
    .query_row(params![space], |row| row.get(0))
}

pub(super) fn count_segments(db: &Connection) -> rusqlite::Result<u64> {
    db.query_row("SELECT count(*) FROM segment", [], |row| row.get(0))
}

/// How many sessions are not indexed as they are.
pub(super) fn count_stale(db: &Connection) -> rusqlite::Result<u64> {
    db.query_row("SELECT count(*) FROM checkpoint_index WHERE stale = 1", [], |row| row.get(0))
}
