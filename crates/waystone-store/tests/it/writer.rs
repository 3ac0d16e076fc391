use std::fs::File;
use std::time::Duration;

use serde_json::{Value, json};
use waystone_core::Error;
use waystone_core::api::SavedCheckpoint;
use waystone_core::error::Unavailable;
use waystone_testkit::contexts::Random;
use waystone_testkit::harness::request_of;
use waystone_testkit::{Harness, audit};

/// Saves all `requests` at once while another process holds `write.lock`, so that they pile up and share commits.
async fn save_in_one_batch(h: &Harness, requests: Vec<Value>) -> Vec<Result<SavedCheckpoint, Error>> {
    let write_lock = File::open(h.data_dir().join("write.lock")).unwrap();
    write_lock.lock().unwrap();
    let saves: Vec<_> = requests
        .into_iter()
        .map(|request| {
            let (engine, scope) = (h.engine.clone(), h.scope.clone());
            tokio::spawn(async move { engine.save_checkpoint(&scope, request_of(request)).await })
        })
        .collect();
    // Nothing outside shows that a request waits in the queue; a moment is enough, and too short a one only shares less.
    tokio::time::sleep(Duration::from_millis(200)).await;
    write_lock.unlock().unwrap();
    let mut outcomes = Vec::new();
    for save in saves {
        outcomes.push(save.await.unwrap());
    }
    outcomes
}

/// Every other request is refused after it has written: its session is made before its parent is looked for.
#[tokio::test(flavor = "multi_thread")]
async fn a_failed_write_changes_nothing_and_spares_its_batch() {
    let h = Harness::new();
    let request = |n: u64| match n % 2 {
        0 => json!({ "sessionId": format!("s{n}"), "context": { "n": n } }),
        _ => json!({ "sessionId": format!("s{n}"), "context": { "n": n }, "parentCheckpointId": "nope" }),
    };
    let outcomes = save_in_one_batch(&h, (1..=20).map(request).collect()).await;
    let codes: Vec<_> = outcomes.into_iter().map(|saved| saved.map(drop).map_err(|error| error.code())).collect();
    let expected: Vec<_> = (1..=20).map(|n| if n % 2 == 0 { Ok(()) } else { Err("CHECKPOINT_NOT_FOUND") }).collect();
    assert_eq!(codes, expected);
    assert_eq!(h.engine.status(&h.scope).await.unwrap().session_count, 10);
    h.check_invariants().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_write_that_waits_too_long_is_withdrawn_and_never_happens() {
    let h = Harness::new();
    h.save("s", json!({ "n": 0 })).await;
    let write_lock = File::open(h.data_dir().join("write.lock")).unwrap();
    write_lock.lock().unwrap();
    let refused = h.try_save(json!({ "sessionId": "s", "context": { "n": 1 } })).await.unwrap_err();
    assert!(matches!(refused, Error::StorageUnavailable { reason: Unavailable::Busy, .. }), "{refused:?}");
    assert_eq!(h.list(json!({ "sessionId": "s", "limit": 10 })).await.len(), 1, "reads go on");
    write_lock.unlock().unwrap();
    h.save("other", json!({ "n": 2 })).await;
    assert_eq!(h.list(json!({ "sessionId": "s", "limit": 10 })).await.len(), 1);
    h.check_invariants().await;
}

/// SQLite gives up a whole transaction when the disk is full. Whoever was told of success must find it, and no one else. A
/// trigger that rolls back stands in for the disk.
#[tokio::test(flavor = "multi_thread")]
async fn a_commit_that_is_given_up_fails_for_all_that_were_in_it() {
    let h = Harness::new();
    let db = audit::open(h.data_dir());
    db.execute_batch(
        "CREATE TRIGGER full BEFORE INSERT ON checkpoint_bytes WHEN length(NEW.bytes) > 2000
         BEGIN SELECT RAISE(ROLLBACK, 'database or disk is full'); END",
    )
    .unwrap();
    let text = Random::new(1).text(5000);
    let request = |n: u64| json!({ "sessionId": "s", "context": { "n": n, "text": if n == 10 { &text } else { "" } } });
    let outcomes = save_in_one_batch(&h, (1..=20).map(request).collect()).await;
    db.execute_batch("DROP TRIGGER full").unwrap();
    let (good, bad): (Vec<_>, Vec<_>) = outcomes.into_iter().partition(Result::is_ok);
    assert!(!bad.is_empty() && bad.iter().all(|error| error.as_ref().unwrap_err().code() == "STORAGE_UNAVAILABLE"));
    let mut told: Vec<String> = good.into_iter().map(|saved| saved.unwrap().checkpoint_id.to_string()).collect();
    let mut found = h.list(json!({ "limit": 100 })).await;
    told.sort();
    found.sort();
    assert_eq!(found, told);
    h.save("s", json!({ "text": text })).await;
    h.check_invariants().await;
}
