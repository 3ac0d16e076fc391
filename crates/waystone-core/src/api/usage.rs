//! Usage: how full the window is, and how well.

use std::collections::BTreeMap;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Serialize};

use super::stash::{either_schema, object_or_text};
use super::{NextCall, SaidMessage, SegmentType};
use crate::id::{ProjectId, TaskId};

/// Says how full the window is: tokens by type and task, a health score, and what to do about it. Warns from 60 % on. What the platform
/// describes (recent messages, summaries) is captured on the way.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AnalyzeUsage {
    pub project_id: ProjectId,
    /// What the platform knows: recent_messages, current_file, token_usage, segment_summaries, task_info; an object or JSON text.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "object_or_text")]
    #[schemars(schema_with = "descriptors_schema")]
    pub context_descriptors: Option<Descriptors>,
    /// Only this task's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task_id: Option<TaskId>,
    /// How many tokens the window holds; from the configuration when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = super::TOKENS_MAX))]
    pub token_limit: Option<u64>,
}

/// What a platform knows of its own context. Fields that are not known here are ignored.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub struct Descriptors {
    #[serde(default)]
    pub recent_messages: Option<Vec<SaidMessage>>,
    #[serde(default)]
    pub current_file: Option<CurrentFile>,
    #[serde(default)]
    pub token_usage: Option<TokenUsage>,
    #[serde(default)]
    pub segment_summaries: Option<Vec<DescribedSegment>>,
    #[serde(default)]
    pub task_info: Option<TaskInfo>,
}

#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub struct CurrentFile {
    pub path: String,
}

#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub struct TokenUsage {
    #[serde(default)]
    pub limit: Option<u64>,
}

#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub struct DescribedSegment {
    pub text: String,
    #[serde(default, rename = "type")]
    pub kind: Option<SegmentType>,
}

#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub struct TaskInfo {
    #[serde(default)]
    pub task_id: Option<TaskId>,
}

pub(super) fn descriptors_schema(_: &mut SchemaGenerator) -> Schema {
    either_schema(schemars::json_schema!({ "type": "object" }))
}

/// How full the window is.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct UsageReply {
    pub usage_metrics: UsageMetrics,
    pub health_score: Health,
    pub recommendations: Vec<Recommendation>,
    pub warnings: Vec<String>,
    /// Calls that help, with their arguments.
    pub suggested_actions: Vec<NextCall>,
    pub impact_summary: Impact,
    /// How many segments could be pruned.
    pub pruning_candidates_count: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<NextCall>,
}

/// Of the working set.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[schemars(inline)]
pub struct UsageMetrics {
    pub total_tokens: u64,
    pub total_segments: u64,
    pub tokens_by_type: BTreeMap<&'static str, u64>,
    pub segments_by_type: BTreeMap<&'static str, u64>,
    /// The largest hundred.
    pub tokens_by_task: BTreeMap<String, u64>,
    pub oldest_segment_age_hours: f64,
    pub newest_segment_age_hours: f64,
    pub pinned_segments_count: u64,
    pub pinned_tokens: u64,
    pub usage_percent: f64,
    pub estimated_remaining_tokens: u64,
    pub token_limit: u64,
}

#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[schemars(inline)]
pub struct Health {
    /// 0 to 100.
    pub score: f64,
    pub usage_percent: f64,
    pub factors: Factors,
}

/// Each 0 to 1, 1 is best.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[schemars(inline)]
pub struct Factors {
    pub usage: f64,
    pub distribution: f64,
    pub age: f64,
}

#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[schemars(inline)]
pub struct Recommendation {
    /// low, medium, high or urgent.
    pub priority: &'static str,
    pub message: String,
    /// The tool that helps.
    #[schemars(schema_with = "super::segment::text_or_null")]
    pub action: Option<&'static str>,
}

/// What pruning all that may go would bring.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[schemars(inline)]
pub struct Impact {
    pub pruning_candidates_count: u64,
    pub estimated_tokens_freed: u64,
    pub estimated_usage_after_pruning: f64,
}
