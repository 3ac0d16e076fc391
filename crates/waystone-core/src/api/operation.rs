//! Operations: every change, in order, and how one is undone.

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value};

use super::{LIMIT_MAX, check_limit};
use crate::clock::Timestamp;
use crate::error::Result;
use crate::id::{OperationId, ProjectId};

/// Which operations to list.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ListOperations {
    /// Only this project's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub project_id: Option<ProjectId>,
    /// How many to return, 1 to 1000.
    #[serde(default = "ListOperations::default_limit")]
    #[schemars(range(min = 1, max = LIMIT_MAX))]
    pub limit: u32,
    /// `next_cursor` of the page before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = r"^[0-7]?[0-9a-f]{1,15}$"))]
    pub cursor: Option<String>,
}

impl ListOperations {
    pub fn default_limit() -> u32 {
        20
    }

    pub(crate) fn check(&self) -> Result<()> {
        check_limit(self.limit)
    }
}

/// One change.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[schemars(inline)]
pub struct Operation {
    pub operation_id: String,
    /// What became true, such as `segment.stashed`.
    pub kind: String,
    pub at: Timestamp,
    /// Who did it.
    pub actor: String,
    #[schemars(schema_with = "super::segment::text_or_null")]
    pub project_id: Option<ProjectId>,
    /// Whether context_undo can take it back: its kind has an inverse, and it is not undone.
    pub can_undo: bool,
    pub undone: bool,
    /// The ids and small fields it is about.
    #[schemars(schema_with = "fields")]
    pub data: Map<String, Value>,
}

impl Operation {
    /// How what it deleted is brought back, which is not by undoing.
    pub fn how_restored(&self) -> Option<String> {
        let field = |name| self.data.get(name)?.as_str();
        let (what, id, how) = match self.kind.as_str() {
            "session.deleted" => {
                let id = field("sessionId")?;
                ("session", id, format!("`waystone session restore {id}`"))
            }
            "checkpoint.deleted" => {
                let id = field("checkpointId")?;
                ("checkpoint", id, format!("`waystone checkpoint restore {id}`"))
            }
            "branch.deleted" => {
                let (context, name) = (field("context_id")?, field("branch")?);
                ("branch", name, format!("POST /api/contexts/{context}/branches/{name}/restore"))
            }
            _ => return None,
        };
        let operation = &self.operation_id;
        Some(format!("operation {operation} deleted {what} `{id}`, which is restored and not undone: {how}"))
    }
}

fn fields(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "object" })
}

/// Operations, newest first.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct OperationPage {
    pub operations: Vec<Operation>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

/// Takes back what was done to segments and tasks: the operation you name, or else your newest one that is not undone; call it again to
/// go further back. Fails with CONFLICT, naming what stands in between, if something changed since.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct UndoOperation {
    /// Inferred when left out. The body of work; named after the working directory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub project_id: Option<ProjectId>,
    /// The operation; your newest when left out.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "text_or_number")]
    pub operation_id: Option<OperationId>,
}

/// The id of an operation is a number in a text, and models leave the quotes out.
fn text_or_number<'de, D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Option<OperationId>, D::Error> {
    match Value::deserialize(deserializer)? {
        Value::Number(number) => number.to_string().parse().map(Some).map_err(D::Error::custom),
        other => Option::deserialize(other).map_err(D::Error::custom),
    }
}

/// What was undone.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct UndoneOperation {
    /// The operation that is undone now.
    pub undone: Operation,
    /// Of the undoing; undoing that does it again.
    pub operation_id: String,
    /// How many segments changed.
    pub segments_changed: u64,
    pub message: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}
