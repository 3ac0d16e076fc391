//! What people and models are told when a server does not start, or a call comes to nothing.
//!
//! Of a call it matters most whether it may have been carried out: only what surely never reached the server is said not to be.

use rmcp::service::{ClientInitializeError, ServiceError};
use rmcp::transport::DynamicTransportError;
use rmcp::transport::streamable_http_client::StreamableHttpError;

use super::MESSAGE_BYTES_MAX;
use super::http::HttpError;
use crate::http::root_cause;

const SAID_CHARS_MAX: usize = 300;

/// Why a server does not start.
#[derive(Debug)]
pub(super) struct Refusal {
    pub(super) why: String,
    /// It runs and answers, but not to the handshake.
    pub(super) is_of_handshake: bool,
}

impl<T: Into<String>> From<T> for Refusal {
    fn from(why: T) -> Self {
        Self { why: why.into(), is_of_handshake: false }
    }
}

impl Refusal {
    pub(super) fn new(error: &ClientInitializeError) -> Self {
        match error {
            ClientInitializeError::JsonRpcError(error) => {
                let why = format!("it refuses to speak with us: {}", short(&error.message));
                Self { why, is_of_handshake: true }
            }
            ClientInitializeError::TransportError { error, .. } => match http(error) {
                Some(error) => web(error).into(),
                None => "it ended before it answered".into(),
            },
            ClientInitializeError::ConnectionClosed(_) => "it ended before it answered".into(),
            other => short(&other.to_string()).into(),
        }
    }

    /// With what it said on standard error.
    pub(super) fn with_words(self, words: &str) -> Self {
        match words.is_empty() {
            true => self,
            false => Self { why: format!("{}; it said: {words}", self.why), ..self },
        }
    }
}

/// Why tools are not listed.
pub(super) fn list(error: &ServiceError) -> String {
    match error {
        ServiceError::McpError(error) => short(&error.message),
        ServiceError::TransportSend(error) => http(error).map_or_else(|| "it has ended".to_owned(), web),
        ServiceError::TransportClosed => "it ended before it answered".to_owned(),
        ServiceError::UnexpectedResponse => "its answer is no list of tools".to_owned(),
        other => short(&other.to_string()),
    }
}

/// Why a call has no result.
pub(super) fn call(error: &ServiceError, is_too_long: bool) -> String {
    match error {
        ServiceError::McpError(error) => format!("it refused the call: {}", error.message),
        ServiceError::UnexpectedResponse => "its answer is no result of a tool".to_owned(),
        ServiceError::TransportSend(error) => match http(error) {
            None => "it has ended; the call was not sent".to_owned(),
            Some(error @ StreamableHttpError::Client(HttpError::Unreachable(_))) => {
                format!("{}; the call was not sent", web(error))
            }
            Some(error @ StreamableHttpError::Client(HttpError::Refused { status, .. }))
                if status.is_client_error() =>
            {
                format!("{}; the call was not carried out", web(error))
            }
            Some(error) => format!("{}; the outcome of the call is unknown", web(error)),
        },
        _ if is_too_long => {
            format!("its answer is longer than {} MiB and was not read", MESSAGE_BYTES_MAX >> 20)
        }
        _ => "it went away while the call was under way; the outcome of the call is unknown".to_owned(),
    }
}

/// Whether nothing more can come over the connection. An answer that says no is an answer.
pub(super) fn is_final(error: &ServiceError) -> bool {
    match error {
        ServiceError::McpError(_) | ServiceError::UnexpectedResponse => false,
        ServiceError::TransportSend(error) => {
            !matches!(http(error), Some(StreamableHttpError::Client(HttpError::Refused { .. } | HttpError::TooLong)))
        }
        _ => true,
    }
}

fn http(error: &DynamicTransportError) -> Option<&StreamableHttpError<HttpError>> {
    error.error.downcast_ref()
}

fn web(error: &StreamableHttpError<HttpError>) -> String {
    match error {
        StreamableHttpError::Client(error) => error.to_string(),
        StreamableHttpError::UnexpectedContentType(_) | StreamableHttpError::Deserialize(_) => {
            "its answer is not of the protocol".to_owned()
        }
        StreamableHttpError::SessionExpired => "it has forgotten the session".to_owned(),
        other => short(&root_cause(other)),
    }
}

/// On one line, and not long.
fn short(text: &str) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(SAID_CHARS_MAX) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line,
    }
}
