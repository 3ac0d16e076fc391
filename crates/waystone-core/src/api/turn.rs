//! Turns of a conversation: where one is, and what readers are told while it goes on.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::ToolCall;
use crate::clock::Timestamp;
use crate::id::{SegmentId, SessionId};

/// Where a conversation's turn is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub enum ContextState {
    Idle,
    ProcessingUserMessage,
    AwaitingLLMResponse,
    StreamingLLMResponse,
    ProcessingLLMResponse,
    AwaitingToolApproval,
    ExecutingTools,
    TransientFailure,
    PermanentFailure,
}

impl ContextState {
    pub const ALL: [Self; 9] = [
        Self::Idle,
        Self::ProcessingUserMessage,
        Self::AwaitingLLMResponse,
        Self::StreamingLLMResponse,
        Self::ProcessingLLMResponse,
        Self::AwaitingToolApproval,
        Self::ExecutingTools,
        Self::TransientFailure,
        Self::PermanentFailure,
    ];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Idle => "Idle",
            Self::ProcessingUserMessage => "ProcessingUserMessage",
            Self::AwaitingLLMResponse => "AwaitingLLMResponse",
            Self::StreamingLLMResponse => "StreamingLLMResponse",
            Self::ProcessingLLMResponse => "ProcessingLLMResponse",
            Self::AwaitingToolApproval => "AwaitingToolApproval",
            Self::ExecutingTools => "ExecutingTools",
            Self::TransientFailure => "TransientFailure",
            Self::PermanentFailure => "PermanentFailure",
        }
    }

    /// Whether a turn is under way: no other can begin.
    pub fn is_running(self) -> bool {
        !matches!(self, Self::Idle | Self::PermanentFailure)
    }

    /// Whether a process is at work on it: who waits for a person needs none.
    pub fn is_driven(self) -> bool {
        self.is_running() && self != Self::AwaitingToolApproval
    }
}

/// Why a turn failed, and what to do about it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub struct TurnError {
    pub code: String,
    pub message: String,
    pub hint: String,
}

/// Where a conversation's turn is, and what can be done now.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct TurnState {
    pub current_state: ContextState,
    pub can_send_message: bool,
    /// Calls of tools that wait for someone to decide.
    pub pending_tool_approvals: u64,
    /// Those calls, in the order in which they were made.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub pending_tool_calls: Vec<ToolCall>,
    /// Calls of tools that the client declared, which wait for its answer.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub awaited_tool_calls: Vec<ToolCall>,
    /// The branch that the newest turn is on, and that a retry goes on with.
    pub branch: String,
    /// The message that is being written, while it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message_id: Option<SegmentId>,
    /// Why the turn failed, or is tried again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<TurnError>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

/// What became of a turn that was to be tried again or ended.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct TurnChanged {
    pub context_state: ContextState,
    /// The message that holds what was streamed before the turn was ended, if something was.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message_id: Option<SegmentId>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

/// Told when a conversation is in another state.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct StateChanged {
    pub context_id: SessionId,
    pub new_state: ContextState,
    pub timestamp: Timestamp,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<TurnError>,
}

/// Told as an answer is written. Whose `sequence` is 1 begins the message, or begins it anew.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct ContentDelta<'a> {
    pub context_id: &'a SessionId,
    pub message_id: &'a SegmentId,
    pub delta: &'a str,
    /// From 1 on in each attempt; of several that were joined for a slow reader the last one.
    pub sequence: u64,
    pub attempt: u64,
    /// Of several that were joined the first one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_sequence: Option<u64>,
}

/// Told when an answer is whole.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct MessageCompleted<'a> {
    pub context_id: &'a SessionId,
    pub message_id: &'a SegmentId,
    pub final_content: &'a str,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub cancelled: bool,
    /// What was found in it, such as secrets, by place; and that it may not be longer, if so.
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    pub warnings: &'a [String],
}

/// Told when what comes between what a reader saw last and what comes next is not known: here is what is written.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Resync {
    pub context_id: SessionId,
    pub current_state: ContextState,
    /// The message that is being written, or was written last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message_id: Option<SegmentId>,
    /// What it says so far.
    pub content: String,
    /// The last `sequence` in it.
    pub sequence: u64,
    pub attempt: u64,
    pub is_complete: bool,
}

/// Told so that connections stay open.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Heartbeat {
    pub timestamp: Timestamp,
}
