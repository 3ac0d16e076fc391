//! What comes of a call.

use serde_json::{Value, json};

use super::{Control, call, echo, failure, later, servers};

#[tokio::test]
async fn results_are_structured_or_text() {
    let control = Control::new().await;
    let servers = servers([("fake", control.server(json!({})))]);
    let check = async |result: Value, content: Value, is_error: bool| {
        let output = call(&servers, "fake__result", json!({ "result": result })).await;
        assert_eq!((output.content, output.is_error), (content, is_error), "{result}");
    };
    let text = json!({ "type": "text", "text": "one" });
    check(json!({ "content": [text, { "type": "text", "text": "two" }] }), json!("one\ntwo"), false).await;
    check(json!({ "content": [text], "isError": true }), json!("one"), true).await;
    check(json!({ "content": [] }), json!(""), false).await;
    check(json!({ "content": [text], "structuredContent": { "n": [1, 2.5] } }), json!({ "n": [1, 2.5] }), false).await;
    check(json!({ "content": [text], "structuredContent": null }), json!("one"), false).await;
    check(json!({ "structuredContent": { "why": "x" }, "isError": true }), json!({ "why": "x" }), true).await;
    let blocks = json!([
        text,
        { "type": "image", "data": "aGVsbG8=", "mimeType": "image/png" },
        { "type": "audio", "data": "aGVsbG8h", "mimeType": "audio/wav" },
        { "type": "resource_link", "uri": "file:///a", "name": "a" },
        { "type": "resource", "resource": { "uri": "file:///b", "mimeType": "text/plain", "text": "two" } },
        { "type": "resource", "resource": { "uri": "file:///c", "mimeType": "application/pdf", "blob": "aGk=" } },
        { "type": "resource", "resource": { "uri": "file:///d", "blob": "" } },
    ]);
    let lines = [
        "one",
        "[image image/png, 5 bytes]",
        "[audio audio/wav, 6 bytes]",
        "[resource file:///a]",
        "two",
        "[resource file:///c application/pdf, 2 bytes]",
        "[resource file:///d, 0 bytes]",
    ];
    check(json!({ "content": blocks }), json!(lines.join("\n")), false).await;
}

#[tokio::test]
async fn a_server_may_refuse_a_call_and_goes_on() {
    let control = Control::new().await;
    let servers = servers([("fake", control.server(json!({})))]);
    let refused = failure(&servers, "fake__error", json!({ "code": -32602, "message": "no such path" })).await;
    assert_eq!(refused, "MCP server `fake`: it answered with an error: no such path");
    let odd = failure(&servers, "fake__result", json!({ "result": { "something": "else" } })).await;
    assert_eq!(odd, "MCP server `fake`: its answer is no result of a tool");
    let asks = json!({ "resultType": "input_required", "inputRequests": {}, "requestState": "x" });
    let asks = failure(&servers, "fake__result", json!({ "result": asks })).await;
    assert!(asks.contains("ask a person"), "{asks}");
    assert_eq!(echo(&servers, "still here").await.content, json!("still here"));
    drop(control.started().await);
    assert!(control.none_started().await);
}

#[tokio::test]
async fn long_results_are_taken_and_endless_ones_are_not() {
    let control = Control::new().await;
    let servers = servers([("fake", control.server(json!({})))]);
    let mebibyte = 1024 * 1024;
    let long = call(&servers, "fake__long", json!({ "bytes": 31 * mebibyte })).await;
    assert_eq!(long.content.as_str().unwrap().len(), 31 * mebibyte);
    let longer = failure(&servers, "fake__long", json!({ "bytes": 33 * mebibyte })).await;
    assert_eq!(longer, "MCP server `fake`: its answer is longer than 32 MiB and was not read");
    later(1).await;
    assert_eq!(echo(&servers, "anew").await.content, json!("anew"));
}

#[tokio::test]
async fn a_call_that_is_dropped_is_cancelled() {
    let control = Control::new().await;
    let servers = servers([("fake", control.server(json!({})))]);
    echo(&servers, "hi").await;
    let mut heard = control.started().await;
    heard.method("tools/call").await;
    let waiting = tokio::select! {
        output = call(&servers, "fake__wait", json!({})) => panic!("nothing was answered: {output:?}"),
        waiting = heard.method("tools/call") => waiting,
    };
    let cancelled = heard.method("notifications/cancelled").await;
    assert_eq!(cancelled["params"]["requestId"], waiting["id"]);
    assert_eq!(echo(&servers, "still here").await.content, json!("still here"));
}
