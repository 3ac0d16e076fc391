//! Tasks and their snapshots, on a store that fails.

use async_trait::async_trait;
use waystone_core::Result;
use waystone_core::api::{ListSnapshots, ListTasks, Snapshot, SnapshotPage, Task};
use waystone_core::clock::Timestamp;
use waystone_core::id::{ProjectId, SnapshotId, TaskId};
use waystone_core::store::{Restored, Scope, TaskStore, WhichSnapshot};

use super::FaultyStore;

#[async_trait]
impl TaskStore for FaultyStore {
    async fn set_current_task(
        &self,
        scope: &Scope,
        project: &ProjectId,
        task: Option<&TaskId>,
        at: Timestamp,
    ) -> Result<(Option<TaskId>, Option<i64>)> {
        self.step()?;
        let set = self.inner.set_current_task(scope, project, task, at).await?;
        self.step()?;
        Ok(set)
    }

    async fn list_tasks(&self, scope: &Scope, filter: &ListTasks) -> Result<Vec<Task>> {
        self.step()?;
        self.inner.list_tasks(scope, filter).await
    }

    async fn add_snapshot(
        &self,
        scope: &Scope,
        project: &ProjectId,
        task: Option<&TaskId>,
        id: SnapshotId,
        name: Option<&str>,
        at: Timestamp,
    ) -> Result<Snapshot> {
        self.step()?;
        let added = self.inner.add_snapshot(scope, project, task, id, name, at).await?;
        self.step()?;
        Ok(added)
    }

    async fn list_snapshots(&self, scope: &Scope, filter: &ListSnapshots) -> Result<SnapshotPage> {
        self.step()?;
        self.inner.list_snapshots(scope, filter).await
    }

    async fn restore_snapshot(&self, scope: &Scope, which: &WhichSnapshot, at: Timestamp) -> Result<Restored> {
        self.step()?;
        let restored = self.inner.restore_snapshot(scope, which, at).await?;
        self.step()?;
        Ok(restored)
    }
}
