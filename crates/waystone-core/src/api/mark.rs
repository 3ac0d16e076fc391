//! Marks: an agent's word that a key of its context must never be shortened.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Class;
use crate::id::SessionId;

/// Marks a top-level key of the context as CRITICAL: it is never shortened or dropped in any view, now and in later checkpoints of the
/// session. Use it for what must not be lost, such as the user's goal or a final answer.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct MarkCritical {
    /// The top-level key in the context to mark as critical.
    #[schemars(length(max = MarkCritical::KEY_MAX))]
    pub context_key: String,
    /// The session; left out, the one that you last saved.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_id: Option<SessionId>,
}

impl MarkCritical {
    pub const KEY_MAX: usize = 1024;
    /// As many keys of a session may be marked.
    pub const MARKS_MAX: usize = 256;

    pub(crate) fn check(&self) -> Result<(), String> {
        let length = self.context_key.chars().count();
        let is_good = length <= Self::KEY_MAX;
        is_good
            .then_some(())
            .ok_or_else(|| format!("contextKey has {length} characters, it may have {}", Self::KEY_MAX))
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
#[schemars(inline)]
pub enum MarkStatus {
    Success,
    KeyNotFound,
}

/// What became of a mark.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MarkedCritical {
    /// SUCCESS: it is as asked for. KEY_NOT_FOUND: the newest checkpoint of the session has no such key, and nothing changed.
    pub status: MarkStatus,
    pub message: String,
    pub session_id: SessionId,
    pub context_key: String,
    /// What a client should know, such as that nothing is kept beyond the end of the process.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

/// How a key of a session's newest checkpoint is treated, and why.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct KeyClass {
    pub session_id: SessionId,
    pub context_key: String,
    /// Whether it is marked.
    pub critical: bool,
    pub class: Class,
    /// The rule that gave it its class.
    pub rule: String,
    /// What a client should know, such as that nothing is kept beyond the end of the process.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}
