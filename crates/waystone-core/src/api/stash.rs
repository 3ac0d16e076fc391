//! The stash: segments outside of the window, found by words and by what is known of them.

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{DeserializeOwned, Error as _};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

use super::segment::{check_path, check_tags};
use super::{LIMIT_MAX, Segment, SegmentError, SegmentType, Tier, check_limit};
use crate::clock::{Since, Timestamp};
use crate::error::{Error, Result};
use crate::id::{ProjectId, SegmentId, TaskId};
use crate::json;
use crate::words::Words;

/// Which segments are meant. All that are given must hold.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(inline)]
pub struct SegmentFilters {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file_path: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task_id: Option<TaskId>,
    /// All of these.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<String>,
    #[serde(default, rename = "type", skip_serializing_if = "Option::is_none")]
    pub kind: Option<SegmentType>,
    /// A time, or a date.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created_after: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created_before: Option<Timestamp>,
    /// A time, or how long ago, such as 24h.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Since>,
    /// working or stashed; what a search is about when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "tier_schema")]
    pub tier: Option<Tier>,
}

impl SegmentFilters {
    fn check(&self) -> Result<()> {
        check_tags(&self.tags)?;
        check_tier(self.tier)?;
        check_path(self.file_path.as_deref())
    }

    /// With times instead of how long ago, and apart from them the tiers that are meant; `others` when none is named.
    pub(crate) fn resolve(&self, now: Timestamp, others: &'static [Tier]) -> (Self, &'static [Tier]) {
        let since = self.since.as_ref().map(|since| since.before(now));
        let filters = Self { created_after: self.created_after.max(since), since: None, tier: None, ..self.clone() };
        (filters, self.tier.map_or(others, tiers_of))
    }
}

/// A tier that is searched, or nothing.
pub(super) fn tier_schema(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": ["string", "null"], "enum": ["working", "stashed", null] })
}

/// What is deleted is not searched.
pub(super) fn check_tier(tier: Option<Tier>) -> Result<()> {
    match tier {
        Some(Tier::Archive) => Err(Error::InvalidInput("tier is working or stashed".to_owned())),
        _ => Ok(()),
    }
}

/// A tier as a list of tiers.
pub(crate) fn tiers_of(tier: Tier) -> &'static [Tier] {
    match tier {
        Tier::Working => &[Tier::Working],
        Tier::Stashed | Tier::Archive => &[Tier::Stashed],
    }
}

/// A field that may be an object, or the same as JSON text.
pub(super) fn object_or_text<'de, T: DeserializeOwned, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<T>, D::Error> {
    let value = match json::any(deserializer)? {
        Value::Null => return Ok(None),
        Value::String(text) => json::parse_strict(text.as_bytes())
            .map_err(|error| D::Error::custom(format!("it is neither an object nor one as JSON text: {error}")))?,
        other => other,
    };
    if !value.is_object() {
        return Err(D::Error::custom("it is neither an object nor one as JSON text"));
    }
    serde_json::from_value(value).map(Some).map_err(D::Error::custom)
}

fn filters_schema(generator: &mut SchemaGenerator) -> Schema {
    either_schema(SegmentFilters::json_schema(generator))
}

/// An object, or the same as JSON text, or nothing.
pub(super) fn either_schema(object: Schema) -> Schema {
    json_schema!({ "anyOf": [object, { "type": "string" }, { "type": "null" }] })
}

/// How long a query may be, in characters.
pub(super) const QUERY_MAX: usize = 8192;

pub(super) fn check_length(query: &str) -> Result<()> {
    let length = query.chars().count();
    if length > QUERY_MAX {
        return Err(Error::InvalidInput(format!("query has {length} characters, at most {QUERY_MAX} are taken")));
    }
    Ok(())
}

fn check_query(query: Option<&str>) -> Result<()> {
    check_length(query.unwrap_or_default())?;
    // It would select everything.
    if query.is_some_and(|query| !query.trim().is_empty() && Words::parse(query).is_empty()) {
        return Err(no_word());
    }
    Ok(())
}

fn no_word() -> Error {
    Error::InvalidInput("query has no word to look for".to_owned())
}

/// Moves segments out of the window into the stash, where they stay searchable: those with every word of the query that pass the filters;
/// with neither, the whole working set except pins. context_undo takes it back.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct StashSegments {
    /// Inferred when left out. The body of work; named after the working directory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub project_id: Option<ProjectId>,
    /// Words and "quoted phrases" that must all occur in the text, or a segment's id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = QUERY_MAX))]
    pub query: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "object_or_text")]
    #[schemars(schema_with = "filters_schema")]
    pub filters: Option<SegmentFilters>,
}

impl StashSegments {
    pub(crate) fn check(&self) -> Result<()> {
        // One that was meant to have words must not empty the window.
        if self.query.as_deref().is_some_and(|query| Words::parse(query).is_empty()) {
            return Err(no_word());
        }
        check_selection(self.query.as_deref(), self.filters.as_ref())
    }
}

/// What was stashed.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct StashReply {
    pub project_id: ProjectId,
    /// The first ten thousand.
    pub stashed_segments: Vec<SegmentId>,
    pub tokens_stashed: u64,
    /// How many were selected, pinned ones included.
    pub segments_matched: u64,
    /// Those that were selected and stay, as they are pinned.
    pub errors: Vec<SegmentError>,
    /// Give it to context_undo to take this back; left out when nothing changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub operation_id: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

/// Searches the stash by words and by meaning, best first; moves nothing. Without a query it lists by filters, newest first.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SearchStashed {
    /// All when left out. The body of work; your own comes first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub project_id: Option<ProjectId>,
    /// Words, names, "phrases", or a question. What to look for; at most 8192 characters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = QUERY_MAX))]
    pub query: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "object_or_text")]
    #[schemars(schema_with = "filters_schema")]
    pub filters: Option<SegmentFilters>,
    #[serde(default = "SearchStashed::default_limit")]
    #[schemars(range(min = 1, max = LIMIT_MAX))]
    pub limit: u32,
    /// `next_cursor` of the page before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = r"^[0-7]?[0-9a-f]{1,15}$"))]
    pub cursor: Option<String>,
    /// Long texts whole.
    #[serde(default)]
    pub full: bool,
}

impl SearchStashed {
    pub fn default_limit() -> u32 {
        50
    }

    pub(crate) fn check(&self) -> Result<()> {
        check_limit(self.limit)?;
        check_selection(self.query.as_deref(), self.filters.as_ref())
    }
}

/// What a search found.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct SearchReply {
    pub segments: Vec<Segment>,
    /// Of all, not of this page.
    pub total_matches: u64,
    /// There may be more: texts with only the commonest words of the query were not looked at.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub total_is_lower_bound: bool,
    #[schemars(schema_with = "super::segment::text_or_null")]
    pub query: Option<String>,
    pub filters_applied: SegmentFilters,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

/// Gets the stashed segments back that fit the query best, by words and by meaning.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RetrieveStashed {
    /// Inferred when left out. The body of work; named after the working directory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub project_id: Option<ProjectId>,
    /// Words, names, "phrases", or a question. What to look for; at most 8192 characters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = QUERY_MAX))]
    pub query: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "object_or_text")]
    #[schemars(schema_with = "filters_schema")]
    pub filters: Option<SegmentFilters>,
    /// Also move them into the window.
    #[serde(default)]
    pub move_to_active: bool,
    #[serde(default = "RetrieveStashed::default_limit")]
    #[schemars(range(min = 1, max = LIMIT_MAX))]
    pub limit: u32,
    /// Long texts whole.
    #[serde(default)]
    pub full: bool,
}

impl RetrieveStashed {
    pub fn default_limit() -> u32 {
        10
    }

    pub(crate) fn check(&self) -> Result<()> {
        check_limit(self.limit)?;
        check_selection(self.query.as_deref(), self.filters.as_ref())
    }
}

/// What was retrieved.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct RetrieveReply {
    pub project_id: ProjectId,
    pub retrieved_segments: Vec<Segment>,
    /// Those that are in the window now, if that was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub moved_to_active: Option<Vec<SegmentId>>,
    /// How many fit, those beyond the limit included.
    pub segments_found: u64,
    /// Give it to context_undo to take this back; left out when nothing changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub operation_id: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

fn check_selection(query: Option<&str>, filters: Option<&SegmentFilters>) -> Result<()> {
    check_query(query)?;
    filters.map_or(Ok(()), SegmentFilters::check)
}
