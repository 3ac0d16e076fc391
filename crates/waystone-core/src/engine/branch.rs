//! Branches of conversations.

use super::Engine;
use super::conversation::retry_of;
use crate::api::{Branch, BranchList, CreateBranch, SwitchedBranch};
use crate::error::{Error, Result};
use crate::id::{BranchName, SessionId};
use crate::store::{Fork, NewBranch, Scope};

impl Engine {
    /// Begins a branch. It is not active before someone switches to it.
    pub async fn create_branch(&self, scope: &Scope, id: &SessionId, request: CreateBranch) -> Result<Branch> {
        self.check_writable()?;
        let place = format!("contexts/{id}/branches");
        let idempotency = request.idempotency_key.clone().map(|key| retry_of(key, &place, &request));
        let fork = match (request.parent_message_id, request.before_message_id) {
            (None, None) => Fork::Active,
            (Some(parent), None) => Fork::After(parent),
            (None, Some(message)) => Fork::InPlaceOf(message),
            (Some(_), Some(_)) => {
                let why = "parent_message_id and before_message_id cannot both be given";
                return Err(Error::InvalidInput(why.to_owned()));
            }
        };
        let new = NewBranch { name: request.name.clone(), fork };
        self.store.add_branch(scope, id, new, self.clock.now(), idempotency).await
    }

    /// Makes a branch the active one.
    pub async fn switch_branch(&self, scope: &Scope, id: &SessionId, name: &BranchName) -> Result<SwitchedBranch> {
        self.check_writable()?;
        let switched = self.store.switch_branch(scope, id, name, self.clock.now()).await?;
        Ok(SwitchedBranch { warnings: self.warnings(), ..switched })
    }

    pub async fn list_branches(&self, scope: &Scope, id: &SessionId) -> Result<BranchList> {
        Ok(BranchList { warnings: self.warnings(), ..self.store.list_branches(scope, id).await? })
    }

    /// Hides a branch. Its messages stay: others may continue them.
    pub async fn delete_branch(&self, scope: &Scope, id: &SessionId, name: &BranchName) -> Result<()> {
        self.check_writable()?;
        self.store.archive_branch(scope, id, name, self.clock.now()).await
    }
}
