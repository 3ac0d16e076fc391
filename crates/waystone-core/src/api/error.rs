use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value};

/// Why a request failed, on every face.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct ErrorReply {
    pub error: ErrorBody,
}

#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct ErrorBody {
    /// What went wrong, for programs.
    pub code: String,
    /// What went wrong, for people.
    pub message: String,
    /// The ids and values it is about.
    #[schemars(with = "Map<String, Value>")]
    pub details: Value,
    /// What to do next.
    pub hint: String,
}
