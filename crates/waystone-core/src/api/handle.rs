//! Handles: from what a view left out back to the original.

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::Origin;

/// Returns the original behind a handle: what a view shortened or dropped, or a long text.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ExpandHandle {
    /// Such as `ws:checkpoint:<id>#/key/0?lines=10-20`. One may go deeper, as in `#/messages/12/content`; `?lines=10-20` or
    /// `?bytes=0-1000` behind it names a part.
    pub handle: String,
    /// Characters to skip.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub offset: Option<u64>,
    /// Characters at most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub limit: Option<u64>,
}

/// What a handle stands for.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct ExpandedHandle {
    pub handle: String,
    /// The value itself; a part of it is text, of a value that is not text in its JSON.
    #[schemars(schema_with = "any_value")]
    pub content: Value,
    /// Where it came from: user, agent, tool or import.
    pub origin: Origin,
    /// Characters of the whole, as text or JSON.
    pub total_chars: u64,
    /// Where `content` begins.
    pub offset: u64,
    /// Give this as `offset` to go on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_offset: Option<u64>,
    /// What a client should know, such as that nothing is kept beyond the end of the process.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

/// Said in full: some clients take an empty schema for a mistake.
fn any_value(_: &mut SchemaGenerator) -> Schema {
    let kinds =
        ["string", "object", "array", "number", "boolean", "null"].map(|kind| serde_json::json!({ "type": kind }));
    json_schema!({ "anyOf": kinds })
}
