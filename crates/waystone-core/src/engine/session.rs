//! Sessions: what checkpoints belong to.

use super::Engine;
use crate::api::{DeletedSession, ListSessions, Session, SessionPage, UpdateSession};
use crate::error::Result;
use crate::id::SessionId;
use crate::store::Scope;

impl Engine {
    pub async fn find_session(&self, scope: &Scope, id: &SessionId) -> Result<Session> {
        let session = self.store.find_session(scope, id).await?;
        Ok(Session { warnings: self.warnings(), ..session })
    }

    pub async fn list_sessions(&self, scope: &Scope, request: ListSessions) -> Result<SessionPage> {
        request.check()?;
        let page = self.store.list_sessions(scope, &request).await?;
        Ok(SessionPage { warnings: self.warnings(), ..page })
    }

    /// Changes name and tags.
    pub async fn update_session(&self, scope: &Scope, id: &SessionId, request: UpdateSession) -> Result<Session> {
        request.check()?;
        let session = self.store.update_session(scope, id, &request, self.clock.now()).await?;
        Ok(Session { warnings: self.warnings(), ..session })
    }

    /// Hides a session with all its checkpoints; it is kept for a while.
    pub async fn delete_session(&self, scope: &Scope, id: &SessionId) -> Result<DeletedSession> {
        let now = self.clock.now();
        let deleted = self.store.archive_session(scope, id, now).await?;
        Ok(DeletedSession {
            session_id: deleted.id,
            checkpoint_count: deleted.checkpoint_count,
            kept_until: self.kept_until(now),
            warnings: self.warnings(),
        })
    }
}
