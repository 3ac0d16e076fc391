//! Segments removed for good, when the time in which they can be restored is over.

use rusqlite::{Connection, Row, params};
use serde_json::json;
use waystone_core::api::Tier;
use waystone_core::clock::Timestamp;
use waystone_core::store::Scope;

use super::kind_of;
use super::put::IDS_TOLD_MAX;
use crate::sqlite::error::DbResult;
use crate::sqlite::log::{Operation, append_and_publish};
use crate::sqlite::retention::overwriting;
use crate::sqlite::usage::{Counted, Sums};

struct Old {
    key: i64,
    space: i64,
    project_key: i64,
    project: String,
    counted: Counted,
    id: String,
    size_bytes: i64,
}

/// So many snapshots are removed at once.
const SNAPSHOTS_MAX: usize = 1000;

/// Removes up to `limit` segments that were deleted before that time, the oldest first, unless a snapshot still has them. Pages that become free
/// are overwritten; words in the index are for the caller to forget. Returns how many there were.
pub(crate) fn purge(
    db: &Connection,
    before: Timestamp,
    limit: usize,
    is_grace_cut: bool,
    at: Timestamp,
) -> DbResult<usize> {
    overwriting(db, || {
        // A snapshot whose making was undone keeps nothing any more.
        remove_snapshots(db, before, is_grace_cut, at)?;
        let old = list_old(db, before, limit)?;
        tell(db, &old, is_grace_cut, at)?;
        remove(db, &old)?;
        Ok(old.len())
    })
}

fn remove_snapshots(db: &Connection, before: Timestamp, is_grace_cut: bool, at: Timestamp) -> DbResult<()> {
    let mut statement = db.prepare_cached(
        "SELECT n.key, n.space, p.id, n.id FROM snapshot AS n JOIN project AS p ON p.key = n.project
         WHERE n.archived_at_ms < ?1 LIMIT ?2",
    )?;
    let mut rows = statement.query(params![before.ms(), SNAPSHOTS_MAX])?;
    while let Some(row) = rows.next()? {
        let (key, space, project, id): (i64, i64, String, String) =
            (row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?);
        let scope = Scope { space, ..Scope::local("maintenance") };
        let mut payload = json!({ "project_id": project, "snapshot_id": id });
        if is_grace_cut {
            payload["graceCut"] = true.into();
        }
        let operation = Operation { at, kind: "snapshot.purged", project: &project, subject: Vec::new(), payload };
        append_and_publish(db, &scope, &operation)?;
        db.prepare_cached("DELETE FROM snapshot WHERE key = ?1")?.execute(params![key])?;
    }
    Ok(())
}

/// Those of a project stand together.
fn list_old(db: &Connection, before: Timestamp, limit: usize) -> DbResult<Vec<Old>> {
    let mut statement = db.prepare_cached(
        "SELECT s.key, s.space, p.key, p.id, s.id, s.size_bytes, s.task, s.type, s.tokens, s.pinned
         FROM segment AS s JOIN project AS p ON p.key = s.project
         WHERE s.archived_at_ms < ?1 AND s.archived_at_ms IS NOT NULL
             AND NOT EXISTS (SELECT 1 FROM snapshot_segment WHERE segment = s.key)
             AND NOT EXISTS (SELECT 1 FROM message WHERE segment = s.key)
         ORDER BY s.archived_at_ms LIMIT ?2",
    )?;
    let (mut rows, mut old) = (statement.query(params![before.ms(), limit])?, Vec::new());
    while let Some(row) = rows.next()? {
        match read_old(row) {
            // It stays; the others go all the same.
            Err(error) if error.is_damage() => {
                tracing::warn!(%error, "a deleted segment that cannot be read is passed over")
            }
            segment => old.push(segment?),
        }
    }
    old.sort_by_key(|segment| segment.project_key);
    Ok(old)
}

fn read_old(row: &Row<'_>) -> DbResult<Old> {
    let kind = kind_of(row.get_ref(7)?.as_str().unwrap_or_default())?;
    Ok(Old {
        key: row.get(0)?,
        space: row.get(1)?,
        project_key: row.get(2)?,
        project: row.get(3)?,
        id: row.get(4)?,
        size_bytes: row.get(5)?,
        counted: Counted { task: row.get(6)?, tier: Tier::Archive, kind, tokens: row.get(8)?, pinned: row.get(9)? },
    })
}

/// One operation for each project.
fn tell(db: &Connection, old: &[Old], is_grace_cut: bool, at: Timestamp) -> DbResult<()> {
    for of_project in old.chunk_by(|a, b| a.project_key == b.project_key) {
        let (space, project) = (of_project[0].space, of_project[0].project.as_str());
        let ids: Vec<&str> = of_project.iter().map(|segment| segment.id.as_str()).collect();
        let scope = Scope { space, ..Scope::local("maintenance") };
        let told = &ids[..ids.len().min(IDS_TOLD_MAX)];
        let mut payload = json!({ "project_id": project, "segments": ids.len(), "segment_ids": told });
        if is_grace_cut {
            payload["graceCut"] = true.into();
        }
        let operation = Operation { at, kind: "segment.purged", project, subject: Vec::new(), payload };
        append_and_publish(db, &scope, &operation)?;
    }
    Ok(())
}

fn remove(db: &Connection, old: &[Old]) -> DbResult<()> {
    let mut sums = Sums::default();
    for segment in old {
        sums.remove(segment.project_key, &segment.counted);
        db.prepare_cached("DELETE FROM segment_word WHERE rowid = ?1")?.execute(params![segment.key])?;
        db.prepare_cached("DELETE FROM segment WHERE key = ?1")?.execute(params![segment.key])?;
        db.prepare_cached("UPDATE space SET size_bytes = size_bytes - ?2 WHERE space = ?1")?
            .execute(params![segment.space, segment.size_bytes])?;
    }
    sums.write(db)
}
