//! Counters made anew from the rows, after rows were brought back or put right. Whoever adds a row counts it at once.

use rusqlite::{Connection, params};

use super::error::{DbError, DbResult};
use super::search;

/// Counts anew what sessions and the space keep count of.
pub(crate) fn recount(db: &Connection) -> DbResult<()> {
    db.execute_batch(
        "UPDATE session AS s SET
             head = (SELECT key FROM checkpoint WHERE session = s.key AND archived_at_ms IS NULL ORDER BY seq DESC LIMIT 1),
             checkpoint_count = (SELECT count(*) FROM checkpoint WHERE session = s.key AND archived_at_ms IS NULL),
             size_bytes = (SELECT coalesce(sum(size_bytes), 0) FROM checkpoint WHERE session = s.key);
         UPDATE checkpoint_group AS g SET
             checkpoint_count = max(checkpoint_count, (SELECT count(*) FROM checkpoint WHERE group_key = g.key)),
             raw_bytes = max(raw_bytes, (SELECT coalesce(sum(raw_bytes), 0) FROM checkpoint WHERE group_key = g.key));
         UPDATE branch AS b SET
             message_count = (SELECT count(*) FROM message WHERE branch = b.key),
             head = (SELECT segment FROM message WHERE branch = b.key ORDER BY position DESC LIMIT 1);
         UPDATE space AS p SET
             session_count = (SELECT count(*) FROM session WHERE space = p.space AND archived_at_ms IS NULL),
             checkpoint_count = (SELECT coalesce(sum(checkpoint_count), 0) FROM session WHERE space = p.space AND archived_at_ms IS NULL),
             size_bytes = (SELECT coalesce(sum(size_bytes), 0) FROM session WHERE space = p.space)
                        + (SELECT coalesce(sum(size_bytes), 0) FROM given_context WHERE space = p.space)
                        + (SELECT coalesce(sum(size_bytes), 0) FROM segment WHERE space = p.space);",
    )
    .map_err(DbError::from)?;
    Ok(search::mark_all_stale(db)?)
}

/// Sums up segments anew.
pub(crate) fn recount_usage(db: &Connection) -> DbResult<()> {
    Ok(db.execute_batch(
        "DELETE FROM usage;
         INSERT INTO usage (project, task, tier, type, segment_count, tokens, pinned_count, pinned_tokens)
             SELECT project, coalesce(task, 0), tier, type, count(*), sum(tokens), sum(pinned), sum(pinned * tokens)
             FROM segment GROUP BY 1, 2, 3, 4;",
    )?)
}

/// The highest numbers that were given out before.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Numbers {
    pub(crate) row: i64,
    pub(crate) operation: i64,
    /// `None` where no one can tell any more: there are many more events than operations, and none of their numbers is in a file.
    pub(crate) event: Option<i64>,
}

/// So far ahead events are numbered where it is not known how many there were. No one has had as many.
const EVENTS_UNKNOWN: i64 = 1 << 32;

/// Numbers go on after the highest one found: those that are `known`, or in this database. Where operations before that are gone, or the
/// database took the place of another, another chain begins, and a number of an event is left out: who heard those that are gone sees the gap.
/// Returns whether one does.
pub(crate) fn continue_numbers(db: &Connection, known: Numbers, is_replaced: bool) -> DbResult<bool> {
    db.execute(
        "UPDATE space AS p SET row_seq = max(row_seq, ?1,
             (SELECT coalesce(max(seq), 0) FROM checkpoint WHERE space = p.space),
             (SELECT coalesce(max(max(seq, accessed_seq)), 0) FROM session WHERE space = p.space),
             (SELECT coalesce(max(seq), 0) FROM segment WHERE space = p.space),
             (SELECT coalesce(max(seq), 0) FROM snapshot WHERE space = p.space))",
        params![known.row],
    )?;
    let highest: i64 = db.query_row(
        "SELECT max(?1, (SELECT max(operation_seq) FROM space), (SELECT coalesce(max(changed_seq), 0) FROM checkpoint_group),
                    (SELECT coalesce(max(max(saved_seq, coalesce(archived_seq, 0))), 0) FROM checkpoint),
                    (SELECT coalesce(max(entered_seq), 0) FROM segment), (SELECT coalesce(max(seq), 0) FROM collection),
                    (SELECT coalesce(max(operation), 0) FROM segment_change))",
        params![known.operation],
        |row| row.get(0),
    )?;
    let changed = db.execute(
        "UPDATE space SET operation_seq = ?1, operation_hash = randomblob(32), event_seq = max(event_seq, ?1, ?3) + ?4
         WHERE operation_seq < ?1 OR ?2",
        params![highest, is_replaced, known.event.unwrap_or(0), if known.event.is_some() { 1 } else { EVENTS_UNKNOWN }],
    )?;
    if changed > 0 {
        db.execute(
            "INSERT OR REPLACE INTO chain (space, first_seq, genesis) SELECT space, operation_seq + 1, operation_hash FROM space",
            [],
        )?;
    }
    Ok(changed > 0)
}
