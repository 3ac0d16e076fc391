//! Calls of tools that wait are approved, denied, or expire.

use super::{Ended, check_pending, invalid_state};
use crate::api::{ApprovalStatus, ContextState, DecideTools, DecidedTools, ToolCall, ToolOutcome};
use crate::clock::Timestamp;
use crate::engine::Engine;
use crate::engine::conversation::retry_of;
use crate::engine::turn::plain_step;
use crate::error::{Conflict, Error, Result};
use crate::fsm::{self, TurnEvent};
use crate::id::{SessionId, ToolCallId};
use crate::store::{OpenCall, Scope, Step, Stepped, ToolChange, Turn};
use crate::tools::ToolOutput;

/// What is decided of a call.
enum Verdict {
    Approve,
    Deny { why: Option<String> },
    Expire,
}

impl Verdict {
    fn status(&self) -> ApprovalStatus {
        match self {
            Self::Approve => ApprovalStatus::Approved,
            Self::Deny { .. } => ApprovalStatus::Denied,
            Self::Expire => ApprovalStatus::Expired,
        }
    }

    fn operation(&self) -> &'static str {
        match self {
            Self::Approve => "tools.approved",
            Self::Deny { .. } => "tools.denied",
            Self::Expire => "tools.expired",
        }
    }

    /// What the model is told of a call that is not run.
    fn told(&self, call: &ToolCall) -> Option<(String, ToolOutcome)> {
        let is_begun = call.started_at.is_some();
        let was_begun = if is_begun { " It was begun once before, and what came of that is not known." } else { "" };
        match self {
            Self::Approve => None,
            Self::Deny { why: Some(why) } => {
                Some((format!("The user denied this call: {why}.{was_begun}"), ToolOutcome::Denied))
            }
            Self::Deny { why: None } => Some((format!("The user denied this call.{was_begun}"), ToolOutcome::Denied)),
            Self::Expire => {
                let again = if is_begun { " again" } else { "" };
                let told = format!("Nobody approved this call in time; it was not run{again}.{was_begun}");
                Some((told, ToolOutcome::Expired))
            }
        }
    }
}

impl Engine {
    /// Lets calls run that wait for it.
    pub async fn approve_tools(
        &self,
        scope: &Scope,
        context: &SessionId,
        request: DecideTools,
    ) -> Result<DecidedTools> {
        if request.reason.is_some() {
            return Err(Error::InvalidInput("reason: only a denial has one".to_owned()));
        }
        let (count, state) = self.decide(scope, context, request, Verdict::Approve).await?;
        let (approved_count, denied_count) = (Some(count), None);
        Ok(DecidedTools { approved_count, denied_count, context_state: state, warnings: self.warnings() })
    }

    /// Refuses calls that wait for approval, which the model is told.
    pub async fn deny_tools(&self, scope: &Scope, context: &SessionId, request: DecideTools) -> Result<DecidedTools> {
        let verdict = Verdict::Deny { why: request.reason.clone() };
        let (count, state) = self.decide(scope, context, request, verdict).await?;
        let (approved_count, denied_count) = (None, Some(count));
        Ok(DecidedTools { approved_count, denied_count, context_state: state, warnings: self.warnings() })
    }

    /// Refuses the calls that nobody decided about in time. Returns how many conversations had some.
    pub async fn expire_tools(&self, scope: &Scope) -> Result<usize> {
        let Some(before) = self.expired_before() else { return Ok(0) };
        let mut expired = 0;
        for context in self.store.list_expired_calls(scope, before).await? {
            match self.expire_tools_of(scope, &context).await {
                Ok(is_expired) => expired += usize::from(is_expired),
                // It was deleted meanwhile.
                Err(Error::ContextNotFound(_)) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(expired)
    }

    /// The same for one conversation. Whether it had some.
    pub async fn expire_tools_of(&self, scope: &Scope, context: &SessionId) -> Result<bool> {
        let Some(before) = self.expired_before().filter(|_| self.check_writable().is_ok()) else { return Ok(false) };
        let open = self.store.list_open_calls(scope, context).await?;
        let is_old =
            |open: &OpenCall| open.call.approval_status == ApprovalStatus::Pending && open.call.requested_at < before;
        let ids: Vec<ToolCallId> = open.into_iter().filter(is_old).map(|open| open.call.id).collect();
        if ids.is_empty() {
            return Ok(false);
        }
        let request =
            DecideTools { tool_call_ids: ids, hashes: Default::default(), reason: None, idempotency_key: None };
        match self.decide(scope, context, request, Verdict::Expire).await {
            Ok(_) => Ok(true),
            // Someone decided meanwhile.
            Err(Error::InvalidState { .. } | Error::Conflict(_) | Error::InvalidInput(_)) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// What waits since before then has waited too long.
    fn expired_before(&self) -> Option<Timestamp> {
        let waited = i64::try_from(self.chat.policy.approval_max?.as_millis()).unwrap_or(i64::MAX);
        Some(Timestamp::from_ms(self.clock.now().ms().saturating_sub(waited)))
    }

    /// Too late is too late, also before anyone has noticed.
    pub(super) fn check_in_time(&self, call: &ToolCall) -> Result<()> {
        if self.expired_before().is_none_or(|before| call.requested_at >= before) {
            return Ok(());
        }
        let (call, status) = (call.id.clone(), ApprovalStatus::Expired);
        Err(Error::Conflict(Conflict::CallDecided { call, status }))
    }

    async fn decide(
        &self,
        scope: &Scope,
        context: &SessionId,
        request: DecideTools,
        verdict: Verdict,
    ) -> Result<(usize, ContextState)> {
        self.check_writable()?;
        request.check()?;
        let place = format!("contexts/{context}/{}", verdict.operation());
        let idempotency = request.idempotency_key.clone().map(|key| retry_of(key, &place, &request));
        let run = self.clock.new_id();
        let entered = self.enter_turn(context, &run);
        loop {
            let turn = self.store.find_turn(scope, context).await?;
            let mut step = plain_step(context, &turn, turn.state, &run, self);
            (step.operation, step.idempotency) = (Some(verdict.operation()), idempotency.clone());
            let decided = self.decide_calls(scope, &mut step, &turn, &request, &verdict).await;
            if let Err(error) = decided {
                // What was asked before is answered as before.
                return match self.asked_before(scope, &turn, &step).await? {
                    Some((_, state)) => Ok((request.tool_call_ids.len(), state)),
                    None => Err(error),
                };
            }
            let (to, told) = (step.to, step.told());
            match self.store.step_turn(scope, step).await? {
                Stepped::Done { branch, seq } => {
                    let now = Turn { state: to, run: Some(run), branch, seq, ..turn };
                    self.go_on(scope, context, (now, told), turn.seq, entered);
                    return Ok((request.tool_call_ids.len(), to));
                }
                Stepped::Before { state, .. } => return Ok((request.tool_call_ids.len(), state)),
                Stepped::Moved(_) => {}
            }
        }
    }

    /// Makes a step one that decides about calls.
    async fn decide_calls(
        &self,
        scope: &Scope,
        step: &mut Step,
        turn: &Turn,
        request: &DecideTools,
        verdict: &Verdict,
    ) -> Result<()> {
        let context = step.context.clone();
        let open = self.store.list_open_calls(scope, &context).await?;
        for id in &request.tool_call_ids {
            let call = match open.iter().find(|open| open.call.id == *id) {
                Some(open) => open.call.clone(),
                None => self.store.find_tool_call(scope, &context, id).await?,
            };
            check_pending(&context, turn, &call)?;
            if !matches!(verdict, Verdict::Expire) {
                self.check_in_time(&call)?;
            }
            // Whoever approves what was changed, or begun before, says that it is that which was looked at.
            let is_special = matches!(verdict, Verdict::Approve) && (call.edited || call.started_at.is_some());
            let seen = request.hashes.get(id.as_str());
            if seen.map_or(is_special, |seen| *seen != call.hash) {
                return Err(Error::Conflict(Conflict::CallChanged(id.clone())));
            }
            step.tools.push(ToolChange::Decide { id: id.clone(), status: verdict.status() });
            if let Some((told, outcome)) = verdict.told(&call) {
                let told = ToolOutput::error(told);
                self.end_call(step, Ended::of(&call, &turn.config.model_id), told, outcome).await?;
            }
        }
        let others = || open.iter().filter(|open| !request.tool_call_ids.contains(&open.call.id));
        let is_pending = others().any(|open| open.call.approval_status == ApprovalStatus::Pending);
        let is_approved = matches!(verdict, Verdict::Approve)
            || others().any(|open| open.call.approval_status == ApprovalStatus::Approved);
        let event = match (is_pending, is_approved) {
            (true, _) => return Ok(()),
            (false, true) => TurnEvent::Approved,
            (false, false) => TurnEvent::Denied,
        };
        let refused = || invalid_state(&context, turn.state);
        step.to = fsm::next(turn.state, event).ok_or_else(refused)?;
        step.tell_state(step.to);
        Ok(())
    }
}
