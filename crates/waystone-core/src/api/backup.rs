//! What is answered about backups.

use schemars::JsonSchema;
use serde::Serialize;

/// A copy of all that is kept.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BackedUp {
    /// The directory it is in.
    pub path: String,
    pub size_bytes: u64,
    pub sessions: u64,
    pub checkpoints: u64,
    /// What a client should know, such as that nothing is kept beyond the end of the process.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}
