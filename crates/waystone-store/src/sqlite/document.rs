//! Sessions taken in from a document: all tests and all rows in one transaction. Projects are in [`project`].

mod project;

use std::sync::Arc;

use async_trait::async_trait;
use rusqlite::{Connection, params};
use serde_json::json;
use waystone_core::api::{Checkpoint, SessionRecord, TaskRecord};
use waystone_core::error::{Conflict, Quota, Unavailable};
use waystone_core::id::ProjectId;
use waystone_core::store::{
    DocumentStore, ExportedSegments, ExportedSnapshot, ImportedProject, ImportedSession, NewCheckpoint, NewProject,
    NewSession, Scope,
};
use waystone_core::{Error, Result};

use super::Sqlite;
use super::checkpoint::{Links, check_quota, find_base, find_by_id, find_by_key, find_key_in, find_open_group, insert};
use super::conversation;
use super::error::DbResult;
use super::log::{append_and_publish, handle};
use super::retention::list_live;
use super::segment::IDS_TOLD_MAX;
use super::session::{self, SessionRow};
use crate::mirror::tombstone::Removed;

#[async_trait]
impl DocumentStore for Sqlite {
    async fn import_session(&self, scope: &Scope, new: NewSession) -> Result<ImportedSession> {
        let (scope, session) = (scope.clone(), new.session.id.clone());
        let ids: Removed = new.checkpoints.iter().map(|checkpoint| checkpoint.id.as_str().to_owned()).collect();
        let bytes =
            new.checkpoints.iter().filter_map(|new| new.packed.as_ref()).map(|packed| packed.bytes.len() as u64).sum();
        let new = Arc::new(new);
        let imported = self.write_with_room(bytes, move |db| import(db, &scope, &new)).await?;
        // What comes back by an import was removed before, and is not any more, unless it was removed again before it was our turn. If it dies
        // before this, the next who reads tombstones does it.
        let _turn = self.take_turn().await?;
        let live = self.readers.read(move |db| list_live(db, &ids)).await?;
        self.take_tombstones_away(session, live.into_iter().map(|(_, id)| id).collect()).await?;
        Ok(imported)
    }

    async fn import_project(&self, scope: &Scope, new: NewProject) -> Result<ImportedProject> {
        let scope = scope.clone();
        let bytes = new.segments.iter().flat_map(|(new, ..)| &new.segments).map(|new| new.text.len() as u64).sum();
        let new = Arc::new(new);
        self.write_with_room(bytes, move |db| project::import(db, &scope, &new)).await
    }

    async fn export_tasks(&self, scope: &Scope, project: &ProjectId) -> Result<Vec<TaskRecord>> {
        let (scope, project) = (scope.clone(), project.clone());
        self.readers.read(move |db| project::tasks(db, &scope, &project)).await
    }

    async fn export_segments(&self, scope: &Scope, project: &ProjectId, after: i64) -> Result<ExportedSegments> {
        let (scope, project) = (scope.clone(), project.clone());
        self.readers.read(move |db| project::segments(db, &scope, &project, after)).await
    }

    async fn export_snapshot(
        &self,
        scope: &Scope,
        project: &ProjectId,
        after: i64,
    ) -> Result<Option<ExportedSnapshot>> {
        let (scope, project) = (scope.clone(), project.clone());
        self.readers.read(move |db| project::snapshot(db, &scope, &project, after)).await
    }
}

/// Adds what is not here. The tests come in this order: project, deleted, each checkpoint, quota.
fn import(db: &Connection, scope: &Scope, new: &NewSession) -> DbResult<ImportedSession> {
    let found = session::find_row(db, scope, &new.session.id)?;
    if let Some(found) = &found {
        check_session(found, &new.session)?;
        if conversation::is_one(db, found.key)? {
            return Err(Error::Conflict(Conflict::IsConversation(new.session.id.clone())).into());
        }
    }
    let mut done = ImportedSession::default();
    let mut missing: Vec<&NewCheckpoint> = Vec::new();
    for checkpoint in &new.checkpoints {
        match find_by_id(db, scope, &checkpoint.id)? {
            Some(here) => {
                check_same(&here, checkpoint)?;
                if checkpoint.packed.is_some() {
                    return Err(changed_meanwhile());
                }
                done.known += 1;
                done.deleted.extend(here.archived.then_some(here.checkpoint_id));
            }
            None if checkpoint.packed.is_none() => return Err(changed_meanwhile()),
            None => missing.push(checkpoint),
        }
    }
    done.differs = match &found {
        Some(_) => differs(db, scope, &new.session)?,
        None => false,
    };
    let Some(first) = missing.first() else { return Ok(done) };
    done.added = missing.len() as u64;
    let head = found.as_ref().and_then(|session| session.head);
    done.newest_before = head.map(|key| find_by_key(db, key)).transpose()?.map(|newest| newest.checkpoint_id);
    let session = found.map_or_else(|| add_session(db, scope, new, first), Ok)?;
    check_room(db, scope, &session, &missing)?;
    let ids: Vec<&str> = missing.iter().take(IDS_TOLD_MAX).map(|checkpoint| checkpoint.id.as_str()).collect();
    let payload = json!({
        "sessionId": new.session.id, "projectId": session.project, "checkpoints": done.added, "checkpointIds": ids,
    });
    let here = session::find(db, scope, &new.session.id)?;
    let mut operation = session::operation(&here, "session.imported", new.at, payload);
    operation.subject.extend(ids.iter().map(|id| handle("checkpoint", id)));
    let seq = append_and_publish(db, scope, &operation)?;
    add_checkpoints(db, scope, &session, &missing, seq)?;
    session::touch(db, scope, session.key, new.at)?;
    Ok(done)
}

fn check_session(found: &SessionRow, new: &SessionRecord) -> DbResult<()> {
    if found.project != new.project_id.as_str() {
        let (actual, named) = (found.project.clone(), new.project_id.clone());
        return Err(Error::Conflict(Conflict::ImportMoved { session: new.id.clone(), actual, named }).into());
    }
    match found.is_archived {
        true => Err(Error::Conflict(Conflict::ImportDeleted(new.id.clone())).into()),
        false => Ok(()),
    }
}

/// A checkpoint never changes, so one that is here under the same id must be the same.
fn check_same(here: &Checkpoint, new: &NewCheckpoint) -> DbResult<()> {
    let id = new.id.clone();
    if here.session_id != new.session {
        return Err(Error::Conflict(Conflict::CheckpointElsewhere { id, session: here.session_id.clone() }).into());
    }
    let is_same = here.context_hash == new.context_hash
        && here.created_at == new.at
        && here.metadata.clone().without_critical_keys() == new.metadata
        && (&here.agent_id, &here.workflow_id) == (&new.agent, &new.workflow);
    if is_same { Ok(()) } else { Err(Error::Conflict(Conflict::CheckpointDiffers(id)).into()) }
}

/// Someone added or removed one of the checkpoints since it was looked for.
fn changed_meanwhile() -> super::error::DbError {
    let message = "storage: the session changed while it was imported".to_owned();
    Error::StorageUnavailable { reason: Unavailable::Busy, message }.into()
}

fn differs(db: &Connection, scope: &Scope, new: &SessionRecord) -> DbResult<bool> {
    let here = session::find(db, scope, &new.id)?;
    Ok((here.name, here.tags, here.critical_keys, here.context_rules)
        != (new.name.clone(), new.tags.clone(), new.critical_keys.clone(), new.context_rules.clone()))
}

fn add_session(db: &Connection, scope: &Scope, new: &NewSession, first: &NewCheckpoint) -> DbResult<SessionRow> {
    let added = session::add(db, scope, first)?;
    let record = &new.session;
    db.prepare_cached(
        "UPDATE session SET name = sealed(?2, 'name', id, 'session:' || id, wrapped_key),
             tags = sealed(?3, 'tags', id, 'session:' || id, wrapped_key), workflow = ?4, created_at_ms = ?5,
             critical_keys = sealed(?6, 'critical_keys', id, 'session:' || id, wrapped_key),
             context_rules = sealed(?7, 'context_rules', id, 'session:' || id, wrapped_key), imported = 1
         WHERE key = ?1",
    )?
    .execute(params![
        added.key,
        record.name,
        json!(record.tags).to_string(),
        record.workflow_id.as_ref().map(|id| id.as_str()),
        record.created_at.ms(),
        json!(record.critical_keys).to_string(),
        json!(record.context_rules).to_string(),
    ])?;
    Ok(added)
}

/// Nothing is pruned to make room: who imports wants all of it.
fn check_room(db: &Connection, scope: &Scope, session: &SessionRow, missing: &[&NewCheckpoint]) -> DbResult<()> {
    let Some(first) = missing.first() else { return Ok(()) };
    let count = session.checkpoint_count + missing.len() as u64;
    if count > first.checkpoints_max {
        let max = first.checkpoints_max;
        return Err(Error::QuotaExceeded(Quota::ImportedCheckpoints { count, max }).into());
    }
    let bytes = missing.iter().flat_map(|new| &new.packed).map(|packed| packed.bytes.len() as u64).sum();
    check_quota(db, scope, session, first, bytes).map(drop)
}

/// Adds checkpoints in order. The first opens a group: deltas are against what came with it.
fn add_checkpoints(
    db: &Connection,
    scope: &Scope,
    session: &SessionRow,
    missing: &[&NewCheckpoint],
    seq: i64,
) -> DbResult<()> {
    let mut group = None;
    for new in missing {
        let Some((packed, base)) = find_base(db, scope, group, new)? else { return Err(changed_meanwhile()) };
        let parent = new.parent.as_ref().map(|id| find_key_in(db, scope, session.key, id)).transpose()?;
        let key = insert(db, scope, session, Links { parent, group, base }, (new, packed), seq)?;
        db.prepare_cached("UPDATE checkpoint SET imported = 1 WHERE key = ?1")?.execute(params![key])?;
        group = find_open_group(db, session.key)?;
    }
    Ok(())
}
