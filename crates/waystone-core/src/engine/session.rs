//! Sessions: what checkpoints belong to.

use super::{Engine, check_limit};
use crate::api::{ListSessions, Session, SessionPage};
use crate::error::Result;
use crate::id::SessionId;
use crate::store::Scope;

impl Engine {
    pub async fn find_session(&self, scope: &Scope, id: &SessionId) -> Result<Session> {
        self.store.find_session(scope, id).await
    }

    pub async fn list_sessions(&self, scope: &Scope, request: ListSessions) -> Result<SessionPage> {
        check_limit(request.limit)?;
        self.store.list_sessions(scope, &request).await
    }
}
