//! Conversations on real SQLite files, with the fake model server behind them.

mod cost;
mod kept;
mod left_out;
mod secret;
mod stream;
mod tool_call;
mod turn;
mod window;

use std::sync::Arc;

use serde_json::{Value, json};
use waystone_connect::{ProviderSettings, Providers};
use waystone_core::api::{
    AddMessage, AddedMessage, Context, ContextState, CreateContext, FindContext, ListMessages, Message, TurnState,
};
use waystone_core::id::SessionId;
use waystone_core::{Chat, Engine, Frame, Reader, Result};
use waystone_testkit::Harness;
use waystone_testkit::model::FakeModel;

/// A harness whose engine talks to a fake model.
pub(crate) struct Talk {
    pub(crate) h: Harness,
    pub(crate) fake: FakeModel,
}

impl Talk {
    pub(crate) async fn new() -> Self {
        let mut talk = Self { h: Harness::new(), fake: FakeModel::start().await };
        talk.h.engine = talk.connect(talk.h.engine.clone());
        talk
    }

    /// The same engine with the fake model behind it.
    pub(crate) fn connect(&self, engine: Engine) -> Engine {
        engine.with_chat(self.chat())
    }

    pub(crate) fn chat(&self) -> Chat {
        let settings = ProviderSettings {
            openai_api_key: Some("key".to_owned()),
            openai_base_url: Some(self.fake.base_url()),
            models: serde_json::from_value(json!({
                "priced": { "provider": "openai", "prices": { "input": 2, "output": 8, "cache_read": 0.5 } },
            }))
            .unwrap(),
            ..ProviderSettings::default()
        };
        Chat {
            model: Arc::new(Providers::new(settings)),
            model_id: "fake".to_owned(),
            prompt: Arc::new(|id| (id == "brief").then(|| "Be brief.".to_owned())),
            project_of: Arc::new(|path| path.strip_prefix("/home/dev/").and_then(|name| name.parse().ok())),
            ..Chat::default()
        }
    }

    /// Ends the process, and opens another one.
    pub(crate) async fn restart(&mut self) {
        self.h.restart().await;
        self.h.engine = self.connect(self.h.engine.clone());
    }

    pub(crate) async fn create(&self, request: Value) -> Context {
        let request: CreateContext = serde_json::from_value(request).unwrap();
        self.h.engine.create_context(&self.h.scope, request).await.unwrap()
    }

    pub(crate) async fn begin(&self) -> SessionId {
        self.create(json!({})).await.id
    }

    pub(crate) async fn try_say(&self, id: &SessionId, request: Value) -> Result<AddedMessage> {
        let request: AddMessage = serde_json::from_value(request).unwrap();
        self.h.engine.add_message(&self.h.scope, id, request).await
    }

    /// Says something, and waits for the end of the turn.
    pub(crate) async fn say(&self, id: &SessionId, content: &str) -> AddedMessage {
        let mut reader = self.follow(id, None).await;
        let added = self.try_say(id, json!({ "content": content })).await.unwrap();
        until_state(&mut reader, |state| matches!(state, "Idle" | "PermanentFailure")).await;
        added
    }

    pub(crate) async fn follow(&self, id: &SessionId, after: Option<&str>) -> Reader {
        self.h.engine.follow_context(&self.h.scope, id, after).await.unwrap()
    }

    /// Lets time pass until it is aborted.
    pub(crate) fn tick(&self) -> tokio::task::JoinHandle<()> {
        let clock = Arc::clone(&self.h.clock);
        tokio::spawn(async move {
            loop {
                clock.advance_ms(50);
                tokio::task::yield_now().await;
            }
        })
    }

    pub(crate) async fn state(&self, id: &SessionId) -> TurnState {
        self.h.engine.find_turn(&self.h.scope, id).await.unwrap()
    }

    pub(crate) async fn context(&self, id: &SessionId) -> Context {
        self.h.engine.find_context(&self.h.scope, id, FindContext { message_pool: true }).await.unwrap()
    }

    pub(crate) async fn messages(&self, id: &SessionId, branch: Option<&str>) -> Vec<Message> {
        let branch = branch.map(|name| name.parse().unwrap());
        let request = ListMessages { branch, limit: 1000, ..ListMessages::default() };
        self.h.engine.list_messages(&self.h.scope, id, request).await.unwrap().messages
    }

    pub(crate) async fn texts(&self, id: &SessionId, branch: Option<&str>) -> Vec<String> {
        self.messages(id, branch).await.iter().map(Message::text).collect()
    }
}

/// What was told, as kind and data.
pub(crate) fn told(frames: &[Arc<Frame>]) -> Vec<(String, Value)> {
    frames.iter().map(|frame| (frame.kind().to_owned(), serde_json::from_str(frame.data()).unwrap())).collect()
}

/// Reads until a state is told that `is_last`; all that was read.
pub(crate) async fn until_state(reader: &mut Reader, is_last: impl Fn(&str) -> bool) -> Vec<Arc<Frame>> {
    let mut all = Vec::new();
    loop {
        let frames = reader.next().await.expect("the reader goes on");
        let is_over = told(&frames).iter().any(|(_, data)| data["new_state"].as_str().is_some_and(&is_last));
        all.extend(frames);
        if is_over {
            return all;
        }
    }
}

/// The states that were told, in order.
pub(crate) fn states(frames: &[Arc<Frame>]) -> Vec<String> {
    let states = told(frames).into_iter().filter_map(|(_, data)| data["new_state"].as_str().map(str::to_owned));
    states.collect()
}

pub(crate) fn is_idle(state: &str) -> bool {
    state == ContextState::Idle.as_str()
}
