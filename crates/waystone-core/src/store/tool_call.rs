//! What the store keeps of calls of tools.

use serde_json::Value;

use crate::api::{ApprovalStatus, ToolCall, ToolOutcome};
use crate::id::{SegmentId, ToolCallId};
use crate::tools::ToolOutput;

/// A call as a model made it.
#[derive(Debug, Clone)]
pub struct NewToolCall {
    pub id: ToolCallId,
    pub tool: String,
    pub arguments: Value,
    pub workspace_path: Option<String>,
    pub hash: String,
    pub status: ApprovalStatus,
    pub is_read_only: bool,
    pub is_idempotent: bool,
    pub is_by_client: bool,
}

/// What a step changes in the calls of a conversation. What is not open any more stays as it is.
#[derive(Debug, Clone)]
pub enum ToolChange {
    /// The first message of the step calls it.
    Add(NewToolCall),
    Decide {
        id: ToolCallId,
        status: ApprovalStatus,
    },
    Edit {
        id: ToolCallId,
        arguments: Value,
        hash: String,
    },
    /// It is about to be run.
    Start(ToolCallId),
    /// It was started, and no one knows what came of it: someone decides anew.
    Ask(ToolCallId),
    /// What came of it is in a message of the step.
    End {
        id: ToolCallId,
        outcome: ToolOutcome,
        message: SegmentId,
    },
    /// No one waits any more for what is still open.
    Abandon,
}

/// A call without a result.
#[derive(Debug, Clone)]
pub struct OpenCall {
    pub call: ToolCall,
    /// What a client answered, which is no message yet.
    pub answer: Option<ToolOutput>,
}
