//! Checkpoints: immutable saves of one session's context.
//!
//! This file only orders the steps. When two contexts are equal is in [`crate::canon`], how bytes are packed in
//! [`crate::pack`], what is tested inside the transaction in `waystone-store/src/sqlite/checkpoint.rs`.

use std::sync::Arc;

use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use super::{Engine, check_limit, offload};
use crate::api::{
    CheckpointPage, DeletedCheckpoint, ListCheckpoints, LoadCheckpoint, LoadedCheckpoint, Metadata, NextCall,
    SaveCheckpoint, SaveStatus, SavedCheckpoint,
};
use crate::canon::{Hash, hash_object};
use crate::error::{Error, Result};
use crate::id::{CheckpointId, ProjectId, SessionId};
use crate::json::DEPTH_MAX;
use crate::pack::{Packed, pack};
use crate::store::{Added, Idempotency, NewCheckpoint, Scope, StoredCheckpoint, Wanted};

impl Engine {
    /// Saves `request.context`, unless it equals the session's newest checkpoint.
    pub async fn save_checkpoint(&self, scope: &Scope, request: SaveCheckpoint) -> Result<SavedCheckpoint> {
        let scope = scope.acting_as(request.agent_id.as_ref());
        let engine = self.clone();
        let mut new = offload(move || engine.prepare_checkpoint(request)).await?;
        let mut added = self.store.add_checkpoint(&scope, new.clone()).await?;
        if let Added::Unchanged(head) = &added
            && !self.can_be_read(&scope, &head.checkpoint_id).await?
        {
            new.force = true;
            added = self.store.add_checkpoint(&scope, new.clone()).await?;
        }
        let (mut saved, warnings) = match added {
            Added::New { checkpoint, pruned } => {
                let status = if self.volatile.is_some() { SaveStatus::Volatile } else { SaveStatus::Saved };
                (SavedCheckpoint::of(checkpoint, status), archived_for_room(pruned, new.checkpoints_max))
            }
            Added::Unchanged(head) => (SavedCheckpoint::of(head, SaveStatus::SkippedUnchanged), dropped_by_skip(&new)),
        };
        saved.warnings = self.warnings().into_iter().chain(warnings).collect();
        Ok(saved)
    }

    /// A skipped save stands on the checkpoint it equals, so that one must be whole.
    async fn can_be_read(&self, scope: &Scope, id: &CheckpointId) -> Result<bool> {
        let Some(stored) = self.store.find_checkpoint(scope, &Wanted::ById(id.clone())).await? else {
            return Ok(false);
        };
        match unpack(stored).await {
            Err(Error::CheckpointCorrupt { .. }) => Ok(false),
            done => done.map(|_| true),
        }
    }

    /// Everything about a save that needs no other data: checked, hashed, packed.
    fn prepare_checkpoint(&self, request: SaveCheckpoint) -> Result<NewCheckpoint> {
        let context_hash = hash_object(&request.context)
            .ok_or_else(|| Error::InvalidInput(format!("context is nested deeper than {DEPTH_MAX} levels")))?;
        let packed = self.pack_context(&request.context)?;
        let workflow = request.workflow_id.as_ref().map_or("", |id| id.as_str());
        let correlation = Hash::of_parts(&[workflow.as_bytes(), &context_hash.0]);
        let project = request.project_id.clone().unwrap_or_else(|| self.project.clone());
        let session = request.session_id.as_ref().map_or("", |id| id.as_str());
        let idempotency = request.idempotency_key.clone().map(|given| Idempotency {
            key: format!("{project}/{session}/{given}"),
            request_hash: fingerprint(&request, &project, &context_hash),
            given,
        });
        let metadata = request.metadata.unwrap_or_default();
        Ok(NewCheckpoint {
            id: self.fresh_id()?,
            session: request.session_id.map_or_else(|| self.fresh_id(), Ok)?,
            project_named: request.project_id.is_some(),
            project,
            at: self.clock.now(),
            agent: request.agent_id,
            workflow: request.workflow_id,
            metadata,
            context_hash,
            correlation,
            packed: Arc::new(packed),
            force: request.force,
            expected_head: request.expected_checkpoint_id,
            parent: request.parent_checkpoint_id,
            idempotency,
            checkpoints_max: self.limits.checkpoints_max,
            session_bytes_max: self.limits.session_bytes_max,
            total_bytes_max: self.limits.total_bytes_max,
        })
    }

    fn pack_context(&self, context: &Map<String, Value>) -> Result<Packed> {
        let text = serde_json::to_vec(context).map_err(|error| Error::InvalidInput(format!("context: {error}")))?;
        let (actual, max) = (text.len() as u64, self.limits.context_bytes_max);
        if actual > max {
            return Err(Error::PayloadTooLarge { what: "context", actual, max });
        }
        let packed = pack(&text).map_err(|error| Error::InvalidInput(format!("context: {error}")))?;
        if packed.bytes.len() as u64 > self.limits.checkpoint_bytes_max {
            return Err(Error::QuotaExceeded {
                message: format!(
                    "the checkpoint has {} bytes compressed, at most {} are kept (WAYSTONE_MAX_CHECKPOINT_BYTES)",
                    packed.bytes.len(),
                    self.limits.checkpoint_bytes_max
                ),
                setting: "MAX_CHECKPOINT_BYTES",
            });
        }
        Ok(packed)
    }

    fn fresh_id<T: std::str::FromStr<Err = String>>(&self) -> Result<T> {
        self.clock.new_id().parse().map_err(Error::InvalidInput)
    }

    /// The checkpoint that was asked for, or the session's newest one that can be read.
    pub async fn load_checkpoint(&self, scope: &Scope, request: LoadCheckpoint) -> Result<LoadedCheckpoint> {
        let loaded = match (request.checkpoint_id, request.session_id) {
            (Some(id), None) => self.load_by_id(scope, id).await,
            (None, Some(session)) => self.load_latest(scope, session).await,
            (Some(_), Some(_)) => {
                Err(Error::InvalidInput("checkpointId and sessionId are both given; give one of them".to_owned()))
            }
            (None, None) => {
                Err(Error::InvalidInput("checkpointId and sessionId are both missing; give one".to_owned()))
            }
        }?;
        self.store.note_load(scope, &loaded.checkpoint.checkpoint_id, self.clock.now());
        Ok(LoadedCheckpoint { warnings: self.warnings(), ..loaded })
    }

    async fn load_by_id(&self, scope: &Scope, id: CheckpointId) -> Result<LoadedCheckpoint> {
        let stored = self.store.find_checkpoint(scope, &Wanted::ById(id.clone())).await?;
        let stored = stored.ok_or_else(|| Error::CheckpointNotFound(id.clone()))?;
        let error = match unpack(stored).await {
            Err(Error::CheckpointCorrupt { damage, .. }) => damage,
            done => return done,
        };
        let before = self.first_good(scope, id.clone(), Wanted::Before).await?;
        let nearest = match before {
            Some(good) => Some(good),
            None => self.first_good(scope, id.clone(), Wanted::After).await?,
        };
        let nearest = nearest.map(|(good, _)| good.checkpoint.checkpoint_id);
        Err(Error::CheckpointCorrupt { id, damage: error, nearest })
    }

    async fn load_latest(&self, scope: &Scope, session: SessionId) -> Result<LoadedCheckpoint> {
        let stored = self.store.find_checkpoint(scope, &Wanted::Latest(session.clone())).await?;
        let stored = stored.ok_or(Error::SessionNotFound(session))?;
        let id = stored.checkpoint.checkpoint_id.clone();
        let damage = match unpack(stored).await {
            Err(Error::CheckpointCorrupt { damage, .. }) => damage,
            done => return done,
        };
        match self.first_good(scope, id.clone(), Wanted::Before).await? {
            Some((good, skipped)) => Ok(LoadedCheckpoint { degraded: true, skipped, ..good }),
            None => Err(Error::CheckpointCorrupt { id, damage, nearest: None }),
        }
    }

    /// The first checkpoint from the damaged `id` on, in the direction of `next`, that can be read, and the damaged ones up to it.
    async fn first_good(
        &self,
        scope: &Scope,
        id: CheckpointId,
        next: fn(CheckpointId) -> Wanted,
    ) -> Result<Option<(LoadedCheckpoint, Vec<CheckpointId>)>> {
        let mut damaged = vec![id.clone()];
        let mut wanted = next(id);
        while let Some(stored) = self.store.find_checkpoint(scope, &wanted).await? {
            let id = stored.checkpoint.checkpoint_id.clone();
            match unpack(stored).await {
                Err(Error::CheckpointCorrupt { .. }) => damaged.push(id.clone()),
                done => return Ok(Some((done?, damaged))),
            }
            wanted = next(id);
        }
        Ok(None)
    }

    /// Hides a checkpoint; it is kept for a while and loads by its id.
    pub async fn delete_checkpoint(&self, scope: &Scope, id: &CheckpointId) -> Result<DeletedCheckpoint> {
        let now = self.clock.now();
        let deleted = self.store.archive_checkpoint(scope, id, now).await?;
        Ok(DeletedCheckpoint {
            checkpoint_id: deleted.checkpoint_id,
            session_id: deleted.session_id,
            kept_until: self.kept_until(now),
            warnings: self.warnings(),
        })
    }

    pub async fn list_checkpoints(&self, scope: &Scope, request: ListCheckpoints) -> Result<CheckpointPage> {
        check_limit(request.limit)?;
        let page = self.store.list_checkpoints(scope, &request).await?;
        Ok(CheckpointPage { warnings: self.warnings(), ..page })
    }
}

impl SavedCheckpoint {
    fn of(checkpoint: crate::api::Checkpoint, status: SaveStatus) -> Self {
        let arguments = Map::from_iter([("sessionId".to_owned(), checkpoint.session_id.as_str().into())]);
        Self {
            checkpoint_id: checkpoint.checkpoint_id,
            session_id: checkpoint.session_id,
            status,
            size_bytes: checkpoint.size_bytes,
            created_at: checkpoint.created_at,
            parent_checkpoint_id: checkpoint.parent_checkpoint_id,
            warnings: Vec::new(),
            next: NextCall { tool: "workflow_checkpoint_load", arguments },
        }
    }
}

fn archived_for_room(pruned: u64, max: u64) -> Vec<String> {
    let older =
        if pruned == 1 { "1 older checkpoint was".to_owned() } else { format!("{pruned} older checkpoints were") };
    let warn = || format!("{older} archived, since a session keeps {max}; a name or tag keeps a checkpoint from it");
    (pruned > 0).then(warn).into_iter().collect()
}

/// What a request asked for besides its context, and did not get because nothing was saved.
fn dropped_by_skip(new: &NewCheckpoint) -> Vec<String> {
    let dropped = [("metadata", new.metadata != Metadata::default()), ("parentCheckpointId", new.parent.is_some())];
    let warn = |(field, given): (&str, bool)| {
        given.then(|| {
            format!("{field} was not kept: the context is unchanged, so nothing was saved; force saves it anyway")
        })
    };
    dropped.into_iter().filter_map(warn).collect()
}

async fn unpack(stored: StoredCheckpoint) -> Result<LoadedCheckpoint> {
    offload(move || {
        let id = &stored.checkpoint.checkpoint_id;
        let corrupt = |damage: String| Error::CheckpointCorrupt { id: id.clone(), damage, nearest: None };
        let text = stored.packed.unpack().map_err(|damage| corrupt(damage.to_string()))?;
        let text = String::from_utf8(text).map_err(|error| corrupt(error.to_string()))?;
        let context = RawValue::from_string(text).map_err(|error| corrupt(error.to_string()))?;
        Ok(LoadedCheckpoint::new(stored.checkpoint, context))
    })
    .await
}

/// The hash by which a retry is recognised: the request without its key, with the context by its own hash.
fn fingerprint(request: &SaveCheckpoint, project: &ProjectId, context_hash: &Hash) -> Hash {
    let rest = json!({
        "sessionId": request.session_id,
        "metadata": request.metadata,
        "force": request.force,
        "projectId": project,
        "agentId": request.agent_id,
        "workflowId": request.workflow_id,
        "expectedCheckpointId": request.expected_checkpoint_id,
        "parentCheckpointId": request.parent_checkpoint_id,
    });
    Hash::of_parts(&[&context_hash.0, rest.to_string().as_bytes()])
}
