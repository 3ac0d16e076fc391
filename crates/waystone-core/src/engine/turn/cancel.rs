//! Turns that someone ends before their end, and what is kept of them.

use std::time::Duration;

use serde::Deserialize;
use serde_json::Value;

use super::stream::STATE_CHANGED;
use super::{Signal, plain_step, refused};
use crate::api::{ContextState, MessageType, Origin, Role, ToolOutcome, TurnChanged};
use crate::engine::Engine;
use crate::engine::conversation::retry_of;
use crate::engine::tool_call::Ended;
use crate::error::{Error, Result, Unavailable};
use crate::fsm::{self, TurnEvent};
use crate::id::{BranchName, IdempotencyKey, SegmentId, SessionId};
use crate::store::{Idempotency, MessageFacts, NewMessage, OpenCall, Scope, Step, Stepped, ToolChange, Turn};

/// What becomes true when someone ends a turn.
const CANCELLED: &str = "turn.cancelled";
/// A turn that has not ended so long after it was told to waits for a store that cannot be written.
const CANCELLED_WITHIN: Duration = Duration::from_secs(20);
/// Who finds more events than this since it looked does not go on: they may be another turn's.
const EVENTS_MAX: u32 = 256;

impl Engine {
    /// Ends a turn. What was streamed is kept as a message that says so.
    pub async fn cancel_turn(
        &self,
        scope: &Scope,
        context: &SessionId,
        key: Option<IdempotencyKey>,
    ) -> Result<TurnChanged> {
        self.check_writable()?;
        let idempotency = key.map(|key| retry_of(key, &format!("contexts/{context}/cancel"), &()));
        let first = self.store.find_turn(scope, context).await?;
        let mut step = plain_step(context, &first, ContextState::Idle, &self.clock.new_id(), self);
        (step.operation, step.idempotency) = (Some(CANCELLED), idempotency.clone());
        if let Some((message_id, context_state)) = self.asked_before(scope, &first, &step).await? {
            return Ok(TurnChanged { context_state, message_id, warnings: self.warnings() });
        }
        // Who may be asking again wants it ended, and it is. That is remembered: asked once more it does not end another.
        if !first.state.is_running() && idempotency.is_some() {
            let context_state = self.remember_end(scope, first.state, idempotency).await?;
            let message_id = self.kept_answer(scope, context, &first.branch).await?;
            return Ok(TurnChanged { context_state, message_id, warnings: self.warnings() });
        }
        if fsm::next(first.state, TurnEvent::Cancel).is_none() {
            return Err(refused(context, first.state, TurnEvent::Cancel));
        }
        let mut turn = first.clone();
        while turn.state.is_running() && self.is_same_turn(scope, context, &first, &turn).await? {
            match turn.run.as_deref().and_then(|run| self.turns.find(context, run)) {
                Some(signal) => {
                    signal.send_replace(Signal::Cancel(scope.clone(), idempotency.clone()));
                    tokio::select! {
                        () = signal.closed() => {}
                        () = self.clock.sleep(CANCELLED_WITHIN) => return Err(Error::StorageUnavailable {
                            reason: Unavailable::Busy,
                            message: "that the turn is ended cannot be kept yet; it ends as soon as it can be".to_owned(),
                        }),
                    }
                }
                None => {
                    let stepped = self.cancel_from_outside(scope, context, &turn, idempotency.clone()).await?;
                    // The same was asked at the same time, and answered: it was about a turn before.
                    if let Some(Stepped::Before { message, state, .. }) = stepped {
                        let (message_id, context_state) = (message, state);
                        return Ok(TurnChanged { context_state, message_id, warnings: self.warnings() });
                    }
                }
            }
            turn = self.store.find_turn(scope, context).await?;
        }
        // It ended and another began.
        if turn.state.is_running() {
            let (why, hint) = ("it went on meanwhile", "look at GET /api/contexts/{id}/state, and end it again");
            return Err(Error::InvalidState { context: context.clone(), state: turn.state, why, hint });
        }
        // It may have ended by itself, or because of another who said so at the same time.
        let context_state = self.remember_end(scope, turn.state, idempotency).await?;
        let message_id = self.kept_answer(scope, context, &first.branch).await?;
        Ok(TurnChanged { context_state, message_id, warnings: self.warnings() })
    }

    /// Remembers that someone wanted a turn ended that has ended, unless that is known. Returns in which state it was then.
    async fn remember_end(
        &self,
        scope: &Scope,
        state: ContextState,
        idempotency: Option<Idempotency>,
    ) -> Result<ContextState> {
        let Some(idempotency) = idempotency else { return Ok(state) };
        self.store.remember_turn(scope, CANCELLED, idempotency, state, self.clock.now()).await
    }

    /// Whether a turn is the one that it was: another run may be another turn, or the same that someone else goes on with, as after a decision
    /// about its calls.
    async fn is_same_turn(&self, scope: &Scope, context: &SessionId, first: &Turn, now: &Turn) -> Result<bool> {
        if now.run == first.run {
            return Ok(true);
        }
        let since = self.store.list_turn_events(scope, context, first.seq + 1, EVENTS_MAX).await?;
        if since.len() >= EVENTS_MAX as usize {
            return Ok(false);
        }
        let states = since.iter().filter(|row| row.kind == STATE_CHANGED);
        let mut states = states.filter_map(|row| serde_json::from_str::<Value>(&row.payload).ok());
        let is_end = |event: Value| !ContextState::deserialize(&event["new_state"]).is_ok_and(ContextState::is_running);
        Ok(!states.any(is_end))
    }

    /// The answer at the end of a branch, if someone ended it.
    async fn kept_answer(&self, scope: &Scope, context: &SessionId, branch: &BranchName) -> Result<Option<SegmentId>> {
        match self.newest_message(scope, context, branch).await {
            // It was deleted since.
            Err(Error::BranchNotFound { .. }) => Ok(None),
            newest => Ok(newest?.filter(|newest| newest.metadata.cancelled).map(|newest| newest.id)),
        }
    }

    /// Ends a turn that another process runs, or none, unless it has moved meanwhile.
    async fn cancel_from_outside(
        &self,
        scope: &Scope,
        context: &SessionId,
        turn: &Turn,
        idempotency: Option<Idempotency>,
    ) -> Result<Option<Stepped>> {
        let Some(to) = fsm::next(turn.state, TurnEvent::Cancel) else { return Ok(None) };
        let mut step = plain_step(context, turn, to, &self.clock.new_id(), self);
        (step.from_seq, step.idempotency) = (Some(turn.seq), idempotency);
        let written = self.written_draft(scope, context, turn).await?;
        self.end_step(scope, &mut step, turn, written).await?;
        self.store.step_turn(scope, step).await.map(Some)
    }

    /// What is in the log of the answer that is being written, and its last sequence.
    pub(super) async fn written_draft(
        &self,
        scope: &Scope,
        context: &SessionId,
        turn: &Turn,
    ) -> Result<Option<(String, u64)>> {
        let Some(draft) = &turn.draft else { return Ok(None) };
        let written = self.store.read_content(scope, context, &draft.message, 1).await?;
        Ok((!written.is_complete).then_some((written.content, written.next_sequence - 1)))
    }

    /// Makes a step one that ends a turn: what was written of the answer is kept, and marked.
    pub(super) async fn end_step(
        &self,
        scope: &Scope,
        step: &mut Step,
        turn: &Turn,
        written: Option<(String, u64)>,
    ) -> Result<()> {
        step.operation = Some(CANCELLED);
        let written = written.filter(|(text, _)| !text.is_empty());
        if let (Some((text, sequence)), Some(draft)) = (written, &turn.draft) {
            let facts = MessageFacts {
                model: Some(turn.config.model_id.clone()),
                is_cancelled: true,
                is_estimate: true,
                attempt: draft.attempt,
                sequence,
                ..MessageFacts::default()
            };
            let kind = MessageType::Text;
            let message = self.prepare_message(Role::Assistant, kind, text, Vec::new(), Origin::Agent, facts).await?;
            let facts = MessageFacts { completion_tokens: message.tokens, ..message.facts };
            let facts = self.expect_facts(&turn.config.model_id, facts);
            let message = NewMessage { id: draft.message.clone(), facts, ..message };
            step.tell_message(&message, &[]);
            step.messages.push(message);
        }
        self.abandon_calls(scope, step, &turn.config.model_id).await?;
        step.draft = None;
        step.tell_state(step.to);
        Ok(())
    }

    /// Lets go of calls that have no result. What a client answered was acknowledged: it is kept as a message, though no one waits for it any more.
    pub(super) async fn abandon_calls(&self, scope: &Scope, step: &mut Step, model: &str) -> Result<()> {
        for OpenCall { call, answer } in self.store.list_open_calls(scope, &step.context).await? {
            match answer {
                Some(answer) => {
                    let outcome = if answer.is_error { ToolOutcome::Failed } else { ToolOutcome::Succeeded };
                    self.end_call(step, Ended::of(&call, model), answer, outcome).await?;
                    // It takes the room that it had.
                    step.total_bytes_max = u64::MAX;
                }
                None => step.tell_call((&call.id, &call.tool_name), ToolOutcome::Cancelled, None, Vec::new()),
            }
        }
        step.tools.push(ToolChange::Abandon);
        Ok(())
    }

    /// Ends the turn of a conversation whose session is about to be deleted, if it is one.
    pub(in crate::engine) async fn rest(&self, scope: &Scope, session: &SessionId) -> Result<()> {
        match self.cancel_turn(scope, session, None).await {
            Err(Error::ContextNotFound(_) | Error::InvalidState { .. }) => Ok(()),
            done => done.map(drop),
        }
    }
}
