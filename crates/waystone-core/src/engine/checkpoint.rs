//! Checkpoints: immutable saves of one session's context.
//!
//! This file only orders the steps. When two contexts are equal is in [`crate::canon`], how bytes are packed in
//! [`crate::pack`], what is tested inside the transaction in `waystone-store/src/sqlite/checkpoint/add.rs`. Loading is in
//! [`load`].

mod diff;
mod known;
mod load;
mod reference;

use std::sync::Arc;

use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Map, Value};

use super::Engine;
use super::retention::warnings_of;
use crate::api::{
    CheckpointPage, ContextRule, DeletedCheckpoint, Deletion, ListCheckpoints, Metadata, NextCall, Origin,
    SaveCheckpoint, SaveStatus, SavedCheckpoint, check_claimed,
};
use crate::canon::{Hash, hash_object};
use crate::clock::Since;
use crate::error::{Error, Quota, Result};
use crate::id::{CheckpointId, ProjectId};
use crate::json::{self, DEPTH_MAX};
use crate::offload::{INLINE_BYTES_MAX, offload_unless};
use crate::pack::{Packed, pack, pack_delta};
use crate::store::{Added, Idempotency, NewCheckpoint, Scope};

pub(in crate::engine) use known::{Known, MOST};
pub(in crate::engine) use reference::Reference;

impl Engine {
    /// Saves `request.context`, unless it equals the session's newest checkpoint.
    pub async fn save_checkpoint(&self, scope: &Scope, request: SaveCheckpoint) -> Result<SavedCheckpoint> {
        self.check_writable()?;
        let scope = scope.acting_as(request.agent_id.as_ref());
        let known = match &request.session_id {
            Some(session) => self.newest_known(&scope, session).await?,
            None => None,
        };
        let (engine, base) = (self.clone(), known.clone());
        let is_small = json::is_within(&request.context, INLINE_BYTES_MAX);
        let origin = scope.origin;
        let prepare = move || engine.prepare_checkpoint(request, origin, base.as_deref());
        let (mut new, context, mut found) = offload_unless(is_small, prepare).await??;
        let added = loop {
            match self.store.add_checkpoint(&scope, new.clone()).await? {
                Added::BytesWanted => {}
                Added::Unchanged(head) if !self.is_whole(&scope, &head.checkpoint_id, known.as_deref()).await? => {
                    new.force = true;
                }
                added => break added,
            }
            // Bytes that stand alone are always taken.
            let (engine, text) = (self.clone(), Arc::clone(&context));
            let unseen = found.is_none().then(|| new.metadata.clone());
            let pack = move || {
                let scan = |metadata| engine.scan_checkpoint(&parse_context(&text)?, &metadata);
                Ok::<_, Error>((unseen.map(scan).transpose()?, engine.pack_context(text.get(), None)?))
            };
            let (seen, packed) = offload_unless(is_small, pack).await??;
            (found, new.packed) = (found.or(seen), Some(packed));
        };
        let (mut saved, warnings) = match added {
            Added::New { checkpoint, pruned, used } => {
                // A retry gets the first answer, whose text may have been another one with the same meaning.
                if let Some(packed) = new.packed.as_ref().filter(|_| checkpoint.checkpoint_id == new.id) {
                    let (id, raw_hash) = (new.id.clone(), packed.raw_hash);
                    let known = Known { id, context_hash: new.context_hash, raw_hash, context };
                    self.keep_known(&scope, &checkpoint.session_id, known);
                }
                let status = if self.volatile.is_some() { SaveStatus::Volatile } else { SaveStatus::Saved };
                let mut warnings = archived_for_room(pruned, new.checkpoints_max);
                warnings.extend(self.limits.nearly_reached(checkpoint.size_bytes, used));
                warnings.extend(found.unwrap_or_default());
                (SavedCheckpoint::of(checkpoint, status), warnings)
            }
            Added::Unchanged(head) => (SavedCheckpoint::of(head, SaveStatus::SkippedUnchanged), dropped_by_skip(&new)),
            Added::BytesWanted => unreachable!("the loop goes on with bytes"),
        };
        saved.warnings = self.warnings().into_iter().chain(warnings).collect();
        Ok(saved)
    }

    /// Everything about a save that needs no other data: checked, hashed, searched for secrets, and packed as what differs from `base`.
    /// What will not be saved is not searched.
    fn prepare_checkpoint(
        &self,
        request: SaveCheckpoint,
        origin: Origin,
        base: Option<&Known>,
    ) -> Result<(NewCheckpoint, Arc<RawValue>, Option<Vec<String>>)> {
        let context = to_raw_value(&request.context).map_err(|error| Error::broken(format!("context: {error}")))?;
        self.check_context_size(context.get().len())?;
        check_claimed(request.origin)?;
        ContextRule::check_all(request.context_rules.as_deref().unwrap_or_default()).map_err(Error::InvalidInput)?;
        let context_hash = match base.filter(|base| base.context.get() == context.get()) {
            Some(same) => same.context_hash,
            None => hash_object(&request.context)
                .ok_or_else(|| Error::InvalidInput(format!("context is nested deeper than {DEPTH_MAX} levels")))?,
        };
        let is_same = base.is_some_and(|base| base.context_hash == context_hash);
        let is_skipped = is_same && !request.force;
        // A retry is told what the first was.
        let is_searched = !is_skipped || request.idempotency_key.is_some();
        let metadata = request.metadata.clone().unwrap_or_default().without_critical_keys();
        let found = is_searched.then(|| self.scan_checkpoint(&request.context, &metadata)).transpose()?;
        let packed = if is_skipped { None } else { Some(self.pack_context(context.get(), base)?) };
        let workflow = request.workflow_id.as_ref().map_or("", |id| id.as_str());
        let correlation = Hash::of_parts(&[workflow.as_bytes(), &context_hash.0]);
        let project = request.project_id.clone().unwrap_or_else(|| self.project.clone());
        let session = request.session_id.as_ref().map_or("", |id| id.as_str());
        let idempotency = request.idempotency_key.clone().map(|given| Idempotency {
            key: format!("{project}/{session}/{given}"),
            request_hash: fingerprint(&request, &project, &context_hash),
            given,
        });
        let new = NewCheckpoint {
            id: self.fresh_id()?,
            session: request.session_id.map_or_else(|| self.fresh_id(), Ok)?,
            project_named: request.project_id.is_some(),
            project,
            at: self.clock.now(),
            agent: request.agent_id,
            workflow: request.workflow_id,
            metadata,
            origin: request.origin.unwrap_or(origin),
            git: (self.git)(),
            context_hash,
            correlation,
            packed,
            is_reference: false,
            force: request.force,
            expected_head: request.expected_checkpoint_id,
            parent: request.parent_checkpoint_id,
            context_rules: request.context_rules,
            idempotency,
            checkpoints_max: self.limits.checkpoints_max,
            session_bytes_max: self.limits.session_bytes_max,
            total_bytes_max: self.limits.total_bytes_max,
        };
        Ok((new, context.into(), found))
    }

    pub(super) fn pack_context(&self, text: &str, base: Option<&Known>) -> Result<Arc<Packed>> {
        let packed = match base {
            Some(base) => pack_delta(text.as_bytes(), base.as_base(), base.text()),
            None => pack(text.as_bytes()),
        };
        let packed = packed.map_err(|error| Error::broken(format!("context: {error}")))?;
        let (actual, max) = (packed.bytes.len() as u64, self.limits.checkpoint_bytes_max);
        if actual > max {
            return Err(Error::QuotaExceeded(Quota::CheckpointBytes { actual, max }));
        }
        Ok(Arc::new(packed))
    }

    pub(in crate::engine) fn check_context_size(&self, bytes: usize) -> Result<()> {
        let (actual, max) = (bytes as u64, self.limits.context_bytes_max);
        if actual > max { Err(Error::PayloadTooLarge { what: "context", actual, max }) } else { Ok(()) }
    }

    pub(super) fn fresh_id<T: std::str::FromStr<Err = String>>(&self) -> Result<T> {
        self.clock.new_id().parse().map_err(|error: String| Error::broken(error))
    }

    /// Hides a checkpoint; it is kept for a while and loads by its id, or it is removed for good.
    pub async fn delete_checkpoint(
        &self,
        scope: &Scope,
        id: &CheckpointId,
        how: Deletion,
    ) -> Result<DeletedCheckpoint> {
        self.check_writable()?;
        let now = self.clock.now();
        let deleted = match self.store.archive_checkpoint(scope, id, now).await {
            // What was deleted before can still be removed.
            Err(Error::CheckpointNotFound(_)) if how.purge => self.find_checkpoint(scope, id).await?,
            archived => archived?,
        };
        let mut deleted = DeletedCheckpoint {
            checkpoint_id: deleted.checkpoint_id,
            session_id: deleted.session_id,
            kept_until: (!how.purge).then(|| self.kept_until(now)),
            warnings: self.warnings(),
        };
        if how.purge {
            let purged = self.store.purge_checkpoint(scope, id, now).await?;
            deleted.warnings.extend(warnings_of(&purged));
        }
        Ok(deleted)
    }

    pub async fn list_checkpoints(&self, scope: &Scope, request: ListCheckpoints) -> Result<CheckpointPage> {
        request.check()?;
        let since = request.since.as_ref().map(|since| Since::At(since.before(self.clock.now())));
        let request = ListCheckpoints { since, ..request };
        let page = match request.is_search() {
            true => self.store.search_checkpoints(scope, &request, self.clock.now()).await?,
            false => self.store.list_checkpoints(scope, &request).await?,
        };
        let warnings = self.warnings().into_iter().chain(page.warnings).collect();
        Ok(CheckpointPage { warnings, ..page })
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

/// The context of a checkpoint, which was an object when it was saved.
pub(super) fn parse_context(text: &RawValue) -> Result<Map<String, Value>> {
    match json::parse_trusted(text.get().as_bytes()) {
        Ok(Value::Object(context)) => Ok(context),
        Ok(_) => Err(Error::broken("a context is not an object")),
        Err(error) => Err(Error::broken(error.to_string())),
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

/// The hash by which a retry is recognised: the request without its key, with the context by its own hash.
fn fingerprint(request: &SaveCheckpoint, project: &ProjectId, context_hash: &Hash) -> Hash {
    let mut rest = serde_json::json!({
        "sessionId": request.session_id,
        "metadata": request.metadata,
        "force": request.force,
        "projectId": project,
        "agentId": request.agent_id,
        "workflowId": request.workflow_id,
        "expectedCheckpointId": request.expected_checkpoint_id,
        "parentCheckpointId": request.parent_checkpoint_id,
    });
    // What came later stands in it only when it was given: what was asked before is the same request still.
    if let Some(rules) = &request.context_rules {
        rest["contextRules"] = serde_json::json!(rules);
    }
    if let Some(origin) = &request.origin {
        rest["origin"] = serde_json::json!(origin);
    }
    Hash::of_parts(&[&context_hash.0, rest.to_string().as_bytes()])
}
