//! What handlers take, with our errors: ids in paths, query strings, JSON bodies.

use std::str::FromStr;

use axum::extract::{FromRequest, FromRequestParts, Path, Request};
use axum::http::request::Parts;
use axum::http::{HeaderMap, header};
use http_body_util::BodyExt;
use serde::de::DeserializeOwned;
use waystone_core::{Error, json};

use super::reply::HttpError;
use super::{Http, offload};
use crate::request::request_from;

/// What is read and dropped of a body that is too large, so that its sender gets to read the answer.
const DRAIN_BYTES_MAX: u64 = 1024 * 1024 * 1024;

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
        if !is_utf8_when_decoded(query) {
            return Err(HttpError(Error::InvalidInput("query: it is not UTF-8".to_owned())));
        }
        let value = serde_html_form::from_str(query);
        value.map(Self).map_err(|error| HttpError(Error::InvalidInput(format!("query: {error}"))))
    }
}

/// Whether percent-escapes stand for text. The parser would replace what does not.
fn is_utf8_when_decoded(query: &str) -> bool {
    let bytes = query.as_bytes();
    let (mut decoded, mut at) = (Vec::with_capacity(bytes.len()), 0);
    while let Some(&byte) = bytes.get(at) {
        let escape =
            bytes.get(at + 1..at + 3).and_then(|hex| u8::from_str_radix(std::str::from_utf8(hex).ok()?, 16).ok());
        match escape.filter(|_| byte == b'%') {
            Some(escaped) => {
                decoded.push(escaped);
                at += 3;
            }
            None => {
                decoded.push(byte);
                at += 1;
            }
        }
    }
    std::str::from_utf8(&decoded).is_ok()
}

/// A JSON body.
pub(super) struct Body<T>(pub(super) T);

impl<T: DeserializeOwned + Send + 'static> FromRequest<Http> for Body<T> {
    type Rejection = HttpError;

    async fn from_request(request: Request, state: &Http) -> Result<Self, HttpError> {
        check_content_type(request.headers())?;
        let body = read_body(request, state.body_bytes_max()).await?;
        let length = body.len();
        let _turn = state.take_budget(length).await;
        let parse = move || request_from(json::parse_strict(&body).map_err(Error::InvalidInput)?);
        Ok(Self(offload(length, parse).await??))
    }
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
