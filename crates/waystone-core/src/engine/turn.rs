//! Turns: what happens between something said to a model and its whole answer.
//!
//! Every step is asked of [`fsm`], committed by the store with the events that tell of it, and only then acted upon. The process that runs a turn
//! holds nothing that the next one could not go on from: it may die at any moment. A step is taken only from the state and the run
//! that it was decided in, so of two that want the same turn one finds that it has moved, and lets go.

mod ask;
mod call;
mod cancel;
pub(super) mod own;
pub(super) mod prompt;
mod run;
mod stream;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::Serialize;
use tokio::sync::watch;

use super::Engine;
use super::conversation::retry_of;
use crate::api::{
    ApprovalStatus, ContextState, MessageCompleted, StateChanged, ToolCallCompleted, ToolOutcome, TurnChanged,
    TurnState,
};
use crate::error::{Error, Result};
use crate::fsm::{self, TurnEvent};
use crate::id::{BranchName, IdempotencyKey, SegmentId, SessionId, ToolCallId};
use crate::store::{Idempotency, NewMessage, NewTurnEvent, OpenCall, Scope, Step, StepBranch, Stepped, Turn};

use run::Live;
pub(super) use stream::TOOL_CALL_REQUESTED;
use stream::{Channel, Channels, MESSAGE_COMPLETED, STATE_CHANGED, TOOL_CALL_COMPLETED};
pub use stream::{Frame, Reader};

/// The turns that run in this process, and who reads of them.
#[derive(Debug, Default)]
pub(super) struct Turns {
    /// By conversation and run: for a moment there may be two of one, of which the store lets one go on.
    running: Mutex<HashMap<(SessionId, String), watch::Sender<Signal>>>,
    channels: Channels,
}

/// What a turn is told from outside.
#[derive(Debug, Clone)]
enum Signal {
    GoOn,
    /// Keep what was streamed, and end, because someone said so; whoever asks for the same again is told the same.
    Cancel(Scope, Option<Idempotency>),
    /// Write what was streamed, and leave the rest to another process.
    Leave,
}

impl Turns {
    fn running(&self) -> MutexGuard<'_, HashMap<(SessionId, String), watch::Sender<Signal>>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn find(&self, context: &SessionId, run: &str) -> Option<watch::Sender<Signal>> {
        self.running().get(&(context.clone(), run.to_owned())).cloned()
    }

    /// Leaves all turns to others, and waits until they are let go of.
    pub(super) async fn leave_all(&self) {
        let all: Vec<watch::Sender<Signal>> = self.running().values().cloned().collect();
        for signal in &all {
            signal.send_replace(Signal::Leave);
        }
        for signal in all {
            signal.closed().await;
        }
    }

    fn enter(self: &Arc<Self>, context: &SessionId, run: &str) -> Entered {
        let (place, signal) = ((context.clone(), run.to_owned()), watch::Sender::new(Signal::GoOn));
        let receiver = signal.subscribe();
        self.running().insert(place.clone(), signal);
        Entered { turns: Arc::clone(self), place, signal: receiver }
    }
}

/// A turn that is run here, however it ends.
pub(super) struct Entered {
    turns: Arc<Turns>,
    place: (SessionId, String),
    signal: watch::Receiver<Signal>,
}

impl Drop for Entered {
    fn drop(&mut self) {
        self.turns.running().remove(&self.place);
    }
}

/// How a turn begins.
pub(super) enum Begin {
    Message {
        message: Box<NewMessage>,
        branch: StepBranch,
        idempotency: Option<Idempotency>,
    },
    Retry {
        idempotency: Option<Idempotency>,
    },
    /// The turn of a run whose process is gone.
    Adopt {
        run: String,
    },
}

impl Begin {
    fn event(&self) -> TurnEvent {
        match self {
            Self::Message { .. } => TurnEvent::UserMessage,
            Self::Retry { .. } => TurnEvent::Retry,
            Self::Adopt { .. } => TurnEvent::Adopted,
        }
    }
}

/// A step with nothing but the state that it leads to, which is told.
pub(super) fn plain_step(context: &SessionId, turn: &Turn, to: ContextState, run: &str, engine: &Engine) -> Step {
    Step {
        context: context.clone(),
        from: turn.state,
        from_run: turn.run.clone(),
        from_seq: None,
        to,
        run: run.to_owned(),
        error: None,
        draft: turn.draft.clone(),
        failures: turn.failures,
        branch: StepBranch::Same,
        messages: Vec::new(),
        tools: Vec::new(),
        window: None,
        checkpoint: None,
        told_before: 0,
        events: Vec::new(),
        operation: None,
        at: engine.clock.now(),
        total_bytes_max: engine.limits.total_bytes_max,
        idempotency: None,
    }
}

impl Step {
    /// Tells of a state.
    pub(super) fn tell_state(&mut self, new_state: ContextState) {
        let told =
            StateChanged { context_id: self.context.clone(), new_state, timestamp: self.at, error: self.error.clone() };
        self.tell(STATE_CHANGED, &told);
    }

    /// Tells what came of a call.
    pub(super) fn tell_call(
        &mut self,
        (id, tool): (&ToolCallId, &str),
        outcome: ToolOutcome,
        message: Option<&NewMessage>,
        warnings: Vec<String>,
    ) {
        let told = ToolCallCompleted {
            context_id: self.context.clone(),
            tool_call_id: id.clone(),
            tool_name: tool.to_owned(),
            outcome,
            message_id: message.map(|message| message.id.clone()),
            warnings,
        };
        self.tell(TOOL_CALL_COMPLETED, &told);
    }

    /// Tells that a message of the model is whole.
    pub(super) fn tell_message(&mut self, message: &NewMessage, warnings: &[String]) {
        let context_id = self.context.clone();
        let told = MessageCompleted {
            context_id: &context_id,
            message_id: &message.id,
            final_content: &message.text,
            cancelled: message.facts.is_cancelled,
            warnings,
        };
        self.tell(MESSAGE_COMPLETED, &told);
    }

    /// Tells the next event of the run.
    pub(super) fn tell(&mut self, kind: &'static str, told: &impl Serialize) {
        let n = self.told() + 1;
        let payload = serde_json::to_string(told).expect("events are structs of plain values");
        self.events.push(NewTurnEvent { first: n, last: n, kind, payload });
    }

    /// The number of the newest event that the run has told, with this step.
    pub(super) fn told(&self) -> u64 {
        self.events.last().map_or(self.told_before, |event| event.last)
    }
}

impl Engine {
    /// Begins a turn, or goes on with one, and runs it. Returns the message that was said, if one was, with its branch, and the state.
    pub(super) async fn begin_turn(
        &self,
        scope: &Scope,
        context: &SessionId,
        begin: Begin,
    ) -> Result<(SegmentId, BranchName, ContextState)> {
        let run = self.clock.new_id();
        // Known as running before it is: no one else of this process is to go on with it.
        let entered = self.turns.enter(context, &run);
        loop {
            let turn = self.store.find_turn(scope, context).await?;
            // On a branch that is gone there is nothing to be tried again.
            let is_gone = turn.is_branch_gone && !matches!(begin, Begin::Message { .. });
            let to = fsm::next(turn.state, begin.event()).filter(|_| !is_gone);
            let refusal = |state| match is_gone && state == ContextState::PermanentFailure {
                true => gone(context, state),
                false => refused(context, state, begin.event()),
            };
            let mut step = plain_step(context, &turn, to.unwrap_or(turn.state), &run, self);
            let mut message_id = turn.draft.as_ref().map(|draft| draft.message.clone());
            match &begin {
                Begin::Message { message, branch, idempotency } => {
                    message_id = Some(message.id.clone());
                    (step.branch, step.messages) = (branch.clone(), vec![(**message).clone()]);
                    (step.draft, step.failures, step.operation) = (None, 0, Some("message.added"));
                    step.idempotency = idempotency.clone();
                }
                Begin::Retry { idempotency } => {
                    (step.failures, step.operation) = (0, Some("turn.retried"));
                    step.idempotency = idempotency.clone();
                }
                Begin::Adopt { run } if turn.run.as_ref() == Some(run) => {}
                // Someone else was faster.
                Begin::Adopt { .. } => return Err(refused(context, turn.state, begin.event())),
            }
            match to {
                Some(to) => step.tell_state(to),
                // What was asked before is answered as before; what was not is refused.
                None if step.idempotency.is_some() => step.from_run = Some(run.clone()),
                None => return Err(refusal(turn.state)),
            }
            let message_id = message_id.map_or_else(|| self.fresh_id(), Ok)?;
            let (draft, failures, told) = (step.draft.clone(), step.failures, step.told());
            match self.store.step_turn(scope, step).await? {
                Stepped::Done { branch, seq } => {
                    let state = to.unwrap_or(turn.state);
                    let channel = self.turns.channels.open(context, turn.seq);
                    let now = Turn { state, run: Some(run), branch: branch.clone(), draft, failures, seq, ..turn };
                    self.spawn_turn(scope, context, (now, told), channel, entered);
                    return Ok((message_id, branch, state));
                }
                // As it was answered then.
                Stepped::Before { message, branch, state } => {
                    return Ok((message.unwrap_or(message_id), branch, state));
                }
                Stepped::Moved(state) if to.is_none() => return Err(refusal(state)),
                Stepped::Moved(_) => {}
            }
        }
    }

    /// Runs a turn that has told so many events.
    fn spawn_turn(
        &self,
        scope: &Scope,
        context: &SessionId,
        turn: (Turn, u64),
        channel: Arc<Channel>,
        entered: Entered,
    ) {
        let live = Live::new(self.clone(), scope.clone(), context.clone(), turn, channel, entered.signal.clone());
        tokio::spawn(async move {
            live.run().await;
            drop(entered);
        });
    }

    /// A turn of this conversation that is about to be run here: no one else of this process is to go on with it.
    pub(super) fn enter_turn(&self, context: &SessionId, run: &str) -> Entered {
        self.turns.enter(context, run)
    }

    /// Tells readers what a step from outside of a run changed, and goes on with the turn, if it does not wait.
    pub(super) fn go_on(&self, scope: &Scope, context: &SessionId, turn: (Turn, u64), before: i64, entered: Entered) {
        let channel = self.turns.channels.open(context, before);
        self.spawn_turn(scope, context, turn, channel, entered);
    }

    /// Where the turn of a conversation is.
    pub async fn find_turn(&self, scope: &Scope, context: &SessionId) -> Result<TurnState> {
        let turn = self.store.find_turn(scope, context).await?;
        let open = match turn.state {
            ContextState::AwaitingToolApproval | ContextState::ExecutingTools => {
                self.store.list_open_calls(scope, context).await?
            }
            _ => Vec::new(),
        };
        let is_pending = |open: &OpenCall| open.call.approval_status == ApprovalStatus::Pending;
        let (pending, others): (Vec<_>, Vec<_>) = open.into_iter().partition(is_pending);
        let is_awaited = |open: &OpenCall| open.call.by_client && open.answer.is_none();
        let awaited = others.into_iter().filter(is_awaited).filter(|_| turn.state == ContextState::ExecutingTools);
        Ok(TurnState {
            current_state: turn.state,
            can_send_message: fsm::next(turn.state, TurnEvent::UserMessage).is_some(),
            pending_tool_approvals: pending.len() as u64,
            pending_tool_calls: pending.into_iter().map(|open| open.call).collect(),
            awaited_tool_calls: awaited.map(|open| open.call).collect(),
            branch: turn.branch.to_string(),
            message_id: turn.draft.filter(|_| turn.state.is_running()).map(|draft| draft.message),
            error: turn.error,
            warnings: self.warnings(),
        })
    }

    /// Asks the model again after a failure.
    pub async fn retry_turn(
        &self,
        scope: &Scope,
        context: &SessionId,
        key: Option<IdempotencyKey>,
    ) -> Result<TurnChanged> {
        self.check_writable()?;
        let idempotency = key.map(|key| retry_of(key, &format!("contexts/{context}/retry"), &()));
        let (_, _, state) = self.begin_turn(scope, context, Begin::Retry { idempotency }).await?;
        Ok(TurnChanged { context_state: state, message_id: None, warnings: self.warnings() })
    }

    /// What the same request came to when it was made first, with the message and the state that it led to.
    pub(super) async fn asked_before(
        &self,
        scope: &Scope,
        turn: &Turn,
        step: &Step,
    ) -> Result<Option<(Option<SegmentId>, ContextState)>> {
        if step.idempotency.is_none() {
            return Ok(None);
        }
        let mut asks = plain_step(&step.context, turn, step.to, &self.clock.new_id(), self);
        // A step from a run that never was is not taken; it only asks.
        asks.from_run = Some(self.clock.new_id());
        (asks.operation, asks.idempotency) = (step.operation, step.idempotency.clone());
        Ok(match self.store.step_turn(scope, asks).await? {
            Stepped::Before { message, state, .. } => Some((message, state)),
            Stepped::Done { .. } | Stepped::Moved(_) => None,
        })
    }

    /// Goes on with the turns whose processes are gone, and with those that this one did not hear it had begun. Returns how many.
    pub async fn adopt_turns(&self, scope: &Scope) -> Result<usize> {
        if self.check_writable().is_err() {
            return Ok(0);
        }
        let mut adopted = 0;
        let mut failed = None;
        for (context, run) in self.store.list_orphaned_turns(scope).await? {
            match self.adopt(scope, &context, run).await {
                Ok(is_adopted) => adopted += usize::from(is_adopted),
                // The others are gone on with all the same.
                Err(error) => failed = Some(error),
            }
        }
        failed.map_or(Ok(adopted), Err)
    }

    /// Goes on with the turn of one conversation, if its process is gone. Whether it does.
    pub async fn adopt_turn(&self, scope: &Scope, context: &SessionId) -> Result<bool> {
        if self.check_writable().is_err() {
            return Ok(false);
        }
        let orphaned = self.store.list_orphaned_turns(scope).await?;
        match orphaned.into_iter().find(|(id, _)| id == context) {
            Some((_, run)) => self.adopt(scope, context, run).await,
            None => Ok(false),
        }
    }

    async fn adopt(&self, scope: &Scope, context: &SessionId, run: String) -> Result<bool> {
        if self.turns.find(context, &run).is_some() {
            return Ok(false);
        }
        match self.begin_turn(scope, context, Begin::Adopt { run }).await {
            Ok(_) => Ok(true),
            // It was ended, deleted or adopted meanwhile.
            Err(Error::InvalidState { .. } | Error::ContextNotFound(_)) => Ok(false),
            Err(error) => Err(error),
        }
    }
}

fn gone(context: &SessionId, state: ContextState) -> Error {
    let (why, hint) = ("the branch of the turn that failed was deleted", "add a message to the branch that is active");
    Error::InvalidState { context: context.clone(), state, why, hint }
}

fn refused(context: &SessionId, state: ContextState, event: TurnEvent) -> Error {
    let (why, hint) = match event {
        TurnEvent::UserMessage => (
            "a turn is under way, and no message can be added",
            "wait until it is Idle, or end the turn with POST /api/contexts/{id}/cancel",
        ),
        TurnEvent::Retry => {
            ("only a turn that failed can be tried again", "add a message, or wait until the turn has ended")
        }
        TurnEvent::Cancel => ("no turn is under way", "there is nothing to end"),
        _ => ("that cannot happen now", "look at GET /api/contexts/{id}/state"),
    };
    Error::InvalidState { context: context.clone(), state, why, hint }
}
