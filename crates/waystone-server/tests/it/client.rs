//! Calls the router as a client on this machine would.

use axum::Router;
use axum::body::Body;
use axum::http::{Request, Response, StatusCode, header};
use http_body_util::BodyExt;
use serde_json::Value;
use tokio::sync::watch;
use tower::ServiceExt;
use waystone_core::Limits;
use waystone_server::http::{Guard, Http};
use waystone_testkit::Harness;

pub(crate) struct Client {
    pub(crate) harness: Harness,
    pub(crate) router: Router,
    pub(crate) stop: watch::Sender<bool>,
}

impl Client {
    pub(crate) fn new() -> Self {
        Self::with(Limits::default(), Guard::default())
    }

    pub(crate) fn with(limits: Limits, guard: Guard) -> Self {
        let harness = Harness::with_limits(limits);
        let (stop, stopping) = watch::channel(false);
        let router = Http::new(harness.engine.clone(), "tester", stopping).router(guard);
        Self { harness, router, stop }
    }

    /// On a store that ends with the process.
    pub(crate) fn volatile(why: &str) -> Self {
        let client = Self::new();
        let engine = client.harness.engine.clone().volatile(why);
        let router = Http::new(engine, "tester", client.stop.subscribe()).router(Guard::default());
        Self { router, ..client }
    }

    pub(crate) async fn send(&self, request: Request<Body>) -> Response<Body> {
        self.router.clone().oneshot(request).await.unwrap()
    }

    /// Sends `body` as JSON and returns status and reply.
    pub(crate) async fn call(&self, method: &str, path: &str, body: Option<Value>) -> (StatusCode, Value) {
        let request = Request::builder().method(method).uri(path).header(header::HOST, "localhost:3000");
        let request = match body {
            Some(body) => request.header(header::CONTENT_TYPE, "application/json").body(Body::from(body.to_string())),
            None => request.body(Body::empty()),
        };
        let response = self.send(request.unwrap()).await;
        let status = response.status();
        (status, json_of(response).await)
    }

    pub(crate) async fn get(&self, path: &str) -> (StatusCode, Value) {
        self.call("GET", path, None).await
    }
}

/// A request with a JSON body that REST and MCP both take.
pub(crate) fn post(path: &str, body: impl Into<Body>) -> Request<Body> {
    let request =
        Request::post(path).header(header::HOST, "localhost").header(header::CONTENT_TYPE, "application/json");
    request.header(header::ACCEPT, "application/json, text/event-stream").body(body.into()).unwrap()
}

pub(crate) async fn json_of(response: Response<Body>) -> Value {
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    waystone_core::json::parse_trusted(&bytes).unwrap_or(Value::Null)
}

/// Panics unless the reply is our error object with this status and code.
#[track_caller]
pub(crate) fn assert_error((status, reply): (StatusCode, Value), expected: u16, code: &str) {
    assert_eq!((status.as_u16(), reply["error"]["code"].as_str()), (expected, Some(code)), "{reply}");
    let error = &reply["error"];
    assert!(error["message"].is_string() && error["hint"].is_string() && error["details"].is_object(), "{error}");
}
