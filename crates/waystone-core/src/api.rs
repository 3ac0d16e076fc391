//! Requests and replies: what goes over the wire, on every face.
//!
//! Outside of this module only ids, times and what a face says of itself derive `Serialize` and `JsonSchema`. Doc comments here
//! are what people and models read as descriptions, so they speak to users. A request that can be wrong as a whole has a `check`,
//! which the engine calls first.

mod audit;
mod backup;
mod branch;
mod checkpoint;
mod conversation;
mod diff;
mod doctor;
mod document;
mod error;
mod event;
mod garbage;
mod git;
mod handle;
mod mark;
mod message;
mod metadata;
mod model;
mod operation;
mod origin;
mod resume;
mod retention;
mod search;
mod segment;
mod session;
mod stash;
mod stats;
mod status;
mod task;
mod tool_call;
mod transcript;
mod turn;
mod usage;
mod view;
mod window;

pub use audit::{AuditChain, AuditHead, AuditPage, AuditRecord, BrokenRecord, Exact, ListAudit, VerifiedAudit};
pub use backup::BackedUp;
pub use branch::{
    Branch, BranchDiff, BranchList, BranchMerged, BranchMessage, BranchSide, CreateBranch, DiffBranches, MergeBranch,
    MergedBranch, SwitchedBranch,
};
pub use checkpoint::{
    Checkpoint, CheckpointPage, DeletedCheckpoint, ListCheckpoints, LoadCheckpoint, LoadedCheckpoint, NextCall,
    SaveCheckpoint, SaveStatus, SavedCheckpoint,
};
pub use conversation::{
    ChatConfig, Context, ContextPage, CreateContext, FindContext, ListContexts, SaveContext, UpdateContext,
};
pub use diff::{Change, ChangeKind, CheckpointDiff};
pub use doctor::{Checkup, Finding, FindingKind};
pub(crate) use document::check_time;
pub use document::{
    CheckpointRecord, Document, ImportStatus, Imported, ProjectRecord, SegmentRecord, SessionRecord, SnapshotRecord,
    SnapshotSegment, TaskRecord,
};
pub use error::{ErrorBody, ErrorReply};
pub use event::{Event, EventPage};
pub use garbage::{
    AnalyzeGarbage, Candidate, GarbageReply, PinReply, PinSegments, PruneAction, PruneReply, PruneSegments,
    PruningPlan, UnpinReply,
};
pub use git::Git;
pub use handle::{ExpandHandle, ExpandedHandle};
pub use mark::{KeyClass, MarkCritical, MarkStatus, MarkedCritical};
pub use message::{
    AddMessage, AddedMessage, ContentPart, EditMessage, ListMessages, Message, MessageContent, MessageMetadata,
    MessageNode, MessagePage, MessageTokens, MessageType, ReadContent, Role,
};
pub use metadata::Metadata;
pub use model::{ModelInfo, ModelList, Prices};
pub use operation::{ListOperations, Operation, OperationPage, UndoOperation, UndoneOperation};
pub use origin::Origin;
pub(crate) use origin::check_claimed;
pub use resume::{Preview, ResumeSessions, Resumed, ResumedSession};
pub use retention::{CleanUp, Cleaned, CleanedUp, Deletion, RestoredCheckpoint};
pub use search::{Hit, SearchAll, SearchResults};
pub use segment::{
    Generation, ListSegments, ProjectList, PutReply, PutSegments, SaidMessage, Segment, SegmentError, SegmentType,
    TaskContext, Tier, WorkingSet, WorkingSetReply,
};
pub use session::{DeletedSession, ListSessions, Session, SessionPage, UpdateSession};
pub use stash::{
    RetrieveReply, RetrieveStashed, SearchReply, SearchStashed, SegmentFilters, StashReply, StashSegments,
};
pub use stats::{CallStats, ClassStats, LargeSession, Stats, TierStats, ViewStats};
pub use status::Status;
pub use task::{
    CreateSnapshot, CurrentTask, ListSnapshots, ListTasks, RestoreSnapshot, RestoredSnapshot, SetCurrentTask, Snapshot,
    SnapshotPage, Task, TaskList,
};
pub use tool_call::{
    AnswerToolCall, ApprovalStatus, DecideTools, DecidedTools, EditArguments, RequestedCall, Tool, ToolCall,
    ToolCallCompleted, ToolCallRequested, ToolList, ToolOutcome,
};
pub use transcript::{Digest, Failure, OpenCall, OpenTask, Quote};
pub use turn::{
    ContentDelta, ContextState, Heartbeat, MessageCompleted, Resync, StateChanged, TurnChanged, TurnError, TurnState,
};
pub use usage::{AnalyzeUsage, Descriptors, Factors, Health, Impact, Recommendation, UsageMetrics, UsageReply};
pub use view::{
    AnchorCount, Class, CompressContext, ContextRule, DroppedKey, PrioritizeContext, ShortenedKey, Strategy, Survival,
    TOKENS_MAX, View, ViewReport, ViewSummary, Weights,
};
pub use window::{
    FindWindow, LeftOutMessage, UsageWarning, Window, WindowAssembled, WindowChange, WindowSpan, WindowSurvival,
};

use crate::error::{Error, Result};

/// How many things a page of a list may have.
const LIMIT_MAX: u32 = 1000;

fn check_limit(limit: u32) -> Result<()> {
    match limit {
        1..=LIMIT_MAX => Ok(()),
        _ => Err(Error::InvalidInput(format!("limit is {limit}, it must be from 1 to {LIMIT_MAX}"))),
    }
}

/// Writes a measure with the digits that say something to who reads it.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "so serde calls it")]
fn rounded<S: serde::Serializer>(value: &f64, serializer: S) -> std::result::Result<S::Ok, S::Error> {
    const STEPS: f64 = 10_000.0;
    serializer.serialize_f64((value * STEPS).round() / STEPS)
}
