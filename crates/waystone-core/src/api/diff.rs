//! What differs between two checkpoints.

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use super::Origin;
use crate::id::CheckpointId;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub enum ChangeKind {
    Added,
    Removed,
    Changed,
}

/// A top-level key that is not the same in both.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
pub struct Change {
    pub key: String,
    pub kind: ChangeKind,
    /// The value in the first; left out where `diff` says it shorter.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub before: Option<Value>,
    /// The value in the second; left out where `diff` says it shorter.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<Value>,
    /// A unified diff of long values, line by line.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub diff: Option<String>,
}

/// What differs between the contexts of two checkpoints, key by key.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CheckpointDiff {
    pub before_id: CheckpointId,
    pub after_id: CheckpointId,
    /// Where both came from, of the two the lower: user, agent, tool or import.
    pub origin: Origin,
    pub changes: Vec<Change>,
    /// What a client should know, such as that nothing is kept beyond the end of the process.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}
