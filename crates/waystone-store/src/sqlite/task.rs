//! Tasks of a project, and snapshots of their segments.

use async_trait::async_trait;
use rusqlite::types::ValueRef;
use rusqlite::{Connection, Row, params};
use serde_json::{Value, json};
use waystone_core::api::{ListSnapshots, ListTasks, Origin, Snapshot, SnapshotPage, Task, Tier};
use waystone_core::clock::Timestamp;
use waystone_core::id::{ProjectId, SnapshotId, TaskId};
use waystone_core::store::{Restored, Scope, TaskStore, WhichSnapshot};
use waystone_core::{Error, Result};

use super::clock::last_believed;
use super::error::{DbResult, unreadable};
use super::log::{Operation, append_and_publish, handle, next_row_seq};
use super::origin::origin_of;
use super::seal::project_column;
use super::segment::{
    Edit, Image, ProjectRow, ensure_project, ensure_task, find_project, find_task, image_of, task_id, tier_of,
    touch_place,
};
use super::{Sqlite, cursor};

/// Makes a task the current one. Returns the one that was, and the operation if something changed.
pub(crate) fn set_current(
    db: &Connection,
    scope: &Scope,
    project: &ProjectId,
    task: Option<&TaskId>,
    at: Timestamp,
) -> DbResult<(Option<TaskId>, Option<i64>)> {
    let known = find_project(db, scope, project)?;
    let previous = task_id(db, known.as_ref().and_then(|project| project.current_task))?;
    if previous.as_ref() == task {
        return Ok((previous, None));
    }
    let row = ensure_project(db, scope, project, at)?;
    let key = task.map(|id| ensure_task(db, scope, &row, id, at)).transpose()?;
    make_current(db, row.key, key)?;
    touch_place(db, row.key, key, at)?;
    let payload = json!({ "project_id": project, "task_id": task, "previous_task_id": previous });
    let seq = append(db, scope, project, "task.used", at, payload)?;
    Ok((previous, Some(seq)))
}

pub(super) fn make_current(db: &Connection, project: i64, task: Option<i64>) -> DbResult<()> {
    db.prepare_cached("UPDATE project SET current_task = ?2 WHERE key = ?1")?.execute(params![project, task])?;
    Ok(())
}

fn append(
    db: &Connection,
    scope: &Scope,
    project: &ProjectId,
    kind: &str,
    at: Timestamp,
    payload: Value,
) -> DbResult<i64> {
    let named = |kind: &str, field: &str| payload[field].as_str().map(|id| handle(kind, id));
    let subject = [named("task", "task_id"), named("snapshot", "snapshot_id")].into_iter().flatten().collect();
    append_and_publish(db, scope, &Operation { at, kind, project: project.as_str(), subject, payload })
}

/// Tasks that have segments, or are current, last used first.
pub(crate) fn list(db: &Connection, scope: &Scope, project: &ProjectId, limit: u32) -> DbResult<Vec<Task>> {
    let Some(project) = find_project(db, scope, project)? else { return Ok(Vec::new()) };
    let mut statement = db.prepare_cached(
        "SELECT t.id, t.key IS ?2, coalesce(sum(u.segment_count) FILTER (WHERE u.tier = 'working'), 0),
                coalesce(sum(u.tokens) FILTER (WHERE u.tier = 'working'), 0),
                coalesce(sum(u.segment_count) FILTER (WHERE u.tier = 'stashed'), 0),
                coalesce(sum(u.tokens) FILTER (WHERE u.tier = 'stashed'), 0), t.changed_at_ms
         FROM task AS t LEFT JOIN usage AS u ON u.project = t.project AND u.task = t.key AND u.tier <> 'archive'
         WHERE t.project = ?1 GROUP BY t.key HAVING t.key IS ?2 OR coalesce(sum(u.segment_count), 0) > 0
         ORDER BY t.changed_at_ms DESC, t.key DESC LIMIT ?3",
    )?;
    let mut rows = statement.query(params![project.key, project.current_task, limit])?;
    let mut tasks = Vec::new();
    while let Some(row) = rows.next()? {
        tasks.push(Task {
            task_id: row.get::<_, String>(0)?.parse().map_err(|error| unreadable("a task's id", error))?,
            current: row.get(1)?,
            working_segments: row.get(2)?,
            working_tokens: row.get(3)?,
            stashed_segments: row.get(4)?,
            stashed_tokens: row.get(5)?,
            last_updated: Timestamp::from_ms(row.get(6)?),
        });
    }
    Ok(tasks)
}

/// Captures which segments a task has. Their texts never change, so they need not be copied.
pub(crate) fn add_snapshot(
    db: &Connection,
    scope: &Scope,
    project: &ProjectId,
    task: Option<&TaskId>,
    id: &SnapshotId,
    name: Option<&str>,
    at: Timestamp,
) -> DbResult<Snapshot> {
    let row = find_project(db, scope, project)?;
    let (row, task) = find_captured(db, row, project, task)?;
    let (segment_count, tokens): (u64, u64) = db
        .prepare_cached(
            "SELECT coalesce(sum(segment_count), 0), coalesce(sum(tokens), 0) FROM usage
             WHERE project = ?1 AND task = ?2 AND tier <> 'archive'",
        )?
        .query_row(params![row.key, task], |row| Ok((row.get(0)?, row.get(1)?)))?;
    db.prepare_cached(
        "INSERT INTO snapshot (space, project, task, id, seq, name, created_at_ms, segment_count, tokens)
         SELECT ?1, p.key, ?3, ?4, ?5, sealed(?6, 'name', ?4, 'project:' || p.id, p.wrapped_key), ?7, ?8, ?9
         FROM project AS p WHERE p.key = ?2",
    )?
    .execute(params![
        scope.space,
        row.key,
        task,
        id.as_str(),
        next_row_seq(db, scope)?,
        name,
        at.ms(),
        segment_count,
        tokens
    ])?;
    db.prepare_cached(
        "INSERT INTO snapshot_segment (snapshot, segment, tier, pinned)
         SELECT ?1, key, tier, pinned FROM segment WHERE task = ?2 AND tier <> 'archive'",
    )?
    .execute(params![db.last_insert_rowid(), task])?;
    let task_id = task_id(db, Some(task))?;
    let payload = json!({ "project_id": project, "task_id": task_id, "snapshot_id": id, "segments": segment_count });
    let seq = append(db, scope, project, "snapshot.created", at, payload)?;
    let snapshot = find_snapshot(db, scope, id)?.ok_or_else(|| Error::SnapshotNotFound(id.clone()))?.1;
    Ok(Snapshot { operation_id: Some(seq.to_string()), ..snapshot })
}

/// The task to be captured: the one that is named, else the current one.
fn find_captured(
    db: &Connection,
    project: Option<ProjectRow>,
    id: &ProjectId,
    task: Option<&TaskId>,
) -> DbResult<(ProjectRow, i64)> {
    let missing = |message: String| Error::InvalidInput(message);
    let found = match (&project, task) {
        (Some(project), Some(task)) => find_task(db, project, task)?,
        (Some(project), None) => project.current_task,
        (None, _) => None,
    };
    match (project, found, task) {
        (Some(project), Some(key), _) => Ok((project, key)),
        (_, _, Some(task)) => Err(missing(format!("there is no task `{task}` in project `{id}`")).into()),
        (_, _, None) => Err(missing(format!("no task of project `{id}` is current; give task_id")).into()),
    }
}

const SNAPSHOT: &str = concat!(
    "SELECT n.key, n.id, p.id, t.id, ",
    project_column!("n", "name", "p"),
    ", n.created_at_ms, n.segment_count, n.tokens, n.seq,
        (SELECT max(s.origin) FROM snapshot_segment AS m JOIN segment AS s ON s.key = m.segment WHERE m.snapshot = n.key),
        n.imported OR EXISTS (SELECT 1 FROM snapshot_segment AS m JOIN segment AS s ON s.key = m.segment
                              WHERE m.snapshot = n.key AND s.imported)
    FROM snapshot AS n JOIN project AS p ON p.key = n.project JOIN task AS t ON t.key = n.task
    WHERE n.archived_at_ms IS NULL"
);

fn read_snapshot(row: &Row<'_>) -> DbResult<(i64, Snapshot)> {
    let wrong = |error: String| unreadable("a snapshot", error);
    let id = |column: usize| row.get::<_, String>(column);
    let snapshot = Snapshot {
        snapshot_id: id(1)?.parse().map_err(wrong)?,
        project_id: id(2)?.parse().map_err(wrong)?,
        task_id: id(3)?.parse().map_err(wrong)?,
        name: row.get(4)?,
        created_at: Timestamp::from_ms(row.get(5)?),
        origin: lowest_of(row)?,
        segments_snapshot: row.get(6)?,
        tokens_snapshot: row.get(7)?,
        operation_id: None,
        next: None,
        warnings: Vec::new(),
    };
    Ok((row.get(0)?, snapshot))
}

/// Its name is an agent's, or came with it.
fn lowest_of(row: &Row<'_>) -> rusqlite::Result<Origin> {
    let of_segments = row.get::<_, Option<i64>>(9)?.map_or(Origin::User, origin_of);
    let is_imported: bool = row.get(10)?;
    let of_name = if row.get_ref(4)? == ValueRef::Null { Origin::User } else { Origin::Agent };
    Ok(of_segments.lowest(of_name).shown(is_imported))
}

fn find_snapshot(db: &Connection, scope: &Scope, id: &SnapshotId) -> DbResult<Option<(i64, Snapshot)>> {
    let mut statement = db.prepare_cached(&format!("{SNAPSHOT} AND n.space = ?1 AND n.id = ?2"))?;
    let mut rows = statement.query(params![scope.space, id.as_str()])?;
    rows.next()?.map(read_snapshot).transpose()
}

/// The newest of the project's current task, or of the project if none is current.
fn find_newest(db: &Connection, scope: &Scope, project: &ProjectId) -> DbResult<Option<(i64, Snapshot)>> {
    let Some(project) = find_project(db, scope, project)? else { return Ok(None) };
    let sql = format!("{SNAPSHOT} AND n.project = ?1 AND (?2 IS NULL OR n.task = ?2) ORDER BY n.seq DESC LIMIT 1");
    let mut statement = db.prepare_cached(&sql)?;
    let mut rows = statement.query(params![project.key, project.current_task])?;
    rows.next()?.map(read_snapshot).transpose()
}

pub(crate) fn list_snapshots(db: &Connection, scope: &Scope, filter: &ListSnapshots) -> DbResult<SnapshotPage> {
    let sql = format!(
        "{SNAPSHOT} AND n.space = ?1 AND p.id = ?2 AND (?3 IS NULL OR t.id = ?3) AND n.seq < ?4
         ORDER BY n.seq DESC LIMIT ?5"
    );
    let task = filter.task_id.as_ref().map(|id| id.as_str());
    let before = cursor::read(filter.cursor.as_deref())?;
    let mut statement = db.prepare_cached(&sql)?;
    let mut rows = statement.query(params![scope.space, filter.project_id.as_str(), task, before, filter.limit + 1])?;
    let (mut page, mut last, mut has_more) =
        (SnapshotPage { snapshots: Vec::new(), next_cursor: None, warnings: Vec::new() }, None, false);
    while let Some(row) = rows.next()? {
        has_more = page.snapshots.len() == filter.limit as usize;
        if !has_more {
            last = Some(row.get(8)?);
            page.snapshots.push(read_snapshot(row)?.1);
        }
    }
    page.next_cursor = last.filter(|_| has_more).map(cursor::write);
    Ok(page)
}

/// Puts the segments of the snapshot's task back to where they were. What came into the window since leaves it, unless it is pinned.
pub(crate) fn restore_snapshot(
    db: &Connection,
    scope: &Scope,
    which: &WhichSnapshot,
    at: Timestamp,
) -> DbResult<Restored> {
    let (key, snapshot) = match which {
        WhichSnapshot::Named(id, project) => {
            let found = find_snapshot(db, scope, id)?;
            let found = found.filter(|(_, found)| project.as_ref().is_none_or(|id| *id == found.project_id));
            found.ok_or_else(|| Error::SnapshotNotFound(id.clone()))?
        }
        WhichSnapshot::Newest(project) => {
            find_newest(db, scope, project)?.ok_or_else(|| Error::NoSnapshot(project.clone()))?
        }
    };
    let id = &snapshot.snapshot_id;
    let project = ensure_project(db, scope, &snapshot.project_id, at)?;
    let task = ensure_task(db, scope, &project, &snapshot.task_id, at)?;
    let mut moves = captured(db, key)?;
    moves.extend(came_since(db, key, task)?);
    moves.retain(|(image, tier, pinned)| (image.tier, image.pinned) != (*tier, *pinned));
    let entered = moves.iter().filter(|(image, tier, _)| *tier == Tier::Working && image.tier != Tier::Working).count();
    let left = moves.iter().filter(|(image, tier, _)| *tier != Tier::Working && image.tier == Tier::Working).count();
    let mut operation = None;
    if !moves.is_empty() {
        let payload = json!({
            "project_id": snapshot.project_id, "task_id": snapshot.task_id, "snapshot_id": id, "segments": moves.len(),
        });
        let seq = append(db, scope, &snapshot.project_id, "snapshot.restored", at, payload)?;
        let mut edit = Edit::begin(db, scope, project.key, seq, at)?;
        for (image, tier, pinned) in &moves {
            edit.move_to(image, *tier, *pinned)?;
        }
        edit.finish()?;
        operation = Some(seq);
    }
    let tokens = db
        .prepare_cached(
            "SELECT coalesce(sum(tokens), 0) FROM usage WHERE project = ?1 AND task = ?2 AND tier = 'working'",
        )?
        .query_row(params![project.key, task], |row| row.get(0))?;
    let (snapshot, project, task) = (snapshot.snapshot_id, snapshot.project_id, snapshot.task_id);
    Ok(Restored { snapshot, project, task, entered: entered as u64, left: left as u64, tokens, operation })
}

/// A segment, and where it is to be.
type Move = (Image, Tier, bool);

/// The segments of a snapshot, as it has them.
fn captured(db: &Connection, snapshot: i64) -> DbResult<Vec<Move>> {
    let mut statement =
        db.prepare_cached("SELECT segment, tier, pinned FROM snapshot_segment WHERE snapshot = ?1 ORDER BY segment")?;
    let mut rows = statement.query(params![snapshot])?;
    let mut moves = Vec::new();
    while let Some(row) = rows.next()? {
        let tier = tier_of(row.get_ref(1)?.as_str().unwrap_or_default())?;
        if let Some(image) = image_of(db, row.get(0)?)? {
            moves.push((image, tier, row.get(2)?));
        }
    }
    Ok(moves)
}

/// The segments of a task that are in the window and not in the snapshot.
fn came_since(db: &Connection, snapshot: i64, task: i64) -> DbResult<Vec<Move>> {
    let mut statement = db.prepare_cached(
        "SELECT key FROM segment AS s WHERE task = ?2 AND tier = 'working' AND pinned = 0
             AND NOT EXISTS (SELECT 1 FROM snapshot_segment WHERE snapshot = ?1 AND segment = s.key)",
    )?;
    let keys: Vec<i64> = statement.query_map(params![snapshot, task], |row| row.get(0))?.collect::<Result<_, _>>()?;
    let images = keys.into_iter().map(|key| image_of(db, key)).collect::<DbResult<Vec<_>>>()?;
    Ok(images.into_iter().flatten().map(|image| (image, Tier::Stashed, false)).collect())
}

/// Takes the making of a snapshot back, or does it again. False if it was removed for good meanwhile.
pub(super) fn hide_snapshot(db: &Connection, scope: &Scope, id: &str, hidden: Option<Timestamp>) -> DbResult<bool> {
    let archived_at_ms = hidden.map(|at| last_believed(db, at)).transpose()?;
    let changed = db
        .prepare_cached("UPDATE snapshot SET archived_at_ms = ?3 WHERE space = ?1 AND id = ?2")?
        .execute(params![scope.space, id, archived_at_ms])?;
    Ok(changed > 0)
}

#[async_trait]
impl TaskStore for Sqlite {
    async fn set_current_task(
        &self,
        scope: &Scope,
        project: &ProjectId,
        task: Option<&TaskId>,
        at: Timestamp,
    ) -> Result<(Option<TaskId>, Option<i64>)> {
        let (scope, project, task) = (scope.clone(), project.clone(), task.cloned());
        self.write_with_room(0, move |db| set_current(db, &scope, &project, task.as_ref(), at)).await
    }

    async fn list_tasks(&self, scope: &Scope, filter: &ListTasks) -> Result<Vec<Task>> {
        let (scope, filter) = (scope.clone(), filter.clone());
        self.readers.read(move |db| list(db, &scope, &filter.project_id, filter.limit)).await
    }

    async fn add_snapshot(
        &self,
        scope: &Scope,
        project: &ProjectId,
        task: Option<&TaskId>,
        id: SnapshotId,
        name: Option<&str>,
        at: Timestamp,
    ) -> Result<Snapshot> {
        let (scope, project) = (scope.clone(), project.clone());
        let (task, name) = (task.cloned(), name.map(str::to_owned));
        let add = move |db: &Connection| add_snapshot(db, &scope, &project, task.as_ref(), &id, name.as_deref(), at);
        self.write_with_room(0, add).await
    }

    async fn list_snapshots(&self, scope: &Scope, filter: &ListSnapshots) -> Result<SnapshotPage> {
        let (scope, filter) = (scope.clone(), filter.clone());
        self.readers.read(move |db| list_snapshots(db, &scope, &filter)).await
    }

    async fn restore_snapshot(&self, scope: &Scope, which: &WhichSnapshot, at: Timestamp) -> Result<Restored> {
        let (scope, which) = (scope.clone(), which.clone());
        self.write_with_room(0, move |db| restore_snapshot(db, &scope, &which, at)).await
    }
}
