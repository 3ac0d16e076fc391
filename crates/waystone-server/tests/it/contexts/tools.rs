//! Calls of tools over REST and SSE: "Tool Execution" of the contract, and what the design adds to it.
//!
//! The tools are those of a real folder, and those that a client declares and answers itself. The model makes its calls by script, under
//! the ids `call_0`, `call_1` and so on.

mod approval;
mod argument;
mod declared;
mod example;
mod folder;
mod limit;
mod refusal;
mod wait;

use serde_json::{Value, json};
use tempfile::TempDir;
use waystone_core::{Chat, Engine, ToolPolicy};
use waystone_server::http::{Guard, Http};
use waystone_testkit::model::{FakeModel, Reply};

use super::{Event, Talk, chat_of, text, until_state};
use crate::client::Client;
use crate::events::Subscriber;

/// A client, the model it talks to, and the folder in which they work.
struct Desk {
    talk: Talk,
    /// What serves the client.
    engine: Engine,
    folder: TempDir,
}

/// A conversation whose turn waits until someone decides.
struct Waiting {
    context: String,
    /// The calls, in the order in which they were made.
    calls: Vec<String>,
    events: Subscriber,
    /// What was told so far.
    told: Vec<Event>,
}

impl Desk {
    async fn new() -> Self {
        Self::with(Client::new(), ToolPolicy::default()).await
    }

    async fn with(client: Client, policy: ToolPolicy) -> Self {
        let fake = FakeModel::start().await;
        let chat = Chat { policy, ..chat_of(Some(fake.base_url())) };
        let engine = client.harness.engine.clone().with_chat(chat);
        fake.otherwise(Reply::text("Done."));
        let router = Http::new(engine.clone(), "tester", client.stop.subscribe()).router(Guard::default());
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("README.md"), "# Weather\nIt rains.\n").unwrap();
        Self { talk: Talk { client: Client { router, ..client }, fake }, engine, folder }
    }

    /// A conversation in the folder.
    async fn create(&self) -> String {
        self.create_with(json!([])).await
    }

    /// The same, in which the client has tools of its own.
    async fn create_with(&self, tools: Value) -> String {
        let folder = self.folder.path().to_str().unwrap();
        let body = json!({ "model_id": "gpt-4", "mode": "code", "workspace_path": folder, "tools": tools });
        self.talk.create_with(body).await
    }

    /// A conversation in which the model has made these calls, and someone has to decide.
    async fn wait<'a>(&self, calls: impl IntoIterator<Item = (&'a str, Value)>) -> Waiting {
        let context = self.create_with(json!([weather()])).await;
        self.wait_in(context, calls).await
    }

    async fn wait_in<'a>(&self, context: String, calls: impl IntoIterator<Item = (&'a str, Value)>) -> Waiting {
        self.talk.fake.then(Reply::calls(calls));
        let mut events = self.talk.follow(&context).await;
        self.talk.say(&context, "Go.").await;
        let told = until_state(&mut events, "AwaitingToolApproval").await;
        let calls = requested(&told).iter().map(|call| text(&call["id"])).collect();
        Waiting { context, calls, events, told }
    }

    /// Approves, or denies.
    async fn decide(&self, context: &str, decision: &str, calls: &[&str]) -> (u16, Value) {
        self.talk.post(&format!("/{context}/tools/{decision}"), json!({ "tool_call_ids": calls })).await
    }

    async fn answer(&self, context: &str, call: &str, body: Value) -> (u16, Value) {
        self.talk.post(&format!("/{context}/tools/{call}/result"), body).await
    }

    async fn call(&self, context: &str, call: &str) -> Value {
        self.talk.get(&format!("/{context}/tools/{call}")).await
    }

    /// The status of each call, in short.
    async fn statuses(&self, waiting: &Waiting) -> Vec<String> {
        let mut statuses = Vec::new();
        for call in &waiting.calls {
            statuses.push(text(&self.call(&waiting.context, call).await["approval_status"]));
        }
        statuses
    }

    /// What the model was told of its calls when it was asked last, by their ids.
    fn results(&self) -> Vec<(String, String)> {
        let request = self.talk.fake.requests().pop().unwrap();
        let of_tools = request["messages"].as_array().unwrap().iter().filter(|message| message["role"] == "tool");
        of_tools.map(|message| (text(&message["tool_call_id"]), text(&message["content"]))).collect()
    }

    /// What is in a file of the folder; nothing if there is none.
    fn file(&self, name: &str) -> Option<String> {
        std::fs::read_to_string(self.folder.path().join(name)).ok()
    }
}

impl Waiting {
    fn ids(&self) -> Vec<&str> {
        self.calls.iter().map(String::as_str).collect()
    }
}

/// The contract's tool; it is not said to be read-only.
fn weather() -> Value {
    let schema = json!({ "type": "object", "properties": { "location": { "type": "string" } } });
    json!({ "name": "get_weather", "description": "The weather at a place.", "input_schema": schema })
}

fn ask_weather(location: &str) -> (&'static str, Value) {
    ("get_weather", json!({ "location": location }))
}

fn write(path: &str, content: &str) -> (&'static str, Value) {
    ("write_file", json!({ "path": path, "content": content }))
}

fn read(path: &str) -> (&'static str, Value) {
    ("read_file", json!({ "path": path }))
}

/// All calls that were told of.
fn requested(told: &[Event]) -> Vec<Value> {
    let events = told.iter().filter(|(_, kind, _)| kind == "ToolCallRequested");
    events.flat_map(|(.., data)| data["tool_calls"].as_array().unwrap().clone()).collect()
}

/// The calls that ended, each with what came of it.
fn completed(told: &[Event]) -> Vec<(String, String)> {
    let events = told.iter().filter(|(_, kind, _)| kind == "ToolCallCompleted");
    events.map(|(.., data)| (text(&data["tool_call_id"]), text(&data["outcome"]))).collect()
}

fn states(told: &[Event]) -> Vec<String> {
    told.iter().filter(|(_, kind, _)| kind == "StateChanged").map(|event| text(&event.2["new_state"])).collect()
}

/// Panics unless `actual` has all that `expected` has; more fields are allowed, more elements are not.
#[track_caller]
fn assert_has(actual: &Value, expected: &Value) {
    assert!(has(actual, expected), "{actual:#}\nhas not all of\n{expected:#}");
}

fn has(actual: &Value, expected: &Value) -> bool {
    match (actual, expected) {
        (Value::Object(actual), Value::Object(expected)) => {
            expected.iter().all(|(key, value)| actual.get(key).is_some_and(|found| has(found, value)))
        }
        (Value::Array(actual), Value::Array(expected)) => {
            actual.len() == expected.len() && actual.iter().zip(expected).all(|(found, value)| has(found, value))
        }
        _ => actual == expected,
    }
}

/// Every call that the model was ever shown is followed by its result, and every result stands after its call.
#[track_caller]
fn assert_paired(requests: &[Value]) {
    for request in requests {
        let mut open: Vec<&Value> = Vec::new();
        for message in request["messages"].as_array().unwrap() {
            if message["role"] == "tool" {
                let at = open.iter().position(|id| **id == message["tool_call_id"]);
                open.remove(at.unwrap_or_else(|| panic!("{message} was not called: {request:#}")));
            } else {
                assert!(open.is_empty(), "{open:?} have no results: {request:#}");
                open = message["tool_calls"].as_array().into_iter().flatten().map(|call| &call["id"]).collect();
            }
        }
        assert!(open.is_empty(), "{open:?} have no results: {request:#}");
    }
}
