//! Branches of a conversation: names for ways through its tree of messages.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::segment::text_or_null;
use crate::id::{BranchName, IdempotencyKey, SegmentId};

/// A branch: what was said on it since it began.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Branch {
    pub name: String,
    /// Its own messages, oldest first. Those before it began are the others' that it continues.
    pub message_ids: Vec<SegmentId>,
    /// The message that it continues; `null` if it begins the conversation.
    #[schemars(schema_with = "text_or_null")]
    pub parent_message_id: Option<SegmentId>,
    pub is_active: bool,
}

/// Begins a branch.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateBranch {
    pub name: BranchName,
    /// The message that it continues; the newest of the active branch when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent_message_id: Option<SegmentId>,
    /// Instead: the message in whose place it begins, after what comes before that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before_message_id: Option<SegmentId>,
    /// Makes a retry safe, as the header `Idempotency-Key` does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idempotency_key: Option<IdempotencyKey>,
}

/// Which branch is active now.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct SwitchedBranch {
    pub active_branch_name: String,
    /// How many messages it has of its own.
    pub message_count: u64,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

/// The branches of a conversation, oldest first.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct BranchList {
    pub branches: Vec<Branch>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}
