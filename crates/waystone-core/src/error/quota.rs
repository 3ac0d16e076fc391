//! Limits of what is kept.

/// Which of the limits a save would exceed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Quota {
    #[error("the checkpoint has {actual} bytes compressed, at most {max} are kept (WAYSTONE_MAX_CHECKPOINT_BYTES)")]
    CheckpointBytes { actual: u64, max: u64 },
    #[error("the session has {used} bytes, {more} more would exceed {max} (WAYSTONE_MAX_SESSION_BYTES)")]
    SessionBytes { used: u64, more: u64, max: u64 },
    #[error("the store has {used} bytes, {more} more would exceed {max} (WAYSTONE_MAX_TOTAL_BYTES)")]
    TotalBytes { used: u64, more: u64, max: u64 },
    #[error(
        "the session has {count} checkpoints, {max} are allowed (WAYSTONE_MAX_CHECKPOINTS), and no more can be archived: the others have names, tags or branches"
    )]
    Checkpoints { count: u64, max: u64 },
    #[error("the session would have {count} checkpoints, {max} are allowed (WAYSTONE_MAX_CHECKPOINTS)")]
    ImportedCheckpoints { count: u64, max: u64 },
}

impl Quota {
    /// The variable that raises it.
    pub(super) fn setting(&self) -> &'static str {
        match self {
            Self::CheckpointBytes { .. } => "WAYSTONE_MAX_CHECKPOINT_BYTES",
            Self::SessionBytes { .. } => "WAYSTONE_MAX_SESSION_BYTES",
            Self::TotalBytes { .. } => "WAYSTONE_MAX_TOTAL_BYTES",
            Self::Checkpoints { .. } | Self::ImportedCheckpoints { .. } => "WAYSTONE_MAX_CHECKPOINTS",
        }
    }
}
