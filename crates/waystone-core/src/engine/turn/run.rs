//! One turn, as the process that runs it goes through it. How a model is asked is in [`super::ask`], how tools are run in [`super::call`].

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::stream::{CONTENT_DELTA, Channel, Deltas, Frame};
use super::{Signal, plain_step};
use crate::api::{ContextState, Tool, TurnError};
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::fsm::{self, TurnEvent};
use crate::id::{SessionId, ToolCallId};
use crate::model::{ModelCall, ModelError};
use crate::store::{Idempotency, NewTurnEvent, Scope, Step, Stepped, Turn};

/// So often a model is asked.
const TRIES: u64 = 3;
/// Streamed text is written after so much time, or when there are so many parts of it.
const WRITTEN_AFTER: Duration = Duration::from_millis(100);
const PENDING_MAX: usize = 64;
/// No provider makes a turn wait longer.
const PAUSE_MAX: Duration = Duration::from_secs(60);
/// How long to wait before the store is asked again that cannot be used.
const STORE_PAUSES: [u64; 6] = [1, 2, 4, 8, 16, 30];

pub(super) struct Live {
    pub(super) engine: Engine,
    pub(super) scope: Scope,
    pub(super) context: SessionId,
    pub(super) turn: Turn,
    pub(super) run: Arc<str>,
    /// The number of the newest event of this run.
    pub(super) n: u64,
    channel: Arc<Channel>,
    pub(super) signal: watch::Receiver<Signal>,
    /// What this attempt has said so far, and its last sequence.
    pub(super) text: String,
    pub(super) sequence: u64,
    pending: Pending,
    pub(super) writing: Option<JoinHandle<Result<Stepped>>>,
    /// The tools that the model was offered last, and how many it had called before.
    pub(super) offered: Vec<Tool>,
    pub(super) called: usize,
    /// The ids of calls on its branch: in a copy of another conversation they are in no row.
    pub(super) call_ids: HashSet<ToolCallId>,
    /// How long tools have run.
    pub(super) ran: Duration,
    /// What the model is asked next, and how many tokens that has.
    pub(super) prepared: Option<(ModelCall, u64)>,
}

/// Text that readers have and the log does not.
#[derive(Default)]
struct Pending {
    deltas: Vec<String>,
    first_sequence: u64,
    first_n: u64,
    /// The channel's number after the last of them.
    told: u64,
}

/// Why a turn goes no further here.
pub(super) enum Stop {
    /// Someone else has it, or it is gone.
    Moved,
    Signal(Signal),
    Failed(Box<ModelError>),
}

pub(super) type Outcome<T> = Result<T, Stop>;

impl Live {
    pub(super) fn new(
        engine: Engine,
        scope: Scope,
        context: SessionId,
        (turn, n): (Turn, u64),
        channel: Arc<Channel>,
        signal: watch::Receiver<Signal>,
    ) -> Self {
        Self {
            run: turn.run.as_deref().unwrap_or_default().into(),
            engine,
            scope,
            context,
            turn,
            n,
            channel,
            signal,
            text: String::new(),
            sequence: 0,
            pending: Pending::default(),
            writing: None,
            offered: Vec::new(),
            call_ids: HashSet::new(),
            called: 0,
            ran: Duration::ZERO,
            prepared: None,
        }
    }

    pub(super) async fn run(mut self) {
        self.follow().await;
        let mut stop = self.go_through().await;
        loop {
            stop = match stop {
                Ok(()) | Err(Stop::Moved) => return,
                Err(Stop::Signal(Signal::Cancel(scope, key))) => self.cancel(scope, key).await,
                // What was streamed and not written is streamed anew by who goes on.
                Err(Stop::Signal(Signal::Leave | Signal::GoOn)) => return drop(self.write_rest().await),
                Err(Stop::Failed(error)) => match self.fail(&error).await {
                    Ok(true) => self.go_through().await,
                    // What cannot even be said is left to who looks at it next.
                    Ok(false) | Err(Stop::Failed(_)) => return,
                    Err(stop) => Err(stop),
                },
            }
        }
    }

    /// From where the turn is to its end, or to where someone has to decide.
    async fn go_through(&mut self) -> Outcome<()> {
        loop {
            match self.turn.state {
                ContextState::ProcessingUserMessage => self.prepare().await?,
                ContextState::AwaitingLLMResponse => {
                    let answered = self.ask().await?;
                    self.complete(answered).await?;
                }
                ContextState::ExecutingTools => self.execute().await?,
                _ => return Ok(()),
            }
        }
    }

    /// Takes a step that `event` leads to, and nothing else.
    pub(super) async fn advance(&mut self, event: TurnEvent, error: Option<TurnError>) -> Outcome<()> {
        let to = fsm::next(self.turn.state, event).ok_or(Stop::Moved)?;
        let mut step = self.step(to);
        step.error = error;
        step.tell_state(to);
        self.take(step).await
    }

    pub(super) fn step(&self, to: ContextState) -> Step {
        Step { told_before: self.n, ..plain_step(&self.context, &self.turn, to, &self.run, &self.engine) }
    }

    /// Takes a step, after all that was streamed before it. A store that cannot be used is waited for.
    pub(super) async fn take(&mut self, mut step: Step) -> Outcome<()> {
        // Also where it fails: a step that was taken and not heard of is known again by its numbers.
        self.n = step.told();
        self.end_writing().await?;
        if let Some(deltas) = self.pending_event() {
            step.events.insert(0, deltas);
        }
        let mut pauses = STORE_PAUSES.iter().chain(std::iter::repeat(&STORE_PAUSES[STORE_PAUSES.len() - 1]));
        loop {
            match self.engine.store.step_turn(&self.scope, step.clone()).await {
                Ok(Stepped::Done { seq, .. }) => {
                    self.turn.seq = seq;
                    break;
                }
                Ok(Stepped::Moved(_)) => return Err(Stop::Moved),
                // Its key was remembered meanwhile, of a turn before. It ends nevertheless: nobody else would go on with it.
                Ok(Stepped::Before { .. }) => step.idempotency = None,
                Err(Error::StorageUnavailable { .. }) => {
                    let pause = Duration::from_secs(pauses.next().copied().unwrap_or(1));
                    let mut signal = self.signal.clone();
                    tokio::select! {
                        () = self.engine.clock.sleep(pause) => {}
                        _ = signal.wait_for(|signal| matches!(signal, Signal::Leave)) => return Err(Stop::Moved),
                    }
                }
                Err(Error::ContextNotFound(_)) => return Err(Stop::Moved),
                Err(error) => return Err(of_store(&error)),
            }
        }
        (self.turn.state, self.turn.draft, self.turn.failures) = (step.to, step.draft, step.failures);
        self.channel.mark_written(std::mem::take(&mut self.pending).told);
        self.follow().await;
        Ok(())
    }

    /// Tells readers here what was written.
    async fn follow(&self) {
        // What cannot be read now is read with the next step.
        let _ = self.channel.follow(&self.engine.store, &self.scope, &self.context).await;
    }

    /// What was streamed and is not written yet, as one event.
    fn pending_event(&self) -> Option<NewTurnEvent> {
        let draft = self.turn.draft.as_ref()?;
        let Pending { deltas, first_sequence, first_n, .. } = &self.pending;
        if deltas.is_empty() {
            return None;
        }
        let (first_n, first_sequence, deltas) = (*first_n, *first_sequence, deltas.clone());
        let last = first_n + deltas.len() as u64 - 1;
        let deltas = Deltas {
            context_id: self.context.clone(),
            message_id: draft.message.clone(),
            attempt: draft.attempt,
            sequence: first_sequence,
            deltas,
        };
        let payload = serde_json::to_string(&deltas).unwrap_or_default();
        Some(NewTurnEvent { first: first_n, last, kind: CONTENT_DELTA, payload })
    }

    pub(super) fn has_pending(&self) -> bool {
        !self.pending.deltas.is_empty()
    }

    /// Until what was streamed is to be written.
    pub(super) fn until_written(&self) -> impl Future<Output = ()> + Send + use<> {
        let clock = Arc::clone(&self.engine.clock);
        async move { clock.sleep(WRITTEN_AFTER).await }
    }

    /// Tells readers more text, which the log does not have yet.
    pub(super) fn tell_delta(&mut self, frame: Frame, text: String) {
        if self.pending.deltas.is_empty() {
            (self.pending.first_n, self.pending.first_sequence) = (self.n, self.sequence);
        }
        self.pending.told = self.channel.tell(frame);
        self.pending.deltas.push(text);
        if self.pending.deltas.len() >= PENDING_MAX && self.writing.is_none() {
            self.begin_writing();
        }
    }

    /// Begins to write what was streamed, beside what comes next.
    pub(super) fn begin_writing(&mut self) {
        let Some(deltas) = self.pending_event() else { return };
        let told = std::mem::take(&mut self.pending).told;
        let mut step = self.step(self.turn.state);
        step.events.push(deltas);
        let (engine, scope, channel) = (self.engine.clone(), self.scope.clone(), Arc::clone(&self.channel));
        let mut signal = self.signal.clone();
        self.writing = Some(tokio::spawn(async move {
            let mut pauses = STORE_PAUSES.iter();
            loop {
                match (engine.store.step_turn(&scope, step.clone()).await, pauses.next()) {
                    (failed @ Err(Error::StorageUnavailable { .. }), Some(pause)) => {
                        let pause = engine.clock.sleep(Duration::from_secs(*pause));
                        tokio::select! {
                            () = pause => {}
                            // Who leaves does not wait for a store that cannot be used.
                            _ = signal.wait_for(|signal| matches!(signal, Signal::Leave)) => return failed,
                        }
                    }
                    (Ok(done), _) => {
                        channel.mark_written(told);
                        return Ok(done);
                    }
                    (failed, _) => return failed,
                }
            }
        }));
    }

    async fn end_writing(&mut self) -> Outcome<()> {
        match self.writing.take() {
            Some(writing) => self.has_written(writing.await),
            None => Ok(()),
        }
    }

    pub(super) fn has_written(&mut self, done: Result<Result<Stepped>, tokio::task::JoinError>) -> Outcome<()> {
        match done {
            Ok(Ok(Stepped::Done { seq, .. })) => {
                self.turn.seq = seq;
                Ok(())
            }
            Ok(Ok(Stepped::Moved(_) | Stepped::Before { .. })) => Err(Stop::Moved),
            Ok(Err(Error::ContextNotFound(_))) => Err(Stop::Moved),
            Ok(Err(error)) => Err(of_store(&error)),
            Err(panic) => Err(failed("INTERNAL_ERROR", panic.to_string(), "retry, and report it", false)),
        }
    }

    async fn write_rest(&mut self) -> Outcome<()> {
        self.end_writing().await?;
        self.begin_writing();
        self.end_writing().await
    }

    /// Keeps what was streamed, and ends. It is not the model that says so.
    async fn cancel(&mut self, scope: Scope, key: Option<Idempotency>) -> Outcome<()> {
        self.scope = scope;
        let to = fsm::next(self.turn.state, TurnEvent::Cancel).ok_or(Stop::Moved)?;
        let mut step = self.step(to);
        step.idempotency = key;
        let written = match self.text.is_empty() {
            // An attempt before this one may have come further.
            true => self.engine.written_draft(&self.scope, &self.context, &self.turn).await,
            false => Ok(Some((self.text.clone(), self.sequence))),
        };
        let written = written.map_err(|error| of_store(&error))?;
        let ended = self.engine.end_step(&self.scope, &mut step, &self.turn, written).await;
        ended.map_err(|error| of_store(&error))?;
        self.take(step).await
    }

    /// Waits before it is tried again, or gives up. Whether it is tried again.
    async fn fail(&mut self, error: &ModelError) -> Outcome<bool> {
        let failures = self.turn.failures + 1;
        let told = Some(error.error.clone());
        if !error.is_recoverable || failures >= TRIES {
            let to = fsm::next(self.turn.state, TurnEvent::GaveUp).ok_or(Stop::Moved)?;
            let mut step = self.step(to);
            step.error = told;
            let abandoned = self.engine.abandon_calls(&self.scope, &mut step, &self.turn.config.model_id).await;
            abandoned.map_err(|error| of_store(&error))?;
            step.operation = (!step.messages.is_empty()).then_some("message.added");
            step.tell_state(to);
            self.take(step).await?;
            return Ok(false);
        }
        let to = fsm::next(self.turn.state, TurnEvent::Failed).ok_or(Stop::Moved)?;
        let mut step = self.step(to);
        (step.error, step.failures) = (told, failures);
        step.tell_state(to);
        self.take(step).await?;
        let pause = error.retry_after.unwrap_or_else(|| self.back_off(failures)).min(PAUSE_MAX);
        let (clock, mut signal) = (Arc::clone(&self.engine.clock), self.signal.clone());
        tokio::select! {
            signal = told_otherwise(&mut signal) => return Err(Stop::Signal(signal)),
            () = clock.sleep(pause) => {}
        }
        self.advance(TurnEvent::TryAgain, None).await?;
        Ok(true)
    }

    /// 1, 2, 4 seconds, each up to a quarter longer, so that many do not come back at once.
    fn back_off(&self, failures: u64) -> Duration {
        let base = 1000_u64 << (failures - 1).min(6);
        let luck = self.engine.clock.new_id().bytes().fold(0, |sum: u64, byte| sum.wrapping_mul(31) + u64::from(byte));
        Duration::from_millis(base + luck % (base / 4))
    }
}

pub(super) fn failed(code: &str, message: String, hint: &str, is_recoverable: bool) -> Stop {
    let error = TurnError { code: code.to_owned(), message, hint: hint.to_owned() };
    Stop::Failed(Box::new(ModelError { is_recoverable, retry_after: None, error }))
}

/// What the store refused. It may take it later.
pub(super) fn of_store(error: &Error) -> Stop {
    let is_recoverable = matches!(error, Error::StorageUnavailable { .. });
    failed(error.code(), error.to_string(), &error.reply().error.hint, is_recoverable)
}

pub(super) async fn told_otherwise(signal: &mut watch::Receiver<Signal>) -> Signal {
    match signal.wait_for(|signal| !matches!(signal, Signal::GoOn)).await {
        Ok(signal) => signal.clone(),
        Err(_) => Signal::Leave,
    }
}
