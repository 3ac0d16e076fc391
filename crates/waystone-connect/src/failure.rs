//! What people are told when a server does not answer as it should. Whatever it said itself is made one short line, and never
//! has the key.

use std::time::Duration;

use hyper::{StatusCode, Uri};
use serde_json::Value;
use waystone_core::api::TurnError;
use waystone_core::model::ModelError;

use crate::key::Key;
use crate::provider::Provider;
use crate::server::{Opener, Place};

/// How much of a provider's own words is passed on.
const SAID_CHARS_MAX: usize = 300;
/// Where servers put their words, the usual place first.
const SAID_AT: [&str; 6] = ["/error/message", "/error", "/message", "/detail", "/0/error/message", ""];

/// The server that is asked.
#[derive(Debug)]
pub(crate) struct Peer {
    /// Host and port. A user name in the address is not part of it.
    name: String,
    provider: Provider,
    /// What its address is set with.
    setting: String,
    opener: Opener,
}

impl Peer {
    pub(crate) fn new(place: &Place, endpoint: &Uri, opener: Opener) -> Self {
        let host = endpoint.host().unwrap_or_default();
        let name = endpoint.port_u16().map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"));
        Self { name, provider: place.provider, setting: place.setting.clone(), opener }
    }

    pub(crate) fn key(&self) -> Option<&Key> {
        self.opener.key.as_ref()
    }

    /// What its key is set with.
    pub(crate) fn key_variable(&self) -> &str {
        &self.opener.variable
    }

    /// No answer began.
    pub(crate) fn unreachable(&self, why: &str) -> ModelError {
        let message = format!("{} cannot be reached: {}", self.name, self.line(why));
        let hint = match self.provider {
            Provider::Ollama => format!("see whether Ollama runs, and check {}, then try again", self.setting),
            _ => format!("check the network and {}, then try again", self.setting),
        };
        self.error("MODEL_UNREACHABLE", true, message, &hint)
    }

    /// An answer began, and did not end.
    pub(crate) fn interrupted(&self, why: &str) -> ModelError {
        let message = format!("the answer of {} broke off: {}", self.name, self.line(why));
        self.error("MODEL_INTERRUPTED", true, message, "try again")
    }

    /// It answered, but not as a stream; `kind` is what came.
    pub(crate) fn no_stream(&self, kind: &str) -> ModelError {
        let message = format!("{} answered with {kind} instead of a stream", self.name);
        let hint = format!("check {}: {}", self.setting, self.provider.url_shape());
        self.error("MODEL_REFUSED", false, message, &hint)
    }

    /// The model will not answer, and says nothing more.
    pub(crate) fn refused(&self) -> ModelError {
        let message = format!("the model at {} refused to answer", self.name);
        self.error("MODEL_REFUSED", false, message, "say it in other words, or use another model")
    }

    /// The model wants a tool, and can have none: `why`.
    pub(crate) fn called_tool(&self, why: &str) -> ModelError {
        let message = format!("the model at {} only called tools, and {why}", self.name);
        self.error("MODEL_CALLED_TOOL", false, message, "ask for an answer in words, or use another model")
    }

    /// It answered with a status that is no success, and `body`.
    pub(crate) fn answered(&self, status: StatusCode, retry_after: Option<Duration>, body: &[u8]) -> ModelError {
        let mut message = format!("{} answered {}", self.name, status.as_u16());
        let parsed = serde_json::from_slice::<Value>(body);
        let said = match &parsed {
            Ok(body) => self.line(said_in(body).unwrap_or_default()),
            // Pages are for browsers.
            Err(_) if body.trim_ascii_start().starts_with(b"<") => String::new(),
            Err(_) => self.line(&String::from_utf8_lossy(body)),
        };
        if !said.is_empty() {
            message = format!("{message}: {said}");
        }
        let status = self.meant(status.as_u16(), &parsed.unwrap_or_default());
        ModelError { retry_after, ..self.by_status(status, message) }
    }

    /// It began an answer well, and then said `error` in it.
    pub(crate) fn said(&self, error: &Value) -> ModelError {
        let said = self.line(said_in(error).unwrap_or("its provider failed"));
        let message = format!("the answer of {} broke off: {said}", self.name);
        let status = error["code"].as_u64().and_then(|code| u16::try_from(code).ok());
        match (status.filter(|status| (400..600).contains(status)), error["type"].as_str().and_then(status_of)) {
            (Some(status), _) | (None, Some(status)) => self.by_status(status, message),
            (None, None) => self.interrupted(&said),
        }
    }

    /// The status that would say what `body` says: trying again does not help an account that has run dry, and Gemini calls a
    /// wrong key a bad request.
    fn meant(&self, status: u16, body: &Value) -> u16 {
        let is = |place: &str, what: &str| body.pointer(place).is_some_and(|found| found == what);
        match status {
            429 if is("/error/code", "insufficient_quota") || is("/error/type", "insufficient_quota") => 402,
            400 if self.provider == Provider::Gemini && body.to_string().contains("API_KEY_INVALID") => 401,
            status => status,
        }
    }

    fn by_status(&self, status: u16, message: String) -> ModelError {
        let Self { setting, provider, .. } = self;
        let no_model = match provider {
            Provider::Ollama => format!("get the model with `ollama pull`, or check {setting}"),
            _ => format!(
                "check the model's name, say in `models` who else has it, or check that {setting} ends as it should"
            ),
        };
        let (code, is_recoverable, hint) = match status {
            401 | 403 => ("MODEL_UNAUTHORIZED", false, self.opener.no_key.as_str()),
            402 => ("MODEL_REFUSED", false, "check the plan and the credit of your account"),
            404 => ("MODEL_NOT_FOUND", false, no_model.as_str()),
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
        let text = self.key().map_or_else(|| text.to_owned(), |key| key.hide_in(text));
        let text: String = text.chars().map(|char| if char.is_control() { ' ' } else { char }).collect();
        let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
        match line.char_indices().nth(SAID_CHARS_MAX) {
            Some((end, _)) => format!("{}…", &line[..end]),
            None => line,
        }
    }
}

/// The status that goes with a type of error, where it comes without one.
fn status_of(kind: &str) -> Option<u16> {
    Some(match kind {
        "invalid_request_error" => 400,
        "authentication_error" => 401,
        "billing_error" | "insufficient_quota" => 402,
        "permission_error" => 403,
        "not_found_error" => 404,
        "request_too_large" => 413,
        "rate_limit_error" | "overloaded_error" => 429,
        "api_error" | "timeout_error" => 500,
        _ => return None,
    })
}

/// A provider's own words in what it sent, or in the `error` of it.
fn said_in(body: &Value) -> Option<&str> {
    SAID_AT.iter().find_map(|place| body.pointer(place)?.as_str())
}
