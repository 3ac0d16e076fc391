//! What is asked and answered about cleaning up. What becomes of a request is in `engine/retention.rs`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::clock::{Since, Timestamp};
use crate::id::{CheckpointId, SessionId};

/// How something is deleted.
#[derive(Debug, Clone, Copy, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Deletion {
    /// Remove it for good at once, with no time in which it can be restored.
    #[serde(default)]
    pub purge: bool,
}

/// Deletes what is old. Without `olderThan` and `keepLast` sessions that were not used for a while; otherwise checkpoints of
/// every session that meet all that is given, but never its newest, nor one with a name, a tag or a branch.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CleanUp {
    /// Checkpoints saved before this time, or longer ago than this, such as `7d`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub older_than: Option<Since>,
    /// Checkpoints beyond the newest so many of their session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(max = 4_294_967_295u32))]
    pub keep_last: Option<u32>,
    /// Only of this session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_id: Option<SessionId>,
    /// Only tell what would be deleted.
    #[serde(default)]
    pub dry_run: bool,
}

/// What was deleted of a session, or would be.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Cleaned {
    pub session_id: SessionId,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The session itself, with all its checkpoints.
    pub whole_session: bool,
    pub checkpoints: u64,
    /// Their size as stored.
    pub size_bytes: u64,
    pub last_accessed_at: Timestamp,
}

/// What a cleanup did, or would do.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CleanedUp {
    pub dry_run: bool,
    /// Whole sessions that were deleted.
    pub sessions: u64,
    /// Checkpoints that were deleted, those of whole sessions included.
    pub checkpoints: u64,
    /// Their size as stored. It is given back when they are removed for good.
    pub size_bytes: u64,
    /// Session by session; at most the first 1000.
    pub cleaned: Vec<Cleaned>,
    /// Until then all of it can be restored.
    pub kept_until: Timestamp,
    /// What a client should know, such as that nothing is kept beyond the end of the process.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

impl CleanedUp {
    pub(crate) const TOLD_MAX: usize = 1000;
}

/// A checkpoint that is listed again.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RestoredCheckpoint {
    pub checkpoint_id: CheckpointId,
    pub session_id: SessionId,
    /// What a client should know, such as that nothing is kept beyond the end of the process.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}
