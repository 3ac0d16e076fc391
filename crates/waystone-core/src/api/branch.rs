//! Branches of a conversation: names for ways through its tree of messages.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::segment::text_or_null;
use super::{LIMIT_MAX, MessageType, Role, check_limit};
use crate::error::Result;
use crate::id::{BranchName, CheckpointId, IdempotencyKey, SegmentId, SessionId};

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
    /// Instead: a checkpoint of this conversation; it begins where that stands.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checkpoint_id: Option<CheckpointId>,
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

/// How much of a comparison is wanted.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DiffBranches {
    /// How many messages of each branch to return, 1 to 1000.
    #[serde(default = "DiffBranches::default_limit")]
    #[schemars(range(min = 1, max = LIMIT_MAX))]
    pub limit: u32,
}

impl DiffBranches {
    pub fn default_limit() -> u32 {
        50
    }

    pub(crate) fn check(&self) -> Result<()> {
        check_limit(self.limit)
    }
}

/// Where two branches part, and what each has since.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct BranchDiff {
    /// The last message that both have; `null` if they have none in common.
    #[schemars(schema_with = "text_or_null")]
    pub common_message_id: Option<SegmentId>,
    /// How many messages both have.
    pub common_messages: u64,
    pub a: BranchSide,
    pub b: BranchSide,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

/// What a branch has that the other has not.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[schemars(inline)]
pub struct BranchSide {
    pub name: String,
    /// Oldest first.
    pub messages: Vec<BranchMessage>,
    /// How many there are, and how many tokens they all have.
    pub total: u64,
    pub tokens: u64,
    pub has_more: bool,
}

/// A message in a comparison.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[schemars(inline)]
pub struct BranchMessage {
    pub message_id: SegmentId,
    pub role: Role,
    pub message_type: MessageType,
    pub tokens: u64,
    /// How it begins.
    pub preview: String,
}

/// Tells one branch what another one came to.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MergeBranch {
    /// The branch whose messages are meant, as far as this one does not have them.
    pub from: BranchName,
    /// Only show what would be added.
    #[serde(default)]
    pub dry_run: bool,
    /// Makes a retry safe, as the header `Idempotency-Key` does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idempotency_key: Option<IdempotencyKey>,
}

/// What was added to a branch, or would be.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct MergedBranch {
    /// The message that was added; left out of a preview.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message_id: Option<SegmentId>,
    /// What it says: what was asked, decided and changed on the other branch, with handles of the whole.
    pub content: String,
    pub tokens: u64,
    /// How many messages it stands for, and how many tokens they have.
    pub messages: u64,
    pub messages_tokens: u64,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

/// Told when a branch was told what another came to.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct BranchMerged {
    pub context_id: SessionId,
    pub branch: String,
    pub from: String,
    pub message_id: SegmentId,
}

/// The branches of a conversation, oldest first.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct BranchList {
    pub branches: Vec<Branch>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}
