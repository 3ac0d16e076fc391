//! Operations: what was done, and how it is taken back.

use super::Engine;
use crate::api::{ListOperations, OperationPage, UndoOperation, UndoneOperation};
use crate::error::Result;
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
        let which = match request.operation_id {
            Some(id) => Undo::Named(id, request.project_id),
            None => Undo::Newest(self.project_or_own(request.project_id)),
        };
        let undone = self.store.undo(scope, &which, self.clock.now()).await?;
        Ok(UndoneOperation { warnings: self.warnings(), ..undone })
    }
}
