//! The boundary to where things are kept.

mod audit;
mod conversation;
mod document;
mod operation;
mod retention;
mod segment;
mod task;
mod tool_call;
mod transcript;
mod window;

use std::sync::Arc;

use async_trait::async_trait;

use tokio::sync::watch;

use crate::api::{
    Checkpoint, CheckpointPage, ContextRule, EventPage, Finding, Git, Hit, ListCheckpoints, ListSessions, Metadata,
    Origin, Session, SessionPage, Stats, Status, UpdateSession,
};
use crate::canon::Hash;
use crate::clock::Timestamp;
use crate::error::Result;
use crate::histogram::{Kind, Measured};
use crate::id::{AgentId, CheckpointId, IdempotencyKey, ProjectId, SessionId, WorkflowId};
use crate::pack::Packed;

pub use audit::{AuditPart, AuditStore};
pub use conversation::{
    ConversationStore, Draft, Fork, MessageFacts, Messages, NewBranch, NewConversation, NewMessage, NewTurnEvent, Step,
    StepBranch, Stepped, Turn, TurnEvent, WhichMessages,
};
pub use document::{
    DocumentStore, ExportedSegments, ExportedSnapshot, ImportedProject, ImportedSession, NewProject, NewSession,
    NewSnapshot, NewSnapshotSegment,
};

pub use segment::{
    Candidates, Change, ChangeSegments, Changed, Facts, FindCandidates, NewSegment, NewSegments, PLAN_LIFE_MS, Plan,
    Put, Ranked, Roots, SearchMessages, SegmentPage, SegmentStore, SelectSegments, Usage, UsageRow, WhichSegments,
    WhichTask,
};

pub use operation::{OperationStore, Undo};
pub use retention::{Purged, RetentionStore};
pub use task::{Restored, TaskStore, WhichSnapshot};
pub use tool_call::{NewToolCall, OpenCall, ToolChange};
pub use transcript::{NewTurns, TranscriptEnd, TranscriptStore};
pub use window::{AtHand, MadeWindow, Manifest, NewWindow, WindowPart, WindowRows};

/// Whose data a call is about and who makes it. The space comes from the connection, never from a request's body; an agent may
/// say there who it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scope {
    pub space: i64,
    pub actor: String,
    /// Whether a model acts, rather than a person: it undoes only what it did itself.
    pub is_agent: bool,
    /// Where what it says comes from, unless it says otherwise.
    pub origin: Origin,
}

/// Who acts is kept with every operation, and a client chooses what it is called; no more of it is kept.
const ACTOR_LENGTH_MAX: usize = 128;

impl Scope {
    /// The one space of a single machine.
    pub fn local(actor: &str) -> Self {
        Self { space: 1, actor: actor.chars().take(ACTOR_LENGTH_MAX).collect(), is_agent: false, origin: Origin::Agent }
    }

    /// The same scope, for a model.
    #[must_use]
    pub fn for_agent(self) -> Self {
        Self { is_agent: true, ..self }
    }

    /// The same scope, for a person.
    #[must_use]
    pub fn for_person(self) -> Self {
        Self { origin: Origin::User, ..self }
    }

    /// The same scope, on behalf of `agent` when there is one.
    pub(crate) fn acting_as(&self, agent: Option<&AgentId>) -> Self {
        let actor = agent.map_or_else(|| self.actor.clone(), |agent| agent.as_str().to_owned());
        Self { actor, ..self.clone() }
    }
}

/// A checkpoint to be added, with everything that must be decided inside the transaction.
#[derive(Debug, Clone)]
pub struct NewCheckpoint {
    pub id: CheckpointId,
    pub session: SessionId,
    /// The project when the session must be made.
    pub project: ProjectId,
    /// Whether the request named `project`: an existing session must then be in it.
    pub project_named: bool,
    pub at: Timestamp,
    pub agent: Option<AgentId>,
    pub workflow: Option<WorkflowId>,
    pub metadata: Metadata,
    /// Where it came from, as was said.
    pub origin: Origin,
    pub git: Option<Git>,
    pub context_hash: Hash,
    pub correlation: Hash,
    /// Its bytes; `None` when the caller believes that nothing changed.
    pub packed: Option<Arc<Packed>>,
    /// It is of a conversation, and refers to its messages: never pruned, and in no file, where they are not either.
    pub is_reference: bool,
    /// Add it even if the newest checkpoint holds the same context.
    pub force: bool,
    pub expected_head: Option<CheckpointId>,
    pub parent: Option<CheckpointId>,
    /// The rules that its session is to have; `None` leaves them as they are.
    pub context_rules: Option<Vec<ContextRule>>,
    pub idempotency: Option<Idempotency>,
    /// How many checkpoints a session may have before the oldest is archived.
    pub checkpoints_max: u64,
    pub session_bytes_max: u64,
    pub total_bytes_max: u64,
}

/// A context that was given to a view, to be kept for a while.
#[derive(Debug, Clone)]
pub struct NewContext {
    /// Of its text.
    pub hash: Hash,
    pub packed: Packed,
    pub at: Timestamp,
    pub total_bytes_max: u64,
}

/// How long a context that was given to a view is kept, from its last use.
pub const CONTEXT_LIFE_MS: i64 = 7 * 24 * 60 * 60 * 1000;
/// How long a retry is recognised.
pub const KEY_LIFE_MS: i64 = 24 * 60 * 60 * 1000;
/// How long subscribers can come back to an event.
pub const EVENT_LIFE_MS: i64 = 7 * 24 * 60 * 60 * 1000;

/// What makes a retry recognisable.
#[derive(Debug, Clone)]
pub struct Idempotency {
    /// As the client gave it.
    pub given: IdempotencyKey,
    /// The same after the project and session it was used in: a key is the client's own only there.
    pub key: String,
    pub request_hash: Hash,
}

/// What became of a [`NewCheckpoint`].
#[derive(Debug, Clone, PartialEq)]
pub enum Added {
    New {
        checkpoint: Checkpoint,
        /// How many older ones were archived to make room.
        pruned: u64,
        used: Used,
    },
    /// The session's newest checkpoint, which holds the same context.
    Unchanged(Checkpoint),
    /// Nothing was added: it is a change, but there are no bytes, or they are a delta against a checkpoint that is not in the
    /// group it would join.
    BytesWanted,
}

/// How much is kept, in bytes as stored where nothing else is said.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Used {
    /// Of the session.
    pub session: u64,
    /// Of all.
    pub total: u64,
    /// How many checkpoints of the session have a name or tags and are never archived; counted when it has many.
    pub spared: u64,
}

/// Which checkpoint to load.
#[derive(Debug, Clone)]
pub enum Wanted {
    ById(CheckpointId),
    Latest(SessionId),
    /// The newest of the same session that is older than this one.
    Before(CheckpointId),
    /// The oldest of the same session that is newer than this one.
    After(CheckpointId),
}

/// A checkpoint as it is kept, not yet unpacked.
#[derive(Debug, Clone)]
pub struct StoredCheckpoint {
    pub checkpoint: Checkpoint,
    /// What leads to its text, its own bytes last.
    pub chain: Vec<Packed>,
    /// The file that holds its second copy, from the data directory.
    pub mirror: Option<String>,
}

/// A group of checkpoints whose two copies were compared, and healed where one of them was damaged.
#[derive(Debug, Clone)]
pub struct CheckedGroup {
    /// Where to go on.
    pub cursor: i64,
    pub checkpoints: u64,
    /// How many groups come after this one.
    pub left: u64,
    pub findings: Vec<Finding>,
}

/// Which sessions someone may want to go on with.
#[derive(Debug, Clone, Default)]
pub struct FindResumable {
    /// Whose sessions used last are wanted; `None` means of all.
    pub project: Option<ProjectId>,
    pub workflow: Option<WorkflowId>,
    pub query: Option<String>,
}

/// A session that someone may want to go on with. It has a checkpoint.
#[derive(Debug, Clone, PartialEq)]
pub struct Resumable {
    pub session: Session,
    /// Of sessions used at the same moment, the one used last has the greater one.
    pub accessed_seq: i64,
    /// Sessions that began alike have the same.
    pub correlation: Hash,
    pub newest: CheckpointId,
    /// Where that came from.
    pub newest_origin: Origin,
    /// What its newest checkpoint is called.
    pub newest_name: Option<String>,
    /// How long its text is.
    pub newest_bytes: usize,
    pub git: Option<Git>,
    /// Whether every word of the query is in a name, tag or metadata.
    pub is_named: bool,
    /// Whether the query was found in its newest context.
    pub hit: Option<Hit>,
}

/// Everything that must be found again, bytes included.
///
/// Every method is one transaction. `Ok` means the change is durable; `Err` means nothing changed, except that a deletion may be
/// in the database and not yet in its second copy, where it follows by itself. Implemented by
/// `waystone_store::Sqlite`, and by the testkit's stores that fail on purpose.
#[async_trait]
pub trait Store:
    SegmentStore
    + TaskStore
    + OperationStore
    + TranscriptStore
    + RetentionStore
    + DocumentStore
    + AuditStore
    + ConversationStore
{
    /// Adds `new`, unless the session's newest checkpoint holds the same context and `new.force` is unset. Makes the
    /// session when there is none. All tests and the insert are atomic.
    async fn add_checkpoint(&self, scope: &Scope, new: NewCheckpoint) -> Result<Added>;

    /// The wanted checkpoint with its bytes; `None` when there is none. Of `known` the caller has the text: its bytes and what leads
    /// to them are left out.
    async fn find_checkpoint(
        &self,
        scope: &Scope,
        wanted: &Wanted,
        known: Option<&CheckpointId>,
    ) -> Result<Option<StoredCheckpoint>>;

    /// Puts a checkpoint that cannot be unpacked right from its second copy. False when that cannot help either.
    async fn heal_checkpoint(&self, scope: &Scope, id: &CheckpointId) -> Result<bool>;

    /// Compares the copies of the first group after the cursor `after`, and heals each from the other. `None` after the last one.
    async fn check_group(&self, scope: &Scope, after: i64, at: Timestamp) -> Result<Option<CheckedGroup>>;

    /// What is wrong with the store as a whole. Nothing is to be healed from one that is damaged.
    async fn check_database(&self, scope: &Scope) -> Result<Option<Finding>>;

    /// What else is not as it was written, or does not follow from what it is made from: the log of operations, segments, sums, the index. What
    /// follows from something else is made anew.
    async fn check_records(&self, scope: &Scope) -> Result<Vec<Finding>>;

    /// How many checkpoints have no second copy: those of conversations, archived ones included.
    async fn count_single_copies(&self, scope: &Scope) -> Result<u64>;

    /// Second copies of what is not in the store.
    async fn list_orphans(&self, scope: &Scope) -> Result<Vec<Finding>>;

    /// Takes note that `id` was loaded. The record is written with a later commit, at the latest when the store closes:
    /// a load must not wait for the disk.
    fn note_load(&self, scope: &Scope, id: &CheckpointId, at: Timestamp);

    /// The newest checkpoints of sessions that fit the query best, by words and by meaning.
    async fn search_checkpoints(
        &self,
        scope: &Scope,
        filter: &ListCheckpoints,
        now: Timestamp,
    ) -> Result<CheckpointPage>;

    /// Makes some of what is searched anew, or begins to. Returns how many texts are left.
    async fn reindex(&self, scope: &Scope, is_beginning: bool, at: Timestamp) -> Result<u64>;

    async fn list_checkpoints(&self, scope: &Scope, filter: &ListCheckpoints) -> Result<CheckpointPage>;

    /// Hides the checkpoint from lists. It still loads by its id.
    async fn archive_checkpoint(&self, scope: &Scope, id: &CheckpointId, at: Timestamp) -> Result<Checkpoint>;

    async fn find_session(&self, scope: &Scope, id: &SessionId) -> Result<Session>;

    /// Sessions to choose from when someone wants to go on: those of a project used last, of a workflow, and with words of a query.
    async fn list_resumable(&self, scope: &Scope, wanted: &FindResumable, now: Timestamp) -> Result<Vec<Resumable>>;

    async fn list_sessions(&self, scope: &Scope, filter: &ListSessions) -> Result<SessionPage>;

    async fn update_session(
        &self,
        scope: &Scope,
        id: &SessionId,
        change: &UpdateSession,
        at: Timestamp,
    ) -> Result<Session>;

    /// Marks a key of the session's contexts. Nothing changes if it is marked already.
    async fn mark_critical(&self, scope: &Scope, session: &SessionId, key: &str, at: Timestamp) -> Result<()>;

    /// Takes a mark away. False if there is none.
    async fn unmark_critical(&self, scope: &Scope, session: &SessionId, key: &str, at: Timestamp) -> Result<bool>;

    /// The marks and rules of a session, deleted or not: its checkpoints load by their ids.
    async fn find_rules(&self, scope: &Scope, session: &SessionId) -> Result<(Vec<String>, Vec<ContextRule>)>;

    /// The session that the scope's actor last saved in a project.
    async fn find_own_session(&self, scope: &Scope, project: &ProjectId) -> Result<Option<SessionId>>;

    /// Keeps a context by its hash; one that is kept already is kept longer. It counts in the size of all.
    async fn keep_context(&self, scope: &Scope, new: NewContext) -> Result<()>;

    async fn find_context(&self, scope: &Scope, hash: Hash) -> Result<Option<Packed>>;

    /// Hides the session and all that belongs to it. Returns it as it was.
    async fn archive_session(&self, scope: &Scope, id: &SessionId, at: Timestamp) -> Result<Session>;

    /// Up to `limit` events after the one with number `after`.
    async fn list_events(&self, scope: &Scope, after: i64, limit: u32) -> Result<EventPage>;

    /// The number of the newest event, as it changes, by whichever process.
    fn watch_events(&self) -> watch::Receiver<i64>;

    /// Figures of what is kept.
    async fn stats(&self, scope: &Scope) -> Result<Stats>;

    /// Takes note of a measurement. It is written with a later commit, at the latest when the store closes.
    fn note_measured(&self, scope: &Scope, kind: Kind, name: &str, value: u64);

    /// What was measured, by whichever process.
    async fn list_measured(&self, scope: &Scope) -> Result<Vec<Measured>>;

    async fn status(&self, scope: &Scope) -> Result<Status>;

    /// How much is kept, of all and of a session; which of its checkpoints are spared is not counted.
    async fn find_used(&self, scope: &Scope, session: Option<&SessionId>) -> Result<Used>;

    /// Writes what was only noted and lets go of the data directory. Later calls fail.
    async fn close(&self);
}

pub type SharedStore = Arc<dyn Store>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_of_an_actor_is_kept_than_its_length() {
        let check = |name: &str, kept: &str| assert_eq!(Scope::local(name).actor, kept);
        check("é", "é");
        check(&"é".repeat(ACTOR_LENGTH_MAX + 1), &"é".repeat(ACTOR_LENGTH_MAX));
    }
}
