//! How large bodies share what memory there is.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::body::{Body, Bytes};
use futures_util::stream;
use futures_util::{Stream, StreamExt};
use serde_json::json;
use tokio::task::JoinHandle;
use waystone_core::Limits;
use waystone_server::http::Guard;
use waystone_testkit::audit;

use crate::client::{Client, assert_error, json_of, post};

const PART_BYTES: usize = 64 * 1024;

/// A body of 1 MiB that never ends, and how many of its bytes were read.
fn unfinished() -> (Body, Arc<AtomicUsize>) {
    let read = Arc::new(AtomicUsize::new(0));
    (Body::from_stream(parts(16, &read).chain(stream::pending())), read)
}

/// Parts of a body that does not say how long it is. Those that were read are counted.
fn parts(count: usize, read: &Arc<AtomicUsize>) -> impl Stream<Item = Result<Bytes, Infallible>> + use<> {
    let counter = Arc::clone(read);
    stream::iter(0..count).map(move |_| {
        counter.fetch_add(PART_BYTES, Ordering::SeqCst);
        Ok(Bytes::from(vec![b' '; PART_BYTES]))
    })
}

/// Sends a body that never ends, and waits until no more of it is read.
async fn send_unfinished(client: &Client, path: &str) -> (JoinHandle<()>, Arc<AtomicUsize>) {
    let (body, read) = unfinished();
    let (router, request) = (client.router.clone(), post(path, body));
    let sent = tokio::spawn(async move { drop(tower::ServiceExt::oneshot(router, request).await) });
    let mut before = usize::MAX;
    while before != read.load(Ordering::SeqCst) {
        before = read.load(Ordering::SeqCst);
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
    }
    (sent, read)
}

#[tokio::test]
async fn a_large_body_is_not_read_before_its_turn_and_small_ones_take_none() {
    let c = Client::new();
    c.harness.save("s", json!({ "n": 1 })).await;
    for path in ["/api/checkpoints", "/mcp"] {
        let (first, read) = send_unfinished(&c, path).await;
        assert_eq!(read.load(Ordering::SeqCst), 16 * PART_BYTES, "the first has its turn");
        for other in ["/api/checkpoints", "/mcp"] {
            let (second, read) = send_unfinished(&c, other).await;
            let read = read.load(Ordering::SeqCst);
            assert!(read <= 5 * PART_BYTES, "{other} read {read} bytes before its turn");
            second.abort();
        }
        let small = c.call("PATCH", "/api/sessions/s", Some(json!({ "name": path })));
        let (status, _) = tokio::time::timeout(Duration::from_secs(10), small).await.expect("it waits for no one");
        assert_eq!(status, 200);
        first.abort();
        let _ = first.await;
    }
}

#[tokio::test]
async fn a_large_body_has_its_turn_until_it_is_saved() {
    let limits = Limits { context_bytes_max: 1024 * 1024, ..Limits::default() };
    let c = Client::with(limits, Guard::default());
    let context = json!({ "t": "x".repeat(900_000) });
    let call = json!({ "name": "workflow_checkpoint_save", "arguments": { "context": context } });
    let call = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call });
    let mut taken = 0;
    for (path, body) in [("/api/checkpoints", json!({ "context": context })), ("/mcp", call)] {
        let other = audit::open(c.harness.data_dir());
        other.execute_batch("BEGIN IMMEDIATE").unwrap();
        let (router, request) = (c.router.clone(), post(path, Body::from(body.to_string())));
        let saving = tokio::spawn(async move { tower::ServiceExt::oneshot(router, request).await.unwrap() });
        taken += 1;
        c.harness.wait_for_taken(taken).await;
        let (next, read) = send_unfinished(&c, path).await;
        let read = read.load(Ordering::SeqCst);
        assert!(read <= 5 * PART_BYTES, "{path} gave its turn away: the next one read {read} bytes");
        other.execute_batch("COMMIT").unwrap();
        assert!(saving.await.unwrap().status().is_success());
        next.abort();
    }
}

#[tokio::test]
async fn a_body_without_a_length_that_is_too_long_gives_its_turn_back_and_is_refused() {
    let limits = Limits { context_bytes_max: 1024 * 1024, ..Limits::default() };
    let c = Client::with(limits, Guard::default());
    let bytes_max = 2 * 1024 * 1024;
    for path in ["/api/checkpoints", "/mcp"] {
        let read = Arc::new(AtomicUsize::new(0));
        let endless = parts(bytes_max / PART_BYTES + 1, &read).chain(stream::pending());
        let (router, request) = (c.router.clone(), post(path, Body::from_stream(endless)));
        let sent = tokio::spawn(async move { drop(tower::ServiceExt::oneshot(router, request).await) });
        while read.load(Ordering::SeqCst) <= bytes_max {
            tokio::task::yield_now().await;
        }
        // It is still being read and dropped, and the next one has all the room there is.
        let (next, next_read) = send_unfinished(&c, path).await;
        assert_eq!(next_read.load(Ordering::SeqCst), 16 * PART_BYTES, "{path} keeps its turn");
        next.abort();
        sent.abort();

        let too_long = Body::from_stream(parts(bytes_max / PART_BYTES + 1, &read));
        let response = c.send(post(path, too_long)).await;
        assert_error((response.status(), json_of(response).await), 413, "PAYLOAD_TOO_LARGE");
    }
}

/// Whoever sends no more gives its turn to the next.
#[tokio::test(start_paused = true)]
async fn a_body_that_stops_coming_is_refused() {
    let c = Client::new();
    for path in ["/api/checkpoints", "/mcp"] {
        let response = c.send(post(path, unfinished().0));
        let response = tokio::time::timeout(Duration::from_secs(100), response).await.expect("it is not waited for");
        assert_error((response.status(), json_of(response).await), 400, "INVALID_INPUT");
    }
}
