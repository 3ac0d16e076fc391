//! Contract 004 on the wire: its example requests, and replies with every field of its examples.

mod example;
mod refusal;
mod rest;

use serde_json::{Value, json};

use crate::client::{Client, json_of, post};

/// Calls a tool and returns what it says, with whether that is a failure.
async fn call(c: &Client, tool: &str, arguments: Value) -> (bool, Value) {
    let params = json!({ "name": tool, "arguments": arguments });
    let message = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params });
    let response = c.send(post("/mcp", message.to_string())).await;
    assert_eq!(response.status(), 200);
    let mut result = json_of(response).await["result"].take();
    let said: Value = serde_json::from_str(result["content"][0]["text"].as_str().unwrap()).unwrap();
    assert_eq!(said, result["structuredContent"], "as text and as structured content alike");
    (result["isError"] == true, result["structuredContent"].take())
}

async fn ask(c: &Client, tool: &str, arguments: Value) -> Value {
    let (is_error, reply) = call(c, tool, arguments).await;
    assert!(!is_error, "{tool}: {reply}");
    reply
}

/// Puts texts and returns their ids.
async fn put(c: &Client, arguments: Value) -> Vec<String> {
    let reply = ask(c, "context_put", arguments).await;
    serde_json::from_value(reply["segment_ids"].clone()).unwrap()
}

/// The ids in a list of segments.
fn ids_in(segments: &Value) -> Vec<String> {
    segments.as_array().unwrap().iter().map(|segment| segment["segment_id"].as_str().unwrap().to_owned()).collect()
}

/// The tier of each segment of a project, whatever task is current.
async fn tiers(c: &Client, project: &str, ids: &[String]) -> Vec<String> {
    let (status, page) = c.get(&format!("/api/projects/{project}/task-context?limit=1000")).await;
    assert_eq!(status.as_u16(), 200, "{page}");
    let segments = page["segments"].as_array().unwrap();
    let tier = |id: &String| segments.iter().find(|segment| segment["segment_id"] == **id);
    let tier = |id: &String| tier(id).map_or("gone", |segment| segment["tier"].as_str().unwrap()).to_owned();
    ids.iter().map(tier).collect()
}
