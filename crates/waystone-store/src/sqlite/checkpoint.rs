//! Checkpoints as rows: finding them, hiding them, taking note of their use. Adding one is in [`add`], lists in [`list`].

mod add;
mod find;
mod list;
mod retry;

use rusqlite::{Connection, OptionalExtension, Row, params};
use serde_json::{Value, json};
use waystone_core::Error;
use waystone_core::api::{Checkpoint, Git, Metadata};
use waystone_core::canon::Hash;
use waystone_core::clock::Timestamp;
use waystone_core::error::Conflict;
use waystone_core::id::CheckpointId;
use waystone_core::pack::{Base, Packed, unpack};
use waystone_core::store::{Scope, StoredCheckpoint, Wanted};

use super::clock::last_believed;
use super::error::{DbResult, missing_id, unreadable};
use super::log::{Operation, append, append_and_publish, handle};
use super::origin::read_origin;
use super::retention::recount_session;
use super::seal::session_column;
use super::session;
use crate::mirror;
pub(crate) use add::{Links, add, check_quota, find_base, find_open_group, insert};
pub(crate) use find::{read_unindexed, write_found};
pub(crate) use list::{list, list_indexed, list_sessions};

/// Records that a checkpoint was loaded.
pub(crate) fn record_load(db: &Connection, scope: &Scope, id: &CheckpointId, at: Timestamp) -> DbResult<()> {
    let Some((session, project)) = record_use(db, scope, id, at)? else { return Ok(()) };
    let operation = Operation {
        at,
        kind: "checkpoint.loaded",
        project: &project,
        subject: vec![handle("checkpoint", id.as_str()), handle("session", &session)],
        payload: json!({ "checkpointId": id, "sessionId": session, "projectId": project }),
    };
    append(db, scope, &operation).map(drop)
}

/// Records that a checkpoint was used, which is activity of its session. Returns the ids of that and of its project.
pub(crate) fn record_use(
    db: &Connection,
    scope: &Scope,
    id: &CheckpointId,
    at: Timestamp,
) -> DbResult<Option<(String, String)>> {
    let found: Option<(i64, String, String)> = db
        .prepare_cached(
            "SELECT s.key, s.id, s.project FROM checkpoint AS c JOIN session AS s ON s.key = c.session
             WHERE c.space = ?1 AND c.id = ?2",
        )?
        .query_row(params![scope.space, id.as_str()], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))
        .optional()?;
    let Some((key, session, project)) = found else { return Ok(None) };
    session::touch(db, scope, key, at)?;
    Ok(Some((session, project)))
}

/// Hides a checkpoint that a person or a client no longer wants. Returns it with the group whose file is to say so.
pub(crate) fn archive(
    db: &Connection,
    scope: &Scope,
    id: &CheckpointId,
    at: Timestamp,
) -> DbResult<(Checkpoint, Option<i64>)> {
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
    recount_session(db, session.key)?;
    let group = find_group(db, scope, id)?;
    Ok((checkpoint, group))
}

/// Lets a checkpoint be listed again that was deleted or pruned. Its session must be there.
pub(crate) fn restore(db: &Connection, scope: &Scope, id: &CheckpointId, at: Timestamp) -> DbResult<Checkpoint> {
    let missing = || Error::CheckpointNotFound(id.clone());
    let checkpoint = find_by_id(db, scope, id)?.filter(|checkpoint| checkpoint.archived).ok_or_else(missing)?;
    let (session_id, project) = (&checkpoint.session_id, checkpoint.project_id.as_str());
    let session = session::find_row(db, scope, session_id)?.ok_or_else(missing)?;
    if session.is_archived {
        return Err(Error::Conflict(Conflict::SessionDeleted(session_id.clone())).into());
    }
    let operation = Operation {
        at,
        kind: "checkpoint.restored",
        project,
        subject: vec![handle("checkpoint", id.as_str()), handle("session", session_id.as_str())],
        payload: json!({ "checkpointId": id, "sessionId": session_id, "projectId": project }),
    };
    let seq = append_and_publish(db, scope, &operation)?;
    let key = find_key_in(db, scope, session.key, id)?;
    db.prepare_cached(
        "UPDATE checkpoint SET archived_at_ms = NULL, archived_seq = NULL, archived_why = NULL WHERE key = ?1",
    )?
    .execute(params![key])?;
    mark_group_changed(db, key, seq)?;
    session::touch(db, scope, session.key, at)?;
    recount_session(db, session.key)?;
    Ok(Checkpoint { archived: false, ..checkpoint })
}

/// The file of a checkpoint's group is to follow.
fn mark_group_changed(db: &Connection, key: i64, seq: i64) -> DbResult<()> {
    db.prepare_cached(
        "UPDATE checkpoint_group SET changed_seq = ?2 WHERE key = (SELECT group_key FROM checkpoint WHERE key = ?1)",
    )?
    .execute(params![key, seq])?;
    Ok(())
}

pub(super) fn mark_archived(db: &Connection, key: i64, at: Timestamp, seq: i64, why: &str) -> DbResult<()> {
    db.prepare_cached(
        "UPDATE checkpoint SET archived_at_ms = ?2, archived_seq = ?3, archived_why = ?4 WHERE key = ?1",
    )?
    .execute(params![key, last_believed(db, at)?, seq, why])?;
    mark_group_changed(db, key, seq)
}

const COLUMNS: &str = concat!(
    "c.id, s.id, s.project, c.created_at_ms, c.size_bytes, ",
    session_column!("c", "metadata", "s"),
    ", c.agent, c.workflow, p.id, ",
    session_column!("c", "context_hash", "s"),
    ", coalesce(c.archived_at_ms, s.archived_at_ms), c.seq, ",
    session_column!("s", "critical_keys", "s"),
    ", ",
    session_column!("c", "git_branch", "s"),
    ", c.git_head, c.origin, c.imported"
);

const FROM: &str = "FROM checkpoint AS c JOIN session AS s ON s.key = c.session
                    LEFT JOIN checkpoint AS p ON p.key = c.parent";

fn read(row: &Row<'_>) -> DbResult<Checkpoint> {
    fn id<T: std::str::FromStr<Err = String>>(row: &Row<'_>, column: usize) -> DbResult<Option<T>> {
        let text: Option<String> = row.get(column)?;
        text.map(|text| text.parse()).transpose().map_err(|error: String| unreadable("an id", error))
    }
    let metadata =
        String::from_utf8_lossy(row.get_ref(5)?.as_bytes_or_null().ok().flatten().unwrap_or_default()).into_owned();
    // What is said of a checkpoint does not keep it from being found; `doctor` puts it right.
    let metadata = parse_metadata(&metadata).unwrap_or_else(|error| {
        tracing::error!(error, "a checkpoint's metadata cannot be read");
        Metadata::default()
    });
    let marks: Vec<String> = serde_json::from_str(&row.get::<_, String>(12)?).unwrap_or_default();
    let (said_origin, origin) = read_origin(row, 15)?;
    Ok(Checkpoint {
        checkpoint_id: id(row, 0)?.ok_or_else(missing_id)?,
        session_id: id(row, 1)?.ok_or_else(missing_id)?,
        project_id: id(row, 2)?.ok_or_else(missing_id)?,
        created_at: Timestamp::from_ms(row.get(3)?),
        size_bytes: row.get(4)?,
        metadata: metadata.with_critical_keys(&marks),
        origin,
        said_origin,
        agent_id: id(row, 6).unwrap_or_default(),
        workflow_id: id(row, 7).unwrap_or_default(),
        parent_checkpoint_id: id(row, 8)?,
        git: Git::new(row.get(13).unwrap_or_default(), row.get(14).unwrap_or_default()),
        context_hash: Hash(row.get(9)?),
        archived: row.get::<_, Option<i64>>(10)?.is_some(),
        hit: None,
    })
}

/// Metadata as they are stored.
pub(crate) fn parse_metadata(text: &str) -> Result<Metadata, String> {
    match waystone_core::json::parse_trusted(text.as_bytes()) {
        Ok(Value::Object(map)) => Metadata::new(map),
        Ok(_) => Err("it is not an object".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

pub(super) fn find_by_key(db: &Connection, key: i64) -> DbResult<Checkpoint> {
    let mut statement = db.prepare_cached(&format!("SELECT {COLUMNS} {FROM} WHERE c.key = ?1"))?;
    let mut rows = statement.query(params![key])?;
    read(rows.next()?.ok_or_else(|| unreadable("a checkpoint", "its row is missing"))?)
}

/// A checkpoint, and the text of its context if its bytes are whole.
pub(crate) fn find_with_text(db: &Connection, key: i64) -> DbResult<(Checkpoint, Option<Vec<u8>>)> {
    Ok((find_by_key(db, key)?, unpack(&find_chain(db, key, None)?, &[]).ok()))
}

/// The id of a checkpoint, and its text if its bytes are whole. Asks for nothing that a copy of an older format does not have.
pub(crate) fn find_text(db: &Connection, key: i64) -> DbResult<(CheckpointId, Option<Vec<u8>>)> {
    let id: String =
        db.prepare_cached("SELECT id FROM checkpoint WHERE key = ?1")?.query_row(params![key], |row| row.get(0))?;
    let id = id.parse().map_err(|error| unreadable("an id", error))?;
    Ok((id, unpack(&find_chain(db, key, None)?, &[]).ok()))
}

pub(super) fn find_by_id(db: &Connection, scope: &Scope, id: &CheckpointId) -> DbResult<Option<Checkpoint>> {
    let mut statement = db.prepare_cached(&format!("SELECT {COLUMNS} {FROM} WHERE c.space = ?1 AND c.id = ?2"))?;
    let mut rows = statement.query(params![scope.space, id.as_str()])?;
    rows.next()?.map(read).transpose()
}

/// The group that a checkpoint is in.
pub(crate) fn find_group(db: &Connection, scope: &Scope, id: &CheckpointId) -> DbResult<Option<i64>> {
    let group = db
        .prepare_cached("SELECT group_key FROM checkpoint WHERE space = ?1 AND id = ?2")?
        .query_row(params![scope.space, id.as_str()], |row| row.get(0))
        .optional()?;
    Ok(group.flatten())
}

pub(crate) fn find_key_in(db: &Connection, scope: &Scope, session: i64, id: &CheckpointId) -> DbResult<i64> {
    let key = db
        .prepare_cached("SELECT key FROM checkpoint WHERE space = ?1 AND id = ?2 AND session = ?3")?
        .query_row(params![scope.space, id.as_str(), session], |row| row.get(0))
        .optional()?;
    Ok(key.ok_or_else(|| Error::CheckpointNotFound(id.clone()))?)
}

/// Deltas stay inside a group, so no chain is longer than one; a group that was put together again may be. Only a circle has no end.
const CHAIN_MAX: usize = 10_000;

/// The wanted checkpoint with its bytes, and those that lead to them from what is `known`.
pub(crate) fn find(
    db: &Connection,
    scope: &Scope,
    wanted: &Wanted,
    known: Option<&CheckpointId>,
) -> DbResult<Option<StoredCheckpoint>> {
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
        "SELECT {COLUMNS}, c.key, (SELECT g.id FROM checkpoint_group AS g
             WHERE g.key = c.group_key AND g.mirrored_seq > 0 AND g.mirrored_seq >= c.saved_seq)
         {FROM} WHERE {condition}"
    );
    let mut statement = db.prepare_cached(&sql)?;
    let mut rows = statement.query(params![scope.space, id])?;
    let Some(row) = rows.next()? else { return Ok(None) };
    let (checkpoint, key) = (read(row)?, row.get(17)?);
    let is_known = known == Some(&checkpoint.checkpoint_id);
    let chain = if is_known { Vec::new() } else { find_chain(db, key, known)? };
    let group: Option<String> = row.get(18)?;
    let mirror = group.map(|group| mirror::path_of(checkpoint.session_id.as_str(), &group).display().to_string());
    Ok(Some(StoredCheckpoint { checkpoint, chain, mirror }))
}

/// The bytes of a checkpoint after those of its base, and so on back to bytes that stand alone or to what is `known`.
fn find_chain(db: &Connection, key: i64, known: Option<&CheckpointId>) -> DbResult<Vec<Packed>> {
    let mut statement = db.prepare_cached(concat!(
        "SELECT c.raw_bytes, ",
        session_column!("c", "raw_hash", "s"),
        ", unsealed(b.bytes, 'bytes', c.id, 'session:' || s.id, s.wrapped_key), p.id, p.key, ",
        session_column!("p", "raw_hash", "s"),
        " FROM checkpoint AS c JOIN session AS s ON s.key = c.session
         LEFT JOIN checkpoint_bytes AS b ON b.checkpoint = c.key LEFT JOIN checkpoint AS p ON p.key = c.base
         WHERE c.key = ?1"
    ))?;
    let (mut chain, mut next) = (Vec::new(), Some(key));
    while let Some(key) = next
        && chain.len() < CHAIN_MAX
    {
        let (packed, base_key) = statement.query_row(params![key], |row| {
            // A value that cannot be read makes bytes that do not unpack, and those are healed.
            let base: Option<String> = row.get(3).unwrap_or_default();
            let base = base.and_then(|id| id.parse().ok()).zip(row.get::<_, Option<[u8; 32]>>(5).unwrap_or_default());
            let packed = Packed {
                raw_bytes: row.get(0).unwrap_or_default(),
                raw_hash: Hash(row.get(1).unwrap_or_default()),
                bytes: row.get::<_, Option<Vec<u8>>>(2).unwrap_or_default().unwrap_or_default(),
                base: base.map(|(id, hash)| Base { id, raw_hash: Hash(hash) }),
            };
            Ok((packed, row.get::<_, Option<i64>>(4)?))
        })?;
        next = base_key.filter(|_| packed.base.as_ref().map(|base| &base.id) != known);
        chain.push(packed);
    }
    chain.reverse();
    Ok(chain)
}

/// Writes the bytes of a checkpoint, in place of those that it has.
pub(crate) fn write_bytes(db: &Connection, key: i64, bytes: &[u8]) -> DbResult<()> {
    let written = db
        .prepare_cached(
            "INSERT OR REPLACE INTO checkpoint_bytes (checkpoint, bytes)
             SELECT c.key, sealed(?2, 'bytes', c.id, 'session:' || s.id, s.wrapped_key)
             FROM checkpoint AS c LEFT JOIN session AS s ON s.key = c.session WHERE c.key = ?1",
        )?
        .execute(params![key, bytes])?;
    if written == 1 { Ok(()) } else { Err(unreadable("a checkpoint", "its row is missing")) }
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
