//! Calls of tools: what runs unasked, what waits, what the model is told, and what happens when a process dies in between.

mod bound;

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Map, Value, json};
use tokio::sync::Notify;
use waystone_core::api::{
    ApprovalStatus, ContextState, DecideTools, EditArguments, MessageType, Role, Tool, ToolCall, ToolOutcome,
};
use waystone_core::id::SessionId;
use waystone_core::tools::{ToolOutput, Toolbox, Tools};
use waystone_core::{Chat, Engine, Error, PolicyKind, Reader, ToolPolicy};
use waystone_testkit::audit;
use waystone_testkit::model::Reply;

use super::{Talk, states, told, until_state};

/// Tools with an effect that can be seen: `note` adds a line to a file, `look` reads it, `wait` never returns.
struct Notes {
    file: PathBuf,
    /// Whether `note` waits before it returns, and whether someone waits.
    is_slow: AtomicBool,
    is_begun: Notify,
    /// The folder of each call.
    folders: Mutex<Vec<Option<String>>>,
}

#[async_trait::async_trait]
impl Tools for Notes {
    async fn list(&self, _: Option<&str>) -> Toolbox {
        let tool = |name: &str, read_only: bool| Tool {
            name: name.to_owned(),
            description: String::new(),
            input_schema: Map::new(),
            read_only,
            idempotent: false,
        };
        let tools = vec![tool("note", false), tool("look", true), tool("wait", true)];
        Toolbox { tools, warnings: Vec::new() }
    }

    async fn call(&self, folder: Option<&str>, tool: &str, arguments: &Map<String, Value>) -> ToolOutput {
        self.folders.lock().unwrap().push(folder.map(str::to_owned));
        let before = std::fs::read_to_string(&self.file).unwrap_or_default();
        match tool {
            "look" => ToolOutput::text(before),
            "note" => {
                let line = arguments.get("line").and_then(Value::as_str).unwrap_or("?");
                std::fs::write(&self.file, format!("{before}{line}\n")).unwrap();
                self.is_begun.notify_one();
                if self.is_slow.load(Ordering::Acquire) {
                    std::future::pending::<()>().await;
                }
                ToolOutput { content: json!({ "lines": before.lines().count() + 1 }), is_error: false }
            }
            _ => {
                self.is_begun.notify_one();
                std::future::pending().await
            }
        }
    }
}

struct Bench {
    t: Talk,
    notes: Arc<Notes>,
    policy: ToolPolicy,
    _folder: tempfile::TempDir,
}

impl Bench {
    async fn new() -> Self {
        Self::with(ToolPolicy::default()).await
    }

    async fn with(policy: ToolPolicy) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let (is_slow, is_begun) = (AtomicBool::new(false), Notify::new());
        let (file, folders) = (folder.path().join("notes"), Mutex::default());
        let notes = Arc::new(Notes { file, is_slow, is_begun, folders });
        let mut bench = Self { t: Talk::new().await, notes, policy, _folder: folder };
        bench.t.h.engine = bench.equip(bench.t.h.engine.clone());
        bench
    }

    fn equip(&self, engine: Engine) -> Engine {
        let chat = self.t.chat();
        engine.with_chat(Chat { tools: self.notes.clone(), policy: self.policy.clone(), ..chat })
    }

    async fn restart(&mut self) {
        self.t.restart().await;
        self.t.h.engine = self.equip(self.t.h.engine.clone());
    }

    fn notes(&self) -> String {
        std::fs::read_to_string(&self.notes.file).unwrap_or_default()
    }

    /// Says something, and waits until the turn has ended or someone has to decide.
    async fn say(&self, id: &SessionId, content: &str) -> Vec<String> {
        let mut reader = self.t.follow(id, None).await;
        self.t.try_say(id, json!({ "content": content })).await.unwrap();
        states(&until_rest(&mut reader).await)
    }

    async fn call(&self, id: &SessionId, call: &str) -> ToolCall {
        self.t.h.engine.find_tool_call(&self.t.h.scope, id, &call.parse().unwrap()).await.unwrap()
    }

    async fn approve(&self, id: &SessionId, calls: &[&str]) -> Result<ContextState, Error> {
        let decided = self.t.h.engine.approve_tools(&self.t.h.scope, id, of(calls)).await?;
        assert_eq!((decided.approved_count, decided.denied_count), (Some(calls.len()), None));
        Ok(decided.context_state)
    }

    async fn deny(&self, id: &SessionId, calls: &[&str]) -> Result<ContextState, Error> {
        let request = DecideTools { reason: Some("not now".to_owned()), ..of(calls) };
        let decided = self.t.h.engine.deny_tools(&self.t.h.scope, id, request).await?;
        assert_eq!((decided.approved_count, decided.denied_count), (None, Some(calls.len())));
        Ok(decided.context_state)
    }

    /// The last message of each request to the model, from the second on.
    fn answered(&self) -> Vec<Value> {
        let requests = self.t.fake.requests();
        let last = |body: &Value| body["messages"].as_array().unwrap().last().unwrap().clone();
        requests.iter().skip(1).map(last).collect()
    }

    async fn check(&self, id: &SessionId) {
        self.t.h.check_invariants().await;
        check_pairs(&self.t.fake.requests());
        assert!(!self.t.state(id).await.current_state.is_driven());
    }
}

/// Every call that a model is shown is followed by its result, and every result stands after its call.
fn check_pairs(requests: &[Value]) {
    for body in requests {
        let mut open: Vec<String> = Vec::new();
        for message in body["messages"].as_array().unwrap() {
            if message["role"] == "tool" {
                let id = message["tool_call_id"].as_str().unwrap();
                let at =
                    open.iter().position(|open| open == id).unwrap_or_else(|| panic!("{id} was not called: {body}"));
                open.remove(at);
            } else {
                assert!(open.is_empty(), "{open:?} have no results: {body}");
                let calls = message["tool_calls"].as_array().into_iter().flatten();
                open = calls.map(|call| call["id"].as_str().unwrap().to_owned()).collect();
            }
        }
        assert!(open.is_empty(), "{open:?} have no results: {body}");
    }
}

fn of(calls: &[&str]) -> DecideTools {
    DecideTools {
        tool_call_ids: calls.iter().map(|id| id.parse().unwrap()).collect(),
        hashes: Default::default(),
        reason: None,
        idempotency_key: None,
    }
}

async fn until_rest(reader: &mut Reader) -> Vec<Arc<waystone_core::Frame>> {
    until_state(reader, |state| matches!(state, "Idle" | "PermanentFailure" | "AwaitingToolApproval")).await
}

fn note(line: &str) -> (&'static str, Value) {
    ("note", json!({ "line": line }))
}

#[tokio::test(flavor = "multi_thread")]
async fn what_only_reads_runs_unasked_and_the_model_gets_what_it_returned() {
    let b = Bench::new().await;
    std::fs::write(&b.notes.file, "milk").unwrap();
    b.t.fake.then(Reply::text("Let me look.").tool_calls([("look", json!({}))])).then(Reply::text("There is milk."));
    let id = b.t.begin().await;
    let states = b.say(&id, "What is there?").await;
    let through = [
        "ProcessingUserMessage",
        "AwaitingLLMResponse",
        "StreamingLLMResponse",
        "ProcessingLLMResponse",
        "ExecutingTools",
        "AwaitingLLMResponse",
        "StreamingLLMResponse",
        "ProcessingLLMResponse",
        "Idle",
    ];
    assert_eq!(states, through);
    let messages = b.t.messages(&id, None).await;
    let kinds: Vec<_> = messages.iter().map(|message| (message.role, message.message_type)).collect();
    let expected = [
        (Role::User, MessageType::Text),
        (Role::Assistant, MessageType::ToolCall),
        (Role::User, MessageType::ToolResult),
        (Role::Assistant, MessageType::Text),
    ];
    assert_eq!(kinds, expected);
    let parts = json!(messages[1].content);
    assert_eq!(parts[0], json!({ "type": "text", "text": "Let me look." }));
    assert_eq!((&parts[1]["type"], &parts[1]["name"]), (&json!("tool_call"), &json!("look")));
    let result = &json!(messages[2].content)[0];
    assert_eq!((&result["type"], &result["content"]), (&json!("tool_result"), &json!("milk")));
    assert_eq!((b.answered()[0]["role"].as_str(), b.answered()[0]["content"].as_str()), (Some("tool"), Some("milk")));
    let call = b.call(&id, parts[1]["id"].as_str().unwrap()).await;
    assert_eq!((call.approval_status, call.outcome), (ApprovalStatus::Approved, Some(ToolOutcome::Succeeded)));
    assert_eq!((call.result, call.result_message_id.as_ref()), (Some(json!("milk")), Some(&messages[2].id)));
    assert_eq!(messages[2].metadata.origin, waystone_core::api::Origin::Tool);
    b.check(&id).await;
}

/// A conversation in which a call of `note` waits for approval; its id, and the call's.
async fn waiting(b: &Bench) -> (SessionId, String) {
    b.t.fake.then(Reply::calls([note("eggs")])).then(Reply::text("Done."));
    let id = b.t.begin().await;
    assert_eq!(b.say(&id, "Note eggs.").await.last().unwrap(), "AwaitingToolApproval");
    let state = b.t.state(&id).await;
    assert_eq!((state.pending_tool_approvals, state.can_send_message), (1, false));
    let call = state.pending_tool_calls[0].id.to_string();
    (id, call)
}

#[tokio::test(flavor = "multi_thread")]
async fn what_changes_something_waits_for_approval_and_survives_a_restart() {
    let mut b = Bench::new().await;
    let (id, call) = waiting(&b).await;
    assert_eq!(b.notes(), "", "nothing runs before it is approved");
    b.restart().await;
    assert_eq!(b.t.h.engine.adopt_turns(&b.t.h.scope).await.unwrap(), 0, "it needs no process");
    let pending = &b.t.state(&id).await.pending_tool_calls;
    assert_eq!((pending[0].arguments.clone(), pending[0].outcome), (json!({ "line": "eggs" }), None));
    let mut reader = b.t.follow(&id, None).await;
    assert_eq!(b.approve(&id, &[&call]).await, Ok(ContextState::ExecutingTools));
    let frames = until_rest(&mut reader).await;
    assert_eq!(states(&frames)[..2], ["ExecutingTools", "AwaitingLLMResponse"]);
    assert!(told(&frames).iter().any(|(kind, data)| kind == "ToolCallCompleted" && data["outcome"] == "succeeded"));
    assert_eq!((b.notes().as_str(), b.call(&id, &call).await.result), ("eggs\n", Some(json!({ "lines": 1 }))));
    let again = b.approve(&id, &[&call]).await.unwrap_err();
    assert_eq!((again.code(), b.deny(&id, &[&call]).await.unwrap_err().code()), ("CONFLICT", "CONFLICT"));
    assert_eq!(b.notes(), "eggs\n");
    b.check(&id).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_denial_is_told_to_the_model_and_nothing_runs() {
    let b = Bench::new().await;
    let (id, call) = waiting(&b).await;
    let mut reader = b.t.follow(&id, None).await;
    assert_eq!(b.deny(&id, &[&call]).await, Ok(ContextState::AwaitingLLMResponse));
    until_rest(&mut reader).await;
    assert_eq!(b.notes(), "");
    assert!(b.answered()[0]["content"].as_str().unwrap().contains("denied this call: not now"));
    let denied = b.call(&id, &call).await;
    assert_eq!((denied.approval_status, denied.outcome), (ApprovalStatus::Denied, Some(ToolOutcome::Denied)));
    b.check(&id).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn of_parallel_calls_each_is_decided_and_answered_by_itself() {
    let b = Bench::new().await;
    b.t.fake.then(Reply::calls([note("one"), ("look", json!({})), note("two")])).then(Reply::text("Done."));
    let id = b.t.begin().await;
    b.say(&id, "Note both.").await;
    let pending = b.t.state(&id).await.pending_tool_calls;
    let (one, two) = (pending[0].id.to_string(), pending[1].id.to_string());
    assert_eq!(pending.len(), 2, "what reads does not wait to be decided");
    assert_eq!(b.deny(&id, &[&one]).await, Ok(ContextState::AwaitingToolApproval));
    assert_eq!(b.notes(), "");
    let mut reader = b.t.follow(&id, None).await;
    assert_eq!(b.approve(&id, &[&two]).await, Ok(ContextState::ExecutingTools));
    until_rest(&mut reader).await;
    assert_eq!(b.notes(), "two\n");
    assert_eq!(b.t.messages(&id, None).await.len(), 6, "one calls, three return");
    b.check(&id).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_approved_is_what_was_looked_at() {
    let b = Bench::new().await;
    let (id, call) = waiting(&b).await;
    let seen = b.call(&id, &call).await.hash;
    let request = EditArguments { arguments: Map::from_iter([("line".to_owned(), json!("bread"))]) };
    let call_id = call.parse().unwrap();
    let edited = b.t.h.engine.edit_arguments(&b.t.h.scope, &id, &call_id, request.clone(), None).await.unwrap();
    assert_ne!(edited.hash, seen);
    let old = DecideTools { hashes: [(call.clone(), seen)].into(), ..of(&[&call]) };
    let refused = b.t.h.engine.approve_tools(&b.t.h.scope, &id, old).await.unwrap_err();
    assert_eq!((refused.code(), b.notes().as_str()), ("CONFLICT", ""));
    let mut reader = b.t.follow(&id, None).await;
    let new = DecideTools { hashes: [(call.clone(), edited.hash)].into(), ..of(&[&call]) };
    b.t.h.engine.approve_tools(&b.t.h.scope, &id, new).await.unwrap();
    until_rest(&mut reader).await;
    assert_eq!(b.notes(), "bread\n");
    let told = b.answered()[0]["content"].as_str().unwrap().to_owned();
    assert!(told.starts_with("[the user changed the arguments to {\"line\":\"bread\"}]\n"), "{told}");
    let late = b.t.h.engine.edit_arguments(&b.t.h.scope, &id, &call_id, request, None).await.unwrap_err();
    assert_eq!(late.code(), "CONFLICT", "what is approved cannot be changed");
    b.check(&id).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn of_two_who_approve_at_once_one_is_refused_and_the_tool_runs_once() {
    let b = Bench::new().await;
    let (id, call) = waiting(&b).await;
    let other = b.equip(b.t.h.second());
    let mut reader = b.t.follow(&id, None).await;
    let calls = [call.as_str()];
    let (first, second) = tokio::join!(b.approve(&id, &calls), other.approve_tools(&b.t.h.scope, &id, of(&calls)));
    assert!(first.is_ok() != second.is_ok(), "{first:?} {second:?}");
    until_rest(&mut reader).await;
    assert_eq!(b.notes(), "eggs\n");
    b.check(&id).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_approval_with_a_key_is_answered_twice_and_taken_once() {
    let b = Bench::new().await;
    let (id, call) = waiting(&b).await;
    let mut reader = b.t.follow(&id, None).await;
    let request = DecideTools { idempotency_key: Some("once".parse().unwrap()), ..of(&[&call]) };
    let first = b.t.h.engine.approve_tools(&b.t.h.scope, &id, request.clone()).await.unwrap();
    until_rest(&mut reader).await;
    let again = b.t.h.engine.approve_tools(&b.t.h.scope, &id, request).await.unwrap();
    assert_eq!((again, b.notes().as_str()), (first, "eggs\n"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_answers_calls_of_the_tools_that_it_declared() {
    let b = Bench::new().await;
    let declared = json!([{ "name": "weather", "read_only": true }]);
    let id = b.t.create(json!({ "tools": declared })).await.id;
    b.t.fake.then(Reply::calls([("weather", json!({ "location": "London" }))])).then(Reply::text("Cloudy."));
    let mut reader = b.t.follow(&id, None).await;
    b.t.try_say(&id, json!({ "content": "How is the weather?" })).await.unwrap();
    let frames = until_state(&mut reader, |state| state == "ExecutingTools").await;
    let requested = told(&frames).into_iter().find(|(kind, _)| kind == "ToolCallRequested").unwrap().1;
    assert_eq!(requested["tool_calls"][0]["by_client"], true);
    let call = requested["tool_calls"][0]["id"].as_str().unwrap().parse().unwrap();
    let answer = |result: Value| serde_json::from_value(json!({ "result": result })).unwrap();
    let (engine, scope) = (&b.t.h.engine, &b.t.h.scope);
    let result = json!({ "temperature": 15, "condition": "Cloudy" });
    engine.answer_tool_call(scope, &id, &call, answer(result.clone()), None).await.unwrap();
    until_rest(&mut reader).await;
    let call = b.call(&id, call.as_str()).await;
    assert_eq!((call.result, call.outcome), (Some(result.clone()), Some(ToolOutcome::Succeeded)));
    assert_eq!(b.answered()[0]["content"], result.to_string());
    let again = engine.answer_tool_call(scope, &id, &call.id, answer(json!("other")), None).await.unwrap_err();
    assert_eq!(again.code(), "CONFLICT");
    b.check(&id).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_of_a_client_is_not_lost_when_the_process_dies() {
    let mut b = Bench::new().await;
    let id = b.t.create(json!({ "tools": [{ "name": "weather", "read_only": true }] })).await.id;
    b.t.fake.then(Reply::calls([("weather", json!({}))])).then(Reply::text("Fine."));
    let mut reader = b.t.follow(&id, None).await;
    b.t.try_say(&id, json!({ "content": "?" })).await.unwrap();
    until_state(&mut reader, |state| state == "ExecutingTools").await;
    b.restart().await;
    let call = b.t.h.engine.find_context(&b.t.h.scope, &id, serde_json::from_value(json!({})).unwrap()).await.unwrap();
    let pool = json!(call.message_pool);
    let call =
        pool.as_object().unwrap().values().find_map(|node| node["message"]["content"][0]["id"].as_str()).unwrap();
    let answer = serde_json::from_value(json!({ "result": "sun" })).unwrap();
    b.t.h.engine.answer_tool_call(&b.t.h.scope, &id, &call.parse().unwrap(), answer, None).await.unwrap();
    let mut reader = b.t.follow(&id, None).await;
    assert_eq!(b.t.h.engine.adopt_turns(&b.t.h.scope).await.unwrap(), 1);
    until_rest(&mut reader).await;
    assert_eq!(b.call(&id, call).await.result, Some(json!("sun")));
    b.check(&id).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_run_is_told_to_the_model_and_asks_nobody() {
    let b = Bench::new().await;
    b.t.fake.then(Reply::calls([("nothing", json!({}))])).then(Reply::text("I see."));
    let id = b.t.begin().await;
    let states = b.say(&id, "Go.").await;
    assert!(!states.iter().any(|state| state == "ExecutingTools" || state == "AwaitingToolApproval"), "{states:?}");
    let told = b.answered()[0]["content"].as_str().unwrap().to_owned();
    assert_eq!(told, "there is no tool `nothing`; there are: note, look, wait");
    b.check(&id).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_model_that_calls_without_end_is_asked_for_words() {
    let b = Bench::new().await;
    b.t.fake.otherwise(Reply::text("More.").tool_calls([("look", json!({}))]));
    let id = b.t.begin().await;
    assert_eq!(b.say(&id, "Look for ever.").await.last().unwrap(), "Idle");
    let requests = b.t.fake.requests();
    assert_eq!(requests.len(), 6, "five rounds, and once more");
    assert_eq!(requests[5]["tool_choice"], "none");
    assert!(requests[..5].iter().all(|body| body["tool_choice"] != "none"));
    let last = b.t.messages(&id, None).await.pop().unwrap();
    assert_eq!((last.message_type, last.text().as_str()), (MessageType::Text, "More."));
    b.check(&id).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn of_very_many_calls_twenty_run_and_the_others_are_refused() {
    let b = Bench::new().await;
    b.t.fake.then(Reply::calls((0..25).map(|_| ("look", json!({}))))).then(Reply::text("Done."));
    let id = b.t.begin().await;
    b.say(&id, "Look often.").await;
    let results = b.t.texts(&id, None).await;
    let refused = results.iter().filter(|text| text.contains("at most 20 tools are called in a turn")).count();
    assert_eq!((refused, results.len()), (5, 1 + 1 + 25 + 1));
    b.check(&id).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tool_that_takes_too_long_is_given_up_and_the_model_is_told() {
    let b = Bench::new().await;
    b.t.fake.then(Reply::calls([("wait", json!({}))])).then(Reply::text("Never mind."));
    let id = b.t.begin().await;
    let mut reader = b.t.follow(&id, None).await;
    b.t.try_say(&id, json!({ "content": "Wait." })).await.unwrap();
    b.notes.is_begun.notified().await;
    let time = b.t.tick();
    let frames = until_rest(&mut reader).await;
    time.abort();
    assert!(told(&frames).iter().any(|(_, data)| data["outcome"] == "timed_out"));
    assert_eq!(b.answered()[0]["content"], "there was no result in time");
    b.check(&id).await;
}

/// A conversation whose call of `note` was begun by a process that is gone.
async fn begun(b: &mut Bench) -> (SessionId, String, String) {
    let (id, call) = waiting(b).await;
    let before = b.call(&id, &call).await.hash;
    b.notes.is_slow.store(true, Ordering::Release);
    b.approve(&id, &[&call]).await.unwrap();
    b.notes.is_begun.notified().await;
    b.restart().await;
    b.notes.is_slow.store(false, Ordering::Release);
    let mut reader = b.t.follow(&id, None).await;
    assert_eq!(b.t.h.engine.adopt_turns(&b.t.h.scope).await.unwrap(), 1);
    assert_eq!(states(&until_rest(&mut reader).await).last().unwrap(), "AwaitingToolApproval");
    assert_eq!(b.notes(), "eggs\n", "it is not begun again unasked");
    let pending = b.t.state(&id).await.pending_tool_calls;
    assert_eq!(pending[0].outcome, Some(ToolOutcome::OutcomeUnknown));
    (id, call, before)
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_begun_and_never_ended_runs_again_only_if_someone_says_so() {
    let mut b = Bench::new().await;
    let (id, call, before) = begun(&mut b).await;
    let mut reader = b.t.follow(&id, None).await;
    // An approval from before it was begun, which comes again, is not meant for this.
    let old = DecideTools { hashes: [(call.clone(), before)].into(), ..of(&[&call]) };
    let refused = b.t.h.engine.approve_tools(&b.t.h.scope, &id, old).await.unwrap_err();
    assert_eq!((refused.code(), b.approve(&id, &[&call]).await.unwrap_err().code()), ("CONFLICT", "CONFLICT"));
    let seen = b.call(&id, &call).await.hash;
    let new = DecideTools { hashes: [(call.clone(), seen)].into(), ..of(&[&call]) };
    b.t.h.engine.approve_tools(&b.t.h.scope, &id, new).await.unwrap();
    until_rest(&mut reader).await;
    assert_eq!((b.notes().as_str(), b.call(&id, &call).await.outcome), ("eggs\neggs\n", Some(ToolOutcome::Succeeded)));
    b.check(&id).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_begun_and_is_not_to_run_again_is_told_as_that() {
    let mut b = Bench::new().await;
    let (id, call, _) = begun(&mut b).await;
    let mut reader = b.t.follow(&id, None).await;
    b.deny(&id, &[&call]).await.unwrap();
    until_rest(&mut reader).await;
    assert!(b.answered()[0]["content"].as_str().unwrap().contains("begun once before"), "{:?}", b.answered());
    assert_eq!(b.notes(), "eggs\n");
    b.check(&id).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_only_reads_is_begun_again_by_the_next_process() {
    let mut b = Bench::new().await;
    b.t.fake.then(Reply::calls([("wait", json!({})), ("look", json!({}))])).then(Reply::text("Done."));
    let id = b.t.begin().await;
    b.t.try_say(&id, json!({ "content": "Go." })).await.unwrap();
    b.notes.is_begun.notified().await;
    b.restart().await;
    let mut reader = b.t.follow(&id, None).await;
    assert_eq!(b.t.h.engine.adopt_turns(&b.t.h.scope).await.unwrap(), 1);
    b.notes.is_begun.notified().await;
    let time = b.t.tick();
    until_rest(&mut reader).await;
    time.abort();
    assert_eq!(b.t.messages(&id, None).await.len(), 5, "one result for each call");
    b.check(&id).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_turn_that_waits_or_runs_tools_can_be_ended() {
    let b = Bench::new().await;
    let (id, call) = waiting(&b).await;
    let mut reader = b.t.follow(&id, None).await;
    b.t.h.engine.cancel_turn(&b.t.h.scope, &id, None).await.unwrap();
    let frames = until_rest(&mut reader).await;
    assert!(told(&frames).iter().any(|(kind, data)| kind == "ToolCallCompleted" && data["outcome"] == "cancelled"));
    assert_eq!(b.call(&id, &call).await.outcome, Some(ToolOutcome::Cancelled));
    assert_eq!(b.approve(&id, &[&call]).await.unwrap_err().code(), "INVALID_STATE");
    b.say(&id, "Leave it.").await;
    b.t.fake.then(Reply::calls([("wait", json!({}))]));
    b.t.try_say(&id, json!({ "content": "Wait." })).await.unwrap();
    b.notes.is_begun.notified().await;
    let ended = b.t.h.engine.cancel_turn(&b.t.h.scope, &id, None).await.unwrap();
    assert_eq!(ended.context_state, ContextState::Idle);
    b.say(&id, "Go on.").await;
    assert_eq!(b.notes(), "");
    b.check(&id).await;
}

/// What a model says is under its name; who ends its turn is another.
#[tokio::test(flavor = "multi_thread")]
async fn a_turn_that_runs_tools_is_ended_by_who_said_so_and_sent_again_that_ends_no_other() {
    let b = Bench::new().await;
    let id = b.t.begin().await;
    b.t.fake.then(Reply::calls([("wait", json!({}))])).then(Reply::chunks(["later ", "on"]).gated());
    b.t.try_say(&id, json!({ "content": "Wait." })).await.unwrap();
    b.notes.is_begun.notified().await;
    let cancel = async || b.t.h.engine.cancel_turn(&b.t.h.scope, &id, Some("once".parse().unwrap())).await.unwrap();
    assert_eq!(cancel().await.context_state, ContextState::Idle);
    let sql = "SELECT actor FROM operation WHERE kind = 'turn.cancelled'";
    let actor: String = audit::open(b.t.h.data_dir()).query_row(sql, [], |row| row.get(0)).unwrap();
    assert_eq!(actor, b.t.h.scope.actor);
    let mut reader = b.t.follow(&id, None).await;
    b.t.try_say(&id, json!({ "content": "Go on." })).await.unwrap();
    assert_eq!(cancel().await.context_state, ContextState::Idle);
    assert!(b.t.state(&id).await.current_state.is_running(), "it is another turn");
    b.t.fake.release(2);
    until_rest(&mut reader).await;
    assert_eq!(b.t.texts(&id, None).await.pop().as_deref(), Some("later on"));
    b.check(&id).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_turn_is_ended_though_someone_decides_about_it_at_the_same_moment() {
    for _ in 0..8 {
        let b = Bench::new().await;
        let (id, call) = waiting(&b).await;
        let calls = [call.as_str()];
        let (ended, decided) = tokio::join!(b.t.h.engine.cancel_turn(&b.t.h.scope, &id, None), b.approve(&id, &calls));
        // It may have come to its end by itself, but it does not go on.
        match ended {
            Ok(ended) => assert_eq!(ended.context_state, ContextState::Idle),
            Err(Error::InvalidState { state, .. }) => assert!(!state.is_running(), "{state:?} {decided:?}"),
            Err(error) => panic!("{error}"),
        }
        b.check(&id).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_copy_of_a_conversation_calls_under_ids_that_are_new_in_it() {
    let b = Bench::new().await;
    b.t.fake.otherwise(Reply::calls([("look", json!({}))]).after_results(Reply::text("Done.")));
    let first = b.t.begin().await;
    b.say(&first, "Look.").await;
    let copy = b.t.create(json!({ "parent_id": first })).await.id;
    b.say(&copy, "Look again.").await;
    let sent = b.t.fake.requests().pop().unwrap();
    let messages = sent["messages"].as_array().unwrap().iter();
    let ids: Vec<&Value> = messages.filter_map(|message| Some(&message.get("tool_calls")?[0]["id"])).collect();
    assert_eq!(ids, ["call_0", "call_0-2"], "{sent}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_nobody_decides_about_expires() {
    let policy = ToolPolicy { approval_max: Some(Duration::from_secs(60)), ..ToolPolicy::default() };
    let b = Bench::with(policy).await;
    let (id, call) = waiting(&b).await;
    assert_eq!(b.t.h.engine.expire_tools(&b.t.h.scope).await.unwrap(), 0);
    b.t.h.clock.advance_ms(61_000);
    let mut reader = b.t.follow(&id, None).await;
    assert_eq!(b.t.h.engine.expire_tools(&b.t.h.scope).await.unwrap(), 1);
    until_rest(&mut reader).await;
    let expired = b.call(&id, &call).await;
    assert_eq!((expired.approval_status, expired.outcome), (ApprovalStatus::Expired, Some(ToolOutcome::Expired)));
    assert_eq!(b.approve(&id, &[&call]).await.unwrap_err().code(), "CONFLICT");
    assert_eq!(b.notes(), "");
    b.check(&id).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_policy_says_what_runs_unasked() {
    let check = async |kind: PolicyKind, allowed: &[&str], asked: usize| {
        let allowed = allowed.iter().map(|name| (*name).to_owned()).collect();
        let b = Bench::with(ToolPolicy { kind, allowed, approval_max: None }).await;
        b.t.fake.then(Reply::calls([("look", json!({})), note("x")])).then(Reply::text("Done."));
        let id = b.t.begin().await;
        b.say(&id, "Go.").await;
        assert_eq!(b.t.state(&id).await.pending_tool_calls.len(), asked, "{kind:?}");
    };
    check(PolicyKind::Manual, &["note"], 2).await;
    check(PolicyKind::AllowList, &["note"], 1).await;
    check(PolicyKind::AllowList, &["no*", "look"], 0).await;
    check(PolicyKind::Auto, &[], 1).await;
    check(PolicyKind::Auto, &["note"], 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_id_that_a_model_uses_twice_names_two_calls() {
    let b = Bench::new().await;
    let call = |id: &str| {
        json!({ "choices": [{ "index": 0, "finish_reason": "tool_calls", "delta": { "tool_calls": [
        { "index": 0, "id": id, "type": "function", "function": { "name": "look", "arguments": "{}" } } ] } }] })
    };
    let reply = |id: &str| Reply::events([call(id).to_string(), "[DONE]".to_owned()]);
    b.t.fake.then(reply("again")).then(reply("again")).then(reply("a b/c")).then(Reply::text("Done."));
    let id = b.t.begin().await;
    b.say(&id, "Look three times.").await;
    for call in ["again", "again-2", "a_b_c"] {
        assert_eq!(b.call(&id, call).await.outcome, Some(ToolOutcome::Succeeded), "{call}");
    }
    b.check(&id).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_branch_from_between_a_call_and_its_result_is_shown_whole() {
    let b = Bench::new().await;
    b.t.fake.then(Reply::calls([("look", json!({}))])).then(Reply::text("Nothing there."));
    let id = b.t.begin().await;
    b.say(&id, "Look.").await;
    let calls = b.t.messages(&id, None).await[1].id.clone();
    let request = serde_json::from_value(json!({ "name": "other", "parent_message_id": calls })).unwrap();
    b.t.h.engine.create_branch(&b.t.h.scope, &id, request).await.unwrap();
    let mut reader = b.t.follow(&id, None).await;
    b.t.try_say(&id, json!({ "content": "And now?", "branch": "other" })).await.unwrap();
    until_rest(&mut reader).await;
    b.check(&id).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_long_result_is_kept_whole_and_shown_with_a_handle() {
    let b = Bench::new().await;
    let long: String = (0..5000).map(|n| format!("line {n} of a log that goes on\n")).collect();
    std::fs::write(&b.notes.file, &long).unwrap();
    b.t.fake.then(Reply::calls([("look", json!({}))])).then(Reply::text("Long."));
    let id = b.t.begin().await;
    b.say(&id, "Look.").await;
    let result = b.t.messages(&id, None).await[2].clone();
    assert_eq!(result.text(), long);
    let shown = b.answered()[0]["content"].as_str().unwrap().to_owned();
    assert!(shown.len() < long.len() / 4, "{} bytes are shown", shown.len());
    assert!(shown.ends_with(&format!("ws:segment:{}]", result.id)), "{}", &shown[shown.len() - 200..]);
    b.check(&id).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_no_provider_would_take_back_is_kept_as_one_that_they_do() {
    let b = Bench::new().await;
    let mut deep = json!({});
    for _ in 0..120 {
        deep = json!({ "a": deep });
    }
    b.t.fake.then(Reply::calls([("functions.look", json!({})), ("look", deep)])).then(Reply::text("I see."));
    let id = b.t.begin().await;
    assert_eq!(b.say(&id, "Go.").await.last().unwrap(), "Idle");
    let sent = b.t.fake.requests().pop().unwrap();
    let calls =
        sent["messages"].as_array().unwrap().iter().find_map(|message| message["tool_calls"].as_array()).unwrap();
    assert_eq!(
        (calls[0]["function"]["name"].as_str(), calls[1]["function"]["arguments"].as_str()),
        (Some("functions_look"), Some("{}"))
    );
    assert!(b.t.texts(&id, None).await.iter().any(|text| text.contains("nested deeper")));
    b.check(&id).await;
}
