//! Tools that models call, and their calls.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// A tool as a model is told of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(inline)]
pub struct Tool {
    /// Letters, digits, `_` and `-`, at most 64.
    #[schemars(regex(pattern = r"^[A-Za-z0-9_-]{1,64}$"))]
    pub name: String,
    /// What it does, for the model.
    #[serde(default)]
    pub description: String,
    /// JSON schema of its arguments: an object.
    #[serde(default = "any_object")]
    pub input_schema: Map<String, Value>,
    /// It changes nothing: it may run unasked.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub read_only: bool,
    /// To run it twice is to run it once.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub idempotent: bool,
}

fn any_object() -> Map<String, Value> {
    Map::from_iter([("type".to_owned(), "object".into())])
}
