//! The audit, on a store that fails.

use async_trait::async_trait;
use waystone_core::Result;
use waystone_core::api::{AuditPage, ListAudit};
use waystone_core::store::{AuditPart, AuditStore, Scope};

use super::FaultyStore;

#[async_trait]
impl AuditStore for FaultyStore {
    async fn list_audit(&self, scope: &Scope, filter: &ListAudit) -> Result<AuditPage> {
        self.step()?;
        self.inner.list_audit(scope, filter).await
    }

    async fn read_audit(&self, scope: &Scope, after: i64) -> Result<AuditPart> {
        self.step()?;
        self.inner.read_audit(scope, after).await
    }
}
