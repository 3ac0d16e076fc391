//! Turns of conversations as rows: where one is, the steps that it takes, and the events that tell of it.

use rusqlite::{Connection, OptionalExtension, Row, params};
use serde_json::{Value, json};
use waystone_core::Error;
use waystone_core::api::{ContextState, Resync, Role};
use waystone_core::clock::Timestamp;
use waystone_core::id::{SegmentId, SessionId};
use waystone_core::store::{Draft, Idempotency, Scope, Step, StepBranch, Stepped, ToolChange, Turn, TurnEvent};

use super::branch::{self, BranchRow};
use super::conversation::{self, ConversationRow, operation};
use super::error::{DbError, DbResult, unreadable};
use super::log::append_and_publish;
use super::message::{self, Target, Treated};
use super::{checkpoint, retry, tool_call, window};

fn draft_of(row: &ConversationRow) -> DbResult<Option<Draft>> {
    let Some(id) = &row.draft else { return Ok(None) };
    let message = id.parse().map_err(|error| unreadable("a message's id", error))?;
    Ok(Some(Draft { message, attempt: row.attempt }))
}

pub(crate) fn find(db: &Connection, scope: &Scope, id: &SessionId) -> DbResult<Turn> {
    let row = conversation::find_row(db, scope, id)?;
    let branch = branch::find_by_key(db, row.turn_branch.unwrap_or(row.active_branch))?;
    Ok(Turn {
        draft: draft_of(&row)?,
        project: row.project,
        config: row.config,
        state: row.state,
        error: row.error,
        run: row.run,
        is_branch_gone: branch.is_archived,
        branch: branch.name,
        failures: row.failures,
        seq: row.event_seq,
    })
}

/// Takes a step, if the conversation is where it is to be taken from.
pub(crate) fn step(db: &Connection, scope: &Scope, owner: &str, step: &Step) -> DbResult<Stepped> {
    let kind = step.operation.unwrap_or_default();
    if let Some(first) = retry::find(db, scope, kind, step.idempotency.as_ref(), step.at)? {
        let row = conversation::find_row(db, scope, &step.context)?;
        let message: Option<SegmentId> = first["message_id"].as_str().and_then(|id| id.parse().ok());
        let branch = match &message {
            Some(id) => message::branch_of(db, row.session, &step.context, id)?,
            None => branch::find_by_key(db, row.turn_branch.unwrap_or(row.active_branch))?,
        };
        return Ok(Stepped::Before { message, branch: branch.name, state: state_of(&first).unwrap_or(step.to) });
    }
    let row = conversation::find_row(db, scope, &step.context)?;
    if is_taken(db, &row, step)? {
        let branch = branch::find_by_key(db, row.turn_branch.unwrap_or(row.active_branch))?;
        return Ok(Stepped::Done { branch: branch.name, seq: row.event_seq });
    }
    let is_there = row.state == step.from && row.run == step.from_run;
    if !is_there || step.from_seq.is_some_and(|seq| seq != row.event_seq) {
        return Ok(Stepped::Moved(row.state));
    }
    if tool_call::loses_answer(db, &row, step)? {
        return Ok(Stepped::Moved(row.state));
    }
    let branch = find_branch(db, &row, step)?;
    if let Some(kind) = step.operation {
        tell(db, scope, &row, &branch, step, kind)?;
    }
    tool_call::change(db, &row, &step.context, step)?;
    if let Some(new) = &step.window {
        window::add(db, &row, branch.key, new, step.at)?;
    }
    match step.checkpoint.as_ref().map(|new| checkpoint::add(db, scope, new)) {
        // An answer that is there counts for more than where it stands.
        None | Some(Ok(_) | Err(DbError::Refused(Error::QuotaExceeded(_)))) => {}
        Some(Err(error)) => return Err(error),
    }
    let seq = add_events(db, scope, &row, step)?;
    write(db, &row, &branch, step, owner, seq)?;
    let reply = reply_of(step.messages.first().map(|message| &message.id), step.to);
    retry::remember(db, scope, kind, step.idempotency.as_ref(), &reply, step.at)?;
    Ok(Stepped::Done { branch: branch.name, seq })
}

/// What is kept to answer a retry with.
fn reply_of(message: Option<&SegmentId>, state: ContextState) -> Value {
    json!({ "message_id": message, "state": state.as_str() })
}

fn state_of(reply: &Value) -> Option<ContextState> {
    ContextState::ALL.into_iter().find(|state| reply["state"] == state.as_str())
}

pub(crate) fn remember(
    db: &Connection,
    scope: &Scope,
    kind: &str,
    idempotency: &Idempotency,
    state: ContextState,
    at: Timestamp,
) -> DbResult<ContextState> {
    if let Some(first) = retry::find(db, scope, kind, Some(idempotency), at)? {
        return Ok(state_of(&first).unwrap_or(state));
    }
    retry::remember(db, scope, kind, Some(idempotency), &reply_of(None, state), at)?;
    Ok(state)
}

/// Whether the step was taken before, and who took it did not hear of it: what it tells is in the log.
fn is_taken(db: &Connection, row: &ConversationRow, step: &Step) -> DbResult<bool> {
    let Some(last) = step.events.last().filter(|_| row.run.as_ref() == Some(&step.run)) else { return Ok(false) };
    let sql = "SELECT 1 FROM event WHERE session = ?1 AND run = ?2 AND last_n >= ?3";
    Ok(db.prepare_cached(sql)?.exists(params![row.session, step.run, last.last])?)
}

fn find_branch(db: &Connection, row: &ConversationRow, step: &Step) -> DbResult<BranchRow> {
    match &step.branch {
        StepBranch::Same => branch::find_by_key(db, row.turn_branch.unwrap_or(row.active_branch)),
        StepBranch::Active => branch::find_by_key(db, row.active_branch),
        StepBranch::Named(name) | StepBranch::Beside(name) => branch::find(db, row.session, &step.context, name),
        StepBranch::New(new) => {
            let begun = branch::begin(db, row, &step.context, new, step.at)?;
            conversation::set_active(db, row.session, begun.key)?;
            Ok(begun)
        }
    }
}

/// A change that someone wanted: it is in the log of operations, and has the message with it.
fn tell(
    db: &Connection,
    scope: &Scope,
    row: &ConversationRow,
    branch: &BranchRow,
    step: &Step,
    kind: &str,
) -> DbResult<()> {
    let message = step.messages.first();
    let mut payload = json!({
        "context_id": step.context, "project_id": row.project, "message_id": message.map(|new| &new.id),
        "role": message.map(|new| new.role),
    });
    let decided = step.tools.iter().filter_map(decided);
    let decided: Vec<&str> = decided.collect();
    if !decided.is_empty() {
        payload["tool_call_ids"] = json!(decided);
    }
    let seq = append_and_publish(db, scope, &operation(&step.context, &row.project, kind, step.at, payload))?;
    let (at, total_bytes_max) = (step.at, step.total_bytes_max);
    for (place, new) in step.messages.iter().enumerate() {
        // Each follows the one before.
        let moved = if place == 0 { None } else { Some(branch::find_by_key(db, branch.key)?) };
        let branch = moved.as_ref().unwrap_or(branch);
        let target = Target { row, branch, operation: seq, at, total_bytes_max, treated: Treated::NOT };
        message::add(db, scope, &target, new)?;
    }
    conversation::touch(db, scope, row.session, step.at)
}

/// The call that someone decided about, or changed.
fn decided(change: &ToolChange) -> Option<&str> {
    match change {
        ToolChange::Decide { id, .. } | ToolChange::Edit { id, .. } => Some(id.as_str()),
        _ => None,
    }
}

/// Adds what readers are told. Returns the number of the conversation's newest event.
fn add_events(db: &Connection, scope: &Scope, row: &ConversationRow, step: &Step) -> DbResult<i64> {
    let mut newest = row.event_seq;
    for event in &step.events {
        newest = db
            .prepare_cached("UPDATE space SET event_seq = event_seq + 1 WHERE space = ?1 RETURNING event_seq")?
            .query_row(params![scope.space], |row| row.get(0))?;
        db.prepare_cached(
            "INSERT INTO event (space, seq, at_ms, kind, payload, session, run, first_n, last_n)
             VALUES (?1, ?2, ?3, ?4, sealed(?5, 'event', ?2), ?6, ?7, ?8, ?9)",
        )?
        .execute(params![
            scope.space,
            newest,
            step.at.ms(),
            event.kind,
            event.payload,
            row.session,
            step.run,
            event.first,
            event.last,
        ])?;
    }
    Ok(newest)
}

fn write(
    db: &Connection,
    row: &ConversationRow,
    branch: &BranchRow,
    step: &Step,
    owner: &str,
    seq: i64,
) -> DbResult<()> {
    let (draft, attempt) = match &step.draft {
        Some(draft) => (Some(draft.message.as_str()), draft.attempt),
        None => (None, 0),
    };
    // What was streamed before belongs to another attempt.
    let is_same = draft == row.draft.as_deref() && attempt == row.attempt;
    let draft_seq = if is_same { row.draft_seq } else { seq };
    let turn_branch = match step.branch {
        StepBranch::Beside(_) => row.turn_branch,
        _ => Some(branch.key),
    };
    db.prepare_cached(
        "UPDATE conversation SET state = ?2, run = ?3, owner = ?4, turn_branch = ?5, draft = ?6, attempt = ?7, draft_seq = ?8,
                failures = ?9, event_seq = ?10, updated_at_ms = max(updated_at_ms, ?12),
                error = (SELECT sealed(?11, 'error', s.id, 'session:' || s.id, s.wrapped_key) FROM session AS s WHERE s.key = ?1)
         WHERE session = ?1",
    )?
    .execute(params![
        row.session,
        step.to.as_str(),
        step.run,
        step.to.is_driven().then_some(owner),
        turn_branch,
        draft,
        attempt,
        draft_seq,
        step.failures,
        seq,
        step.error.as_ref().map(|error| json!(error).to_string()),
        step.at.ms(),
    ])?;
    Ok(())
}

/// Turns under way: conversation, run and owner.
pub(crate) fn list_owned(db: &Connection, scope: &Scope) -> DbResult<Vec<(SessionId, String, String)>> {
    let mut statement = db.prepare_cached(
        "SELECT s.id, c.run, c.owner FROM conversation AS c JOIN session AS s ON s.key = c.session
         WHERE c.space = ?1 AND c.owner IS NOT NULL AND c.run IS NOT NULL AND s.archived_at_ms IS NULL LIMIT 10000",
    )?;
    let rows =
        statement.query_map(params![scope.space], |row| Ok((row.get::<_, String>(0)?, row.get(1)?, row.get(2)?)))?;
    rows.map(|row| {
        let (id, run, owner) = row?;
        Ok((id.parse().map_err(|error| unreadable("a session's id", error))?, run, owner))
    })
    .collect()
}

const COLUMNS: &str = "seq, run, first_n, last_n, kind, unsealed(payload, 'event', seq)";

fn read(row: &Row<'_>) -> rusqlite::Result<TurnEvent> {
    Ok(TurnEvent {
        seq: row.get(0)?,
        run: row.get(1)?,
        first: row.get(2)?,
        last: row.get(3)?,
        kind: row.get(4)?,
        payload: row.get(5)?,
    })
}

pub(crate) fn list_events(
    db: &Connection,
    scope: &Scope,
    id: &SessionId,
    from: i64,
    limit: u32,
) -> DbResult<Vec<TurnEvent>> {
    let sql = format!(
        "SELECT {COLUMNS} FROM event WHERE session = (SELECT key FROM session WHERE space = ?1 AND id = ?2) AND seq >= ?3
         ORDER BY seq LIMIT ?4"
    );
    let mut statement = db.prepare_cached(&sql)?;
    let events = statement.query_map(params![scope.space, id.as_str(), from, limit], read)?;
    Ok(events.collect::<Result<_, _>>()?)
}

pub(crate) fn find_event(db: &Connection, scope: &Scope, id: &SessionId, run: &str, n: u64) -> DbResult<Option<i64>> {
    Ok(db
        .prepare_cached(
            "SELECT seq FROM event WHERE session = (SELECT key FROM session WHERE space = ?1 AND id = ?2)
                 AND run = ?3 AND last_n >= ?4 AND first_n <= ?4 ORDER BY last_n LIMIT 1",
        )?
        .query_row(params![scope.space, id.as_str(), run, n], |row| row.get(0))
        .optional()?)
}

fn nothing_written(row: &ConversationRow, id: &SessionId) -> Resync {
    Resync {
        context_id: id.clone(),
        current_state: row.state,
        message_id: None,
        content: String::new(),
        sequence: 0,
        attempt: 1,
        is_complete: false,
    }
}

/// How a run left what it was writing: the reader goes on after its last event, and what others told since is told again.
fn resync_of(
    db: &Connection,
    row: &ConversationRow,
    id: &SessionId,
    run: &str,
) -> DbResult<Option<(Resync, Option<TurnEvent>)>> {
    let sql = format!("SELECT {COLUMNS} FROM event WHERE session = ?1 AND run = ?2 ORDER BY seq DESC LIMIT 1");
    let last = db.prepare_cached(&sql)?.query_row(params![row.session, run], read).optional()?;
    let Some(last) = last else { return Ok(None) };
    let deltas: Option<String> = db
        .prepare_cached(
            "SELECT unsealed(payload, 'event', seq) FROM event WHERE session = ?1 AND run = ?2 AND kind = 'ContentDelta'
             ORDER BY seq DESC LIMIT 1",
        )?
        .query_row(params![row.session, run], |row| row.get(0))
        .optional()?;
    let mut resync = nothing_written(row, id);
    if let Some(deltas) = deltas {
        let deltas: Value = serde_json::from_str(&deltas).map_err(|error| unreadable("an event", error))?;
        let message: SegmentId =
            deltas["message_id"].as_str().unwrap_or_default().parse().map_err(|error| unreadable("an event", error))?;
        let attempt = deltas["attempt"].as_u64().unwrap_or(1);
        let parts = message::streamed_by(db, row.session, run, &message, attempt)?;
        (resync.sequence, resync.content) = (parts.len() as u64, parts.concat());
        // A run that has ended it told so, and the reader is told no more of it.
        resync.is_complete = message::is_whole(db, row.session, &message)? && last.kind != "ContentDelta";
        (resync.message_id, resync.attempt) = (Some(message), attempt);
    }
    Ok(Some((resync, Some(last))))
}

/// What is written of the message that is being written, or was last, and the newest event: of a run, if it is known, or of all.
pub(crate) fn find_resync(
    db: &Connection,
    scope: &Scope,
    id: &SessionId,
    run: &str,
) -> DbResult<(Resync, Option<TurnEvent>)> {
    let row = conversation::find_row(db, scope, id)?;
    if let Some(of_run) = resync_of(db, &row, id, run)? {
        return Ok(of_run);
    }
    let newest = list_events(db, scope, id, row.event_seq, 1)?.pop();
    let mut resync = nothing_written(&row, id);
    if let Some(draft) = draft_of(&row)? {
        let parts = message::streamed(db, row.session, row.draft_seq, &draft.message, draft.attempt)?;
        (resync.sequence, resync.content) = (parts.len() as u64, parts.concat());
        (resync.message_id, resync.attempt) = (Some(draft.message), draft.attempt);
        return Ok((resync, newest));
    }
    let branch = branch::find_by_key(db, row.turn_branch.unwrap_or(row.active_branch))?;
    let last = branch.head.map(|head| message::find_by_key(db, head)).transpose()?.flatten();
    if let Some(last) = last.filter(|last| last.role == Role::Assistant) {
        let whole = message::read_content(db, scope, id, &last.id, 1)?;
        (resync.sequence, resync.attempt) = (whole.next_sequence - 1, whole.attempt);
        (resync.message_id, resync.content, resync.is_complete) = (Some(last.id), whole.content, true);
    }
    Ok((resync, newest))
}
