//! Marks and rules: what a session's agents say of its keys, in the session's row.

use rusqlite::{Connection, OptionalExtension, params};
use serde_json::json;
use waystone_core::Error;
use waystone_core::api::{ContextRule, MarkCritical};
use waystone_core::clock::Timestamp;
use waystone_core::id::{ProjectId, SessionId};
use waystone_core::store::Scope;

use super::error::{DbResult, unreadable};
use super::log::append_and_publish;
use super::seal::session_column;
use super::session::{self, mark_changed, operation};

/// How many operations are looked through for one of the same actor.
const LOOK_BACK: i64 = 10_000;

/// Marks a key. Nothing happens if it is marked.
pub(crate) fn add(db: &Connection, scope: &Scope, id: &SessionId, key: &str, at: Timestamp) -> DbResult<()> {
    let session = session::find(db, scope, id)?;
    let mut keys = session.critical_keys.clone();
    if keys.iter().any(|marked| marked == key) {
        return Ok(());
    }
    if keys.len() >= MarkCritical::MARKS_MAX {
        let message = format!("session `{id}` has {} marks, no more are kept", MarkCritical::MARKS_MAX);
        return Err(Error::InvalidInput(message).into());
    }
    keys.push(key.to_owned());
    write_marks(db, scope, id, &keys)?;
    let payload = json!({ "sessionId": id, "projectId": session.project_id, "contextKey": key });
    let seq = append_and_publish(db, scope, &operation(&session, "session.marked", at, payload))?;
    mark_changed(db, scope, id, seq)
}

/// Takes a mark away. False if there is none.
pub(crate) fn remove(db: &Connection, scope: &Scope, id: &SessionId, key: &str, at: Timestamp) -> DbResult<bool> {
    let session = session::find(db, scope, id)?;
    let keys: Vec<&String> = session.critical_keys.iter().filter(|marked| *marked != key).collect();
    if keys.len() == session.critical_keys.len() {
        return Ok(false);
    }
    write_marks(db, scope, id, &keys)?;
    let payload = json!({ "sessionId": id, "projectId": session.project_id, "contextKey": key });
    let seq = append_and_publish(db, scope, &operation(&session, "session.unmarked", at, payload))?;
    mark_changed(db, scope, id, seq)?;
    Ok(true)
}

fn write_marks(db: &Connection, scope: &Scope, id: &SessionId, keys: &[impl serde::Serialize]) -> DbResult<()> {
    db.prepare_cached(
        "UPDATE session SET critical_keys = sealed(?3, 'critical_keys', id, 'session:' || id, wrapped_key)
         WHERE space = ?1 AND id = ?2",
    )?
    .execute(params![scope.space, id.as_str(), json!(keys).to_string()])?;
    Ok(())
}

/// Gives the session its rules, unless it has the same.
pub(crate) fn set_rules(
    db: &Connection,
    scope: &Scope,
    id: &SessionId,
    rules: &[ContextRule],
    at: Timestamp,
) -> DbResult<()> {
    let session = session::find(db, scope, id)?;
    if session.context_rules == rules {
        return Ok(());
    }
    db.prepare_cached(
        "UPDATE session SET context_rules = sealed(?3, 'context_rules', id, 'session:' || id, wrapped_key)
         WHERE space = ?1 AND id = ?2",
    )?
    .execute(params![scope.space, id.as_str(), json!(rules).to_string()])?;
    let payload = json!({ "sessionId": id, "projectId": session.project_id, "contextRules": rules });
    let seq = append_and_publish(db, scope, &operation(&session, "session.ruled", at, payload))?;
    mark_changed(db, scope, id, seq)
}

/// What is said of a session's keys, whether it is deleted or not.
pub(crate) fn find_rules(db: &Connection, scope: &Scope, id: &SessionId) -> DbResult<(Vec<String>, Vec<ContextRule>)> {
    let found: Option<(String, String)> = db
        .prepare_cached(concat!(
            "SELECT ",
            session_column!("s", "critical_keys", "s"),
            ", ",
            session_column!("s", "context_rules", "s"),
            " FROM session AS s WHERE space = ?1 AND id = ?2"
        ))?
        .query_row(params![scope.space, id.as_str()], |row| Ok((row.get(0)?, row.get(1)?)))
        .optional()?;
    let (keys, rules) = found.ok_or_else(|| Error::SessionNotFound(id.clone()))?;
    // A view that does not know of a mark would shorten what must not be.
    let keys = serde_json::from_str(&keys).map_err(|error| unreadable("a session's marks", error))?;
    let rules = serde_json::from_str(&rules).map_err(|error| unreadable("a session's rules", error))?;
    Ok((keys, rules))
}

/// The session that the actor last saved in the project, if that was not too long ago.
pub(crate) fn find_own_session(db: &Connection, scope: &Scope, project: &ProjectId) -> DbResult<Option<SessionId>> {
    let found: Option<String> = db
        .prepare_cached(
            "SELECT s.id FROM operation AS o JOIN session AS s ON s.space = o.space AND s.id = unsealed(o.payload, 'operation', o.seq) ->> '$.sessionId'
             WHERE o.space = ?1 AND o.seq > (SELECT operation_seq FROM space WHERE space = ?1) - ?4
                 AND o.kind = 'checkpoint.saved' AND o.project = ?2 AND o.actor = ?3 AND s.archived_at_ms IS NULL
             ORDER BY o.seq DESC LIMIT 1",
        )?
        .query_row(params![scope.space, project.as_str(), scope.actor, LOOK_BACK], |row| row.get(0))
        .optional()?;
    found.map(|id| id.parse().map_err(|error| unreadable("a session's id", error))).transpose()
}
