//! Checkpoints of conversations: where one stood, by reference. Its messages never change, so that is all of it; they are put in when it
//! is loaded.

use std::sync::Arc;

use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Map, Value, json};

use crate::api::{
    ChatConfig, LoadCheckpoint, LoadedCheckpoint, Metadata, Origin, SaveContext, SaveStatus, SavedCheckpoint,
};
use crate::canon::{Hash, hash_object};
use crate::engine::Engine;
use crate::engine::conversation::retry_of;
use crate::error::{Error, Result};
use crate::id::{BranchName, CheckpointId, ProjectId, SegmentId, SessionId};
use crate::offload::offload_unless;
use crate::pack::pack;
use crate::store::{Added, NewCheckpoint, Scope, WhichMessages};

/// The key under which a reference is kept.
const CONVERSATION: &str = "conversation";
/// How every reference begins. What an agent saves may begin so too; it is then no conversation's.
const BEGINS: &str = "{\"conversation\":";

/// Where a conversation stands.
pub(in crate::engine) struct Reference {
    pub(in crate::engine) branch: BranchName,
    pub(in crate::engine) head: SegmentId,
    pub(in crate::engine) config: ChatConfig,
}

impl Reference {
    fn written(&self) -> Map<String, Value> {
        let Self { branch, head, config } = self;
        Map::from_iter([(CONVERSATION.to_owned(), json!({ "branch": branch, "head": head, "config": config }))])
    }

    fn read(context: &RawValue) -> Option<Self> {
        let mut context: Map<String, Value> = serde_json::from_str(context.get()).ok()?;
        let mut reference = context.remove(CONVERSATION)?;
        Some(Self {
            branch: reference["branch"].as_str()?.parse().ok()?,
            head: reference["head"].as_str()?.parse().ok()?,
            config: serde_json::from_value(reference["config"].take()).ok()?,
        })
    }
}

impl Engine {
    /// A checkpoint of where a conversation stands.
    pub(in crate::engine) fn refer(
        &self,
        context: &SessionId,
        project: &ProjectId,
        reference: &Reference,
        metadata: Metadata,
    ) -> Result<NewCheckpoint> {
        let written = reference.written();
        let broken = || Error::broken("a conversation's configuration is nested too deep");
        let context_hash = hash_object(&written).ok_or_else(broken)?;
        let text = Value::Object(written).to_string();
        let packed = pack(text.as_bytes()).map_err(|error| Error::broken(format!("context: {error}")))?;
        Ok(NewCheckpoint {
            id: self.fresh_id()?,
            session: context.clone(),
            project: project.clone(),
            project_named: false,
            at: self.clock.now(),
            agent: None,
            workflow: None,
            metadata,
            origin: Origin::Agent,
            git: None,
            context_hash,
            correlation: Hash::of_parts(&[&context_hash.0]),
            packed: Some(Arc::new(packed)),
            is_reference: true,
            force: true,
            expected_head: None,
            parent: None,
            context_rules: None,
            idempotency: None,
            checkpoints_max: u64::MAX,
            session_bytes_max: self.limits.session_bytes_max,
            total_bytes_max: self.limits.total_bytes_max,
        })
    }

    /// Keeps where a conversation stands now.
    pub async fn save_context(
        &self,
        scope: &Scope,
        context: &SessionId,
        request: SaveContext,
    ) -> Result<SavedCheckpoint> {
        self.check_writable()?;
        let found = self.store.find_conversation(scope, context, false).await?;
        let branch = match &request.branch {
            Some(name) => name.clone(),
            None => found.active_branch_name.parse().map_err(Error::broken)?,
        };
        let Some(newest) = self.newest_message(scope, context, &branch).await? else {
            let why = "nothing was said on this branch yet, so there is nothing to keep";
            return Err(Error::InvalidInput(why.to_owned()));
        };
        let metadata = request.metadata.clone().unwrap_or_default();
        let secrets = self.scan_checkpoint(&Map::new(), &metadata)?;
        let reference = Reference { branch, head: newest.id, config: found.config };
        let mut new = self.refer(context, &found.project_id, &reference, metadata)?;
        let place = format!("contexts/{context}/checkpoints");
        new.idempotency = request.idempotency_key.clone().map(|key| retry_of(key, &place, &request));
        let checkpoint = match self.store.add_checkpoint(scope, new).await? {
            Added::New { checkpoint, .. } | Added::Unchanged(checkpoint) => checkpoint,
            Added::BytesWanted => return Err(Error::broken("a reference stands alone, and was not taken")),
        };
        let status = if self.volatile.is_some() { SaveStatus::Volatile } else { SaveStatus::Saved };
        let warnings = self.warnings().into_iter().chain(secrets).collect();
        Ok(SavedCheckpoint { warnings, ..SavedCheckpoint::of(checkpoint, status) })
    }

    /// Where a conversation stood by a checkpoint of it.
    pub(in crate::engine) async fn find_reference(
        &self,
        scope: &Scope,
        context: &SessionId,
        id: &CheckpointId,
    ) -> Result<Reference> {
        let wanted = LoadCheckpoint { checkpoint_id: Some(id.clone()), ..LoadCheckpoint::default() };
        let loaded = self.read_stored(scope, wanted).await?;
        if loaded.checkpoint.session_id != *context {
            return Err(Error::InvalidInput(format!("checkpoint `{id}` is not of this conversation")));
        }
        Reference::read(&loaded.context).ok_or_else(|| Error::broken(format!("checkpoint `{id}` refers to nothing")))
    }

    /// The same checkpoint, with the messages that it refers to.
    pub(super) async fn with_messages(&self, scope: &Scope, loaded: LoadedCheckpoint) -> Result<LoadedCheckpoint> {
        let session = loaded.checkpoint.session_id.clone();
        // Others may be large, and are not looked into.
        if !loaded.context.get().starts_with(BEGINS) || !self.store.is_conversation(scope, &session).await? {
            return Ok(loaded);
        }
        let Some(reference) = Reference::read(&loaded.context) else { return Ok(loaded) };
        let all = WhichMessages::UpTo(reference.head.clone());
        let messages = self.store.list_messages(scope, &session, &all).await?.messages;
        let write = move || {
            let mut context = reference.written();
            context.insert("messages".to_owned(), json!(messages));
            to_raw_value(&context)
        };
        let context = offload_unless(false, write).await?.map_err(|error| Error::broken(error.to_string()))?;
        Ok(LoadedCheckpoint { context, ..loaded })
    }
}
