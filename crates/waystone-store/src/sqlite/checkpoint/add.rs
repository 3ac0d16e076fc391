//! Adding a checkpoint: every test and every row, in one transaction.

use rusqlite::{Connection, OptionalExtension, params};
use serde_json::json;
use waystone_core::api::Checkpoint;
use waystone_core::error::{Conflict, Quota};
use waystone_core::id::CheckpointId;
use waystone_core::pack::{GROUP_CHECKPOINTS_MAX, GROUP_RAW_BYTES_MAX, Packed};
use waystone_core::store::{Added, NewCheckpoint, Scope, Used};
use waystone_core::{Error, Limits};

use super::retry::{remember, replay};
use super::{add_to_counts, find_by_key, find_key_in, mark_archived, write_bytes};
use crate::sqlite::clock::last_believed;
use crate::sqlite::conversation;
use crate::sqlite::error::{DbResult, unreadable};
use crate::sqlite::log::{Operation, append_and_publish, handle, next_row_seq};
use crate::sqlite::mark;
use crate::sqlite::origin::number_of;
use crate::sqlite::seal::session_column;
use crate::sqlite::segment::check_room;
use crate::sqlite::session::{self, SessionRow};

/// Adds `new` to its session. The tests come in this order: retry, project, head, unchanged, parent, quota.
pub(crate) fn add(db: &Connection, scope: &Scope, new: &NewCheckpoint) -> DbResult<Added> {
    if let Some(first) = replay(db, scope, new)? {
        return Ok(first);
    }
    let session = session::find_row(db, scope, &new.session)?;
    if let Some(session) = &session {
        check_session(session, new)?;
        if conversation::is_one(db, session.key)? != new.is_reference {
            return Err(Error::Conflict(Conflict::IsConversation(new.session.clone())).into());
        }
    }
    let head = session.as_ref().and_then(|session| session.head).map(|key| find_by_key(db, key)).transpose()?;
    check_head(head.as_ref(), new)?;
    let head_id = head.as_ref().map(|head| head.checkpoint_id.clone());
    if let Some(head) = head
        && !new.force
        && head.context_hash == new.context_hash
    {
        set_rules(db, scope, new)?;
        remember(db, scope, new, &head.checkpoint_id, None)?;
        return Ok(Added::Unchanged(head));
    }
    let open = session.as_ref().filter(|_| !new.is_reference);
    let group = open.map(|session| find_open_group(db, session.key)).transpose()?.flatten();
    let Some((packed, base)) = find_base(db, scope, group, new)? else { return Ok(Added::BytesWanted) };
    let session = session.map_or_else(|| session::add(db, scope, new), Ok)?;
    let parent = match &new.parent {
        Some(parent) => Some(find_key_in(db, scope, session.key, parent)?),
        None => session.head,
    };
    let size = packed.bytes.len() as u64;
    let total = check_quota(db, scope, &session, new, size)?;
    let seq = append_saved(db, scope, &session, new, packed)?;
    let key = insert(db, scope, &session, Links { parent, group, base }, (new, packed), seq)?;
    set_rules(db, scope, new)?;
    let pruned = if new.is_reference { 0 } else { prune(db, scope, &session, key, new)? };
    remember(db, scope, new, &new.id, Some(pruned))?;
    let checkpoint = describe(new, &session, packed, new.parent.clone().or(head_id))?;
    let spared = count_spared(db, &session, new)?;
    let used = Used { session: session.size_bytes + size, total: total + size, spared };
    Ok(Added::New { checkpoint, pruned, used })
}

/// What the session's keys are worth from now on, also when nothing else changed.
fn set_rules(db: &Connection, scope: &Scope, new: &NewCheckpoint) -> DbResult<()> {
    match &new.context_rules {
        Some(rules) => mark::set_rules(db, scope, &new.session, rules, new.at),
        None => Ok(()),
    }
}

/// What is in the rows of a checkpoint that was just added.
fn describe(
    new: &NewCheckpoint,
    session: &SessionRow,
    packed: &Packed,
    parent: Option<CheckpointId>,
) -> DbResult<Checkpoint> {
    Ok(Checkpoint {
        checkpoint_id: new.id.clone(),
        session_id: new.session.clone(),
        project_id: session.project.parse().map_err(|error| unreadable("a session's project", error))?,
        created_at: new.at,
        size_bytes: packed.bytes.len() as u64,
        metadata: new.metadata.clone(),
        origin: new.origin,
        said_origin: new.origin,
        agent_id: new.agent.clone(),
        workflow_id: new.workflow.clone(),
        parent_checkpoint_id: parent,
        git: new.git.clone(),
        context_hash: new.context_hash,
        archived: false,
        hit: None,
    })
}

fn check_session(session: &SessionRow, new: &NewCheckpoint) -> DbResult<()> {
    let refuse = |conflict| Err(Error::Conflict(conflict).into());
    if session.is_archived {
        return refuse(Conflict::SessionDeleted(new.session.clone()));
    }
    if new.project_named && session.project != new.project.as_str() {
        return refuse(Conflict::OtherProject {
            session: new.session.clone(),
            actual: session.project.clone(),
            named: new.project.clone(),
        });
    }
    Ok(())
}

fn check_head(head: Option<&Checkpoint>, new: &NewCheckpoint) -> DbResult<()> {
    let Some(expected) = &new.expected_head else { return Ok(()) };
    let actual = head.map(|head| &head.checkpoint_id);
    if actual == Some(expected) {
        return Ok(());
    }
    let (session, actual, expected) = (new.session.clone(), actual.cloned(), expected.clone());
    Err(Error::Conflict(Conflict::HeadMoved { session, actual, expected }).into())
}

/// The bytes of `new` with the key of their base, if they can be used in `group`.
pub(crate) fn find_base<'a>(
    db: &Connection,
    scope: &Scope,
    group: Option<i64>,
    new: &'a NewCheckpoint,
) -> DbResult<Option<(&'a Packed, Option<i64>)>> {
    let Some(packed) = new.packed.as_deref() else { return Ok(None) };
    let Some(base) = &packed.base else { return Ok(Some((packed, None))) };
    let key: Option<i64> = db
        .prepare_cached(concat!(
            "SELECT c.key FROM checkpoint AS c JOIN session AS s ON s.key = c.session
             WHERE c.space = ?1 AND c.id = ?2 AND c.group_key = ?3 AND ",
            session_column!("c", "raw_hash", "s"),
            " = ?4"
        ))?
        .query_row(params![scope.space, base.id.as_str(), group, base.raw_hash.0], |row| row.get(0))
        .optional()?;
    Ok(key.map(|key| (packed, Some(key))))
}

/// Returns how much is kept in all.
pub(crate) fn check_quota(
    db: &Connection,
    scope: &Scope,
    session: &SessionRow,
    new: &NewCheckpoint,
    size: u64,
) -> DbResult<u64> {
    if session.size_bytes + size > new.session_bytes_max {
        let (used, max) = (session.size_bytes, new.session_bytes_max);
        return Err(Error::QuotaExceeded(Quota::SessionBytes { used, more: size, max }).into());
    }
    // Replies say so each time; the log once.
    let is_near = |used: u64| used.saturating_mul(100) >= new.session_bytes_max.saturating_mul(Limits::WARNED_PERCENT);
    if is_near(session.size_bytes + size) && !is_near(session.size_bytes) {
        let (session, used, max) = (new.session.as_str(), session.size_bytes + size, new.session_bytes_max);
        tracing::warn!(session, used, max, "what a session holds comes near to WAYSTONE_MAX_SESSION_BYTES");
    }
    check_room(db, scope, size, new.total_bytes_max)
}

/// Archives the oldest checkpoints that have no name, tag or branch, until there are no more than allowed.
fn prune(db: &Connection, scope: &Scope, session: &SessionRow, newest: i64, new: &NewCheckpoint) -> DbResult<u64> {
    let excess = (session.checkpoint_count + 1).saturating_sub(new.checkpoints_max);
    if excess == 0 {
        return Ok(0);
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
        let (count, max) = (session.checkpoint_count, new.checkpoints_max);
        return Err(Error::QuotaExceeded(Quota::Checkpoints { count, max }).into());
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
    add_to_counts(db, scope, session.key, -i64::try_from(prunable.len()).unwrap_or(i64::MAX), 0)?;
    Ok(excess)
}

/// How many checkpoints of the session are never archived, counted only when there are so many that it matters.
fn count_spared(db: &Connection, session: &SessionRow, new: &NewCheckpoint) -> DbResult<u64> {
    let many = new.checkpoints_max.saturating_mul(Limits::WARNED_PERCENT) / 100;
    let is_far = session.checkpoint_count + 1 < many;
    if is_far || new.is_reference {
        return Ok(0);
    }
    Ok(db
        .prepare_cached("SELECT count(*) FROM checkpoint WHERE session = ?1 AND archived_at_ms IS NULL AND spared = 1")?
        .query_row(params![session.key], |row| row.get(0))?)
}

/// The keys of what a new checkpoint refers to. Without a group it opens one, unless it is a reference.
pub(crate) struct Links {
    pub(crate) parent: Option<i64>,
    pub(crate) group: Option<i64>,
    pub(crate) base: Option<i64>,
}

fn append_saved(
    db: &Connection,
    scope: &Scope,
    session: &SessionRow,
    new: &NewCheckpoint,
    packed: &Packed,
) -> DbResult<i64> {
    append_and_publish(
        db,
        scope,
        &Operation {
            at: new.at,
            kind: "checkpoint.saved",
            project: &session.project,
            subject: vec![handle("checkpoint", new.id.as_str()), handle("session", new.session.as_str())],
            payload: json!({
                "checkpointId": new.id,
                "sessionId": new.session,
                "projectId": session.project,
                "sizeBytes": packed.bytes.len(),
            }),
        },
    )
}

/// Adds the rows of a checkpoint that an operation brings. Returns its key.
pub(crate) fn insert(
    db: &Connection,
    scope: &Scope,
    session: &SessionRow,
    links: Links,
    (new, packed): (&NewCheckpoint, &Packed),
    operation_seq: i64,
) -> DbResult<i64> {
    let group = match new.is_reference {
        true => None,
        false => Some(join_group(db, scope, session.key, links.group, (new, packed), operation_seq)?),
    };
    let seq = next_row_seq(db, scope)?;
    let tags: Vec<&str> = new.metadata.tags().collect();
    db.prepare_cached(
        "INSERT INTO checkpoint (space, session, id, seq, parent, group_key, base, context_hash, raw_hash, raw_bytes,
                                 size_bytes, created_at_ms, agent, workflow, spared, name, tags, metadata, saved_seq,
                                 git_branch, git_head, origin)
         SELECT ?1, s.key, ?3, ?4, ?5, ?6, ?7, sealed(?8, 'context_hash', ?3, 'session:' || s.id, s.wrapped_key),
                sealed(?9, 'raw_hash', ?3, 'session:' || s.id, s.wrapped_key), ?10, ?11, ?12, ?13, ?14, ?15,
                sealed(?16, 'name', ?3, 'session:' || s.id, s.wrapped_key),
                sealed(?17, 'tags', ?3, 'session:' || s.id, s.wrapped_key),
                sealed(?18, 'metadata', ?3, 'session:' || s.id, s.wrapped_key), ?19,
                sealed(?20, 'git_branch', ?3, 'session:' || s.id, s.wrapped_key), ?21, ?22
         FROM session AS s WHERE s.key = ?2",
    )?
    .execute(params![
        scope.space,
        session.key,
        new.id.as_str(),
        seq,
        links.parent,
        group,
        links.base,
        new.context_hash.0,
        packed.raw_hash.0,
        packed.raw_bytes,
        packed.bytes.len(),
        new.at.ms(),
        new.agent.as_ref().map(|id| id.as_str()),
        new.workflow.as_ref().map(|id| id.as_str()),
        new.metadata.name().is_some() || !tags.is_empty(),
        new.metadata.name(),
        json!(tags).to_string(),
        json!(new.metadata).to_string(),
        operation_seq,
        new.git.as_ref().and_then(|git| git.branch.as_deref()),
        new.git.as_ref().and_then(|git| git.head.as_deref()),
        number_of(new.origin),
    ])?;
    let key = db.last_insert_rowid();
    write_bytes(db, key, &packed.bytes)?;
    db.prepare_cached(
        "UPDATE session SET head = ?2, accessed_seq = ?3, last_accessed_at_ms = max(last_accessed_at_ms, ?4)
         WHERE key = ?1",
    )?
    .execute(params![session.key, key, seq, last_believed(db, new.at)?])?;
    add_to_counts(db, scope, session.key, 1, packed.bytes.len())?;
    Ok(key)
}

/// The session's newest group, unless it is full.
pub(crate) fn find_open_group(db: &Connection, session: i64) -> DbResult<Option<i64>> {
    Ok(db
        .prepare_cached(
            "SELECT key FROM checkpoint_group
             WHERE key = (SELECT max(key) FROM checkpoint_group WHERE session = ?1)
                 AND checkpoint_count < ?2 AND raw_bytes < ?3",
        )?
        .query_row(params![session, GROUP_CHECKPOINTS_MAX, GROUP_RAW_BYTES_MAX], |row| row.get(0))
        .optional()?)
}

/// Counts a checkpoint in its group, or opens a group with it.
fn join_group(
    db: &Connection,
    scope: &Scope,
    session: i64,
    group: Option<i64>,
    (new, packed): (&NewCheckpoint, &Packed),
    changed_seq: i64,
) -> DbResult<i64> {
    if let Some(key) = group {
        db.prepare_cached(
            "UPDATE checkpoint_group
             SET checkpoint_count = checkpoint_count + 1, raw_bytes = raw_bytes + ?2, changed_seq = ?3 WHERE key = ?1",
        )?
        .execute(params![key, packed.raw_bytes, changed_seq])?;
        return Ok(key);
    }
    // A checkpoint that was removed and comes back by an import may have given its name, and that of a file, to a group that is still there.
    db.prepare_cached(
        "INSERT INTO checkpoint_group (space, session, id, checkpoint_count, raw_bytes, changed_seq, mirrored_seq)
         SELECT ?1, ?2, iif(EXISTS (SELECT 1 FROM checkpoint_group WHERE session = ?2 AND id = ?3), ?3 || '.' || ?5, ?3),
                1, ?4, ?5, 0",
    )?
    .execute(params![scope.space, session, new.id.as_str(), packed.raw_bytes, changed_seq])?;
    Ok(db.last_insert_rowid())
}
