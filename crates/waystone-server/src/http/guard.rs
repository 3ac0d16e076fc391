//! Who may call: programs of this user on this machine, and pages of our own or of origins that were allowed by name.
//!
//! A web page anywhere can make a browser send requests to this machine. Its `Origin` gives it away, and when it points a name
//! of its own at this machine its `Host` does. Both are checked on every path and method, before a body is read.

use std::net::IpAddr;
use std::sync::Arc;

use axum::extract::connect_info::{ConnectInfo, Connected};
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use axum::serve::IncomingStream;
use tokio::net::TcpListener;
use waystone_core::Error;

use super::reply::HttpError;
use crate::platform;

#[derive(Debug, Clone, Default)]
pub struct Guard {
    /// Origins besides our own, such as `https://app.example`.
    pub allowed_origins: Vec<String>,
    /// Whether other users of this machine may call.
    pub allow_other_users: bool,
}

/// Who has made a connection, as far as that can be told. Asked once for each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Peer {
    /// This user, or the one who may do everything anyway.
    Own,
    Other,
    /// It had gone before it could be asked for: who sends and closes at once does not wait for an answer.
    Gone,
}

impl Connected<IncomingStream<'_, TcpListener>> for Peer {
    fn connect_info(stream: IncomingStream<'_, TcpListener>) -> Self {
        match stream.io().local_addr() {
            Ok(own) => platform::peer(own, *stream.remote_addr()),
            Err(_) => Self::Gone,
        }
    }
}

/// What is stored is never taken for another kind of thing than it is sent as, such as a page.
pub(super) async fn check(state: State<Arc<Guard>>, request: Request, next: Next) -> Response {
    let mut response = admit_or_refuse(state, request, next).await;
    response.headers_mut().insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

async fn admit_or_refuse(State(guard): State<Arc<Guard>>, request: Request, next: Next) -> Response {
    // What has no connection was made in this process.
    let peer = request.extensions().get::<ConnectInfo<Peer>>().map_or(Peer::Own, |info| info.0);
    if peer != Peer::Own && !guard.allow_other_users {
        let who = if peer == Peer::Other { "by another user" } else { "and closed before it was known by whom" };
        return HttpError(Error::Forbidden(format!("the connection was made {who}"))).into_response();
    }
    // A request line may name a host of its own; it must be ours too.
    if request.uri().authority().is_some_and(|authority| !is_loopback(authority.as_str())) {
        return HttpError(Error::Forbidden("the request line does not name this machine".to_owned())).into_response();
    }
    let origin = match guard.admit(request.headers()) {
        Ok(origin) => origin,
        Err(error) => return HttpError(error).into_response(),
    };
    let is_preflight =
        request.method() == Method::OPTIONS && request.headers().contains_key(header::ACCESS_CONTROL_REQUEST_METHOD);
    let mut response = match (&origin, is_preflight) {
        (Some(_), true) => StatusCode::NO_CONTENT.into_response(),
        _ => next.run(request).await,
    };
    if let Some(origin) = origin {
        allow(response.headers_mut(), origin);
    }
    response
}

impl Guard {
    /// The origin to which CORS headers are due, if the request is let in.
    fn admit(&self, headers: &HeaderMap) -> Result<Option<HeaderValue>, Error> {
        let host = headers.get(header::HOST).and_then(|host| host.to_str().ok());
        let host = host.ok_or_else(|| Error::Forbidden("the request has no Host header".to_owned()))?;
        if !is_loopback(host) || headers.get_all(header::HOST).iter().count() > 1 {
            return Err(Error::Forbidden("the Host header does not name this machine".to_owned()));
        }
        let mut origins = headers.get_all(header::ORIGIN).iter();
        let (Some(origin), None) = (origins.next(), origins.next()) else {
            return if headers.contains_key(header::ORIGIN) { Err(foreign_origin()) } else { Ok(None) };
        };
        let text = origin.to_str().map_err(|_| foreign_origin())?;
        if text.strip_prefix("http://") == Some(host) {
            return Ok(None);
        }
        if self.allowed_origins.iter().any(|allowed| allowed == text) {
            return Ok(Some(origin.clone()));
        }
        Err(foreign_origin())
    }
}

fn foreign_origin() -> Error {
    Error::Forbidden("the Origin header names a page that is not ours".to_owned())
}

/// Whether an authority is a name of this machine itself, with any port.
fn is_loopback(authority: &str) -> bool {
    let (name, port) = match authority.strip_prefix('[') {
        Some(rest) => rest.split_once(']').unwrap_or_default(),
        None => authority.split_at(authority.find(':').unwrap_or(authority.len())),
    };
    let is_port = |digits: &str| !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    if !port.is_empty() && !port.strip_prefix(':').is_some_and(is_port) {
        return false;
    }
    name.eq_ignore_ascii_case("localhost") || name.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

fn allow(headers: &mut HeaderMap, origin: HeaderValue) {
    headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
    headers.insert(header::VARY, HeaderValue::from_static("Origin"));
    let methods = HeaderValue::from_static("GET, POST, PUT, PATCH, DELETE");
    headers.insert(header::ACCESS_CONTROL_ALLOW_METHODS, methods);
    let allowed = HeaderValue::from_static(
        "content-type, idempotency-key, last-event-id, mcp-method, mcp-name, mcp-protocol-version, mcp-session-id",
    );
    headers.insert(header::ACCESS_CONTROL_ALLOW_HEADERS, allowed);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_of_this_machine_are_hosts() {
        let check = |host: &str, good: bool| assert_eq!(is_loopback(host), good, "{host}");
        for host in ["localhost", "LOCALHOST:3000", "127.0.0.1", "127.0.0.1:80", "127.8.9.1:1", "[::1]", "[::1]:3000"] {
            check(host, true);
        }
        for host in [
            "",
            "example.com",
            "localhost.example.com",
            "127.0.0.1.example.com",
            "10.0.0.1",
            "[::2]",
            "0.0.0.0:3000",
            "::1",
            "[::1]evil.example",
            "localhost:3000@evil.example",
            "localhost:abc",
            "localhost:",
            "[",
        ] {
            check(host, false);
        }
    }
}
