//! Requests that are wrong in themselves: always our error object, and nothing changes.

use axum::body::Body;
use axum::http::{Request, header};
use serde_json::{Value, json};

use super::super::assert_refused;
use super::{Desk, ask_weather, assert_has, write};
use crate::client::json_of;

fn nested(levels: usize) -> Value {
    (0..levels).fold(json!({}), |inner, _| json!({ "k": inner }))
}

/// Sends each body to each path; all must be refused as invalid.
async fn refuses_all(desk: &Desk, paths: &[String], bodies: &[Value]) {
    let mut taken = Vec::new();
    for (path, body) in paths.iter().flat_map(|path| bodies.iter().map(move |body| (path, body))) {
        let (status, reply) = desk.talk.post(path, body.clone()).await;
        if (status, &reply["error"]["code"]) != (400, &json!("VALIDATION_ERROR")) {
            let shown: String = body.to_string().chars().take(120).collect();
            taken.push(format!("POST {path} {shown}: {status} {reply}"));
        }
    }
    assert!(taken.is_empty(), "{taken:#?}");
}

#[tokio::test]
async fn a_decision_that_makes_no_sense_is_refused() {
    let desk = Desk::new().await;
    let waiting = desk.wait([write("a.txt", "a")]).await;
    let ids = |value: Value| json!({ "tool_call_ids": value });
    let with = |field: &str, value: Value| json!({ "tool_call_ids": ["call_0"], field: value });
    let many: Vec<String> = (0..1001).map(|n| format!("call_{n}")).collect();
    let bodies = [
        json!({}),
        json!([]),
        json!("call_0"),
        json!(null),
        json!(["call_0"]),
        ids(json!([])),
        ids(json!(null)),
        ids(json!("call_0")),
        ids(json!({ "call_0": true })),
        ids(json!([0])),
        ids(json!([null])),
        ids(json!([["call_0"]])),
        ids(json!(["call_0", 1])),
        ids(json!([""])),
        ids(json!([".."])),
        ids(json!(["a b"])),
        ids(json!(["a/b"])),
        ids(json!(["call_0\u{0}"])),
        ids(json!(["x".repeat(129)])),
        ids(json!(["call_0", "call_0"])),
        ids(json!(["call_0", "other", "call_0"])),
        ids(json!(many)),
        with("unknown", json!(1)),
        with("approved", json!(true)),
        with("hashes", json!("x")),
        with("hashes", json!([])),
        with("hashes", json!({ "call_0": 1 })),
        with("hashes", json!({ "call_0": null })),
        with("idempotency_key", json!("a b")),
        with("idempotency_key", json!(1)),
    ];
    let paths = ["approve", "deny"].map(|decision| format!("/{}/tools/{decision}", waiting.context));
    refuses_all(&desk, &paths, &bodies).await;
    let reasons = [json!(1), json!({}), json!([]), json!("x".repeat(100_000))].map(|reason| with("reason", reason));
    refuses_all(&desk, &paths[1..], &reasons).await;
    refuses_all(&desk, &paths[..1], &[with("reason", json!("only a denial has one"))]).await;
    assert_eq!(desk.statuses(&waiting).await, ["Pending"]);
    assert_eq!((desk.talk.state(&waiting.context).await.as_str(), desk.file("a.txt")), ("AwaitingToolApproval", None));
}

#[tokio::test]
async fn arguments_that_are_none_are_refused() {
    let desk = Desk::new().await;
    let waiting = desk.wait([write("a.txt", "a")]).await;
    let before = desk.call(&waiting.context, "call_0").await;
    let bodies = [
        json!({}),
        json!([]),
        json!(null),
        json!({ "arguments": null }),
        json!({ "arguments": "{}" }),
        json!({ "arguments": [] }),
        json!({ "arguments": 1 }),
        json!({ "arguments": {}, "unknown": 1 }),
        json!({ "arguments": {}, "tool_name": "read_file" }),
        json!({ "arguments": nested(200) }),
        json!({ "path": "b.txt", "content": "b" }),
    ];
    refuses_all(&desk, &[format!("/{}/tools/call_0/arguments", waiting.context)], &bodies).await;
    assert_eq!(desk.call(&waiting.context, "call_0").await, before);
}

#[tokio::test]
async fn an_answer_that_is_none_is_refused() {
    let desk = Desk::new().await;
    let waiting = desk.wait([ask_weather("London")]).await;
    desk.decide(&waiting.context, "approve", &["call_0"]).await;
    let bodies = [
        json!({}),
        json!([]),
        json!("rain"),
        json!(null),
        json!({ "is_error": true }),
        json!({ "result": "x", "is_error": "no" }),
        json!({ "result": "x", "is_error": 1 }),
        json!({ "result": "x", "unknown": 1 }),
        json!({ "result": nested(200) }),
    ];
    refuses_all(&desk, &[format!("/{}/tools/call_0/result", waiting.context)], &bodies).await;
    assert!(desk.call(&waiting.context, "call_0").await["outcome"].is_null());
    assert_eq!(desk.answer(&waiting.context, "call_0", json!({ "result": "rain" })).await.0, 200);
}

#[tokio::test]
async fn what_is_not_there_is_not_found() {
    let desk = Desk::new().await;
    let larger = desk.wait([write("x.txt", "x"), ask_weather("London")]).await;
    let waiting = desk.wait([write("a.txt", "a")]).await;
    let before = desk.call(&larger.context, "call_1").await;
    let ids = |id: &str| json!({ "tool_call_ids": [id] });
    for (context, call, code) in [
        (waiting.context.as_str(), "unknown", "TOOL_CALL_NOT_FOUND"),
        (waiting.context.as_str(), "call_1", "TOOL_CALL_NOT_FOUND"),
        ("no-such-context", "call_0", "CONTEXT_NOT_FOUND"),
    ] {
        for (method, path, body) in [
            ("GET", format!("/{context}/tools/{call}"), None),
            ("POST", format!("/{context}/tools/approve"), Some(ids(call))),
            ("POST", format!("/{context}/tools/deny"), Some(ids(call))),
            ("POST", format!("/{context}/tools/{call}/arguments"), Some(json!({ "arguments": {} }))),
            ("POST", format!("/{context}/tools/{call}/result"), Some(json!({ "result": "x" }))),
        ] {
            desk.talk.refuses(method, &path, body, 404, code).await;
        }
    }
    desk.talk.refuses("GET", "/no-such-context/tools", None, 404, "CONTEXT_NOT_FOUND").await;
    assert_eq!(desk.call(&larger.context, "call_1").await, before);
    assert_has(&before, &json!({ "arguments": { "location": "London" }, "approval_status": "Pending" }));
}

#[tokio::test]
async fn a_key_that_is_none_is_refused_wherever_something_is_posted() {
    let desk = Desk::new().await;
    let waiting = desk.wait([write("a.txt", "a")]).await;
    for (path, body) in [
        ("approve", json!({ "tool_call_ids": ["call_0"] })),
        ("deny", json!({ "tool_call_ids": ["call_0"] })),
        ("call_0/arguments", json!({ "arguments": {} })),
        ("call_0/result", json!({ "result": "x" })),
    ] {
        let path = format!("/{}/tools/{path}", waiting.context);
        for key in ["", "a b", "a/b", &"k".repeat(10_000)] {
            let answer = desk.talk.post_keyed(&path, key, &body).await;
            let shown: String = key.chars().take(20).collect();
            assert_refused(&answer, 400, "VALIDATION_ERROR", &format!("{path} {shown:?}"));
        }
    }
    assert_eq!(desk.statuses(&waiting).await, ["Pending"]);
}

#[tokio::test]
async fn what_is_not_json_is_refused_too() {
    let desk = Desk::new().await;
    let waiting = desk.wait([write("a.txt", "a")]).await;
    for path in ["approve", "deny", "call_0/arguments", "call_0/result"] {
        let uri = format!("/api/contexts/{}/tools/{path}", waiting.context);
        let send = async |kind: &str, body: &[u8]| {
            let request = Request::post(&uri).header(header::HOST, "localhost").header(header::CONTENT_TYPE, kind);
            let response = desk.talk.client.send(request.body(Body::from(body.to_vec())).unwrap()).await;
            (response.status().as_u16(), json_of(response).await)
        };
        for body in
            [&b""[..], b"{", b"\xff", b"tool_call_ids=call_0", br#"{"result":1,"result":2}"#, br#"{"result":1e999}"#]
        {
            let shown = format!("{path} {}", String::from_utf8_lossy(body));
            assert_refused(&send("application/json", body).await, 400, "VALIDATION_ERROR", &shown);
        }
        let plain = send("text/plain", br#"{"tool_call_ids":["call_0"],"arguments":{},"result":1}"#).await;
        assert_refused(&plain, 415, "UNSUPPORTED_MEDIA_TYPE", path);
        let path = format!("/{}/tools/{path}", waiting.context);
        assert!([404, 405].contains(&desk.talk.call("PUT", &path, Some(json!({}))).await.0), "PUT {path}");
    }
    assert_eq!(desk.statuses(&waiting).await, ["Pending"]);
}
