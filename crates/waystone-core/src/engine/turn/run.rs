//! One turn, as the process that runs it goes through it.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::prompt::system_prompt;
use super::stream::{CONTENT_DELTA, Channel, Deltas, Frame, MESSAGE_COMPLETED, delta};
use super::{Signal, completed, plain_step};
use crate::api::{ContentDelta, ContextState, MessageType, Origin, Role, TurnError};
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::fsm::{self, TurnEvent};
use crate::id::SessionId;
use crate::model::{Chunk, ModelCall, ModelError, Said, Usage};
use crate::store::{
    Draft, Idempotency, MessageFacts, NewMessage, NewTurnEvent, Scope, Step, Stepped, Turn, WhichMessages,
};
use crate::tokens;

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
    engine: Engine,
    scope: Scope,
    context: SessionId,
    turn: Turn,
    run: Arc<str>,
    /// The number of the newest event of this run.
    n: u64,
    channel: Arc<Channel>,
    signal: watch::Receiver<Signal>,
    /// What this attempt has said so far, and its last sequence.
    text: String,
    sequence: u64,
    pending: Pending,
    writing: Option<JoinHandle<Result<Stepped>>>,
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
enum Stop {
    /// Someone else has it, or it is gone.
    Moved,
    Signal(Signal),
    Failed(Box<ModelError>),
}

type Outcome<T> = Result<T, Stop>;

/// What a model has said in the end.
struct Answered {
    usage: Usage,
    /// Its provider did not count, and what it wrote is not counted yet.
    is_estimate: bool,
}

impl Live {
    pub(super) fn new(
        engine: Engine,
        scope: Scope,
        context: SessionId,
        turn: Turn,
        channel: Arc<Channel>,
        signal: watch::Receiver<Signal>,
    ) -> Self {
        let run = turn.run.as_deref().unwrap_or_default().into();
        let (text, pending) = (String::new(), Pending::default());
        Self { engine, scope, context, turn, run, n: 1, channel, signal, text, sequence: 0, pending, writing: None }
    }

    pub(super) async fn run(mut self) {
        self.follow().await;
        let mut stop = self.go_through().await;
        loop {
            stop = match stop {
                Ok(()) | Err(Stop::Moved) => return,
                Err(Stop::Signal(Signal::Cancel(key))) => self.cancel(key).await,
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

    /// From where the turn is to its end.
    async fn go_through(&mut self) -> Outcome<()> {
        if self.turn.state == ContextState::ProcessingUserMessage {
            self.advance(TurnEvent::Called, None).await?;
        }
        let answered = self.ask().await?;
        self.complete(answered).await
    }

    /// Takes a step that `event` leads to, and nothing else.
    async fn advance(&mut self, event: TurnEvent, error: Option<TurnError>) -> Outcome<()> {
        let to = fsm::next(self.turn.state, event).ok_or(Stop::Moved)?;
        let mut step = self.step(to);
        step.error = error;
        self.n += 1;
        step.tell_state(self.n, to);
        self.take(step).await
    }

    fn step(&self, to: ContextState) -> Step {
        plain_step(&self.context, &self.turn, to, &self.run, &self.engine)
    }

    /// Takes a step, after all that was streamed before it. A store that cannot be used is waited for.
    async fn take(&mut self, mut step: Step) -> Outcome<()> {
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
                Ok(Stepped::Moved(_) | Stepped::Before { .. }) => return Err(Stop::Moved),
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

    /// Begins to write what was streamed, beside what comes next.
    fn begin_writing(&mut self) {
        let Some(deltas) = self.pending_event() else { return };
        let told = std::mem::take(&mut self.pending).told;
        let mut step = self.step(self.turn.state);
        step.events.push(deltas);
        let (engine, scope, channel) = (self.engine.clone(), self.scope.clone(), Arc::clone(&self.channel));
        self.writing = Some(tokio::spawn(async move {
            let mut pauses = STORE_PAUSES.iter();
            loop {
                match (engine.store.step_turn(&scope, step.clone()).await, pauses.next()) {
                    (Err(Error::StorageUnavailable { .. }), Some(pause)) => {
                        engine.clock.sleep(Duration::from_secs(*pause)).await;
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

    fn has_written(&mut self, done: Result<Result<Stepped>, tokio::task::JoinError>) -> Outcome<()> {
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

    /// What the model is asked.
    async fn prepare_call(&mut self) -> Outcome<ModelCall> {
        let which = WhichMessages::Branch { name: Some(self.turn.branch.clone()), offset: 0, limit: u64::MAX >> 1 };
        let said = self.engine.store.list_messages(&self.scope, &self.context, &which).await;
        let said = said.map_err(|error| of_store(&error))?;
        // The configuration may have changed since the turn began.
        let now = self.engine.store.find_turn(&self.scope, &self.context).await.map_err(|error| of_store(&error))?;
        let config = now.config;
        self.turn.config = config.clone();
        let system = system_prompt(&config, |id| (self.engine.chat.prompt)(id));
        let messages = said.messages.iter().map(|message| Said::Text { role: message.role, text: message.text() });
        Ok(ModelCall {
            model: config.model_id,
            system,
            messages: messages.filter(|said| !said.text().is_empty()).collect(),
            tools: Vec::new(),
            is_last: false,
            parameters: config.parameters,
        })
    }

    /// Asks the model, and tells what it says as it comes.
    async fn ask(&mut self) -> Outcome<Answered> {
        (self.text, self.sequence) = (String::new(), 0);
        let call = self.prepare_call().await?;
        let asked = call.messages.iter().map(|said| said.text().to_owned()).collect::<Vec<_>>();
        let model = Arc::clone(&self.engine.chat.model);
        let mut signal = self.signal.clone();
        let mut answer = tokio::select! {
            signal = told_otherwise(&mut signal) => return Err(Stop::Signal(signal)),
            answer = model.call(call) => answer.map_err(|error| Stop::Failed(Box::new(error)))?,
        };
        let (mut usage, mut timer) = (None, None);
        loop {
            if timer.is_none() && self.writing.is_none() && !self.pending.deltas.is_empty() {
                let clock = Arc::clone(&self.engine.clock);
                timer = Some(Box::pin(async move { clock.sleep(WRITTEN_AFTER).await }));
            }
            tokio::select! {
                biased;
                signal = told_otherwise(&mut signal) => return Err(Stop::Signal(signal)),
                done = async { self.writing.as_mut().expect("it is being written").await }, if self.writing.is_some() => {
                    self.writing = None;
                    self.has_written(done)?;
                }
                part = answer.next() => match part {
                    None => break,
                    Some(Ok(Chunk::Text(text))) => self.stream(text).await?,
                    Some(Ok(Chunk::Usage(counted))) => usage = Some(counted),
                    // None is offered yet.
                    Some(Ok(Chunk::Call(_))) => {}
                    Some(Err(error)) => return Err(Stop::Failed(Box::new(error))),
                },
                () = async { timer.as_mut().expect("there is a timer").await }, if timer.is_some() => {
                    timer = None;
                    if self.writing.is_none() {
                        self.begin_writing();
                    }
                }
            }
        }
        if self.text.is_empty() {
            let message = "the model answered nothing".to_owned();
            return Err(failed("MODEL_ANSWERED_NOTHING", message, "retry, or say it in other words", true));
        }
        Ok(match usage {
            Some(usage) => Answered { usage, is_estimate: false },
            None => {
                let count = move || asked.iter().map(|text| tokens::count(text) as u64).sum();
                let prompt = tokio::task::spawn_blocking(count).await.unwrap_or_default();
                Answered { usage: Usage { prompt, ..Usage::default() }, is_estimate: true }
            }
        })
    }

    /// Tells more of the answer. The first of it comes after the step that says that it streams.
    async fn stream(&mut self, text: String) -> Outcome<()> {
        if self.turn.state != ContextState::StreamingLLMResponse {
            let before = self.turn.draft.take();
            let message = match &before {
                Some(draft) => draft.message.clone(),
                None => self.engine.fresh_id().map_err(|error| of_store(&error))?,
            };
            let attempt = before.map_or(1, |draft| draft.attempt + 1);
            self.turn.draft = Some(Draft { message, attempt });
            self.advance(TurnEvent::FirstChunk, None).await?;
        }
        let Some(draft) = &self.turn.draft else { return Err(Stop::Moved) };
        let max = self.engine.limits.context_bytes_max;
        if (self.text.len() + text.len()) as u64 > max {
            let message = format!("the answer has more than {max} bytes");
            return Err(failed(
                "PAYLOAD_TOO_LARGE",
                message,
                "ask for less, or raise WAYSTONE_MAX_CONTEXT_BYTES",
                false,
            ));
        }
        self.n += 1;
        self.sequence += 1;
        let told = ContentDelta {
            context_id: &self.context,
            message_id: &draft.message,
            delta: &text,
            sequence: self.sequence,
            attempt: draft.attempt,
            first_sequence: None,
        };
        let frame = Frame::new(&self.run, self.n, self.turn.seq, CONTENT_DELTA, delta(&told));
        if self.pending.deltas.is_empty() {
            (self.pending.first_n, self.pending.first_sequence) = (self.n, self.sequence);
        }
        self.pending.told = self.channel.tell(frame);
        self.text.push_str(&text);
        self.pending.deltas.push(text);
        if self.pending.deltas.len() >= PENDING_MAX && self.writing.is_none() {
            self.begin_writing();
        }
        Ok(())
    }

    /// The answer is whole: it becomes a message, and the turn ends.
    async fn complete(&mut self, answered: Answered) -> Outcome<()> {
        let kind = match self.text.trim_end().ends_with('?') {
            true => MessageType::Question,
            false if self.turn.config.mode == "plan" => MessageType::Plan,
            false => MessageType::Text,
        };
        let message = self.message(kind, &answered).await?;
        let between = fsm::next(self.turn.state, TurnEvent::Answered).ok_or(Stop::Moved)?;
        let to = fsm::next(between, TurnEvent::NoCalls).ok_or(Stop::Moved)?;
        let mut step = self.step(to);
        step.tell_state(self.n + 1, between);
        step.tell(self.n + 2, MESSAGE_COMPLETED, completed(&self.context, &message));
        step.tell_state(self.n + 3, to);
        self.n += 3;
        (step.message, step.draft, step.failures) = (Some(message), None, 0);
        step.operation = Some("message.added");
        // It is the model that says it.
        self.scope = Scope { space: self.scope.space, ..Scope::local(&self.turn.config.model_id).for_agent() };
        self.take(step).await
    }

    async fn message(&self, kind: MessageType, answered: &Answered) -> Outcome<NewMessage> {
        let Some(draft) = self.turn.draft.clone() else { return Err(Stop::Moved) };
        let facts = MessageFacts {
            is_estimate: answered.is_estimate,
            model: Some(self.turn.config.model_id.clone()),
            attempt: draft.attempt,
            sequence: self.sequence,
            ..MessageFacts::default()
        };
        let prepared =
            self.engine.prepare_message(Role::Assistant, kind, self.text.clone(), Origin::Agent, facts).await;
        let message = prepared.map_err(|error| of_store(&error))?;
        let completion = if answered.is_estimate { message.tokens } else { answered.usage.completion };
        let prices = self.engine.chat.model.describe(&self.turn.config.model_id).prices;
        let facts = message.facts.counted(Usage { completion, ..answered.usage }, prices);
        Ok(NewMessage { id: draft.message, facts, ..message })
    }

    /// Keeps what was streamed, and ends.
    async fn cancel(&mut self, key: Option<Idempotency>) -> Outcome<()> {
        let to = fsm::next(self.turn.state, TurnEvent::Cancel).ok_or(Stop::Moved)?;
        let mut step = self.step(to);
        step.idempotency = key;
        let written = match self.text.is_empty() {
            // An attempt before this one may have come further.
            true => self.engine.written_draft(&self.scope, &self.context, &self.turn).await,
            false => Ok(Some((self.text.clone(), self.sequence))),
        };
        let written = written.map_err(|error| of_store(&error))?;
        let ended = self.engine.end_step(&mut step, &self.turn, written, self.n).await;
        self.n = ended.map_err(|error| of_store(&error))?;
        self.take(step).await
    }

    /// Waits before it is tried again, or gives up. Whether it is tried again.
    async fn fail(&mut self, error: &ModelError) -> Outcome<bool> {
        let failures = self.turn.failures + 1;
        let told = Some(error.error.clone());
        if !error.is_recoverable || failures >= TRIES {
            self.advance(TurnEvent::GaveUp, told).await?;
            return Ok(false);
        }
        let to = fsm::next(self.turn.state, TurnEvent::Failed).ok_or(Stop::Moved)?;
        let mut step = self.step(to);
        (step.error, step.failures) = (told, failures);
        self.n += 1;
        step.tell_state(self.n, to);
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

fn failed(code: &str, message: String, hint: &str, is_recoverable: bool) -> Stop {
    let error = TurnError { code: code.to_owned(), message, hint: hint.to_owned() };
    Stop::Failed(Box::new(ModelError { is_recoverable, retry_after: None, error }))
}

/// What the store refused. It may take it later.
fn of_store(error: &Error) -> Stop {
    let is_recoverable = matches!(error, Error::StorageUnavailable { .. });
    failed(error.code(), error.to_string(), &error.reply().error.hint, is_recoverable)
}

async fn told_otherwise(signal: &mut watch::Receiver<Signal>) -> Signal {
    match signal.wait_for(|signal| !matches!(signal, Signal::GoOn)).await {
        Ok(signal) => signal.clone(),
        Err(_) => Signal::Leave,
    }
}
