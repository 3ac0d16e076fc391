//! The part of a store that fails on purpose that is about documents.

use async_trait::async_trait;
use waystone_core::Result;
use waystone_core::api::TaskRecord;
use waystone_core::id::ProjectId;
use waystone_core::store::{
    DocumentStore, ExportedSegments, ExportedSnapshot, ImportedProject, ImportedSession, NewProject, NewSession, Scope,
};

use super::FaultyStore;

#[async_trait]
impl DocumentStore for FaultyStore {
    async fn import_session(&self, scope: &Scope, new: NewSession) -> Result<ImportedSession> {
        self.step()?;
        let imported = self.inner.import_session(scope, new).await?;
        self.step()?;
        Ok(imported)
    }

    async fn import_project(&self, scope: &Scope, new: NewProject) -> Result<ImportedProject> {
        self.step()?;
        let imported = self.inner.import_project(scope, new).await?;
        self.step()?;
        Ok(imported)
    }

    async fn export_tasks(&self, scope: &Scope, project: &ProjectId) -> Result<Vec<TaskRecord>> {
        self.step()?;
        self.inner.export_tasks(scope, project).await
    }

    async fn export_segments(&self, scope: &Scope, project: &ProjectId, after: i64) -> Result<ExportedSegments> {
        self.step()?;
        self.inner.export_segments(scope, project, after).await
    }

    async fn export_snapshot(
        &self,
        scope: &Scope,
        project: &ProjectId,
        after: i64,
    ) -> Result<Option<ExportedSnapshot>> {
        self.step()?;
        self.inner.export_snapshot(scope, project, after).await
    }
}
