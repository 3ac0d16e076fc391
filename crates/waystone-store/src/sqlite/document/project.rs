//! Projects as documents: what one has, page by page, and one that is taken in.

use std::collections::HashSet;

use rusqlite::{Connection, OptionalExtension, Row, params};
use serde_json::json;
use waystone_core::Error;
use waystone_core::api::{SegmentRecord, SnapshotRecord, SnapshotSegment, TaskRecord, Tier};
use waystone_core::clock::Timestamp;
use waystone_core::error::Conflict;
use waystone_core::id::{ProjectId, TaskId};
use waystone_core::store::{
    ExportedSegments, ExportedSnapshot, ImportedProject, NewProject, NewSegments, NewSnapshot, Scope,
};

use crate::sqlite::error::{DbResult, unreadable};
use crate::sqlite::log::{Operation, append_and_publish, handle, next_row_seq};
use crate::sqlite::origin::origin_of;
use crate::sqlite::seal::project_column;
use crate::sqlite::segment::{
    self, Edit, IDS_TOLD_MAX, Place, ProjectRow, check_room, ensure_project, ensure_task, find_project, find_task,
    kind_of, tier_of,
};
use crate::sqlite::task::make_current;

/// How much of a project is read at once.
const PAGE_SEGMENTS: usize = 500;
const PAGE_BYTES: usize = 4 * 1024 * 1024;

/// Those that have something in a document: a snapshot with deleted segments is not written.
pub(super) fn tasks(db: &Connection, scope: &Scope, project: &ProjectId) -> DbResult<Vec<TaskRecord>> {
    let Some(project) = find_project(db, scope, project)? else { return Ok(Vec::new()) };
    let mut statement = db.prepare_cached(
        "SELECT t.id, t.key IS ?2 FROM task AS t
         WHERE t.project = ?1 AND (t.key IS ?2
             OR EXISTS (SELECT 1 FROM segment WHERE task = t.key AND tier <> 'archive' AND conversation IS NULL)
             OR EXISTS (SELECT 1 FROM snapshot AS n WHERE n.task = t.key AND n.archived_at_ms IS NULL
                 AND NOT EXISTS (SELECT 1 FROM snapshot_segment AS m JOIN segment AS s ON s.key = m.segment
                                 WHERE m.snapshot = n.key AND s.tier = 'archive')))
         ORDER BY t.id LIMIT 10000",
    )?;
    let rows = statement.query_map(params![project.key, project.current_task], |row| {
        Ok((row.get::<_, String>(0)?, row.get::<_, bool>(1)?))
    })?;
    rows.map(|row| {
        let (id, current) = row?;
        Ok(TaskRecord { task_id: id.parse().map_err(|error| unreadable("a task's id", error))?, current })
    })
    .collect()
}

pub(super) fn segments(db: &Connection, scope: &Scope, project: &ProjectId, after: i64) -> DbResult<ExportedSegments> {
    let Some(project) = find_project(db, scope, project)? else { return Ok(ExportedSegments::default()) };
    let mut statement = db.prepare_cached(concat!(
        "SELECT s.id, s.type, t.id, s.tier, s.pinned, s.mentions,
                s.survived + (SELECT count(*) FROM collection WHERE project = s.project AND seq > s.entered_seq),
                s.created_at_ms, s.touched_at_ms, s.topic,
                unsealed(s.file_path, 'file_path', 'project:' || p.id, 'project:' || p.id, p.wrapped_key),
                s.first_line, s.last_line, ",
        project_column!("s", "tags", "p"),
        ", unsealed(x.text, 'text', s.id, 'project:' || p.id, p.wrapped_key), s.seq, s.origin
         FROM segment AS s JOIN project AS p ON p.key = s.project LEFT JOIN task AS t ON t.key = s.task
             JOIN segment_text AS x ON x.segment = s.key
         WHERE s.project = ?1 AND s.conversation IS NULL AND s.tier <> 'archive' AND s.seq > ?2 ORDER BY s.seq LIMIT ?3",
    ))?;
    let mut rows = statement.query(params![project.key, after, PAGE_SEGMENTS])?;
    let (mut page, mut bytes, mut last) = (ExportedSegments::default(), 0, None);
    while let Some(row) = rows.next()? {
        let segment = read(row)?;
        bytes += segment.text.len();
        page.segments.push(segment);
        last = Some(row.get(15)?);
        if bytes >= PAGE_BYTES {
            break;
        }
    }
    page.cursor = last;
    Ok(page)
}

fn read(row: &Row<'_>) -> DbResult<SegmentRecord> {
    let wrong = |error: String| unreadable("a segment", error);
    let id = |column: usize| row.get::<_, Option<String>>(column);
    let lines: (Option<u64>, Option<u64>) = (row.get(11)?, row.get(12)?);
    Ok(SegmentRecord {
        segment_id: row.get::<_, String>(0)?.parse().map_err(wrong)?,
        kind: kind_of(row.get_ref(1)?.as_str().unwrap_or_default())?,
        origin: Some(origin_of(row.get(16)?)),
        task_id: id(2)?.map(|id| id.parse()).transpose().map_err(wrong)?,
        tier: tier_of(row.get_ref(3)?.as_str().unwrap_or_default())?,
        pinned: row.get(4)?,
        mentions: row.get(5)?,
        gc_survival_count: row.get(6)?,
        created_at: Timestamp::from_ms(row.get(7)?),
        last_touched_at: Timestamp::from_ms(row.get(8)?),
        topic_id: id(9)?.map(|id| id.parse()).transpose().map_err(wrong)?,
        file_path: row.get(10)?,
        line_range: lines.0.zip(lines.1).map(|(first, last)| [first, last]),
        tags: serde_json::from_str(&row.get::<_, String>(13)?).map_err(|error| wrong(error.to_string()))?,
        text: row.get(14)?,
    })
}

pub(super) fn snapshot(
    db: &Connection,
    scope: &Scope,
    project: &ProjectId,
    after: i64,
) -> DbResult<Option<ExportedSnapshot>> {
    let wrong = |error: String| unreadable("a snapshot", error);
    let found: Option<(i64, String, String, Option<String>, i64, i64)> = db
        .prepare_cached(concat!(
            "SELECT n.key, n.id, t.id, ",
            project_column!("n", "name", "p"),
            ", n.created_at_ms, n.seq
             FROM snapshot AS n JOIN project AS p ON p.key = n.project JOIN task AS t ON t.key = n.task
             WHERE p.space = ?1 AND p.id = ?2 AND n.archived_at_ms IS NULL AND n.seq > ?3 ORDER BY n.seq LIMIT 1"
        ))?
        .query_row(params![scope.space, project.as_str(), after], |row| {
            Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?, row.get(4)?, row.get(5)?))
        })
        .optional()?;
    let Some((key, id, task, name, created, cursor)) = found else { return Ok(None) };
    let mut statement = db.prepare_cached(
        "SELECT s.id, n.tier, n.pinned FROM snapshot_segment AS n JOIN segment AS s ON s.key = n.segment
         WHERE n.snapshot = ?1 ORDER BY s.seq",
    )?;
    let (mut rows, mut segments) = (statement.query(params![key])?, Vec::new());
    while let Some(row) = rows.next()? {
        segments.push(SnapshotSegment {
            segment_id: row.get::<_, String>(0)?.parse().map_err(wrong)?,
            tier: tier_of(row.get_ref(1)?.as_str().unwrap_or_default())?,
            pinned: row.get(2)?,
        });
    }
    let snapshot = SnapshotRecord {
        snapshot_id: id.parse().map_err(wrong)?,
        task_id: task.parse().map_err(wrong)?,
        name,
        created_at: Timestamp::from_ms(created),
        segments,
    };
    Ok(Some(ExportedSnapshot { snapshot, cursor }))
}

/// What is not here of a document.
struct Missing<'a> {
    /// For each segment its key, if it is here.
    here: Vec<Option<i64>>,
    tasks: Vec<&'a TaskId>,
    snapshots: Vec<&'a NewSnapshot>,
    /// The task that becomes current.
    current: Option<&'a TaskId>,
}

impl Missing<'_> {
    fn is_nothing(&self) -> bool {
        let nothing_more = self.tasks.is_empty() && self.snapshots.is_empty() && self.current.is_none();
        nothing_more && self.here.iter().all(Option::is_some)
    }
}

pub(super) fn import(db: &Connection, scope: &Scope, new: &NewProject) -> DbResult<ImportedProject> {
    let found = find_project(db, scope, &new.project)?;
    let mut done = ImportedProject::default();
    let missing = find_missing(db, scope, new, found.as_ref(), &mut done)?;
    if missing.is_nothing() {
        return Ok(done);
    }
    done.changed = true;
    let is_missing = |(_, here): &(&(NewSegments, u32, u32), &Option<i64>)| here.is_none();
    let added = || new.segments.iter().zip(&missing.here).filter(is_missing).flat_map(|((with, ..), _)| &with.segments);
    let more = added().map(|segment| segment.text.len() as u64).sum();
    check_room(db, scope, more, new.total_bytes_max)?;
    done.added = added().count() as u64;
    done.snapshots_added = missing.snapshots.len() as u64;
    let project = ensure_project(db, scope, &new.project, new.at)?;
    for task in &missing.tasks {
        ensure_task(db, scope, &project, task, new.at)?;
    }
    let ids: Vec<&str> = added().take(IDS_TOLD_MAX).map(|segment| segment.id.as_str()).collect();
    let payload = json!({
        "project_id": new.project, "segments": done.added, "tasks": missing.tasks.len(),
        "snapshots": done.snapshots_added, "segment_ids": ids,
    });
    let subject = ids.iter().map(|id| handle("segment", id)).collect();
    let kind = "project.imported";
    let operation = Operation { at: new.at, kind, project: new.project.as_str(), subject, payload };
    let seq = append_and_publish(db, scope, &operation)?;
    let keys = add_segments(db, scope, &project, new, &missing, seq)?;
    db.prepare_cached("UPDATE space SET size_bytes = size_bytes + ?2 WHERE space = ?1")?
        .execute(params![scope.space, more])?;
    for snapshot in &missing.snapshots {
        add_snapshot(db, scope, &project, snapshot, &keys)?;
    }
    if let Some(task) = missing.current {
        make_current(db, project.key, find_task(db, &project, task)?)?;
    }
    Ok(done)
}

fn find_missing<'a>(
    db: &Connection,
    scope: &Scope,
    new: &'a NewProject,
    project: Option<&ProjectRow>,
    done: &mut ImportedProject,
) -> DbResult<Missing<'a>> {
    let mut here = Vec::with_capacity(new.segments.len());
    for (with, ..) in &new.segments {
        let found = find_here(db, scope, project, with)?;
        if let Some((_, tier)) = found {
            done.known += 1;
            done.deleted += u64::from(tier == Tier::Archive);
        }
        here.push(found.map(|(key, _)| key));
    }
    let named = new.tasks.iter().map(|task| &task.task_id);
    let named = named.chain(new.segments.iter().filter_map(|(with, ..)| with.task.as_ref()));
    let named: HashSet<&TaskId> = named.chain(new.snapshots.iter().map(|snapshot| &snapshot.task)).collect();
    let mut tasks = Vec::new();
    for task in named {
        let is_here = project.map(|project| find_task(db, project, task)).transpose()?.flatten().is_some();
        tasks.extend((!is_here).then_some(task));
    }
    tasks.sort_unstable_by_key(|task| task.as_str());
    let mut snapshots = Vec::new();
    for snapshot in &new.snapshots {
        let of: Option<i64> = db
            .prepare_cached("SELECT project FROM snapshot WHERE space = ?1 AND id = ?2")?
            .query_row(params![scope.space, snapshot.id.as_str()], |row| row.get(0))
            .optional()?;
        match (of, project) {
            (None, _) => snapshots.push(snapshot),
            (Some(key), Some(project)) if key == project.key => {}
            _ => return Err(Error::Conflict(Conflict::SnapshotElsewhere(snapshot.id.clone())).into()),
        }
    }
    let current = new.tasks.iter().find(|task| task.current).map(|task| &task.task_id);
    let kept = segment::task_id(db, project.and_then(|project| project.current_task))?;
    let becomes = current.filter(|_| kept.is_none());
    done.current_kept = kept.filter(|kept| current.is_some_and(|current| current != kept));
    Ok(Missing { here, tasks, snapshots, current: becomes })
}

/// The segment of that id, which must be the same one: a text never changes. The same text under another id is another segment, as
/// two turns of a transcript are.
fn find_here(
    db: &Connection,
    scope: &Scope,
    project: Option<&ProjectRow>,
    with: &NewSegments,
) -> DbResult<Option<(i64, Tier)>> {
    let [new] = &with.segments[..] else { return Err(unreadable("a document", "a segment without a text")) };
    let mut statement = db.prepare_cached(
        "SELECT s.key, s.tier, s.project IS ?3 AND s.conversation IS NULL AND s.type = ?4 AND s.text_hash = keyed(?5, 'project:' || p.id, p.wrapped_key)
         FROM segment AS s JOIN project AS p ON p.key = s.project WHERE s.space = ?1 AND s.id = ?2",
    )?;
    let project = project.map(|project| project.key);
    let mut rows =
        statement.query(params![scope.space, new.id.as_str(), project, new.kind.as_str(), new.text_hash.0])?;
    let Some(row) = rows.next()? else { return Ok(None) };
    match row.get(2)? {
        true => Ok(Some((row.get(0)?, tier_of(row.get_ref(1)?.as_str().unwrap_or_default())?))),
        false => Err(Error::Conflict(Conflict::SegmentDiffers(new.id.clone())).into()),
    }
}

/// Adds the segments that are not here. Returns the keys of all.
fn add_segments(
    db: &Connection,
    scope: &Scope,
    project: &ProjectRow,
    new: &NewProject,
    missing: &Missing<'_>,
    seq: i64,
) -> DbResult<Vec<i64>> {
    let mut edit = Edit::begin(db, scope, project.key, seq, new.at)?;
    let mut keys = Vec::with_capacity(new.segments.len());
    for ((with, mentions, survived), here) in new.segments.iter().zip(&missing.here) {
        if let Some(key) = here {
            keys.push(*key);
            continue;
        }
        let task = with.task.as_ref().map(|task| find_task(db, project, task)).transpose()?.flatten();
        let [segment] = &with.segments[..] else { continue };
        let place = Place { project, task, conversation: None, calls: &[] };
        let tokens = segment.tokens.unwrap_or_default();
        let image = segment::add(db, scope, &place, with, (segment, tokens, u64::from(*mentions)), seq)?;
        db.prepare_cached("UPDATE segment SET survived = ?2, imported = 1 WHERE key = ?1")?
            .execute(params![image.key, survived])?;
        edit.added(&image)?;
        keys.push(image.key);
    }
    edit.finish()?;
    Ok(keys)
}

fn add_snapshot(db: &Connection, scope: &Scope, project: &ProjectRow, new: &NewSnapshot, keys: &[i64]) -> DbResult<()> {
    db.prepare_cached(
        "INSERT INTO snapshot (space, project, task, id, seq, name, created_at_ms, segment_count, tokens, imported)
         SELECT ?1, p.key, ?3, ?4, ?5, sealed(?6, 'name', ?4, 'project:' || p.id, p.wrapped_key), ?7, ?8, 0, 1
         FROM project AS p WHERE p.key = ?2",
    )?
    .execute(params![
        scope.space,
        project.key,
        find_task(db, project, &new.task)?,
        new.id.as_str(),
        next_row_seq(db, scope)?,
        new.name,
        new.created.ms(),
        new.segments.len(),
    ])?;
    let snapshot = db.last_insert_rowid();
    for segment in &new.segments {
        db.prepare_cached(
            "INSERT OR IGNORE INTO snapshot_segment (snapshot, segment, tier, pinned) VALUES (?1, ?2, ?3, ?4)",
        )?
        .execute(params![snapshot, keys[segment.at as usize], segment.tier.as_str(), segment.pinned])?;
    }
    db.prepare_cached(
        "UPDATE snapshot SET tokens = (SELECT coalesce(sum(s.tokens), 0) FROM snapshot_segment AS n
                                       JOIN segment AS s ON s.key = n.segment WHERE n.snapshot = ?1)
         WHERE key = ?1",
    )?
    .execute(params![snapshot])?;
    Ok(())
}
