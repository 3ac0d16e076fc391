//! What handlers take, with our errors: ids in paths, query strings, JSON bodies.

use std::str::FromStr;

use axum::extract::{FromRequest, FromRequestParts, Path, Request};
use axum::http::request::Parts;
use axum::http::{HeaderMap, header};
use http_body_util::BodyExt;
use serde::de::DeserializeOwned;
use waystone_core::{Error, json};

use super::Http;
use super::reply::HttpError;
use crate::request::request_from;

/// What a request may put around a context.
const ENVELOPE_BYTES_MAX: u64 = 1024 * 1024;
/// What is read and dropped of a body that is too large, so that its sender gets to read the answer.
const DRAIN_BYTES_MAX: u64 = 1024 * 1024 * 1024;
/// Bodies over this size are parsed on the blocking pool.
const INLINE_BYTES_MAX: usize = 256 * 1024;

/// The one id in the path.
pub(super) struct Id<T>(pub(super) T);

impl<T: FromStr<Err = String>> FromRequestParts<Http> for Id<T> {
    type Rejection = HttpError;

    async fn from_request_parts(parts: &mut Parts, state: &Http) -> Result<Self, HttpError> {
        let bad = |message: String| HttpError(Error::InvalidInput(message));
        let Path(id) =
            Path::<String>::from_request_parts(parts, state).await.map_err(|error| bad(error.body_text()))?;
        id.parse().map(Self).map_err(bad)
    }
}

/// The query string.
pub(super) struct Query<T>(pub(super) T);

impl<T: DeserializeOwned> FromRequestParts<Http> for Query<T> {
    type Rejection = HttpError;

    async fn from_request_parts(parts: &mut Parts, _: &Http) -> Result<Self, HttpError> {
        let query = parts.uri.query().unwrap_or_default();
        let value = serde_html_form::from_str(query);
        value.map(Self).map_err(|error| HttpError(Error::InvalidInput(format!("query: {error}"))))
    }
}

/// A JSON body.
pub(super) struct Body<T>(pub(super) T);

impl<T: DeserializeOwned + Send + 'static> FromRequest<Http> for Body<T> {
    type Rejection = HttpError;

    async fn from_request(request: Request, state: &Http) -> Result<Self, HttpError> {
        check_content_type(request.headers())?;
        let bytes_max = state.engine.limits().context_bytes_max + ENVELOPE_BYTES_MAX;
        let body = read_body(request, bytes_max).await?;
        let is_small = body.len() <= INLINE_BYTES_MAX;
        let parse = move || request_from(json::parse_strict(&body).map_err(Error::InvalidInput)?);
        let parsed = if is_small { parse() } else { offload(parse).await };
        parsed.map(Self).map_err(HttpError)
    }
}

async fn offload<T: Send + 'static>(
    work: impl FnOnce() -> waystone_core::Result<T> + Send + 'static,
) -> waystone_core::Result<T> {
    tokio::task::spawn_blocking(work).await.unwrap_or_else(|error| Err(Error::InvalidInput(error.to_string())))
}

pub(super) fn check_content_type(headers: &HeaderMap) -> Result<(), HttpError> {
    let given = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let media_type = given.split(';').next().unwrap_or_default().trim();
    if media_type.eq_ignore_ascii_case("application/json") {
        return Ok(());
    }
    Err(HttpError(Error::UnsupportedMediaType(given.chars().take(100).collect())))
}

/// Reads a body whole, up to `bytes_max`. What is longer is read on and dropped before it is refused.
pub(super) async fn read_body(request: Request, bytes_max: u64) -> Result<Vec<u8>, HttpError> {
    let mut stream = request.into_body();
    let (mut body, mut length) = (Vec::new(), 0u64);
    while let Some(frame) = stream.frame().await {
        let frame = frame.map_err(|error| HttpError(Error::InvalidInput(format!("the body broke off: {error}"))))?;
        let Ok(data) = frame.into_data() else { continue };
        length += data.len() as u64;
        if length <= bytes_max {
            body.extend_from_slice(&data);
        } else {
            body = Vec::new();
            if length > DRAIN_BYTES_MAX {
                break;
            }
        }
    }
    if length > bytes_max {
        return Err(HttpError(Error::PayloadTooLarge { what: "the body", actual: length, max: bytes_max }));
    }
    Ok(body)
}
