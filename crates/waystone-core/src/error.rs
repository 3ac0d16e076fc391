//! Everything that can go wrong for a caller, and the one table from it to code, HTTP status and hint. Whoever finds that
//! something is wrong says what it found; what is told of it is here.

mod conflict;
mod face;
mod quota;

use serde_json::{Value, json};

use crate::api::{ContextState, ErrorBody, ErrorReply};
use crate::id::{
    BranchName, CheckpointId, OperationId, PlanId, ProjectId, SegmentId, SessionId, SnapshotId, ToolCallId,
};
use crate::secret::{Finding, Findings};
use crate::window::{Reason, Room, TooSmall};

pub use conflict::Conflict;
pub use face::Face;
pub use quota::Quota;

pub type Result<T, E = Error> = std::result::Result<T, E>;

#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum Error {
    #[error("{0}")]
    InvalidInput(String),
    #[error("there is no checkpoint `{0}`")]
    CheckpointNotFound(CheckpointId),
    #[error("there is no session `{0}`")]
    SessionNotFound(SessionId),
    #[error(transparent)]
    Conflict(Conflict),
    #[error("checkpoint `{id}` is damaged: {damage}")]
    CheckpointCorrupt { id: CheckpointId, damage: String, nearest: Option<CheckpointId> },
    #[error("{what} has {actual} bytes, at most {max} are taken")]
    PayloadTooLarge { what: &'static str, actual: u64, max: u64 },
    #[error(transparent)]
    QuotaExceeded(Quota),
    #[error("{0}")]
    Forbidden(String),
    #[error("there is nothing at {0}")]
    NotFound(String),
    #[error("there is no segment `{}` in the project", .0.first().map_or("", SegmentId::as_str))]
    SegmentNotFound(Vec<SegmentId>),
    #[error("{} pinned and cannot be pruned; nothing was changed", are(.0.len()))]
    SegmentsPinned(Vec<SegmentId>),
    #[error("there is no plan `{0}` of this project; one is kept for a day, or until it is carried out")]
    PlanNotFound(PlanId),
    #[error("there is no snapshot `{0}`")]
    SnapshotNotFound(SnapshotId),
    #[error("there is no snapshot of the current task of project `{0}`")]
    NoSnapshot(ProjectId),
    #[error("there is no operation `{0}`")]
    OperationNotFound(OperationId),
    /// With how the newest is brought back instead, if it is.
    #[error("{}", nothing_to_undo(.0, .1.as_deref()))]
    NothingToUndo(ProjectId, Option<String>),
    #[error("there is nothing behind the handle `{handle}`: {why}")]
    HandleNotFound { handle: String, why: String },
    #[error("this process only reads, and that would change something")]
    ReadOnly,
    /// The same as [`Self::InvalidInput`], under the name that the contract of segments has for it.
    #[error("{0}")]
    InvalidParameter(String),
    /// The same once more, under the name that the contract of conversations has for it.
    #[error("{0}")]
    Validation(String),
    #[error("Context with ID {0} not found")]
    ContextNotFound(SessionId),
    #[error("there is no branch `{name}` in context {context}")]
    BranchNotFound { context: SessionId, name: BranchName },
    #[error("there is no message `{message}` in context {context}")]
    MessageNotFound { context: SessionId, message: SegmentId },
    #[error("there is no tool call `{call}` in context {context}")]
    ToolCallNotFound { context: SessionId, call: ToolCallId },
    #[error("{}", too_small(.0))]
    WindowTooSmall(TooSmall),
    #[error("context {context} is in state {}: {why}", .state.as_str())]
    InvalidState { context: SessionId, state: ContextState, why: &'static str, hint: &'static str },
    #[error("{}; nothing was stored", blocked(.0))]
    SecretBlocked(Box<Findings>),
    #[error("{method} is not possible at {path}")]
    MethodNotAllowed { method: String, path: String },
    #[error("the body must be JSON: send Content-Type: application/json{}", instead_of(.0))]
    UnsupportedMediaType(String),
    #[error("{message}")]
    StorageUnavailable { reason: Unavailable, message: String },
    /// Work that ended in the middle: a fault of ours.
    #[error("{0}")]
    Internal(String),
}

fn instead_of(given: &str) -> String {
    if given.is_empty() { String::new() } else { format!(", not `{given}`") }
}

fn are(count: usize) -> String {
    if count == 1 { "1 segment is".to_owned() } else { format!("{count} segments are") }
}

fn nothing_to_undo(project: &ProjectId, how_restored: Option<&str>) -> String {
    let restored = how_restored.map(|how| format!("; {how}")).unwrap_or_default();
    format!("nothing was done in project `{project}` that you can undo{restored}")
}

fn blocked(findings: &Findings) -> String {
    const NAMED_MAX: usize = 3;
    let named: Vec<String> = findings.first.iter().take(NAMED_MAX).map(Finding::to_string).collect();
    let more = if findings.total > NAMED_MAX as u64 { ", …" } else { "" };
    match findings.total {
        1 => format!("1 possible secret: {}", named.join("")),
        count => format!("{count} possible secrets: {}{more}", named.join(", ")),
    }
}

const SPANS_NAMED_MAX: usize = 10;

fn too_small(TooSmall { needed, room, largest }: &TooSmall) -> String {
    let Room { budget, system, tools } = room;
    let named = largest.iter().take(3).map(|(id, tokens, reason)| match reason {
        Reason::Pinned => format!("message `{id}`, pinned, {tokens} tokens"),
        _ => format!("the last request, message `{id}`, {tokens} tokens"),
    });
    let named = named.collect::<Vec<_>>().join("; ");
    format!(
        "what must be in the window needs {needed} tokens, and there is room for {budget}: the system prompt, {system} tokens; tools, {tools} tokens; {named}"
    )
}

const SECRET_HINT: &str =
    "take out what is named, switch its rule off in secrets.json, or set WAYSTONE_SECRETS (WAYSTONE_PII) to warn";

/// The hint where the message says all there is to say. Programs want one with every error; a person is not told it.
pub const CORRECT_IT: &str = "correct what the message names and try again";

/// What is too large if a document is.
pub const IMPORTED: &str = "the document";

/// Why storage cannot be used, where a caller or a person would act differently.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unavailable {
    /// Others were writing for too long.
    Busy,
    /// No space left.
    Full,
    /// The database cannot be read.
    Damaged,
    /// Anything else: permissions, a missing device, a failed sync.
    Broken,
}

impl Unavailable {
    fn as_str(self) -> &'static str {
        match self {
            Self::Busy => "busy",
            Self::Full => "full",
            Self::Damaged => "damaged",
            Self::Broken => "broken",
        }
    }

    fn hint(self) -> &'static str {
        match self {
            Self::Busy => "nothing was changed; try again",
            Self::Full => "nothing was saved; free disk space and try again",
            Self::Damaged => {
                "copy the data directory away, end every process that uses it, then bring the database back with `waystone doctor --repair`"
            }
            Self::Broken => "nothing was saved; see the log file in the data directory",
        }
    }
}

impl Error {
    /// The code of what there is no room for by the limits that are set.
    pub(crate) const QUOTA_EXCEEDED: &str = "STORAGE_QUOTA_EXCEEDED";

    /// What is kept cannot be used, for which no one who calls is to blame.
    pub fn broken(message: impl Into<String>) -> Self {
        Self::StorageUnavailable { reason: Unavailable::Broken, message: message.into() }
    }

    /// The same under the name that the contract of segments has for a bad request.
    #[must_use]
    pub fn as_parameter(self) -> Self {
        match self {
            Self::InvalidInput(message) => Self::InvalidParameter(message),
            other => other,
        }
    }

    /// The same under the name that the contract of conversations has for a bad request.
    #[must_use]
    pub fn as_validation(self) -> Self {
        match self {
            Self::InvalidInput(message) => Self::Validation(message),
            other => other,
        }
    }

    /// Code, HTTP status and the next action.
    #[expect(clippy::too_many_lines, reason = "it is a table, with a row for each error")]
    fn row(&self) -> (&'static str, u16, &'static str) {
        match self {
            Self::InvalidInput(_) => ("INVALID_INPUT", 400, CORRECT_IT),
            Self::CheckpointNotFound(_) => ("CHECKPOINT_NOT_FOUND", 404, "look for its id in the list of checkpoints"),
            Self::SessionNotFound(_) => {
                ("SESSION_NOT_FOUND", 404, "look for its id in the list of sessions, or of those that were deleted")
            }
            Self::Conflict(conflict) => ("CONFLICT", 409, conflict.hint()),
            Self::CheckpointCorrupt { nearest: Some(_), .. } => {
                ("CHECKPOINT_CORRUPT", 422, "load details.nearestCheckpointId, the nearest good one of its session")
            }
            Self::CheckpointCorrupt { nearest: None, .. } => (
                "CHECKPOINT_CORRUPT",
                422,
                "no other checkpoint of its session can be read; bring back a copy of the data directory",
            ),
            Self::PayloadTooLarge { what: IMPORTED, .. } => {
                ("PAYLOAD_TOO_LARGE", 413, "raise WAYSTONE_MAX_IMPORT_BYTES, or export less at once")
            }
            Self::PayloadTooLarge { .. } => {
                ("PAYLOAD_TOO_LARGE", 413, "save less at once, or raise WAYSTONE_MAX_CONTEXT_BYTES")
            }
            Self::QuotaExceeded(_) => (
                Self::QUOTA_EXCEEDED,
                413,
                "raise the limit that the message names, or delete something; in bytes that counts until it is removed (`delete --purge`)",
            ),
            Self::Forbidden(_) => (
                "FORBIDDEN",
                403,
                "call from this machine as the same user (--allow-other-users lets others in), or from an origin in WAYSTONE_ALLOWED_ORIGINS",
            ),
            Self::ReadOnly => (
                "READ_ONLY",
                403,
                "nothing was changed; only a process that was started without --read-only and WAYSTONE_READ_ONLY can do it",
            ),
            Self::InvalidParameter(_) => ("INVALID_PARAMETER", 400, CORRECT_IT),
            Self::Validation(_) => ("VALIDATION_ERROR", 400, CORRECT_IT),
            Self::ContextNotFound(_) => {
                ("CONTEXT_NOT_FOUND", 404, "look for its id in GET /api/contexts or `waystone context list`")
            }
            Self::BranchNotFound { .. } => ("BRANCH_NOT_FOUND", 404, "list them with GET /api/contexts/{id}/branches"),
            Self::MessageNotFound { .. } => {
                ("MESSAGE_NOT_FOUND", 404, "list them with GET /api/contexts/{id}/messages")
            }
            Self::ToolCallNotFound { .. } => (
                "TOOL_CALL_NOT_FOUND",
                404,
                "look for its id in the ToolCallRequested event or in the message that calls it",
            ),
            Self::WindowTooSmall(_) => (
                "WINDOW_TOO_SMALL",
                422,
                "unpin what is named, say it in fewer words, offer fewer tools, ask for a shorter answer (max_tokens), or take a model that holds more",
            ),
            Self::InvalidState { hint, .. } => ("INVALID_STATE", 400, hint),
            Self::SegmentNotFound(_) => {
                ("SEGMENT_NOT_FOUND", 404, "use ids that context_get_working_set or context_search_stashed returned")
            }
            Self::SegmentsPinned(_) => {
                ("INVALID_PARAMETER", 400, "leave out what details.pinned names, or unpin it with context_gc_unpin")
            }
            Self::PlanNotFound(_) => ("PLAN_NOT_FOUND", 404, "make a new plan with context_gc_analyze"),
            Self::SnapshotNotFound(_) | Self::NoSnapshot(_) => (
                "SNAPSHOT_NOT_FOUND",
                404,
                "list them with GET /api/projects/{project_id}/snapshots or `waystone task snapshots`",
            ),
            Self::OperationNotFound(_) | Self::NothingToUndo(..) => {
                ("OPERATION_NOT_FOUND", 404, "list them with GET /api/operations or `waystone undo --list`")
            }
            Self::HandleNotFound { .. } => {
                ("HANDLE_NOT_FOUND", 404, "use a handle as a view gave it, or go from one that leads somewhere")
            }
            Self::SecretBlocked(_) => ("SECRET_BLOCKED", 422, SECRET_HINT),
            Self::NotFound(_) => ("NOT_FOUND", 404, "see /docs for what there is"),
            Self::MethodNotAllowed { .. } => ("METHOD_NOT_ALLOWED", 405, "see /docs for what is possible"),
            Self::UnsupportedMediaType(_) => ("UNSUPPORTED_MEDIA_TYPE", 415, "set the header and send it again"),
            Self::StorageUnavailable { reason, .. } => ("STORAGE_UNAVAILABLE", 503, reason.hint()),
            Self::Internal(_) => (
                "INTERNAL_ERROR",
                500,
                "this is a fault of Waystone's: see the log file in the data directory, and try again",
            ),
        }
    }

    pub fn code(&self) -> &'static str {
        self.row().0
    }

    pub fn http_status(&self) -> u16 {
        self.row().1
    }

    fn hint(&self) -> &'static str {
        self.row().2
    }

    fn details(&self) -> Value {
        match self {
            Self::Conflict(conflict) => conflict.details(),
            Self::CheckpointNotFound(id) => json!({ "checkpointId": id }),
            Self::SessionNotFound(id) => json!({ "sessionId": id }),
            Self::CheckpointCorrupt { id, nearest, .. } => {
                json!({ "checkpointId": id, "nearestCheckpointId": nearest })
            }
            Self::PayloadTooLarge { actual, max, .. } => json!({ "actualBytes": actual, "maxBytes": max }),
            Self::QuotaExceeded(quota) => json!({ "setting": quota.setting() }),
            Self::StorageUnavailable { reason, .. } => json!({ "reason": reason.as_str() }),
            Self::HandleNotFound { handle, .. } => json!({ "handle": handle }),
            Self::ContextNotFound(id) => json!({ "context_id": id }),
            Self::BranchNotFound { context, name } => json!({ "context_id": context, "branch": name }),
            Self::ToolCallNotFound { context, call } => json!({ "context_id": context, "tool_call_id": call }),
            Self::MessageNotFound { context, message } => json!({ "context_id": context, "message_id": message }),
            Self::WindowTooSmall(TooSmall { needed, room, largest }) => {
                let Room { budget, system, tools } = room;
                let spans = largest.iter().take(SPANS_NAMED_MAX);
                let spans = spans.map(
                    |(id, tokens, reason)| json!({ "message_id": id, "tokens": tokens, "reason": reason.as_str() }),
                );
                json!({
                    "needed": needed, "budget": budget, "system_tokens": system, "tools_tokens": tools,
                    "spans": spans.collect::<Vec<_>>(),
                })
            }
            Self::InvalidState { context, state, .. } => json!({ "context_id": context, "current_state": state }),
            Self::SegmentNotFound(ids) => json!({ "segment_ids": ids }),
            Self::SegmentsPinned(ids) => json!({ "pinned": ids }),
            Self::PlanNotFound(id) => json!({ "plan_id": id }),
            Self::SnapshotNotFound(id) => json!({ "snapshot_id": id }),
            Self::NoSnapshot(project) => json!({ "project_id": project }),
            Self::OperationNotFound(id) => json!({ "operation_id": id }),
            Self::NothingToUndo(project, _) => json!({ "project_id": project }),
            Self::SecretBlocked(findings) => {
                let told = |found: &Finding| {
                    json!({
                        "rule": found.rule,
                        "group": found.group.as_str(),
                        "pointer": found.pointer,
                        "offset": found.bytes.start,
                        "length": found.bytes.len(),
                        "inKey": found.is_in_key,
                    })
                };
                let first: Vec<Value> = findings.first.iter().map(told).collect();
                json!({ "findings": first, "total": findings.total })
            }
            Self::InvalidInput(_)
            | Self::InvalidParameter(_)
            | Self::Validation(_)
            | Self::Forbidden(_)
            | Self::ReadOnly
            | Self::NotFound(_)
            | Self::MethodNotAllowed { .. }
            | Self::UnsupportedMediaType(_)
            | Self::Internal(_) => json!({}),
        }
    }

    /// The error as this face tells it.
    pub fn reply_to(&self, face: Face) -> ErrorReply {
        let mut reply = self.reply();
        reply.error.hint = face.words(&reply.error.hint);
        reply
    }

    /// The error as it goes over the wire, in words for all faces.
    pub fn reply(&self) -> ErrorReply {
        ErrorReply {
            error: ErrorBody {
                code: self.code().to_owned(),
                message: shorten(self.to_string()),
                details: self.details(),
                hint: self.hint().to_owned(),
            },
        }
    }
}

/// Messages quote what was sent, and that has no bound of its own.
fn shorten(message: String) -> String {
    const CHARS_MAX: usize = 500;
    match message.char_indices().nth(CHARS_MAX) {
        Some((end, _)) => format!("{}…", &message[..end]),
        None => message,
    }
}
