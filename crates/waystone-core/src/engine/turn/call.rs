//! Tools that a model calls: which of the calls may be run, and running them.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value, json};
use tokio::task::JoinSet;

use super::ask::CALLS_MAX;
use super::own::is_own;
use super::run::{Live, Outcome, Stop, of_store, told_otherwise};
use super::stream::TOOL_CALL_REQUESTED;
use crate::api::{ApprovalStatus, ContentPart, RequestedCall, Tool, ToolCall, ToolCallRequested, ToolOutcome};
use crate::engine::Engine;
use crate::engine::tool_call::{Ended, check_arguments};
use crate::error::Error;
use crate::fsm::{self, TurnEvent};
use crate::id::{SessionId, ToolCallId};
use crate::model::Call;
use crate::store::{NewToolCall, OpenCall, Scope, Step, ToolChange};
use crate::tools::ToolOutput;

/// How long a tool may take, and all that run between two people's words.
const TOOL_MAX: Duration = Duration::from_secs(30);
const ROUNDS_TIME_MAX: Duration = Duration::from_secs(300);
const TOO_LATE_AGAIN: Duration = Duration::from_secs(1);
const ID_CHARS_MAX: usize = 100;
const NAME_CHARS_MAX: usize = 64;
const NAMED_MAX: usize = 40;

/// A call, and why it cannot be run, if it cannot.
pub(super) struct Judged {
    pub(super) new: NewToolCall,
    pub(super) refused: Option<String>,
}

impl Judged {
    pub(super) fn is_pending(&self) -> bool {
        self.new.status == ApprovalStatus::Pending
    }

    /// As it stands in the message.
    pub(super) fn part(&self) -> ContentPart {
        let NewToolCall { id, tool, arguments, .. } = &self.new;
        ContentPart::ToolCall { id: id.clone(), name: tool.clone(), arguments: arguments.clone() }
    }

    /// As it is told.
    pub(super) fn requested(&self) -> RequestedCall {
        let NewToolCall { id, tool, arguments, hash, status, is_by_client, .. } = self.new.clone();
        let (name, approval_status, by_client) = (tool, status, is_by_client);
        RequestedCall { id, name, arguments, approval_status, hash, by_client, outcome_unknown: false }
    }
}

/// Looks at what a model calls: each gets an id of its own, and is approved, left to someone to decide, or refused.
pub(super) async fn judge(live: &Live, calls: Vec<Call>) -> Outcome<Vec<Judged>> {
    let mut judged: Vec<Judged> = Vec::new();
    for mut call in calls {
        call.tool = clean(&call.tool, NAME_CHARS_MAX, "tool");
        let unbounded = check_arguments(&call.arguments).err();
        if unbounded.is_some() {
            call.arguments = json!({});
        }
        // What must not be kept is not kept as an id either, which is sealed nowhere.
        let is_secret = live.engine.secrets.kept().is_some_and(|cover| cover.text(&call.id).is_some());
        let id = free_id(live, if is_secret { "call" } else { &call.id }, &judged).await?;
        let tool = live.offered.iter().find(|tool| tool.name == call.tool);
        let is_over = live.called + judged.len() >= CALLS_MAX;
        let refused = match tool {
            _ if unbounded.is_some() => unbounded.map(|why| why.to_string()),
            None => Some(no_such_tool(&call.tool, &live.offered)),
            Some(_) if !call.arguments.is_object() => Some("the arguments are not a JSON object".to_owned()),
            Some(_) if is_over => Some(format!("not run: at most {CALLS_MAX} tools are called in a turn")),
            Some(_) => None,
        };
        let is_allowed = tool.is_some_and(|tool| live.engine.chat.policy.allows(tool) || is_own(tool));
        let status = match refused {
            Some(_) => ApprovalStatus::Denied,
            None if is_allowed => ApprovalStatus::Approved,
            None => ApprovalStatus::Pending,
        };
        let new = NewToolCall {
            id,
            hash: ToolCall::hash_of(&call.tool, &call.arguments),
            status,
            is_read_only: tool.is_some_and(|tool| tool.read_only),
            is_idempotent: tool.is_some_and(|tool| tool.idempotent),
            is_by_client: live.turn.config.tools.iter().any(|declared| declared.name == call.tool),
            tool: call.tool,
            arguments: call.arguments,
            workspace_path: live.turn.config.workspace_path.clone(),
        };
        judged.push(Judged { new, refused });
    }
    Ok(judged)
}

fn no_such_tool(name: &str, offered: &[Tool]) -> String {
    let names: Vec<&str> = offered.iter().map(|tool| tool.name.as_str()).take(NAMED_MAX).collect();
    match names.is_empty() {
        true => format!("there is no tool `{name}`: this conversation has none"),
        false => format!("there is no tool `{name}`; there are: {}", names.join(", ")),
    }
}

/// A name as every provider takes it back: others would refuse all that is said after it.
fn clean(name: &str, chars_max: usize, otherwise: &str) -> String {
    let allowed = |c: char| if c.is_ascii_alphanumeric() || c == '_' || c == '-' { c } else { '_' };
    let clean: String = name.chars().take(chars_max).map(allowed).collect();
    if clean.is_empty() { otherwise.to_owned() } else { clean }
}

/// The model's id, as far as it can be one and no other call has it.
async fn free_id(live: &Live, wanted: &str, judged: &[Judged]) -> Outcome<ToolCallId> {
    let base = clean(wanted, ID_CHARS_MAX, "call");
    let names = std::iter::once(base.clone()).chain((2_u64..).map(|number| format!("{base}-{number}")));
    for name in names {
        let Ok(id) = name.parse::<ToolCallId>() else { break };
        if live.call_ids.contains(&id) || judged.iter().any(|judged| judged.new.id == id) {
            continue;
        }
        match live.engine.store.find_tool_call(&live.scope, &live.context, &id).await {
            Ok(_) => {}
            Err(Error::ToolCallNotFound { .. }) => return Ok(id),
            Err(error) => return Err(of_store(&error)),
        }
    }
    Err(Stop::Moved)
}

/// It was begun by a process that is gone, and to begin it again could do it twice.
fn is_lost(open: &OpenCall) -> bool {
    let ToolCall { started_at, read_only, idempotent, by_client, .. } = &open.call;
    started_at.is_some() && !read_only && !idempotent && !by_client
}

/// What came of a call: `None` when it took too long.
type Done = (ToolCall, Option<ToolOutput>);

impl Live {
    /// Whether tools have run for so long that there is to be an end.
    pub(super) fn has_run_long(&self) -> bool {
        self.ran >= ROUNDS_TIME_MAX
    }

    async fn list_open(&self) -> Outcome<Vec<OpenCall>> {
        let open = self.engine.store.list_open_calls(&self.scope, &self.context).await;
        open.map_err(|error| of_store(&error))
    }

    /// Runs the tools that may be run, side by side, until each has a result.
    pub(super) async fn execute(&mut self) -> Outcome<()> {
        let open = self.list_open().await?;
        if open.iter().any(is_lost) {
            return self.ask_anew(open).await;
        }
        if open.is_empty() {
            return self.advance(TurnEvent::ResultsIn, None).await;
        }
        // Before it can have an effect it is known that it was to be run.
        let mut step = self.step(self.turn.state);
        step.tools = open.iter().map(|open| ToolChange::Start(open.call.id.clone())).collect();
        self.take(step).await?;
        let began = self.engine.clock.now();
        let done = self.run_all(open.into_iter().map(|open| open.call).collect()).await;
        let took = u64::try_from(self.engine.clock.now().ms() - began.ms()).unwrap_or_default();
        self.ran += Duration::from_millis(took);
        done
    }

    async fn run_all(&mut self, calls: Vec<ToolCall>) -> Outcome<()> {
        let (mut waiting, running): (Vec<_>, Vec<_>) = calls.into_iter().partition(|call| call.by_client);
        let mut left = waiting.len() + running.len();
        let mut tasks: JoinSet<Done> = JoinSet::new();
        for call in running {
            tasks.spawn(run_one(self.engine.clone(), self.scope.clone(), self.context.clone(), call));
        }
        let mut signal = self.signal.clone();
        let mut changes = self.engine.store.watch_events();
        let clock = Arc::clone(&self.engine.clock);
        let rest = ROUNDS_TIME_MAX.saturating_sub(self.ran).max(TOOL_MAX);
        let mut too_late: Pin<Box<dyn Future<Output = ()> + Send>> = Box::pin(async move { clock.sleep(rest).await });
        loop {
            // Looked at first: an answer may be there from before, and someone may have ended the turn elsewhere.
            changes.mark_unchanged();
            let now =
                self.engine.store.find_turn(&self.scope, &self.context).await.map_err(|error| of_store(&error))?;
            if now.run != self.turn.run {
                return Err(Stop::Moved);
            }
            if !waiting.is_empty() {
                for OpenCall { call, answer } in self.list_open().await? {
                    let Some(answer) = answer.filter(|_| waiting.iter().any(|waits| waits.id == call.id)) else {
                        continue;
                    };
                    waiting.retain(|waits| waits.id != call.id);
                    left -= 1;
                    self.finish(call, Some(answer), left == 0).await?;
                }
            }
            if left == 0 {
                return Ok(());
            }
            tokio::select! {
                signal = told_otherwise(&mut signal) => return Err(Stop::Signal(signal)),
                Some(done) = tasks.join_next() => {
                    // One that broke has no result; whoever goes on finds that it was begun.
                    let Ok((call, output)) = done else { return Err(Stop::Moved) };
                    left -= 1;
                    self.finish(call, output, left == 0).await?;
                }
                changed = changes.changed() => changed.map_err(|_| Stop::Moved)?,
                () = &mut too_late, if !waiting.is_empty() => {
                    for call in std::mem::take(&mut waiting) {
                        match self.finish(call.clone(), None, left == 1).await {
                            // It was answered at the same moment, or someone else has the turn: that is looked at next.
                            Err(Stop::Moved) => waiting.push(call),
                            done => {
                                done?;
                                left -= 1;
                            }
                        }
                    }
                    let clock = Arc::clone(&self.engine.clock);
                    too_late = Box::pin(async move { clock.sleep(TOO_LATE_AGAIN).await });
                }
            }
        }
    }

    /// Keeps what came of a call. After the last one the model is asked again.
    async fn finish(&mut self, call: ToolCall, output: Option<ToolOutput>, is_last: bool) -> Outcome<()> {
        let (output, outcome) = match output {
            Some(output) if output.is_error => (output, ToolOutcome::Failed),
            Some(output) => (output, ToolOutcome::Succeeded),
            None => (ToolOutput::error("there was no result in time"), ToolOutcome::TimedOut),
        };
        let (is_error, bytes_max) = (output.is_error, self.engine.limits.total_bytes_max);
        match self.end_call(&call, output, outcome, is_last, bytes_max).await {
            // That it has run is kept whatever there is room for.
            Err(Stop::Failed(error)) if error.error.code == Error::QUOTA_EXCEEDED => {
                let content = format!("it has run, and what it returned is not kept: {}", error.error.message).into();
                self.end_call(&call, ToolOutput { content, is_error }, outcome, is_last, u64::MAX).await
            }
            done => done,
        }
    }

    async fn end_call(
        &mut self,
        call: &ToolCall,
        output: ToolOutput,
        outcome: ToolOutcome,
        is_last: bool,
        total_bytes_max: u64,
    ) -> Outcome<()> {
        let to = match is_last {
            true => fsm::next(self.turn.state, TurnEvent::ResultsIn).ok_or(Stop::Moved)?,
            false => self.turn.state,
        };
        let mut step = Step { total_bytes_max, ..self.step(to) };
        step.operation = Some("message.added");
        let ended = Ended::of(call, &self.turn.config.model_id);
        let ended = self.engine.end_call(&mut step, ended, output, outcome).await;
        ended.map_err(|error| of_store(&error))?;
        if is_last {
            step.tell_state(to);
        }
        self.take(step).await
    }

    /// Someone has to say whether what was begun and never ended is to be begun again.
    async fn ask_anew(&mut self, open: Vec<OpenCall>) -> Outcome<()> {
        let to = fsm::next(self.turn.state, TurnEvent::ApprovalWanted).ok_or(Stop::Moved)?;
        let mut step = self.step(to);
        let lost: Vec<ToolCall> = open.into_iter().filter(is_lost).map(|open| open.call).collect();
        step.tools = lost.iter().map(|call| ToolChange::Ask(call.id.clone())).collect();
        let tool_calls = lost.into_iter().map(|call| RequestedCall {
            id: call.id,
            name: call.tool_name,
            arguments: call.arguments,
            approval_status: ApprovalStatus::Pending,
            hash: ToolCall::asked_hash(&call.hash, call.started_at),
            by_client: false,
            outcome_unknown: true,
        });
        let told = ToolCallRequested { context_id: self.context.clone(), tool_calls: tool_calls.collect() };
        step.tell(TOOL_CALL_REQUESTED, &told);
        step.tell_state(to);
        self.take(step).await
    }
}

async fn run_one(engine: Engine, scope: Scope, context: SessionId, call: ToolCall) -> Done {
    let empty = Map::new();
    let arguments = match &call.arguments {
        Value::Object(arguments) => arguments,
        _ => &empty,
    };
    // What was approved is this and nothing else.
    if ToolCall::hash_of(&call.tool_name, &call.arguments) != call.hash {
        return (call, Some(ToolOutput::error("not run: what was approved is not what was to be run")));
    }
    let run = async {
        match engine.call_own(&scope, &context, &call.tool_name, arguments).await {
            Some(output) => output,
            // Where it was to run when it was looked at, wherever the conversation works now.
            None => engine.chat.tools.call(call.workspace_path.as_deref(), &call.tool_name, arguments).await,
        }
    };
    let output = tokio::select! {
        output = run => Some(output),
        () = engine.clock.sleep(TOOL_MAX) => None,
    };
    (call, output)
}
