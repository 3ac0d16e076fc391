//! Messages as they are written: the request, and the events of an answer.

use serde::Deserialize;
use serde_json::{Value, json};
use waystone_core::api::{Role, Tool};
use waystone_core::model::{Call, ModelCall, Said};

use crate::call::{aside, sent_arguments};

/// What a conversation's parameters cannot set.
const OURS: [&str; 6] = ["model", "messages", "system", "stream", "tools", "tool_choice"];
/// Said of a conversation that does not begin with a user, as it must.
const BEGINNING: &str = "(The conversation goes on.)";

/// The body of a request for `call`, as bytes.
///
/// Two places end what the provider keeps in its cache: what is the same in every request of a conversation, and all of this one.
pub(super) fn request(call: &ModelCall) -> Vec<u8> {
    let mut body = json!({ "model": call.model, "max_tokens": call.answer_tokens.max(1), "stream": true });
    let mut tools = tools(call);
    if !call.system.trim().is_empty() {
        body["system"] = json!([{ "type": "text", "text": call.system }]);
        mark_cached(body["system"].as_array_mut());
    } else {
        mark_cached(Some(&mut tools));
    }
    let mut messages = messages(&call.messages);
    mark_cached(messages.last_mut().and_then(|message| message["content"].as_array_mut()));
    body["messages"] = messages.into();
    if !tools.is_empty() {
        body["tools"] = tools.into();
        if call.is_last || call.tools.is_empty() {
            body["tool_choice"] = json!({ "type": "none" });
        }
    }
    for (name, value) in &call.parameters {
        match value {
            _ if OURS.contains(&name.as_str()) => {}
            Value::Null => {}
            // Thoughts would have to go back with the calls they led to, and are not kept.
            _ if name == "thinking" && matches!(call.messages.last(), Some(Said::Result { .. })) => {}
            value => body[name] = value.clone(),
        }
    }
    body.to_string().into_bytes()
}

fn mark_cached(blocks: Option<&mut Vec<Value>>) {
    if let Some(last) = blocks.and_then(|blocks| blocks.last_mut()) {
        last["cache_control"] = json!({ "type": "ephemeral" });
    }
}

/// What can be called. Where something was called before, the provider wants to know of that at least.
fn tools(call: &ModelCall) -> Vec<Value> {
    if !call.tools.is_empty() {
        let tool = |tool: &Tool| {
            let mut written = json!({ "name": tool.name, "input_schema": tool.input_schema });
            if !tool.description.is_empty() {
                written["description"] = json!(tool.description);
            }
            written
        };
        return call.tools.iter().map(tool).collect();
    }
    let mut names: Vec<&str> = Vec::new();
    for said in &call.messages {
        let Said::Calls { calls, .. } = said else { continue };
        names.extend(calls.iter().map(|call| call.tool.as_str()));
    }
    names.sort_unstable();
    names.dedup();
    names.iter().map(|name| json!({ "name": name, "input_schema": { "type": "object" } })).collect()
}

/// Users and the model in turn: what one of them says without the other in between is one message. Results come first in theirs.
fn messages(said: &[Said]) -> Vec<Value> {
    let mut messages: Vec<(&str, Vec<Value>)> = Vec::new();
    for said in said {
        let (role, blocks) = blocks(said);
        if blocks.is_empty() {
            continue;
        }
        if messages.is_empty() && role == "assistant" {
            messages.push(("user", vec![text(BEGINNING)]));
        }
        match messages.last_mut() {
            Some((last, before)) if *last == role => {
                let is_result = |block: &Value| block["type"] == "tool_result";
                let results = before.iter().take_while(|block| is_result(block)).count();
                let at = if blocks.iter().all(is_result) { results } else { before.len() };
                before.splice(at..at, blocks);
            }
            _ => messages.push((role, blocks)),
        }
    }
    messages.into_iter().map(|(role, content)| json!({ "role": role, "content": content })).collect()
}

/// Who says it, and what. A text of nothing but spaces is refused, so it is left out.
fn blocks(said: &Said) -> (&'static str, Vec<Value>) {
    let words = |words: &str| if words.trim().is_empty() { vec![] } else { vec![text(words)] };
    match said {
        Said::Text { role: Role::Assistant, text } => ("assistant", words(text)),
        Said::Text { role: Role::User, text } => ("user", words(text)),
        Said::Text { role: Role::System, text } => ("user", words(&aside(text))),
        Said::Calls { text, calls } => {
            ("assistant", words(text).into_iter().chain(calls.iter().map(tool_use)).collect())
        }
        Said::Result { call_id, text, is_error, .. } => {
            let mut result = json!({ "type": "tool_result", "tool_use_id": id(call_id), "content": words(text) });
            if *is_error {
                result["is_error"] = json!(true);
            }
            ("user", vec![result])
        }
    }
}

fn text(text: &str) -> Value {
    json!({ "type": "text", "text": text })
}

fn tool_use(call: &Call) -> Value {
    json!({ "type": "tool_use", "id": id(&call.id), "name": call.tool, "input": sent_arguments(&call.arguments) })
}

/// An id that another provider gave may have characters that are refused here.
fn id(id: &str) -> String {
    id.chars().map(|char| if char.is_ascii_alphanumeric() || "_-".contains(char) { char } else { '_' }).collect()
}

/// One event of an answer. What is not known is passed over, as the provider asks.
#[derive(Debug, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum Event {
    MessageStart {
        message: Message,
    },
    ContentBlockStart {
        index: u64,
        content_block: Block,
    },
    ContentBlockDelta {
        index: u64,
        delta: Delta,
    },
    MessageDelta {
        delta: Option<Stop>,
        usage: Option<Value>,
    },
    MessageStop,
    Error {
        error: Value,
    },
    #[serde(other)]
    Other,
}

#[derive(Debug, Deserialize)]
pub(super) struct Message {
    pub(super) usage: Option<Value>,
}

#[derive(Debug, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum Block {
    Text {
        #[serde(default)]
        text: String,
    },
    ToolUse {
        #[serde(default)]
        id: String,
        name: String,
        input: Option<Value>,
    },
    #[serde(other)]
    Other,
}

#[derive(Debug, Deserialize)]
#[serde(tag = "type")]
pub(super) enum Delta {
    #[serde(rename = "text_delta")]
    Text { text: String },
    #[serde(rename = "input_json_delta")]
    Json { partial_json: String },
    #[serde(other)]
    Other,
}

#[derive(Debug, Deserialize)]
pub(super) struct Stop {
    pub(super) stop_reason: Option<String>,
}
