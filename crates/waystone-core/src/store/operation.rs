//! The part of the boundary that is about what was done, and undone.

use async_trait::async_trait;

use super::Scope;
use crate::api::{ListOperations, OperationPage, UndoneOperation};
use crate::clock::Timestamp;
use crate::error::Result;
use crate::id::{OperationId, ProjectId};

/// Which operation to undo.
#[derive(Debug, Clone)]
pub enum Undo {
    /// In the project, if that is given.
    Named(OperationId, Option<ProjectId>),
    /// The newest of the project that can be undone: of the scope's actor if that is an agent, else of anyone.
    Newest(ProjectId),
}

/// The same promises as [`super::Store`], of which it is a part.
#[async_trait]
pub trait OperationStore: Send + Sync {
    async fn list_operations(&self, scope: &Scope, filter: &ListOperations) -> Result<OperationPage>;

    async fn undo(&self, scope: &Scope, which: &Undo, at: Timestamp) -> Result<UndoneOperation>;
}
