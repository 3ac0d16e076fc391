//! Servers that speak OpenAI's chat completions: OpenAI's own, and the many that copied it.
//!
//! Written over hyper rather than taken from a library of many providers. genai 0.7 was read for it: it takes the effort off the
//! end of a name, so that `o3-mini-high` cannot be asked for; it cannot tell an answer with a `finish_reason` and no `[DONE]`
//! from one that was cut; it logs what a server says of a failure, which may be the key; it has no bound on what it buffers; and
//! it brings a hundred crates for what is one request.
//!
//! This file asks. What is sent and read is in [`wire`], how a stream is cut into events in [`event`], how an answer goes on and
//! ends in [`streaming`], and what people are told when it does not in [`failure`].

mod event;
mod failure;
mod streaming;
mod wire;

use std::sync::Arc;
use std::time::Duration;

use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderValue, RETRY_AFTER, USER_AGENT};
use hyper::{Request, Response, Uri};
use tokio::sync::OnceCell;
use tokio::time::timeout;
use waystone_core::model::{Answer, ModelCall, ModelError};

use crate::http::{AGENT, Http, connect, root_cause};
use crate::key::Key;
use crate::not_configured;
use failure::Peer;
use streaming::Streaming;

const OPENAI_URL: &str = "https://api.openai.com/v1";

/// How long a server that was reached may say nothing.
const SILENCE_MAX: Duration = Duration::from_secs(120);
/// How long, and how much, is read of a body that says what went wrong.
const FAILURE_MAX: Duration = Duration::from_secs(5);
const FAILURE_BYTES_MAX: usize = 64 * 1024;

/// One server, and the key to it.
#[derive(Debug)]
pub(crate) struct OpenAi {
    endpoint: Uri,
    authorization: Option<HeaderValue>,
    peer: Arc<Peer>,
    http: OnceCell<Http>,
}

impl OpenAi {
    /// Fails if `base_url` or `key` cannot be used by anyone.
    pub(crate) fn new(base_url: Option<&str>, key: Option<Key>) -> Result<Self, ModelError> {
        let endpoint = endpoint(base_url.unwrap_or(OPENAI_URL)).ok_or_else(|| {
            let message = "OPENAI_BASE_URL is not an address that begins with http:// or https://".to_owned();
            not_configured(message, "set OPENAI_BASE_URL to something like http://127.0.0.1:11434/v1")
        })?;
        let authorization = match &key {
            Some(key) => Some(authorization(key).ok_or_else(|| {
                let message = "OPENAI_API_KEY has characters that no key has".to_owned();
                not_configured(message, "set OPENAI_API_KEY to the key alone, without quotes or line breaks")
            })?),
            None => None,
        };
        let peer = Arc::new(Peer::new(&endpoint, key));
        Ok(Self { endpoint, authorization, peer, http: OnceCell::new() })
    }

    pub(crate) async fn call(&self, call: &ModelCall) -> Result<Box<dyn Answer>, ModelError> {
        let http = self.http.get_or_try_init(|| async { connect(&self.endpoint).map_err(no_certificates) }).await?;
        let response = match timeout(SILENCE_MAX, http.request(self.request(call))).await {
            Ok(Ok(response)) => response,
            Ok(Err(error)) => return Err(self.peer.unreachable(&root_cause(&error))),
            Err(_) => return Err(self.peer.unreachable(&format!("no answer within {} s", SILENCE_MAX.as_secs()))),
        };
        if !response.status().is_success() {
            return Err(self.failure(response).await);
        }
        if let Some(kind) = whole_document(response.headers()) {
            return Err(self.peer.no_stream(kind));
        }
        Ok(Box::new(Streaming::new(response.into_body(), self.peer.clone())))
    }

    fn request(&self, call: &ModelCall) -> Request<Full<Bytes>> {
        let mut request = Request::new(Full::from(wire::request(call)));
        *request.method_mut() = hyper::Method::POST;
        *request.uri_mut() = self.endpoint.clone();
        let headers = request.headers_mut();
        headers.insert(ACCEPT, HeaderValue::from_static("text/event-stream"));
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(USER_AGENT, HeaderValue::from_static(AGENT));
        if let Some(authorization) = &self.authorization {
            headers.insert(AUTHORIZATION, authorization.clone());
        }
        request
    }

    async fn failure(&self, response: Response<Incoming>) -> ModelError {
        let status = response.status();
        let retry_after = retry_after(response.headers());
        let mut body = response.into_body();
        let mut said = Vec::new();
        let reading = async {
            while said.len() < FAILURE_BYTES_MAX
                && let Some(Ok(frame)) = body.frame().await
            {
                said.extend_from_slice(frame.data_ref().map_or(&[], |bytes| bytes));
            }
        };
        // What came until then is told: the status alone says most of it.
        let _ = timeout(FAILURE_MAX, reading).await;
        self.peer.answered(status, retry_after, &said)
    }
}

/// `base_url` with `chat/completions` under it; its query stays. None if it is not a web address.
fn endpoint(base_url: &str) -> Option<Uri> {
    let (path, query) = base_url.trim().split_once('?').unwrap_or((base_url.trim(), ""));
    let mark = if query.is_empty() { "" } else { "?" };
    let uri: Uri = format!("{}/chat/completions{mark}{query}", path.trim_end_matches('/')).parse().ok()?;
    let is_web = matches!(uri.scheme_str(), Some("http" | "https")) && uri.host().is_some_and(|host| !host.is_empty());
    is_web.then_some(uri)
}

/// None if the key has characters that a header cannot have.
fn authorization(key: &Key) -> Option<HeaderValue> {
    let mut value = HeaderValue::from_str(&format!("Bearer {}", key.expose())).ok()?;
    value.set_sensitive(true);
    Some(value)
}

fn no_certificates(message: String) -> ModelError {
    not_configured(message, "install the package ca-certificates, or set SSL_CERT_FILE to a file of certificates")
}

/// The kind of an answer that is surely no stream of events. Others are tried: not every server names what it sends.
fn whole_document(headers: &HeaderMap) -> Option<&'static str> {
    let kind = headers.get(CONTENT_TYPE)?.to_str().ok()?;
    ["text/html", "application/json"].into_iter().find(|document| kind.trim_start().starts_with(document))
}

/// The header's seconds. Its other form, a date, is not read: it would need the provider's clock and ours to agree.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let seconds = headers.get(RETRY_AFTER)?.to_str().ok()?.trim().parse().ok()?;
    Duration::try_from_secs_f64(seconds).ok()
}
