//! Operations: what was done, and how it is taken back.

use super::Engine;
use crate::api::{ListOperations, OperationPage, UndoOperation, UndoneOperation};
use crate::error::{Error, Result};
use crate::id::ProjectId;
use crate::store::{Scope, Undo};

impl Engine {
    /// What was done, newest first.
    pub async fn list_operations(&self, scope: &Scope, request: ListOperations) -> Result<OperationPage> {
        request.check()?;
        let page = self.store.list_operations(scope, &request).await?;
        Ok(OperationPage { warnings: self.warnings(), ..page })
    }

    /// Takes an operation back.
    pub async fn undo_operation(&self, scope: &Scope, request: UndoOperation) -> Result<UndoneOperation> {
        self.check_writable()?;
        if let Some(id) = request.operation_id {
            let undone = self.store.undo(scope, &Undo::Named(id, request.project_id), self.clock.now()).await?;
            return Ok(UndoneOperation { warnings: self.warnings(), ..undone });
        }
        let project = self.project_or_own(request.project_id);
        let restored = self.how_newest_is_restored(scope, &project).await?;
        match self.store.undo(scope, &Undo::Newest(project), self.clock.now()).await {
            Ok(undone) => {
                Ok(UndoneOperation { warnings: self.warnings().into_iter().chain(restored).collect(), ..undone })
            }
            Err(Error::NothingToUndo(project, _)) => Err(Error::NothingToUndo(project, restored)),
            Err(error) => Err(error),
        }
    }

    /// Who undoes right after a deletion may have meant that.
    async fn how_newest_is_restored(&self, scope: &Scope, project: &ProjectId) -> Result<Option<String>> {
        let newest = ListOperations { project_id: Some(project.clone()), limit: 1, cursor: None };
        let newest = self.store.list_operations(scope, &newest).await?.operations.into_iter().next();
        let own = newest.filter(|newest| !scope.is_agent || newest.actor == scope.actor);
        Ok(own.and_then(|newest| newest.how_restored()))
    }
}
