//! What the store holds, for a person who wonders.

use super::Engine;
use crate::api::Status;
use crate::error::Result;
use crate::store::Scope;

impl Engine {
    pub async fn status(&self, scope: &Scope) -> Result<Status> {
        let status = self.store.status(scope).await?;
        Ok(Status { warnings: self.warnings(), ..status })
    }
}
