//! How replies and errors become responses.

use axum::extract::Request;
use axum::http::{HeaderValue, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use waystone_core::Error;
use waystone_core::error::{Face, Unavailable};
use waystone_core::offload::offload;

use crate::fault::caught;

/// A reply as JSON.
pub(super) struct Json<T>(pub(super) StatusCode, pub(super) T);

impl<T: Serialize> IntoResponse for Json<T> {
    fn into_response(self) -> Response {
        match serde_json::to_vec(&self.1) {
            Ok(body) => (self.0, [(header::CONTENT_TYPE, "application/json")], body).into_response(),
            Err(error) => HttpError(Error::broken(format!("the reply cannot be written: {error}"))).into_response(),
        }
    }
}

/// Also an extension of the response that it becomes, for who has another name for it.
#[derive(Clone)]
pub(super) struct HttpError(pub(super) Error);

impl From<Error> for HttpError {
    fn from(error: Error) -> Self {
        Self(error)
    }
}

impl IntoResponse for HttpError {
    fn into_response(self) -> Response {
        let Self(error) = self;
        if let Error::StorageUnavailable { .. } | Error::Internal(_) = &error {
            tracing::error!(code = error.code(), %error, "a request failed");
        }
        let status = StatusCode::from_u16(error.http_status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let mut response = Json(status, error.reply_to(Face::Application)).into_response();
        if let Error::StorageUnavailable { reason: Unavailable::Busy, .. } = &error {
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
        }
        response.extensions_mut().insert(Self(error));
        response
    }
}

/// A reply with status 200 that is about `bytes` long.
pub(super) async fn sized<T: Serialize + Send + 'static>(bytes: usize, reply: T) -> Result<Response, HttpError> {
    Ok(offload(bytes, move || Json(StatusCode::OK, reply).into_response()).await?)
}

/// A reply with status 200 that may be as long as a context.
pub(super) async fn large<T: Serialize + Send + 'static>(reply: T) -> Result<Response, HttpError> {
    sized(usize::MAX, reply).await
}

/// Who asks for what panics is told.
pub(super) async fn answer_fault(request: Request, next: Next) -> Response {
    caught(next.run(request)).await.unwrap_or_else(|error| HttpError(error).into_response())
}

pub(super) type HttpResult<T> = Result<Json<T>, HttpError>;

/// A reply with status 200.
pub(super) fn ok<T>(reply: waystone_core::Result<T>) -> HttpResult<T> {
    Ok(Json(StatusCode::OK, reply?))
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};
    use std::thread::{ThreadId, current};

    use axum::Router;
    use axum::body::{Body, to_bytes};
    use axum::middleware;
    use axum::routing::get;
    use serde::Serializer;
    use tower::ServiceExt;

    use waystone_core::offload::INLINE_BYTES_MAX;

    use super::*;

    #[tokio::test]
    async fn who_asks_for_what_panics_gets_an_error_object() {
        async fn broken() -> StatusCode {
            panic!("on purpose")
        }
        let router = Router::new().route("/", get(broken)).layer(middleware::from_fn(answer_fault));
        let answer = router.oneshot(Request::get("/").body(Body::empty()).unwrap()).await.unwrap();
        assert_eq!(answer.status(), 500);
        let body = to_bytes(answer.into_body(), 4096).await.unwrap();
        let body: serde_json::Value = serde_json::from_slice(&body).unwrap();
        assert_eq!(body["error"]["code"], "INTERNAL_ERROR", "{body}");
    }

    /// Remembers where it was written.
    struct Written(Arc<Mutex<Option<ThreadId>>>);

    impl Serialize for Written {
        fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
            *self.0.lock().unwrap() = Some(current().id());
            serializer.serialize_unit()
        }
    }

    #[tokio::test]
    async fn a_large_reply_is_written_where_it_holds_up_no_other_request() {
        for (bytes, here) in [(0, true), (INLINE_BYTES_MAX, true), (INLINE_BYTES_MAX + 1, false)] {
            let thread = Arc::default();
            assert!(sized(bytes, Written(Arc::clone(&thread))).await.is_ok());
            let thread = thread.lock().unwrap().expect("it was written");
            assert_eq!(thread == current().id(), here, "{bytes}");
        }
    }
}
