//! Conversations over REST and SSE, as contract 002 has them, with a model that says what it is told to.
//!
//! Nothing here waits for time to pass: the model's words wait for a gate, back-offs for the manual clock, tests for events.

mod branch;
mod document;
mod example;
mod failure;
mod hostile;
mod look;
mod message;
mod replay;
mod retry;
mod session;
mod tools;
mod turn;
mod window;

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::body::Body;
use axum::http::{Request, header};
use serde_json::{Value, json};
use waystone_connect::mcp::Servers;
use waystone_connect::workspace::Bounds;
use waystone_connect::{AllTools, ProviderSettings, Providers};
use waystone_core::Chat;
use waystone_server::http::{Guard, Http};
use waystone_testkit::model::FakeModel;

use crate::client::{Client, json_of};
use crate::events::Subscriber;

/// When everything happens, until a test moves the clock.
const AT: &str = "2026-01-01T00:00:00.000Z";

/// Id, kind and data.
type Event = (String, String, Value);

/// A client of a server whose model is a fake.
struct Talk {
    client: Client,
    fake: FakeModel,
}

impl Talk {
    async fn new() -> Self {
        let fake = FakeModel::start().await;
        let base_url = fake.base_url();
        Self { client: client_of(Some(base_url)), fake }
    }

    /// The same data in another process.
    async fn restart(&mut self) {
        self.client.harness.restart().await;
        let engine = self.client.harness.engine.clone().with_chat(chat_of(Some(self.fake.base_url())));
        self.client.router = Http::new(engine, "tester", self.client.stop.subscribe()).router(Guard::default());
    }

    async fn call(&self, method: &str, path: &str, body: Option<Value>) -> (u16, Value) {
        let (status, reply) = self.client.call(method, &format!("/api/contexts{path}"), body).await;
        (status.as_u16(), reply)
    }

    async fn get(&self, path: &str) -> Value {
        let (status, reply) = self.call("GET", path, None).await;
        assert_eq!(status, 200, "{path}: {reply}");
        reply
    }

    async fn post(&self, path: &str, body: Value) -> (u16, Value) {
        self.call("POST", path, Some(body)).await
    }

    /// The same with a key that makes it safe to send it twice.
    async fn post_keyed(&self, path: &str, key: &str, body: &Value) -> (u16, Value) {
        self.call_keyed("POST", path, key, body).await
    }

    async fn call_keyed(&self, method: &str, path: &str, key: &str, body: &Value) -> (u16, Value) {
        let request = Request::builder().method(method).uri(format!("/api/contexts{path}"));
        let request = request.header(header::HOST, "localhost");
        let request = request.header("Idempotency-Key", key).header(header::CONTENT_TYPE, "application/json");
        let response = self.client.send(request.body(Body::from(body.to_string())).unwrap()).await;
        (response.status().as_u16(), json_of(response).await)
    }

    /// Panics unless the answer is our error object with this status and code.
    async fn refuses(&self, method: &str, path: &str, body: Option<Value>, status: u16, code: &str) {
        assert_refused(&self.call(method, path, body).await, status, code, &format!("{method} {path}"));
    }

    async fn create(&self) -> String {
        self.create_with(json!({ "model_id": "gpt-4", "mode": "code" })).await
    }

    async fn create_with(&self, body: Value) -> String {
        let (status, reply) = self.post("", body).await;
        assert_eq!(status, 201, "{reply}");
        text(&reply["id"])
    }

    /// Says something, and returns its message's id.
    async fn say(&self, context: &str, content: &str) -> String {
        let (status, reply) = self.post(&format!("/{context}/messages"), json!({ "content": content })).await;
        assert_eq!(status, 201, "{reply}");
        text(&reply["message_id"])
    }

    async fn follow(&self, context: &str) -> Subscriber {
        self.follow_after(context, None).await
    }

    async fn follow_after(&self, context: &str, last: Option<&str>) -> Subscriber {
        Subscriber::new(&self.client, &format!("/api/contexts/{context}/events"), last).await
    }

    /// Says something, and waits until the turn has ended well. Returns both messages' ids.
    async fn ask(&self, context: &str, content: &str) -> (String, String) {
        let mut events = self.follow(context).await;
        let said = self.say(context, content).await;
        let told = until_state(&mut events, "Idle").await;
        let answer = told.iter().find(|(_, kind, _)| kind == "MessageCompleted").unwrap();
        (said, text(&answer.2["message_id"]))
    }

    async fn state(&self, context: &str) -> String {
        text(&self.get(&format!("/{context}/state")).await["current_state"])
    }

    /// The messages of a branch, or of the active one, as role and text.
    async fn said(&self, context: &str, branch: Option<&str>) -> Vec<(String, String)> {
        let branch = branch.map(|name| format!("&branch={name}")).unwrap_or_default();
        let page = self.get(&format!("/{context}/messages?limit=1000{branch}")).await;
        let messages = page["messages"].as_array().unwrap().iter();
        messages.map(|message| (text(&message["role"]), text(&message["content"][0]["text"]))).collect()
    }

    /// Lets a turn go on that waits before it asks again.
    async fn pass_back_off(&self) {
        self.client.harness.clock.wait_for_sleeper().await;
        self.client.harness.clock.advance_ms(5_000);
    }
}

/// A client of a server that knows one provider, or none.
fn client_of(openai_base_url: Option<String>) -> Client {
    with_chat(Client::new(), openai_base_url)
}

fn with_chat(client: Client, openai_base_url: Option<String>) -> Client {
    let engine = client.harness.engine.clone().with_chat(chat_of(openai_base_url));
    let router = Http::new(engine, "tester", client.stop.subscribe()).router(Guard::default());
    Client { router, ..client }
}

fn chat_of(openai_base_url: Option<String>) -> Chat {
    let openai_api_key = openai_base_url.as_ref().map(|_| "sk-test".to_owned());
    Chat {
        model: Arc::new(Providers::new(ProviderSettings {
            openai_api_key,
            openai_base_url,
            ..ProviderSettings::default()
        })),
        model_id: "demo".to_owned(),
        prompt: Arc::new(|id| (id == "custom-prompt").then(|| "You are terse.".to_owned())),
        project_of: Arc::new(|_| None),
        tools: Arc::new(AllTools { servers: Servers::new(BTreeMap::new(), &[], |_| None), bounds: Bounds::default() }),
        ..Chat::default()
    }
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_else(|| panic!("{value} is no text")).to_owned()
}

#[track_caller]
fn assert_refused((status, reply): &(u16, Value), expected: u16, code: &str, what: &str) {
    assert_eq!((*status, reply["error"]["code"].as_str()), (expected, Some(code)), "{what}: {reply}");
    let error = &reply["error"];
    let is_whole = error["message"].is_string() && error["details"].is_object() && error["hint"].is_string();
    assert!(is_whole, "{what}: {reply}");
}

/// All events up to the one that tells of this state. What is told of windows has tests of its own.
async fn until_state(events: &mut Subscriber, state: &str) -> Vec<Event> {
    let mut told = Vec::new();
    loop {
        let event = next_but_windows(events).await.unwrap_or_else(|| panic!("no {state} after {told:#?}"));
        let is_last = event.1 == "StateChanged" && event.2["new_state"] == state;
        told.push(event);
        if is_last {
            return told;
        }
    }
}

/// The next events, so many.
async fn take(events: &mut Subscriber, count: usize) -> Vec<Event> {
    let mut told = Vec::new();
    for _ in 0..count {
        told.push(next_but_windows(events).await.unwrap_or_else(|| panic!("nothing after {told:#?}")));
    }
    told
}

async fn next_but_windows(events: &mut Subscriber) -> Option<Event> {
    loop {
        let event = events.next().await?;
        if !["WindowAssembled", "UsageWarning"].contains(&event.1.as_str()) {
            return Some(event);
        }
    }
}

/// What happened, in short: states by their names, words in quotes, whole answers after `=`.
fn outline(events: &[Event]) -> Vec<String> {
    let line = |(_, kind, data): &Event| match kind.as_str() {
        "StateChanged" => text(&data["new_state"]),
        "ContentDelta" => data["delta"].to_string(),
        "MessageCompleted" => format!("= {}", text(&data["final_content"])),
        other => other.to_owned(),
    };
    events.iter().map(line).collect()
}

/// The same with names in place of ids.
fn named(value: &Value, names: &[(&str, &str)]) -> Value {
    let replace = |text: String, (id, name): &(&str, &str)| text.replace(id, name);
    serde_json::from_str(&names.iter().fold(value.to_string(), replace)).unwrap()
}
