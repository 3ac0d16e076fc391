//! The part of the boundary that is about conversations: their messages, branches and turns.

use async_trait::async_trait;

use super::{Idempotency, NewCheckpoint, NewWindow, OpenCall, Scope, ToolChange, WindowPart, WindowRows};
use crate::api::{
    Branch, BranchList, ChatConfig, ContentPart, Context, ContextPage, ContextState, ListContexts, Message,
    MessageContent, MessageType, Origin, Prices, Resync, Role, SwitchedBranch, ToolCall, TurnError,
};
use crate::canon::Hash;
use crate::clock::Timestamp;
use crate::error::Result;
use crate::id::{BranchName, ProjectId, SegmentId, SessionId, ToolCallId};
use crate::meaning::Piece;
use crate::model::Usage;
use crate::tools::ToolOutput;

/// A conversation to be begun.
#[derive(Debug, Clone)]
pub struct NewConversation {
    pub id: SessionId,
    pub project: ProjectId,
    pub config: ChatConfig,
    /// Whose active branch it begins with, and ids for the copies of its messages are made by.
    pub parent: Option<SessionId>,
    pub at: Timestamp,
    pub total_bytes_max: u64,
    pub idempotency: Option<Idempotency>,
}

/// A message to be added at the end of a branch.
#[derive(Debug, Clone)]
pub struct NewMessage {
    pub id: SegmentId,
    pub role: Role,
    pub kind: MessageType,
    pub text: String,
    /// What it says besides its text; see [`ContentPart::with_text`].
    pub parts: Vec<ContentPart>,
    pub text_hash: Hash,
    /// What its meaning is made of.
    pub pieces: Vec<Piece>,
    /// Of its own text, by our tokenizer.
    pub tokens: u64,
    pub origin: Origin,
    pub facts: MessageFacts,
}

/// What else is kept of a message.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct MessageFacts {
    /// What the model read, and wrote; as it counted them itself, or as we do.
    pub prompt_tokens: u64,
    pub completion_tokens: u64,
    /// Of what it read, what came from the provider's cache, and what went into it.
    pub cache_read_tokens: u64,
    pub cache_write_tokens: u64,
    pub is_estimate: bool,
    pub cost_usd: Option<f64>,
    pub model: Option<String>,
    pub is_cancelled: bool,
    pub is_cut: bool,
    /// The attempt in which it was written, and the last sequence of that.
    pub attempt: u64,
    pub sequence: u64,
}

impl MessageFacts {
    /// The same, of an answer that took `usage`.
    pub(crate) fn counted(self, usage: Usage, prices: Option<Prices>) -> Self {
        Self {
            prompt_tokens: usage.prompt,
            completion_tokens: usage.completion,
            cache_read_tokens: usage.cache_read,
            cache_write_tokens: usage.cache_write,
            cost_usd: prices.map(|prices| prices.cost_usd(usage)),
            ..self
        }
    }
}

/// A branch to be begun.
#[derive(Debug, Clone)]
pub struct NewBranch {
    pub name: BranchName,
    pub fork: Fork,
}

/// Where a branch begins.
#[derive(Debug, Clone)]
pub enum Fork {
    /// After the newest message of the active branch.
    Active,
    After(SegmentId),
    /// In the place of this message.
    InPlaceOf(SegmentId),
}

/// A turn as it is kept.
#[derive(Debug, Clone, PartialEq)]
pub struct Turn {
    pub project: ProjectId,
    pub config: ChatConfig,
    pub state: ContextState,
    pub error: Option<TurnError>,
    /// Who ran it last: another one whenever someone else goes on with it.
    pub run: Option<String>,
    /// The branch it is on, or the active one when there was none yet.
    pub branch: BranchName,
    /// That branch was deleted since.
    pub is_branch_gone: bool,
    pub draft: Option<Draft>,
    /// How often the model was asked in vain.
    pub failures: u64,
    /// Number of the newest event.
    pub seq: i64,
}

/// The answer that is being written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Draft {
    pub message: SegmentId,
    /// From 1 on; another one begins anew.
    pub attempt: u64,
}

/// A step of a turn: all of it, or nothing if the conversation is not where the caller believes.
#[derive(Debug, Clone)]
pub struct Step {
    pub context: SessionId,
    /// It must be in this state,
    pub from: ContextState,
    /// run by this one,
    pub from_run: Option<String>,
    /// and this must be its newest event, if one is named.
    pub from_seq: Option<i64>,
    pub to: ContextState,
    pub run: String,
    pub error: Option<TurnError>,
    pub draft: Option<Draft>,
    pub failures: u64,
    /// Where the messages go.
    pub branch: StepBranch,
    pub messages: Vec<NewMessage>,
    pub tools: Vec<ToolChange>,
    /// What the model is about to be told.
    pub window: Option<NewWindow>,
    /// Where the conversation stands then.
    pub checkpoint: Option<Box<NewCheckpoint>>,
    /// The number of the newest event that the run has told before.
    pub told_before: u64,
    /// What readers are told, in order.
    pub events: Vec<NewTurnEvent>,
    /// What becomes true, if it is a change that someone wanted and not only progress.
    pub operation: Option<&'static str>,
    pub at: Timestamp,
    pub total_bytes_max: u64,
    pub idempotency: Option<Idempotency>,
}

/// On which branch a step is.
#[derive(Debug, Clone)]
pub enum StepBranch {
    /// That of the turn.
    Same,
    /// The active one.
    Active,
    Named(BranchName),
    /// This one, and the turn stays where it is.
    Beside(BranchName),
    /// A new one, which is active then.
    New(NewBranch),
}

/// An event of a conversation. Several that belong together have one row and a number each.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewTurnEvent {
    pub first: u64,
    pub last: u64,
    pub kind: &'static str,
    /// JSON: what readers get, or of several what they are made from.
    pub payload: String,
}

/// What became of a step.
#[derive(Debug, Clone, PartialEq)]
pub enum Stepped {
    Done {
        branch: BranchName,
        /// Number of the newest event now.
        seq: i64,
    },
    /// The same was asked before, and this message and state are what it came to.
    Before { message: Option<SegmentId>, branch: BranchName, state: ContextState },
    /// It is not where the caller believed; nothing changed.
    Moved(ContextState),
}

/// A row of the log of a conversation's events.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TurnEvent {
    pub seq: i64,
    pub run: String,
    pub first: u64,
    pub last: u64,
    pub kind: String,
    pub payload: String,
}

/// Which messages of a conversation are wanted.
#[derive(Debug, Clone)]
pub enum WhichMessages {
    /// Of a branch, or the active one.
    Branch {
        name: Option<BranchName>,
        offset: u64,
        limit: u64,
    },
    Ids(Vec<SegmentId>),
    /// This one and all before it, whatever became of the branch that they are on.
    UpTo(SegmentId),
}

/// Some messages, oldest first.
#[derive(Debug, Clone, Default)]
pub struct Messages {
    pub messages: Vec<Message>,
    /// How many the branch has.
    pub total: u64,
}

/// The same promises as [`super::Store`], of which it is a part.
#[async_trait]
pub trait ConversationStore: Send + Sync {
    /// Makes the conversation, which is a session too. Whether that was done before, for the same request.
    async fn add_conversation(&self, scope: &Scope, new: NewConversation) -> Result<(SessionId, bool)>;

    /// A conversation with its branches, and its messages if they are wanted.
    async fn find_conversation(&self, scope: &Scope, id: &SessionId, with_messages: bool) -> Result<Context>;

    async fn list_conversations(&self, scope: &Scope, filter: &ListContexts) -> Result<ContextPage>;

    /// Makes `config` its configuration if that still is `before`; false if not.
    async fn configure_conversation(
        &self,
        scope: &Scope,
        id: &SessionId,
        before: &ChatConfig,
        config: &ChatConfig,
        at: Timestamp,
    ) -> Result<bool>;

    async fn list_messages(&self, scope: &Scope, id: &SessionId, which: &WhichMessages) -> Result<Messages>;

    /// The text of a message from a sequence on, whole or as far as it is written.
    async fn read_content(
        &self,
        scope: &Scope,
        id: &SessionId,
        message: &SegmentId,
        from_sequence: u64,
    ) -> Result<MessageContent>;

    async fn list_branches(&self, scope: &Scope, id: &SessionId) -> Result<BranchList>;

    async fn add_branch(
        &self,
        scope: &Scope,
        id: &SessionId,
        new: NewBranch,
        at: Timestamp,
        idempotency: Option<Idempotency>,
    ) -> Result<Branch>;

    async fn switch_branch(
        &self,
        scope: &Scope,
        id: &SessionId,
        name: &BranchName,
        at: Timestamp,
    ) -> Result<SwitchedBranch>;

    /// Hides a branch; its messages stay.
    async fn archive_branch(&self, scope: &Scope, id: &SessionId, name: &BranchName, at: Timestamp) -> Result<()>;

    /// Shows a branch again that was hidden; of several of that name the one that was hidden last.
    async fn restore_branch(
        &self,
        scope: &Scope,
        id: &SessionId,
        name: &BranchName,
        at: Timestamp,
        idempotency: Option<Idempotency>,
    ) -> Result<Branch>;

    /// Whether a session is a conversation, deleted or not.
    async fn is_conversation(&self, scope: &Scope, id: &SessionId) -> Result<bool>;

    async fn find_turn(&self, scope: &Scope, id: &SessionId) -> Result<Turn>;

    async fn step_turn(&self, scope: &Scope, step: Step) -> Result<Stepped>;

    /// Keeps what was answered to who wanted something of a turn that was so already, whatever the conversation does now. Returns what was
    /// answered first.
    async fn remember_turn(
        &self,
        scope: &Scope,
        kind: &'static str,
        idempotency: Idempotency,
        state: ContextState,
        at: Timestamp,
    ) -> Result<ContextState>;

    /// What the window of a branch, or of the active one, is assembled from.
    async fn load_window(
        &self,
        scope: &Scope,
        id: &SessionId,
        branch: Option<&BranchName>,
        part: WindowPart,
    ) -> Result<WindowRows>;

    /// The calls of a conversation that have no result yet, in the order in which they were made.
    async fn list_open_calls(&self, scope: &Scope, id: &SessionId) -> Result<Vec<OpenCall>>;

    async fn find_tool_call(&self, scope: &Scope, id: &SessionId, call: &ToolCallId) -> Result<ToolCall>;

    /// Keeps what a client answered to a call that waits for it; whoever runs the turn makes a message of it. Whether it waited.
    async fn answer_tool_call(
        &self,
        scope: &Scope,
        id: &SessionId,
        call: &ToolCallId,
        answer: ToolOutput,
        at: Timestamp,
        idempotency: Option<Idempotency>,
    ) -> Result<bool>;

    /// Conversations with a call that waits for a decision since before `at`.
    async fn list_expired_calls(&self, scope: &Scope, at: Timestamp) -> Result<Vec<SessionId>>;

    /// Conversations whose turn was run by a process that is gone, or by this one, and that run. Which of this one's are still run, the
    /// caller knows.
    async fn list_orphaned_turns(&self, scope: &Scope) -> Result<Vec<(SessionId, String)>>;

    /// Events of a conversation from the one with number `from` on, in order.
    async fn list_turn_events(&self, scope: &Scope, id: &SessionId, from: i64, limit: u32) -> Result<Vec<TurnEvent>>;

    /// The row that holds event `n` of a run.
    async fn find_turn_event(&self, scope: &Scope, id: &SessionId, run: &str, n: u64) -> Result<Option<i64>>;

    /// What a reader must know who cannot go on from where it was, and the event after which it goes on: the last that the run told which it
    /// heard last, if that is known, else the newest.
    async fn find_resync(&self, scope: &Scope, id: &SessionId, run: &str) -> Result<(Resync, Option<TurnEvent>)>;
}
