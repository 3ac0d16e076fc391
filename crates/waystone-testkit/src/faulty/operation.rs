//! What was done and undone, on a store that fails.

use async_trait::async_trait;
use waystone_core::Result;
use waystone_core::api::{ListOperations, OperationPage, UndoneOperation};
use waystone_core::clock::Timestamp;
use waystone_core::store::{OperationStore, Scope, Undo};

use super::FaultyStore;

#[async_trait]
impl OperationStore for FaultyStore {
    async fn list_operations(&self, scope: &Scope, filter: &ListOperations) -> Result<OperationPage> {
        self.step()?;
        self.inner.list_operations(scope, filter).await
    }

    async fn undo(&self, scope: &Scope, which: &Undo, at: Timestamp) -> Result<UndoneOperation> {
        self.step()?;
        let undone = self.inner.undo(scope, which, at).await?;
        self.step()?;
        Ok(undone)
    }
}
