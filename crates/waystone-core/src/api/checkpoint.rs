//! What is asked and answered about checkpoints.
//!
//! What a request's schema demands and its type cannot is tested in its `check`. What is attached to a checkpoint is in
//! [`super::metadata`]; what becomes of a request is in `engine/checkpoint.rs`.

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use crate::canon::Hash;
use crate::clock::{Since, Timestamp};
use crate::error::{Error, Result};
use crate::id::{AgentId, CheckpointId, IdempotencyKey, ProjectId, SessionId, WorkflowId};
use crate::json;

use super::metadata::{Metadata, TAGS_MAX, TEXT_MAX};
use super::stash::{QUERY_MAX, check_length};
use super::view::{ContextRule, TOKENS_MAX, ViewReport};
use super::{Git, Hit, LIMIT_MAX, Origin, check_limit};

/// Saves the current context as a checkpoint: on disk when this returns, and not twice if nothing changed. Save whenever losing the work
/// since the last save would hurt.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SaveCheckpoint {
    /// The run of work; left out, a new one is made. Its id is returned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_id: Option<SessionId>,
    /// All that is needed to go on from here. A JSON object; kept exactly as given.
    #[serde(deserialize_with = "json::object")]
    #[schemars(with = "Map<String, Value>")]
    pub context: Map<String, Value>,
    /// To find it by. A name, tags and other small fields, at most 16 KiB. A named or tagged checkpoint is never pruned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Metadata>,
    /// Save even if nothing changed. Otherwise what equals the newest checkpoint is not saved again.
    #[serde(default)]
    pub force: bool,
    /// Inferred when left out. The body of work that the session belongs to; named after the working directory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub project_id: Option<ProjectId>,
    /// Who saves. Kept with the checkpoint.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent_id: Option<AgentId>,
    /// What kind of work it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workflow_id: Option<WorkflowId>,
    /// Fail unless it is the newest. The code is then CONFLICT.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expected_checkpoint_id: Option<CheckpointId>,
    /// What this continues. A checkpoint of the session; the newest when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent_checkpoint_id: Option<CheckpointId>,
    /// Classes of keys in views. They count for this session from now on; the first that matches wins, before all other rules.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = ContextRule::RULES_MAX))]
    pub context_rules: Option<Vec<ContextRule>>,
    /// Who wrote it. `agent` when left out, `user` for a person, `tool` for what a tool returned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "super::origin::claimed_schema")]
    pub origin: Option<Origin>,
    /// Makes a retry safe. The same key with the same request gets the first answer, for 24 hours.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idempotency_key: Option<IdempotencyKey>,
}

/// What became of a save.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SavedCheckpoint {
    /// The new checkpoint, or the one that holds the same context already.
    pub checkpoint_id: CheckpointId,
    /// The session it belongs to.
    pub session_id: SessionId,
    /// SAVED: on disk. SKIPPED_UNCHANGED: the newest checkpoint holds this context already. VOLATILE: the data directory cannot
    /// be used, and the checkpoint is lost when the process ends.
    pub status: SaveStatus,
    /// Size of the checkpoint as stored, compressed.
    pub size_bytes: u64,
    /// When the checkpoint was saved.
    pub created_at: Timestamp,
    /// The checkpoint it continues.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parent_checkpoint_id: Option<CheckpointId>,
    /// What of the request had no effect, and why; or that nothing is kept beyond the end of the process.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
    /// How to get the context back.
    pub next: NextCall,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum SaveStatus {
    Saved,
    SkippedUnchanged,
    Volatile,
}

/// A call that is useful next.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct NextCall {
    pub tool: &'static str,
    pub arguments: Map<String, Value>,
}

/// Gets a saved context back: a checkpoint by its id, or the latest of a session. Give one of the two.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct LoadCheckpoint {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checkpoint_id: Option<CheckpointId>,
    /// Whose latest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_id: Option<SessionId>,
    /// Load a view of so many tokens. It is made as workflow_context_compress does; left out, the context is loaded whole.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = TOKENS_MAX))]
    pub max_tokens: Option<u64>,
}

/// A checkpoint without its context.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Checkpoint {
    pub checkpoint_id: CheckpointId,
    pub session_id: SessionId,
    /// The body of work its session belongs to.
    pub project_id: ProjectId,
    /// When it was saved.
    pub created_at: Timestamp,
    /// Size as stored, compressed.
    pub size_bytes: u64,
    /// What the client attached, as given.
    pub metadata: Metadata,
    /// Where its text came from, in falling order of trust: user, agent, tool, import.
    pub origin: Origin,
    /// What was said when it was first saved, wherever that was: for exports.
    #[serde(skip)]
    pub said_origin: Origin,
    /// Who saved it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent_id: Option<AgentId>,
    /// What kind of work it is from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workflow_id: Option<WorkflowId>,
    /// The checkpoint it continues.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parent_checkpoint_id: Option<CheckpointId>,
    /// Where the repository of who saved it stood.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub git: Option<Git>,
    /// SHA-256 of the context's canonical form: equal contexts have equal hashes.
    #[serde(serialize_with = "as_hex")]
    #[schemars(with = "String")]
    pub context_hash: Hash,
    /// It was pruned or deleted, and will be removed when its grace period ends.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub archived: bool,
    /// Why a search found it.
    #[serde(flatten)]
    pub hit: Option<Hit>,
}

/// A checkpoint with its context.
#[derive(Debug, Clone, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LoadedCheckpoint {
    #[serde(flatten)]
    pub checkpoint: Checkpoint,
    /// The same as `checkpointId`.
    pub id: CheckpointId,
    /// The name in its metadata.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The tags in its metadata.
    pub tags: Vec<String>,
    /// The same as `sizeBytes`.
    pub context_size_bytes: u64,
    /// The file that holds a second copy, from the data directory; null until there is one.
    #[schemars(schema_with = "path_or_null")]
    pub blob_path: Option<String>,
    /// The context as it was saved, or a view of it if maxTokens was given.
    #[schemars(with = "Map<String, Value>")]
    pub context: Box<RawValue>,
    /// What the view cost and left out, if it is one.
    #[serde(flatten)]
    pub view: Option<ViewReport>,
    /// Newer checkpoints of the session are damaged; this is the newest good one.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub degraded: bool,
    /// The damaged checkpoints that were passed over.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub skipped: Vec<CheckpointId>,
    /// What a client should know, such as that nothing is kept beyond the end of the process.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

fn as_hex<S: serde::Serializer>(hash: &Hash, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(hash)
}

fn path_or_null(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "anyOf": [{ "type": "string" }, { "type": "null" }] })
}

impl LoadedCheckpoint {
    pub(crate) fn new(checkpoint: Checkpoint, blob_path: Option<String>, context: Box<RawValue>) -> Self {
        Self {
            id: checkpoint.checkpoint_id.clone(),
            name: checkpoint.metadata.name().map(str::to_owned),
            tags: checkpoint.metadata.tags().map(str::to_owned).collect(),
            context_size_bytes: checkpoint.size_bytes,
            blob_path,
            checkpoint,
            context,
            view: None,
            degraded: false,
            skipped: Vec::new(),
            warnings: Vec::new(),
        }
    }
}

/// A checkpoint that is hidden now and will be removed.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DeletedCheckpoint {
    pub checkpoint_id: CheckpointId,
    pub session_id: SessionId,
    /// Until then it is kept, and loads by its id; left out when it was removed for good.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kept_until: Option<Timestamp>,
    /// What a client should know, such as that nothing is kept beyond the end of the process.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

/// Finds checkpoints, newest first, without contexts; filters narrow it down.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ListCheckpoints {
    /// Only of this session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_id: Option<SessionId>,
    /// Only of this project.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub project_id: Option<ProjectId>,
    /// Words in name, tags or metadata. Every word must occur, and there may be 32; with `content` any may.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = QUERY_MAX))]
    pub query: Option<String>,
    /// Ask it of what was saved instead. Best first, by words and by meaning, in each session's newest checkpoint; what was saved a moment
    /// ago is found a few seconds later. Without a query, and of what is archived, it has no effect.
    #[serde(default)]
    pub content: bool,
    /// All of these.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = TAGS_MAX))]
    pub tags: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workflow_id: Option<WorkflowId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent_id: Option<AgentId>,
    /// A time, or such as 24h. Saved at or after, or no longer ago.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Since>,
    /// Saved before it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Timestamp>,
    /// Those that were deleted or pruned and can be restored, instead of those that are there.
    #[serde(default)]
    pub archived: bool,
    #[serde(default = "ListCheckpoints::default_limit")]
    #[schemars(range(min = 1, max = LIMIT_MAX))]
    pub limit: u32,
    #[serde(default)]
    #[schemars(range(max = 4_294_967_295u32))]
    pub offset: u32,
    /// `nextCursor` of the page before. Goes on exactly where it ended, also when checkpoints were added meanwhile.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = r"^[0-7]?[0-9a-f]{1,15}$"))]
    pub cursor: Option<String>,
}

impl ListCheckpoints {
    const WORDS_MAX: usize = 32;

    pub fn default_limit() -> u32 {
        20
    }

    /// Whether contents are searched rather than checkpoints listed.
    pub fn is_search(&self) -> bool {
        self.content && !self.archived && self.query.as_deref().is_some_and(|query| !query.trim().is_empty())
    }

    /// Every filter is looked for in every row, so there are only so many.
    pub(crate) fn check(&self) -> Result<()> {
        check_limit(self.limit)?;
        let query = self.query.as_deref().unwrap_or_default();
        check_length(query)?;
        if !self.is_search() && query.split_whitespace().count() > Self::WORDS_MAX {
            return Err(Error::InvalidInput(format!("query has more than {} words", Self::WORDS_MAX)));
        }
        if self.tags.len() > TAGS_MAX || self.tags.iter().any(|tag| tag.chars().count() > TEXT_MAX) {
            let message = format!("tags are more than {TAGS_MAX}, or one has more than {TEXT_MAX} characters");
            return Err(Error::InvalidInput(message));
        }
        Ok(())
    }
}

/// One page of a list of checkpoints, newest first.
#[derive(Debug, Clone, Default, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CheckpointPage {
    pub checkpoints: Vec<Checkpoint>,
    /// What a client should know, such as that nothing is kept beyond the end of the process.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
    /// How many match, on all pages.
    pub total: u64,
    /// There are more after this page.
    pub has_more: bool,
    /// Give this as `cursor` to get the next page.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<String>,
}

/// The first page of everything.
impl Default for ListCheckpoints {
    fn default() -> Self {
        Self {
            session_id: None,
            project_id: None,
            query: None,
            content: false,
            tags: Vec::new(),
            workflow_id: None,
            agent_id: None,
            since: None,
            until: None,
            archived: false,
            limit: Self::default_limit(),
            offset: 0,
            cursor: None,
        }
    }
}
