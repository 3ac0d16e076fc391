//! Sessions: what checkpoints belong to.

use super::Engine;
use super::retention::warnings_of;
use crate::api::{DeletedSession, Deletion, ListSessions, Session, SessionPage, UpdateSession};
use crate::error::{Error, Result};
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
        self.check_writable()?;
        request.check()?;
        let session = self.store.update_session(scope, id, &request, self.clock.now()).await?;
        Ok(Session { warnings: self.warnings(), ..session })
    }

    /// Hides a session with all its checkpoints; it is kept for a while, or removed for good.
    pub async fn delete_session(&self, scope: &Scope, id: &SessionId, how: Deletion) -> Result<DeletedSession> {
        self.check_writable()?;
        self.rest(scope, id).await?;
        let now = self.clock.now();
        let mut deleted = DeletedSession {
            session_id: id.clone(),
            checkpoint_count: 0,
            kept_until: (!how.purge).then(|| self.kept_until(now)),
            warnings: self.warnings(),
        };
        match self.store.archive_session(scope, id, now).await {
            // What was deleted before can still be removed.
            Err(Error::SessionNotFound(_)) if how.purge => {}
            archived => deleted.checkpoint_count = archived?.checkpoint_count,
        }
        if how.purge {
            let purged = self.store.purge_session(scope, id, now).await?;
            deleted.checkpoint_count = purged.checkpoints;
            let key = (scope.space, id.clone());
            self.contexts.forget(&key);
            self.branches.forget(&key);
            deleted.warnings.extend(warnings_of(&purged));
        }
        Ok(deleted)
    }
}
