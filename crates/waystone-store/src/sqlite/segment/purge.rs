//! Segments removed for good, when the time in which they can be restored is over.

use rusqlite::{Connection, params};
use serde_json::json;
use waystone_core::clock::Timestamp;
use waystone_core::store::Scope;

use crate::sqlite::error::DbResult;
use crate::sqlite::log::{Operation, append_and_publish};

struct Old {
    key: i64,
    space: i64,
    project: String,
    id: String,
    size_bytes: i64,
}

/// Removes up to `limit` segments that were deleted before that time, unless a snapshot still has them. Returns how many there were.
pub(crate) fn purge(db: &Connection, before: Timestamp, limit: usize, at: Timestamp) -> DbResult<usize> {
    let old: Vec<Old> = db
        .prepare_cached(
            "SELECT s.key, s.space, p.id, s.id, s.size_bytes FROM segment AS s JOIN project AS p ON p.key = s.project
             WHERE s.archived_at_ms < ?1 AND s.archived_at_ms IS NOT NULL AND NOT EXISTS
                 (SELECT 1 FROM snapshot_segment AS c JOIN snapshot AS n ON n.key = c.snapshot
                  WHERE c.segment = s.key AND (n.archived_at_ms IS NULL OR n.archived_at_ms >= ?1))
             ORDER BY p.key LIMIT ?2",
        )?
        .query_map(params![before.ms(), limit], |row| {
            let (key, space, project) = (row.get(0)?, row.get(1)?, row.get(2)?);
            Ok(Old { key, space, project, id: row.get(3)?, size_bytes: row.get(4)? })
        })?
        .collect::<Result<_, _>>()?;
    for of_project in old.chunk_by(|a, b| (a.space, &a.project) == (b.space, &b.project)) {
        let (space, project) = (of_project[0].space, of_project[0].project.as_str());
        let ids: Vec<&str> = of_project.iter().map(|segment| segment.id.as_str()).collect();
        let scope = Scope { space, ..Scope::local("maintenance") };
        let payload = json!({ "project_id": project, "segments": ids.len(), "segment_ids": ids });
        let operation = Operation { at, kind: "segment.purged", project, subject: Vec::new(), payload };
        append_and_publish(db, &scope, &operation)?;
    }
    for segment in &old {
        // A snapshot that is hidden itself keeps nothing.
        db.prepare_cached("DELETE FROM snapshot_segment WHERE segment = ?1")?.execute(params![segment.key])?;
        db.prepare_cached("DELETE FROM segment WHERE key = ?1")?.execute(params![segment.key])?;
        db.prepare_cached("UPDATE space SET size_bytes = size_bytes - ?2 WHERE space = ?1")?
            .execute(params![segment.space, segment.size_bytes])?;
    }
    Ok(old.len())
}
