//! What the store holds in figures, and what using it cost and saved.

use schemars::JsonSchema;
use serde::Serialize;

use super::{Class, Tier};
use crate::id::{ProjectId, SessionId};

/// What is kept, what it takes, and how long calls take.
#[derive(Debug, Clone, Default, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Stats {
    pub session_count: u64,
    /// Checkpoints that are not archived.
    pub checkpoint_count: u64,
    /// Sessions that were deleted and can be restored.
    pub archived_session_count: u64,
    /// Checkpoints that were pruned or deleted and can be restored.
    pub archived_checkpoint_count: u64,
    /// Contexts of all checkpoints as JSON text, archived ones included.
    pub raw_bytes: u64,
    /// The same as stored.
    pub stored_bytes: u64,
    /// How many times smaller they are stored; 0 when there are none.
    pub ratio: f64,
    /// All that counts against the quota: checkpoints, segments, contexts given to views.
    pub quota_used_bytes: u64,
    pub quota_max_bytes: u64,
    /// Changes made since the store was created.
    pub operation_count: u64,
    /// Segments by where they are, of all projects.
    pub tiers: Vec<TierStats>,
    /// Tokens of the newest contexts, by class.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub classes: Vec<ClassStats>,
    /// Of so many sessions, used last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub classified_session_count: Option<u64>,
    /// The sessions that take most.
    pub largest_sessions: Vec<LargeSession>,
    /// How much of contexts views left out.
    pub views: Vec<ViewStats>,
    /// How long calls took, by tool and by route; the most frequent first.
    pub calls: Vec<CallStats>,
    /// What a client should know, such as that nothing is kept beyond the end of the process.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TierStats {
    pub tier: Tier,
    pub segment_count: u64,
    pub tokens: u64,
}

#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClassStats {
    pub class: Class,
    pub tokens: u64,
}

#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LargeSession {
    pub session_id: SessionId,
    pub project_id: ProjectId,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    pub size_bytes: u64,
    pub checkpoint_count: u64,
}

#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ViewStats {
    /// How the view was asked for: compress, prioritize, load.
    pub name: String,
    pub count: u64,
    /// Of what a context has, in tokens.
    pub median_percent_saved: f64,
}

#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CallStats {
    /// A tool, or a method and a route.
    pub name: String,
    pub count: u64,
    /// An estimate.
    pub p50_ms: f64,
    /// An estimate.
    pub p95_ms: f64,
    /// All of them together.
    pub total_ms: f64,
}
