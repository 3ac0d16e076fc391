//! Operations read from the log, and undone.
//!
//! An operation that moved segments has what they were before in `segment_change`; undoing it puts that back, as an operation of its
//! own, which can be undone in turn. What else an operation did follows from its payload.

use rusqlite::{Connection, OptionalExtension, Row, params};
use serde_json::{Map, Value, json};
use waystone_core::Error;
use waystone_core::api::{ListOperations, Operation as Listed, OperationPage, Tier, UndoneOperation};
use waystone_core::clock::Timestamp;
use waystone_core::error::Conflict;
use waystone_core::id::ProjectId;
use waystone_core::store::{Scope, Undo};

use super::cursor;
use super::error::{DbResult, unreadable};
use super::log::{Operation, append_and_publish, handle};
use super::segment::{Image, find_project, image_of, restore, tier_of, touch_place};
use super::task::{hide_snapshot, make_current_by_id};

/// As many operations that stand in between are named.
const BETWEEN_MAX: usize = 20;
const UNDONE: &str = "operation.undone";
/// The kinds that have an inverse.
const INVERTIBLE: [&str; 10] = [
    "segment.put",
    "segment.pinned",
    "segment.unpinned",
    "segment.stashed",
    "segment.retrieved",
    "segment.pruned",
    "task.used",
    "snapshot.created",
    "snapshot.restored",
    UNDONE,
];

const COLUMNS: &str = "seq, kind, at_ms, actor, project, payload, undone, undoes";

struct Found {
    seq: i64,
    undoes: Option<i64>,
    listed: Listed,
}

fn read(row: &Row<'_>) -> DbResult<Found> {
    let (seq, kind): (i64, String) = (row.get(0)?, row.get(1)?);
    let undone: bool = row.get(6)?;
    let payload: Option<String> = row.get(5)?;
    let data: Map<String, Value> = payload.and_then(|text| serde_json::from_str(&text).ok()).unwrap_or_default();
    let listed = Listed {
        operation_id: seq.to_string(),
        can_undo: !undone && INVERTIBLE.contains(&kind.as_str()),
        kind,
        at: Timestamp::from_ms(row.get(2)?),
        actor: row.get(3)?,
        project_id: row.get::<_, Option<String>>(4)?.and_then(|id| id.parse().ok()),
        undone,
        data,
    };
    Ok(Found { seq, undoes: row.get(7)?, listed })
}

pub(crate) fn list(db: &Connection, scope: &Scope, filter: &ListOperations) -> DbResult<OperationPage> {
    let place = match &filter.project_id {
        Some(_) => "project = ?2",
        None => "?2 IS NULL",
    };
    let sql =
        format!("SELECT {COLUMNS} FROM operation WHERE space = ?1 AND {place} AND seq < ?3 ORDER BY seq DESC LIMIT ?4");
    let project = filter.project_id.as_ref().map(|id| id.as_str());
    let before = cursor::read(filter.cursor.as_deref())?;
    let mut statement = db.prepare_cached(&sql)?;
    let mut rows = statement.query(params![scope.space, project, before, filter.limit + 1])?;
    let (mut operations, mut last, mut has_more) = (Vec::new(), None, false);
    while let Some(row) = rows.next()? {
        has_more = operations.len() == filter.limit as usize;
        if !has_more {
            let found = read(row)?;
            last = Some(found.seq);
            operations.push(found.listed);
        }
    }
    Ok(OperationPage { operations, next_cursor: last.filter(|_| has_more).map(cursor::write), warnings: Vec::new() })
}

fn find(db: &Connection, scope: &Scope, seq: i64) -> DbResult<Option<Found>> {
    let mut statement = db.prepare_cached(&format!("SELECT {COLUMNS} FROM operation WHERE space = ?1 AND seq = ?2"))?;
    let mut rows = statement.query(params![scope.space, seq])?;
    rows.next()?.map(read).transpose()
}

/// The operation that is meant.
fn choose(db: &Connection, scope: &Scope, which: &Undo) -> DbResult<Found> {
    match which {
        Undo::Named(id, project) => {
            let seq: Option<i64> = id.as_str().parse().ok();
            let found = seq.map(|seq| find(db, scope, seq)).transpose()?.flatten();
            let is_meant = |found: &Found| project.is_none() || found.listed.project_id == *project;
            let place = project.as_ref().map_or(String::new(), |project| format!(" in project `{project}`"));
            found.filter(is_meant).ok_or_else(|| Error::OperationNotFound(format!("`{id}`{place}")).into())
        }
        Undo::Newest(project) => {
            let kinds = json!(INVERTIBLE).to_string();
            let seq: Option<i64> = db
                .prepare_cached(
                    "SELECT seq FROM operation
                     WHERE space = ?1 AND project = ?2 AND undone = 0 AND undoes IS NULL AND actor <> 'maintenance'
                         AND kind IN (SELECT value FROM json_each(?3)) AND (?4 IS NULL OR actor = ?4)
                     ORDER BY seq DESC LIMIT 1",
                )?
                .query_row(
                    params![scope.space, project.as_str(), kinds, scope.is_agent.then_some(&scope.actor)],
                    |row| row.get(0),
                )
                .optional()?;
            let whose = if scope.is_agent { " of yours" } else { "" };
            let nothing = || Error::OperationNotFound(format!("{whose} in project `{project}` that can be undone"));
            let found = seq.map(|seq| find(db, scope, seq)).transpose()?.flatten();
            found.ok_or_else(|| nothing().into())
        }
    }
}

pub(crate) fn undo(db: &Connection, scope: &Scope, which: &Undo, at: Timestamp) -> DbResult<UndoneOperation> {
    let found = choose(db, scope, which)?;
    if found.listed.undone {
        return Err(Error::Conflict(Conflict::UndoneAlready(found.seq)).into());
    }
    if !found.listed.can_undo {
        let message = format!("operation {} is {}, which cannot be undone", found.seq, found.listed.kind);
        return Err(Error::InvalidInput(message).into());
    }
    let project = found.listed.project_id.clone();
    let project = project.ok_or_else(|| unreadable("an operation", "it has no project"))?;
    // What was first done: an undo may itself be undone.
    let first = first_of(db, scope, &found)?;
    let between = between(db, scope, &found, &first, &project)?;
    if !between.is_empty() {
        return Err(Error::Conflict(Conflict::ChangedSince { operation: found.seq, between }).into());
    }
    let before = images_before(db, scope, found.seq)?;
    if before.is_empty() && first.listed.kind.starts_with("segment.") {
        let message =
            format!("operation {} cannot be undone any more: what it changed was removed for good", found.seq);
        return Err(Error::InvalidInput(message).into());
    }
    let payload = json!({ "project_id": project, "undoes": found.seq.to_string(), "kind": found.listed.kind });
    let subject = vec![handle("operation", &found.seq.to_string())];
    let entry = Operation { at, kind: UNDONE, project: project.as_str(), subject, payload };
    let seq = append_and_publish(db, scope, &entry)?;
    let is_live = flip(db, scope, &found, seq)?;
    let place = find_project(db, scope, &project)?.map(|project| project.key);
    for (now, then) in &before {
        restore(db, scope, seq, now, then, at)?;
        touch_place(db, place.unwrap_or_default(), now.task, at)?;
    }
    put_back(db, scope, &first, &project, is_live, at)?;
    let message = format!("{} of {} is taken back", found.listed.kind, found.listed.at);
    let (undone, segments_changed) = (found.listed, before.len() as u64);
    Ok(UndoneOperation { undone, operation_id: seq.to_string(), segments_changed, message, warnings: Vec::new() })
}

/// Goes from an undo to what it undid, and on.
fn first_of(db: &Connection, scope: &Scope, found: &Found) -> DbResult<Found> {
    let mut first = find(db, scope, found.seq)?;
    while let Some(undoes) = first.as_ref().and_then(|found| found.undoes) {
        first = find(db, scope, undoes)?;
    }
    first.ok_or_else(|| unreadable("an operation", "what it undid is missing"))
}

/// Operations since that changed the same and count still. An undo and what it undid cancel each other out.
fn between(db: &Connection, scope: &Scope, found: &Found, first: &Found, project: &ProjectId) -> DbResult<Vec<i64>> {
    let sql = match first.listed.kind.as_str() {
        "task.used" => {
            "SELECT seq FROM operation
             WHERE space = ?1 AND project = ?3 AND seq > ?2 AND kind = 'task.used' AND undone = 0 ORDER BY seq LIMIT ?4"
        }
        _ => {
            "SELECT DISTINCT later.operation FROM segment_change AS mine
             JOIN segment_change AS later ON later.segment = mine.segment AND later.operation > mine.operation
             JOIN operation AS o ON o.space = later.space AND o.seq = later.operation
             WHERE mine.space = ?1 AND mine.operation = ?2 AND later.space = ?1 AND o.undone = 0 AND o.undoes IS NULL
                 AND ?3 IS NOT NULL
             ORDER BY later.operation LIMIT ?4"
        }
    };
    let mut statement = db.prepare_cached(sql)?;
    let seqs = statement.query_map(params![scope.space, found.seq, project.as_str(), BETWEEN_MAX], |row| row.get(0))?;
    Ok(seqs.collect::<Result<_, _>>()?)
}

/// The segments that an operation changed: as they are, and as they were before it. What it added was nowhere, so it goes to the archive.
fn images_before(db: &Connection, scope: &Scope, operation: i64) -> DbResult<Vec<(Image, Image)>> {
    let mut statement = db.prepare_cached(
        "SELECT segment, tier, pinned, entered_seq, survived FROM segment_change
         WHERE space = ?1 AND operation = ?2 ORDER BY segment",
    )?;
    let mut rows = statement.query(params![scope.space, operation])?;
    let mut images = Vec::new();
    while let Some(row) = rows.next()? {
        let Some(now) = image_of(db, row.get(0)?)? else { continue };
        let then = match row.get_ref(1)?.as_str_or_null().ok().flatten() {
            None => Image { tier: Tier::Archive, entered_seq: None, pinned: false, ..now.clone() },
            Some(tier) => Image {
                tier: tier_of(tier)?,
                pinned: row.get(2)?,
                entered_seq: row.get(3)?,
                survived: row.get(4)?,
                ..now.clone()
            },
        };
        images.push((now, then));
    }
    Ok(images)
}

/// Marks what is undone, and what thereby counts again. Returns whether what was first done counts now.
fn flip(db: &Connection, scope: &Scope, found: &Found, undo: i64) -> DbResult<bool> {
    db.prepare_cached("UPDATE operation SET undoes = ?3 WHERE space = ?1 AND seq = ?2")?.execute(params![
        scope.space,
        undo,
        found.seq
    ])?;
    let (mut seq, mut is_undone) = (found.seq, true);
    loop {
        db.prepare_cached("UPDATE operation SET undone = ?3 WHERE space = ?1 AND seq = ?2")?.execute(params![
            scope.space,
            seq,
            is_undone
        ])?;
        match find(db, scope, seq)?.and_then(|found| found.undoes) {
            Some(undoes) => (seq, is_undone) = (undoes, !is_undone),
            None => return Ok(!is_undone),
        }
    }
}

/// What an operation did besides changing segments, done again or taken back.
fn put_back(
    db: &Connection,
    scope: &Scope,
    first: &Found,
    project: &ProjectId,
    is_live: bool,
    at: Timestamp,
) -> DbResult<()> {
    let text = |field: &str| first.listed.data.get(field).and_then(Value::as_str);
    match first.listed.kind.as_str() {
        "task.used" => {
            make_current_by_id(db, scope, project, text(if is_live { "task_id" } else { "previous_task_id" }))
        }
        "snapshot.created" => {
            hide_snapshot(db, scope, text("snapshot_id").unwrap_or_default(), (!is_live).then_some(at))
        }
        "segment.pruned" => {
            let sql = match is_live {
                true => {
                    "INSERT OR IGNORE INTO collection (project, seq) SELECT key, ?3 FROM project WHERE space = ?1 AND id = ?2"
                }
                false => {
                    "DELETE FROM collection WHERE project = (SELECT key FROM project WHERE space = ?1 AND id = ?2) AND seq = ?3"
                }
            };
            db.prepare_cached(sql)?.execute(params![scope.space, project.as_str(), first.seq])?;
            Ok(())
        }
        _ => Ok(()),
    }
}
