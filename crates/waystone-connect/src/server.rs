//! A server that models are asked at: where it is, what opens it, and how a question is put to it.
//!
//! What is asked and answered is for the wires, as [`crate::openai`] and [`crate::anthropic`]; what people are told when nothing is, for [`crate::failure`].

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::header::{ACCEPT, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, RETRY_AFTER, USER_AGENT};
use hyper::{Method, Request, Response, Uri};
use tokio::sync::OnceCell;
use tokio::time::timeout;
use waystone_core::model::ModelError;

use crate::failure::Peer;
use crate::http::{AGENT, Http, connect, endpoint, root_cause};
use crate::key::Key;
use crate::not_configured;
use crate::provider::Provider;

/// How long a server that was reached may say nothing.
pub(crate) const SILENCE_MAX: Duration = Duration::from_secs(120);
/// How long, and how much, is read of a body that says what went wrong.
const FAILURE_MAX: Duration = Duration::from_secs(5);
const FAILURE_BYTES_MAX: usize = 64 * 1024;

/// Where a server is, and what people know that by.
pub(crate) struct Place {
    pub(crate) provider: Provider,
    pub(crate) base_url: String,
    /// What the address is set with.
    pub(crate) setting: String,
}

/// What opens a server.
#[derive(Debug)]
pub(crate) struct Opener {
    pub(crate) key: Option<Key>,
    /// What the key is set with.
    pub(crate) variable: String,
    /// What to do where the server wants another key.
    pub(crate) no_key: String,
}

impl Opener {
    pub(crate) fn of_variable(variable: &str, key: Option<Key>) -> Self {
        let no_key = format!("set {variable} to a key that this provider accepts");
        Self { key, variable: variable.to_owned(), no_key }
    }

    /// For `provider` at the address that `setting` has.
    pub(crate) fn of_provider(provider: Provider, key: Option<Key>, setting: &str) -> Self {
        match provider.key_variable() {
            Some(variable) => Self::of_variable(variable, key),
            None => {
                let no_key = format!("check {setting}: what answers there wants a key");
                Self { key, variable: "the key".to_owned(), no_key }
            }
        }
    }
}

/// One server, and the key to it.
pub(crate) struct Server {
    endpoint: Uri,
    headers: HeaderMap,
    peer: Arc<Peer>,
    http: OnceCell<Http>,
}

impl Server {
    /// Fails if the address of `place` cannot be used by anyone.
    pub(crate) fn new(place: &Place, path: &str, opener: Opener) -> Result<Self, ModelError> {
        let Place { provider, base_url, setting } = place;
        let endpoint = endpoint(base_url, path).ok_or_else(|| {
            let message = format!("{setting} is not an address that begins with http:// or https://");
            not_configured(message, &format!("set {setting} to something like {}", provider.url()))
        })?;
        let mut headers = HeaderMap::new();
        headers.insert(ACCEPT, HeaderValue::from_static("text/event-stream"));
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(USER_AGENT, HeaderValue::from_static(AGENT));
        let peer = Arc::new(Peer::new(place, &endpoint, opener));
        Ok(Self { endpoint, headers, peer, http: OnceCell::new() })
    }

    /// The same, with the key in a header, after `scheme`. Fails if it has characters that a header cannot have.
    pub(crate) fn with_key_in(mut self, name: HeaderName, scheme: &str) -> Result<Self, ModelError> {
        let Some(key) = self.peer.key() else { return Ok(self) };
        let mut value = HeaderValue::from_str(&format!("{scheme}{}", key.expose())).map_err(|_| {
            let variable = self.peer.key_variable();
            let message = format!("{variable} has characters that no key has");
            not_configured(message, &format!("set {variable} to the key alone, without quotes or line breaks"))
        })?;
        value.set_sensitive(true);
        self.headers.insert(name, value);
        Ok(self)
    }

    /// The same, with another header.
    pub(crate) fn with_header(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.headers.insert(name, value);
        self
    }

    pub(crate) fn peer(&self) -> &Arc<Peer> {
        &self.peer
    }

    /// Puts a question, and returns the body of what is surely not a refusal.
    pub(crate) async fn ask(&self, body: Vec<u8>) -> Result<Incoming, ModelError> {
        let http = self.http.get_or_try_init(|| async { connect(&self.endpoint).map_err(no_certificates) }).await?;
        let response = match timeout(SILENCE_MAX, http.request(self.request(body))).await {
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
        Ok(response.into_body())
    }

    fn request(&self, body: Vec<u8>) -> Request<Full<Bytes>> {
        let mut request = Request::new(Full::from(body));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = self.endpoint.clone();
        *request.headers_mut() = self.headers.clone();
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

impl fmt::Debug for Server {
    /// An address may have a password in it, so only the peer's name is shown.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Server").field("peer", &self.peer).finish_non_exhaustive()
    }
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

fn no_certificates(why: String) -> ModelError {
    not_configured(why, "install the package ca-certificates, or set SSL_CERT_FILE to a file of certificates")
}
