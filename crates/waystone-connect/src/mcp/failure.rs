//! What people and models are told when a server does not start, or a call comes to nothing.
//!
//! Of a call it matters most whether it may have been carried out: only what surely never reached the server is said not to be.

use rmcp::service::{ClientInitializeError, ServiceError};
use rmcp::transport::DynamicTransportError;
use rmcp::transport::streamable_http_client::StreamableHttpError;
use waystone_core::secret::without_secrets;

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

    /// With what it said on standard error, where programs tell anything at all.
    pub(super) fn with_words(self, words: &str) -> Self {
        match words.is_empty() {
            true => self,
            false => Self { why: format!("{}; it said: {}", self.why, without_secrets(words)), ..self },
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
pub(super) struct Unanswered {
    pub(super) why: String,
    /// The server does not know the session any more, and did nothing.
    pub(super) is_of_session: bool,
}

impl Unanswered {
    pub(super) fn new(error: &ServiceError, is_too_long: bool) -> Self {
        let why = match error {
            ServiceError::McpError(error) => format!("it answered with an error: {}", error.message),
            ServiceError::UnexpectedResponse => "its answer is no result of a tool".to_owned(),
            ServiceError::TransportSend(error) => match http(error) {
                None => "it has ended; the call was not sent".to_owned(),
                Some(error) => format!("{}; {}", web(error), outcome(error)),
            },
            _ if is_too_long => {
                format!("its answer is longer than {} MiB and was not read", MESSAGE_BYTES_MAX >> 20)
            }
            _ => "it went away while the call was under way; the outcome of the call is unknown".to_owned(),
        };
        let is_of_session = match error {
            ServiceError::TransportSend(error) => matches!(http(error), Some(StreamableHttpError::SessionExpired)),
            _ => false,
        };
        Self { why, is_of_session }
    }
}

/// What became of a call that `error` came of.
fn outcome(error: &StreamableHttpError<HttpError>) -> &'static str {
    match error {
        StreamableHttpError::Client(HttpError::Unreachable(_)) => "the call was not sent",
        StreamableHttpError::SessionExpired => "the call was not carried out",
        StreamableHttpError::Client(HttpError::Refused { status, .. }) => match status.as_u16() {
            400 | 401 | 403 | 404 | 405 | 406 | 413 | 415 | 429 => "the call was not carried out",
            _ => "the outcome of the call is unknown",
        },
        _ => "the outcome of the call is unknown",
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
