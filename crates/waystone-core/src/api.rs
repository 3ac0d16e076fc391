//! Requests and replies: what goes over the wire, on every face.
//!
//! These are the only types that derive `Serialize` and `JsonSchema`. Their doc comments are what people and models
//! read as descriptions, so they speak to users.

mod checkpoint;
mod error;
mod session;
mod status;

pub use checkpoint::{
    Checkpoint, CheckpointPage, ListCheckpoints, LoadCheckpoint, LoadedCheckpoint, Metadata, NextCall, SaveCheckpoint,
    SaveStatus, SavedCheckpoint,
};
pub use error::{ErrorBody, ErrorReply};
pub use session::{ListSessions, Session, SessionPage};
pub use status::Status;
