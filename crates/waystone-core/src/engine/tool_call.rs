//! Calls of tools, as people and clients see them: looked at, changed, answered. Which run unasked is in [`policy`], how the others are
//! decided about in [`decide`], how they are run in [`super::turn`].

mod decide;
mod policy;

use serde_json::Value;

use super::Engine;
use super::conversation::retry_of;
use super::turn::own::own_tools;
use super::turn::{TOOL_CALL_REQUESTED, plain_step};
use crate::api::{
    AnswerToolCall, ApprovalStatus, ChatConfig, ContentPart, ContextState, CreateContext, EditArguments, MessageType,
    Origin, RequestedCall, Role, ToolCall, ToolCallRequested, ToolList, ToolOutcome,
};
use crate::error::{Conflict, Error, Result};
use crate::id::{IdempotencyKey, SessionId, ToolCallId};
use crate::json;
use crate::offload::offload;
use crate::store::{MessageFacts, NewMessage, Scope, Step, Stepped, ToolChange, Turn};
use crate::tools::{TOOLS_MAX, ToolOutput, Toolbox};

pub use policy::{PolicyKind, ToolPolicy};

/// A call that has come to its end.
pub(super) struct Ended<'a> {
    pub(super) id: &'a ToolCallId,
    pub(super) tool: &'a str,
    /// Its arguments, if they are not the model's.
    pub(super) edited: Option<&'a Value>,
    /// The model that is told what came of it.
    pub(super) model: &'a str,
}

impl<'a> Ended<'a> {
    pub(super) fn of(call: &'a ToolCall, model: &'a str) -> Self {
        Self { id: &call.id, tool: &call.tool_name, edited: call.edited.then_some(&call.arguments), model }
    }
}

impl Engine {
    /// The tools that a conversation can call: those its client declared, those of its folder, those of tool servers.
    pub async fn list_tools(&self, scope: &Scope, context: &SessionId) -> Result<ToolList> {
        let config = self.store.find_turn(scope, context).await?.config;
        let Toolbox { tools, warnings } = self.tools_of(&config).await;
        Ok(ToolList { tools, warnings: warnings.into_iter().chain(self.warnings()).collect() })
    }

    /// The tools of a conversation that is begun so.
    pub async fn list_tools_for(&self, request: &CreateContext) -> ToolList {
        let Toolbox { tools, warnings } = self.tools_of(&request.config(&self.chat.model_id)).await;
        ToolList { tools, warnings: warnings.into_iter().chain(self.warnings()).collect() }
    }

    /// Of two with the same name the client's counts. There are no more than a model takes, our own beside them.
    pub(super) async fn tools_of(&self, config: &ChatConfig) -> Toolbox {
        let mut found = self.chat.tools.list(config.workspace_path.as_deref()).await;
        found.tools.retain(|tool| config.tools.iter().all(|declared| declared.name != tool.name));
        found.tools.splice(0..0, config.tools.iter().cloned());
        cut(&mut found);
        found
    }

    pub async fn find_tool_call(&self, scope: &Scope, context: &SessionId, id: &ToolCallId) -> Result<ToolCall> {
        let call = self.store.find_tool_call(scope, context, id).await?;
        Ok(ToolCall { warnings: self.warnings(), ..call })
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
                return match self.asked_before(scope, &turn, &step).await? {
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
            step.tell(TOOL_CALL_REQUESTED, &told);
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
            scan.value("/result", &looked);
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
        let near = self.nearly_full(scope, None).await;
        let warnings = warnings.into_iter().chain(near).chain(self.warnings()).collect();
        Ok(call.answered(request.result, outcome, warnings))
    }

    /// Adds to a step what came of a call, as a message.
    pub(super) async fn end_call(
        &self,
        step: &mut Step,
        call: Ended<'_>,
        output: ToolOutput,
        outcome: ToolOutcome,
    ) -> Result<()> {
        let Ended { id, tool, edited, model } = call;
        let (mut output, secrets, mut scan) = (output, self.secrets.clone(), self.scan());
        let max = self.limits.context_bytes_max;
        let write = move || {
            if let Some(cover) = secrets.kept() {
                cover.value(&mut output.content);
            }
            scan.value("/result", &output.content);
            let is_text = output.content.is_string();
            let text = match output.content {
                Value::String(text) => text,
                other => other.to_string(),
            };
            if text.len() as u64 > max {
                let why = format!("the result has {} bytes, at most {max} are kept", text.len());
                return (why, true, true, Vec::new());
            }
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
        let message = self.prepare_message(Role::User, kind, text, vec![part], Origin::Tool, facts).await?;
        let message = NewMessage { facts: self.expect_facts(model, message.facts), ..message };
        step.tools.push(ToolChange::End { id: id.clone(), outcome, message: message.id.clone() });
        step.tell_call((id, tool), outcome, Some(&message), warnings);
        step.messages.push(message);
        Ok(())
    }
}

/// Leaves out the last of too many, and says so.
fn cut(toolbox: &mut Toolbox) {
    let (count, most) = (toolbox.tools.len(), TOOLS_MAX - own_tools(&[]).count());
    if let Some(first) = toolbox.tools.get(most) {
        toolbox.warnings.push(format!(
            "there are {count} tools, and a model takes {most} besides ours: {} of them, `{}` and those after it, are left out; declare \
             fewer, or disable servers that are not needed",
            count - most,
            first.name
        ));
        toolbox.tools.truncate(most);
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
