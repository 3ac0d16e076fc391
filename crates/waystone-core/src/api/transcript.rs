//! What is kept of a transcript besides its turns: what the conversation has come to, as the context of a checkpoint.

use serde::{Deserialize, Serialize};

/// What was said, and where all of it is.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Quote {
    pub text: String,
    pub handle: String,
    /// The user said it, and not the agent.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub by_user: bool,
}

/// What is still to do.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct OpenTask {
    pub id: String,
    pub text: String,
    pub status: String,
}

/// What the agent does by a tool.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct OpenCall {
    pub id: String,
    pub call: String,
}

/// A command or tool that failed and has not succeeded since.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Failure {
    pub call: String,
    pub text: String,
    pub handle: String,
}

/// What a conversation has come to.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Digest {
    /// Which program's transcript it is from, and where that is.
    pub client: String,
    pub transcript: String,
    /// The directory that was worked in.
    pub place: String,
    pub turns: u64,
    pub last_request: Option<Quote>,
    pub last_reply: Option<Quote>,
    pub goals: Vec<Quote>,
    pub open_tasks: Vec<OpenTask>,
    pub decisions: Vec<Quote>,
    pub files_touched: Vec<String>,
    pub unresolved_errors: Vec<Failure>,
    /// What was begun and not answered yet.
    pub open_calls: Vec<OpenCall>,
}
