//! A model asked, its answer told as it comes, and what becomes of it: a message, and calls of tools.

use std::sync::Arc;

use serde_json::Value;

use super::call::{Judged, judge};
use super::run::{Live, Outcome, Stop, failed, of_store, told_otherwise};
use super::stream::{CONTENT_DELTA, Frame, TOOL_CALL_REQUESTED, USAGE_WARNING, WINDOW_ASSEMBLED, delta};
use crate::api::{
    ContentDelta, ContentPart, ContextState, MessageType, Metadata, Origin, Role, ToolCallRequested, ToolOutcome,
};
use crate::engine::checkpoint::Reference;
use crate::engine::model::answer_tokens;
use crate::engine::tool_call::Ended;
use crate::engine::window::Prepared;
use crate::error::Result;
use crate::fsm::{self, TurnEvent};
use crate::id::SegmentId;
use crate::model::{Call, Chunk, Cut, ModelCall, Usage};
use crate::offload::offload;
use crate::store::{Draft, MessageFacts, NewCheckpoint, NewMessage, Scope, Step, ToolChange};

/// So often tools are called in a turn, and so many of them.
const ROUNDS_MAX: usize = 5;
pub(super) const CALLS_MAX: usize = 20;
/// What a model calls beyond this at once is not even refused.
const CALLS_KEPT_MAX: usize = 100;

/// What a model has said in the end.
pub(super) struct Answered {
    usage: Usage,
    /// Its provider did not count, and what it wrote is not counted yet.
    is_estimate: bool,
    cut: Option<Cut>,
    calls: Vec<Call>,
}

/// What a person is told of an answer that ends too early.
fn told_of(cut: Cut) -> &'static str {
    match cut {
        Cut::Length => "the answer ends at the limit of its length: ask it to go on, or raise parameters.max_tokens",
        Cut::Filter => {
            "the answer ends where its provider's filter stopped it; what it was about to call is not called"
        }
    }
}

impl Live {
    /// Assembles the window of the next call, which is kept and told before the model is asked.
    pub(super) async fn prepare(&mut self) -> Outcome<()> {
        let mut signal = self.signal.clone();
        let prepared = tokio::select! {
            signal = told_otherwise(&mut signal) => return Err(Stop::Signal(signal)),
            prepared = self.prepare_window() => prepared,
        };
        let is_new = self.turn.state == ContextState::ProcessingUserMessage;
        let prepared = match prepared {
            Ok(prepared) => prepared,
            Err(error) => {
                if is_new {
                    // A turn fails where a model would have been asked.
                    self.advance(TurnEvent::Called, None).await?;
                }
                return Err(of_store(&error));
            }
        };
        let to = if is_new { ContextState::AwaitingLLMResponse } else { self.turn.state };
        let mut step = self.step(to);
        if is_new {
            step.tell_state(to);
        }
        step.tell(WINDOW_ASSEMBLED, &prepared.told(&self.context, &self.turn.branch));
        step.window = Some(prepared.kept(format!("{}-{}", self.run, step.told())));
        if let Some(warning) = prepared.warning(&self.context) {
            step.tell(USAGE_WARNING, &warning);
        }
        self.take(step).await?;
        let call_ids = prepared.call_ids();
        let Prepared { tools, called, manifest, assembled, .. } = prepared;
        let tokens = assembled.tokens;
        (self.called, self.offered, self.call_ids) = (called.calls, tools.clone(), call_ids);
        let mut parameters = self.turn.config.parameters.clone();
        if let Some(cover) = self.engine.secrets.shown() {
            cover.object(&mut parameters);
        }
        let call = ModelCall {
            model: manifest.model,
            system: manifest.system,
            messages: assembled.spans.into_iter().filter_map(|span| span.said).collect(),
            tools,
            is_last: called.rounds >= ROUNDS_MAX || called.calls >= CALLS_MAX || self.has_run_long(),
            answer_tokens: answer_tokens(&self.turn.config.parameters, manifest.limit),
            parameters,
        };
        self.prepared = Some((call, tokens));
        Ok(())
    }

    async fn prepare_window(&mut self) -> Result<Prepared> {
        // The configuration may have changed since the turn began.
        let config = self.engine.store.find_turn(&self.scope, &self.context).await?.config;
        let tools = self.engine.tools_of(&config).await.tools;
        let branch = Some(&self.turn.branch);
        let prepared = self.engine.prepare_call(&self.scope, &self.context, branch, &config, &tools).await?;
        self.turn.config = config;
        Ok(prepared)
    }

    /// Asks the model, and tells what it says as it comes.
    pub(super) async fn ask(&mut self) -> Outcome<Answered> {
        (self.text, self.sequence) = (String::new(), 0);
        let mut signal = self.signal.clone();
        let (call, asked) = match self.prepared.take() {
            Some(prepared) => prepared,
            None => {
                self.prepare().await?;
                self.prepared.take().ok_or(Stop::Moved)?
            }
        };
        let is_last = call.is_last;
        let model = Arc::clone(&self.engine.chat.model);
        let mut answer = tokio::select! {
            signal = told_otherwise(&mut signal) => return Err(Stop::Signal(signal)),
            answer = model.call(call) => answer.map_err(|error| Stop::Failed(Box::new(error)))?,
        };
        let (mut usage, mut timer, mut calls, mut held, mut cut) = (None, None, Vec::new(), String::new(), None);
        // What must not be kept must not be told either: it is looked through as a whole first.
        let is_held = self.engine.secrets.kept().is_some();
        loop {
            if timer.is_none() && self.writing.is_none() && self.has_pending() {
                timer = Some(Box::pin(self.until_written()));
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
                    Some(Ok(Chunk::Text(text))) if is_held => {
                        held.push_str(&text);
                        self.check_size(held.len())?;
                    }
                    Some(Ok(Chunk::Text(text))) => self.stream(text).await?,
                    Some(Ok(Chunk::Call(call))) if calls.len() < CALLS_KEPT_MAX => calls.push(call),
                    Some(Ok(Chunk::Call(_))) => {}
                    Some(Ok(Chunk::Usage(counted))) => usage = Some(counted),
                    Some(Ok(Chunk::Cut(why))) => cut = Some(why),
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
        if is_held {
            self.stream_held(held, &mut calls).await?;
        }
        if is_last {
            // It was told not to.
            calls.clear();
        }
        if self.text.is_empty() && calls.is_empty() {
            let message = "the model answered nothing".to_owned();
            return Err(failed("MODEL_ANSWERED_NOTHING", message, "retry, or say it in other words", true));
        }
        let model = &self.turn.config.model_id;
        let Some(usage) = usage else {
            let usage = Usage { prompt: self.engine.expect_tokens(model, asked), ..Usage::default() };
            return Ok(Answered { usage, is_estimate: true, cut, calls });
        };
        if !self.engine.counts_as_we_do(model) {
            self.engine.calibration.note(&self.engine.chat.model.describe(model).name, asked, usage.prompt);
        }
        Ok(Answered { usage, is_estimate: false, cut, calls })
    }

    /// Tells an answer that was held back, without what must not be kept.
    async fn stream_held(&mut self, held: String, calls: &mut Vec<Call>) -> Outcome<()> {
        let (engine, mut covered) = (self.engine.clone(), std::mem::take(calls));
        let cover = move || {
            let kept = engine.secrets.kept();
            if let Some(cover) = kept {
                for call in &mut covered {
                    cover.value(&mut call.arguments);
                }
            }
            (kept.and_then(|cover| cover.text(&held)).unwrap_or(held), covered)
        };
        let (text, covered) = offload(usize::MAX, cover).await.map_err(|error| of_store(&error))?;
        *calls = covered;
        if text.is_empty() { Ok(()) } else { self.stream(text).await }
    }

    fn check_size(&self, size: usize) -> Outcome<()> {
        let max = self.engine.limits.context_bytes_max;
        if size as u64 <= max {
            return Ok(());
        }
        let message = format!("the answer has more than {max} bytes");
        Err(failed("PAYLOAD_TOO_LARGE", message, "ask for less, or raise WAYSTONE_MAX_CONTEXT_BYTES", false))
    }

    /// The message that is being written, in a new attempt.
    fn next_draft(&mut self) -> Outcome<Draft> {
        let before = self.turn.draft.take();
        let message = match &before {
            Some(draft) => draft.message.clone(),
            None => self.engine.fresh_id().map_err(|error| of_store(&error))?,
        };
        Ok(Draft { message, attempt: before.map_or(1, |draft| draft.attempt + 1) })
    }

    /// Tells more of the answer. The first of it comes after the step that says that it streams.
    async fn stream(&mut self, text: String) -> Outcome<()> {
        if self.turn.state != ContextState::StreamingLLMResponse {
            self.turn.draft = Some(self.next_draft()?);
            self.advance(TurnEvent::FirstChunk, None).await?;
        }
        self.check_size(self.text.len() + text.len())?;
        let Some(draft) = &self.turn.draft else { return Err(Stop::Moved) };
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
        self.text.push_str(&text);
        self.tell_delta(frame, text);
        Ok(())
    }

    /// The answer is whole: it becomes a message, and the turn ends, or goes on with the tools that it calls.
    pub(super) async fn complete(&mut self, mut answered: Answered) -> Outcome<()> {
        let calls = std::mem::take(&mut answered.calls);
        let judged = judge(self, calls).await?;
        let kind = match self.text.trim_end().ends_with('?') {
            _ if !judged.is_empty() => MessageType::ToolCall,
            true => MessageType::Question,
            false if self.turn.config.mode == "plan" => MessageType::Plan,
            false => MessageType::Text,
        };
        let (message, warnings) = self.message(kind, &answered, &judged).await?;
        let event = match () {
            () if judged.is_empty() => TurnEvent::NoCalls,
            () if judged.iter().any(Judged::is_pending) => TurnEvent::ApprovalWanted,
            () if judged.iter().any(|judged| judged.refused.is_none()) => TurnEvent::CallsAllowed,
            () => TurnEvent::Denied,
        };
        let between = fsm::next(self.turn.state, TurnEvent::Answered).ok_or(Stop::Moved)?;
        let to = fsm::next(between, event).ok_or(Stop::Moved)?;
        let mut step = self.step(to);
        // It is the model that says it.
        self.scope = Scope { space: self.scope.space, ..Scope::local(&self.turn.config.model_id).for_agent() };
        step.tell_state(between);
        step.tell_message(&message, &warnings);
        step.messages.push(message);
        if !judged.is_empty() {
            let told = ToolCallRequested {
                context_id: self.context.clone(),
                tool_calls: judged.iter().map(Judged::requested).collect(),
            };
            step.tell(TOOL_CALL_REQUESTED, &told);
        }
        for Judged { new, refused } in judged {
            let (id, tool) = (new.id.clone(), new.tool.clone());
            step.tools.push(ToolChange::Add(new));
            if let Some(why) = refused {
                let output = crate::tools::ToolOutput::error(why);
                let call = Ended { id: &id, tool: &tool, edited: None, model: &self.turn.config.model_id };
                let ended = self.engine.end_call(&mut step, call, output, ToolOutcome::Failed).await;
                ended.map_err(|error| of_store(&error))?;
            }
        }
        step.tell_state(to);
        (step.draft, step.failures, step.operation) = (None, 0, Some("message.added"));
        if to == ContextState::Idle && self.engine.chat.saves_turns {
            step.checkpoint = self.reference(&step).map_err(|error| of_store(&error))?;
        }
        self.take(step).await
    }

    /// Where the conversation stands after a step that adds messages.
    fn reference(&self, step: &Step) -> Result<Option<Box<NewCheckpoint>>> {
        let Some(head) = step.messages.last().map(|message| message.id.clone()) else { return Ok(None) };
        let reference = Reference { branch: self.turn.branch.clone(), head, config: self.turn.config.clone() };
        let new = self.engine.refer(&self.context, &self.turn.project, &reference, Metadata::default())?;
        Ok(Some(Box::new(new)))
    }

    /// The answer as a message, and what a person should know of it.
    async fn message(
        &mut self,
        kind: MessageType,
        answered: &Answered,
        judged: &[Judged],
    ) -> Outcome<(NewMessage, Vec<String>)> {
        // What only calls tools was not streamed.
        let draft = match self.turn.draft.clone().filter(|_| self.turn.state == ContextState::StreamingLLMResponse) {
            Some(draft) => draft,
            None => self.next_draft()?,
        };
        let facts = MessageFacts {
            is_estimate: answered.is_estimate,
            is_cut: answered.cut.is_some(),
            model: Some(self.turn.config.model_id.clone()),
            attempt: draft.attempt,
            sequence: self.sequence,
            ..MessageFacts::default()
        };
        let parts = judged.iter().map(Judged::part).collect();
        let made = self.make_message(kind, parts, draft.message, facts).await;
        let (message, mut warnings) = made.map_err(|error| of_store(&error))?;
        warnings.extend(answered.cut.map(|cut| told_of(cut).to_owned()));
        let expected = || self.engine.expect_tokens(&self.turn.config.model_id, message.tokens);
        let completion = if answered.is_estimate { expected() } else { answered.usage.completion };
        let prices = self.engine.chat.model.describe(&self.turn.config.model_id).prices;
        let facts = message.facts.counted(Usage { completion, ..answered.usage }, prices);
        Ok((NewMessage { facts, ..message }, warnings))
    }

    async fn make_message(
        &self,
        kind: MessageType,
        parts: Vec<ContentPart>,
        id: SegmentId,
        facts: MessageFacts,
    ) -> Result<(NewMessage, Vec<String>)> {
        let mut scan = self.engine.scan();
        let (text, called) = (self.text.clone(), parts.clone());
        let look = move || {
            scan.text("/content", &text);
            for (at, part) in called.iter().enumerate() {
                if let ContentPart::ToolCall { arguments: Value::Object(arguments), .. } = part {
                    scan.object(&format!("/tool_calls/{at}/arguments"), arguments);
                }
            }
            // What must not be kept was taken out.
            scan.end().unwrap_or_default()
        };
        let warnings = offload(self.text.len(), look).await?;
        let message =
            self.engine.prepare_message(Role::Assistant, kind, self.text.clone(), parts, Origin::Agent, facts);
        Ok((NewMessage { id, ..message.await? }, warnings))
    }
}
