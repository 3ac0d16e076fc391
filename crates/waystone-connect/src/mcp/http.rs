//! Streamable HTTP over our own client. Sessions, streams that are taken up again and the messages themselves are the SDK's.
//!
//! No redirect is followed, as the headers may hold a key, and nothing that was sent is sent again.

use std::collections::HashMap;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use http_body_util::{BodyExt, Full};
use hyper::body::{Body, Bytes, Frame, Incoming};
use hyper::header::{ACCEPT, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, USER_AGENT};
use hyper::{Method, Request, Response, StatusCode, Uri};
use rmcp::model::{ClientJsonRpcMessage, ServerJsonRpcMessage};
use rmcp::transport::common::client_side_sse::BoxedSseResponse;
use rmcp::transport::streamable_http_client::{StreamableHttpClient, StreamableHttpError, StreamableHttpPostResponse};
use sse_stream::SseStream;
use tokio::time::timeout;

use super::MESSAGE_BYTES_MAX;
use crate::http::{AGENT, Http, root_cause};

const SESSION: HeaderName = HeaderName::from_static("mcp-session-id");
const LAST_EVENT: HeaderName = HeaderName::from_static("last-event-id");
const EVENTS: &str = "text/event-stream";
const JSON: &str = "application/json";

/// How long, and how much, is read of a body that says what went wrong.
const FAILURE_MAX: Duration = Duration::from_secs(5);
const FAILURE_BYTES_MAX: usize = 64 * 1024;
const SAID_CHARS_MAX: usize = 300;

#[derive(Clone)]
pub(super) struct HttpClient {
    pub(super) http: Http,
    /// Set once a message was too long: its stream is not asked for again.
    pub(super) is_too_long: Arc<AtomicBool>,
}

#[derive(Debug, thiserror::Error)]
pub(super) enum HttpError {
    /// Nothing was sent.
    #[error("it cannot be reached: {0}")]
    Unreachable(String),
    #[error("the connection broke: {0}")]
    Broken(String),
    #[error("it answered {}{said}", status.as_u16())]
    Refused { status: StatusCode, said: String },
    #[error("its answer is longer than {} MiB", MESSAGE_BYTES_MAX >> 20)]
    TooLong,
}

type Result<T> = std::result::Result<T, StreamableHttpError<HttpError>>;

impl StreamableHttpClient for HttpClient {
    type Error = HttpError;

    async fn post_message(
        &self,
        uri: Arc<str>,
        message: ClientJsonRpcMessage,
        session_id: Option<Arc<str>>,
        _: Option<String>,
        headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result<StreamableHttpPostResponse> {
        let body = serde_json::to_vec(&message)?;
        let mut request = request(Method::POST, &uri, headers, session_id.as_deref())?;
        request.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(JSON));
        *request.body_mut() = Full::from(body);
        let response = self.send(request).await?;

        let status = response.status();
        if status == StatusCode::NOT_FOUND && session_id.is_some() {
            return Err(StreamableHttpError::SessionExpired);
        }
        if !status.is_success() {
            let said = read_failure(response.into_body()).await;
            return match refusal(&message, &said) {
                Some(refusal) => Ok(StreamableHttpPostResponse::Json(refusal, None)),
                None => Err(refused(status, &said)),
            };
        }
        let session_id = response.headers().get(SESSION).and_then(|id| id.to_str().ok()).map(str::to_owned);
        match kind(response.headers()) {
            _ if matches!(status, StatusCode::ACCEPTED | StatusCode::NO_CONTENT) => {
                Ok(StreamableHttpPostResponse::Accepted)
            }
            kind if kind.starts_with(EVENTS) => {
                Ok(StreamableHttpPostResponse::Sse(self.events(response.into_body()), session_id))
            }
            // What is no request needs no answer, whatever came.
            _ if !matches!(message, ClientJsonRpcMessage::Request(_)) => Ok(StreamableHttpPostResponse::Accepted),
            kind if kind.starts_with(JSON) => {
                let answer = self.read(response.into_body()).await?;
                Ok(StreamableHttpPostResponse::Json(serde_json::from_slice(&answer)?, session_id))
            }
            kind => Err(StreamableHttpError::UnexpectedContentType(Some(kind.to_owned()))),
        }
    }

    async fn delete_session(
        &self,
        uri: Arc<str>,
        session_id: Arc<str>,
        _: Option<String>,
        headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result<()> {
        self.send(request(Method::DELETE, &uri, headers, Some(&session_id))?).await?;
        Ok(())
    }

    async fn get_stream(
        &self,
        uri: Arc<str>,
        session_id: Option<Arc<str>>,
        last_event_id: Option<String>,
        _: Option<String>,
        headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result<BoxedSseResponse> {
        if self.is_too_long.load(Ordering::Relaxed) {
            return Err(StreamableHttpError::ServerDoesNotSupportSse);
        }
        let mut request = request(Method::GET, &uri, headers, session_id.as_deref())?;
        if let Some(id) = last_event_id.and_then(|id| HeaderValue::try_from(id).ok()) {
            request.headers_mut().insert(LAST_EVENT, id);
        }
        let response = self.send(request).await?;
        match response.status() {
            StatusCode::METHOD_NOT_ALLOWED => Err(StreamableHttpError::ServerDoesNotSupportSse),
            status if !status.is_success() => Err(refused(status, &[])),
            _ if !kind(response.headers()).starts_with(EVENTS) => Err(StreamableHttpError::ServerDoesNotSupportSse),
            _ => Ok(self.events(response.into_body())),
        }
    }
}

impl HttpClient {
    async fn send(&self, request: Request<Full<Bytes>>) -> Result<Response<Incoming>> {
        self.http.request(request).await.map_err(|error| {
            let why = root_cause(&error);
            let error = if error.is_connect() { HttpError::Unreachable(why) } else { HttpError::Broken(why) };
            StreamableHttpError::Client(error)
        })
    }

    async fn read(&self, mut body: Incoming) -> Result<Vec<u8>> {
        let mut read = Vec::new();
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|error| StreamableHttpError::Client(HttpError::Broken(root_cause(&error))))?;
            read.extend_from_slice(frame.data_ref().map_or(&[], |bytes| bytes));
            if read.len() > MESSAGE_BYTES_MAX {
                return Err(StreamableHttpError::Client(HttpError::TooLong));
            }
        }
        Ok(read)
    }

    fn events(&self, body: Incoming) -> BoxedSseResponse {
        let is_too_long = self.is_too_long.clone();
        Box::pin(SseStream::new(BoundedEvents { body, event_bytes: 0, is_line_empty: true, is_too_long }))
    }
}

/// What is configured gives way to what the protocol needs.
fn request(
    method: Method,
    uri: &str,
    headers: HashMap<HeaderName, HeaderValue>,
    session_id: Option<&str>,
) -> Result<Request<Full<Bytes>>> {
    let mut request = Request::new(Full::default());
    *request.method_mut() = method;
    *request.uri_mut() = uri.parse::<Uri>().map_err(io::Error::other)?;
    request.headers_mut().extend(headers);
    let accept = HeaderValue::from_static("application/json, text/event-stream");
    request.headers_mut().insert(ACCEPT, accept);
    request.headers_mut().insert(USER_AGENT, HeaderValue::from_static(AGENT));
    request.headers_mut().remove(SESSION);
    if let Some(id) = session_id {
        request.headers_mut().insert(SESSION, id.parse().map_err(io::Error::other)?);
    }
    Ok(request)
}

fn kind(headers: &HeaderMap) -> &str {
    headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default()
}

/// What came until then is told: the status alone says most of it.
async fn read_failure(mut body: Incoming) -> Vec<u8> {
    let mut said = Vec::new();
    let reading = async {
        while said.len() < FAILURE_BYTES_MAX
            && let Some(Ok(frame)) = body.frame().await
        {
            said.extend_from_slice(frame.data_ref().map_or(&[], |bytes| bytes));
        }
    };
    let _ = timeout(FAILURE_MAX, reading).await;
    said
}

/// An error of the protocol itself that came with a bad status. Servers leave out whose it is, so that it is said here: otherwise
/// the request would wait for ever.
fn refusal(message: &ClientJsonRpcMessage, said: &[u8]) -> Option<ServerJsonRpcMessage> {
    let ClientJsonRpcMessage::Request(request) = message else { return None };
    match serde_json::from_slice(said).ok()? {
        ServerJsonRpcMessage::Error(error) => Some(ServerJsonRpcMessage::error(error.error, Some(request.id.clone()))),
        _ => None,
    }
}

fn refused(status: StatusCode, said: &[u8]) -> StreamableHttpError<HttpError> {
    let said = String::from_utf8_lossy(said);
    // Pages are for browsers.
    let words = if said.trim_start().starts_with('<') { "" } else { &said };
    let words: Vec<_> = words.split_whitespace().collect();
    let line: String = words.join(" ").chars().take(SAID_CHARS_MAX).collect();
    let said = if line.is_empty() { line } else { format!(": {line}") };
    StreamableHttpError::Client(HttpError::Refused { status, said })
}

/// A stream of events, until one is too long.
struct BoundedEvents {
    body: Incoming,
    event_bytes: usize,
    is_line_empty: bool,
    is_too_long: Arc<AtomicBool>,
}

impl Body for BoundedEvents {
    type Data = Bytes;
    type Error = HttpError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<std::result::Result<Frame<Bytes>, HttpError>>> {
        let Some(frame) = ready!(Pin::new(&mut self.body).poll_frame(context)) else { return Poll::Ready(None) };
        let frame = frame.map_err(|error| HttpError::Broken(root_cause(&error)))?;
        for byte in frame.data_ref().map_or(&[][..], |bytes| bytes) {
            match byte {
                b'\n' if self.is_line_empty => self.event_bytes = 0,
                b'\n' => self.is_line_empty = true,
                b'\r' => {}
                _ => {
                    self.is_line_empty = false;
                    self.event_bytes += 1;
                }
            }
        }
        if self.event_bytes > MESSAGE_BYTES_MAX {
            self.is_too_long.store(true, Ordering::Relaxed);
            return Poll::Ready(Some(Err(HttpError::TooLong)));
        }
        Poll::Ready(Some(Ok(frame)))
    }
}
