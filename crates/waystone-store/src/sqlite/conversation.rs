//! Conversations as rows: each is a session too, and its messages are segments of a task of its own.

mod remove;
mod store;

use std::collections::BTreeMap;

use rusqlite::{Connection, Row, params};
use serde_json::{Value, json};
use waystone_core::api::{ChatConfig, Context, ContextPage, ContextState, ListContexts, TurnError};
use waystone_core::clock::{Clock, Timestamp};
use waystone_core::id::{ProjectId, SessionId};
use waystone_core::store::{NewConversation, Scope};
use waystone_core::{Error, MAIN};

use super::cursor;
use super::error::{DbResult, unreadable};
use super::log::{Operation, append_and_publish, handle, next_row_seq};
use super::seal::SEGMENT_TEXT;
use super::segment::{ensure_project, ensure_task};
use super::{branch, message, retry, session, tool_call};

pub(crate) use remove::{find_session, remove};

/// What is needed of a conversation to change it.
#[derive(Debug)]
pub(crate) struct ConversationRow {
    pub(crate) session: i64,
    pub(crate) project_key: i64,
    pub(crate) project: ProjectId,
    pub(crate) task: i64,
    pub(crate) active_branch: i64,
    pub(crate) turn_branch: Option<i64>,
    pub(crate) state: ContextState,
    pub(crate) error: Option<TurnError>,
    pub(crate) run: Option<String>,
    pub(crate) draft: Option<String>,
    pub(crate) attempt: u64,
    pub(crate) draft_seq: i64,
    pub(crate) failures: u64,
    pub(crate) event_seq: i64,
    pub(crate) config: ChatConfig,
}

/// From `conversation AS c JOIN session AS s`.
const FROM: &str = "FROM conversation AS c JOIN session AS s ON s.key = c.session";
const CONFIG: &str = "unsealed(c.config, 'config', s.id, 'session:' || s.id, s.wrapped_key)";
const ERROR: &str = "unsealed(c.error, 'error', s.id, 'session:' || s.id, s.wrapped_key)";

pub(crate) fn find_row(db: &Connection, scope: &Scope, id: &SessionId) -> DbResult<ConversationRow> {
    let sql = format!(
        "SELECT c.session, c.project, s.project, c.task, c.active_branch, c.turn_branch, c.state, {ERROR}, c.run, c.draft, c.attempt,
                c.draft_seq, c.failures, c.event_seq, {CONFIG}
         {FROM} WHERE s.space = ?1 AND s.id = ?2 AND s.archived_at_ms IS NULL"
    );
    let mut statement = db.prepare_cached(&sql)?;
    let mut rows = statement.query(params![scope.space, id.as_str()])?;
    let row = rows.next()?.ok_or_else(|| Error::ContextNotFound(id.clone()))?;
    Ok(ConversationRow {
        session: row.get(0)?,
        project_key: row.get(1)?,
        project: row.get::<_, String>(2)?.parse().map_err(|error| unreadable("a project's id", error))?,
        task: row.get(3)?,
        active_branch: row.get(4)?,
        turn_branch: row.get(5)?,
        state: read_state(row, 6)?,
        error: read_error(row, 7)?,
        run: row.get(8)?,
        draft: row.get(9)?,
        attempt: row.get(10)?,
        draft_seq: row.get(11)?,
        failures: row.get(12)?,
        event_seq: row.get(13)?,
        config: read_config(row, 14)?,
    })
}

fn read_state(row: &Row<'_>, at: usize) -> DbResult<ContextState> {
    let name: String = row.get(at)?;
    let found = ContextState::ALL.into_iter().find(|state| state.as_str() == name);
    found.ok_or_else(|| unreadable("a conversation's state", name))
}

fn read_error(row: &Row<'_>, at: usize) -> DbResult<Option<TurnError>> {
    let text: Option<String> = row.get(at)?;
    text.map(|text| serde_json::from_str(&text).map_err(|error| unreadable("a turn's error", error))).transpose()
}

fn read_config(row: &Row<'_>, at: usize) -> DbResult<ChatConfig> {
    let text: String = row.get(at)?;
    serde_json::from_str(&text).map_err(|error| unreadable("a conversation's configuration", error))
}

/// So much of a first message is kept for lists.
const BEGINNING_CHARS: usize = 400;

const CREATED: &str = "context.created";

pub(crate) fn add(
    db: &Connection,
    scope: &Scope,
    clock: &dyn Clock,
    new: &NewConversation,
) -> DbResult<(SessionId, bool)> {
    if let Some(first) = retry::find(db, scope, CREATED, new.idempotency.as_ref(), new.at)? {
        let id = first["context_id"].as_str().unwrap_or_default();
        return Ok((id.parse().map_err(|error| unreadable("a first answer", error))?, true));
    }
    let parent = new.parent.as_ref().map(|id| find_row(db, scope, id)).transpose()?;
    let session = session::add_bare(db, scope, &new.id, &new.project, new.at)?;
    let project = ensure_project(db, scope, &new.project, new.at)?;
    let task_id = new.id.as_str().parse().map_err(|error| unreadable("an id", error))?;
    let task = ensure_task(db, scope, &project, &task_id, new.at)?;
    db.prepare_cached(
        "INSERT INTO conversation (session, space, parent, project, task, config, state, attempt, draft_seq, failures, event_seq,
                                   updated_at_ms, updated_seq)
         SELECT s.key, ?2, ?3, ?4, ?5, sealed(?6, 'config', s.id, 'session:' || s.id, s.wrapped_key), ?7, 0, 0, 0, 0, ?8, ?9
         FROM session AS s WHERE s.key = ?1",
    )?
    .execute(params![
        session,
        scope.space,
        new.parent.as_ref().map(|id| id.as_str()),
        project.key,
        task,
        json!(new.config).to_string(),
        ContextState::Idle.as_str(),
        new.at.ms(),
        next_row_seq(db, scope)?,
    ])?;
    let main = branch::insert(db, session, MAIN, None, new.at)?;
    set_active(db, session, main)?;
    let payload = json!({ "context_id": new.id, "project_id": new.project, "parent_id": new.parent });
    let seq = append_and_publish(db, scope, &operation(&new.id, &new.project, CREATED, new.at, payload))?;
    if let Some(parent) = parent {
        let row = find_row(db, scope, &new.id)?;
        message::copy_branch(db, scope, clock, &parent, (&row, main), (seq, new))?;
    }
    retry::remember(db, scope, CREATED, new.idempotency.as_ref(), &json!({ "context_id": new.id }), new.at)?;
    Ok((new.id.clone(), false))
}

pub(crate) fn operation<'a>(
    id: &SessionId,
    project: &'a ProjectId,
    kind: &'a str,
    at: Timestamp,
    payload: Value,
) -> Operation<'a> {
    Operation { at, kind, project: project.as_str(), subject: vec![handle("session", id.as_str())], payload }
}

pub(crate) fn set_active(db: &Connection, session: i64, branch: i64) -> DbResult<()> {
    db.prepare_cached("UPDATE conversation SET active_branch = ?2 WHERE session = ?1")?
        .execute(params![session, branch])?;
    Ok(())
}

/// The conversation was used: it moves to the front of the lists.
pub(crate) fn touch(db: &Connection, scope: &Scope, session: i64, at: Timestamp) -> DbResult<()> {
    db.prepare_cached(
        "UPDATE conversation SET updated_at_ms = max(updated_at_ms, ?2), updated_seq = ?3 WHERE session = ?1",
    )?
    .execute(params![session, at.ms(), next_row_seq(db, scope)?])?;
    session::touch(db, scope, session, at)
}

/// What [`read`] reads.
fn columns() -> String {
    format!(
        "s.id, c.parent, s.project, {CONFIG}, (SELECT unsealed(b.name, 'branch', 'session:' || s.id, 'session:' || s.id, s.wrapped_key)
             FROM branch AS b WHERE b.key = c.active_branch), c.state, {ERROR}, s.created_at_ms, c.updated_at_ms, c.updated_seq, c.session"
    )
}

/// Keeps the beginning of what a user says first.
pub(crate) fn begin_with(db: &Connection, session: i64, text: &str) -> DbResult<()> {
    let beginning: String = text.chars().take(BEGINNING_CHARS).collect();
    db.prepare_cached(
        "UPDATE conversation SET beginning =
             (SELECT sealed(?2, 'beginning', s.id, 'session:' || s.id, s.wrapped_key) FROM session AS s WHERE s.key = ?1)
         WHERE session = ?1 AND beginning IS NULL",
    )?
    .execute(params![session, beginning])?;
    Ok(())
}

/// The beginning of what a user said first in a conversation. Only where that was said before it was kept a message is read.
fn beginning() -> String {
    format!(
        "coalesce(unsealed(c.beginning, 'beginning', s.id, 'session:' || s.id, s.wrapped_key),
         (SELECT substr({SEGMENT_TEXT}, 1, {BEGINNING_CHARS}) FROM message AS m JOIN segment AS s ON s.key = m.segment
             JOIN segment_text AS x ON x.segment = m.segment
             WHERE m.session = c.session AND m.role = 'user' AND m.type = 'text' ORDER BY m.segment LIMIT 1))"
    )
}

fn read(row: &Row<'_>) -> DbResult<Context> {
    let wrong = |error: String| unreadable("a conversation", error);
    Ok(Context {
        id: row.get::<_, String>(0)?.parse().map_err(wrong)?,
        parent_id: row.get::<_, Option<String>>(1)?.and_then(|id| id.parse().ok()),
        project_id: row.get::<_, String>(2)?.parse().map_err(wrong)?,
        title: None,
        config: read_config(row, 3)?,
        message_pool: None,
        branches: None,
        active_branch_name: row.get(4)?,
        current_state: read_state(row, 5)?,
        error: read_error(row, 6)?,
        created_at: Timestamp::from_ms(row.get(7)?),
        updated_at: Timestamp::from_ms(row.get(8)?),
        warnings: Vec::new(),
    })
}

pub(crate) fn find(db: &Connection, scope: &Scope, id: &SessionId, with_messages: bool) -> DbResult<Context> {
    let sql = format!("SELECT {} {FROM} WHERE s.space = ?1 AND s.id = ?2 AND s.archived_at_ms IS NULL", columns());
    let mut statement = db.prepare_cached(&sql)?;
    let mut rows = statement.query(params![scope.space, id.as_str()])?;
    let row = rows.next()?.ok_or_else(|| Error::ContextNotFound(id.clone()))?;
    let session: i64 = row.get(10)?;
    let branches = branch::list(db, session)?;
    let message_pool = match with_messages {
        true => {
            let all = message::list_all(db, session)?;
            Some(all.into_iter().map(|message| (message.id.to_string(), message.into())).collect())
        }
        false => None,
    };
    let branches: BTreeMap<_, _> = branches.into_iter().map(|branch| (branch.name.clone(), branch)).collect();
    Ok(Context { message_pool, branches: Some(branches), ..read(row)? })
}

pub(crate) fn list(db: &Connection, scope: &Scope, filter: &ListContexts) -> DbResult<ContextPage> {
    let sql = format!(
        "SELECT {}, {} {FROM} WHERE c.space = ?1 AND c.updated_seq < ?2 AND s.archived_at_ms IS NULL
             AND (?3 IS NULL OR s.project = ?3) AND (?4 IS NULL OR c.state = ?4)
         ORDER BY c.updated_seq DESC LIMIT ?5",
        columns(),
        beginning()
    );
    let before = cursor::read(filter.cursor.as_deref())?;
    let project = filter.project_id.as_ref().map(|id| id.as_str());
    let state = filter.state.map(ContextState::as_str);
    let mut statement = db.prepare_cached(&sql)?;
    let mut rows = statement.query(params![scope.space, before, project, state, filter.limit + 1])?;
    let (mut contexts, mut last, mut has_more) = (Vec::new(), None, false);
    while let Some(row) = rows.next()? {
        has_more = contexts.len() == filter.limit as usize;
        if !has_more {
            last = Some(row.get(9)?);
            contexts.push(Context { title: row.get(11)?, ..read(row)? });
        }
    }
    let next_cursor = last.filter(|_| has_more).map(cursor::write);
    Ok(ContextPage { contexts, next_cursor, warnings: Vec::new() })
}

pub(crate) fn configure(
    db: &Connection,
    scope: &Scope,
    id: &SessionId,
    before: &ChatConfig,
    config: &ChatConfig,
    at: Timestamp,
) -> DbResult<bool> {
    let row = find_row(db, scope, id)?;
    if row.config != *before {
        return Ok(false);
    }
    if before == config {
        return Ok(true);
    }
    db.prepare_cached(
        "UPDATE conversation SET config = (SELECT sealed(?2, 'config', s.id, 'session:' || s.id, s.wrapped_key) FROM session AS s
                                           WHERE s.key = ?1) WHERE session = ?1",
    )?
    .execute(params![row.session, json!(config).to_string()])?;
    let payload = json!({ "context_id": id, "project_id": row.project });
    append_and_publish(db, scope, &operation(id, &row.project, "context.updated", at, payload))?;
    touch(db, scope, row.session, at)?;
    Ok(true)
}

/// Whether a session is a conversation.
pub(crate) fn is_one(db: &Connection, session: i64) -> DbResult<bool> {
    Ok(db.prepare_cached("SELECT 1 FROM conversation WHERE session = ?1")?.exists(params![session])?)
}

/// No turn of a conversation goes on whose session is deleted.
pub(crate) fn rest(db: &Connection, session: i64, at: Timestamp) -> DbResult<()> {
    tool_call::abandon(db, session, at)?;
    db.prepare_cached(
        "UPDATE conversation SET state = 'Idle', run = NULL, owner = NULL, draft = NULL, error = NULL
         WHERE session = ?1 AND state NOT IN ('Idle', 'PermanentFailure')",
    )?
    .execute(params![session])?;
    Ok(())
}
