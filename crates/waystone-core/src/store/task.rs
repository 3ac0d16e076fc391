//! The part of the boundary that is about tasks and their snapshots.

use async_trait::async_trait;

use super::Scope;
use crate::api::{ListSnapshots, ListTasks, Snapshot, SnapshotPage, Task};
use crate::clock::Timestamp;
use crate::error::Result;
use crate::id::{ProjectId, SnapshotId, TaskId};

/// Which snapshot to restore.
#[derive(Debug, Clone)]
pub enum WhichSnapshot {
    /// Of the project, if that is given.
    Named(SnapshotId, Option<ProjectId>),
    /// The newest of the project's current task, or of the project.
    Newest(ProjectId),
}

/// What restoring a snapshot came to.
#[derive(Debug, Clone)]
pub struct Restored {
    pub snapshot: SnapshotId,
    pub project: ProjectId,
    pub task: TaskId,
    pub entered: u64,
    pub left: u64,
    pub tokens: u64,
    pub operation: Option<i64>,
}

/// The same promises as [`super::Store`], of which it is a part.
#[async_trait]
pub trait TaskStore: Send + Sync {
    /// Returns the task that was current before, and the operation if something changed.
    async fn set_current_task(
        &self,
        scope: &Scope,
        project: &ProjectId,
        task: Option<&TaskId>,
        at: Timestamp,
    ) -> Result<(Option<TaskId>, Option<i64>)>;

    async fn list_tasks(&self, scope: &Scope, filter: &ListTasks) -> Result<Vec<Task>>;

    /// Captures the segments of a task; `None` for the current one.
    async fn add_snapshot(
        &self,
        scope: &Scope,
        project: &ProjectId,
        task: Option<&TaskId>,
        id: SnapshotId,
        name: Option<&str>,
        at: Timestamp,
    ) -> Result<Snapshot>;

    async fn list_snapshots(&self, scope: &Scope, filter: &ListSnapshots) -> Result<SnapshotPage>;

    async fn restore_snapshot(&self, scope: &Scope, which: &WhichSnapshot, at: Timestamp) -> Result<Restored>;
}
