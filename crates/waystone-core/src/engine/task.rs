//! Tasks, and snapshots of their segments.

use serde_json::{Map, json};

use super::Engine;
use crate::api::{
    CreateSnapshot, CurrentTask, ListSnapshots, ListTasks, NextCall, RestoreSnapshot, RestoredSnapshot, SetCurrentTask,
    Snapshot, SnapshotPage, TaskList,
};
use crate::error::Result;
use crate::store::{Scope, WhichSnapshot, WhichTask};

impl Engine {
    /// Makes a task the current one, or none.
    pub async fn set_current_task(&self, scope: &Scope, request: SetCurrentTask) -> Result<CurrentTask> {
        self.check_writable()?;
        let (project, task) = (request.project_id, request.task_id);
        let (previous_task_id, operation) =
            self.store.set_current_task(scope, &project, task.as_ref(), self.clock.now()).await?;
        let usage = self.store.sum_usage(scope, &project, &WhichTask::Current, None).await?;
        let is_empty = usage.by_task.iter().all(|row| row.segments == 0);
        let (worth_retrieving, next) = match is_empty {
            true => self.worth_retrieving(scope, &project, task.as_ref()).await?,
            false => (Vec::new(), None),
        };
        Ok(CurrentTask {
            project_id: project,
            task_id: task,
            previous_task_id,
            operation_id: operation.map(|seq| seq.to_string()),
            worth_retrieving,
            next,
            warnings: self.warnings(),
        })
    }

    /// The tasks of a project, last used first.
    pub async fn list_tasks(&self, scope: &Scope, request: ListTasks) -> Result<TaskList> {
        request.check()?;
        let tasks = self.store.list_tasks(scope, &request).await?;
        Ok(TaskList { project_id: request.project_id, tasks, warnings: self.warnings() })
    }

    /// Captures which segments a task has.
    pub async fn create_snapshot(&self, scope: &Scope, request: CreateSnapshot) -> Result<Snapshot> {
        self.check_writable()?;
        request.check()?;
        let (id, now) = (self.fresh_id()?, self.clock.now());
        let (project, task) = (&request.project_id, request.task_id.as_ref());
        let snapshot = self.store.add_snapshot(scope, project, task, id, request.name.as_deref(), now).await?;
        let arguments = Map::from_iter([
            ("project_id".to_owned(), json!(snapshot.project_id)),
            ("snapshot_id".to_owned(), json!(snapshot.snapshot_id)),
        ]);
        let next = Some(NextCall { tool: "context_restore_task_snapshot", arguments });
        Ok(Snapshot { next, warnings: self.warnings(), ..snapshot })
    }

    /// The snapshots of a project, newest first.
    pub async fn list_snapshots(&self, scope: &Scope, request: ListSnapshots) -> Result<SnapshotPage> {
        request.check()?;
        let page = self.store.list_snapshots(scope, &request).await?;
        Ok(SnapshotPage { warnings: self.warnings(), ..page })
    }

    /// Puts the segments of a task back to where a snapshot has them.
    pub async fn restore_snapshot(&self, scope: &Scope, request: RestoreSnapshot) -> Result<RestoredSnapshot> {
        self.check_writable()?;
        let which = match request.snapshot_id {
            Some(id) => WhichSnapshot::Named(id, request.project_id),
            None => WhichSnapshot::Newest(self.project_or_own(request.project_id)),
        };
        let restored = self.store.restore_snapshot(scope, &which, self.clock.now()).await?;
        Ok(RestoredSnapshot {
            snapshot_id: restored.snapshot,
            project_id: restored.project,
            task_id: restored.task,
            segments_restored: restored.entered,
            segments_stashed: restored.left,
            total_tokens: restored.tokens,
            operation_id: restored.operation.map(|seq| seq.to_string()),
            warnings: self.warnings(),
        })
    }
}
