//! Windows: what a model is told in one call, part by part.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Class;
use crate::clock::Timestamp;
use crate::id::{BranchName, SegmentId, SessionId};

/// Which window of a conversation is wanted.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FindWindow {
    /// That of the next call, as it would be now; that of the last one when left out.
    #[serde(default)]
    pub next: bool,
    /// Of which branch; the active one when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub branch: Option<BranchName>,
}

/// What a model is told in one call.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Window {
    pub context_id: SessionId,
    pub model_id: String,
    /// In the order in which the model is told, except for the tools, whose place is up to its provider.
    pub spans: Vec<WindowSpan>,
    pub tokens: u64,
    /// How many tokens the model's window holds.
    pub limit: u64,
    /// How many of them may be filled: the rest is for the answer.
    pub budget: u64,
    /// Of the tokens, those at the beginning that are the same as in the call before.
    pub cached_tokens: u64,
    /// They were not counted with the model's own tokenizer.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub estimated: bool,
    /// What it costs to be read, in US dollars, if prices are configured and the provider keeps what it has read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cost_usd: Option<f64>,
    /// Messages that the model does not see, or not whole.
    pub left_out: Vec<LeftOutMessage>,
    /// What became of decisions, demands and errors in what the digest stands for; left out where there is no digest.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub survival: Option<WindowSurvival>,
    /// What is not as in the call before it, besides new messages.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub changes: Vec<WindowChange>,
    /// When it was assembled; left out of one that was not sent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub assembled_at: Option<Timestamp>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

/// A part of a window.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[schemars(inline)]
pub struct WindowSpan {
    /// The message it is of.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message_id: Option<SegmentId>,
    /// `system_prompt`, `tools`, `digest`, `user`, `assistant`, `system`, `tool_call` or `tool_result`.
    pub kind: &'static str,
    pub class: Class,
    /// Why it is there: `always`, `pinned`, `last_request`, `current_turn`, `fits` or `paired`; or how: `elided`, `shortened`,
    /// `stands_for_more`.
    pub reason: &'static str,
    pub tokens: u64,
    /// SHA-256 of what the model is told of it, in hex; left out for tools.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hash: Option<String>,
    /// All up to its end is the same as in the call before.
    pub cached: bool,
}

/// A message that is not in a window, or not whole.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[schemars(inline)]
pub struct LeftOutMessage {
    pub message_id: SegmentId,
    /// How many of its tokens are not there.
    pub tokens: u64,
    /// `elided` to a line, `shortened` to its most telling lines, `digested`, `out`, or `stashed` by someone.
    pub reason: &'static str,
    /// `context_expand` and `GET /api/handles/{handle}` return the whole.
    pub handle: String,
}

/// Lines that must not be lost, of what a digest stands for: the newest decisions and demands, and the newest error.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(inline)]
pub struct WindowSurvival {
    pub total: u64,
    /// The digest says them.
    pub in_view: u64,
    /// The model finds them by `context_search_stashed` or `context_expand`.
    pub one_call_away: u64,
    /// There was no room to offer it these.
    pub lost: u64,
}

/// What changes a window besides new messages. The model's provider reads all after it anew.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub enum WindowChange {
    /// There is none before it.
    First,
    /// It did not fit any more, and more was left out.
    Cut,
    /// Something was pinned or unpinned.
    Pins,
    /// Something was taken out, or put back.
    Stash,
    Model,
    SystemPrompt,
    Tools,
}

/// Told before a model is called.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct WindowAssembled {
    pub context_id: SessionId,
    pub branch: String,
    pub model_id: String,
    pub tokens: u64,
    pub limit: u64,
    pub cached_tokens: u64,
    /// How many parts it has, and how many messages are not in it, or not whole.
    pub spans: u64,
    pub left_out: u64,
    /// What became of decisions, demands and errors in what the digest stands for; left out where there is no digest.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub survival: Option<WindowSurvival>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub changes: Vec<WindowChange>,
    /// The model that summed up what was left out, if one did just now, and what that cost where its prices are known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub digest_by: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub digest_cost_usd: Option<f64>,
    /// Such as why no model did.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

/// Told when a window is nearly full.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct UsageWarning {
    pub context_id: SessionId,
    /// Of what may be filled.
    pub percent: u64,
    /// `medium` from 60 on, `high` from 80 on, `urgent` from 90 on.
    pub level: &'static str,
    pub message: String,
}
