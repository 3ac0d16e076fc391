//! What is asked and answered about sessions. What becomes of a request is in `engine/session.rs`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::metadata::{TAGS_MAX, TEXT_MAX, is_short};
use super::view::ContextRule;
use super::{LIMIT_MAX, Origin, check_limit};
use crate::clock::Timestamp;
use crate::error::{Error, Result};
use crate::id::{ProjectId, SessionId, WorkflowId};

/// One run of work, with what its checkpoints add up to.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Session {
    pub id: SessionId,
    /// The body of work it belongs to.
    pub project_id: ProjectId,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// When it was first saved.
    pub created_at: Timestamp,
    /// When it was last saved or loaded.
    pub last_accessed_at: Timestamp,
    pub tags: Vec<String>,
    /// Where its name, tags, marks and rules came from: agent, or import. Each checkpoint has its own.
    pub origin: Origin,
    /// Whether it is a conversation: its messages are under `/api/contexts`, with the same id.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub conversation: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workflow_id: Option<WorkflowId>,
    /// Size of all its checkpoints as stored.
    pub total_size_bytes: u64,
    pub checkpoint_count: u64,
    /// Keys that are marked: never shortened in views.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub critical_keys: Vec<String>,
    /// Which class keys of a certain form have in views.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub context_rules: Vec<ContextRule>,
    /// What a client should know, such as that nothing is kept beyond the end of the process.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

/// Lists sessions, last used first.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ListSessions {
    /// Only sessions of this project.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub project_id: Option<ProjectId>,
    /// Those that were deleted and can be restored, instead of those that are there.
    #[serde(default)]
    pub deleted: bool,
    /// How many to return, 1 to 1000.
    #[serde(default = "ListSessions::default_limit")]
    #[schemars(range(min = 1, max = LIMIT_MAX))]
    pub limit: u32,
    /// `nextCursor` of the page before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = r"^[0-7]?[0-9a-f]{1,15}$"))]
    pub cursor: Option<String>,
}

impl ListSessions {
    pub fn default_limit() -> u32 {
        50
    }

    pub(crate) fn check(&self) -> Result<()> {
        check_limit(self.limit)
    }
}

/// Changes what people call a session. What is left out stays as it is.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct UpdateSession {
    /// A short name; an empty one takes the name away.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = TEXT_MAX))]
    pub name: Option<String>,
    /// All tags it shall have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = TAGS_MAX), inner(length(min = 1, max = TEXT_MAX)))]
    pub tags: Option<Vec<String>>,
}

impl UpdateSession {
    pub(crate) fn check(&self) -> Result<()> {
        if self.name.as_ref().is_some_and(|name| !name.is_empty() && !is_short(name)) {
            return Err(Error::InvalidInput(format!("name must be text of at most {TEXT_MAX} characters")));
        }
        let good = |tags: &Vec<String>| tags.len() <= TAGS_MAX && tags.iter().all(|tag| is_short(tag));
        if self.tags.as_ref().is_some_and(|tags| !good(tags)) {
            let message = format!("tags must be at most {TAGS_MAX} texts of 1 to {TEXT_MAX} characters");
            return Err(Error::InvalidInput(message));
        }
        Ok(())
    }
}

/// A session that is hidden now and will be removed.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DeletedSession {
    pub session_id: SessionId,
    /// How many checkpoints went with it.
    pub checkpoint_count: u64,
    /// Until then it is kept; left out when it was removed for good.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kept_until: Option<Timestamp>,
    /// What a client should know, such as that nothing is kept beyond the end of the process.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

/// One page of a list of sessions.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SessionPage {
    pub sessions: Vec<Session>,
    /// What a client should know, such as that nothing is kept beyond the end of the process.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
    /// There are more after this page.
    pub has_more: bool,
    /// Give this as `cursor` to get the next page.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<String>,
}

/// The first page of everything.
impl Default for ListSessions {
    fn default() -> Self {
        Self { project_id: None, deleted: false, limit: Self::default_limit(), cursor: None }
    }
}
