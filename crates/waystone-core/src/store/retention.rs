//! The part of the boundary that is about what goes and what is kept aside: deleted, brought back, removed for good, copied.

use async_trait::async_trait;

use super::Scope;
use crate::api::{BackedUp, Checkpoint, Cleaned, Session};
use crate::clock::Timestamp;
use crate::error::Result;
use crate::id::{CheckpointId, SessionId};
use crate::retention::Selection;

/// What became of something that was removed for good.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Purged {
    /// How many checkpoints went.
    pub checkpoints: u64,
    /// Readers held the store's log, in which it stands until they let go of it.
    pub is_in_log: bool,
    /// Backups of the data directory from which it could not be removed yet.
    pub in_backups: Vec<String>,
}

/// The same promises as [`super::Store`], of which it is a part.
#[async_trait]
pub trait RetentionStore: Send + Sync {
    /// Lets an archived checkpoint of a session that is there be listed again.
    async fn restore_checkpoint(&self, scope: &Scope, id: &CheckpointId, at: Timestamp) -> Result<Checkpoint>;

    /// Lets an archived session be listed again, with all that it had.
    async fn restore_session(&self, scope: &Scope, id: &SessionId, at: Timestamp) -> Result<Session>;

    /// Removes an archived checkpoint for good, from every copy that is within reach.
    async fn purge_checkpoint(&self, scope: &Scope, id: &CheckpointId, at: Timestamp) -> Result<Purged>;

    /// Removes an archived session for good, from every copy that is within reach.
    async fn purge_session(&self, scope: &Scope, id: &SessionId, at: Timestamp) -> Result<Purged>;

    /// Copies all that is kept into a directory of its own, while others go on.
    async fn back_up(&self, scope: &Scope, directory: Option<&str>, at: Timestamp) -> Result<BackedUp>;

    /// What a cleanup would take, session by session.
    async fn list_removable(&self, scope: &Scope, selection: &Selection) -> Result<Vec<Cleaned>>;

    /// Archives what of a session is selected, as it is now. `None` when that is nothing any more.
    async fn clean_session(
        &self,
        scope: &Scope,
        session: &SessionId,
        selection: &Selection,
        at: Timestamp,
    ) -> Result<Option<Cleaned>>;
}
