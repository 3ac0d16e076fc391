//! Garbage collection: what may leave the window, in which order, and what must stay.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::stash::object_or_text;
use super::usage::descriptors_schema;
use super::{Descriptors, LIMIT_MAX, NextCall, SegmentError, SegmentType, check_limit};
use crate::error::{Error, Result};
use crate::id::{PlanId, ProjectId, SegmentId, TaskId};

/// Finds segments that may leave the window, those that will be missed least first, with the reason for each. With target_tokens it
/// makes a plan that frees so many; context_gc_prune carries it out by its plan_id. No segment moves yet.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AnalyzeGarbage {
    pub project_id: ProjectId,
    /// What the platform knows; segments of its current_file stay.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "object_or_text")]
    #[schemars(schema_with = "descriptors_schema")]
    pub context_descriptors: Option<Descriptors>,
    /// Only this task's segments.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task_id: Option<TaskId>,
    /// How many tokens to free: makes a plan.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = super::TOKENS_MAX))]
    pub target_tokens: Option<u64>,
    /// What the plan does with them: stash, or delete.
    #[serde(default)]
    pub action: PruneAction,
    /// How many candidates to list, 1 to 1000.
    #[serde(default = "AnalyzeGarbage::default_limit")]
    #[schemars(range(min = 1, max = LIMIT_MAX))]
    pub limit: u32,
}

impl AnalyzeGarbage {
    /// As many segments of a plan are listed; it may have more.
    pub(crate) const PLAN_LISTED_MAX: usize = 1000;

    pub fn default_limit() -> u32 {
        50
    }

    pub(crate) fn check(&self) -> Result<()> {
        if self.target_tokens.is_some_and(|target| !(1..=super::TOKENS_MAX).contains(&target)) {
            return Err(Error::InvalidInput(format!("target_tokens is from 1 to {}", super::TOKENS_MAX)));
        }
        check_limit(self.limit)
    }
}

/// What pruning does with a segment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub enum PruneAction {
    /// Out of the window, searchable.
    #[default]
    Stash,
    /// Gone, and kept for a while.
    Delete,
}

impl PruneAction {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Stash => "stash",
            Self::Delete => "delete",
        }
    }

    /// What was done.
    pub(crate) fn done(self) -> &'static str {
        match self {
            Self::Stash => "stashed",
            Self::Delete => "deleted",
        }
    }
}

/// What may leave the window.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct GarbageReply {
    /// Those that will be missed least first.
    pub pruning_candidates: Vec<Candidate>,
    /// Of all, not only of those that are listed.
    pub total_candidates: u64,
    pub estimated_tokens_freed: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pruning_plan: Option<PruningPlan>,
    /// What was described and is new was put by this operation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub operation_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<NextCall>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

/// A segment that may go.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[schemars(inline)]
pub struct Candidate {
    pub segment_id: SegmentId,
    /// 0 to 1; higher goes first.
    #[serde(serialize_with = "super::rounded")]
    pub score: f64,
    pub tokens: u64,
    pub reason: String,
    pub segment_type: SegmentType,
    #[serde(serialize_with = "super::rounded")]
    pub age_hours: f64,
}

/// What would be pruned to free the tokens that were asked for.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[schemars(inline)]
pub struct PruningPlan {
    /// Give it to context_gc_prune.
    pub plan_id: PlanId,
    /// The first of them.
    pub candidates: Vec<Candidate>,
    pub total_tokens_freed: u64,
    /// At most a thousand are listed; the plan has `segment_count`.
    pub stash_segments: Vec<SegmentId>,
    pub delete_segments: Vec<SegmentId>,
    pub segment_count: u64,
    /// By how much the target is missed, if nothing more may go.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tokens_missing: Option<u64>,
    pub reason: String,
}

/// Carries out a plan of context_gc_analyze, or prunes the segments that you name: stash moves them out of the window, delete hides them
/// for 7 days before they are removed. Pinned segments cannot be pruned. One call of context_undo takes it back.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PruneSegments {
    pub project_id: ProjectId,
    /// Which segments; or give plan_id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = PruneSegments::IDS_MAX))]
    pub segment_ids: Option<Vec<SegmentId>>,
    /// The plan to carry out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plan_id: Option<PlanId>,
    /// What to do; may be left out with a plan.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub action: Option<PruneAction>,
    /// Must be true to delete.
    #[serde(default)]
    pub confirm: bool,
}

impl PruneSegments {
    const IDS_MAX: usize = 10_000;

    pub(crate) fn check(&self) -> Result<()> {
        match (&self.segment_ids, &self.plan_id) {
            (Some(ids), None) => check_ids(ids),
            (None, Some(_)) => Ok(()),
            _ => Err(Error::InvalidInput("give either segment_ids or plan_id".to_owned())),
        }
    }
}

fn check_ids(ids: &[SegmentId]) -> Result<()> {
    match ids.len() {
        1..=PruneSegments::IDS_MAX => Ok(()),
        count => {
            Err(Error::InvalidInput(format!("segment_ids has {count} ids, 1 to {} are taken", PruneSegments::IDS_MAX)))
        }
    }
}

/// What was pruned.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct PruneReply {
    pub pruned_segments: Vec<SegmentId>,
    pub tokens_freed: u64,
    /// stashed or deleted.
    pub action: &'static str,
    pub errors: Vec<SegmentError>,
    /// Give it to context_undo to take this back; left out when nothing changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub operation_id: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

/// Which segments.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PinSegments {
    pub project_id: ProjectId,
    #[schemars(length(min = 1, max = PruneSegments::IDS_MAX))]
    pub segment_ids: Vec<SegmentId>,
}

impl PinSegments {
    pub(crate) fn check(&self) -> Result<()> {
        check_ids(&self.segment_ids)
    }
}

/// What is pinned now.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct PinReply {
    pub pinned_segments: Vec<SegmentId>,
    pub errors: Vec<SegmentError>,
    /// Give it to context_undo to take this back; left out when nothing changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub operation_id: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

/// What is no longer pinned.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct UnpinReply {
    pub unpinned_segments: Vec<SegmentId>,
    pub errors: Vec<SegmentError>,
    /// Give it to context_undo to take this back; left out when nothing changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub operation_id: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}
