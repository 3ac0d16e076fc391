//! Tasks: labels that group segments, of which one may be current in a project; and snapshots of them.

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Serialize};

use super::metadata::TEXT_MAX;
use super::segment::text_or_null;
use super::{LIMIT_MAX, NextCall, Origin, Segment, check_limit};
use crate::clock::Timestamp;
use crate::error::{Error, Result};
use crate::id::{ProjectId, SnapshotId, TaskId};

/// Makes a task the current one of a project, or none: the working set is then that task's. What is put from now on belongs to it.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SetCurrentTask {
    pub project_id: ProjectId,
    /// Left out for none. `null` says the same.
    #[serde(default)]
    #[schemars(schema_with = "task_or_null")]
    pub task_id: Option<TaskId>,
}

fn task_or_null(generator: &mut SchemaGenerator) -> Schema {
    schemars::json_schema!({ "anyOf": [TaskId::json_schema(generator), { "type": "null" }] })
}

/// Which task is current now.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct CurrentTask {
    pub project_id: ProjectId,
    #[schemars(schema_with = "text_or_null")]
    pub task_id: Option<TaskId>,
    #[schemars(schema_with = "text_or_null")]
    pub previous_task_id: Option<TaskId>,
    /// Give it to context_undo to take this back; left out when nothing changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub operation_id: Option<String>,
    /// If the task has nothing in the window: what is stashed and most worth having back.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub worth_retrieving: Vec<Segment>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<NextCall>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

/// The tasks of a project, last used first.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct TaskList {
    pub project_id: ProjectId,
    pub tasks: Vec<Task>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

/// A task, and what it holds.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[schemars(inline)]
pub struct Task {
    pub task_id: TaskId,
    pub current: bool,
    /// In the window.
    pub working_segments: u64,
    pub working_tokens: u64,
    pub stashed_segments: u64,
    pub stashed_tokens: u64,
    pub last_updated: Timestamp,
}

/// Which tasks to list.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ListTasks {
    pub project_id: ProjectId,
    /// How many to return, 1 to 1000.
    #[serde(default = "ListTasks::default_limit")]
    #[schemars(range(min = 1, max = LIMIT_MAX))]
    pub limit: u32,
}

impl ListTasks {
    pub fn default_limit() -> u32 {
        100
    }

    pub(crate) fn check(&self) -> Result<()> {
        check_limit(self.limit)
    }
}

/// Captures which segments a task has, where they are and which are pinned, under a name. Do so before a large cleanup;
/// context_restore_task_snapshot brings it back. Texts are not copied.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateSnapshot {
    pub project_id: ProjectId,
    /// The task; the current one when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task_id: Option<TaskId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = TEXT_MAX))]
    pub name: Option<String>,
}

impl CreateSnapshot {
    pub(crate) fn check(&self) -> Result<()> {
        let length = self.name.as_ref().map_or(0, |name| name.chars().count());
        if length > TEXT_MAX {
            return Err(Error::InvalidInput(format!("name has {length} characters, at most {TEXT_MAX} are taken")));
        }
        Ok(())
    }
}

/// A capture of a task's segments.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Snapshot {
    pub snapshot_id: SnapshotId,
    pub project_id: ProjectId,
    pub task_id: TaskId,
    #[schemars(schema_with = "text_or_null")]
    pub name: Option<String>,
    pub created_at: Timestamp,
    /// Where its name and segments came from, of all the lowest: user, agent, tool or import.
    pub origin: Origin,
    pub segments_snapshot: u64,
    pub tokens_snapshot: u64,
    /// Give it to context_undo to take this back.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub operation_id: Option<String>,
    /// How to bring it back.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<NextCall>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

/// Which snapshots to list.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ListSnapshots {
    pub project_id: ProjectId,
    /// Only this task's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task_id: Option<TaskId>,
    /// How many to return, 1 to 1000.
    #[serde(default = "ListTasks::default_limit")]
    #[schemars(range(min = 1, max = LIMIT_MAX))]
    pub limit: u32,
    /// `next_cursor` of the page before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = r"^[0-7]?[0-9a-f]{1,15}$"))]
    pub cursor: Option<String>,
}

impl ListSnapshots {
    pub(crate) fn check(&self) -> Result<()> {
        check_limit(self.limit)
    }
}

/// Snapshots, newest first.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct SnapshotPage {
    pub snapshots: Vec<Snapshot>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

/// Brings a snapshot back: every segment of the task is where it was and pinned as it was; what came into the window since is stashed.
/// One call of context_undo takes it back.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RestoreSnapshot {
    /// Inferred when left out. The body of work; named after the working directory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub project_id: Option<ProjectId>,
    /// The snapshot; left out, the newest of the current task, or of the project if none is current.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snapshot_id: Option<SnapshotId>,
}

/// What a snapshot brought back.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct RestoredSnapshot {
    pub snapshot_id: SnapshotId,
    pub project_id: ProjectId,
    pub task_id: TaskId,
    /// How many segments came back into the window.
    pub segments_restored: u64,
    /// How many left it.
    pub segments_stashed: u64,
    /// In the window now.
    pub total_tokens: u64,
    /// Give it to context_undo to take this back; left out when nothing changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub operation_id: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}
