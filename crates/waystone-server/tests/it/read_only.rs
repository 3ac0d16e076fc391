//! A server that only reads refuses every route and every tool that would change something.

use axum::body::Body;
use axum::http::Request;
use serde_json::{Value, json};
use waystone_server::http::{Guard, Http, operations};

use crate::client::{Client, assert_error, json_of, post};

/// What each operation that changes something is asked for.
fn body_of(operation: &str) -> Option<Value> {
    let segments = json!({ "segment_ids": ["a"] });
    match operation {
        "save_checkpoint" => Some(json!({ "context": { "n": 1 } })),
        "back_up" | "clean_up" | "create_snapshot" | "set_current_task" | "stash_segments" => Some(json!({})),
        "retrieve_stashed" => Some(json!({ "move_to_active": true })),
        "import_document" => Some(json!({ "format": "waystone.session", "version": 1 })),
        "analyze_garbage" => Some(json!({ "target_tokens": 1 })),
        "prune_segments" => Some(json!({ "segment_ids": ["a"], "action": "stash" })),
        "put_segments" => Some(json!({ "text": "a" })),
        "pin_segments" | "unpin_segments" => Some(segments),
        "update_session" => Some(json!({ "name": "a" })),
        "analyze_usage" => Some(json!({ "context_descriptors": { "segment_summaries": [{ "text": "a" }] } })),
        "create_context" | "update_context" => Some(json!({})),
        "add_message" | "edit_message" => Some(json!({ "content": "a" })),
        "create_branch" => Some(json!({ "name": "a" })),
        "save_context" => Some(json!({})),
        "merge_branch" => Some(json!({ "from": "a" })),
        "approve_tools" | "deny_tools" => Some(json!({ "tool_call_ids": ["a"] })),
        "edit_arguments" => Some(json!({ "arguments": {} })),
        "answer_tool_call" => Some(json!({ "result": "a" })),
        "delete_context" | "switch_branch" | "delete_branch" | "restore_branch" | "retry_turn" | "cancel_turn" => None,
        "delete_checkpoint" | "restore_checkpoint" | "mark_critical" | "unmark_critical" | "undo_operation"
        | "delete_session" | "restore_session" | "restore_snapshot" => None,
        other => panic!("{other} is not in the table: does it change something?"),
    }
}

/// What a tool that changes something is asked for.
fn arguments_of(tool: &str) -> Value {
    let ids = json!({ "project_id": "p", "segment_ids": ["a"] });
    match tool {
        "workflow_checkpoint_save" => json!({ "context": { "n": 1 } }),
        "workflow_mark_critical" => json!({ "contextKey": "goal" }),
        "context_put" => json!({ "project_id": "p", "text": "a" }),
        "context_analyze_usage" => {
            json!({ "project_id": "p", "context_descriptors": { "segment_summaries": [{ "text": "a" }] } })
        }
        "context_gc_analyze" => json!({ "project_id": "p", "target_tokens": 1 }),
        "context_gc_prune" => json!({ "project_id": "p", "segment_ids": ["a"], "action": "stash" }),
        "context_gc_pin" | "context_gc_unpin" => ids,
        "context_retrieve_stashed" => json!({ "project_id": "p", "move_to_active": true }),
        "context_stash"
        | "context_set_current_task"
        | "context_undo"
        | "context_create_task_snapshot"
        | "context_restore_task_snapshot" => json!({ "project_id": "p" }),
        other => panic!("{other} is not in the table: does it change something?"),
    }
}

/// Requests that are sent as bodies, and only read.
const READING: [&str; 3] = ["search_stashed", "compress_context", "prioritize_context"];

fn read_only() -> Client {
    let client = Client::new();
    let engine = client.harness.engine.clone().read_only();
    let router = Http::new(engine, "tester", client.stop.subscribe()).router(Guard::default());
    Client { router, ..client }
}

fn rpc(method: &str, params: &Value) -> Request<Body> {
    post("/mcp", json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params }).to_string())
}

#[tokio::test]
async fn every_route_that_changes_something_is_refused_in_read_only_mode() {
    let c = read_only();
    let mut refused = 0;
    for (method, path, operation) in operations() {
        if method == "GET" || READING.contains(&operation) {
            continue;
        }
        let path: Vec<&str> = path.split('/').map(|part| if part.starts_with('{') { "x1" } else { part }).collect();
        let reply = c.call(method.as_str(), &path.join("/"), body_of(operation)).await;
        assert_error(reply, 403, "READ_ONLY");
        refused += 1;
    }
    assert!(refused >= 24, "{refused}");
    let (status, reply) = c.call("POST", "/api/cleanup", Some(json!({ "dryRun": true }))).await;
    assert_eq!(status, 200, "looking is not changing: {reply}");
    let (_, status) = c.get("/api/status").await;
    assert_eq!((&status["readOnly"], status["operationCount"].as_u64()), (&json!(true), Some(0)));
    assert!(c.get("/healthz").await.1["warnings"][0].as_str().unwrap().contains("read-only"));
}

#[tokio::test]
async fn every_tool_that_changes_something_is_refused_in_read_only_mode() {
    let c = read_only();
    let list = json_of(c.send(rpc("tools/list", &json!({}))).await).await;
    let tools = list["result"]["tools"].as_array().unwrap();
    let mut refused = 0;
    for tool in tools.iter().filter(|tool| tool["annotations"]["readOnlyHint"] != true) {
        let name = tool["name"].as_str().unwrap();
        let params = json!({ "name": name, "arguments": arguments_of(name) });
        let reply = json_of(c.send(rpc("tools/call", &params)).await).await;
        let (result, error) = (&reply["result"], &reply["result"]["structuredContent"]["error"]);
        assert_eq!((&result["isError"], &error["code"]), (&json!(true), &json!("READ_ONLY")), "{name}: {reply}");
        assert!(error["hint"].as_str().unwrap().contains("WAYSTONE_READ_ONLY"), "{error}");
        refused += 1;
    }
    assert!(refused >= 14, "{refused}");
    let usage = json!({ "name": "context_analyze_usage", "arguments": { "project_id": "p" } });
    assert_ne!(json_of(c.send(rpc("tools/call", &usage)).await).await["result"]["isError"], true);
}

#[tokio::test]
async fn what_is_stashed_is_read_in_read_only_mode() {
    let c = read_only();
    let put = json!({ "project_id": "p", "text": "the ledger is stashed", "stash": true });
    c.harness.engine.put_segments(&c.harness.scope, serde_json::from_value(put).unwrap()).await.unwrap();
    let path = "/api/projects/p/stash/retrieve";
    let (status, reply) = c.call("POST", path, Some(json!({ "query": "ledger" }))).await;
    assert_eq!((status.as_u16(), &reply["segments_found"]), (200, &json!(1)), "{reply}");
    let params = json!({ "name": "context_retrieve_stashed", "arguments": { "project_id": "p", "query": "ledger" } });
    let reply = json_of(c.send(rpc("tools/call", &params)).await).await;
    assert_eq!(reply["result"]["structuredContent"]["retrieved_segments"][0]["tier"], "stashed", "{reply}");
    assert_error(
        c.call("POST", path, Some(json!({ "query": "ledger", "move_to_active": true }))).await,
        403,
        "READ_ONLY",
    );
}

#[tokio::test]
async fn a_view_whose_handles_cannot_be_resolved_says_so() {
    let c = read_only();
    let context = json!({ "goal": "ship", "log": "INFO a line of no use\n".repeat(2000) });
    c.harness.save("s", context.clone()).await;
    let unresolved = |reply: &Value| reply["warnings"].to_string().contains("handles of this view cannot be resolved");
    let given = json!({ "context": context, "targetTokens": 200 });
    let (status, reply) = c.call("POST", "/api/views/compress", Some(given)).await;
    assert!(status == 200 && unresolved(&reply), "{reply}");
    let saved = json!({ "sessionId": "s", "targetTokens": 200 });
    let (status, reply) = c.call("POST", "/api/views/compress", Some(saved)).await;
    assert!(status == 200 && !unresolved(&reply), "{reply}");
    let small = json!({ "context": { "goal": "ship" }, "targetTokens": 200 });
    assert!(!unresolved(&c.call("POST", "/api/views/compress", Some(small)).await.1), "it has no handles");
}
