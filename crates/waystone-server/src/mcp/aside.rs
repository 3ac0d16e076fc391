//! What goes past the SDK. Over HTTP it parses and writes on the thread that asks it to, and does not parse as deep as a
//! context may be; so it is given a message without its arguments, and makes one without its reply. Over standard output
//! it makes one without its reply, too: a reply is text already, and would be parsed only to be written again.

use std::sync::{Arc, Mutex, PoisonError};

use axum::http::request::Parts;
use rmcp::model::{ClientJsonRpcMessage, ClientRequest, JsonObject};
use rmcp::service::{RequestContext, RoleServer};
use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use waystone_core::offload::INLINE_BYTES_MAX;
use waystone_core::{Error, Limits, json};

use super::frame::{Refusal, parse_message};
use crate::room::Taken;

/// Arguments with more levels are not for the SDK, whose parser ends at 128 for a whole message.
const LEVELS_MAX: usize = 100;

/// Travels with one request, in its extensions.
#[derive(Clone, Default)]
pub(crate) struct Aside(Arc<Mutex<Kept>>);

#[derive(Default)]
struct Kept {
    arguments: Option<JsonObject>,
    reply: Option<(String, Option<Taken>)>,
}

impl Aside {
    /// Takes out of a message what is not for the SDK, and leaves what it is to read.
    pub(crate) fn divide(message: Vec<u8>) -> Result<(Vec<u8>, Self), Box<Refusal>> {
        let mut parsed = parse_message(&message)?;
        let arguments = take_arguments(&mut parsed, message.len() > INLINE_BYTES_MAX);
        let rest = match arguments.is_some() {
            true => serde_json::to_vec(&parsed).map_err(|error| refuse(&message, error.to_string()))?,
            false => message,
        };
        let bytes_max = Limits::ENVELOPE_BYTES_MAX;
        if rest.len() as u64 > bytes_max {
            let why = format!("more than {bytes_max} bytes are taken as arguments of a tool only");
            return Err(refuse(&rest, why));
        }
        Ok((rest, Self(Arc::new(Mutex::new(Kept { arguments, reply: None })))))
    }

    /// What came with the request of a call, if it came over HTTP.
    pub(super) fn of(context: &RequestContext<RoleServer>) -> Option<Self> {
        context.extensions.get::<Parts>()?.extensions.get::<Self>().cloned()
    }

    pub(super) fn take_arguments(&self) -> Option<JsonObject> {
        self.with(|kept| kept.arguments.take())
    }

    pub(super) fn put_reply(&self, reply: String, taken: Option<Taken>) {
        self.with(|kept| kept.reply = Some((reply, taken)));
    }

    pub(crate) fn take_reply(&self) -> Option<(String, Option<Taken>)> {
        self.with(|kept| kept.reply.take())
    }

    fn with<T>(&self, change: impl FnOnce(&mut Kept) -> T) -> T {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// A tool's result that the SDK made, with the reply that went past it: as text, and as what it says.
#[derive(Serialize)]
struct Answer<'a> {
    #[serde(flatten)]
    rest: Map<String, Value>,
    result: ToolResult<'a>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ToolResult<'a> {
    #[serde(flatten)]
    rest: Map<String, Value>,
    content: [Text<'a>; 1],
    structured_content: &'a RawValue,
}

#[derive(Serialize)]
struct Text<'a> {
    r#type: &'static str,
    text: &'a str,
}

/// Puts a tool's reply into the message that was made without it.
pub(crate) fn with_reply(message: &[u8], reply: &str) -> serde_json::Result<Vec<u8>> {
    let mut rest: Map<String, Value> = serde_json::from_slice(message)?;
    let result = rest.remove("result").and_then(|result| serde_json::from_value(result).ok());
    let mut result: Map<String, Value> = result.unwrap_or_default();
    result.remove("content");
    let content = [Text { r#type: "text", text: reply }];
    let result = ToolResult { rest: result, content, structured_content: serde_json::from_str(reply)? };
    serde_json::to_vec(&Answer { rest, result })
}

fn refuse(message: &[u8], why: String) -> Box<Refusal> {
    Refusal::of(message, Error::InvalidInput(why))
}

fn take_arguments(message: &mut ClientJsonRpcMessage, is_large: bool) -> Option<JsonObject> {
    let ClientJsonRpcMessage::Request(request) = message else { return None };
    let ClientRequest::CallToolRequest(call) = &mut request.request else { return None };
    let is_deep = |arguments: &JsonObject| arguments.values().any(|value| json::is_deeper(value, LEVELS_MAX));
    call.params.arguments.take_if(|arguments| is_large || is_deep(arguments))
}
