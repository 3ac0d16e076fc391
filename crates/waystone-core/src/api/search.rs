//! Search: in segments and in what sessions last saved.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::stash::{QUERY_MAX, check_length, check_tier, tier_schema};
use super::{Checkpoint, LIMIT_MAX, Segment, Tier, check_limit};
use crate::clock::Since;
use crate::error::Result;
use crate::id::ProjectId;

/// Why a search found something.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Hit {
    /// How well it fits: the more, the better.
    #[serde(serialize_with = "super::rounded")]
    pub score: f64,
    /// words, meaning, both, or that it stands beside a match.
    pub why: &'static str,
    /// The line that fits best.
    pub snippet: String,
    /// Which line of a segment that is: `?lines=` behind its handle returns what is around it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<u64>,
    /// How old it is, for who reads it.
    pub age: String,
}

impl Hit {
    /// Why something is found that does not fit itself.
    pub const BESIDE: &'static str = "beside a match";
}

/// Searches everything by words and by meaning: segments in the window and in the stash, and what sessions last saved.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SearchAll {
    /// Words, names, "phrases", or a question.
    #[schemars(length(max = QUERY_MAX))]
    pub query: String,
    /// Only in this project; left out, in all, your own first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub project_id: Option<ProjectId>,
    /// Only segments of this tier, and no checkpoints: working or stashed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "tier_schema")]
    pub tier: Option<Tier>,
    /// Only what was met or saved since: a time, or how long ago, such as 24h.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Since>,
    /// How many of each to return, 1 to 1000.
    #[serde(default = "SearchAll::default_limit")]
    #[schemars(range(min = 1, max = LIMIT_MAX))]
    pub limit: u32,
}

impl SearchAll {
    pub fn default_limit() -> u32 {
        10
    }

    pub(crate) fn check(&self) -> Result<()> {
        check_limit(self.limit)?;
        check_tier(self.tier)?;
        check_length(&self.query)
    }
}

/// What was found, best first.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct SearchResults {
    pub query: String,
    pub segments: Vec<Segment>,
    /// Each session's newest checkpoint.
    pub checkpoints: Vec<Checkpoint>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}
