//! Marks: which keys of a session's contexts an agent wants never shortened, and what class any key has.

use super::Engine;
use crate::api::{ContextRule, KeyClass, LoadCheckpoint, MarkCritical, MarkStatus, MarkedCritical};
use crate::classify::{Rules, classify};
use crate::error::{Error, Result};
use crate::id::SessionId;
use crate::store::Scope;

impl Engine {
    /// Marks a key that the session's newest checkpoint has.
    pub async fn mark_critical(&self, scope: &Scope, request: MarkCritical) -> Result<MarkedCritical> {
        self.check_writable()?;
        request.check().map_err(Error::InvalidInput)?;
        let session = self.named_or_own(scope, request.session_id).await?;
        let key = request.context_key;
        if !self.newest_context(scope, &session).await?.contains_key(&key) {
            let message = format!("the newest checkpoint of session `{session}` has no key `{key}`");
            return Ok(self.marked(MarkStatus::KeyNotFound, message, session, key));
        }
        self.store.mark_critical(scope, &session, &key, self.clock.now()).await?;
        let message = format!("`{key}` is never shortened or dropped in views of session `{session}`");
        Ok(self.marked(MarkStatus::Success, message, session, key))
    }

    /// Takes a mark away.
    pub async fn unmark_critical(&self, scope: &Scope, request: MarkCritical) -> Result<MarkedCritical> {
        self.check_writable()?;
        request.check().map_err(Error::InvalidInput)?;
        let session = self.named_or_own(scope, request.session_id).await?;
        let key = request.context_key;
        let (status, message) = match self.store.unmark_critical(scope, &session, &key, self.clock.now()).await? {
            true => (MarkStatus::Success, format!("`{key}` is no longer marked")),
            false => (MarkStatus::KeyNotFound, format!("`{key}` is not marked in session `{session}`")),
        };
        Ok(self.marked(status, message, session, key))
    }

    /// How a key of the session's newest checkpoint is treated.
    pub async fn find_class(&self, scope: &Scope, session: SessionId, key: String) -> Result<KeyClass> {
        let context = self.newest_context(scope, &session).await?;
        let rules = self.rules_of(scope, &session).await?;
        let missing = || Error::NotFound(format!("key `{key}` of session `{session}`"));
        let verdict = classify(&key, context.get(&key).ok_or_else(missing)?, &rules);
        Ok(KeyClass {
            critical: rules.is_marked(&key),
            session_id: session,
            context_key: key,
            class: verdict.class,
            rule: verdict.rule,
            warnings: self.warnings(),
        })
    }

    fn marked(
        &self,
        status: MarkStatus,
        message: String,
        session_id: SessionId,
        context_key: String,
    ) -> MarkedCritical {
        MarkedCritical { status, message, session_id, context_key, warnings: self.warnings() }
    }

    async fn newest_context(
        &self,
        scope: &Scope,
        session: &SessionId,
    ) -> Result<serde_json::Map<String, serde_json::Value>> {
        let request = LoadCheckpoint { session_id: Some(session.clone()), ..LoadCheckpoint::default() };
        let loaded = self.read_checkpoint(scope, request).await?;
        super::checkpoint::parse_context(&loaded.context)
    }

    async fn named_or_own(&self, scope: &Scope, session: Option<SessionId>) -> Result<SessionId> {
        match session {
            Some(session) => Ok(session),
            None => self.own_session(scope).await,
        }
    }

    /// The session that the same actor last saved in this project.
    pub(super) async fn own_session(&self, scope: &Scope) -> Result<SessionId> {
        let own = self.store.find_own_session(scope, &self.project).await?;
        own.ok_or_else(|| {
            Error::InvalidInput(format!(
                "sessionId is missing, and `{}` has saved nothing in project {} without an agentId of its own; name the session",
                scope.actor, self.project
            ))
        })
    }

    /// The marks and rules of a session, and the configuration's.
    pub(super) async fn rules_of(&self, scope: &Scope, session: &SessionId) -> Result<Rules> {
        let (marks, rules) = self.store.find_rules(scope, session).await?;
        self.rules(&marks, &rules)
    }

    pub(super) fn rules(&self, marks: &[String], own: &[ContextRule]) -> Result<Rules> {
        Rules::new(marks, own.iter().chain(self.context_rules.iter())).map_err(Error::InvalidInput)
    }
}
