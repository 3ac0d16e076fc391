//! Turns: what happens between something said to a model and its whole answer.
//!
//! Every step is asked of [`fsm`], committed by the store with the events that tell of it, and only then acted upon. The process that runs a turn
//! holds nothing that the next one could not go on from: it may die at any moment. A step is taken only from the state and the run
//! that it was decided in, so of two that want the same turn one finds that it has moved, and lets go.

pub(super) mod prompt;
mod run;
mod stream;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::watch;

use super::Engine;
use super::conversation::retry_of;
use crate::api::{ContextState, MessageType, Origin, Role, StateChanged, TurnChanged, TurnState};
use crate::error::{Error, Result};
use crate::fsm::{self, TurnEvent};
use crate::id::{BranchName, IdempotencyKey, SegmentId, SessionId};
use crate::store::{
    Draft, Idempotency, MessageFacts, NewMessage, NewTurnEvent, Scope, Step, StepBranch, Stepped, Turn,
};

use run::Live;
use stream::{Channel, Channels, MESSAGE_COMPLETED, STATE_CHANGED};
pub use stream::{Frame, Reader};

/// The turns that run in this process, and who reads of them.
#[derive(Debug, Default)]
pub(super) struct Turns {
    running: Mutex<HashMap<SessionId, Running>>,
    channels: Channels,
}

#[derive(Debug)]
struct Running {
    run: String,
    signal: watch::Sender<Signal>,
}

/// What a turn is told from outside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Signal {
    GoOn,
    /// Keep what was streamed, and end.
    Cancel,
    /// Write what was streamed, and leave the rest to another process.
    Leave,
}

impl Turns {
    fn running(&self) -> std::sync::MutexGuard<'_, HashMap<SessionId, Running>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends a turn of this process whose conversation is gone.
    pub(super) fn stop(&self, context: &SessionId) {
        if let Some(running) = self.running().get(context) {
            running.signal.send_replace(Signal::Leave);
        }
    }

    /// Leaves all turns to others, and waits until they are let go of.
    pub(super) async fn leave_all(&self) {
        let all: Vec<watch::Sender<Signal>> = self.running().values().map(|running| running.signal.clone()).collect();
        for signal in &all {
            signal.send_replace(Signal::Leave);
        }
        for signal in all {
            signal.closed().await;
        }
    }

    fn enter(&self, context: &SessionId, run: &str) -> watch::Receiver<Signal> {
        let signal = watch::Sender::new(Signal::GoOn);
        let receiver = signal.subscribe();
        self.running().insert(context.clone(), Running { run: run.to_owned(), signal });
        receiver
    }

    fn exit(&self, context: &SessionId, run: &str) {
        let mut running = self.running();
        if running.get(context).is_some_and(|running| running.run == run) {
            running.remove(context);
        }
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

    /// The state that it leads to.
    fn first_state(&self) -> ContextState {
        match self {
            Self::Message { .. } => ContextState::ProcessingUserMessage,
            Self::Retry { .. } | Self::Adopt { .. } => ContextState::AwaitingLLMResponse,
        }
    }
}

/// A step with nothing but the state that it leads to, which is told.
fn plain_step(context: &SessionId, turn: &Turn, to: ContextState, run: &str, engine: &Engine) -> Step {
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
        message: None,
        events: Vec::new(),
        operation: None,
        at: engine.clock.now(),
        total_bytes_max: engine.limits.total_bytes_max,
        idempotency: None,
    }
}

impl Step {
    /// Tells of a state, as event `n`.
    fn tell_state(&mut self, n: u64, new_state: ContextState) {
        let told =
            StateChanged { context_id: self.context.clone(), new_state, timestamp: self.at, error: self.error.clone() };
        self.tell(n, STATE_CHANGED, serde_json::to_string(&told).unwrap_or_default());
    }

    fn tell(&mut self, n: u64, kind: &'static str, payload: String) {
        self.events.push(NewTurnEvent { first: n, last: n, kind, payload });
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
        loop {
            let turn = self.store.find_turn(scope, context).await?;
            // On a branch that is gone there is nothing to be tried again.
            let is_gone = turn.is_branch_gone && !matches!(begin, Begin::Message { .. });
            let to = fsm::next(turn.state, begin.event()).filter(|_| !is_gone);
            let mut step = plain_step(context, &turn, to.unwrap_or(turn.state), &run, self);
            let mut message_id = turn.draft.as_ref().map(|draft| draft.message.clone());
            match &begin {
                Begin::Message { message, branch, idempotency } => {
                    message_id = Some(message.id.clone());
                    (step.branch, step.message) = (branch.clone(), Some((**message).clone()));
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
                Some(to) => step.tell_state(1, to),
                // What was asked before is answered as before; what was not is refused.
                None if step.idempotency.is_some() => step.from_run = Some(run.clone()),
                None => return Err(refused(context, turn.state, begin.event())),
            }
            let message_id = message_id.map_or_else(|| self.fresh_id(), Ok)?;
            let (draft, failures) = (step.draft.clone(), step.failures);
            match self.store.step_turn(scope, step).await? {
                Stepped::Done { branch, seq } => {
                    let state = to.unwrap_or(turn.state);
                    let channel = self.turns.channels.open(context, turn.seq);
                    let now = Turn { state, run: Some(run), branch: branch.clone(), draft, failures, seq, ..turn };
                    self.spawn_turn(scope, context, now, channel);
                    return Ok((message_id, branch, state));
                }
                // As it was answered then.
                Stepped::Before { message, branch } => return Ok((message, branch, begin.first_state())),
                Stepped::Moved(state) if to.is_none() => return Err(refused(context, state, begin.event())),
                Stepped::Moved(_) => {}
            }
        }
    }

    fn spawn_turn(&self, scope: &Scope, context: &SessionId, turn: Turn, channel: Arc<Channel>) {
        let run = turn.run.clone().unwrap_or_default();
        let signal = self.turns.enter(context, &run);
        let live = Live::new(self.clone(), scope.clone(), context.clone(), turn, channel, signal);
        let (turns, context) = (Arc::clone(&self.turns), context.clone());
        tokio::spawn(async move {
            live.run().await;
            turns.exit(&context, &run);
        });
    }

    /// Where the turn of a conversation is.
    pub async fn find_turn(&self, scope: &Scope, context: &SessionId) -> Result<TurnState> {
        let turn = self.store.find_turn(scope, context).await?;
        Ok(TurnState {
            current_state: turn.state,
            can_send_message: fsm::next(turn.state, TurnEvent::UserMessage).is_some(),
            pending_tool_approvals: 0,
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

    /// Ends a turn. What was streamed is kept as a message that says so.
    ///
    /// With a key it may be asked for again: a turn that has ended is then no error.
    pub async fn cancel_turn(
        &self,
        scope: &Scope,
        context: &SessionId,
        key: Option<IdempotencyKey>,
    ) -> Result<TurnChanged> {
        self.check_writable()?;
        let mut is_ended = key.is_some();
        loop {
            let turn = self.store.find_turn(scope, context).await?;
            if fsm::next(turn.state, TurnEvent::Cancel).is_none() {
                if !is_ended {
                    return Err(refused(context, turn.state, TurnEvent::Cancel));
                }
                let last = self.store.find_resync(scope, context, "").await?.0.message_id;
                let message_id = self.kept_answer(scope, context, last).await?;
                return Ok(TurnChanged { context_state: turn.state, message_id, warnings: self.warnings() });
            }
            let here = {
                let running = self.turns.running();
                running.get(context).filter(|here| Some(&here.run) == turn.run.as_ref()).map(|here| here.signal.clone())
            };
            match here {
                Some(signal) => {
                    signal.send_replace(Signal::Cancel);
                    signal.closed().await;
                }
                None => self.cancel_from_outside(scope, context, &turn).await?,
            }
            is_ended = true;
        }
    }

    /// An answer that was ended, if this is one.
    async fn kept_answer(
        &self,
        scope: &Scope,
        context: &SessionId,
        id: Option<SegmentId>,
    ) -> Result<Option<SegmentId>> {
        let Some(id) = id else { return Ok(None) };
        let message = self.find_message(scope, context, &id).await?;
        Ok(message.metadata.cancelled.then_some(id))
    }

    /// Ends a turn that another process runs, or none, unless it has moved meanwhile.
    async fn cancel_from_outside(&self, scope: &Scope, context: &SessionId, turn: &Turn) -> Result<()> {
        let run = self.clock.new_id();
        let mut step = plain_step(context, turn, ContextState::Idle, &run, self);
        (step.from_seq, step.operation) = (Some(turn.seq), Some("turn.cancelled"));
        let mut n = 1;
        if let Some(draft) = &turn.draft {
            let written = self.store.read_content(scope, context, &draft.message, 1).await?;
            if !written.content.is_empty() && !written.is_complete {
                let message = self.cancelled_message(turn, draft, written.content, written.next_sequence - 1).await?;
                step.tell(n, MESSAGE_COMPLETED, completed(context, &message));
                n += 1;
                step.message = Some(message);
            }
        }
        step.draft = None;
        step.tell_state(n, ContextState::Idle);
        self.store.step_turn(scope, step).await.map(drop)
    }

    /// What was streamed of an answer that was ended.
    async fn cancelled_message(&self, turn: &Turn, draft: &Draft, text: String, sequence: u64) -> Result<NewMessage> {
        let facts = MessageFacts {
            model: Some(turn.config.model_id.clone()),
            is_cancelled: true,
            is_estimate: true,
            attempt: draft.attempt,
            sequence,
            ..MessageFacts::default()
        };
        let message = self.prepare_message(Role::Assistant, MessageType::Text, text, Origin::Agent, facts).await?;
        let facts = MessageFacts { completion_tokens: message.tokens, ..message.facts };
        Ok(NewMessage { id: draft.message.clone(), facts, ..message })
    }

    /// Goes on with the turns whose processes are gone, and with those that this one did not hear it had begun. Returns how many.
    pub async fn adopt_turns(&self, scope: &Scope) -> Result<usize> {
        if self.check_writable().is_err() {
            return Ok(0);
        }
        let mut adopted = 0;
        for (context, run) in self.store.list_orphaned_turns(scope).await? {
            adopted += usize::from(self.adopt(scope, &context, run).await?);
        }
        Ok(adopted)
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
        if self.turns.running().get(context).is_some_and(|running| running.run == run) {
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

fn completed(context: &SessionId, message: &NewMessage) -> String {
    let told = crate::api::MessageCompleted {
        context_id: context,
        message_id: &message.id,
        final_content: &message.text,
        cancelled: message.facts.is_cancelled,
    };
    serde_json::to_string(&told).unwrap_or_default()
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
