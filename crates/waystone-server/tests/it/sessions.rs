//! `/api/sessions`

use serde_json::json;

use crate::client::{Client, assert_error};

#[tokio::test]
async fn a_session_is_named_tagged_listed_and_deleted() {
    let c = Client::new();
    c.harness.save("a", json!({ "n": 1 })).await;
    c.harness.save("b", json!({ "n": 1 })).await;
    let change = json!({ "name": "Alpha", "tags": ["x", "y"] });
    let (status, session) = c.call("PATCH", "/api/sessions/a", Some(change)).await;
    assert_eq!((status.as_u16(), &session["name"], &session["tags"]), (200, &json!("Alpha"), &json!(["x", "y"])));
    assert_eq!(c.get("/api/sessions/a").await.1, session);
    for field in ["id", "name", "createdAt", "lastAccessedAt", "tags", "totalSizeBytes", "checkpointCount"] {
        assert!(session.get(field).is_some(), "{field}");
    }
    let (_, renamed) = c.call("PATCH", "/api/sessions/a", Some(json!({ "name": "" }))).await;
    assert_eq!((renamed.get("name"), &renamed["tags"]), (None, &json!(["x", "y"])));
    assert_error(c.call("PATCH", "/api/sessions/a", Some(json!({ "tags": [""] }))).await, 400, "INVALID_INPUT");
    assert_error(c.call("PATCH", "/api/sessions/a", Some(json!({ "id": "b" }))).await, 400, "INVALID_INPUT");
    assert_error(c.call("PATCH", "/api/sessions/a", Some(json!([null, null]))).await, 400, "INVALID_INPUT");
    assert_error(c.call("PATCH", "/api/sessions/nope", Some(json!({}))).await, 404, "SESSION_NOT_FOUND");

    let (status, deleted) = c.call("DELETE", "/api/sessions/a", None).await;
    assert_eq!((status.as_u16(), &deleted["checkpointCount"]), (200, &json!(1)));
    assert_eq!(deleted["keptUntil"], "2026-01-08T00:00:00.000Z");
    for path in ["/api/sessions/a", "/api/sessions/a/latest", "/api/sessions/a/checkpoints"] {
        assert_error(c.get(path).await, 404, "SESSION_NOT_FOUND");
    }
    let (_, page) = c.get("/api/sessions").await;
    assert_eq!(page["sessions"].as_array().unwrap().len(), 1);
    assert_eq!(c.get("/api/checkpoints").await.1["total"], 1);
    let save = json!({ "sessionId": "a", "context": { "n": 2 } });
    assert_error(c.call("POST", "/api/checkpoints", Some(save)).await, 409, "CONFLICT");
    c.harness.check_invariants().await;
}

#[tokio::test]
async fn the_newest_good_checkpoint_is_the_head_again_when_the_newest_is_deleted() {
    let c = Client::new();
    let first = c.harness.save("a", json!({ "n": 1 })).await;
    let second = c.harness.save("a", json!({ "n": 2 })).await;
    c.call("DELETE", &format!("/api/checkpoints/{}", second.checkpoint_id), None).await;
    let (_, latest) = c.get("/api/sessions/a/latest").await;
    assert_eq!(latest["checkpointId"], json!(first.checkpoint_id));
    c.call("DELETE", &format!("/api/checkpoints/{}", first.checkpoint_id), None).await;
    assert_error(c.get("/api/sessions/a/latest").await, 404, "SESSION_NOT_FOUND");
    assert_eq!(c.get("/api/sessions/a").await.1["checkpointCount"], 0);
    c.harness.save("a", json!({ "n": 2 })).await;
    c.harness.check_invariants().await;
}
