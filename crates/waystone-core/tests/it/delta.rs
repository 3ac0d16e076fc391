//! Checkpoints that are kept as what differs from the one before.

use serde_json::{Value, json};
use waystone_core::Limits;
use waystone_testkit::contexts::Random;
use waystone_testkit::{Harness, audit};

/// The context of an agent after `steps` steps.
fn run(steps: usize) -> Value {
    let mut random = Random::new(7);
    let messages: Vec<Value> = (0..steps).map(|n| json!({ "step": n, "text": random.text(1500) })).collect();
    json!({ "goal": "a run that grows", "messages": messages })
}

fn keeping_all() -> Harness {
    Harness::with_limits(Limits { checkpoints_max: 1000, ..Limits::default() })
}

/// How many of a session's checkpoints are deltas, and how many groups they are in.
fn deltas_and_groups(h: &Harness) -> (u64, u64) {
    let db = audit::open(h.data_dir());
    let sql = "SELECT count(base), count(DISTINCT group_key) FROM checkpoint";
    db.query_row(sql, [], |row| Ok((row.get(0).unwrap(), row.get(1).unwrap()))).unwrap()
}

#[tokio::test]
async fn every_version_of_a_growing_context_is_loaded_equal_and_costs_little() {
    let mut h = keeping_all();
    let (mut ids, mut stored) = (Vec::new(), 0);
    for steps in 1..=70 {
        let saved = h.save("s", run(steps)).await;
        stored += saved.size_bytes;
        ids.push(saved.checkpoint_id);
        if steps % 20 == 0 {
            h.restart().await;
        }
    }
    assert_eq!(deltas_and_groups(&h), (67, 3), "one of each group stands alone");
    let raw: usize = (1..=70).map(|steps| run(steps).to_string().len()).sum();
    assert!(stored * 15 < raw as u64, "{stored} of {raw} bytes");
    h.restart().await;
    for (n, id) in ids.iter().enumerate() {
        assert_eq!(h.load(id).await.context.get(), run(n + 1).to_string());
    }
    h.check_invariants().await;
}

#[tokio::test]
async fn two_processes_that_take_turns_in_a_session_build_on_what_each_of_them_knows() {
    let (h, mut ids) = (keeping_all(), Vec::new());
    let other = h.second();
    for steps in 1..=40 {
        let engine = if steps % 3 == 0 { &other } else { &h.engine };
        let request = json!({ "sessionId": "s", "context": run(steps) });
        let saved = engine.save_checkpoint(&h.scope, waystone_testkit::harness::request_of(request)).await.unwrap();
        ids.push(saved.checkpoint_id);
        let latest = h.try_load(json!({ "sessionId": "s" })).await.unwrap();
        assert_eq!(latest.context.get(), run(steps).to_string(), "whoever saved it");
    }
    for (n, id) in ids.iter().enumerate() {
        assert_eq!(h.load(id).await.context.get(), run(n + 1).to_string());
    }
    let (deltas, groups) = deltas_and_groups(&h);
    assert!(deltas >= 37 && groups == 2, "{deltas} deltas in {groups} groups");
    other.close().await;
    h.check_invariants().await;
}

#[tokio::test]
async fn a_group_ends_when_its_text_fills_it() {
    let h = keeping_all();
    let mut random = Random::new(3);
    for n in 0..6 {
        h.save("s", json!({ "n": n, "text": random.text(3_000_000) })).await;
    }
    assert_eq!(deltas_and_groups(&h), (4, 2));
    h.check_invariants().await;
}

/// A retry may say the same in another order. Its text is not the one that was saved, and nothing may be built on it.
#[tokio::test]
async fn what_follows_a_retry_is_built_on_what_was_saved() {
    let mut h = keeping_all();
    let context = |reversed: bool| {
        let mut keys: Vec<String> = ('a'..='z').map(|c| c.to_string()).collect();
        if reversed {
            keys.reverse();
        }
        Value::Object(keys.into_iter().map(|key| (key.clone(), json!(format!("the value of {key}")))).collect())
    };
    let save = |reversed| json!({ "sessionId": "s", "context": context(reversed), "idempotencyKey": "k" });
    let first = h.try_save(save(false)).await.unwrap();
    assert_eq!(h.try_save(save(true)).await.unwrap().checkpoint_id, first.checkpoint_id);
    let mut changed = context(false);
    changed["b"] = json!("changed");
    let saved = h.save("s", changed.clone()).await;
    h.restart().await;
    assert_eq!(h.load(&saved.checkpoint_id).await.context.get(), changed.to_string());
    assert_eq!(h.load(&first.checkpoint_id).await.context.get(), context(false).to_string());
}
