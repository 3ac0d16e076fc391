//! The part of the boundary that is about documents: what a project's has, and what is taken in at once.

use async_trait::async_trait;

use super::{NewCheckpoint, NewSegments, Scope};
use crate::api::{SegmentRecord, SessionRecord, SnapshotRecord, TaskRecord, Tier};
use crate::clock::Timestamp;
use crate::error::Result;
use crate::id::{CheckpointId, ProjectId, SnapshotId, TaskId};

/// A session to be taken in.
#[derive(Debug, Clone)]
pub struct NewSession {
    pub session: SessionRecord,
    /// In the order of the document, each with its parent if it has one. Those without bytes are believed to be here. The first that
    /// has bytes opens a group, and deltas are against the one before in the same group.
    pub checkpoints: Vec<NewCheckpoint>,
    pub at: Timestamp,
}

/// What became of a [`NewSession`].
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ImportedSession {
    pub added: u64,
    pub known: u64,
    /// Those that are here and deleted.
    pub deleted: Vec<CheckpointId>,
    /// The session was here, and is not all that the document says of it.
    pub differs: bool,
    /// What was its newest before, if something newer came.
    pub newest_before: Option<CheckpointId>,
}

/// A project to be taken in.
#[derive(Debug, Clone)]
pub struct NewProject {
    pub project: ProjectId,
    pub tasks: Vec<TaskRecord>,
    /// Each with one text, how often it was met, and how many collections it survived.
    pub segments: Vec<(NewSegments, u32, u32)>,
    pub snapshots: Vec<NewSnapshot>,
    pub at: Timestamp,
    pub total_bytes_max: u64,
}

#[derive(Debug, Clone)]
pub struct NewSnapshot {
    pub id: SnapshotId,
    pub task: TaskId,
    pub name: Option<String>,
    pub created: Timestamp,
    pub segments: Vec<NewSnapshotSegment>,
}

#[derive(Debug, Clone, Copy)]
pub struct NewSnapshotSegment {
    /// Its place in [`NewProject::segments`].
    pub at: u32,
    pub tier: Tier,
    pub pinned: bool,
}

/// What became of a [`NewProject`].
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ImportedProject {
    pub added: u64,
    pub known: u64,
    /// How many of those that were here are deleted.
    pub deleted: u64,
    pub snapshots_added: u64,
    /// Whether anything changed: a task may be all that is new.
    pub changed: bool,
    /// The task that is current here, if the document has another one.
    pub current_kept: Option<TaskId>,
}

/// A page of segments for a document, oldest first.
#[derive(Debug, Clone, Default)]
pub struct ExportedSegments {
    pub segments: Vec<SegmentRecord>,
    /// Where the next page begins; `None` after the last one.
    pub cursor: Option<i64>,
}

/// A snapshot for a document.
#[derive(Debug, Clone)]
pub struct ExportedSnapshot {
    pub snapshot: SnapshotRecord,
    /// Where the next one is.
    pub cursor: i64,
}

/// The same promises as [`super::Store`], of which it is a part.
#[async_trait]
pub trait DocumentStore: Send + Sync {
    /// Adds the checkpoints of a session that are not here, with the session if that is not. All or nothing.
    async fn import_session(&self, scope: &Scope, new: NewSession) -> Result<ImportedSession>;

    /// Adds the segments, tasks and snapshots of a project that are not here. All or nothing.
    async fn import_project(&self, scope: &Scope, new: NewProject) -> Result<ImportedProject>;

    /// The tasks of a project that have segments or snapshots, or are current, by their ids.
    async fn export_tasks(&self, scope: &Scope, project: &ProjectId) -> Result<Vec<TaskRecord>>;

    /// The segments of a project after the cursor `after` that are not deleted: one page.
    async fn export_segments(&self, scope: &Scope, project: &ProjectId, after: i64) -> Result<ExportedSegments>;

    /// The first snapshot of a project after the cursor `after`.
    async fn export_snapshot(&self, scope: &Scope, project: &ProjectId, after: i64)
    -> Result<Option<ExportedSnapshot>>;
}
