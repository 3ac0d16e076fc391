//! Chat completions as they are written: the request, and the chunks of an answer.
//!
//! Providers leave out, null and add what they like, so that every field may be absent and none is refused.

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::{Value, json};
use waystone_core::api::{Role, Tool};
use waystone_core::canon::Hash;
use waystone_core::model::{self, Call, ModelCall, Said};

use super::extra::Extras;
use crate::call::{aside, sent_arguments};
use crate::provider::Provider;
use crate::usage::tokens;

/// What a conversation's parameters cannot set: it is ours, or asks for answers that nothing here could take.
const OURS: [&str; 9] =
    ["model", "messages", "stream", "n", "tools", "tool_choice", "parallel_tool_calls", "functions", "function_call"];
/// A longer id of a call is refused. What is kept of one that is, and how much of its hash stands for the rest.
const ID_CHARS_MAX: usize = 40;
const ID_CHARS_KEPT: usize = 23;
const ID_CHARS_HASHED: usize = 16;

/// The body of a request for `call`, as bytes.
pub(super) fn request(provider: Provider, call: &ModelCall, extras: &Extras) -> Vec<u8> {
    let system = (!call.system.is_empty()).then(|| json!({ "role": "system", "content": call.system }));
    let said = call.messages.iter().map(|said| message(provider, said, extras));
    let mut body = json!({
        "model": call.model,
        "messages": system.into_iter().chain(said).collect::<Vec<_>>(),
        "stream": true,
        "stream_options": { "include_usage": true },
    });
    // Ollama does not know `tool_choice`: what cannot be seen is not called.
    let is_hidden = provider == Provider::Ollama && call.is_last;
    if !call.tools.is_empty() && !is_hidden {
        body["tools"] = call.tools.iter().map(function).collect();
        if call.is_last {
            body["tool_choice"] = json!("none");
        }
    }
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

fn message(provider: Provider, said: &Said, extras: &Extras) -> Value {
    match said {
        Said::Text { role: Role::System, text } => json!({ "role": "user", "content": aside(text) }),
        Said::Text { role, text } => json!({ "role": role.as_str(), "content": text }),
        Said::Calls { text, calls } => {
            let content = if text.is_empty() { Value::Null } else { json!(text) };
            let mut found: Vec<_> = calls.iter().map(|call| extras.find(&call.id)).collect();
            if provider == Provider::Gemini && found.iter().all(Option::is_none) {
                found.iter_mut().take(1).for_each(|first| *first = Some(unsigned()));
            }
            let calls: Value = calls.iter().zip(found).map(|(call, extra)| tool_call(call, extra)).collect();
            json!({ "role": "assistant", "content": content, "tool_calls": calls })
        }
        Said::Result { call_id, text, .. } => json!({ "role": "tool", "tool_call_id": id(call_id), "content": text }),
    }
}

/// Gemini refuses calls of which the first has no signature, unless it is told that there is none: another model made them, or
/// another process heard of them.
fn unsigned() -> Value {
    json!({ "google": { "thought_signature": "skip_thought_signature_validator" } })
}

fn tool_call(call: &Call, extra: Option<Value>) -> Value {
    let arguments = Value::Object(sent_arguments(&call.arguments)).to_string();
    let function = json!({ "name": call.tool, "arguments": arguments });
    let mut written = json!({ "id": id(&call.id), "type": "function", "function": function });
    if let Some(extra) = extra {
        written["extra_content"] = extra;
    }
    written
}

/// An id that another provider gave may be too long here. It is the same for a call and its result, and another for every other call, also for
/// one whose own id looks like a shortened one.
fn id(id: &str) -> String {
    let is_like_ours = id
        .char_indices()
        .nth(ID_CHARS_KEPT)
        .and_then(|(at, _)| id[at..].strip_prefix('-'))
        .is_some_and(|hash| hash.len() == ID_CHARS_HASHED && hash.bytes().all(|byte| byte.is_ascii_hexdigit()));
    if id.chars().count() <= ID_CHARS_MAX && !is_like_ours {
        return id.to_owned();
    }
    let (kept, hash) = (id.chars().take(ID_CHARS_KEPT), Hash::of(id.as_bytes()).to_string());
    kept.chain(std::iter::once('-')).chain(hash.chars().take(ID_CHARS_HASHED)).collect()
}

fn function(tool: &Tool) -> Value {
    let mut parameters = tool.input_schema.clone();
    // Some servers refuse all tools when one does not say which arguments it has, though it has none.
    parameters.entry("properties").or_insert_with(|| json!({}));
    let mut function = json!({ "name": tool.name, "parameters": parameters });
    if !tool.description.is_empty() {
        function["description"] = json!(tool.description);
    }
    json!({ "type": "function", "function": function })
}

/// One event of an answer.
#[derive(Debug, Deserialize)]
pub(super) struct Event {
    choices: Option<Vec<Choice>>,
    usage: Option<Value>,
    pub(super) error: Option<Value>,
}

impl Event {
    pub(super) fn usage(&self) -> Option<model::Usage> {
        self.usage.as_ref().and_then(counted)
    }

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

    /// More of its calls.
    pub(super) fn calls(&mut self) -> Vec<CallDelta> {
        let Some(delta) = &mut self.delta else { return Vec::new() };
        let old = delta.function_call.take();
        let old = old.map(|function| CallDelta { index: Some(0), function: Some(function), ..CallDelta::default() });
        delta.tool_calls.take().into_iter().flatten().chain(old).collect()
    }
}

#[derive(Debug, Deserialize)]
struct Delta {
    content: Option<Content>,
    refusal: Option<String>,
    tool_calls: Option<Vec<CallDelta>>,
    /// What there was before `tool_calls`.
    function_call: Option<Function>,
}

/// A piece of a call.
#[derive(Debug, Default, Deserialize)]
pub(super) struct CallDelta {
    pub(super) index: Option<u64>,
    id: Option<String>,
    function: Option<Function>,
    /// What the provider wants back with the call.
    pub(super) extra_content: Option<Value>,
}

#[derive(Debug, Deserialize)]
struct Function {
    name: Option<String>,
    /// Text; some servers write it as JSON.
    arguments: Option<Value>,
}

impl CallDelta {
    pub(super) fn id(&self) -> Option<&str> {
        self.id.as_deref().filter(|id| !id.is_empty())
    }

    pub(super) fn name(&self) -> Option<&str> {
        self.function.as_ref()?.name.as_deref().filter(|name| !name.is_empty())
    }

    pub(super) fn arguments(&self) -> String {
        let arguments = self.function.as_ref().and_then(|function| function.arguments.as_ref());
        match arguments {
            None | Some(Value::Null) => String::new(),
            Some(Value::String(text)) => text.clone(),
            Some(written) => written.to_string(),
        }
    }
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

/// How many tokens a server counted, as far as it can be understood: an answer is not lost for it.
fn counted(usage: &Value) -> Option<model::Usage> {
    let (prompt, completion) = (tokens(&usage["prompt_tokens"]), tokens(&usage["completion_tokens"]));
    prompt.or(completion)?;
    Some(model::Usage {
        prompt: prompt.unwrap_or(0),
        completion: completion.unwrap_or(0),
        cache_read: tokens(&usage["prompt_tokens_details"]["cached_tokens"]).unwrap_or(0),
        cache_write: 0,
    })
}
