//! Search in everything: what sessions last saved is found by what is in it, and the index follows what it is made from.

use serde_json::{Value, json};
use waystone_core::api::{CheckpointPage, ListCheckpoints, SearchResults};
use waystone_core::error::Result;
use waystone_testkit::{Harness, audit};

async fn list(h: &Harness, request: Value) -> Result<CheckpointPage> {
    let request: ListCheckpoints = serde_json::from_value(request).unwrap();
    h.engine.list_checkpoints(&h.scope, request).await
}

async fn sessions(h: &Harness, query: &str) -> Vec<String> {
    let page = list(h, json!({ "query": query, "content": true })).await.unwrap();
    page.checkpoints.iter().map(|found| found.session_id.to_string()).collect()
}

async fn everything(h: &Harness, request: Value) -> Result<SearchResults> {
    h.engine.search(&h.scope, serde_json::from_value(request).unwrap()).await
}

async fn put(h: &Harness, request: Value) {
    h.engine.put_segments(&h.scope, serde_json::from_value(request).unwrap()).await.unwrap();
}

#[tokio::test]
async fn a_session_is_found_by_what_it_last_saved() {
    let mut h = Harness::new();
    h.save("ledger", json!({ "goal": "repair the ledger", "notes": ["cannot open ledger.db"] })).await;
    h.save("garden", json!({ "goal": "plant roses", "steps": { "next": "buy a spade" } })).await;
    h.save("old", json!({ "goal": "write the ledger report" })).await;
    let newest = h.save("old", json!({ "goal": "feed the puppy" })).await;
    h.restart_mirrored().await;
    assert_eq!(sessions(&h, "ledger").await[0], "ledger");
    let page = list(&h, json!({ "query": "a dog", "content": true, "limit": 1 })).await.unwrap();
    let (found, hit) = (&page.checkpoints[0], page.checkpoints[0].hit.as_ref().unwrap());
    assert_eq!(found.checkpoint_id, newest.checkpoint_id);
    assert_eq!((hit.why, hit.snippet.as_str()), ("meaning", "goal: feed the puppy"));
    let page = list(&h, json!({ "query": "\"buy a spade\"", "content": true, "limit": 1 })).await.unwrap();
    assert_eq!(page.checkpoints[0].hit.as_ref().unwrap().snippet, "next: buy a spade");
    let none = list(&h, json!({ "query": "ledger", "content": true, "projectId": "other" })).await.unwrap();
    assert_eq!((none.checkpoints.len(), none.total), (0, 0), "filters hold here too");
    let first = list(&h, json!({ "query": "goal", "content": true, "limit": 2 })).await.unwrap();
    let next = first.next_cursor.unwrap();
    let rest = list(&h, json!({ "query": "goal", "content": true, "limit": 2, "cursor": next })).await.unwrap();
    assert_eq!((first.total, first.checkpoints.len(), rest.checkpoints.len(), rest.has_more), (3, 2, 1, false));
    h.check_invariants().await;
}

#[tokio::test]
async fn what_changes_or_is_deleted_is_found_as_it_is() {
    let mut h = Harness::new();
    let first = h.save("s", json!({ "goal": "paint the fence" })).await;
    h.restart_mirrored().await;
    assert_eq!(sessions(&h, "fence").await, ["s"]);
    let second = h.save("s", json!({ "goal": "mow the lawn" })).await;
    h.restart_mirrored().await;
    assert_eq!(sessions(&h, "lawn").await, ["s"]);
    let only = list(&h, json!({ "query": "fence", "content": true })).await.unwrap();
    assert!(only.checkpoints.iter().all(|found| found.checkpoint_id == second.checkpoint_id));
    h.engine.delete_checkpoint(&h.scope, &second.checkpoint_id, Default::default()).await.unwrap();
    assert_eq!(sessions(&h, "lawn").await, Vec::<String>::new(), "at once");
    h.restart_mirrored().await;
    let page = list(&h, json!({ "query": "fence", "content": true })).await.unwrap();
    assert_eq!(page.checkpoints[0].checkpoint_id, first.checkpoint_id, "the newest that is left");
    h.engine.delete_session(&h.scope, &"s".parse().unwrap(), Default::default()).await.unwrap();
    assert_eq!(sessions(&h, "fence").await, Vec::<String>::new());
    h.restart_mirrored().await;
    assert_eq!(sessions(&h, "fence").await, Vec::<String>::new());
}

#[tokio::test]
async fn one_search_finds_segments_of_both_tiers_and_sessions() {
    let mut h = Harness::new();
    h.save("s", json!({ "goal": "repair the ledger" })).await;
    put(&h, json!({ "text": "the ledger is in cents" })).await;
    h.clock.advance_ms(7_200_000);
    put(&h, json!({ "text": "the ledger was closed", "stash": true })).await;
    h.restart_mirrored().await;
    let all = everything(&h, json!({ "query": "ledger" })).await.unwrap();
    assert_eq!((all.segments.len(), all.checkpoints.len()), (2, 1));
    assert_eq!(all.checkpoints[0].hit.as_ref().unwrap().age, "2 h");
    let since = everything(&h, json!({ "query": "ledger", "since": "1h" })).await.unwrap();
    assert_eq!((since.segments.len(), since.checkpoints.len()), (1, 0));
    let tier = everything(&h, json!({ "query": "ledger", "tier": "working" })).await.unwrap();
    assert_eq!((tier.segments[0].text.as_str(), tier.checkpoints.len()), ("the ledger is in cents", 0));
    for wrong in [json!({ "query": "x", "tier": "archive" }), json!({ "query": "x", "limit": 0 })] {
        assert_eq!(everything(&h, wrong.clone()).await.unwrap_err().code(), "INVALID_INPUT", "{wrong}");
    }
    for nothing in ["", " ", "?!", "\u{0}"] {
        let found = everything(&h, json!({ "query": nothing })).await.unwrap();
        assert_eq!((found.segments.len(), found.checkpoints.len()), (0, 0), "{nothing:?}");
    }
    assert_eq!(list(&h, json!({ "content": true })).await.unwrap().total, 1, "a list, if nothing is searched for");
}

#[tokio::test]
async fn segments_that_move_are_searched_where_they_are() {
    let h = Harness::new();
    let search = async |tier: &str| {
        let request = json!({ "query": "ledger", "filters": { "tier": tier } });
        let found = h.engine.search_stashed(&h.scope, serde_json::from_value(request).unwrap()).await.unwrap();
        found.segments.len()
    };
    let second = h.second();
    put(&h, json!({ "texts": ["the ledger", "one ledger more", "a note"] })).await;
    assert_eq!((search("working").await, search("stashed").await), (3, 0));
    let stash = serde_json::from_value(json!({ "query": "ledger" })).unwrap();
    second.stash_segments(&h.scope, stash).await.unwrap();
    assert_eq!((search("working").await, search("stashed").await), (0, 2), "moved by another process");
    second.undo_operation(&h.scope, serde_json::from_value(json!({})).unwrap()).await.unwrap();
    assert_eq!((search("working").await, search("stashed").await), (3, 0));
}

#[tokio::test]
async fn the_index_is_made_anew_from_what_it_is_made_of() {
    let mut h = Harness::new();
    h.save("s", json!({ "goal": "repair the ledger" })).await;
    let texts: Vec<String> = (0..450).map(|n| format!("ledger number {n} {}", "and so on ".repeat(150))).collect();
    put(&h, json!({ "texts": texts, "stash": true })).await;
    h.restart_mirrored().await;
    let before = everything(&h, json!({ "query": "ledger number 7", "limit": 5 })).await.unwrap();
    let db = audit::open(h.data_dir());
    db.execute_batch(
        "DELETE FROM segment_word WHERE rowid > 0; UPDATE segment_index SET pieces = x''; DELETE FROM checkpoint_word WHERE rowid > 0;
         UPDATE checkpoint_index SET pieces = x''",
    )
    .unwrap();
    h.restart().await;
    let broken = everything(&h, json!({ "query": "ledger number 7" })).await.unwrap();
    assert_eq!((broken.segments.len(), broken.checkpoints.len()), (0, 0));
    let mut told = Vec::new();
    let texts = h.engine.reindex(&h.scope, |done, total| told.push((done, total))).await.unwrap();
    assert!(texts == 451 && told.len() >= 3 && told.is_sorted() && told[0] == (0, 451), "{texts} {told:?}");
    let after = everything(&h, json!({ "query": "ledger number 7", "limit": 5 })).await.unwrap();
    assert_eq!(json!(after), json!(before), "while the process goes on");
    db.execute_batch("DELETE FROM segment_word WHERE rowid > 0; UPDATE search_index SET version = 0").unwrap();
    h.restart_mirrored().await;
    let renewed = everything(&h, json!({ "query": "ledger number 7", "limit": 5 })).await.unwrap();
    assert_eq!(json!(renewed), json!(before), "an index of another version is made anew by housekeeping");
    h.check_invariants().await;
}

#[tokio::test]
async fn a_repaired_store_is_searched_by_what_came_back() {
    let mut h = Harness::new();
    h.save("s", json!({ "goal": "repair the ledger" })).await;
    h.restart_mirrored().await;
    h.engine.close().await;
    std::fs::remove_file(h.data_dir().join("waystone.db")).unwrap();
    h.repair();
    h.restart_mirrored().await;
    assert_eq!(sessions(&h, "ledger").await, ["s"]);
}
