use std::fs::File;

use serde_json::json;
use waystone_core::Error;
use waystone_core::error::Unavailable;
use waystone_testkit::harness::request_of;
use waystone_testkit::{Harness, audit};

/// While another process holds `write.lock`, saves pile up; let go, they share a commit. Half of them are refused inside it.
#[tokio::test(flavor = "multi_thread")]
async fn a_failed_write_changes_nothing_and_spares_its_batch() {
    let h = Harness::new();
    h.save("s", json!({ "n": 0 })).await;
    let write_lock = File::open(h.data_dir().join("write.lock")).unwrap();
    write_lock.lock().unwrap();
    let saves: Vec<_> = (1..=20u64)
        .map(|n| {
            let (engine, scope) = (h.engine.clone(), h.scope.clone());
            let request = match n % 2 {
                0 => json!({ "sessionId": format!("new-{n}"), "context": { "n": n } }),
                _ => json!({ "sessionId": "s", "context": { "n": n }, "expectedCheckpointId": "moved" }),
            };
            tokio::spawn(async move { engine.save_checkpoint(&scope, request_of(request)).await })
        })
        .collect();
    write_lock.unlock().unwrap();
    let mut outcomes = Vec::new();
    for save in saves {
        outcomes.push(save.await.unwrap().map(drop).map_err(|error| error.code()));
    }
    let expected: Vec<_> = (1..=20).map(|n| if n % 2 == 0 { Ok(()) } else { Err("CONFLICT") }).collect();
    assert_eq!(outcomes, expected);
    assert_eq!(h.list(json!({ "sessionId": "s", "limit": 10 })).await.len(), 1);
    h.check_invariants().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_write_that_waits_too_long_is_withdrawn_and_never_happens() {
    let h = Harness::new();
    h.save("s", json!({ "n": 0 })).await;
    let write_lock = File::open(h.data_dir().join("write.lock")).unwrap();
    write_lock.lock().unwrap();
    // The writer thread takes the first and waits for the lock with it; the second waits in the queue.
    let refused = h.try_save(json!({ "sessionId": "s", "context": { "n": 1 } })).await.unwrap_err();
    assert!(matches!(refused, Error::StorageUnavailable { reason: Unavailable::Busy, .. }), "{refused:?}");
    assert_eq!(h.list(json!({ "sessionId": "s", "limit": 10 })).await.len(), 1, "reads go on");
    write_lock.unlock().unwrap();
    h.save("other", json!({ "n": 2 })).await;
    assert_eq!(h.list(json!({ "sessionId": "s", "limit": 10 })).await.len(), 1);
    h.check_invariants().await;
}

/// SQLite gives up the whole transaction when the disk is full. The requests before the failing one must hear of it.
#[tokio::test(flavor = "multi_thread")]
async fn a_full_database_fails_the_save_and_works_again_when_there_is_room() {
    let mut h = Harness::new();
    let first = h.save("s", json!({ "n": 0 })).await;
    h.restart().await;
    let db = audit::open(h.data_dir());
    // A trigger that rolls the transaction back stands in for a disk that is full.
    db.execute_batch(
        "CREATE TRIGGER full BEFORE INSERT ON checkpoint_bytes
         BEGIN SELECT RAISE(ROLLBACK, 'database or disk is full'); END",
    )
    .unwrap();
    let error = h.try_save(json!({ "sessionId": "s", "context": { "n": 1 } })).await.unwrap_err();
    assert_eq!(error.code(), "STORAGE_UNAVAILABLE");
    db.execute_batch("DROP TRIGGER full").unwrap();
    let second = h.save("s", json!({ "n": 1 })).await;
    assert_eq!(second.parent_checkpoint_id, Some(first.checkpoint_id));
    h.check_invariants().await;
}
