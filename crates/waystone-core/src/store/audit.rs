//! The part of the boundary that is about the audit.

use async_trait::async_trait;

use super::Scope;
use crate::api::{AuditChain, AuditHead, AuditPage, AuditRecord, ListAudit};
use crate::error::Result;

/// Some records of the log, and what they are to be compared with, as of one moment.
#[derive(Debug, Clone)]
pub struct AuditPart {
    /// Lowest number first.
    pub records: Vec<AuditRecord>,
    /// After which number to go on, if there are more.
    pub next: Option<i64>,
    pub chains: Vec<AuditChain>,
    /// The newest record, as the log itself has it.
    pub head: AuditHead,
}

/// The same promises as [`super::Store`], of which it is a part.
#[async_trait]
pub trait AuditStore: Send + Sync {
    /// Records, newest first.
    async fn list_audit(&self, scope: &Scope, filter: &ListAudit) -> Result<AuditPage>;

    /// Records after the one with number `after`.
    async fn read_audit(&self, scope: &Scope, after: i64) -> Result<AuditPart>;
}
