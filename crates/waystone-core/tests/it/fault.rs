//! The store fails at each step in turn: what was asked for is there whole or not at all.

use serde_json::json;
use waystone_core::api::ExpandHandle;
use waystone_core::canon::Hash;
use waystone_testkit::Harness;
use waystone_testkit::harness::context_of;

/// Fails every step of a save in turn, until one save gets through.
#[tokio::test]
async fn a_failure_at_any_step_of_a_save_leaves_it_whole_or_absent() {
    for steps in 0.. {
        let mut h = Harness::new();
        h.save("s1", json!({ "n": 1 })).await;
        h.fail_after(steps).await;
        let saved = h.try_save(json!({ "sessionId": "s1", "context": { "n": 2 } })).await;
        h.restart().await;

        h.check_invariants().await;
        let latest = context_of(&h.try_load(json!({ "sessionId": "s1" })).await.unwrap());
        assert!(latest == json!({ "n": 1 }) || latest == json!({ "n": 2 }), "{latest}");
        if saved.is_ok() {
            assert_eq!(latest, json!({ "n": 2 }));
            assert!(steps > 0, "nothing failed");
            return;
        }
    }
}

/// The client did not hear of its save; it asks again with the same key.
#[tokio::test]
async fn a_save_whose_answer_was_lost_is_not_saved_twice() {
    let mut h = Harness::new();
    let request = json!({ "context": { "n": 1 }, "idempotencyKey": "step-1" });
    h.fail_after(1).await;
    h.try_save(request.clone()).await.unwrap_err();
    h.restart().await;
    assert_eq!(h.list(json!({ "limit": 10 })).await.len(), 1, "it was saved, and only the answer was lost");

    let saved = h.try_save(request).await.unwrap();
    assert_eq!(h.list(json!({ "limit": 10 })).await, [saved.checkpoint_id.to_string()]);
    h.check_invariants().await;
}

/// Fails every step of a mark in turn, until one gets through.
#[tokio::test]
async fn a_failure_at_any_step_of_a_mark_leaves_it_whole_or_absent() {
    for steps in 0.. {
        let mut h = Harness::new();
        h.save("s1", json!({ "a": 1, "b": 2 })).await;
        h.fail_after(steps).await;
        let request = serde_json::from_value(json!({ "sessionId": "s1", "contextKey": "a" })).unwrap();
        let marked = h.engine.mark_critical(&h.scope, request).await;
        h.restart().await;

        h.check_invariants().await;
        let session = h.engine.find_session(&h.scope, &"s1".parse().unwrap()).await.unwrap();
        let loaded = json!(h.try_load(json!({ "sessionId": "s1" })).await.unwrap().checkpoint.metadata);
        let is_marked = !session.critical_keys.is_empty();
        assert!(!is_marked || session.critical_keys == ["a"], "{:?}", session.critical_keys);
        assert_eq!(loaded.get("criticalKeys").is_some(), is_marked, "a load says what the session says");
        if marked.is_ok() {
            assert!(is_marked && steps > 0);
            return;
        }
    }
}

/// The handles of a view that was answered lead somewhere; of one that was not, at most the context is kept.
#[tokio::test]
async fn a_failure_at_any_step_of_a_view_leaves_its_context_whole_or_absent() {
    let context = json!({ "text": "a line that says something\n".repeat(40), "other": [1, 2, 3] });
    for steps in 0.. {
        let mut h = Harness::new();
        h.fail_after(steps).await;
        let request = serde_json::from_value(json!({ "context": context, "targetTokens": 20 })).unwrap();
        let view = h.engine.compress_context(&h.scope, request).await;
        h.restart().await;

        h.check_invariants().await;
        let hash = Hash::of(context.to_string().as_bytes());
        let handle = format!("ws:context:{hash}");
        let kept = h.engine.expand_handle(&h.scope, ExpandHandle { handle, offset: None, limit: None }).await;
        let size = h.engine.status(&h.scope).await.unwrap().total_size_bytes;
        match &kept {
            Ok(kept) => assert!(kept.content == context && size > 0),
            Err(error) => assert_eq!((error.code(), size), ("HANDLE_NOT_FOUND", 0)),
        }
        if view.is_ok() {
            assert!(kept.is_ok() && steps > 0);
            return;
        }
    }
}
