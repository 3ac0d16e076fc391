//! What `waystone doctor` finds: each finding is of a kind, and the kinds say whether all is well again.

use schemars::JsonSchema;
use serde::Serialize;

/// What a look at both copies of everything found.
#[derive(Debug, Clone, Default, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Checkup {
    /// How many checkpoints were decoded and hashed, archived ones included.
    pub checkpoints: u64,
    /// How many there are besides, of conversations: they have no file, and are in the database and the backups.
    pub conversation_checkpoints: u64,
    /// How many files were compared with the database.
    pub files: u64,
    pub findings: Vec<Finding>,
    /// Everything is whole, or was healed.
    pub sound: bool,
}

#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Finding {
    pub kind: FindingKind,
    /// The id of a checkpoint or session, or a file's path in the data directory.
    pub subject: String,
    pub message: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum FindingKind {
    /// A row was damaged and put right from its file.
    RowHealed,
    /// A file was damaged or missing and written anew.
    MirrorHealed,
    /// A checkpoint is damaged in both copies.
    Lost,
    /// A file could not be put right.
    Unhealed,
    /// A file belongs to nothing in the database.
    Orphan,
    /// A checkpoint or session came back from a file.
    Restored,
    /// What was removed for good was in a copy, and does not come back.
    HeldBack,
}

impl Checkup {
    /// Adds findings, and judges all of them.
    pub fn with(mut self, findings: Vec<Finding>) -> Self {
        self.findings.extend(findings);
        let is_healed = |kind| {
            matches!(
                kind,
                FindingKind::RowHealed | FindingKind::MirrorHealed | FindingKind::Restored | FindingKind::HeldBack
            )
        };
        self.sound = self.findings.iter().all(|finding| is_healed(finding.kind));
        self
    }
}
