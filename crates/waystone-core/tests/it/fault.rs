use serde_json::json;
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
