//! The same engine over REST.

use serde_json::{Value, json};

use super::ids_in;
use crate::client::{Client, assert_error};

async fn ask(c: &Client, method: &str, path: &str, body: Option<Value>, status: u16) -> Value {
    let (got, reply) = c.call(method, &format!("/api/projects/p/{path}"), body).await;
    assert_eq!(got.as_u16(), status, "{method} {path}: {reply}");
    reply
}

#[tokio::test]
async fn what_is_put_over_rest_is_found_stashed_restored_and_undone_there() {
    let c = Client::new();
    let body = json!({ "texts": ["one", "two"], "task_id": "t", "project_id": "p" });
    let put = ask(&c, "POST", "segments", Some(body), 201).await;
    let ids = &put["segment_ids"];
    assert_eq!(c.get("/api/projects").await.1["projects"], json!(["p"]));
    assert_eq!(ask(&c, "PUT", "current-task", Some(json!({ "task_id": "t" })), 200).await["task_id"], "t");
    let working = ask(&c, "GET", "working-set?limit=1", None, 200).await;
    assert_eq!((ids_in(&working["segments"]).len(), &working["segment_count"]), (1, &json!(2)));
    let cursor = working["next_cursor"].as_str().unwrap();
    let rest = ask(&c, "GET", &format!("working-set?limit=1&cursor={cursor}"), None, 200).await;
    assert_eq!((&json!(ids_in(&rest["segments"])[0]), rest.get("next_cursor")), (&ids[1], None));

    let snapshot = ask(&c, "POST", "snapshots", Some(json!({ "name": "both" })), 201).await;
    let snapshot = snapshot["snapshot_id"].as_str().unwrap();
    assert_eq!(
        ask(&c, "POST", "stash", Some(json!({ "query": "one" })), 200).await["stashed_segments"],
        json!([ids[0]])
    );
    let found = ask(&c, "POST", "stash/search", Some(json!({})), 200).await;
    assert_eq!(json!(ids_in(&found["segments"])), json!([ids[0]]));
    assert_eq!(c.call("POST", "/api/stash/search", Some(json!({}))).await.1["total_matches"], 1);
    let pruned =
        ask(&c, "POST", "gc/prune", Some(json!({ "segment_ids": ids, "action": "delete", "confirm": true })), 200);
    assert_eq!(&pruned.await["pruned_segments"], ids);
    assert_eq!(ask(&c, "GET", "task-context", None, 200).await["segment_count"], 0);
    assert_eq!(ask(&c, "POST", "undo", None, 200).await["segments_changed"], 2);
    let restored = ask(&c, "POST", &format!("snapshots/{snapshot}/restore"), None, 200).await;
    assert_eq!(restored["segments_restored"], 1);
    assert_eq!(ask(&c, "GET", "tasks", None, 200).await["tasks"][0]["working_segments"], 2);
    assert_eq!(ask(&c, "GET", "snapshots", None, 200).await["snapshots"][0]["name"], "both");
    assert_eq!(ask(&c, "POST", "usage", Some(json!({})), 200).await["usage_metrics"]["total_segments"], 2);
    c.harness.check_invariants().await;
}

#[tokio::test]
async fn bad_requests_for_a_project_are_invalid_parameters() {
    let c = Client::new();
    for (method, path, body) in [
        ("POST", "p/segments", Some(json!({}))),
        ("POST", "p/segments", Some(json!({ "text": "a", "colour": "red" }))),
        ("POST", "p/segments", Some(json!({ "text": "a", "project_id": "other" }))),
        ("POST", "p/segments", Some(json!([]))),
        ("POST", "a%20b/segments", Some(json!({ "text": "a" }))),
        ("GET", "a%20b/working-set", None),
        ("GET", "p/working-set?limit=0", None),
        ("GET", "p/working-set?cursor=x", None),
        ("GET", "p/task-context?size=1", None),
        ("POST", "p/usage", Some(json!({ "context_descriptors": "{" }))),
        ("POST", "p/stash", Some(json!({ "filters": "[]" }))),
        ("POST", "p/gc/analyze", Some(json!({ "target_tokens": 0 }))),
        ("POST", "p/gc/prune", Some(json!({ "segment_ids": ["a"] }))),
        ("POST", "p/gc/prune", Some(json!({ "segment_ids": ["a"], "action": "delete" }))),
        ("POST", "p/pin", Some(json!({}))),
        ("PUT", "p/current-task", Some(json!({ "task_id": "a b" }))),
        ("POST", "p/snapshots", Some(json!({}))),
        ("GET", "p/snapshots?limit=x", None),
        ("POST", "a%20b/undo", None),
    ] {
        let reply = c.call(method, &format!("/api/projects/{path}"), body).await;
        assert_error(reply, 400, "INVALID_PARAMETER");
    }
    let pin = c.call("POST", "/api/projects/p/pin", Some(json!({ "segment_ids": ["a"] }))).await;
    assert_error(pin, 404, "SEGMENT_NOT_FOUND");
    let plan = c.call("POST", "/api/projects/p/gc/prune", Some(json!({ "plan_id": "a" }))).await;
    assert_error(plan, 404, "PLAN_NOT_FOUND");
    assert_error(c.call("POST", "/api/projects/p/snapshots/none/restore", None).await, 404, "SNAPSHOT_NOT_FOUND");
    assert_error(c.call("POST", "/api/operations/9/undo", None).await, 404, "OPERATION_NOT_FOUND");
    assert_error(c.call("POST", "/api/projects/p/undo", None).await, 404, "OPERATION_NOT_FOUND");
    assert_eq!(c.get("/api/projects").await.1["projects"], json!([]));
}
