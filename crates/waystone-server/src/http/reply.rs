//! How replies and errors become responses.

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use waystone_core::Error;
use waystone_core::error::Unavailable;

/// A reply as JSON.
pub(super) struct Json<T>(pub(super) StatusCode, pub(super) T);

impl<T: Serialize> IntoResponse for Json<T> {
    fn into_response(self) -> Response {
        match serde_json::to_vec(&self.1) {
            Ok(body) => (self.0, [(header::CONTENT_TYPE, "application/json")], body).into_response(),
            Err(error) => {
                let message = format!("the reply cannot be written: {error}");
                HttpError(Error::StorageUnavailable { reason: Unavailable::Broken, message }).into_response()
            }
        }
    }
}

pub(super) struct HttpError(pub(super) Error);

impl From<Error> for HttpError {
    fn from(error: Error) -> Self {
        Self(error)
    }
}

impl IntoResponse for HttpError {
    fn into_response(self) -> Response {
        let Self(error) = self;
        if let Error::StorageUnavailable { .. } = &error {
            tracing::error!(code = error.code(), %error, "a request failed");
        }
        let status = StatusCode::from_u16(error.http_status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let mut response = Json(status, error.reply()).into_response();
        if let Error::StorageUnavailable { reason: Unavailable::Busy, .. } = &error {
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
        }
        response
    }
}

pub(super) type HttpResult<T> = Result<Json<T>, HttpError>;

/// A reply with status 200.
pub(super) fn ok<T>(reply: waystone_core::Result<T>) -> HttpResult<T> {
    Ok(Json(StatusCode::OK, reply?))
}
