//! The log of operations and the sums: gapless, chained, and equal to what they count.

use serde_json::json;
use waystone_core::Limits;
use waystone_testkit::{Harness, audit};

/// A store with saves, skips, prunes, loads and failures in it.
async fn busy_store() -> Harness {
    let mut h = Harness::with_limits(Limits { checkpoints_max: 5, ..Limits::default() });
    for n in 0..40u64 {
        h.clock.advance_ms(10);
        h.save(&format!("s{}", n % 3), json!({ "n": n / 2 })).await;
        let _ = h.try_save(json!({ "sessionId": "s0", "context": {}, "expectedCheckpointId": "nope" })).await;
        h.try_load(json!({ "sessionId": "s0" })).await.unwrap();
    }
    h.restart().await;
    h
}

#[tokio::test]
async fn the_operation_log_is_gapless_and_its_chain_verifies() {
    let h = busy_store().await;
    assert_eq!(audit::audit(h.data_dir()), Vec::<String>::new());
    let db = audit::open(h.data_dir());
    let kinds: Vec<(String, u64)> = db
        .prepare("SELECT kind, count(*) FROM operation GROUP BY kind ORDER BY kind")
        .unwrap()
        .query_map([], |row| Ok((row.get(0)?, row.get(1)?)))
        .unwrap()
        .flatten()
        .collect();
    assert_eq!(
        kinds.iter().map(|(kind, _)| kind.as_str()).collect::<Vec<_>>(),
        ["checkpoint.loaded", "checkpoint.pruned", "checkpoint.saved"]
    );
    assert_eq!(kinds[0].1, 40);

    db.execute("UPDATE operation SET actor = 'someone else' WHERE seq = 7", []).unwrap();
    assert_eq!(audit::audit(h.data_dir()), ["operation 7 does not follow from the one before it"]);
}

#[tokio::test]
async fn counters_equal_what_they_count() {
    let h = busy_store().await;
    assert_eq!(audit::audit(h.data_dir()), Vec::<String>::new());
    let db = audit::open(h.data_dir());
    db.execute("UPDATE session SET checkpoint_count = checkpoint_count + 1 WHERE id = 's1'", []).unwrap();
    assert_eq!(audit::audit(h.data_dir()).len(), 2, "the audit sees a wrong counter");
}

#[tokio::test]
async fn the_audit_tells_what_it_cannot_read() {
    let h = Harness::new();
    h.save("s", json!({ "n": 1 })).await;
    h.engine.close().await;
    let db = audit::open(h.data_dir());
    let root = "SELECT rootpage FROM sqlite_schema WHERE name = 'checkpoint_group'";
    let page: usize = db.query_row(root, [], |row| row.get(0)).unwrap();
    db.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())).unwrap();
    drop(db);
    let path = h.data_dir().join("waystone.db");
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[(page - 1) * 4096..page * 4096].fill(0xa5);
    std::fs::write(path, bytes).unwrap();
    let problems = audit::audit(h.data_dir());
    let is_told = |what: &str| problems.iter().any(|told| told.starts_with(what) && told.contains("malformed"));
    assert!(is_told("checkpoint_group"), "{problems:?}");
}

#[tokio::test]
async fn an_operation_names_what_it_is_about_and_holds_no_text_of_a_context() {
    let h = Harness::new();
    let saved = h.save("s", json!({ "secret": "do not copy me" })).await;
    let db = audit::open(h.data_dir());
    let (subject, payload, actor): (String, String, String) = db
        .query_row("SELECT subject, payload, actor FROM operation", [], |row| {
            Ok((row.get(0)?, row.get(1)?, row.get(2)?))
        })
        .unwrap();
    let id = &saved.checkpoint_id;
    assert_eq!(subject, json!([format!("ws:checkpoint:{id}"), "ws:session:s", "ws:project:project"]).to_string());
    let expected =
        json!({ "checkpointId": id, "sessionId": "s", "projectId": "project", "sizeBytes": saved.size_bytes });
    assert_eq!(payload, expected.to_string());
    assert_eq!(actor, "tester");
    let event: String = db.query_row("SELECT payload FROM event WHERE seq = 1", [], |row| row.get(0)).unwrap();
    assert_eq!(event, payload);
}
