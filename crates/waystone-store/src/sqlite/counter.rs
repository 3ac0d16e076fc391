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

/// Numbers go on after the highest one found: of rows and operations those that are `known`, or in this database. Where operations before that
/// are gone, or the database took the place of another, another chain begins. Returns whether one does.
pub(crate) fn continue_numbers(db: &Connection, known: (i64, i64), is_replaced: bool) -> DbResult<bool> {
    db.execute(
        "UPDATE space AS p SET row_seq = max(row_seq, ?1,
             (SELECT coalesce(max(seq), 0) FROM checkpoint WHERE space = p.space),
             (SELECT coalesce(max(max(seq, accessed_seq)), 0) FROM session WHERE space = p.space),
             (SELECT coalesce(max(seq), 0) FROM segment WHERE space = p.space),
             (SELECT coalesce(max(seq), 0) FROM snapshot WHERE space = p.space))",
        params![known.0],
    )?;
    let highest: i64 = db.query_row(
        "SELECT max(?1, (SELECT max(operation_seq) FROM space), (SELECT coalesce(max(changed_seq), 0) FROM checkpoint_group),
                    (SELECT coalesce(max(max(saved_seq, coalesce(archived_seq, 0))), 0) FROM checkpoint),
                    (SELECT coalesce(max(entered_seq), 0) FROM segment), (SELECT coalesce(max(seq), 0) FROM collection),
                    (SELECT coalesce(max(operation), 0) FROM segment_change))",
        params![known.1],
        |row| row.get(0),
    )?;
    let changed = db.execute(
        "UPDATE space SET operation_seq = ?1, operation_hash = randomblob(32), event_seq = max(event_seq, ?1)
         WHERE operation_seq < ?1 OR ?2",
        params![highest, is_replaced],
    )?;
    if changed > 0 {
        db.execute(
            "INSERT OR REPLACE INTO chain (space, first_seq, genesis) SELECT space, operation_seq + 1, operation_hash FROM space",
            [],
        )?;
    }
    Ok(changed > 0)
}
