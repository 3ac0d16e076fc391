//! Checkpoints as rows: adding one with all its tests in one transaction, and finding it again. Lists are in
//! [`list`](self::list).

mod list;

use rusqlite::{Connection, OptionalExtension, Row, params};
use serde_json::{Map, Value, json};
use waystone_core::Error;
use waystone_core::api::{Checkpoint, Metadata};
use waystone_core::canon::Hash;
use waystone_core::clock::Timestamp;
use waystone_core::id::CheckpointId;
use waystone_core::pack::Packed;
use waystone_core::store::{Added, KEY_LIFE_MS, NewCheckpoint, Scope, StoredCheckpoint, Wanted};

use super::error::{DbError, DbResult, unreadable};
use super::log::{Operation, append, append_and_publish, handle, next_row_seq};
use super::session::{self, SessionRow};
use super::writer::Access;
pub(crate) use list::list;

const SAVED: &str = "checkpoint.saved";
const GROUP_CHECKPOINTS_MAX: u64 = 32;
const GROUP_RAW_BYTES_MAX: u64 = 8 * 1024 * 1024;

/// Adds `new` to its session. The tests come in this order: retry, project, head, unchanged, parent, quota.
pub(crate) fn add(db: &Connection, scope: &Scope, new: &NewCheckpoint) -> DbResult<Added> {
    if let Some(first) = replay(db, scope, new)? {
        return Ok(first);
    }
    let session = session::find_row(db, scope, &new.session)?;
    if let Some(session) = &session {
        check_session(session, new)?;
    }
    let head = session.as_ref().and_then(|session| session.head).map(|key| find_by_key(db, key)).transpose()?;
    check_head(head.as_ref(), new)?;
    if let Some(head) = head
        && !new.force
        && head.context_hash == new.context_hash.to_string()
    {
        remember(db, scope, new, &head.checkpoint_id, false)?;
        return Ok(Added::Unchanged(head));
    }
    let session = session.map_or_else(|| session::add(db, scope, new), Ok)?;
    let parent = match &new.parent {
        Some(parent) => Some(find_key_in(db, scope, session.key, parent)?),
        None => session.head,
    };
    check_quota(db, scope, &session, new)?;
    let key = insert(db, scope, &session, parent, new)?;
    prune(db, scope, &session, key, new)?;
    remember(db, scope, new, &new.id, true)?;
    Ok(Added::New(find_by_key(db, key)?))
}

fn check_session(session: &SessionRow, new: &NewCheckpoint) -> DbResult<()> {
    let conflict = |message: String, details: Value| {
        let hint = "save into a session of your own";
        Err(DbError::from(Error::Conflict { message, details, hint }))
    };
    if session.is_archived {
        return conflict(
            format!("session `{}` was deleted; save under another session id", new.session),
            json!({ "sessionId": new.session }),
        );
    }
    if new.project_named && session.project != new.project.as_str() {
        return conflict(
            format!("session `{}` belongs to project `{}`, not `{}`", new.session, session.project, new.project),
            json!({ "projectId": session.project }),
        );
    }
    Ok(())
}

fn check_head(head: Option<&Checkpoint>, new: &NewCheckpoint) -> DbResult<()> {
    let Some(expected) = &new.expected_head else { return Ok(()) };
    let actual = head.map(|head| &head.checkpoint_id);
    if actual == Some(expected) {
        return Ok(());
    }
    let message = match actual {
        Some(actual) => format!("the newest checkpoint is `{actual}`, not `{expected}`"),
        None => format!("session `{}` has no checkpoint, so `{expected}` is not its newest", new.session),
    };
    let details = json!({ "actualCheckpointId": actual, "expectedCheckpointId": expected });
    let hint = "load the newest checkpoint, reconcile, and save again";
    Err(Error::Conflict { message, details, hint }.into())
}

fn check_quota(db: &Connection, scope: &Scope, session: &SessionRow, new: &NewCheckpoint) -> DbResult<()> {
    let size = new.packed.bytes.len() as u64;
    let total: u64 = db
        .prepare_cached("SELECT size_bytes FROM space WHERE space = ?1")?
        .query_row(params![scope.space], |row| row.get(0))?;
    let exceeded = |message: String, setting| Err(Error::QuotaExceeded { message, setting }.into());
    if session.size_bytes + size > new.session_bytes_max {
        let (used, max) = (session.size_bytes, new.session_bytes_max);
        return exceeded(
            format!("the session has {used} bytes, {size} more would exceed {max} (WAYSTONE_MAX_SESSION_BYTES)"),
            "MAX_SESSION_BYTES",
        );
    }
    if total + size > new.total_bytes_max {
        let max = new.total_bytes_max;
        return exceeded(
            format!("the store has {total} bytes, {size} more would exceed {max} (WAYSTONE_MAX_TOTAL_BYTES)"),
            "MAX_TOTAL_BYTES",
        );
    }
    Ok(())
}

/// Archives the oldest checkpoints that have no name, tag or branch, until there are no more than allowed.
fn prune(db: &Connection, scope: &Scope, session: &SessionRow, newest: i64, new: &NewCheckpoint) -> DbResult<()> {
    let excess = (session.checkpoint_count + 1).saturating_sub(new.checkpoints_max);
    if excess == 0 {
        return Ok(());
    }
    let prunable: Vec<(i64, String)> = db
        .prepare_cached(
            "SELECT key, id FROM checkpoint AS c
             WHERE session = ?1 AND archived_at_ms IS NULL AND spared = 0 AND key <> ?2
                 AND (SELECT count(*) FROM (SELECT 1 FROM checkpoint WHERE parent = c.key LIMIT 2)) < 2
             ORDER BY seq LIMIT ?3",
        )?
        .query_map(params![session.key, newest, excess], |row| Ok((row.get(0)?, row.get(1)?)))?
        .collect::<Result<_, _>>()?;
    if (prunable.len() as u64) < excess {
        let message = format!(
            "the session has {} checkpoints, {} are allowed (WAYSTONE_MAX_CHECKPOINTS), and no more can be archived: the others have names, tags or branches",
            session.checkpoint_count, new.checkpoints_max
        );
        return Err(Error::QuotaExceeded { message, setting: "MAX_CHECKPOINTS" }.into());
    }
    let ids: Vec<&str> = prunable.iter().map(|(_, id)| id.as_str()).collect();
    let subject = ids.iter().map(|id| handle("checkpoint", id)).chain([handle("session", new.session.as_str())]);
    let seq = append_and_publish(
        db,
        scope,
        &Operation {
            at: new.at,
            kind: "checkpoint.pruned",
            project: &session.project,
            subject: subject.collect(),
            payload: json!({ "sessionId": new.session, "projectId": session.project, "checkpointIds": ids }),
        },
    )?;
    for (key, _) in &prunable {
        mark_archived(db, *key, new.at, seq, "pruned")?;
    }
    add_to_counts(db, scope, session.key, -i64::try_from(prunable.len()).unwrap_or(i64::MAX), 0)
}

fn insert(
    db: &Connection,
    scope: &Scope,
    session: &SessionRow,
    parent: Option<i64>,
    new: &NewCheckpoint,
) -> DbResult<i64> {
    let operation_seq = append_and_publish(
        db,
        scope,
        &Operation {
            at: new.at,
            kind: SAVED,
            project: &session.project,
            subject: vec![handle("checkpoint", new.id.as_str()), handle("session", new.session.as_str())],
            payload: json!({
                "checkpointId": new.id,
                "sessionId": new.session,
                "projectId": session.project,
                "sizeBytes": new.packed.bytes.len(),
            }),
        },
    )?;
    let group = open_group(db, scope, session.key, new, operation_seq)?;
    let seq = next_row_seq(db, scope)?;
    let tags: Vec<&str> = new.metadata.tags().collect();
    db.prepare_cached(
        "INSERT INTO checkpoint (space, session, id, seq, parent, group_key, base, context_hash, raw_hash, raw_bytes,
                                 size_bytes, created_at_ms, agent, workflow, spared, name, tags, metadata)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, NULL, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17)",
    )?
    .execute(params![
        scope.space,
        session.key,
        new.id.as_str(),
        seq,
        parent,
        group,
        new.context_hash.0,
        new.packed.raw_hash.0,
        new.packed.raw_bytes,
        new.packed.bytes.len(),
        new.at.ms(),
        new.agent.as_ref().map(|id| id.as_str()),
        new.workflow.as_ref().map(|id| id.as_str()),
        new.metadata.name().is_some() || !tags.is_empty(),
        new.metadata.name(),
        json!(tags).to_string(),
        json!(new.metadata).to_string(),
    ])?;
    let key = db.last_insert_rowid();
    db.prepare_cached("INSERT INTO checkpoint_bytes (checkpoint, bytes) VALUES (?1, ?2)")?
        .execute(params![key, new.packed.bytes])?;
    db.prepare_cached(
        "UPDATE session SET head = ?2, accessed_seq = ?3, last_accessed_at_ms = max(last_accessed_at_ms, ?4)
         WHERE key = ?1",
    )?
    .execute(params![session.key, key, seq, new.at.ms()])?;
    add_to_counts(db, scope, session.key, 1, new.packed.bytes.len())?;
    Ok(key)
}

/// The session's newest group, or a fresh one when that is full.
fn open_group(db: &Connection, scope: &Scope, session: i64, new: &NewCheckpoint, changed_seq: i64) -> DbResult<i64> {
    let newest: Option<i64> = db
        .prepare_cached(
            "SELECT key FROM checkpoint_group
             WHERE key = (SELECT max(key) FROM checkpoint_group WHERE session = ?1)
                 AND checkpoint_count < ?2 AND raw_bytes < ?3",
        )?
        .query_row(params![session, GROUP_CHECKPOINTS_MAX, GROUP_RAW_BYTES_MAX], |row| row.get(0))
        .optional()?;
    if let Some(key) = newest {
        db.prepare_cached(
            "UPDATE checkpoint_group
             SET checkpoint_count = checkpoint_count + 1, raw_bytes = raw_bytes + ?2, changed_seq = ?3 WHERE key = ?1",
        )?
        .execute(params![key, new.packed.raw_bytes, changed_seq])?;
        return Ok(key);
    }
    db.prepare_cached(
        "INSERT INTO checkpoint_group (space, session, id, checkpoint_count, raw_bytes, changed_seq, mirrored_seq)
         VALUES (?1, ?2, ?3, 1, ?4, ?5, 0)",
    )?
    .execute(params![scope.space, session, new.id.as_str(), new.packed.raw_bytes, changed_seq])?;
    Ok(db.last_insert_rowid())
}

fn add_to_counts(db: &Connection, scope: &Scope, session: i64, checkpoints: i64, bytes: usize) -> DbResult<()> {
    db.prepare_cached(
        "UPDATE session SET checkpoint_count = checkpoint_count + ?2, size_bytes = size_bytes + ?3 WHERE key = ?1",
    )?
    .execute(params![session, checkpoints, bytes])?;
    db.prepare_cached(
        "UPDATE space SET checkpoint_count = checkpoint_count + ?2, size_bytes = size_bytes + ?3 WHERE space = ?1",
    )?
    .execute(params![scope.space, checkpoints, bytes])?;
    Ok(())
}

/// The first answer to a request that is made again.
fn replay(db: &Connection, scope: &Scope, new: &NewCheckpoint) -> DbResult<Option<Added>> {
    let Some(idempotency) = &new.idempotency else { return Ok(None) };
    let found: Option<([u8; 32], String)> = db
        .prepare_cached(
            "SELECT request_hash, reply FROM idempotency_key
             WHERE space = ?1 AND kind = ?2 AND actor = ?3 AND id = ?4 AND at_ms > ?5",
        )?
        .query_row(params![scope.space, SAVED, scope.actor, idempotency.key, new.at.ms() - KEY_LIFE_MS], |row| {
            Ok((row.get(0)?, row.get(1)?))
        })
        .optional()?;
    let Some((request_hash, reply)) = found else { return Ok(None) };
    if request_hash != idempotency.request_hash.0 {
        let message = "the idempotency key was used for another request".to_owned();
        let (details, hint) = (json!({ "idempotencyKey": idempotency.given }), "use a fresh key for a new request");
        return Err(Error::Conflict { message, details, hint }.into());
    }
    let reply: Map<String, Value> =
        serde_json::from_str(&reply).map_err(|error| unreadable("a first answer", error))?;
    let id = reply.get("checkpointId").and_then(Value::as_str).unwrap_or_default();
    let id: CheckpointId = id.parse().map_err(|error| unreadable("a first answer", error))?;
    let checkpoint = find_by_id(db, scope, &id)?.ok_or(Error::CheckpointNotFound(id))?;
    let is_new = reply.get("isNew").and_then(Value::as_bool).unwrap_or_default();
    if new.force && !is_new {
        // The engine saves anew what equals a damaged checkpoint; the answer given before does not stand.
        return Ok(None);
    }
    Ok(Some(if is_new { Added::New(checkpoint) } else { Added::Unchanged(checkpoint) }))
}

fn remember(db: &Connection, scope: &Scope, new: &NewCheckpoint, id: &CheckpointId, is_new: bool) -> DbResult<()> {
    let Some(idempotency) = &new.idempotency else { return Ok(()) };
    db.prepare_cached(
        "INSERT OR REPLACE INTO idempotency_key (space, kind, actor, id, request_hash, reply, at_ms)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
    )?
    .execute(params![
        scope.space,
        SAVED,
        scope.actor,
        idempotency.key,
        idempotency.request_hash.0,
        json!({ "checkpointId": id, "isNew": is_new }).to_string(),
        new.at.ms(),
    ])?;
    Ok(())
}

/// Records that a checkpoint was used: activity of its session, and for a load an operation.
pub(crate) fn record_access(db: &Connection, access: &Access) -> DbResult<()> {
    let found: Option<(i64, String, String)> = db
        .prepare_cached(
            "SELECT s.key, s.id, s.project FROM checkpoint AS c JOIN session AS s ON s.key = c.session
             WHERE c.space = ?1 AND c.id = ?2",
        )?
        .query_row(params![access.scope.space, access.id.as_str()], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))
        .optional()?;
    let Some((session, session_id, project)) = found else { return Ok(()) };
    session::touch(db, &access.scope, session, access.at)?;
    if access.is_load {
        let operation = Operation {
            at: access.at,
            kind: "checkpoint.loaded",
            project: &project,
            subject: vec![handle("checkpoint", access.id.as_str()), handle("session", &session_id)],
            payload: json!({ "checkpointId": access.id, "sessionId": session_id, "projectId": project }),
        };
        append(db, &access.scope, &operation)?;
    }
    Ok(())
}

/// Hides a checkpoint that a person or a client no longer wants.
pub(crate) fn archive(db: &Connection, scope: &Scope, id: &CheckpointId, at: Timestamp) -> DbResult<Checkpoint> {
    let checkpoint = find_by_id(db, scope, id)?.filter(|checkpoint| !checkpoint.archived);
    let checkpoint = checkpoint.ok_or_else(|| Error::CheckpointNotFound(id.clone()))?;
    let (session, project) = (&checkpoint.session_id, checkpoint.project_id.as_str());
    let operation = Operation {
        at,
        kind: "checkpoint.deleted",
        project,
        subject: vec![handle("checkpoint", id.as_str()), handle("session", session.as_str())],
        payload: json!({ "checkpointId": id, "sessionId": session, "projectId": project }),
    };
    let seq = append_and_publish(db, scope, &operation)?;
    let session = session::find_row(db, scope, session)?.ok_or_else(|| Error::SessionNotFound(session.clone()))?;
    let key = find_key_in(db, scope, session.key, id)?;
    mark_archived(db, key, at, seq, "deleted")?;
    db.prepare_cached(
        "UPDATE session SET head = (SELECT key FROM checkpoint WHERE session = ?1 AND archived_at_ms IS NULL
                                    ORDER BY seq DESC LIMIT 1)
         WHERE key = ?1",
    )?
    .execute(params![session.key])?;
    add_to_counts(db, scope, session.key, -1, 0)?;
    Ok(checkpoint)
}

fn mark_archived(db: &Connection, key: i64, at: Timestamp, seq: i64, why: &str) -> DbResult<()> {
    db.prepare_cached(
        "UPDATE checkpoint SET archived_at_ms = ?2, archived_seq = ?3, archived_why = ?4 WHERE key = ?1",
    )?
    .execute(params![key, at.ms(), seq, why])?;
    db.prepare_cached(
        "UPDATE checkpoint_group SET changed_seq = ?2 WHERE key = (SELECT group_key FROM checkpoint WHERE key = ?1)",
    )?
    .execute(params![key, seq])?;
    Ok(())
}

const COLUMNS: &str = "c.id, s.id, s.project, c.created_at_ms, c.size_bytes, c.metadata, c.agent, c.workflow, p.id, \
                       c.context_hash, coalesce(c.archived_at_ms, s.archived_at_ms), c.seq";

const FROM: &str = "FROM checkpoint AS c JOIN session AS s ON s.key = c.session
                    LEFT JOIN checkpoint AS p ON p.key = c.parent";

fn read(row: &Row<'_>) -> DbResult<Checkpoint> {
    fn id<T: std::str::FromStr<Err = String>>(row: &Row<'_>, column: usize) -> DbResult<Option<T>> {
        let text: Option<String> = row.get(column)?;
        text.map(|text| text.parse()).transpose().map_err(|error: String| unreadable("an id", error))
    }
    let required = || unreadable("an id", "it is missing");
    let metadata: String = row.get(5)?;
    let metadata = serde_json::from_str(&metadata).map_err(|error| error.to_string()).and_then(Metadata::new);
    Ok(Checkpoint {
        checkpoint_id: id(row, 0)?.ok_or_else(required)?,
        session_id: id(row, 1)?.ok_or_else(required)?,
        project_id: id(row, 2)?.ok_or_else(required)?,
        created_at: Timestamp::from_ms(row.get(3)?),
        size_bytes: row.get(4)?,
        metadata: metadata.map_err(|error| unreadable("a checkpoint's metadata", error))?,
        agent_id: id(row, 6)?,
        workflow_id: id(row, 7)?,
        parent_checkpoint_id: id(row, 8)?,
        context_hash: Hash(row.get(9)?).to_string(),
        archived: row.get::<_, Option<i64>>(10)?.is_some(),
    })
}

fn find_by_key(db: &Connection, key: i64) -> DbResult<Checkpoint> {
    let mut statement = db.prepare_cached(&format!("SELECT {COLUMNS} {FROM} WHERE c.key = ?1"))?;
    let mut rows = statement.query(params![key])?;
    read(rows.next()?.ok_or_else(|| unreadable("a checkpoint", "its row is missing"))?)
}

fn find_by_id(db: &Connection, scope: &Scope, id: &CheckpointId) -> DbResult<Option<Checkpoint>> {
    let mut statement = db.prepare_cached(&format!("SELECT {COLUMNS} {FROM} WHERE c.space = ?1 AND c.id = ?2"))?;
    let mut rows = statement.query(params![scope.space, id.as_str()])?;
    rows.next()?.map(read).transpose()
}

fn find_key_in(db: &Connection, scope: &Scope, session: i64, id: &CheckpointId) -> DbResult<i64> {
    let key = db
        .prepare_cached("SELECT key FROM checkpoint WHERE space = ?1 AND id = ?2 AND session = ?3")?
        .query_row(params![scope.space, id.as_str(), session], |row| row.get(0))
        .optional()?;
    Ok(key.ok_or_else(|| Error::CheckpointNotFound(id.clone()))?)
}

/// The wanted checkpoint with its bytes.
pub(crate) fn find(db: &Connection, scope: &Scope, wanted: &Wanted) -> DbResult<Option<StoredCheckpoint>> {
    let condition = match wanted {
        Wanted::ById(_) => "c.space = ?1 AND c.id = ?2",
        Wanted::Latest(_) => {
            "c.key = (SELECT head FROM session WHERE space = ?1 AND id = ?2 AND archived_at_ms IS NULL)"
        }
        Wanted::Before(_) => {
            "c.key = (SELECT older.key FROM checkpoint AS older JOIN checkpoint AS this ON this.space = ?1 AND this.id = ?2
                      WHERE older.session = this.session AND older.archived_at_ms IS NULL AND older.seq < this.seq
                      ORDER BY older.seq DESC LIMIT 1)"
        }
        Wanted::After(_) => {
            "c.key = (SELECT newer.key FROM checkpoint AS newer JOIN checkpoint AS this ON this.space = ?1 AND this.id = ?2
                      WHERE newer.session = this.session AND newer.archived_at_ms IS NULL AND newer.seq > this.seq
                      ORDER BY newer.seq LIMIT 1)"
        }
    };
    let id = match wanted {
        Wanted::ById(id) | Wanted::Before(id) | Wanted::After(id) => id.as_str(),
        Wanted::Latest(session) => session.as_str(),
    };
    let sql = format!(
        "SELECT {COLUMNS}, c.raw_bytes, c.raw_hash, b.bytes {FROM}
         LEFT JOIN checkpoint_bytes AS b ON b.checkpoint = c.key WHERE {condition}"
    );
    let mut statement = db.prepare_cached(&sql)?;
    let mut rows = statement.query(params![scope.space, id])?;
    let Some(row) = rows.next()? else { return Ok(None) };
    let packed = Packed {
        raw_bytes: row.get(12)?,
        raw_hash: Hash(row.get(13)?),
        bytes: row.get::<_, Option<Vec<u8>>>(14)?.unwrap_or_default(),
    };
    Ok(Some(StoredCheckpoint { checkpoint: read(row)?, packed }))
}
