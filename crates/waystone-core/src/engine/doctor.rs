//! A look at everything that is kept, in both copies.

use super::Engine;
use crate::api::Checkup;
use crate::error::Result;
use crate::store::Scope;

impl Engine {
    /// Decodes and hashes every checkpoint, compares the copies, and heals each from the other. `progress` is told how many groups
    /// of checkpoints were looked at, and of how many.
    pub async fn check_copies(&self, scope: &Scope, mut progress: impl FnMut(u64, u64)) -> Result<Checkup> {
        self.check_writable()?;
        let mut checkup = Checkup::default();
        if let Some(damage) = self.store.check_database(scope).await? {
            return Ok(checkup.with(vec![damage]));
        }
        let mut after = 0;
        while let Some(group) = self.store.check_group(scope, after, self.clock.now()).await? {
            after = group.cursor;
            checkup.files += 1;
            checkup.checkpoints += group.checkpoints;
            checkup.findings.extend(group.findings);
            progress(checkup.files, checkup.files + group.left);
        }
        checkup.conversation_checkpoints = self.store.count_single_copies(scope).await?;
        checkup.findings.extend(self.store.check_records(scope).await?);
        Ok(checkup.with(self.store.list_orphans(scope).await?))
    }
}
