//! Tools that models call, and their calls: asked for, approved or denied, run, answered.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::ContextState;
use super::metadata::{TEXT_MAX, is_short};
use crate::canon::{Hash, hash_object};
use crate::clock::Timestamp;
use crate::error::{Error, Result};
use crate::id::{IdempotencyKey, SegmentId, SessionId, ToolCallId};
use crate::tools::ToolOutput;

/// A tool as a model is told of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(inline)]
pub struct Tool {
    /// Letters, digits, `_` and `-`, at most 64.
    #[schemars(regex(pattern = r"^[A-Za-z0-9_-]{1,64}$"))]
    pub name: String,
    /// What it does, for the model.
    #[serde(default)]
    pub description: String,
    /// JSON schema of its arguments: an object.
    #[serde(default = "any_object")]
    pub input_schema: Map<String, Value>,
    /// It changes nothing: it may run unasked.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub read_only: bool,
    /// To run it twice is to run it once.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub idempotent: bool,
}

const NAME_CHARS_MAX: usize = 64;

fn any_object() -> Map<String, Value> {
    Map::from_iter([("type".to_owned(), "object".into())])
}

impl Tool {
    pub(crate) fn check(&self) -> Result<()> {
        let is_allowed = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
        if self.name.is_empty() || self.name.len() > NAME_CHARS_MAX || !self.name.chars().all(is_allowed) {
            let name = self.name.escape_default();
            return Err(Error::InvalidInput(format!(
                "tools: `{name}` must be 1 to {NAME_CHARS_MAX} of A-Z a-z 0-9 _ -"
            )));
        }
        // Providers refuse any other, and with it every turn.
        if self.input_schema.get("type").is_some_and(|kind| kind != "object") {
            return Err(Error::InvalidInput(format!(
                "tools: the input_schema of `{}` must have the type \"object\"",
                self.name
            )));
        }
        Ok(())
    }
}

/// Whether a call may be run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub enum ApprovalStatus {
    Pending,
    Approved,
    Denied,
    Expired,
}

impl ApprovalStatus {
    pub const ALL: [Self; 4] = [Self::Pending, Self::Approved, Self::Denied, Self::Expired];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "Pending",
            Self::Approved => "Approved",
            Self::Denied => "Denied",
            Self::Expired => "Expired",
        }
    }
}

/// What came of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub enum ToolOutcome {
    Succeeded,
    Failed,
    TimedOut,
    /// It was not run.
    Denied,
    /// Nobody decided in time; it was not run.
    Expired,
    /// The turn was ended before there was a result.
    Cancelled,
    /// It was started, and what ran it is gone. It runs again only if someone says so.
    OutcomeUnknown,
}

impl ToolOutcome {
    pub const ALL: [Self; 7] = [
        Self::Succeeded,
        Self::Failed,
        Self::TimedOut,
        Self::Denied,
        Self::Expired,
        Self::Cancelled,
        Self::OutcomeUnknown,
    ];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Succeeded => "succeeded",
            Self::Failed => "failed",
            Self::TimedOut => "timed_out",
            Self::Denied => "denied",
            Self::Expired => "expired",
            Self::Cancelled => "cancelled",
            Self::OutcomeUnknown => "outcome_unknown",
        }
    }
}

/// A call of a tool by a model.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct ToolCall {
    pub id: ToolCallId,
    pub tool_name: String,
    /// As they are run: those of the model, or what someone made of them.
    pub arguments: Value,
    pub approval_status: ApprovalStatus,
    /// What it returned.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub result: Option<Value>,
    /// When there was a result.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub executed_at: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub outcome: Option<ToolOutcome>,
    /// Of tool and arguments: what is approved is what has this hash.
    pub hash: String,
    /// The folder that it runs in: that of the conversation when the model called it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workspace_path: Option<String>,
    /// The message that calls it, and the one that has the result.
    pub message_id: SegmentId,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub result_message_id: Option<SegmentId>,
    /// Someone changed the arguments that the model gave.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub edited: bool,
    /// It changes nothing.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub read_only: bool,
    /// To run it twice is to run it once.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub idempotent: bool,
    /// Its tool was declared by a client, which answers with `POST …/tools/{id}/result`.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub by_client: bool,
    pub requested_at: Timestamp,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub decided_at: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Timestamp>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

impl ToolCall {
    /// As it is right after its arguments were changed, whatever has become of it since.
    pub(crate) fn edited(self, arguments: Value, hash: String, warnings: Vec<String>) -> Self {
        let outcome = self.outcome.filter(|outcome| *outcome == ToolOutcome::OutcomeUnknown);
        let (started_at, approval_status) = (self.started_at.filter(|_| outcome.is_some()), ApprovalStatus::Pending);
        let (result, executed_at, result_message_id, decided_at) = (None, None, None, None);
        Self {
            arguments,
            hash,
            edited: true,
            warnings,
            outcome,
            started_at,
            approval_status,
            result,
            executed_at,
            result_message_id,
            decided_at,
            ..self
        }
    }

    /// As it is right after a client answered it, whatever has become of it since. When its turn takes the answer is not known yet.
    pub(crate) fn answered(self, result: Value, outcome: ToolOutcome, warnings: Vec<String>) -> Self {
        let (result, outcome, approval_status) = (Some(result), Some(outcome), ApprovalStatus::Approved);
        let (started_at, executed_at, result_message_id) = (None, None, None);
        Self { result, outcome, approval_status, warnings, started_at, executed_at, result_message_id, ..self }
    }

    /// The same with what a client's tool returned.
    pub fn answered_by(self, answer: ToolOutput) -> Self {
        let outcome = if answer.is_error { ToolOutcome::Failed } else { ToolOutcome::Succeeded };
        let warnings = self.warnings.clone();
        self.answered(answer.content, outcome, warnings)
    }

    /// The hash by which a call is decided about. Of one that was begun before it is another: what was decided then does not count any more.
    pub fn asked_hash(hash: &str, begun: Option<Timestamp>) -> String {
        begun.map_or_else(|| hash.to_owned(), |begun| format!("{hash}-{}", begun.ms()))
    }

    /// What is approved: exactly this tool with exactly these arguments.
    pub(crate) fn hash_of(tool: &str, arguments: &Value) -> String {
        let both = Map::from_iter([("tool".to_owned(), tool.into()), ("arguments".to_owned(), arguments.clone())]);
        // What cannot be written canonically is hashed as it is written.
        hash_object(&both).unwrap_or_else(|| Hash::of(Value::Object(both).to_string().as_bytes())).to_string()
    }
}

/// The tools that a conversation can call.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct ToolList {
    pub tools: Vec<Tool>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

/// Approves or denies calls that wait for it.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DecideTools {
    #[schemars(length(min = 1, max = DECIDED_MAX))]
    pub tool_call_ids: Vec<ToolCallId>,
    /// By call, the `hash` of what was looked at: another one is refused.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub hashes: BTreeMap<String, String>,
    /// Why, which the model is told of a call that is denied.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = TEXT_MAX))]
    pub reason: Option<String>,
    /// Makes a retry safe, as the header `Idempotency-Key` does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idempotency_key: Option<IdempotencyKey>,
}

const DECIDED_MAX: usize = 100;

impl DecideTools {
    pub(crate) fn check(&self) -> Result<()> {
        let count = self.tool_call_ids.len();
        if count == 0 || count > DECIDED_MAX {
            return Err(Error::InvalidInput(format!(
                "tool_call_ids names {count} calls, 1 to {DECIDED_MAX} are possible"
            )));
        }
        let is_twice = |(at, id): (usize, &ToolCallId)| self.tool_call_ids[..at].contains(id);
        if self.tool_call_ids.iter().enumerate().any(is_twice) {
            return Err(Error::InvalidInput("tool_call_ids names a call twice".to_owned()));
        }
        if let Some(other) = self.hashes.keys().find(|id| self.tool_call_ids.iter().all(|named| named.as_str() != *id))
        {
            let other = other.escape_default();
            return Err(Error::InvalidInput(format!("hashes has `{other}`, which tool_call_ids does not name")));
        }
        if self.reason.as_ref().is_some_and(|reason| !is_short(reason)) {
            return Err(Error::InvalidInput(format!("reason must be text of 1 to {TEXT_MAX} characters")));
        }
        Ok(())
    }
}

/// What was decided, and where the conversation is now.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct DecidedTools {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub approved_count: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub denied_count: Option<usize>,
    pub context_state: ContextState,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

/// Other arguments for a call that waits for approval.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct EditArguments {
    pub arguments: Map<String, Value>,
}

/// What a client's own tool returned.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AnswerToolCall {
    /// Text, or anything else that JSON can say.
    pub result: Value,
    /// The tool failed, and `result` says why.
    #[serde(default)]
    pub is_error: bool,
}

/// Told when a model calls tools.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct ToolCallRequested {
    pub context_id: SessionId,
    pub tool_calls: Vec<RequestedCall>,
}

/// A call as it is told.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[schemars(inline)]
pub struct RequestedCall {
    pub id: ToolCallId,
    pub name: String,
    pub arguments: Value,
    pub approval_status: ApprovalStatus,
    pub hash: String,
    /// A client declared the tool, and is to answer.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub by_client: bool,
    /// It was started before, and what came of it is not known.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub outcome_unknown: bool,
}

/// Told when a call has a result, or will have none.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct ToolCallCompleted {
    pub context_id: SessionId,
    pub tool_call_id: ToolCallId,
    pub tool_name: String,
    pub outcome: ToolOutcome,
    /// The message that has the result; none has that of a call that was cancelled.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message_id: Option<SegmentId>,
    /// What was found in it, such as secrets, by place.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}
