//! The part of the boundary that is about transcripts of other programs.

use std::sync::Arc;

use async_trait::async_trait;

use super::{NewSegments, Scope};
use crate::canon::Hash;
use crate::error::Result;

/// As far as a transcript was captured.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TranscriptEnd {
    /// All before this byte.
    pub at: u64,
    /// Of what stands right before it: another one when the file was cut or replaced.
    pub hash: Hash,
}

/// Turns to be captured.
#[derive(Debug, Clone)]
pub struct NewTurns {
    pub segments: NewSegments,
    /// What each is known by, in their order.
    pub hashes: Vec<[u8; 16]>,
    /// The file they are from, and how far it was read.
    pub path: String,
    pub end: TranscriptEnd,
}

/// The same promises as [`super::Store`], of which it is a part.
#[async_trait]
pub trait TranscriptStore: Send + Sync {
    async fn find_transcript(&self, scope: &Scope, path: &str) -> Result<Option<TranscriptEnd>>;

    /// Adds a segment for each turn that was not captured before, in whichever file, and takes note of how far the file was read. Returns
    /// which were new.
    async fn capture_turns(&self, scope: &Scope, new: Arc<NewTurns>) -> Result<Vec<bool>>;
}
