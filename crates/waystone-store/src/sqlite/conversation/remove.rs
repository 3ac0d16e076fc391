//! A conversation removed for good, with its messages, which are segments, and with what was told of them.

use rusqlite::{Connection, OptionalExtension, params};
use waystone_core::api::Tier;

use crate::sqlite::error::DbResult;
use crate::sqlite::segment::{kind_of, tier_of};
use crate::sqlite::usage::{Counted, Sums};

/// What says of a branch how it was called.
const NAMING: &str = "('branch.created', 'branch.switched', 'branch.deleted', 'branch.restored')";

/// The session of a conversation by its id. A backup may be from before there were conversations.
pub(crate) fn find_session(db: &Connection, id: &str) -> DbResult<Option<i64>> {
    if !db.prepare_cached("SELECT 1 FROM sqlite_schema WHERE name = 'conversation'")?.exists([])? {
        return Ok(None);
    }
    Ok(db
        .prepare_cached(
            "SELECT s.key FROM space CROSS JOIN session AS s USING (space) JOIN conversation AS c ON c.session = s.key
             WHERE s.id = ?1",
        )?
        .query_row(params![id], |row| row.get(0))
        .optional()?)
}

/// Removes all of a conversation but the row of its session.
pub(crate) fn remove(db: &Connection, session: i64) -> DbResult<()> {
    let found: Option<(i64, i64, i64, String, String)> = db
        .prepare_cached(
            "SELECT c.space, c.project, c.task, s.project, s.id FROM conversation AS c JOIN session AS s ON s.key = c.session
             WHERE c.session = ?1",
        )?
        .query_row(params![session], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?, row.get(4)?)))
        .optional()?;
    let Some((space, project, task, project_id, id)) = found else { return Ok(()) };
    // A snapshot of its task has nothing but its messages.
    db.prepare_cached("DELETE FROM snapshot WHERE task = ?1")?.execute(params![task])?;
    // A backup may be from before there were tools, or windows.
    for table in ["tool_call", "window"] {
        if db.prepare_cached("SELECT 1 FROM sqlite_schema WHERE name = ?1")?.exists(params![table])? {
            db.prepare_cached(&format!("DELETE FROM {table} WHERE session = ?1"))?.execute(params![session])?;
        }
    }
    remove_messages(db, session, space, project)?;
    db.prepare_cached("DELETE FROM conversation WHERE session = ?1")?.execute(params![session])?;
    db.prepare_cached("DELETE FROM branch WHERE session = ?1")?.execute(params![session])?;
    db.prepare_cached("DELETE FROM usage WHERE task = ?1 AND segment_count = 0")?.execute(params![task])?;
    // Numbers of events have no gaps, so what they tell goes and they stay.
    db.prepare_cached(
        "UPDATE event SET payload = sealed(json_object('context_id', ?2), 'event', seq), session = NULL, run = NULL WHERE session = ?1",
    )?
    .execute(params![session, id])?;
    let subject = format!("ws:session:{id}");
    let erased = db
        .prepare_cached(&format!(
            "UPDATE operation SET payload = NULL WHERE space = ?1 AND project = ?2 AND kind IN {NAMING} AND payload IS NOT NULL
                 AND EXISTS (SELECT 1 FROM json_each(subject) WHERE value = ?3)"
        ))?
        .execute(params![space, project_id, subject])?;
    if erased == 0 {
        return Ok(());
    }
    db.prepare_cached(&format!(
        "UPDATE event SET payload = sealed(json_object('context_id', ?2), 'event', seq)
         WHERE space = ?1 AND kind IN {NAMING} AND unsealed(payload, 'event', seq) ->> '$.context_id' = ?2"
    ))?
    .execute(params![space, id])?;
    Ok(())
}

fn remove_messages(db: &Connection, session: i64, space: i64, project: i64) -> DbResult<()> {
    let mut statement = db.prepare_cached(
        "SELECT key, task, tier, type, tokens, pinned, size_bytes FROM segment WHERE conversation = ?1",
    )?;
    let (mut rows, mut sums, mut keys, mut bytes) =
        (statement.query(params![session])?, Sums::default(), Vec::new(), 0);
    while let Some(row) = rows.next()? {
        let counted = Counted {
            task: row.get(1)?,
            tier: tier_of(row.get_ref(2)?.as_str().unwrap_or(Tier::Working.as_str()))?,
            kind: kind_of(row.get_ref(3)?.as_str().unwrap_or_default())?,
            tokens: row.get(4)?,
            pinned: row.get(5)?,
        };
        sums.remove(project, &counted);
        keys.push(row.get::<_, i64>(0)?);
        bytes += row.get::<_, i64>(6)?;
    }
    for key in keys {
        db.prepare_cached("DELETE FROM segment_word WHERE rowid = ?1")?.execute(params![key])?;
        db.prepare_cached("DELETE FROM segment WHERE key = ?1")?.execute(params![key])?;
    }
    sums.write(db)?;
    db.prepare_cached("UPDATE space SET size_bytes = size_bytes - ?2 WHERE space = ?1")?
        .execute(params![space, bytes])?;
    Ok(())
}
