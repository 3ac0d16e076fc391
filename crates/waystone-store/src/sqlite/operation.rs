//! Operations read from the log, and undone.
//!
//! An operation that moved segments has what they were before in `segment_change`; undoing it puts that back, as an operation of its
//! own, which can be undone in turn. What else an operation did follows from its payload.

use async_trait::async_trait;
use rusqlite::{Connection, OptionalExtension, Row, params};
use serde_json::{Map, Value, json};
use waystone_core::api::{ListOperations, Operation as Listed, OperationPage, Tier, UndoneOperation};
use waystone_core::clock::Timestamp;
use waystone_core::error::Conflict;
use waystone_core::id::ProjectId;
use waystone_core::store::{OperationStore, Scope, Undo};
use waystone_core::{Error, Result};

use super::error::{DbError, DbResult, unreadable};
use super::log::{Operation, append_and_publish, handle};
use super::segment::{Edit, Image, collections_between, find_project, find_task, image_of, tier_of};
use super::task::{hide_snapshot, make_current};
use super::{Sqlite, cursor};

/// As many operations that stand in between are named.
const BETWEEN_MAX: usize = 20;
const UNDONE: &str = "operation.undone";
/// The kinds that have an inverse.
const INVERTIBLE: [&str; 11] = [
    "segment.put",
    "segment.pinned",
    "segment.unpinned",
    "segment.stashed",
    "segment.retrieved",
    "segment.pruned",
    "task.used",
    "snapshot.created",
    "snapshot.restored",
    "branch.merged",
    UNDONE,
];

/// Whether something of it is left to be put back: what was removed for good is not.
const IS_LEFT: &str = "(kind NOT LIKE 'segment.%' OR EXISTS
        (SELECT 1 FROM segment_change AS c WHERE c.space = operation.space AND c.operation = operation.seq))
    AND (kind <> 'snapshot.created' OR EXISTS
        (SELECT 1 FROM snapshot AS n
         WHERE n.space = operation.space AND n.id = unsealed(payload, 'operation', operation.seq) ->> '$.snapshot_id'))";
const COLUMNS: &str = "seq, kind, at_ms, actor, project, unsealed(payload, 'operation', seq), undone, undoes";

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
        can_undo: !undone && row.get(8)? && INVERTIBLE.contains(&kind.as_str()),
        kind,
        at: Timestamp::from_ms(row.get(2)?),
        actor: row.get(3)?,
        project_id: row.get::<_, Option<String>>(4)?.and_then(|id| id.parse().ok()),
        undone,
        data,
    };
    // What was undone came before; a garbled number would lead on without end.
    let undoes = row.get::<_, Option<i64>>(7)?.filter(|undoes| *undoes < seq);
    Ok(Found { seq, undoes, listed })
}

pub(crate) fn list(db: &Connection, scope: &Scope, filter: &ListOperations) -> DbResult<OperationPage> {
    let place = match &filter.project_id {
        Some(_) => "project = ?2",
        None => "?2 IS NULL",
    };
    let sql = format!(
        "SELECT {COLUMNS}, {IS_LEFT} FROM operation WHERE space = ?1 AND {place} AND seq < ?3 ORDER BY seq DESC LIMIT ?4"
    );
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
    let sql = format!("SELECT {COLUMNS}, {IS_LEFT} FROM operation WHERE space = ?1 AND seq = ?2");
    let mut statement = db.prepare_cached(&sql)?;
    let mut rows = statement.query(params![scope.space, seq])?;
    rows.next()?.map(read).transpose()
}

/// The operation that is meant.
fn choose(db: &Connection, scope: &Scope, which: &Undo) -> DbResult<Found> {
    match which {
        Undo::Named(id, project) => {
            let seq: Option<i64> = id.as_str().parse().ok();
            let found = seq.map(|seq| find(db, scope, seq)).transpose()?.flatten();
            let found = found.filter(|found| project.is_none() || found.listed.project_id == *project);
            found.ok_or_else(|| Error::OperationNotFound(id.clone()).into())
        }
        Undo::Newest(project) => {
            let kinds = json!(INVERTIBLE).to_string();
            let seq: Option<i64> = db
                .prepare_cached(&format!(
                    "SELECT seq FROM operation
                     WHERE space = ?1 AND project = ?2 AND undone = 0 AND undoes IS NULL AND kind <> 'checkpoint.saved'
                         AND actor <> 'maintenance' AND kind IN (SELECT value FROM json_each(?3)) AND (?4 IS NULL OR actor = ?4)
                         AND {IS_LEFT}
                     ORDER BY seq DESC LIMIT 1"
                ))?
                .query_row(
                    params![scope.space, project.as_str(), kinds, scope.is_agent.then_some(&scope.actor)],
                    |row| row.get(0),
                )
                .optional()?;
            let found = seq.map(|seq| find(db, scope, seq)).transpose()?.flatten();
            found.ok_or_else(|| Error::NothingToUndo(project.clone(), None).into())
        }
    }
}

pub(crate) fn undo(db: &Connection, scope: &Scope, which: &Undo, at: Timestamp) -> DbResult<UndoneOperation> {
    let found = choose(db, scope, which)?;
    if found.listed.undone {
        return Err(Error::Conflict(Conflict::UndoneAlready(found.seq)).into());
    }
    if !found.listed.can_undo && INVERTIBLE.contains(&found.listed.kind.as_str()) {
        return Err(gone(found.seq));
    }
    if !found.listed.can_undo {
        let message = found.listed.how_restored().unwrap_or_else(|| match found.listed.kind.as_str() {
            "session.marked" => {
                let session = found.listed.data.get("sessionId").and_then(Value::as_str).unwrap_or("SESSION");
                format!(
                    "operation {} marked a key, which is unmarked and not undone: `waystone session unmark {session} KEY`",
                    found.seq
                )
            }
            "checkpoint.saved" => {
                let id = found.listed.data.get("checkpointId").and_then(Value::as_str).unwrap_or("CHECKPOINT");
                format!(
                    "operation {} saved a checkpoint; a save is not undone, but what it saved can be deleted: `waystone checkpoint delete {id}`",
                    found.seq
                )
            }
            kind => format!("operation {} is {kind}, which cannot be undone", found.seq),
        });
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
    let place = find_project(db, scope, &project)?.map_or(0, |project| project.key);
    let changes = changes_of(db, scope, &found, place)?;
    let payload = json!({
        "project_id": project, "undoes": found.seq.to_string(), "kind": first.listed.kind, "segments": changes.back.len(),
    });
    let subject = vec![handle("operation", &found.seq.to_string())];
    let entry = Operation { at, kind: UNDONE, project: project.as_str(), subject, payload };
    let seq = append_and_publish(db, scope, &entry)?;
    let is_live = flip(db, scope, &found, seq)?;
    let mut edit = Edit::begin(db, scope, place, seq, at)?;
    for (now, then) in &changes.back {
        let entered_seq = then.entered_seq.map(|entered| if entered == i64::MAX { seq } else { entered });
        edit.set(now, &Image { entered_seq, ..then.clone() })?;
    }
    edit.finish()?;
    put_back(db, scope, &first, &project, is_live, at)?;
    let message = told(&first, is_live, &changes);
    let undone = Listed { can_undo: false, undone: true, ..found.listed };
    let segments_changed = changes.back.len() as u64;
    Ok(UndoneOperation { undone, operation_id: seq.to_string(), segments_changed, message, warnings: Vec::new() })
}

/// What came of it, in words.
fn told(first: &Found, is_live: bool, changes: &Changes) -> String {
    let Listed { kind, operation_id, .. } = &first.listed;
    let what = if is_live { "is done again" } else { "is taken back" };
    let mut message = format!("{kind} (operation {operation_id}) {what}");
    if changes.removed > 0 {
        message += &format!("; {} of its segments were removed for good before", changes.removed);
    }
    if changes.met_again > 0 {
        let stay = if changes.met_again == 1 { "stays, as it was" } else { "stay, as they were" };
        message += &format!("; {} {stay} put again since", changes.met_again);
    }
    message
}

fn gone(operation: i64) -> DbError {
    Error::Conflict(Conflict::RemovedSince(operation)).into()
}

/// Goes from an undo to what it undid, and on.
fn first_of(db: &Connection, scope: &Scope, found: &Found) -> DbResult<Found> {
    let mut first = find(db, scope, found.seq)?;
    while let Some(undoes) = first.as_ref().and_then(|found| found.undoes) {
        first = find(db, scope, undoes)?;
    }
    first.ok_or_else(|| unreadable("an operation", "what it undid is missing"))
}

/// Operations since that changed the same and count still. An undo and what it undid cancel each other out if both came since.
fn between(db: &Connection, scope: &Scope, found: &Found, first: &Found, project: &ProjectId) -> DbResult<Vec<i64>> {
    let sql = match first.listed.kind.as_str() {
        "task.used" => {
            "SELECT seq FROM operation
             WHERE space = ?1 AND project = ?3 AND seq > ?2 AND undone = 0 AND (undoes IS NULL OR undoes <= ?2)
                 AND (kind = 'task.used' OR kind = 'operation.undone' AND unsealed(payload, 'operation', seq) ->> '$.kind' = 'task.used')
             ORDER BY seq LIMIT ?5"
        }
        // Who undid the same, or an undo of it, is in the way also where no segment was changed.
        _ => {
            "WITH RECURSIVE of_it (seq) AS (
                 SELECT ?4
                 UNION
                 SELECT o.seq FROM of_it CROSS JOIN operation AS o ON o.space = ?1 AND o.undoes = of_it.seq
             ), of_segments (seq) AS (
                 SELECT later.operation FROM segment_change AS mine
                 CROSS JOIN segment_change AS later ON later.segment = mine.segment AND later.operation > mine.operation
                 WHERE mine.space = ?1 AND mine.operation = ?2
             )
             SELECT o.seq FROM (SELECT seq FROM of_it UNION SELECT seq FROM of_segments) AS later
             CROSS JOIN operation AS o ON o.space = ?1 AND o.seq = later.seq
             WHERE o.seq > ?2 AND o.undone = 0 AND (o.undoes IS NULL OR o.undoes <= ?2)
             ORDER BY o.seq LIMIT ?5"
        }
    };
    let mut statement = db.prepare_cached(sql)?;
    let parameters = params![scope.space, found.seq, project.as_str(), first.seq, BETWEEN_MAX];
    let seqs = statement.query_map(parameters, |row| row.get(0))?;
    Ok(seqs.collect::<Result<_, _>>()?)
}

/// What undoing an operation does to segments.
struct Changes {
    /// As they are, and as they are to be. Where `entered_seq` is not known yet it is the largest number.
    back: Vec<(Image, Image)>,
    /// So many were removed for good since.
    removed: u64,
    /// So many were met again, and stay.
    met_again: u64,
}

/// What an operation added was nowhere before, so it goes to the archive, unless someone put it again since and was told that it is there.
fn changes_of(db: &Connection, scope: &Scope, found: &Found, project: i64) -> DbResult<Changes> {
    let mut statement = db.prepare_cached(
        "SELECT segment, tier, pinned, entered_seq, survived, mentions FROM segment_change
         WHERE space = ?1 AND operation = ?2 ORDER BY segment",
    )?;
    let mut rows = statement.query(params![scope.space, found.seq])?;
    let mut changes = Changes { back: Vec::new(), removed: 0, met_again: 0 };
    while let Some(row) = rows.next()? {
        let Some(now) = image_of(db, row.get(0)?)? else { continue };
        let tier = row.get_ref(1)?.as_str_or_null().ok().flatten().map_or(Ok(Tier::Archive), tier_of)?;
        let mut then = Image { tier, pinned: row.get(2)?, ..now.clone() };
        if then.tier == Tier::Archive && now.mentions > row.get(5)? {
            changes.met_again += 1;
            continue;
        }
        if then.tier != Tier::Working {
            (then.entered_seq, then.survived) = (None, row.get(4)?);
        } else if now.tier != Tier::Working {
            // What was collected while it was outside of the window it did not survive.
            let before = collections_between(db, project, row.get(3)?, found.seq)?;
            (then.entered_seq, then.survived) = (Some(i64::MAX), row.get::<_, u64>(4)? + before);
        }
        changes.back.push((now, then));
    }
    let recorded = found.listed.data.get("segments").and_then(Value::as_u64).unwrap_or(0);
    changes.removed = recorded.saturating_sub(changes.back.len() as u64 + changes.met_again);
    Ok(changes)
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
            let task = text(if is_live { "task_id" } else { "previous_task_id" }).and_then(|id| id.parse().ok());
            let Some(row) = find_project(db, scope, project)? else { return Ok(()) };
            let key = task.map(|task| find_task(db, &row, &task)).transpose()?.flatten();
            make_current(db, row.key, key)
        }
        "snapshot.created" => {
            match hide_snapshot(db, scope, text("snapshot_id").unwrap_or_default(), (!is_live).then_some(at))? {
                true => Ok(()),
                false => Err(gone(first.seq)),
            }
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

#[async_trait]
impl OperationStore for Sqlite {
    async fn list_operations(&self, scope: &Scope, filter: &ListOperations) -> Result<OperationPage> {
        let (scope, filter) = (scope.clone(), filter.clone());
        self.readers.read(move |db| list(db, &scope, &filter)).await
    }

    async fn undo(&self, scope: &Scope, which: &Undo, at: Timestamp) -> Result<UndoneOperation> {
        let (scope, which) = (scope.clone(), which.clone());
        self.write_with_room(0, move |db| undo(db, &scope, &which, at)).await
    }
}
