//! Everything that can go wrong for a caller, and the one table from it to code, HTTP status and hint.

use serde_json::{Value, json};

use crate::api::{ErrorBody, ErrorReply};
use crate::id::{CheckpointId, SessionId};

pub type Result<T, E = Error> = std::result::Result<T, E>;

#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum Error {
    #[error("{0}")]
    InvalidInput(String),
    #[error("there is no checkpoint `{0}`")]
    CheckpointNotFound(CheckpointId),
    #[error("there is no session `{0}`")]
    SessionNotFound(SessionId),
    #[error("{message}")]
    Conflict { message: String, details: Value, hint: &'static str },
    #[error("checkpoint `{id}` is damaged: {damage}")]
    CheckpointCorrupt { id: CheckpointId, damage: String, nearest: Option<CheckpointId> },
    #[error("{what} has {actual} bytes, at most {max} are taken")]
    PayloadTooLarge { what: &'static str, actual: u64, max: u64 },
    #[error("{message}")]
    QuotaExceeded { message: String, setting: &'static str },
    #[error("{0}")]
    Forbidden(String),
    #[error("there is nothing at {0}")]
    NotFound(String),
    #[error("{method} is not possible at {path}")]
    MethodNotAllowed { method: String, path: String },
    #[error("the body must be JSON: send Content-Type: application/json, not `{0}`")]
    UnsupportedMediaType(String),
    #[error("{message}")]
    StorageUnavailable { reason: Unavailable, message: String },
}

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
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Busy => "busy",
            Self::Full => "full",
            Self::Damaged => "damaged",
            Self::Broken => "broken",
        }
    }
}

impl Error {
    /// Code, HTTP status and the next action.
    fn row(&self) -> (&'static str, u16, &'static str) {
        match self {
            Self::InvalidInput(_) => ("INVALID_INPUT", 400, "correct what the message names and try again"),
            Self::CheckpointNotFound(_) => ("CHECKPOINT_NOT_FOUND", 404, "look for its id in the list of checkpoints"),
            Self::SessionNotFound(_) => {
                ("SESSION_NOT_FOUND", 404, "look for its id in the list of sessions or checkpoints")
            }
            Self::Conflict { hint, .. } => ("CONFLICT", 409, hint),
            Self::CheckpointCorrupt { nearest: Some(_), .. } => {
                ("CHECKPOINT_CORRUPT", 422, "load details.nearestCheckpointId, the nearest good one of its session")
            }
            Self::CheckpointCorrupt { nearest: None, .. } => (
                "CHECKPOINT_CORRUPT",
                422,
                "no other checkpoint of its session can be read; bring back a copy of the data directory",
            ),
            Self::PayloadTooLarge { .. } => {
                ("PAYLOAD_TOO_LARGE", 413, "save less at once, or raise WAYSTONE_MAX_CONTEXT_BYTES")
            }
            Self::QuotaExceeded { .. } => (
                "STORAGE_QUOTA_EXCEEDED",
                413,
                "raise the limit that the message names; what was deleted still counts until it is removed",
            ),
            Self::Forbidden(_) => {
                ("FORBIDDEN", 403, "call from this machine, or from an origin in WAYSTONE_ALLOWED_ORIGINS")
            }
            Self::NotFound(_) => ("NOT_FOUND", 404, "see /docs for what there is"),
            Self::MethodNotAllowed { .. } => ("METHOD_NOT_ALLOWED", 405, "see /docs for what is possible"),
            Self::UnsupportedMediaType(_) => ("UNSUPPORTED_MEDIA_TYPE", 415, "set the header and send it again"),
            Self::StorageUnavailable { reason: Unavailable::Busy, .. } => {
                ("STORAGE_UNAVAILABLE", 503, "nothing was changed; try again")
            }
            Self::StorageUnavailable { reason: Unavailable::Full, .. } => {
                ("STORAGE_UNAVAILABLE", 503, "nothing was saved; free disk space and try again")
            }
            Self::StorageUnavailable { reason: Unavailable::Damaged, .. } => (
                "STORAGE_UNAVAILABLE",
                503,
                "copy the data directory away, end every process that uses it, then bring the database back with `waystone doctor --repair`",
            ),
            Self::StorageUnavailable { .. } => {
                ("STORAGE_UNAVAILABLE", 503, "nothing was saved; see the log file in the data directory")
            }
        }
    }

    pub fn code(&self) -> &'static str {
        self.row().0
    }

    pub fn http_status(&self) -> u16 {
        self.row().1
    }

    pub fn hint(&self) -> &'static str {
        self.row().2
    }

    fn details(&self) -> Value {
        match self {
            Self::Conflict { details, .. } => details.clone(),
            Self::CheckpointNotFound(id) => json!({ "checkpointId": id }),
            Self::SessionNotFound(id) => json!({ "sessionId": id }),
            Self::CheckpointCorrupt { id, nearest, .. } => {
                json!({ "checkpointId": id, "nearestCheckpointId": nearest })
            }
            Self::PayloadTooLarge { actual, max, .. } => json!({ "actualBytes": actual, "maxBytes": max }),
            Self::QuotaExceeded { setting, .. } => json!({ "setting": setting }),
            Self::StorageUnavailable { reason, .. } => json!({ "reason": reason.as_str() }),
            Self::InvalidInput(_)
            | Self::Forbidden(_)
            | Self::NotFound(_)
            | Self::MethodNotAllowed { .. }
            | Self::UnsupportedMediaType(_) => json!({}),
        }
    }

    /// The error as it goes over the wire.
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
