//! Sessions: what checkpoints belong to.

use super::{Engine, check_limit};
use crate::api::{DeletedSession, ListSessions, Session, SessionPage, TAGS_MAX, TEXT_MAX, UpdateSession, is_short};
use crate::error::{Error, Result};
use crate::id::SessionId;
use crate::store::Scope;

impl Engine {
    pub async fn find_session(&self, scope: &Scope, id: &SessionId) -> Result<Session> {
        let session = self.store.find_session(scope, id).await?;
        Ok(Session { warnings: self.warnings(), ..session })
    }

    pub async fn list_sessions(&self, scope: &Scope, request: ListSessions) -> Result<SessionPage> {
        check_limit(request.limit)?;
        let page = self.store.list_sessions(scope, &request).await?;
        Ok(SessionPage { warnings: self.warnings(), ..page })
    }

    /// Changes name and tags.
    pub async fn update_session(&self, scope: &Scope, id: &SessionId, request: UpdateSession) -> Result<Session> {
        if request.name.as_ref().is_some_and(|name| !name.is_empty() && !is_short(name)) {
            return Err(Error::InvalidInput(format!("name must be text of at most {TEXT_MAX} characters")));
        }
        let good = |tags: &Vec<String>| tags.len() <= TAGS_MAX && tags.iter().all(|tag| is_short(tag));
        if request.tags.as_ref().is_some_and(|tags| !good(tags)) {
            return Err(Error::InvalidInput(format!(
                "tags must be at most {TAGS_MAX} texts of 1 to {TEXT_MAX} characters"
            )));
        }
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
