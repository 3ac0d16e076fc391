//! MCP over HTTP: large calls go past the SDK and look like any other.

use std::time::Duration;

use axum::body::Body;
use axum::http::{Method, Request, Response, header};
use serde_json::{Value, json};
use tokio::runtime::Builder;
use waystone_core::Limits;
use waystone_server::http::Guard;

use crate::client::{Client, assert_error, json_of, post};

const SAVE: &str = "workflow_checkpoint_save";
const LOAD: &str = "workflow_checkpoint_load";

fn message(message: &Value) -> Request<Body> {
    post("/mcp", message.to_string())
}

fn call(tool: &str, arguments: &Value) -> Request<Body> {
    let params = json!({ "name": tool, "arguments": arguments });
    message(&json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params }))
}

async fn structured(response: Response<Body>) -> Value {
    assert_eq!(response.status(), 200);
    json_of(response).await["result"]["structuredContent"].take()
}

#[test]
fn large_calls_need_no_more_threads_than_there_are() {
    let runtime = Builder::new_multi_thread().worker_threads(2).max_blocking_threads(4).enable_all().build().unwrap();
    runtime.block_on(async {
        let c = Client::with(Limits { context_bytes_max: 256 << 20, ..Limits::default() }, Guard::default());
        let saves = (0..40).map(|n| {
            let arguments = json!({ "sessionId": format!("s{n}"), "context": { "t": "x".repeat(270_000) } });
            let (router, request) = (c.router.clone(), call(SAVE, &arguments));
            tokio::spawn(async move { tower::ServiceExt::oneshot(router, request).await.unwrap() })
        });
        for save in saves.collect::<Vec<_>>() {
            let saved = tokio::time::timeout(Duration::from_secs(60), save).await.expect("it does not hang").unwrap();
            assert_eq!(structured(saved).await["status"], "SAVED");
        }
    });
}

/// The processor time that this thread has used, in nanoseconds. Unlike a clock it stands still while others have the
/// processor.
#[cfg(target_os = "linux")]
fn used_ns() -> u64 {
    let used = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    used.split(' ').next().unwrap().parse().unwrap()
}

/// The longest stretch of work for which nothing else could run on this thread while `work` was done, in nanoseconds.
#[cfg(target_os = "linux")]
async fn stall(work: impl Future<Output = Response<Body>>) -> (u64, Response<Body>) {
    tokio::pin!(work);
    let (mut longest, mut last) = (0, used_ns());
    loop {
        let done = tokio::select! {
            biased;
            () = tokio::task::yield_now() => None,
            done = &mut work => Some(done),
        };
        let now = used_ns();
        longest = longest.max(now - last);
        last = now;
        if let Some(done) = done {
            return (longest, done);
        }
    }
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_large_call_holds_up_no_other_request() {
    let limits = Limits { checkpoint_bytes_max: 64 << 20, ..Limits::default() };
    let c = Client::with(limits, Guard::default());
    let words: Vec<String> = (0..250_000).map(|n| format!("w\"{n}")).collect();
    let arguments = json!({ "sessionId": "s", "context": { "words": words } });
    let reply = json!({ "content": arguments.to_string(), "structured": arguments });
    let began = used_ns();
    let length = reply.to_string().len();
    let alone = used_ns() - began;

    let (saving, saved) = stall(c.send(call(SAVE, &arguments))).await;
    assert_eq!(structured(saved).await["status"], "SAVED");
    let (loading, loaded) = stall(c.send(call(LOAD, &json!({ "sessionId": "s" })))).await;
    let loaded = json_of(loaded).await["result"].take();
    assert_eq!(loaded["structuredContent"]["context"], arguments["context"]);
    let reply: Value = serde_json::from_str(loaded["content"][0]["text"].as_str().unwrap()).unwrap();
    assert_eq!(reply, loaded["structuredContent"]);
    assert!(
        saving < alone / 2 && loading < alone / 2,
        "{saving} ns and {loading} ns, writing {length} bytes takes {alone} ns"
    );
}

#[tokio::test]
async fn a_large_result_has_all_that_a_small_one_has() {
    let c = Client::new();
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": { "name": "c", "version": "1" },
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    let load = async |session: &str, revision: &'static str| {
        let mut params = json!({ "name": LOAD, "arguments": { "sessionId": session } });
        if revision > "2026" {
            params["_meta"] = meta.clone();
        }
        let mut request = message(&json!({ "jsonrpc": "2.0", "id": "x", "method": "tools/call", "params": params }));
        for (name, value) in [("mcp-protocol-version", revision), ("mcp-method", "tools/call"), ("mcp-name", LOAD)] {
            request.headers_mut().insert(name, value.parse().unwrap());
        }
        let response = c.send(request).await;
        assert_eq!(response.headers()[header::CONTENT_TYPE], "application/json");
        let mut answer = json_of(response).await;
        let result = answer["result"].as_object_mut().unwrap();
        let content = result.remove("structuredContent").unwrap();
        let text = result.remove("content").unwrap()[0]["text"].take();
        assert_eq!(serde_json::from_str::<Value>(text.as_str().unwrap()).unwrap(), content);
        answer
    };
    c.harness.save("small", json!({ "n": 1 })).await;
    c.harness.save("large", json!({ "t": "\"é".repeat(200_000) })).await;
    for revision in ["2025-11-25", "2026-07-28"] {
        assert_eq!(load("small", revision).await, load("large", revision).await);
    }
}

#[tokio::test]
async fn every_refusal_is_an_error_object() {
    let c = Client::new();
    let list = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/list" });
    let check = async |status: u16, code: &str, change: &dyn Fn(&mut Request<Body>)| {
        let mut request = message(&list);
        change(&mut request);
        let response = c.send(request).await;
        assert_eq!(response.headers()[header::CONTENT_TYPE], "application/json");
        assert_error((response.status(), json_of(response).await), status, code);
    };
    check(406, "INVALID_INPUT", &|request| drop(request.headers_mut().remove(header::ACCEPT))).await;
    check(405, "METHOD_NOT_ALLOWED", &|request| *request.method_mut() = Method::GET).await;
    check(405, "METHOD_NOT_ALLOWED", &|request| *request.method_mut() = Method::DELETE).await;
    check(400, "INVALID_INPUT", &|request| {
        request.headers_mut().insert("mcp-protocol-version", "1999-01-01".parse().unwrap());
    })
    .await;
    check(415, "UNSUPPORTED_MEDIA_TYPE", &|request| drop(request.headers_mut().remove(header::CONTENT_TYPE))).await;
    check(404, "NOT_FOUND", &|request| *request.uri_mut() = "/mcp/foo".parse().unwrap()).await;
    check(403, "FORBIDDEN", &|request| {
        request.headers_mut().insert(header::ORIGIN, "https://evil.example".parse().unwrap());
    })
    .await;
    let mut own = message(&list);
    own.headers_mut().insert(header::HOST, "127.8.8.8:1".parse().unwrap());
    own.headers_mut().insert(header::ORIGIN, "http://127.8.8.8:1".parse().unwrap());
    assert_eq!(c.send(own).await.status(), 200, "whom the guard lets in, no one else refuses");
}

#[tokio::test]
async fn only_a_tool_call_may_be_large() {
    let c = Client::new();
    let ping = json!({ "jsonrpc": "2.0", "id": 7, "method": "ping", "params": { "x": "x".repeat(2_000_000) } });
    let answer = json_of(c.send(message(&ping)).await).await;
    assert_eq!((&answer["id"], &answer["error"]["code"]), (&json!(7), &json!(-32700)), "{answer}");
}

#[tokio::test]
async fn on_a_store_that_ends_with_the_process_no_agent_is_told_that_its_work_is_kept() {
    let client = json!({ "name": "c", "version": "1" });
    let params = json!({ "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": client });
    let initialize = json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params });
    let instructions =
        async |c: &Client| json_of(c.send(message(&initialize)).await).await["result"]["instructions"].take();
    let told = instructions(&Client::volatile("the disk is gone")).await;
    let (told, usual) = (told.as_str().unwrap(), instructions(&Client::new()).await);
    assert!(told.contains("the disk is gone") && !told.contains("safe across restarts"), "{told}");
    assert!(usual.as_str().unwrap().contains("safe across restarts"));
}
