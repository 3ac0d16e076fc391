//! Calls of tools as rows. What is called, with which arguments, and what a client answered is sealed under the key of the conversation.

use rusqlite::{Connection, OptionalExtension, Row, params};
use serde_json::{Value, json};
use waystone_core::Error;
use waystone_core::api::{ApprovalStatus, ContentPart, ToolCall, ToolOutcome};
use waystone_core::clock::Timestamp;
use waystone_core::id::{SegmentId, SessionId, ToolCallId};
use waystone_core::json::parse_trusted;
use waystone_core::store::{Idempotency, NewToolCall, OpenCall, Scope, Step, ToolChange};
use waystone_core::tools::ToolOutput;

use super::conversation::{self, ConversationRow, operation};
use super::error::{DbResult, unreadable};
use super::log::append_and_publish;
use super::{message, retry};

/// What [`read`] reads, of `tool_call AS t JOIN session AS c`.
const COLUMNS: &str =
    "t.id, unsealed(t.call, 'call', t.id, 'session:' || c.id, c.wrapped_key), t.read_only, t.idempotent, t.by_client,
    t.status, t.requested_at_ms, t.decided_at_ms, t.started_at_ms, t.ended_at_ms, t.outcome, t.message, t.result,
    unsealed(t.answer, 'answer', t.id, 'session:' || c.id, c.wrapped_key)";
const FROM: &str = "FROM tool_call AS t JOIN session AS c ON c.key = t.session";

fn wrong(error: impl std::fmt::Display) -> super::error::DbError {
    unreadable("a call of a tool", error)
}

/// Calls that were kept before their folder was run in that of their conversation.
fn read(db: &Connection, of: &ConversationRow, row: &Row<'_>) -> DbResult<OpenCall> {
    let call: String = row.get(1)?;
    let mut call = parse_trusted(call.as_bytes()).map_err(wrong)?;
    let (status, outcome): (String, Option<String>) = (row.get(5)?, row.get(10)?);
    let time = |at: usize| Ok::<_, rusqlite::Error>(row.get::<_, Option<i64>>(at)?.map(Timestamp::from_ms));
    let approval_status = ApprovalStatus::ALL.into_iter().find(|known| known.as_str() == status);
    let approval_status = approval_status.ok_or_else(|| wrong(status))?;
    let started_at = time(8)?;
    let outcome = match outcome {
        Some(name) => {
            let known = ToolOutcome::ALL.into_iter().find(|known| known.as_str() == name);
            Some(known.ok_or_else(|| wrong(name))?)
        }
        None if approval_status == ApprovalStatus::Pending && started_at.is_some() => Some(ToolOutcome::OutcomeUnknown),
        None => None,
    };
    let (result, result_message_id) = match row.get::<_, Option<i64>>(12)? {
        Some(key) => read_result(db, key)?,
        None => (None, None),
    };
    let answer: Option<String> = row.get(13)?;
    let begun = started_at.filter(|_| outcome == Some(ToolOutcome::OutcomeUnknown));
    let hash = ToolCall::asked_hash(call["hash"].as_str().unwrap_or_default(), begun);
    let call = ToolCall {
        id: row.get::<_, String>(0)?.parse().map_err(wrong)?,
        tool_name: call["tool"].as_str().unwrap_or_default().to_owned(),
        hash,
        workspace_path: call.get("workspace").map_or_else(|| of.config.workspace_path.clone(), path_of),
        edited: call["edited"].as_bool().unwrap_or_default(),
        arguments: call["arguments"].take(),
        approval_status,
        result,
        executed_at: time(9)?,
        outcome,
        message_id: message::id_of(db, row.get(11)?)?,
        result_message_id,
        read_only: row.get(2)?,
        idempotent: row.get(3)?,
        by_client: row.get(4)?,
        requested_at: Timestamp::from_ms(row.get(6)?),
        decided_at: time(7)?,
        started_at,
        warnings: Vec::new(),
    };
    Ok(OpenCall { call, answer: answer.map(|text| read_answer(&text)).transpose()? })
}

fn path_of(workspace: &Value) -> Option<String> {
    workspace.as_str().map(str::to_owned)
}

/// What came of a call, and the message that it is in.
fn read_result(db: &Connection, key: i64) -> DbResult<(Option<Value>, Option<SegmentId>)> {
    let Some(message) = message::find_by_key(db, key)? else { return Ok((None, None)) };
    let content = message.content.into_iter().find_map(|part| match part {
        ContentPart::ToolResult { content, .. } => Some(content),
        _ => None,
    });
    Ok((content, Some(message.id)))
}

fn read_answer(text: &str) -> DbResult<ToolOutput> {
    let mut answer = parse_trusted(text.as_bytes()).map_err(wrong)?;
    Ok(ToolOutput { is_error: answer["is_error"].as_bool().unwrap_or_default(), content: answer["content"].take() })
}

pub(crate) fn find(db: &Connection, scope: &Scope, context: &SessionId, id: &ToolCallId) -> DbResult<ToolCall> {
    let row = conversation::find_row(db, scope, context)?;
    let mut statement = db.prepare_cached(&format!("SELECT {COLUMNS} {FROM} WHERE t.session = ?1 AND t.id = ?2"))?;
    let mut rows = statement.query(params![row.session, id.as_str()])?;
    let missing = || Error::ToolCallNotFound { context: context.clone(), call: id.clone() };
    let OpenCall { call, answer } = read(db, &row, rows.next()?.ok_or_else(missing)?)?;
    Ok(match answer.filter(|_| call.result.is_none()) {
        // Whoever answered was told that it is kept, before the turn takes it.
        Some(answer) => call.answered_by(answer),
        None => call,
    })
}

/// Those that have no result yet, in the order in which they were made.
pub(crate) fn list_open(db: &Connection, scope: &Scope, context: &SessionId) -> DbResult<Vec<OpenCall>> {
    let row = conversation::find_row(db, scope, context)?;
    let mut statement = db.prepare_cached(&format!(
        "SELECT {COLUMNS} {FROM} WHERE t.session = ?1 AND t.outcome IS NULL ORDER BY t.key"
    ))?;
    let mut rows = statement.query(params![row.session])?;
    let mut open = Vec::new();
    while let Some(found) = rows.next()? {
        open.push(read(db, &row, found)?);
    }
    Ok(open)
}

/// Conversations with a call that waits for a decision since before `at`.
pub(crate) fn list_expired(db: &Connection, scope: &Scope, at: Timestamp) -> DbResult<Vec<SessionId>> {
    let mut statement = db.prepare_cached(
        "SELECT DISTINCT c.id FROM tool_call AS t JOIN session AS c ON c.key = t.session
         WHERE c.space = ?1 AND c.archived_at_ms IS NULL AND t.outcome IS NULL AND t.status = 'Pending' AND t.requested_at_ms < ?2
         LIMIT 1000",
    )?;
    let ids = statement.query_map(params![scope.space, at.ms()], |row| row.get::<_, String>(0))?;
    ids.map(|id| id?.parse().map_err(wrong)).collect()
}

/// Carries out what a step changes in calls, after its messages were added.
pub(crate) fn change(db: &Connection, row: &ConversationRow, context: &SessionId, step: &Step) -> DbResult<()> {
    let at = step.at.ms();
    for change in &step.tools {
        match change {
            ToolChange::Add(new) => {
                let first = step.messages.first().ok_or_else(|| wrong("no message calls it"))?;
                let message = message::find_key(db, row.session, context, &first.id)?;
                add(db, row.session, message, new, step.at)?;
            }
            ToolChange::Decide { id, status } => {
                // What is approved anew is begun anew.
                let sql = "UPDATE tool_call SET status = ?3, decided_at_ms = ?4, started_at_ms = iif(?3 = 'Approved', NULL, started_at_ms)
                           WHERE session = ?1 AND id = ?2 AND outcome IS NULL";
                db.prepare_cached(sql)?.execute(params![row.session, id.as_str(), status.as_str(), at])?;
            }
            ToolChange::Edit { id, arguments, hash } => {
                let mut call = find_call(db, row.session, id)?;
                (call["arguments"], call["hash"], call["edited"]) = (arguments.clone(), json!(hash), json!(true));
                let sql =
                    "UPDATE tool_call SET call = (SELECT sealed(?3, 'call', ?2, 'session:' || c.id, c.wrapped_key)
                                                        FROM session AS c WHERE c.key = ?1)
                           WHERE session = ?1 AND id = ?2 AND outcome IS NULL";
                db.prepare_cached(sql)?.execute(params![row.session, id.as_str(), call.to_string()])?;
            }
            ToolChange::Start(id) => {
                let sql = "UPDATE tool_call SET started_at_ms = ?3 WHERE session = ?1 AND id = ?2 AND outcome IS NULL";
                db.prepare_cached(sql)?.execute(params![row.session, id.as_str(), at])?;
            }
            ToolChange::Ask(id) => {
                let sql = "UPDATE tool_call SET status = 'Pending', requested_at_ms = ?3, decided_at_ms = NULL
                           WHERE session = ?1 AND id = ?2 AND outcome IS NULL";
                db.prepare_cached(sql)?.execute(params![row.session, id.as_str(), at])?;
            }
            ToolChange::End { id, outcome, message } => {
                let result = message::find_key(db, row.session, context, message)?;
                let sql = "UPDATE tool_call SET outcome = ?3, ended_at_ms = ?4, result = ?5, answer = NULL
                           WHERE session = ?1 AND id = ?2 AND outcome IS NULL";
                db.prepare_cached(sql)?.execute(params![row.session, id.as_str(), outcome.as_str(), at, result])?;
            }
            ToolChange::Abandon => abandon(db, row.session, step.at)?,
        }
    }
    Ok(())
}

/// Whether a step gives up a call that a client has answered, and was told so, since who takes the step looked.
pub(crate) fn loses_answer(db: &Connection, row: &ConversationRow, step: &Step) -> DbResult<bool> {
    let is_abandoned = step.tools.iter().any(|change| matches!(change, ToolChange::Abandon));
    let is_late = |change: &ToolChange| matches!(change, ToolChange::End { outcome: ToolOutcome::TimedOut, .. });
    if !is_abandoned && !step.tools.iter().any(is_late) {
        return Ok(false);
    }
    let sql = "SELECT id FROM tool_call WHERE session = ?1 AND outcome IS NULL AND answer IS NOT NULL";
    let mut statement = db.prepare_cached(sql)?;
    let answered = statement.query_map(params![row.session], |row| row.get::<_, String>(0))?;
    for id in answered {
        let id = id?;
        let end = step
            .tools
            .iter()
            .find(|change| matches!(change, ToolChange::End { id: ended, .. } if ended.as_str() == id));
        if end.map_or(is_abandoned, is_late) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// No one waits any more for what is still open.
pub(crate) fn abandon(db: &Connection, session: i64, at: Timestamp) -> DbResult<()> {
    // What a client answered was acknowledged: that is what came of it, though no message has it.
    let sql = "UPDATE tool_call SET outcome = iif(answer IS NULL, ?2, 'succeeded'), ended_at_ms = ?3
               WHERE session = ?1 AND outcome IS NULL";
    db.prepare_cached(sql)?.execute(params![session, ToolOutcome::Cancelled.as_str(), at.ms()])?;
    Ok(())
}

fn add(db: &Connection, session: i64, message: i64, new: &NewToolCall, at: Timestamp) -> DbResult<()> {
    let NewToolCall { tool, arguments, hash, workspace_path, .. } = new;
    let call =
        json!({ "tool": tool, "arguments": arguments, "hash": hash, "edited": false, "workspace": workspace_path });
    db.prepare_cached(
        "INSERT INTO tool_call (session, id, message, call, read_only, idempotent, by_client, status, requested_at_ms, decided_at_ms)
         SELECT c.key, ?2, ?3, sealed(?4, 'call', ?2, 'session:' || c.id, c.wrapped_key), ?5, ?6, ?7, ?8, ?9,
                iif(?8 = 'Pending', NULL, ?9)
         FROM session AS c WHERE c.key = ?1",
    )?
    .execute(params![
        session,
        new.id.as_str(),
        message,
        call.to_string(),
        new.is_read_only,
        new.is_idempotent,
        new.is_by_client,
        new.status.as_str(),
        at.ms(),
    ])?;
    Ok(())
}

fn find_call(db: &Connection, session: i64, id: &ToolCallId) -> DbResult<Value> {
    let sql = format!(
        "SELECT unsealed(t.call, 'call', t.id, 'session:' || c.id, c.wrapped_key) {FROM} WHERE t.session = ?1 AND t.id = ?2"
    );
    let call: Option<String> =
        db.prepare_cached(&sql)?.query_row(params![session, id.as_str()], |row| row.get(0)).optional()?;
    parse_trusted(call.unwrap_or_default().as_bytes()).map_err(wrong)
}

const ANSWERED: &str = "tool.answered";

/// Keeps what a client answered; false if its call does not wait for that.
pub(crate) fn answer(
    db: &Connection,
    scope: &Scope,
    context: &SessionId,
    id: &ToolCallId,
    answer: &ToolOutput,
    at: Timestamp,
    idempotency: Option<&Idempotency>,
) -> DbResult<bool> {
    if retry::find(db, scope, ANSWERED, idempotency, at)?.is_some() {
        return Ok(true);
    }
    let row = conversation::find_row(db, scope, context)?;
    let text = json!({ "content": answer.content, "is_error": answer.is_error }).to_string();
    let sql = "UPDATE tool_call SET answer = (SELECT sealed(?3, 'answer', ?2, 'session:' || c.id, c.wrapped_key)
                                              FROM session AS c WHERE c.key = ?1)
               WHERE session = ?1 AND id = ?2 AND outcome IS NULL AND answer IS NULL AND by_client = 1 AND status = 'Approved'";
    if db.prepare_cached(sql)?.execute(params![row.session, id.as_str(), text])? == 0 {
        return Ok(false);
    }
    let payload = json!({ "context_id": context, "project_id": row.project, "tool_call_ids": [id] });
    append_and_publish(db, scope, &operation(context, &row.project, ANSWERED, at, payload))?;
    retry::remember(db, scope, ANSWERED, idempotency, &json!({}), at)?;
    Ok(true)
}
