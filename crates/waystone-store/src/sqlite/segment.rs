//! Segments in the database: their rows, and those of the projects and tasks they are in. How they are put is in [`put`], listed in
//! [`list`], changed in [`change`] and removed in [`purge`]; what an operation does to them goes through [`edit`].

mod change;
mod edit;
mod list;
mod purge;
mod put;
mod store;

use std::borrow::Cow;

use rusqlite::{Connection, OptionalExtension, Row, params};
use serde_json::json;
use waystone_core::api::{ContentPart, Segment, SegmentType, Tier};
use waystone_core::canon::Hash;
use waystone_core::clock::Timestamp;
use waystone_core::handle::{Handle, Holder};
use waystone_core::id::{ProjectId, SegmentId, TaskId};
use waystone_core::meaning;
use waystone_core::score;
use waystone_core::search::{searched_message, words_of_message};
use waystone_core::store::{Scope, WhichTask};

use super::error::{DbResult, unreadable};
use super::message::read_parts;
use super::origin::read_origin;
use super::seal::{is_sealed, project_column, segment_calls, segment_text, text_owner};

pub(crate) use change::change;
pub(crate) use edit::{Edit, Image, collections_between, image_of};
pub(crate) use list::{FILTERS, bind, list, own_of, place_of};
pub(crate) use purge::purge;
pub(crate) use put::{IDS_TOLD_MAX, Place, add, check_room, known, put};

/// What is read of a project for whatever is done in it.
pub(crate) struct ProjectRow {
    pub(crate) key: i64,
    pub(crate) current_task: Option<i64>,
    pub(crate) changed: Timestamp,
}

pub(crate) fn find_project(db: &Connection, scope: &Scope, id: &ProjectId) -> DbResult<Option<ProjectRow>> {
    Ok(db
        .prepare_cached("SELECT key, current_task, changed_at_ms FROM project WHERE space = ?1 AND id = ?2")?
        .query_row(params![scope.space, id.as_str()], |row| {
            let (key, current_task) = (row.get(0)?, row.get(1)?);
            Ok(ProjectRow { key, current_task, changed: Timestamp::from_ms(row.get(2)?) })
        })
        .optional()?)
}

/// The project, made if it is not there.
pub(crate) fn ensure_project(db: &Connection, scope: &Scope, id: &ProjectId, at: Timestamp) -> DbResult<ProjectRow> {
    if let Some(found) = find_project(db, scope, id)? {
        return Ok(found);
    }
    db.prepare_cached(
        "INSERT INTO project (space, id, changed_at_ms, wrapped_key) VALUES (?1, ?2, ?3, new_key('project:' || ?2))",
    )?
    .execute(params![scope.space, id.as_str(), at.ms()])?;
    Ok(ProjectRow { key: db.last_insert_rowid(), current_task: None, changed: at })
}

pub(crate) fn find_task(db: &Connection, project: &ProjectRow, id: &TaskId) -> DbResult<Option<i64>> {
    Ok(db
        .prepare_cached("SELECT key FROM task WHERE project = ?1 AND id = ?2")?
        .query_row(params![project.key, id.as_str()], |row| row.get(0))
        .optional()?)
}

/// The task, made if it is not there.
pub(crate) fn ensure_task(
    db: &Connection,
    scope: &Scope,
    project: &ProjectRow,
    id: &TaskId,
    at: Timestamp,
) -> DbResult<i64> {
    if let Some(key) = find_task(db, project, id)? {
        return Ok(key);
    }
    db.prepare_cached("INSERT INTO task (space, project, id, changed_at_ms) VALUES (?1, ?2, ?3, ?4)")?
        .execute(params![scope.space, project.key, id.as_str(), at.ms()])?;
    Ok(db.last_insert_rowid())
}

/// The task that is meant: its key, and whether it is one at all. A task that no one has used has no segments.
pub(crate) enum Within {
    Project,
    Task(i64),
    Nothing,
}

impl Within {
    pub(crate) fn task(&self) -> Option<i64> {
        match self {
            Self::Task(key) => Some(*key),
            Self::Project => None,
            // No key is negative; in the sums 0 stands for what has no task.
            Self::Nothing => Some(-1),
        }
    }
}

pub(crate) fn resolve(db: &Connection, project: &ProjectRow, which: &WhichTask) -> DbResult<Within> {
    Ok(match which {
        WhichTask::Any => Within::Project,
        WhichTask::Current => project.current_task.map_or(Within::Project, Within::Task),
        WhichTask::Named(id) => find_task(db, project, id)?.map_or(Within::Nothing, Within::Task),
    })
}

pub(crate) fn task_id(db: &Connection, key: Option<i64>) -> DbResult<Option<TaskId>> {
    let Some(key) = key else { return Ok(None) };
    let id: Option<String> = db
        .prepare_cached("SELECT id FROM task WHERE key = ?1")?
        .query_row(params![key], |row| row.get(0))
        .optional()?;
    id.map(|id| id.parse().map_err(|error| unreadable("a task's id", error))).transpose()
}

/// Segments of the project, and of the task if there is one, changed.
pub(crate) fn touch_place(db: &Connection, project: i64, task: Option<i64>, at: Timestamp) -> DbResult<()> {
    db.prepare_cached("UPDATE project SET changed_at_ms = max(changed_at_ms, ?2) WHERE key = ?1")?
        .execute(params![project, at.ms()])?;
    db.prepare_cached("UPDATE task SET changed_at_ms = max(changed_at_ms, ?2) WHERE key = ?1")?
        .execute(params![task, at.ms()])?;
    Ok(())
}

/// No more of a topic are counted: a topic is looked through for every segment of it.
pub(crate) const TOPIC_COUNTED_MAX: u64 = 100;

/// What [`read`] reads, from `segment AS s`.
const COLUMNS: &str = concat!(
    "s.id, p.id, t.id, s.type, s.tier, s.pinned, s.tokens, s.counted_at_ms, iif(p.wrapped_key IS NULL, s.text_hash, NULL), s.created_at_ms,
    s.touched_at_ms, s.topic, unsealed(s.file_path, 'file_path', 'project:' || p.id, 'project:' || p.id, p.wrapped_key),
    s.first_line, s.last_line, ",
    project_column!("s", "tags", "p"),
    ",
    s.survived + (SELECT count(*) FROM collection WHERE project = s.project AND seq > s.entered_seq),
    s.mentions
        + (SELECT count(*) FROM segment_ref AS r JOIN segment AS f ON f.key = r.source
           WHERE r.target = s.key AND f.tier <> 'archive')
        + (SELECT count(*) FROM (SELECT 1 FROM segment AS o
           WHERE o.project = s.project AND o.topic = s.topic AND o.tier <> 'archive' AND o.key <> s.key LIMIT 100)),
    ",
    segment_text!(),
    ", s.seq, s.origin, s.imported, ",
    segment_calls!()
);
const FROM: &str = "FROM segment AS s JOIN project AS p ON p.key = s.project LEFT JOIN task AS t ON t.key = s.task
    JOIN segment_text AS x ON x.segment = s.key";

/// A row as a segment, with no more of its text than `preview` characters. Of a message that calls tools that is what it says in words; whole it
/// is its parts as JSON.
fn read(row: &Row<'_>, preview: Option<usize>) -> DbResult<Segment> {
    let wrong = |error: String| unreadable("a segment", error);
    let words = row.get_ref(18)?.as_str().map_err(|error| wrong(error.to_string()))?;
    let calls = read_parts(row.get(22)?)?;
    let text = match preview {
        _ if calls.is_empty() => Cow::Borrowed(words),
        Some(_) => words_of_message(words, &calls),
        None => Cow::Owned(json!(ContentPart::with_text(calls.clone(), words.to_owned())).to_string()),
    };
    let is_part = preview.is_some() && !calls.is_empty();
    let end = preview.and_then(|chars| text.char_indices().nth(chars)).map(|(end, _)| end);
    let id: SegmentId = row.get::<_, String>(0)?.parse().map_err(wrong)?;
    let handle = (end.is_some() || is_part).then(|| {
        let handle = Handle { holder: Holder::Segment(id.clone()), pointer: String::new(), range: None };
        handle.to_string()
    });
    let survived: u64 = row.get(16)?;
    let lines: (Option<u64>, Option<u64>) = (row.get(13)?, row.get(14)?);
    Ok(Segment {
        segment_id: id,
        text: text[..end.unwrap_or(text.len())].to_owned(),
        kind: kind_of(row.get_ref(3)?.as_str().unwrap_or_default())?,
        origin: read_origin(row, 20)?.1,
        project_id: row.get::<_, String>(1)?.parse().map_err(wrong)?,
        task_id: row.get::<_, Option<String>>(2)?.map(|id| id.parse()).transpose().map_err(wrong)?,
        created_at: Timestamp::from_ms(row.get(9)?),
        last_touched_at: Timestamp::from_ms(row.get(10)?),
        pinned: row.get(5)?,
        generation: score::generation(survived),
        gc_survival_count: survived,
        refcount: row.get(17)?,
        file_path: row.get(12)?,
        line_range: lines.0.zip(lines.1).map(|(first, last)| [first, last]),
        tags: serde_json::from_str(&row.get::<_, String>(15)?).unwrap_or_default(),
        topic_id: row.get::<_, Option<String>>(11)?.and_then(|id| id.parse().ok()),
        tokens: row.get(6)?,
        tokens_computed_at: row.get::<_, Option<i64>>(7)?.map(Timestamp::from_ms),
        text_hash: row.get::<_, Option<_>>(8)?.map_or_else(|| Hash::of(words.as_bytes()), Hash).to_string(),
        tier: tier_of(row.get_ref(4)?.as_str().unwrap_or_default())?,
        handle,
        hit: None,
    })
}

pub(crate) fn kind_of(name: &str) -> DbResult<SegmentType> {
    let found = SegmentType::ALL.into_iter().find(|kind| kind.as_str() == name);
    found.ok_or_else(|| unreadable("a segment's type", name))
}

pub(crate) fn tier_of(name: &str) -> DbResult<Tier> {
    let found = [Tier::Working, Tier::Stashed, Tier::Archive].into_iter().find(|tier| tier.as_str() == name);
    found.ok_or_else(|| unreadable("a segment's tier", name))
}

/// A segment with its whole text, in whatever tier.
pub(crate) fn find(db: &Connection, scope: &Scope, id: &SegmentId) -> DbResult<Option<Segment>> {
    // A message goes with its conversation.
    let sql = format!(
        "SELECT {COLUMNS} {FROM} WHERE s.space = ?1 AND s.id = ?2
             AND NOT EXISTS (SELECT 1 FROM session WHERE key = s.conversation AND archived_at_ms IS NOT NULL)"
    );
    let mut statement = db.prepare_cached(&sql)?;
    let mut rows = statement.query(params![scope.space, id.as_str()])?;
    rows.next()?.map(|row| read(row, None)).transpose()
}

/// A segment with as much of its text as is wanted, and what `look` makes of the whole.
pub(crate) fn read_by_key<T>(
    db: &Connection,
    key: i64,
    preview: Option<usize>,
    look: impl FnOnce(&str) -> T,
) -> DbResult<Option<(Segment, T)>> {
    let mut statement = db.prepare_cached(&format!("SELECT {COLUMNS} {FROM} WHERE s.key = ?1"))?;
    let mut rows = statement.query(params![key])?;
    let Some(row) = rows.next()? else { return Ok(None) };
    let words = row.get_ref(18)?.as_str().unwrap_or_default();
    let seen = look(&words_of_message(words, &read_parts(row.get(22)?)?));
    Ok(Some((read(row, preview)?, seen)))
}

/// Makes anew what segments from `key` on are searched by, until so many bytes of text are done. Returns the last of them.
pub(crate) fn reindex(db: &Connection, key: i64, bytes_max: usize) -> DbResult<Option<i64>> {
    // What is sealed is searched in memory alone.
    if is_sealed(db)? {
        return Ok(None);
    }
    let mut statement = db.prepare_cached(concat!(
        "SELECT s.key, x.text, ",
        segment_calls!(),
        " FROM segment AS s JOIN segment_text AS x ON x.segment = s.key WHERE s.key >= ?1 ORDER BY s.key"
    ))?;
    let mut rows = statement.query(params![key])?;
    let (mut last, mut bytes) = (None, 0);
    while bytes < bytes_max
        && let Some(row) = rows.next()?
    {
        let (key, text) = (row.get(0)?, row.get_ref(1)?.as_str().unwrap_or_default());
        db.prepare_cached("DELETE FROM segment_word WHERE rowid = ?1")?.execute(params![key])?;
        db.prepare_cached("DELETE FROM segment_index WHERE segment = ?1")?.execute(params![key])?;
        let text = searched_message(text, &read_parts(row.get(2)?)?);
        put::index(db, key, &text, &meaning::pieces(&text))?;
        (last, bytes) = (Some(key), bytes + text.len());
    }
    Ok(last)
}

/// Projects that have a segment.
pub(crate) fn kept_projects(db: &Connection, scope: &Scope) -> DbResult<Vec<i64>> {
    let mut statement = db.prepare_cached(
        "SELECT key FROM project AS p WHERE space = ?1
             AND EXISTS (SELECT 1 FROM usage WHERE project = p.key AND tier <> 'archive' AND segment_count > 0)",
    )?;
    let keys = statement.query_map(params![scope.space], |row| row.get(0))?;
    Ok(keys.collect::<Result<_, _>>()?)
}

pub(crate) fn list_projects(db: &Connection, scope: &Scope) -> DbResult<Vec<ProjectId>> {
    let mut statement = db.prepare_cached(
        "SELECT id FROM project AS p WHERE space = ?1
             AND EXISTS (SELECT 1 FROM usage WHERE project = p.key AND tier <> 'archive' AND segment_count > 0)
         ORDER BY id LIMIT 10000",
    )?;
    let ids = statement.query_map(params![scope.space], |row| row.get::<_, String>(0))?;
    ids.map(|id| id?.parse().map_err(|error| unreadable("a project's id", error))).collect()
}
