//! `/mcp`: the same tools as over standard input and output, as streamable HTTP.

use std::sync::Arc;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::http::request::Parts;
use axum::http::{Method, StatusCode};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use rmcp::ServerHandler;
use rmcp::model::ServerJsonRpcMessage;
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::transport::{StreamableHttpServerConfig, StreamableHttpService};
use waystone_core::json;

use super::extract::{check_content_type, read_body};
use super::reply::Json;
use super::{Guard, Http, INLINE_BYTES_MAX};
use crate::mcp::Refusal;

pub(super) fn service<S: ServerHandler + Clone>(http: &Http, guard: &Guard, handler: S) -> Router {
    let mut config = StreamableHttpServerConfig::default()
        .with_max_request_body_bytes(usize::try_from(http.body_bytes_max()).unwrap_or(usize::MAX))
        .disable_allowed_hosts()
        .enforce_origin_validation();
    config.legacy_session_mode = false;
    config.json_response = true;
    config.allowed_origins = ["http://localhost:*", "http://127.0.0.1:*", "http://[::1]:*"].map(str::to_owned).into();
    config.allowed_origins.extend(guard.allowed_origins.iter().cloned());
    let sessions = Arc::new(LocalSessionManager::default());
    let service = StreamableHttpService::new(move || Ok(handler.clone()), sessions, config);
    Router::new().fallback_service(service).layer(middleware::from_fn_with_state(http.clone(), bound))
}

/// Reads the body before the SDK does: bounded, drained when it is too long, and not nested beyond what can be parsed.
async fn bound(State(http): State<Http>, request: Request, next: Next) -> Response {
    if request.method() != Method::POST {
        return next.run(request).await;
    }
    if let Err(error) = check_content_type(request.headers()) {
        return error.into_response();
    }
    let (parts, body) = request.into_parts();
    let body = match read_body(Request::from_parts(parts.clone(), body), http.body_bytes_max()).await {
        Ok(body) => body,
        Err(error) => return error.into_response(),
    };
    let _turn = http.take_budget(body.len()).await;
    if body.len() <= INLINE_BYTES_MAX {
        return answer(parts, body, next).await;
    }
    // The SDK parses on the thread that asks it to; a large body must not hold up the others.
    let runtime = tokio::runtime::Handle::current();
    let answered = tokio::task::spawn_blocking(move || runtime.block_on(answer(parts, body, next)));
    answered.await.unwrap_or_else(|_| StatusCode::INTERNAL_SERVER_ERROR.into_response())
}

async fn answer(parts: Parts, body: Vec<u8>, next: Next) -> Response {
    if let Err(error) = json::check_message(&body) {
        return refuse(&body, error);
    }
    let body = Bytes::from(body);
    let response = next.run(Request::from_parts(parts, Body::from(body.clone()))).await;
    // The media type is right, that was looked at before; so the SDK could not read the message, and would say so in plain text.
    if response.status() == StatusCode::UNSUPPORTED_MEDIA_TYPE {
        return refuse(&body, "this is not a JSON-RPC message".to_owned());
    }
    response
}

/// Answers what could not be read the same way as over standard input and output.
fn refuse(body: &[u8], why: String) -> Response {
    match Refusal::of(body, why).answer() {
        None => StatusCode::ACCEPTED.into_response(),
        Some(answer @ ServerJsonRpcMessage::Error(_)) => Json(StatusCode::BAD_REQUEST, answer).into_response(),
        Some(answer) => Json(StatusCode::OK, answer).into_response(),
    }
}
