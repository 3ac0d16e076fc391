//! Usage: how full the window is, and how well.

use std::collections::BTreeMap;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

use super::metadata::TEXT_MAX;
use super::stash::{either_schema, object_or_text};
use super::{NextCall, SaidMessage, SegmentType};
use crate::id::{ProjectId, TaskId};
use crate::json;

/// Says how full the window is, and what to do about it. What the platform describes is captured on the way.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AnalyzeUsage {
    pub project_id: ProjectId,
    /// What the platform knows: {recent_messages, current_file, token_usage, segment_summaries, task_info}. An object, or the same as JSON
    /// text.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "object_or_text")]
    #[schemars(schema_with = "descriptors_schema")]
    pub context_descriptors: Option<Descriptors>,
    /// Only this task's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task_id: Option<TaskId>,
    /// What the window holds. From the configuration when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = super::TOKENS_MAX))]
    pub token_limit: Option<u64>,
}

/// What a platform knows of its own context. Every platform describes it its own way, so what is not understood is passed over.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Descriptors {
    pub recent_messages: Vec<SaidMessage>,
    /// The path of the file that is worked on.
    pub current_file: Option<String>,
    pub token_limit: Option<u64>,
    /// Texts with their types.
    pub segment_summaries: Vec<(String, SegmentType)>,
    pub task_id: Option<TaskId>,
}

impl<'de> Deserialize<'de> for Descriptors {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let given = json::object(deserializer)?;
        let field = |name: &str| given.get(name).unwrap_or(&Value::Null);
        let list = |name: &str| field(name).as_array().cloned().unwrap_or_default();
        let limit = field("token_usage").get("limit").and_then(Value::as_f64).filter(|limit| *limit >= 1.0);
        let described = |segment: &Value| {
            let kind = segment.get("type").cloned().and_then(|kind| serde_json::from_value(kind).ok());
            Some((text_of(segment.get("text")?)?, kind.unwrap_or(SegmentType::Note)))
        };
        Ok(Self {
            recent_messages: list("recent_messages").iter().filter_map(message).collect(),
            current_file: field("current_file").get("path").and_then(Value::as_str).map(str::to_owned),
            token_limit: limit.map(|limit| limit as u64),
            segment_summaries: list("segment_summaries").iter().filter_map(described).collect(),
            task_id: field("task_info").get("task_id").and_then(Value::as_str).and_then(|id| id.parse().ok()),
        })
    }
}

fn message(given: &Value) -> Option<SaidMessage> {
    let text = |name: &str| given.get(name).and_then(Value::as_str);
    let role = text("role").filter(|role| role.chars().count() <= TEXT_MAX).map(str::to_owned);
    let timestamp = text("timestamp").and_then(|at| at.parse().ok());
    Some(SaidMessage { role, content: text_of(given.get("content")?)?, timestamp })
}

/// A text, or the texts of the parts that a message has with some providers.
fn text_of(content: &Value) -> Option<String> {
    let text = match content {
        Value::Array(parts) => {
            let texts = parts.iter().filter_map(|part| part.get("text").unwrap_or(part).as_str());
            texts.collect::<Vec<_>>().join("\n")
        }
        other => other.as_str()?.to_owned(),
    };
    (!text.is_empty()).then_some(text)
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
    /// What was described and is new was put by this operation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub operation_id: Option<String>,
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
    #[serde(serialize_with = "super::rounded")]
    pub oldest_segment_age_hours: f64,
    #[serde(serialize_with = "super::rounded")]
    pub newest_segment_age_hours: f64,
    pub pinned_segments_count: u64,
    pub pinned_tokens: u64,
    #[serde(serialize_with = "super::rounded")]
    pub usage_percent: f64,
    pub estimated_remaining_tokens: u64,
    pub token_limit: u64,
}

#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[schemars(inline)]
pub struct Health {
    /// 0 to 100.
    #[serde(serialize_with = "super::rounded")]
    pub score: f64,
    #[serde(serialize_with = "super::rounded")]
    pub usage_percent: f64,
    pub factors: Factors,
}

/// Each 0 to 1, 1 is best.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[schemars(inline)]
pub struct Factors {
    #[serde(serialize_with = "super::rounded")]
    pub usage: f64,
    #[serde(serialize_with = "super::rounded")]
    pub distribution: f64,
    #[serde(serialize_with = "super::rounded")]
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
    #[serde(serialize_with = "super::rounded")]
    pub estimated_usage_after_pruning: f64,
}
