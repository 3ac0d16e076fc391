//! What is asked and answered by who wants to go on with work and has no id.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Git, NextCall, Origin};
use crate::clock::Timestamp;
use crate::error::{Error, Result};
use crate::id::{CheckpointId, ProjectId, SessionId, WorkflowId};

/// How many sessions are named at most: who wants more wants a list.
pub(crate) const SESSIONS_MAX: u32 = 20;
/// A hint, not a text: so it fits into an address too, however it is encoded.
const QUERY_MAX: usize = 1000;

/// Finds the session to go on with by project, git branch, words and last use. Loads nothing.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ResumeSessions {
    /// What the work was about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = QUERY_MAX))]
    pub query: Option<String>,
    /// What kind of work it was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workflow_id: Option<WorkflowId>,
    #[serde(default = "ResumeSessions::default_limit")]
    #[schemars(range(min = 1, max = SESSIONS_MAX))]
    pub limit: u32,
}

impl ResumeSessions {
    pub fn default_limit() -> u32 {
        5
    }

    pub(crate) fn check(&self) -> Result<()> {
        let length = self.query.as_deref().unwrap_or_default().chars().count();
        if length > QUERY_MAX {
            return Err(Error::InvalidInput(format!("query has {length} characters, at most {QUERY_MAX} are taken")));
        }
        match self.limit {
            1..=SESSIONS_MAX => Ok(()),
            limit => Err(Error::InvalidInput(format!("limit is {limit}, it must be from 1 to {SESSIONS_MAX}"))),
        }
    }
}

/// A session that is likely meant.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ResumedSession {
    pub session_id: SessionId,
    /// The body of work it belongs to.
    pub project_id: ProjectId,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workflow_id: Option<WorkflowId>,
    /// When it was last saved or loaded.
    pub last_accessed_at: Timestamp,
    pub checkpoint_count: u64,
    /// Its newest checkpoint.
    pub checkpoint_id: CheckpointId,
    /// Where the repository stood at that checkpoint.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub git: Option<Git>,
    /// What speaks for it, the strongest first.
    pub why: Vec<String>,
    /// Where what is shown of it came from, of all the lowest: user, agent, tool or import.
    pub origin: Origin,
    /// Enough to recognise it by.
    pub preview: Preview,
    /// Earlier sessions that began with the same context: runs of the same work.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub started_alike: Vec<SessionId>,
}

/// A glance at a session.
#[derive(Debug, Clone, Default, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Preview {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<String>,
    /// What its newest checkpoint is called.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub checkpoint_name: Option<String>,
    /// Keys of its newest context, those that matter most first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub keys: Vec<String>,
    /// The line that fits the query best, else what stands under the first of the keys.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub text: String,
}

/// The sessions most likely meant, best first. Nothing was loaded.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Resumed {
    pub sessions: Vec<ResumedSession>,
    /// Whether the first one is well ahead of the others. If not, ask before you go on with it.
    pub confident: bool,
    /// What to do when none is meant.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hint: Option<&'static str>,
    /// What a client should know, such as that nothing is kept beyond the end of the process.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
    /// How to get the first one's context back, if it is clear that it is meant.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<NextCall>,
}
