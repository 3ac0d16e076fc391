//! Requests and replies: what goes over the wire, on every face.
//!
//! These are the only types that derive `Serialize` and `JsonSchema`. Their doc comments are what people and models
//! read as descriptions, so they speak to users.

mod checkpoint;
mod doctor;
mod error;
mod event;
mod session;
mod status;

pub use checkpoint::{
    Checkpoint, CheckpointPage, DeletedCheckpoint, ListCheckpoints, LoadCheckpoint, LoadedCheckpoint, Metadata,
    NextCall, SaveCheckpoint, SaveStatus, SavedCheckpoint,
};
pub(crate) use checkpoint::{TAGS_MAX, TEXT_MAX, is_short};
pub use doctor::{Checkup, Finding, FindingKind};
pub use error::{ErrorBody, ErrorReply};
pub use event::{Event, EventPage};
pub use session::{DeletedSession, ListSessions, Session, SessionPage, UpdateSession};
pub use status::Status;
