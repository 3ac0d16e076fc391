//! What people are told when a server does not answer as it should. Whatever it said itself is made one short line, and never
//! has the key.

use std::time::Duration;

use hyper::{StatusCode, Uri};
use serde_json::Value;
use waystone_core::api::TurnError;
use waystone_core::model::ModelError;

use crate::key::Key;

/// How much of a provider's own words is passed on.
const SAID_CHARS_MAX: usize = 300;
/// Where servers put their words, the usual place first.
const SAID_AT: [&str; 6] = ["/error/message", "/error", "/message", "/detail", "/0/error/message", ""];

/// The server that is asked.
#[derive(Debug)]
pub(crate) struct Peer {
    /// Host and port. A user name in the address is not part of it.
    name: String,
    key: Option<Key>,
}

impl Peer {
    pub(crate) fn new(endpoint: &Uri, key: Option<Key>) -> Self {
        let host = endpoint.host().unwrap_or_default();
        let name = endpoint.port_u16().map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"));
        Self { name, key }
    }

    pub(crate) fn key(&self) -> Option<&Key> {
        self.key.as_ref()
    }

    /// No answer began.
    pub(crate) fn unreachable(&self, why: &str) -> ModelError {
        let message = format!("{} cannot be reached: {}", self.name, self.line(why));
        self.error("MODEL_UNREACHABLE", true, message, "check the network and OPENAI_BASE_URL, then try again")
    }

    /// An answer began, and did not end.
    pub(crate) fn interrupted(&self, why: &str) -> ModelError {
        let message = format!("the answer of {} broke off: {}", self.name, self.line(why));
        self.error("MODEL_INTERRUPTED", true, message, "try again")
    }

    /// It answered, but not as a stream; `kind` is what came.
    pub(crate) fn no_stream(&self, kind: &str) -> ModelError {
        let message = format!("{} answered with {kind} instead of a stream", self.name);
        self.error("MODEL_REFUSED", false, message, "check OPENAI_BASE_URL: it usually ends in /v1")
    }

    /// The model wants a tool, and can have none: `why`.
    pub(crate) fn called_tool(&self, why: &str) -> ModelError {
        let message = format!("the model at {} only called tools, and {why}", self.name);
        self.error("MODEL_CALLED_TOOL", false, message, "ask for an answer in words, or use another model")
    }

    /// It answered with a status that is no success, and `body`.
    pub(crate) fn answered(&self, status: StatusCode, retry_after: Option<Duration>, body: &[u8]) -> ModelError {
        let mut message = format!("{} answered {}", self.name, status.as_u16());
        let said = match serde_json::from_slice::<Value>(body) {
            Ok(body) => self.line(said_in(&body).unwrap_or_default()),
            // Pages are for browsers.
            Err(_) if body.trim_ascii_start().starts_with(b"<") => String::new(),
            Err(_) => self.line(&String::from_utf8_lossy(body)),
        };
        if !said.is_empty() {
            message = format!("{message}: {said}");
        }
        ModelError { retry_after, ..self.by_status(status.as_u16(), message) }
    }

    /// It began an answer well, and then said `error` in it.
    pub(crate) fn said(&self, error: &Value) -> ModelError {
        let said = self.line(said_in(error).unwrap_or("its provider failed"));
        let message = format!("the answer of {} broke off: {said}", self.name);
        let status = error["code"].as_u64().and_then(|code| u16::try_from(code).ok());
        match (status, error["type"].as_str()) {
            (Some(status @ 400..=599), _) => self.by_status(status, message),
            (_, Some("invalid_request_error")) => self.by_status(400, message),
            _ => self.interrupted(&said),
        }
    }

    fn by_status(&self, status: u16, message: String) -> ModelError {
        let (code, is_recoverable, hint) = match status {
            401 | 403 => ("MODEL_UNAUTHORIZED", false, "set OPENAI_API_KEY to a key that this provider accepts"),
            404 => ("MODEL_NOT_FOUND", false, "check the model's name, and that OPENAI_BASE_URL ends as it should"),
            408 | 409 | 500..=599 => ("MODEL_FAILED", true, "try again later"),
            429 => ("MODEL_OVERLOADED", true, "wait a little, or check the limits of your account"),
            _ => ("MODEL_REFUSED", false, "change the model, its parameters or the message as the provider says"),
        };
        self.error(code, is_recoverable, message, hint)
    }

    fn error(&self, code: &str, is_recoverable: bool, message: String, hint: &str) -> ModelError {
        let error = TurnError { code: code.to_owned(), message, hint: hint.to_owned() };
        ModelError { is_recoverable, retry_after: None, error }
    }

    /// `text` without the key, on one line, and not long. The key goes first: half of it would not be found.
    fn line(&self, text: &str) -> String {
        let text = self.key.as_ref().map_or_else(|| text.to_owned(), |key| key.hide_in(text));
        let text: String = text.chars().map(|char| if char.is_control() { ' ' } else { char }).collect();
        let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
        match line.char_indices().nth(SAID_CHARS_MAX) {
            Some((end, _)) => format!("{}…", &line[..end]),
            None => line,
        }
    }
}

/// A provider's own words in what it sent, or in the `error` of it.
fn said_in(body: &Value) -> Option<&str> {
    SAID_AT.iter().find_map(|place| body.pointer(place)?.as_str())
}
