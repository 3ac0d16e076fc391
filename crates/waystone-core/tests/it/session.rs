//! Sessions: listed by last use, and what counts as one.

use serde_json::json;
use waystone_core::Error;
use waystone_core::api::ListSessions;
use waystone_testkit::Harness;

#[tokio::test]
async fn sessions_are_listed_by_last_use_and_add_up_their_checkpoints() {
    let h = Harness::new();
    for (session, n) in [("a", 1), ("b", 1), ("c", 1), ("a", 2)] {
        h.clock.advance_ms(1000);
        h.save(session, json!({ "n": n })).await;
    }
    let page = h.engine.list_sessions(&h.scope, ListSessions { limit: 2, ..Default::default() }).await.unwrap();
    let rest = ListSessions { limit: 2, cursor: page.next_cursor.clone(), ..Default::default() };
    let rest = h.engine.list_sessions(&h.scope, rest).await.unwrap();
    let ids = |page: &waystone_core::api::SessionPage| -> Vec<String> {
        page.sessions.iter().map(|s| s.id.to_string()).collect()
    };
    assert_eq!((ids(&page), page.has_more), (vec!["a".to_owned(), "c".to_owned()], true));
    assert_eq!((ids(&rest), rest.has_more), (vec!["b".to_owned()], false));

    let first = &page.sessions[0];
    assert_eq!((first.checkpoint_count, first.project_id.as_str()), (2, "project"));
    assert!(first.total_size_bytes > 0 && first.created_at < first.last_accessed_at);
}

#[tokio::test]
async fn a_load_counts_as_use_and_is_recorded() {
    let mut h = Harness::new();
    h.save("a", json!({ "n": 1 })).await;
    h.save("b", json!({ "n": 1 })).await;
    let before = h.engine.status(&h.scope).await.unwrap().operation_count;
    h.clock.advance_ms(60_000);
    h.try_load(json!({ "sessionId": "a" })).await.unwrap();
    h.restart().await;

    let page = h.engine.list_sessions(&h.scope, ListSessions { limit: 1, ..Default::default() }).await.unwrap();
    assert_eq!(page.sessions[0].id.as_str(), "a");
    assert_eq!(page.sessions[0].last_accessed_at.ms() - page.sessions[0].created_at.ms(), 60_000);
    assert_eq!(h.engine.status(&h.scope).await.unwrap().operation_count, before + 1);
    h.check_invariants().await;
}

#[tokio::test]
async fn an_export_is_recorded_as_a_load_of_each_checkpoint() {
    let mut h = Harness::new();
    for n in 0..3 {
        h.save("a", json!({ "n": n })).await;
    }
    let before = h.engine.status(&h.scope).await.unwrap().operation_count;
    h.export_session("a").await.unwrap();
    h.restart().await;
    assert_eq!(h.engine.status(&h.scope).await.unwrap().operation_count, before + 3);
    h.check_invariants().await;
}

#[tokio::test]
async fn a_save_that_changed_nothing_counts_as_use_too() {
    let mut h = Harness::new();
    h.save("a", json!({ "n": 1 })).await;
    h.save("b", json!({ "n": 1 })).await;
    h.clock.advance_ms(60_000);
    h.save("a", json!({ "n": 1 })).await;
    h.restart().await;
    let page = h.engine.list_sessions(&h.scope, ListSessions { limit: 1, ..Default::default() }).await.unwrap();
    assert_eq!(page.sessions[0].id.as_str(), "a");
    h.check_invariants().await;
}

#[tokio::test]
async fn a_session_that_is_not_there_is_named() {
    let h = Harness::new();
    let id = "nope".parse().unwrap();
    assert_eq!(h.engine.find_session(&h.scope, &id).await.unwrap_err(), Error::SessionNotFound(id));
}
