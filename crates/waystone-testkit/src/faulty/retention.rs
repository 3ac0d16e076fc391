//! What goes, on a store that fails.

use async_trait::async_trait;
use waystone_core::Result;
use waystone_core::api::{BackedUp, Checkpoint, Cleaned, Session};
use waystone_core::clock::Timestamp;
use waystone_core::id::{CheckpointId, SessionId};
use waystone_core::retention::Selection;
use waystone_core::store::{Purged, RetentionStore, Scope};

use super::FaultyStore;

#[async_trait]
impl RetentionStore for FaultyStore {
    async fn restore_checkpoint(&self, scope: &Scope, id: &CheckpointId, at: Timestamp) -> Result<Checkpoint> {
        self.step()?;
        let restored = self.inner.restore_checkpoint(scope, id, at).await?;
        self.step()?;
        Ok(restored)
    }

    async fn restore_session(&self, scope: &Scope, id: &SessionId, at: Timestamp) -> Result<Session> {
        self.step()?;
        let restored = self.inner.restore_session(scope, id, at).await?;
        self.step()?;
        Ok(restored)
    }

    async fn purge_checkpoint(&self, scope: &Scope, id: &CheckpointId, at: Timestamp) -> Result<Purged> {
        self.step()?;
        let purged = self.inner.purge_checkpoint(scope, id, at).await?;
        self.step()?;
        Ok(purged)
    }

    async fn purge_session(&self, scope: &Scope, id: &SessionId, at: Timestamp) -> Result<Purged> {
        self.step()?;
        let removed = self.inner.purge_session(scope, id, at).await?;
        self.step()?;
        Ok(removed)
    }

    async fn back_up(&self, scope: &Scope, directory: Option<&str>, at: Timestamp) -> Result<BackedUp> {
        self.step()?;
        let made = self.inner.back_up(scope, directory, at).await?;
        self.step()?;
        Ok(made)
    }

    async fn list_removable(&self, scope: &Scope, selection: &Selection) -> Result<Vec<Cleaned>> {
        self.step()?;
        self.inner.list_removable(scope, selection).await
    }

    async fn clean_session(
        &self,
        scope: &Scope,
        session: &SessionId,
        selection: &Selection,
        at: Timestamp,
    ) -> Result<Option<Cleaned>> {
        self.step()?;
        let cleaned = self.inner.clean_session(scope, session, selection, at).await?;
        self.step()?;
        Ok(cleaned)
    }
}
