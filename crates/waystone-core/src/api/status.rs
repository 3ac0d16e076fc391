use schemars::JsonSchema;
use serde::Serialize;

/// What the store holds and who uses it.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Status {
    /// Version of the program that answers.
    pub version: String,
    /// Where everything is kept.
    pub data_dir: String,
    /// Version of the database's schema.
    pub schema_version: u32,
    pub session_count: u64,
    /// Checkpoints that are not archived.
    pub checkpoint_count: u64,
    /// Size of all checkpoints as stored, archived ones included.
    pub total_size_bytes: u64,
    /// Size of the database files on disk.
    pub database_bytes: u64,
    /// Changes made since the store was created.
    pub operation_count: u64,
    /// Processes that have the data directory open, this one included.
    pub processes: Vec<u32>,
    /// Whether what is kept is sealed, and opens only with its key.
    pub encrypted: bool,
    /// Whether the process that answers refuses all changes.
    pub read_only: bool,
    /// What a client should know, such as that nothing is kept beyond the end of the process.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}
