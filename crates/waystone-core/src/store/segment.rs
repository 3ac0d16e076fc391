//! The part of the boundary that is about segments: what is put, listed, found and moved.

use std::sync::Arc;

use async_trait::async_trait;

use super::Scope;
use crate::api::{Origin, PruneAction, Segment, SegmentFilters, SegmentType, Tier};
use crate::canon::Hash;
use crate::clock::Timestamp;
use crate::error::Result;
use crate::id::{BranchName, PlanId, ProjectId, SegmentId, SessionId, TaskId, TopicId};
use crate::meaning::Piece;
use crate::search::Found;
use crate::words::Words;

/// Which task of a project is meant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WhichTask {
    Named(TaskId),
    /// The current one, or all of the project if there is none.
    Current,
    /// All of the project.
    Any,
}

/// Texts to be put into a project.
#[derive(Debug, Clone)]
pub struct NewSegments {
    pub project: ProjectId,
    /// The task; `None` for the current one.
    pub task: Option<TaskId>,
    pub segments: Vec<NewSegment>,
    pub tags: Vec<String>,
    pub file_path: Option<String>,
    pub line_range: Option<[u64; 2]>,
    pub topic: Option<TopicId>,
    pub pinned: bool,
    pub stash: bool,
    pub at: Timestamp,
    pub total_bytes_max: u64,
}

#[derive(Debug, Clone)]
pub struct NewSegment {
    /// Its id, if it is new.
    pub id: SegmentId,
    pub text: String,
    pub text_hash: Hash,
    pub kind: SegmentType,
    /// Where it came from, as was said.
    pub origin: Origin,
    /// `None` when the caller believes that it is known.
    pub tokens: Option<u64>,
    /// They were not counted: someone else will.
    pub is_estimate: bool,
    /// What its meaning is made of; none as long as there are no tokens.
    pub pieces: Vec<Piece>,
    /// Who said it, if someone did.
    pub role: Option<String>,
    pub created: Timestamp,
}

/// What became of [`NewSegments`].
#[derive(Debug, Clone)]
pub enum Put {
    Done {
        /// In order.
        ids: Vec<SegmentId>,
        added: u64,
        tokens_added: u64,
        /// How many that were known are not where the others are: stashed, or in another task.
        elsewhere: u64,
        operation: Option<i64>,
        /// Bytes of all that is kept.
        total_bytes: u64,
    },
    /// Nothing was put: one is new after all, and its tokens are not counted.
    TokensWanted,
}

/// Which segments to list.
#[derive(Debug, Clone)]
pub struct SelectSegments {
    /// `None` for all projects, of which `first` comes first if it is given.
    pub project: Option<ProjectId>,
    pub first: Option<ProjectId>,
    pub task: WhichTask,
    pub tiers: &'static [Tier],
    pub filters: SegmentFilters,
    /// What to search for; nothing when they are listed.
    pub query: String,
    /// Which of what was found count, by the best score; all when left out.
    pub fits: Option<fn(&Found, f32) -> bool>,
    /// Oldest first, or newest.
    pub is_ascending: bool,
    pub limit: u32,
    pub cursor: Option<String>,
    /// How many characters of a text are wanted; `None` for all.
    pub preview: Option<usize>,
    /// When it is asked.
    pub now: Timestamp,
}

/// What to look for in what was said before a turn.
#[derive(Debug, Clone)]
pub struct SearchMessages {
    pub context: SessionId,
    /// The branch that the turn is on. What is before its last request is meant, on the way from the beginning to there.
    pub branch: BranchName,
    pub query: String,
    /// What only calls these tools is passed over, and what they returned.
    pub passed_over: Vec<String>,
    pub limit: u32,
    /// How many characters of a text are wanted.
    pub preview: usize,
    /// When it is asked.
    pub now: Timestamp,
}

/// One page of segments, and what all of them have.
#[derive(Debug, Clone, Default)]
pub struct SegmentPage {
    /// The task they are of, if they are of one.
    pub task: Option<TaskId>,
    pub segments: Vec<Segment>,
    pub total: u64,
    /// There may be more that were not looked at.
    pub total_is_lower_bound: bool,
    pub tokens: u64,
    pub next_cursor: Option<String>,
    /// When a segment of the task or project last changed.
    pub changed: Option<Timestamp>,
}

/// What must not leave the window, besides what is pinned.
#[derive(Debug, Clone)]
pub struct Roots {
    /// Segments of this file.
    pub file_path: Option<String>,
    /// Decisions that are not older.
    pub decisions_since: Timestamp,
    /// So many of the current task's newest messages.
    pub messages: u32,
}

/// Sums over the working tier of a task or project.
#[derive(Debug, Clone, Default)]
pub struct Usage {
    pub task: Option<TaskId>,
    pub by_task: Vec<UsageRow>,
    pub oldest: Option<Timestamp>,
    pub newest: Option<Timestamp>,
    /// What may not go, pinned segments included; none unless roots were given.
    pub root_count: u64,
    pub root_tokens: u64,
}

#[derive(Debug, Clone)]
pub struct UsageRow {
    pub task: Option<TaskId>,
    pub kind: SegmentType,
    pub segments: u64,
    pub tokens: u64,
    pub pinned: u64,
    pub pinned_tokens: u64,
}

/// By what a segment's place in the order of pruning is decided.
#[derive(Debug, Clone, Copy)]
pub struct Facts {
    pub kind: SegmentType,
    pub touched: Timestamp,
    pub refcount: u64,
    pub survived: u64,
    pub tokens: u64,
}

/// Which segments may go.
pub struct FindCandidates {
    pub project: ProjectId,
    pub task: WhichTask,
    pub roots: Roots,
    /// How soon one goes: higher first.
    pub rank: Box<dyn Fn(&Facts) -> f64 + Send>,
    /// Return as many as free so many tokens, and at least `limit`.
    pub target_tokens: u64,
    pub limit: usize,
}

/// Segments that may go, in order.
#[derive(Debug, Clone, Default)]
pub struct Candidates {
    pub first: Vec<Ranked>,
    pub total: u64,
    pub tokens: u64,
}

#[derive(Debug, Clone)]
pub struct Ranked {
    pub id: SegmentId,
    pub score: f64,
    pub facts: Facts,
}

/// What a collection would do.
#[derive(Debug, Clone)]
pub struct Plan {
    pub id: PlanId,
    pub project: ProjectId,
    pub action: PruneAction,
    pub segments: Vec<SegmentId>,
    pub at: Timestamp,
}

/// A change of segments that are there.
#[derive(Debug, Clone)]
pub struct ChangeSegments {
    pub project: ProjectId,
    pub which: WhichSegments,
    pub change: Change,
    /// The plan that this carries out, and that is done thereby.
    pub plan: Option<PlanId>,
    pub at: Timestamp,
}

#[derive(Debug, Clone)]
pub enum WhichSegments {
    Ids(Vec<SegmentId>),
    /// Those in the working set that have these words and pass these filters.
    Working {
        filters: SegmentFilters,
        words: Words,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    Pin,
    Unpin,
    Stash,
    Retrieve,
    /// A collection: fails as a whole if something is pinned.
    Prune(PruneAction),
}

/// What a change came to.
#[derive(Debug, Clone, Default)]
pub struct Changed {
    /// As asked for now, whether they were before or not, in order.
    pub done: Vec<SegmentId>,
    /// Tokens of those that were not so before.
    pub tokens: u64,
    /// Those that were selected and stay, as they are pinned.
    pub pinned: Vec<SegmentId>,
    pub unknown: Vec<SegmentId>,
    pub operation: Option<i64>,
}

/// How long a plan can be carried out.
pub const PLAN_LIFE_MS: i64 = 24 * 60 * 60 * 1000;

/// The same promises as [`super::Store`], of which it is a part.
#[async_trait]
pub trait SegmentStore: Send + Sync {
    /// Which of these texts are known, by type and hash.
    async fn known_texts(
        &self,
        scope: &Scope,
        project: &ProjectId,
        texts: Vec<(SegmentType, Hash)>,
    ) -> Result<Vec<bool>>;

    /// Adds what is new, and touches what is known. All or nothing.
    async fn put_segments(&self, scope: &Scope, new: Arc<NewSegments>) -> Result<Put>;

    async fn list_segments(&self, scope: &Scope, select: SelectSegments) -> Result<SegmentPage>;

    /// Those that fit the query best, by words and by meaning.
    async fn search_segments(&self, scope: &Scope, select: SelectSegments) -> Result<SegmentPage>;

    /// The messages of one branch that fit the query best, in whatever tier.
    async fn search_messages(&self, scope: &Scope, search: SearchMessages) -> Result<Vec<Segment>>;

    /// A segment with its whole text, in whatever tier.
    async fn find_segment(&self, scope: &Scope, id: &SegmentId) -> Result<Option<Segment>>;

    async fn sum_usage(
        &self,
        scope: &Scope,
        project: &ProjectId,
        task: &WhichTask,
        roots: Option<Roots>,
    ) -> Result<Usage>;

    async fn find_candidates(&self, scope: &Scope, find: FindCandidates) -> Result<Candidates>;

    async fn keep_plan(&self, scope: &Scope, plan: Plan) -> Result<()>;

    /// A plan that can be carried out at that time.
    async fn find_plan(&self, scope: &Scope, id: &PlanId, now: Timestamp) -> Result<Option<Plan>>;

    async fn change_segments(&self, scope: &Scope, change: ChangeSegments) -> Result<Changed>;

    /// Every project with a segment that is not deleted.
    async fn list_projects(&self, scope: &Scope) -> Result<Vec<ProjectId>>;
}
