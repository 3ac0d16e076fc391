//! Calls of tools, as people and clients see them: decided, changed, answered, looked at. How they are run is in [`super::turn`].

use std::time::Duration;

use serde_json::Value;

use super::Engine;
use super::conversation::retry_of;
use super::turn::{TOOL_CALL_REQUESTED, plain_step};
use crate::api::{
    AnswerToolCall, ApprovalStatus, ChatConfig, ContentPart, ContextState, DecideTools, DecidedTools, EditArguments,
    MessageType, Origin, RequestedCall, Role, Tool, ToolCall, ToolCallRequested, ToolList, ToolOutcome,
};
use crate::clock::Timestamp;
use crate::error::{Conflict, Error, Result};
use crate::fsm::{self, TurnEvent};
use crate::id::{IdempotencyKey, SessionId, ToolCallId};
use crate::json;
use crate::offload::offload;
use crate::store::{MessageFacts, NewMessage, OpenCall, Scope, Step, Stepped, ToolChange, Turn};
use crate::tools::{ToolOutput, Toolbox};

/// Which tools run unasked.
#[derive(Debug, Clone, Default)]
pub struct ToolPolicy {
    pub kind: PolicyKind,
    /// Names, or beginnings of names with a `*` after them.
    pub allowed: Vec<String>,
    /// How long a call waits for someone to decide; for ever when left out.
    pub approval_max: Option<Duration>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum PolicyKind {
    /// None.
    Manual,
    /// Those that are listed.
    AllowList,
    /// Those that change nothing, and those that are listed.
    #[default]
    Auto,
}

impl PolicyKind {
    pub const NAMES: &[&str] = &["manual", "allow-list", "auto"];

    /// By its name, as in [`Self::NAMES`].
    pub fn named(name: &str) -> Option<Self> {
        let all = [Self::Manual, Self::AllowList, Self::Auto];
        Self::NAMES.iter().zip(all).find(|(known, _)| **known == name).map(|(_, kind)| kind)
    }
}

impl ToolPolicy {
    pub(super) fn allows(&self, tool: &Tool) -> bool {
        let is_listed = || self.allowed.iter().any(|allowed| is_named(allowed, &tool.name));
        match self.kind {
            PolicyKind::Manual => false,
            PolicyKind::AllowList => is_listed(),
            PolicyKind::Auto => tool.read_only || is_listed(),
        }
    }
}

fn is_named(allowed: &str, name: &str) -> bool {
    allowed.strip_suffix('*').map_or(allowed == name, |beginning| name.starts_with(beginning))
}

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

/// A call that has come to its end.
pub(super) struct Ended<'a> {
    pub(super) id: &'a ToolCallId,
    pub(super) tool: &'a str,
    /// Its arguments, if they are not the model's.
    pub(super) edited: Option<&'a Value>,
}

impl<'a> Ended<'a> {
    pub(super) fn of(call: &'a ToolCall) -> Self {
        Self { id: &call.id, tool: &call.tool_name, edited: call.edited.then_some(&call.arguments) }
    }
}

impl Engine {
    /// The tools that a conversation can call: those its client declared, those of its folder, those of tool servers.
    pub async fn list_tools(&self, scope: &Scope, context: &SessionId) -> Result<ToolList> {
        let config = self.store.find_turn(scope, context).await?.config;
        let Toolbox { tools, warnings } = self.tools_of(&config).await;
        Ok(ToolList { tools, warnings: warnings.into_iter().chain(self.warnings()).collect() })
    }

    /// Of two with the same name the client's counts.
    pub(super) async fn tools_of(&self, config: &ChatConfig) -> Toolbox {
        let mut found = self.chat.tools.list(config.workspace_path.as_deref()).await;
        found.tools.retain(|tool| config.tools.iter().all(|declared| declared.name != tool.name));
        found.tools.splice(0..0, config.tools.iter().cloned());
        found
    }

    pub async fn find_tool_call(&self, scope: &Scope, context: &SessionId, id: &ToolCallId) -> Result<ToolCall> {
        let call = self.store.find_tool_call(scope, context, id).await?;
        Ok(ToolCall { warnings: self.warnings(), ..call })
    }

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
    fn check_in_time(&self, call: &ToolCall) -> Result<()> {
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
            let n = match decided {
                Ok(n) => n,
                // What was asked before is answered as before.
                Err(error) => {
                    return match self.asked_before(scope, context, &turn, &step).await? {
                        Some(state) => Ok((request.tool_call_ids.len(), state)),
                        None => Err(error),
                    };
                }
            };
            let to = step.to;
            match self.store.step_turn(scope, step).await? {
                Stepped::Done { branch, seq } => {
                    let now = Turn { state: to, run: Some(run), branch, seq, ..turn };
                    self.go_on(scope, context, (now, n), turn.seq, entered);
                    return Ok((request.tool_call_ids.len(), to));
                }
                Stepped::Before { state, .. } => return Ok((request.tool_call_ids.len(), state)),
                Stepped::Moved(_) => {}
            }
        }
    }

    /// What the same request came to when it was made first.
    async fn asked_before(
        &self,
        scope: &Scope,
        context: &SessionId,
        turn: &Turn,
        step: &Step,
    ) -> Result<Option<ContextState>> {
        if step.idempotency.is_none() {
            return Ok(None);
        }
        let mut asks = plain_step(context, turn, turn.state, &self.clock.new_id(), self);
        // A step from a run that never was is not taken; it only asks.
        asks.from_run = Some(self.clock.new_id());
        (asks.operation, asks.idempotency) = (step.operation, step.idempotency.clone());
        Ok(match self.store.step_turn(scope, asks).await? {
            Stepped::Before { state, .. } => Some(state),
            Stepped::Done { .. } | Stepped::Moved(_) => None,
        })
    }

    /// Makes a step one that decides about calls. Returns the number of its last event.
    async fn decide_calls(
        &self,
        scope: &Scope,
        step: &mut Step,
        turn: &Turn,
        request: &DecideTools,
        verdict: &Verdict,
    ) -> Result<u64> {
        let context = step.context.clone();
        let open = self.store.list_open_calls(scope, &context).await?;
        let mut n = 0;
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
                n = self.end_call(step, n, Ended::of(&call), told, outcome).await?;
            }
        }
        let others = || open.iter().filter(|open| !request.tool_call_ids.contains(&open.call.id));
        let is_pending = others().any(|open| open.call.approval_status == ApprovalStatus::Pending);
        let is_approved = matches!(verdict, Verdict::Approve)
            || others().any(|open| open.call.approval_status == ApprovalStatus::Approved);
        let event = match (is_pending, is_approved) {
            (true, _) => return Ok(n),
            (false, true) => TurnEvent::Approved,
            (false, false) => TurnEvent::Denied,
        };
        let refused = || invalid_state(&context, turn.state);
        step.to = fsm::next(turn.state, event).ok_or_else(refused)?;
        n += 1;
        step.tell_state(n, step.to);
        Ok(n)
    }

    /// Gives a call that waits for approval other arguments; whoever saw the old ones decides anew.
    pub async fn edit_arguments(
        &self,
        scope: &Scope,
        context: &SessionId,
        id: &ToolCallId,
        request: EditArguments,
        key: Option<IdempotencyKey>,
    ) -> Result<ToolCall> {
        self.check_writable()?;
        let arguments = Value::Object(request.arguments.clone());
        check_arguments(&arguments)?;
        let mut scan = self.scan();
        scan.object("/arguments", &request.arguments);
        let warnings = scan.end()?;
        let idempotency = key.map(|key| retry_of(key, &format!("contexts/{context}/tools/{id}/arguments"), &request));
        let run = self.clock.new_id();
        loop {
            let turn = self.store.find_turn(scope, context).await?;
            let call = self.store.find_tool_call(scope, context, id).await?;
            let mut step = plain_step(context, &turn, turn.state, &run, self);
            (step.operation, step.idempotency) = (Some("tool.edited"), idempotency.clone());
            let hash = ToolCall::hash_of(&call.tool_name, &arguments);
            let warnings = warnings.iter().cloned().chain(self.warnings()).collect();
            let begun = call.started_at.filter(|_| call.outcome == Some(ToolOutcome::OutcomeUnknown));
            let asked = ToolCall::asked_hash(&hash, begun);
            let edited = call.clone().edited(arguments.clone(), asked.clone(), warnings);
            if let Err(error) = check_pending(context, &turn, &call).and_then(|()| self.check_in_time(&call)) {
                return match self.asked_before(scope, context, &turn, &step).await? {
                    Some(_) => Ok(edited),
                    None => Err(error),
                };
            }
            let change = ToolChange::Edit { id: id.clone(), arguments: arguments.clone(), hash };
            let requested = RequestedCall {
                id: id.clone(),
                name: call.tool_name,
                arguments: arguments.clone(),
                approval_status: ApprovalStatus::Pending,
                hash: asked,
                by_client: call.by_client,
                outcome_unknown: call.started_at.is_some(),
            };
            let told = ToolCallRequested { context_id: context.clone(), tool_calls: vec![requested] };
            step.tools.push(change);
            step.tell(1, TOOL_CALL_REQUESTED, serde_json::to_string(&told).unwrap_or_default());
            if !matches!(self.store.step_turn(scope, step).await?, Stepped::Moved(_)) {
                return Ok(edited);
            }
        }
    }

    /// Takes what a client's own tool returned.
    pub async fn answer_tool_call(
        &self,
        scope: &Scope,
        context: &SessionId,
        id: &ToolCallId,
        request: AnswerToolCall,
        key: Option<IdempotencyKey>,
    ) -> Result<ToolCall> {
        self.check_writable()?;
        self.check_text_size(request.result.to_string().len())?;
        let mut scan = self.scan();
        let looked = request.result.clone();
        let look = move || {
            match &looked {
                Value::String(text) => scan.text("/result", text),
                Value::Object(object) => scan.object("/result", object),
                other => scan.text("/result", &other.to_string()),
            }
            scan.end()
        };
        let warnings = offload(request.result.to_string().len(), look).await??;
        let idempotency = key.map(|key| retry_of(key, &format!("contexts/{context}/tools/{id}/result"), &request));
        let call = self.store.find_tool_call(scope, context, id).await?;
        if !call.by_client {
            let why = format!("the tool of call `{id}` was not declared by a client, and answers itself");
            return Err(Error::InvalidInput(why));
        }
        if call.approval_status == ApprovalStatus::Pending && call.outcome.is_none() {
            let state = self.store.find_turn(scope, context).await?.state;
            let (why, hint) =
                ("the call waits for approval", "approve it first, with POST /api/contexts/{id}/tools/approve");
            return Err(Error::InvalidState { context: context.clone(), state, why, hint });
        }
        let answer = ToolOutput { content: request.result.clone(), is_error: request.is_error };
        if !self.store.answer_tool_call(scope, context, id, answer, self.clock.now(), idempotency).await? {
            return Err(Error::Conflict(Conflict::CallAnswered(id.clone())));
        }
        let outcome = if request.is_error { ToolOutcome::Failed } else { ToolOutcome::Succeeded };
        let warnings = warnings.into_iter().chain(self.warnings()).collect();
        Ok(call.answered(request.result, outcome, warnings))
    }

    /// Adds to a step what came of a call, as a message. Returns the number of the last event.
    pub(super) async fn end_call(
        &self,
        step: &mut Step,
        n: u64,
        call: Ended<'_>,
        output: ToolOutput,
        outcome: ToolOutcome,
    ) -> Result<u64> {
        let Ended { id, tool, edited } = call;
        let (mut output, secrets, mut scan) = (output, self.secrets.clone(), self.scan());
        let max = self.limits.context_bytes_max;
        let write = move || {
            if let Some(cover) = secrets.kept() {
                cover.value(&mut output.content);
            }
            let is_text = output.content.is_string();
            let text = match output.content {
                Value::String(text) => text,
                other => other.to_string(),
            };
            if text.len() as u64 > max {
                let why = format!("the result has {} bytes, at most {max} are kept", text.len());
                return (why, true, true, Vec::new());
            }
            scan.text("/result", &text);
            (text, is_text, output.is_error, scan.end().unwrap_or_default())
        };
        let (text, is_text, is_error, warnings) = offload(usize::MAX, write).await?;
        let part = ContentPart::ToolResult {
            tool_call_id: id.clone(),
            tool_name: tool.to_owned(),
            content: if is_text { Value::Null } else { Value::Bool(true) },
            arguments: edited.cloned(),
            is_error,
        };
        let (kind, facts) = (MessageType::ToolResult, MessageFacts::default());
        let message: NewMessage = self.prepare_message(Role::User, kind, text, vec![part], Origin::Tool, facts).await?;
        step.tools.push(ToolChange::End { id: id.clone(), outcome, message: message.id.clone() });
        step.tell_call(n + 1, (id, tool), outcome, Some(&message), warnings);
        step.messages.push(message);
        Ok(n + 1)
    }
}

const ARGUMENT_BYTES_MAX: usize = 1024 * 1024;
const ARGUMENT_DEPTH_MAX: usize = 64;

pub(super) fn check_arguments(arguments: &Value) -> Result<()> {
    let size = arguments.to_string().len();
    if size > ARGUMENT_BYTES_MAX {
        let message = format!("arguments has {size} bytes, at most {ARGUMENT_BYTES_MAX} are allowed");
        return Err(Error::InvalidInput(message));
    }
    if json::is_deeper(arguments, ARGUMENT_DEPTH_MAX) {
        return Err(Error::InvalidInput(format!("arguments is nested deeper than {ARGUMENT_DEPTH_MAX} levels")));
    }
    Ok(())
}

/// Only what waits for a decision can be decided, or changed before it is.
fn check_pending(context: &SessionId, turn: &Turn, call: &ToolCall) -> Result<()> {
    if call.approval_status != ApprovalStatus::Pending {
        let (call, status) = (call.id.clone(), call.approval_status);
        return Err(Error::Conflict(Conflict::CallDecided { call, status }));
    }
    if turn.state != ContextState::AwaitingToolApproval {
        return Err(invalid_state(context, turn.state));
    }
    Ok(())
}

fn invalid_state(context: &SessionId, state: ContextState) -> Error {
    let (why, hint) = ("no call waits for approval", "look at GET /api/contexts/{id}/state");
    Error::InvalidState { context: context.clone(), state, why, hint }
}
