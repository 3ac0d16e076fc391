//! Frames that cannot be taken, and what their sender is told: no one is left waiting.

use std::ops::Range;

use rmcp::model::{ClientJsonRpcMessage, ClientRequest, ErrorData, RequestId, ServerJsonRpcMessage, ServerResult};
use serde::Deserialize;
use serde_json::value::RawValue;
use waystone_core::{Error, json};

use super::tool::{failure, name_for};

/// Texts longer than this are neither an id nor a method.
const TEXT_MAX: usize = 256;

/// Reads a message, whichever way it came. The SDK's types copy what they read several times before they know what it is, so
/// the arguments of a call are read beside them.
pub(crate) fn parse_message(frame: &[u8]) -> Result<ClientJsonRpcMessage, Box<Refusal>> {
    parse(frame).map_err(|error| Refusal::of(frame, error))
}

fn parse(frame: &[u8]) -> Result<ClientJsonRpcMessage, Error> {
    let Some(arguments) = find_arguments(frame) else {
        return json::parse_message(frame).map_err(Error::InvalidInput);
    };
    let mut rest = frame[..arguments.start].to_vec();
    rest.extend_from_slice(b"{}");
    rest.extend_from_slice(&frame[arguments.end..]);
    let mut message: ClientJsonRpcMessage = json::parse_message(&rest).map_err(Error::InvalidInput)?;
    if let ClientJsonRpcMessage::Request(request) = &mut message
        && let ClientRequest::CallToolRequest(call) = &mut request.request
    {
        let refuse = |error| name_for(&call.params.name, Error::InvalidInput(error));
        call.params.arguments = Some(json::parse_message(&frame[arguments]).map_err(refuse)?);
    }
    Ok(message)
}

/// As much of a call as tells where its arguments are.
#[derive(Deserialize)]
struct Call<'a> {
    method: &'a str,
    #[serde(borrow)]
    params: Params<'a>,
}

#[derive(Deserialize)]
struct Params<'a> {
    #[serde(borrow)]
    arguments: &'a RawValue,
}

/// Where in `frame` the arguments of a call are, if it is one and they are an object.
fn find_arguments(frame: &[u8]) -> Option<Range<usize>> {
    let mut deserializer = serde_json::Deserializer::from_slice(frame);
    deserializer.disable_recursion_limit();
    let call = Call::deserialize(&mut deserializer).ok().filter(|call| call.method == "tools/call")?;
    let arguments = call.params.arguments.get();
    let start = arguments.as_ptr() as usize - frame.as_ptr() as usize;
    arguments.starts_with('{').then(|| start..start + arguments.len())
}

/// A frame that could not be taken, and why.
pub(crate) struct Refusal {
    pub(crate) envelope: Envelope,
    pub(crate) error: Error,
}

impl Refusal {
    pub(crate) fn of(frame: &[u8], error: Error) -> Box<Self> {
        Box::new(Self { envelope: Envelope::of(frame), error })
    }

    /// What the sender is told: a tool call gets a result that the model sees, anything else an error of the protocol. A broken
    /// answer to us has no one waiting for another.
    pub(crate) fn answer(&self) -> Option<ServerJsonRpcMessage> {
        match self.envelope.id().cloned() {
            Some(id) if self.envelope.is_tool_call() => {
                Some(ServerJsonRpcMessage::response(ServerResult::CallToolResult(failure(&self.error)), id))
            }
            Some(_) if !self.envelope.is_request() => None,
            id => {
                let message = self.error.to_string();
                let error = match &self.error {
                    Error::StorageUnavailable { .. } | Error::Internal(_) => ErrorData::internal_error(message, None),
                    _ => ErrorData::parse_error(message, None),
                };
                Some(ServerJsonRpcMessage::error(error, id))
            }
        }
    }
}

/// Looks for `id` and `method` of the outermost object, byte by byte, in JSON that may be broken, too deep, or too long to
/// be kept.
#[derive(Debug, Default)]
pub(crate) struct Envelope {
    depth: usize,
    in_string: bool,
    escaped: bool,
    /// The text or number being read at the outermost level.
    token: Vec<u8>,
    /// The key whose value is being read.
    key: Vec<u8>,
    id: Option<RequestId>,
    method: Option<String>,
}

impl Envelope {
    pub(super) fn of(frame: &[u8]) -> Self {
        let mut envelope = Self::default();
        envelope.feed(frame);
        envelope
    }

    pub(super) fn feed(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|&byte| self.take(byte));
    }

    fn id(&self) -> Option<&RequestId> {
        self.id.as_ref()
    }

    fn is_request(&self) -> bool {
        self.method.is_some()
    }

    fn is_tool_call(&self) -> bool {
        self.method.as_deref() == Some("tools/call")
    }

    fn take(&mut self, byte: u8) {
        if self.in_string {
            match byte {
                _ if self.escaped => self.escaped = false,
                b'\\' => self.escaped = true,
                b'"' => self.in_string = false,
                _ => {}
            }
            return self.keep(byte);
        }
        match byte {
            b'"' => {
                self.in_string = true;
                self.keep(byte);
            }
            b'{' | b'[' => self.depth += 1,
            b'}' | b']' => {
                self.end_value();
                self.depth = self.depth.saturating_sub(1);
            }
            b':' if self.depth == 1 => self.key = std::mem::take(&mut self.token),
            b',' => self.end_value(),
            _ if byte.is_ascii_whitespace() => {}
            _ => self.keep(byte),
        }
    }

    fn keep(&mut self, byte: u8) {
        if self.depth == 1 && self.token.len() <= TEXT_MAX {
            self.token.push(byte);
        }
    }

    fn end_value(&mut self) {
        if self.depth != 1 {
            return;
        }
        let token = std::mem::take(&mut self.token);
        match self.key.as_slice() {
            b"\"id\"" => self.id = serde_json::from_slice(&token).ok(),
            b"\"method\"" => self.method = serde_json::from_slice(&token).ok(),
            _ => {}
        }
        self.key.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_id_of_a_broken_frame_is_found() {
        let check = |frame: &str, id: Option<&str>, is_tool_call: bool| {
            let envelope = Envelope::of(frame.as_bytes());
            let found = envelope.id().map(|id| id.to_string());
            assert_eq!((found.as_deref(), envelope.is_tool_call()), (id, is_tool_call), "{frame}");
        };
        check(r#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"id":9,"s":"\ud800"}}"#, Some("7"), true);
        check(r#"{"method" : "tools/call", "params":{"a":[1e999]}, "id" : "x-1" }"#, Some("x-1"), true);
        check(r#"{"id":3,"method":"tools/list","params":{"#, Some("3"), false);
        check(r#"{"params":{"id":3},"note":"\"id\":4,"}"#, None, false);
        check("not json at all, \"id\":4", None, false);
        check(&format!(r#"{{"id":5,"deep":{}}}"#, "[".repeat(5000)), Some("5"), false);
    }

    #[test]
    fn a_failure_of_ours_is_answered_and_not_called_the_senders() {
        let answer = |method: &str| {
            let frame = format!(r#"{{"jsonrpc":"2.0","id":7,"method":"{method}"}}"#);
            let refusal = Refusal::of(frame.as_bytes(), Error::broken("the work was aborted"));
            serde_json::to_value(refusal.answer().unwrap()).unwrap()
        };
        let (call, other) = (answer("tools/call"), answer("tools/list"));
        assert_eq!((&call["id"], &other["id"]), (&7.into(), &7.into()));
        assert_eq!(call["result"]["structuredContent"]["error"]["code"], "STORAGE_UNAVAILABLE", "{call}");
        assert_eq!(other["error"]["code"], -32603, "{other}");
    }
}
