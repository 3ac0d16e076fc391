//! The writer thread: writes that fail, wait too long, or are given up with others.

use std::fs::File;

use serde_json::{Value, json};
use waystone_core::Error;
use waystone_core::api::SavedCheckpoint;
use waystone_core::error::Unavailable;
use waystone_testkit::contexts::Random;
use waystone_testkit::harness::request_of;
use waystone_testkit::{Harness, audit};

/// Saves all `requests` at once while another process holds `write.lock`, so that they pile up in this order and share
/// a commit.
async fn save_in_one_batch(h: &Harness, requests: Vec<Value>) -> Vec<Result<SavedCheckpoint, Error>> {
    let write_lock = File::open(h.data_dir().join("write.lock")).unwrap();
    write_lock.lock().unwrap();
    let mut saves = Vec::new();
    for request in requests {
        let (engine, scope) = (h.engine.clone(), h.scope.clone());
        saves.push(tokio::spawn(async move { engine.save_checkpoint(&scope, request_of(request)).await }));
        h.wait_for_taken(saves.len()).await;
    }
    write_lock.unlock().unwrap();
    let mut outcomes = Vec::new();
    for save in saves {
        outcomes.push(save.await.unwrap());
    }
    outcomes
}

/// How many commits are in the write-ahead log. The frame that ends one says how many pages the database has then.
fn commits(h: &Harness) -> usize {
    let log = std::fs::read(h.data_dir().join("waystone.db-wal")).unwrap();
    let frames = log.get(32..).unwrap_or_default();
    frames.chunks_exact(24 + 4096).filter(|frame| frame[4..8] != [0; 4] && frame[8..16] == log[16..24]).count()
}

/// Every other request is refused after it has written: its session is made before its parent is looked for.
#[tokio::test(flavor = "multi_thread")]
async fn a_failed_write_changes_nothing_and_spares_its_batch() {
    let h = Harness::new();
    let request = |n: u64| match n % 2 {
        0 => json!({ "sessionId": format!("s{n}"), "context": { "n": n } }),
        _ => json!({ "sessionId": format!("s{n}"), "context": { "n": n }, "parentCheckpointId": "nope" }),
    };
    let before = commits(&h);
    let outcomes = save_in_one_batch(&h, (1..=20).map(request).collect()).await;
    // Housekeeping commits too, now and then.
    assert!(commits(&h) < before + 5, "{} commits for ten that succeed", commits(&h) - before);
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
    assert!(bad.len() > 1, "no one shared a commit with the one that failed");
    assert!(bad.iter().all(|error| error.as_ref().unwrap_err().code() == "STORAGE_UNAVAILABLE"));
    let mut told: Vec<String> = good.into_iter().map(|saved| saved.unwrap().checkpoint_id.to_string()).collect();
    let mut found = h.list(json!({ "limit": 100 })).await;
    told.sort();
    found.sort();
    assert_eq!(found, told);
    h.save("s", json!({ "text": text })).await;
    h.check_invariants().await;
}
