//! A model whose window is small and whose provider is as strict as real ones are, and an agent that reads files with it.

use std::sync::Arc;

use serde_json::{Value, json};
use tempfile::TempDir;
use waystone_connect::{ProviderSettings, Providers};
use waystone_core::{Chat, tokens};
use waystone_server::http::{Guard, Http};
use waystone_testkit::model::{FakeModel, Reply};

use super::super::{Talk, chat_of, text};
use crate::client::Client;

/// What the model's window holds, to us and to its provider, and what of it is for an answer.
pub(super) const LIMIT: u64 = 8000;
const ANSWER: u64 = 500;
/// How long the files are, in lines of some twelve tokens: a page of `context_expand` and less, more than one, and more than a window
/// shows of any result.
const LINES: [usize; 5] = [12, 24, 40, 60, 200];
pub(super) const FILES: usize = 108;
pub(super) const LOOK_UP: &str = "Look up what you were shown first.";

/// What a model is told, whichever wire it is told over.
pub(super) enum Told {
    User(String),
    Call { name: String, arguments: Value },
    Result { id: String, text: String },
    Other,
}

pub(super) fn told(request: &Value) -> Vec<Told> {
    request["messages"].as_array().unwrap().iter().flat_map(told_in).collect()
}

fn told_in(message: &Value) -> Vec<Told> {
    let content = &message["content"];
    match message["role"].as_str().unwrap() {
        "tool" => vec![Told::Result { id: text(&message["tool_call_id"]), text: text(content) }],
        "assistant" if message["tool_calls"].is_array() => {
            let call = |call: &Value| Told::Call {
                name: text(&call["function"]["name"]),
                arguments: serde_json::from_str(&text(&call["function"]["arguments"])).unwrap(),
            };
            message["tool_calls"].as_array().unwrap().iter().map(call).collect()
        }
        "user" if content.is_string() => vec![Told::User(text(content))],
        _ => content.as_array().into_iter().flatten().map(|block| told_in_block(block, &message["role"])).collect(),
    }
}

fn told_in_block(block: &Value, role: &Value) -> Told {
    match block["type"].as_str().unwrap() {
        "text" if role == "user" => Told::User(text(&block["text"])),
        "tool_use" => Told::Call { name: text(&block["name"]), arguments: block["input"].clone() },
        "tool_result" => {
            let content = block["content"].as_array().unwrap().iter().map(|part| text(&part["text"])).collect();
            Told::Result { id: text(&block["tool_use_id"]), text: content }
        }
        _ => Told::Other,
    }
}

/// An agent: it reads the files it is asked for, at once, looks up what it sees only a handle of, page by page, and answers in words.
fn agent(request: &Value) -> Reply {
    let told = told(request);
    match told.last().unwrap() {
        Told::User(asked) if asked == LOOK_UP => {
            let (_, handle) = left_out(&told).expect("the window shows no handle of a result");
            Reply::calls([("context_expand", json!({ "handle": handle }))])
        }
        Told::User(asked) => {
            let files = asked.split(' ').filter(|word| word.ends_with(".txt"));
            Reply::calls(files.map(|path| ("read_file", json!({ "path": path }))))
        }
        Told::Result { text, .. } => match (offset_in(text), last_call(&told)) {
            (Some(offset), ("context_expand", arguments)) => {
                Reply::calls([("context_expand", json!({ "handle": arguments["handle"], "offset": offset }))])
            }
            _ => Reply::text(&"That is what it says. ".repeat(10)),
        },
        Told::Call { .. } | Told::Other => Reply::text("There is nothing to answer."),
    }
}

/// The first call whose result is a line with a handle and takes some pages, and the handle.
pub(super) fn left_out(told: &[Told]) -> Option<(String, String)> {
    told.iter().find_map(|told| {
        let Told::Result { id, text } = told else { return None };
        let (returned, handle) = text.split_once(" tokens; left out, context_expand returns them: ")?;
        let returned: u64 = returned.rsplit_once("[read_file returned ")?.1.parse().ok()?;
        (600..1000).contains(&returned).then(|| (id.clone(), handle.trim_end_matches(']').to_owned()))
    })
}

fn last_call(told: &[Told]) -> (&str, &Value) {
    let calls = told.iter().rev().find_map(|told| match told {
        Told::Call { name, arguments } => Some((name.as_str(), arguments)),
        _ => None,
    });
    calls.expect("a result has its call before it")
}

pub(super) const MORE: &str = "\n[there is more: offset ";

fn offset_in(text: &str) -> Option<u64> {
    text.rsplit_once(MORE)?.1.strip_suffix(']')?.parse().ok()
}

/// Whoever talks with a model that holds [`LIMIT`] tokens and refuses what is longer.
pub(super) struct Strict {
    pub(super) talk: Talk,
    pub(super) context: String,
    model: String,
    _folder: TempDir,
}

fn chat(model: &str, fake: &FakeModel) -> Chat {
    let key = Some("sk-test".to_owned());
    let providers = Providers::new(ProviderSettings {
        openai_api_key: key.clone(),
        openai_base_url: Some(fake.base_url()),
        anthropic_api_key: key,
        anthropic_base_url: Some(fake.root_url()),
        model_limits: [(model.to_owned(), LIMIT)].into(),
        ..ProviderSettings::default()
    });
    Chat { model: Arc::new(providers), ..chat_of(None) }
}

impl Strict {
    pub(super) async fn new(model: &str) -> Self {
        let fake = FakeModel::start().await;
        fake.limit(LIMIT).otherwise(Reply::by(agent));
        let client = Client::new();
        let engine = client.harness.engine.clone().with_chat(chat(model, &fake));
        let router = Http::new(engine, "tester", client.stop.subscribe()).router(Guard::default());
        let talk = Talk { client: Client { router, ..client }, fake };
        let folder = tempfile::tempdir().unwrap();
        for part in 0..FILES {
            let line = |line| format!("part {part} line {line}: some words about it\n");
            let file: String = (0..LINES[part % LINES.len()]).map(line).collect();
            std::fs::write(folder.path().join(format!("{part}.txt")), file).unwrap();
        }
        let parameters = json!({ "max_tokens": ANSWER });
        let workspace = folder.path().to_str().unwrap();
        let body = json!({ "model_id": model, "workspace_path": workspace, "parameters": parameters });
        let context = talk.create_with(body).await;
        Self { talk, context, model: model.to_owned(), _folder: folder }
    }

    /// The same data in another process.
    pub(super) async fn restart(&mut self) {
        let client = &mut self.talk.client;
        client.harness.restart().await;
        let engine = client.harness.engine.clone().with_chat(chat(&self.model, &self.talk.fake));
        client.router = Http::new(engine, "tester", client.stop.subscribe()).router(Guard::default());
    }

    /// Says something and waits for the end of the turn, which is a good one. Returns how many tokens its longest window had.
    pub(super) async fn ask(&self, content: &str) -> u64 {
        let mut events = self.talk.follow(&self.context).await;
        self.talk.say(&self.context, content).await;
        let mut longest = 0;
        loop {
            let (_, kind, data) = events.next().await.unwrap();
            if kind == "WindowAssembled" {
                longest = longest.max(data["tokens"].as_u64().unwrap());
            }
            match data["new_state"].as_str() {
                Some("Idle") => return longest,
                Some("PermanentFailure" | "TransientFailure") => {
                    panic!("after {content:?}: {data}; refused: {:?}", self.talk.fake.refusals())
                }
                _ => {}
            }
        }
    }

    /// Has two more files read.
    pub(super) async fn ask_of(&self, turn: usize) -> u64 {
        self.ask(&format!("What do {}.txt and {}.txt say?", 2 * turn, 2 * turn + 1)).await
    }

    pub(super) async fn window(&self) -> Value {
        self.talk.get(&format!("/{}/window", self.context)).await
    }

    /// How long the conversation is, all of it.
    pub(super) async fn tokens(&self) -> u64 {
        let messages = self.talk.get(&format!("/{}/messages?limit=1000", self.context)).await;
        let contents = messages["messages"].as_array().unwrap().iter().map(|message| message["content"].to_string());
        contents.map(|content| tokens::count(&content) as u64).sum()
    }
}
