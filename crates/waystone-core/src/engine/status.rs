//! What the store holds, for a person who wonders.

use super::Engine;
use crate::api::Status;
use crate::error::Result;
use crate::store::{Scope, Used};

impl Engine {
    pub async fn status(&self, scope: &Scope) -> Result<Status> {
        let status = self.store.status(scope).await?;
        let used = Used { total: status.total_size_bytes, ..Used::default() };
        let warnings = self.warnings().into_iter().chain(self.limits.nearly_reached(0, used)).collect();
        Ok(Status { warnings, read_only: self.is_read_only, ..status })
    }
}
