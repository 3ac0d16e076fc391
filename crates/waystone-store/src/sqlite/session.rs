//! Sessions as rows. A session is made by its first checkpoint.

use rusqlite::{Connection, OptionalExtension, Row, params};
use serde_json::{Value, json};
use waystone_core::Error;
use waystone_core::api::{ListSessions, Origin, Session, SessionPage, UpdateSession};
use waystone_core::canon::Hash;
use waystone_core::clock::Timestamp;
use waystone_core::id::{ProjectId, SessionId};
use waystone_core::store::{NewCheckpoint, Scope};

use super::clock::last_believed;
use super::conversation;
use super::cursor;
use super::error::{DbResult, unreadable};
use super::log::{Operation, append_and_publish, handle, next_row_seq};
use super::seal::session_column;

/// What a save needs to know of its session.
pub(crate) struct SessionRow {
    pub(crate) key: i64,
    pub(crate) project: String,
    pub(crate) head: Option<i64>,
    pub(crate) checkpoint_count: u64,
    pub(crate) size_bytes: u64,
    pub(crate) is_archived: bool,
}

pub(crate) fn find_row(db: &Connection, scope: &Scope, id: &SessionId) -> DbResult<Option<SessionRow>> {
    Ok(db
        .prepare_cached(
            "SELECT key, project, head, checkpoint_count, size_bytes, archived_at_ms
             FROM session WHERE space = ?1 AND id = ?2",
        )?
        .query_row(params![scope.space, id.as_str()], |row| {
            Ok(SessionRow {
                key: row.get(0)?,
                project: row.get(1)?,
                head: row.get(2)?,
                checkpoint_count: row.get(3)?,
                size_bytes: row.get(4)?,
                is_archived: row.get::<_, Option<i64>>(5)?.is_some(),
            })
        })
        .optional()?)
}

/// Adds the session that `new` is the first checkpoint of.
pub(crate) fn add(db: &Connection, scope: &Scope, new: &NewCheckpoint) -> DbResult<SessionRow> {
    let workflow = new.workflow.as_ref().map(|id| id.as_str());
    let key = insert(db, scope, (&new.session, &new.project), workflow, new.correlation, new.at)?;
    let project = new.project.as_str().to_owned();
    Ok(SessionRow { key, project, head: None, checkpoint_count: 0, size_bytes: 0, is_archived: false })
}

/// Adds a session that has no checkpoint.
pub(crate) fn add_bare(
    db: &Connection,
    scope: &Scope,
    id: &SessionId,
    project: &ProjectId,
    at: Timestamp,
) -> DbResult<i64> {
    insert(db, scope, (id, project), None, Hash::of(&[]), at)
}

fn insert(
    db: &Connection,
    scope: &Scope,
    (id, project): (&SessionId, &ProjectId),
    workflow: Option<&str>,
    correlation: Hash,
    at: Timestamp,
) -> DbResult<i64> {
    let seq = next_row_seq(db, scope)?;
    db.prepare_cached(
        "INSERT INTO session (space, id, seq, accessed_seq, project, name, tags, workflow, correlation, created_at_ms,
                              last_accessed_at_ms, head, checkpoint_count, size_bytes, critical_keys, context_rules, wrapped_key)
         SELECT ?1, ?2, ?3, ?3, ?4, NULL, sealed('[]', 'tags', ?2, owner, key), ?5, sealed(?6, 'correlation', ?2, owner, key), ?7, ?8,
                NULL, 0, 0, sealed('[]', 'critical_keys', ?2, owner, key), sealed('[]', 'context_rules', ?2, owner, key), key
         FROM (SELECT 'session:' || ?2 AS owner, new_key('session:' || ?2) AS key LIMIT 1)",
    )?
    .execute(params![
        scope.space,
        id.as_str(),
        seq,
        project.as_str(),
        workflow,
        correlation.0,
        at.ms(),
        last_believed(db, at)?,
    ])?;
    let key = db.last_insert_rowid();
    db.prepare_cached("UPDATE space SET session_count = session_count + 1 WHERE space = ?1")?
        .execute(params![scope.space])?;
    Ok(key)
}

/// The session was used: it moves to the front of the list.
pub(crate) fn touch(db: &Connection, scope: &Scope, key: i64, at: Timestamp) -> DbResult<()> {
    let seq = next_row_seq(db, scope)?;
    db.prepare_cached(
        "UPDATE session SET accessed_seq = ?2, last_accessed_at_ms = max(last_accessed_at_ms, ?3) WHERE key = ?1",
    )?
    .execute(params![key, seq, last_believed(db, at)?])?;
    Ok(())
}

pub(crate) const COLUMNS: &str = concat!(
    "session.id, project, ",
    session_column!("session", "name", "session"),
    ", created_at_ms, last_accessed_at_ms, ",
    session_column!("session", "tags", "session"),
    ", workflow, size_bytes, checkpoint_count, accessed_seq, ",
    session_column!("session", "critical_keys", "session"),
    ", ",
    session_column!("session", "context_rules", "session"),
    ", session.imported, EXISTS (SELECT 1 FROM conversation AS v WHERE v.session = session.key)"
);

pub(crate) fn read(row: &Row<'_>) -> DbResult<Session> {
    let (id, project, tags): (String, String, String) = (row.get(0)?, row.get(1)?, row.get(5)?);
    let workflow: Option<String> = row.get(6)?;
    Ok(Session {
        id: id.parse().map_err(|error| unreadable("a session's id", error))?,
        project_id: project.parse().map_err(|error| unreadable("a session's project", error))?,
        name: row.get(2)?,
        created_at: Timestamp::from_ms(row.get(3)?),
        last_accessed_at: Timestamp::from_ms(row.get(4)?),
        // What is said of a session does not keep it from being found; `doctor` puts it right.
        tags: serde_json::from_str(&tags).unwrap_or_default(),
        // Agents mark keys and set rules.
        origin: Origin::Agent.shown(row.get::<_, i64>(12).unwrap_or(1) != 0),
        conversation: row.get(13)?,
        workflow_id: workflow.and_then(|id| id.parse().ok()),
        total_size_bytes: row.get(7)?,
        checkpoint_count: row.get(8)?,
        critical_keys: serde_json::from_str(&row.get::<_, String>(10)?).unwrap_or_default(),
        context_rules: serde_json::from_str(&row.get::<_, String>(11)?).unwrap_or_default(),
        warnings: Vec::new(),
    })
}

pub(crate) fn find(db: &Connection, scope: &Scope, id: &SessionId) -> DbResult<Session> {
    let sql = format!("SELECT {COLUMNS} FROM session WHERE space = ?1 AND id = ?2 AND archived_at_ms IS NULL");
    let mut statement = db.prepare_cached(&sql)?;
    let mut rows = statement.query(params![scope.space, id.as_str()])?;
    let row = rows.next()?.ok_or_else(|| Error::SessionNotFound(id.clone()))?;
    read(row)
}

pub(crate) fn list(db: &Connection, scope: &Scope, filter: &ListSessions) -> DbResult<SessionPage> {
    let state = match filter.deleted {
        // One that is removed and waits for its files to follow has none.
        true => {
            "archived_at_ms IS NOT NULL AND (EXISTS (SELECT 1 FROM checkpoint WHERE session = session.key)
                 OR EXISTS (SELECT 1 FROM conversation WHERE session = session.key))"
        }
        false => "archived_at_ms IS NULL",
    };
    let sql = format!(
        "SELECT {COLUMNS} FROM session
         WHERE space = ?1 AND accessed_seq < ?2 AND {state} AND (?3 IS NULL OR project = ?3)
         ORDER BY accessed_seq DESC LIMIT ?4"
    );
    let before = cursor::read(filter.cursor.as_deref())?;
    let project = filter.project_id.as_ref().map(|id| id.as_str());
    let mut statement = db.prepare_cached(&sql)?;
    let mut rows = statement.query(params![scope.space, before, project, filter.limit + 1])?;
    let (mut sessions, mut last_seq, mut has_more) = (Vec::new(), None, false);
    while let Some(row) = rows.next()? {
        has_more = sessions.len() == filter.limit as usize;
        if !has_more {
            last_seq = Some(row.get(9)?);
            sessions.push(read(row)?);
        }
    }
    let next_cursor = last_seq.filter(|_| has_more).map(cursor::write);
    Ok(SessionPage { sessions, has_more, next_cursor, warnings: Vec::new() })
}

pub(crate) fn update(
    db: &Connection,
    scope: &Scope,
    id: &SessionId,
    change: &UpdateSession,
    at: Timestamp,
) -> DbResult<Session> {
    let before = find(db, scope, id)?;
    let name = change.name.clone().or_else(|| before.name.clone()).filter(|name| !name.is_empty());
    let tags = change.tags.as_ref().unwrap_or(&before.tags);
    if (&name, tags) == (&before.name, &before.tags) {
        return Ok(before);
    }
    db.prepare_cached(
        "UPDATE session SET name = sealed(?3, 'name', id, 'session:' || id, wrapped_key),
                            tags = sealed(?4, 'tags', id, 'session:' || id, wrapped_key)
         WHERE space = ?1 AND id = ?2",
    )?
    .execute(params![scope.space, id.as_str(), name, json!(tags).to_string()])?;
    let payload = json!({
        "sessionId": id, "projectId": before.project_id,
        "name": name, "tags": tags, "nameBefore": before.name, "tagsBefore": before.tags,
    });
    let seq = append_and_publish(db, scope, &operation(&before, "session.updated", at, payload))?;
    mark_changed(db, scope, id, seq)?;
    find(db, scope, id)
}

/// The session's own fields changed: the file of its newest group holds the copy of them that counts.
pub(crate) fn mark_changed(db: &Connection, scope: &Scope, id: &SessionId, seq: i64) -> DbResult<()> {
    db.prepare_cached(
        "UPDATE checkpoint_group SET changed_seq = ?3
         WHERE key = (SELECT max(g.key) FROM checkpoint_group AS g JOIN session AS s ON s.key = g.session
                      WHERE s.space = ?1 AND s.id = ?2)",
    )?
    .execute(params![scope.space, id.as_str(), seq])?;
    Ok(())
}

/// The session is gone, and the file of each of its groups is to say so: one that is damaged must not bring back the others. Returns the
/// newest, whose file counts.
fn mark_all_changed(db: &Connection, scope: &Scope, id: &SessionId, seq: i64) -> DbResult<Option<i64>> {
    let session: i64 = db
        .prepare_cached("SELECT key FROM session WHERE space = ?1 AND id = ?2")?
        .query_row(params![scope.space, id.as_str()], |row| row.get(0))?;
    db.prepare_cached("UPDATE checkpoint_group SET changed_seq = ?2 WHERE session = ?1")?
        .execute(params![session, seq])?;
    Ok(db
        .prepare_cached("SELECT max(key) FROM checkpoint_group WHERE session = ?1")?
        .query_row(params![session], |row| row.get(0))?)
}

/// Hides a session. Returns it with the group whose file is to say so at once.
pub(crate) fn archive(
    db: &Connection,
    scope: &Scope,
    id: &SessionId,
    at: Timestamp,
) -> DbResult<(Session, Option<i64>)> {
    let session = find(db, scope, id)?;
    let payload = json!({ "sessionId": id, "projectId": session.project_id });
    let seq = append_and_publish(db, scope, &operation(&session, "session.deleted", at, payload))?;
    db.prepare_cached("UPDATE session SET archived_at_ms = ?3, archived_seq = ?4 WHERE space = ?1 AND id = ?2")?
        .execute(params![scope.space, id.as_str(), last_believed(db, at)?, seq])?;
    db.prepare_cached(
        "UPDATE space SET session_count = session_count - 1, checkpoint_count = checkpoint_count - ?2 WHERE space = ?1",
    )?
    .execute(params![scope.space, session.checkpoint_count])?;
    let row = find_row(db, scope, id)?.ok_or_else(|| Error::SessionNotFound(id.clone()))?;
    conversation::rest(db, row.key, at)?;
    let group = mark_all_changed(db, scope, id, seq)?;
    Ok((session, group))
}

/// The ids of all checkpoints of a session, and its own if it is a conversation: by which copies of it are known.
pub(crate) fn list_ids(db: &Connection, scope: &Scope, id: &SessionId) -> DbResult<Vec<String>> {
    let mut statement = db.prepare_cached(
        "SELECT c.id FROM checkpoint AS c JOIN session AS s ON s.key = c.session WHERE s.space = ?1 AND s.id = ?2
         UNION ALL SELECT s.id FROM conversation AS c JOIN session AS s ON s.key = c.session WHERE s.space = ?1 AND s.id = ?2",
    )?;
    let ids = statement.query_map(params![scope.space, id.as_str()], |row| row.get(0))?;
    Ok(ids.collect::<Result<_, _>>()?)
}

/// Lets a deleted session be listed again, with the checkpoints that it had. One that is being removed has none.
pub(crate) fn restore(db: &Connection, scope: &Scope, id: &SessionId, at: Timestamp) -> DbResult<Session> {
    let row = find_row(db, scope, id)?.filter(|row| row.is_archived);
    let row = row.ok_or_else(|| Error::SessionNotFound(id.clone()))?;
    let has_checkpoint = db.prepare_cached("SELECT 1 FROM checkpoint WHERE session = ?1")?.exists(params![row.key])?;
    if !has_checkpoint && !conversation::is_one(db, row.key)? {
        return Err(Error::SessionNotFound(id.clone()).into());
    }
    db.prepare_cached("UPDATE session SET archived_at_ms = NULL, archived_seq = NULL WHERE key = ?1")?
        .execute(params![row.key])?;
    db.prepare_cached(
        "UPDATE space SET session_count = session_count + 1, checkpoint_count = checkpoint_count + ?2 WHERE space = ?1",
    )?
    .execute(params![scope.space, row.checkpoint_count])?;
    touch(db, scope, row.key, at)?;
    let session = find(db, scope, id)?;
    let payload = json!({ "sessionId": id, "projectId": session.project_id });
    let seq = append_and_publish(db, scope, &operation(&session, "session.restored", at, payload))?;
    mark_all_changed(db, scope, id, seq)?;
    Ok(session)
}

pub(crate) fn operation<'a>(session: &'a Session, kind: &'a str, at: Timestamp, payload: Value) -> Operation<'a> {
    let subject = vec![handle("session", session.id.as_str())];
    Operation { at, kind, project: session.project_id.as_str(), subject, payload }
}
