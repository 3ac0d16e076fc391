//! What the store holds, for a person who wonders.

use super::Engine;
use crate::api::Status;
use crate::error::Result;
use crate::id::SessionId;
use crate::store::{Scope, Used};

impl Engine {
    pub async fn status(&self, scope: &Scope) -> Result<Status> {
        let status = self.store.status(scope).await?;
        let used = Used { total: status.total_size_bytes, ..Used::default() };
        let warnings = self.warnings().into_iter().chain(self.limits.nearly_reached(0, used)).collect();
        Ok(Status { warnings, read_only: self.is_read_only, ..status })
    }

    /// What a client should know of limits after something was kept. It is kept, so that nothing can be told is no error.
    pub(super) async fn nearly_full(&self, scope: &Scope, session: Option<&SessionId>) -> Vec<String> {
        let used = self.store.find_used(scope, session).await;
        used.map(|used| self.limits.nearly_reached(0, used)).unwrap_or_default()
    }
}
