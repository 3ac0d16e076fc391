//! The audit: listed, verified from its first record to its last, and written out.

use super::Engine;
use super::document::{Export, Stage};
use crate::api::{AuditHead, AuditPage, ListAudit, VerifiedAudit};
use crate::audit::{Walk, head_line, record_line, top_line};
use crate::clock::Since;
use crate::error::Result;
use crate::offload::offload;
use crate::store::{AuditPart, Scope};

/// Before the first record, whatever number that has.
const BEGINNING: i64 = i64::MIN;
/// What a record takes, about.
const RECORD_BYTES: usize = 1024;

impl Engine {
    /// What was done and what was loaded, newest first.
    pub async fn list_audit(&self, scope: &Scope, request: ListAudit) -> Result<AuditPage> {
        request.check()?;
        let since = request.since.as_ref().map(|since| Since::At(since.before(self.clock.now())));
        let page = self.store.list_audit(scope, &ListAudit { since, ..request }).await?;
        Ok(AuditPage { warnings: self.warnings(), ..page })
    }

    /// Looks at every record of every chain, and whether one that was kept elsewhere as the head is still there. `progress` is told
    /// how many were looked at, and of how many.
    pub async fn verify_audit(
        &self,
        scope: &Scope,
        kept: Option<&AuditHead>,
        mut progress: impl FnMut(u64, u64),
    ) -> Result<VerifiedAudit> {
        let mut part = self.store.read_audit(scope, BEGINNING).await?;
        let (mut walk, mut found) = (Walk::new(part.chains.clone()), None);
        loop {
            let is_kept = |seq| kept.is_some_and(|kept| kept.seq == seq);
            found = part.records.iter().find(|record| is_kept(record.seq)).map(|record| record.hash.clone()).or(found);
            let AuditPart { records, next, head, .. } = part;
            let bytes = records.len() * RECORD_BYTES;
            let look = move || {
                records.iter().for_each(|record| walk.step(record));
                walk
            };
            walk = offload(bytes, look).await?;
            progress(walk.records(), walk.records().max(u64::try_from(head.seq).unwrap_or_default()));
            match next {
                Some(after) => part = self.store.read_audit(scope, after).await?,
                None => {
                    let verified = walk.end(&head);
                    return Ok(match kept {
                        Some(kept) => verified.against(kept, found.as_deref()),
                        None => verified,
                    });
                }
            }
        }
    }

    /// All records, oldest first, with what is needed to verify them elsewhere.
    pub async fn export_audit(&self, scope: &Scope) -> Result<Export> {
        let first = self.store.read_audit(scope, BEGINNING).await?;
        Ok(self.export(scope, "audit", top_line(first.chains)?, Stage::Records { after: BEGINNING }))
    }
}

impl Export {
    pub(super) async fn write_records(&mut self, after: i64) -> Result<()> {
        let part = self.engine.store.read_audit(&self.scope, after).await?;
        let mut text = String::with_capacity(part.records.len() * RECORD_BYTES);
        for record in &part.records {
            text += &record_line(record)?;
        }
        self.count += part.records.len() as u64;
        match part.next {
            Some(after) => self.stage = Stage::Records { after },
            None => text += &head_line(part.head)?,
        }
        self.push(text);
        Ok(())
    }
}
