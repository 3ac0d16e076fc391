//! Chat completions as they are written: the request, and the chunks of an answer.
//!
//! Providers leave out, null and add what they like, so that every field may be absent and none is refused.

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::{Value, json};
use waystone_core::model::{self, ModelCall, Said};

/// What a conversation's parameters cannot set: it is ours, or asks for answers that nothing here could take.
const OURS: [&str; 9] =
    ["model", "messages", "stream", "n", "tools", "tool_choice", "parallel_tool_calls", "functions", "function_call"];

/// The body of a request for `call`, as bytes.
pub(super) fn request(call: &ModelCall) -> Vec<u8> {
    let system = (!call.system.is_empty()).then(|| json!({ "role": "system", "content": call.system }));
    let said = call.messages.iter().map(|said| match said {
        Said::Text { role, text } => json!({ "role": role.as_str(), "content": text }),
        Said::Calls { text, .. } => json!({ "role": "assistant", "content": text }),
        Said::Result { call_id, text, .. } => json!({ "role": "tool", "tool_call_id": call_id, "content": text }),
    });
    let mut body = json!({
        "model": call.model,
        "messages": system.into_iter().chain(said).collect::<Vec<_>>(),
        "stream": true,
        "stream_options": { "include_usage": true },
    });
    for (name, value) in &call.parameters {
        if !OURS.contains(&name.as_str()) {
            body[name] = value.clone();
        }
    }
    // A null takes a field out, for servers that refuse one which they do not know.
    if let Some(fields) = body.as_object_mut() {
        fields.retain(|_, value| !value.is_null());
    }
    body.to_string().into_bytes()
}

/// One event of an answer.
#[derive(Debug, Deserialize)]
pub(super) struct Event {
    choices: Option<Vec<Choice>>,
    pub(super) usage: Option<Usage>,
    pub(super) error: Option<Value>,
}

impl Event {
    /// What it adds to the first answer; the only one, as only one is asked for.
    pub(super) fn into_choice(self) -> Option<Choice> {
        self.choices?.into_iter().find(|choice| choice.index.is_none_or(|index| index == 0))
    }
}

#[derive(Debug, Deserialize)]
pub(super) struct Choice {
    index: Option<u64>,
    delta: Option<Delta>,
    pub(super) finish_reason: Option<String>,
}

impl Choice {
    /// More text; may be empty. What a model says when it refuses is an answer too.
    pub(super) fn text(&mut self) -> String {
        let Some(delta) = &mut self.delta else { return String::new() };
        let content = delta.content.take().map(Content::into_text).unwrap_or_default();
        content + &delta.refusal.take().unwrap_or_default()
    }

    pub(super) fn calls_tool(&self) -> bool {
        let Some(delta) = &self.delta else { return false };
        delta.tool_calls.as_ref().is_some_and(|calls| !calls.is_empty()) || delta.function_call.is_some()
    }
}

#[derive(Debug, Deserialize)]
struct Delta {
    content: Option<Content>,
    refusal: Option<String>,
    tool_calls: Option<Vec<IgnoredAny>>,
    function_call: Option<IgnoredAny>,
}

/// Some providers send parts, of which those without text are thoughts.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Content {
    Text(String),
    Parts(Vec<Part>),
    Unknown(IgnoredAny),
}

impl Content {
    fn into_text(self) -> String {
        match self {
            Self::Text(text) => text,
            Self::Parts(parts) => parts.into_iter().filter_map(|part| part.text).collect(),
            Self::Unknown(_) => String::new(),
        }
    }
}

#[derive(Debug, Deserialize)]
struct Part {
    text: Option<String>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Usage {
    prompt_tokens: Option<u64>,
    completion_tokens: Option<u64>,
}

impl Usage {
    pub(super) fn counted(&self) -> model::Usage {
        let (prompt, completion) = (self.prompt_tokens.unwrap_or(0), self.completion_tokens.unwrap_or(0));
        model::Usage { prompt, completion, ..model::Usage::default() }
    }
}
