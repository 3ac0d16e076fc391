//! `/mcp`: the same tools as over standard input and output, as streamable HTTP.
//!
//! The SDK negotiates, checks headers and calls. What it would read, write or refuse otherwise than we do goes past it: see
//! [`Aside`].

use std::sync::Arc;

use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::http::response::Parts;
use axum::http::{Method, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, any_service};
use http_body_util::BodyExt;
use rmcp::ServerHandler;
use rmcp::model::ServerJsonRpcMessage;
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::transport::{StreamableHttpServerConfig, StreamableHttpService};
use waystone_core::Error;
use waystone_core::offload::offload;

use super::Http;
use super::extract::{check_content_type, read_body};
use super::reply::{HttpError, Json};
use crate::mcp::{Aside, Refusal, with_reply};

pub(super) fn service<S: ServerHandler + Clone>(http: &Http, handler: S) -> MethodRouter<Http> {
    // The guard has looked at host and origin, and we at the body.
    let mut config = StreamableHttpServerConfig::default()
        .with_max_request_body_bytes(usize::MAX)
        .disable_allowed_hosts()
        .disable_allowed_origins();
    config.legacy_session_mode = false;
    config.json_response = true;
    let sessions = Arc::new(LocalSessionManager::default());
    let service = StreamableHttpService::new(move || Ok(handler.clone()), sessions, config);
    any_service(service).layer(middleware::from_fn_with_state(http.clone(), answer))
}

async fn answer(State(http): State<Http>, request: Request, next: Next) -> Result<Response, HttpError> {
    if request.method() != Method::POST {
        return explain(request.method().clone(), next.run(request).await).await;
    }
    check_content_type(request.headers())?;
    let (mut parts, body) = request.into_parts();
    let (message, _turn) = read_body(body, &http).await?;
    let (message, aside) = match offload(message.len(), || Aside::divide(message)).await? {
        Ok((message, aside)) => (Bytes::from(message), aside),
        Err(refusal) => return Ok(refuse(&refusal)),
    };
    parts.extensions.insert(aside.clone());
    let method = parts.method.clone();
    let response = next.run(Request::from_parts(parts, Body::from(message.clone()))).await;
    // The media type is right and we could read it, so it is too deep for the SDK outside of what went past it.
    if response.status() == StatusCode::UNSUPPORTED_MEDIA_TYPE {
        let error = Error::InvalidInput("what is around a tool's arguments is nested too deep".to_owned());
        return Ok(refuse(&Refusal::of(&message, error)));
    }
    match aside.take_reply() {
        Some((text, _turn)) => complete(response, text).await,
        None => explain(method, response).await,
    }
}

/// Answers what could not be read the same way as over standard input and output.
fn refuse(refusal: &Refusal) -> Response {
    match refusal.answer() {
        None => StatusCode::ACCEPTED.into_response(),
        Some(answer @ ServerJsonRpcMessage::Error(_)) => Json(StatusCode::BAD_REQUEST, answer).into_response(),
        Some(answer) => Json(StatusCode::OK, answer).into_response(),
    }
}

async fn complete(response: Response, text: String) -> Result<Response, HttpError> {
    let (parts, message) = read(response).await?;
    let length = text.len();
    let write = move || with_reply(&message, &text);
    let written = offload(length, write).await?.map_err(|error| Error::broken(error.to_string()))?;
    Ok(Response::from_parts(parts, Body::from(written)))
}

/// A refusal of the SDK, which is plain text, as our error object.
async fn explain(method: Method, response: Response) -> Result<Response, HttpError> {
    let is_explained = response.headers().contains_key(header::CONTENT_TYPE);
    if is_explained || response.status().is_success() {
        return Ok(response);
    }
    let (parts, text) = read(response).await?;
    let text = String::from_utf8_lossy(&text).into_owned();
    let error = match parts.status {
        StatusCode::METHOD_NOT_ALLOWED => {
            Error::MethodNotAllowed { method: method.to_string(), path: "/mcp".to_owned() }
        }
        status if status.is_client_error() => Error::InvalidInput(text),
        _ => Error::broken(text),
    };
    let mut response = Json(parts.status, error.reply()).into_response();
    response.headers_mut().extend(parts.headers);
    Ok(response)
}

async fn read(response: Response) -> Result<(Parts, Bytes), HttpError> {
    let (parts, body) = response.into_parts();
    let body = body.collect().await.map_err(|error| Error::broken(error.to_string()))?;
    Ok((parts, body.to_bytes()))
}
