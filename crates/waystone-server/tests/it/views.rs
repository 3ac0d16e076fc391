//! Views, handles, marks and rules over REST.

use axum::http::StatusCode;
use serde_json::{Value, json};

use crate::client::{Client, assert_error};

/// A text as a part of a path.
fn encoded(text: &str) -> String {
    text.bytes().map(|byte| format!("%{byte:02X}")).collect()
}

async fn expand(c: &Client, handle: &Value, query: &str) -> (StatusCode, Value) {
    c.get(&format!("/api/handles/{}{query}", encoded(handle.as_str().unwrap()))).await
}

fn long() -> String {
    (0..80).map(|n| format!("step {n} reads file_{n}.rs and says something")).collect::<Vec<_>>().join("\n")
}

#[tokio::test]
async fn a_view_fits_and_its_handles_lead_to_the_original() {
    let c = Client::new();
    let context = json!({ "userGoal": "ship it", "notes/a ~": long(), "debugLog": long() });
    let id = c.harness.save("s", context.clone()).await.checkpoint_id;
    for (path, body) in [
        ("compress", json!({ "sessionId": "s", "targetTokens": 400 })),
        ("compress", json!({ "checkpointId": id, "targetTokens": 400, "strategy": "extractive", "goal": "file_7.rs" })),
        ("compress", json!({ "context": context, "targetTokens": 400 })),
        ("compress", json!({ "context": context, "ratio": 6.5 })),
        ("prioritize", json!({ "sessionId": "s", "tokenBudget": 400, "weights": { "USEFUL": 50 } })),
        ("prioritize", json!({ "context": context, "tokenBudget": 400 })),
    ] {
        let (status, view) = c.call("POST", &format!("/api/views/{path}"), Some(body)).await;
        assert_eq!(status.as_u16(), 200, "{view}");
        let fields: Vec<&String> = view.as_object().unwrap().keys().collect();
        for field in ["context", "tokensBefore", "tokensAfter", "classes", "rules", "survival", "next"] {
            assert!(fields.contains(&&field.to_owned()), "{field} is not in {fields:?}");
        }
        assert!(view["tokensAfter"].as_u64().unwrap() <= 400 && view["context"]["userGoal"] == "ship it", "{view}");
        let classes =
            json!({ "CRITICAL": ["userGoal"], "IMPORTANT": [], "USEFUL": ["notes/a ~"], "EPHEMERAL": ["debugLog"] });
        assert_eq!(view["classes"], classes);
        let survival = &view["survival"];
        assert_eq!(survival["kept"], json!(["userGoal"]));
        assert_eq!(survival["anchors"]["lost"], 0);
        let left = survival["shortened"].as_array().unwrap().iter().chain(survival["dropped"].as_array().unwrap());
        let mut count = 0;
        for key in left {
            let (status, expanded) = expand(&c, &key["handle"], "").await;
            assert_eq!((status.as_u16(), &expanded["handle"]), (200, &key["handle"]));
            assert_eq!(expanded["content"], context[key["key"].as_str().unwrap()]);
            count += 1;
        }
        assert_eq!(count, 2);
        assert_eq!(view["next"]["tool"], "context_expand");
    }
    let (_, loaded) = c.get(&format!("/api/checkpoints/{id}?maxTokens=400")).await;
    assert!(loaded["tokensAfter"].as_u64().unwrap() <= 400 && loaded["context"]["userGoal"] == "ship it");
    let (_, latest) = c.get("/api/sessions/s/latest?maxTokens=400").await;
    assert_eq!(latest["context"], loaded["context"]);
    c.harness.check_invariants().await;
}

#[tokio::test]
async fn a_part_of_what_is_behind_a_handle_is_had_by_offset_and_limit_or_by_a_range() {
    let c = Client::new();
    let id = c.harness.save("s", json!({ "text": "öne\ntwo\nthree" })).await.checkpoint_id;
    let handle = json!(format!("ws:checkpoint:{id}#/text"));
    let (_, part) = expand(&c, &handle, "?offset=1&limit=4").await;
    let expected = json!({
        "handle": handle, "content": "ne\nt", "origin": "agent", "total_chars": 13, "offset": 1, "next_offset": 5,
    });
    assert_eq!(part, expected);
    let lines = json!(format!("ws:checkpoint:{id}#/text?lines=2-3"));
    assert_eq!(expand(&c, &lines, "").await.1["content"], "two\nthree");
    assert_error(expand(&c, &handle, "?limit=0").await, 400, "INVALID_INPUT");
    assert_error(expand(&c, &handle, "?limit=x").await, 400, "INVALID_INPUT");
    assert_error(expand(&c, &handle, "?size=1").await, 400, "INVALID_INPUT");
}

#[tokio::test]
async fn a_bad_request_for_a_view_gets_its_code() {
    let c = Client::new();
    c.harness.save("s", json!({ "n": 1 })).await;
    let check = async |path: &str, body: Value, status: u16, code: &str, names: &str| {
        let (got, reply) = c.call("POST", &format!("/api/views/{path}"), Some(body)).await;
        assert_error((got, reply.clone()), status, code);
        assert!(reply["error"]["message"].as_str().unwrap().contains(names), "{reply}");
    };
    let bad = async |path: &str, body: Value, names: &str| check(path, body, 400, "INVALID_INPUT", names).await;
    bad("compress", json!({ "sessionId": "s", "tokenBudget": 9 }), "unknown field `tokenBudget`").await;
    bad("prioritize", json!({ "sessionId": "s", "tokenBudget": 9, "ratio": 2 }), "unknown field `ratio`").await;
    bad("prioritize", json!({ "sessionId": "s" }), "tokenBudget").await;
    bad("prioritize", json!({ "sessionId": "s", "tokenBudget": 9, "weights": { "important": 1 } }), "important").await;
    bad("compress", json!({ "sessionId": "s", "targetTokens": -1 }), "targetTokens").await;
    bad("compress", json!({ "sessionId": "s", "targetTokens": 1.5 }), "targetTokens").await;
    bad("compress", json!({ "sessionId": "s", "targetTokens": 9, "ratio": 2 }), "ratio").await;
    bad("compress", json!({ "sessionId": "s", "strategy": "magic" }), "strategy").await;
    bad("compress", json!({ "context": [] }), "context").await;
    check("compress", json!({ "sessionId": "none" }), 404, "SESSION_NOT_FOUND", "`none`").await;
    check("compress", json!({ "checkpointId": "none" }), 404, "CHECKPOINT_NOT_FOUND", "`none`").await;

    for handle in ["text", "ws:checkpoint:a b", "ws:context:12", "ws:checkpoint:c#/a?lines=0-1", "ws:message:x"] {
        assert_error(expand(&c, &json!(handle), "").await, 400, "INVALID_INPUT");
    }
    let missing = expand(&c, &json!("ws:checkpoint:none#/a"), "").await;
    assert_eq!(missing.1["error"]["details"], json!({ "handle": "ws:checkpoint:none#/a" }));
    assert_error(missing, 404, "HANDLE_NOT_FOUND");
    assert_error(expand(&c, &json!(format!("ws:context:{}", "0".repeat(64))), "").await, 404, "HANDLE_NOT_FOUND");
    assert_error(c.get("/api/handles/").await, 404, "NOT_FOUND");
    assert_error(c.get("/api/checkpoints/c?maxTokens=0").await, 400, "INVALID_INPUT");
}

#[tokio::test]
async fn a_key_is_marked_whatever_characters_it_has() {
    let c = Client::new();
    let keys = ["plain", "a/b", "a%2Fb", "with space", "?q=1", "#", "⋯", "..", "~1", "\u{1}"];
    let context: serde_json::Map<String, Value> = keys.iter().map(|key| ((*key).to_owned(), json!(1))).collect();
    c.harness.save("s", context.into()).await;
    let path = |key: &str| format!("/api/sessions/s/critical/{}", encoded(key));
    for key in keys {
        let (status, before) = c.get(&path(key)).await;
        assert_eq!((status.as_u16(), &before["critical"], &before["contextKey"]), (200, &json!(false), &json!(key)));
        let (status, marked) = c.call("PUT", &path(key), None).await;
        assert_eq!((status.as_u16(), &marked["status"], &marked["sessionId"]), (200, &json!("SUCCESS"), &json!("s")));
        let (_, after) = c.get(&path(key)).await;
        assert_eq!((&after["class"], &after["rule"]), (&json!("CRITICAL"), &json!("marked critical")), "{key}");
    }
    assert_eq!(c.get("/api/sessions/s").await.1["criticalKeys"], json!(keys));
    assert_eq!(c.get("/api/sessions/s/latest").await.1["metadata"]["criticalKeys"], json!(keys));
    assert_eq!(c.get("/api/checkpoints").await.1["checkpoints"][0]["metadata"]["criticalKeys"], json!(keys));
    for key in keys {
        assert_eq!(c.call("DELETE", &path(key), None).await.1["status"], "SUCCESS", "{key}");
    }
    assert_eq!(c.get("/api/sessions/s").await.1.get("criticalKeys"), None);

    let (status, missing) = c.call("PUT", &path("none"), None).await;
    assert_eq!((status.as_u16(), &missing["status"]), (200, &json!("KEY_NOT_FOUND")), "it is an answer, not an error");
    assert_eq!(c.call("DELETE", &path("plain"), None).await.1["status"], "KEY_NOT_FOUND");
    assert_error(c.get(&path("none")).await, 404, "NOT_FOUND");
    assert_error(c.call("PUT", "/api/sessions/none/critical/a", None).await, 404, "SESSION_NOT_FOUND");
    assert_error(c.call("DELETE", "/api/sessions/none/critical/a", None).await, 404, "SESSION_NOT_FOUND");
    assert_error(c.call("PUT", &path(&"k".repeat(1025)), None).await, 400, "INVALID_INPUT");
    assert_error(c.call("PUT", "/api/sessions/a%2Fb/critical/a", None).await, 400, "INVALID_INPUT");
    assert_error(c.call("POST", &path("plain"), None).await, 405, "METHOD_NOT_ALLOWED");
}

#[tokio::test]
async fn two_checkpoints_are_compared() {
    let c = Client::new();
    let before = c.harness.save("s", json!({ "a": 1, "gone": true })).await.checkpoint_id;
    let after = c.harness.save("s", json!({ "a": 2, "new": [] })).await.checkpoint_id;
    let (status, diff) = c.get(&format!("/api/checkpoints/{before}/diff/{after}")).await;
    let expected = json!([
        { "key": "a", "kind": "changed", "before": 1, "after": 2 },
        { "key": "new", "kind": "added", "after": [] },
        { "key": "gone", "kind": "removed", "before": true },
    ]);
    assert_eq!((status.as_u16(), &diff["changes"]), (200, &expected));
    assert_eq!(c.get(&format!("/api/checkpoints/{before}/diff/{before}")).await.1["changes"], json!([]));
    assert_error(c.get(&format!("/api/checkpoints/{before}/diff/none")).await, 404, "CHECKPOINT_NOT_FOUND");
    assert_error(c.get(&format!("/api/checkpoints/{before}/diff/a%2Fb")).await, 400, "INVALID_INPUT");
}

#[tokio::test]
async fn rules_come_with_a_save_and_a_bad_one_saves_nothing() {
    let c = Client::new();
    let save = async |rules: Value| {
        let body = json!({ "sessionId": "s", "context": { "apiDump": "x" }, "contextRules": rules });
        c.call("POST", "/api/checkpoints", Some(body)).await
    };
    for rules in [
        json!([{ "pattern": "(", "class": "USEFUL" }]),
        json!([{ "pattern": "x", "class": "useful" }]),
        json!([{ "pattern": "x", "class": "USEFUL", "why": "?" }]),
        json!({ "pattern": "x", "class": "USEFUL" }),
    ] {
        assert_error(save(rules).await, 400, "INVALID_INPUT");
    }
    assert_eq!(c.get("/api/checkpoints").await.1["total"], 0);
    let rules = json!([{ "pattern": "^api", "class": "EPHEMERAL", "reason": "it can be fetched again" }]);
    assert_eq!(save(rules.clone()).await.0.as_u16(), 201);
    assert_eq!(c.get("/api/sessions/s").await.1["contextRules"], rules);
    let (_, class) = c.get("/api/sessions/s/critical/apiDump").await;
    assert_eq!((&class["class"], &class["rule"]), (&json!("EPHEMERAL"), &json!("it can be fetched again")));
}

#[tokio::test]
async fn on_a_store_that_ends_with_the_process_a_view_says_so_too() {
    let c = Client::volatile("the disk is gone");
    let (_, saved) =
        c.call("POST", "/api/checkpoints", Some(json!({ "sessionId": "s", "context": { "a": long() } }))).await;
    let id = saved["checkpointId"].as_str().unwrap();
    let handle = encoded(&format!("ws:checkpoint:{id}#/a"));
    for (method, path, body) in [
        ("POST", "/api/views/compress".to_owned(), Some(json!({ "sessionId": "s" }))),
        ("POST", "/api/views/prioritize".to_owned(), Some(json!({ "sessionId": "s", "tokenBudget": 50 }))),
        ("GET", format!("/api/handles/{handle}"), None),
        ("GET", format!("/api/checkpoints/{id}?maxTokens=50"), None),
        ("GET", format!("/api/checkpoints/{id}/diff/{id}"), None),
        ("PUT", "/api/sessions/s/critical/a".to_owned(), None),
        ("GET", "/api/sessions/s/critical/a".to_owned(), None),
        ("DELETE", "/api/sessions/s/critical/a".to_owned(), None),
    ] {
        let (status, reply) = c.call(method, &path, body).await;
        assert_eq!(status.as_u16(), 200, "{method} {path}: {reply}");
        assert!(reply["warnings"][0].as_str().unwrap().contains("the disk is gone"), "{method} {path}: {reply}");
    }
}
