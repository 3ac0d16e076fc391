//! Garbage collection: what never goes, what goes first, and how much of it.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use waystone_core::api::{Generation, Tier};
use waystone_core::{Error, tokens};
use waystone_testkit::Harness;

use super::{add, add_one, find, garbage, pin, prune, set_task, undo, unpin};

const HOUR_MS: i64 = 3_600_000;

async fn candidates(h: &Harness, mut request: Value) -> BTreeSet<String> {
    request["limit"] = json!(1000);
    let found = garbage(h, request).await.unwrap();
    assert_eq!(found.total_candidates, found.pruning_candidates.len() as u64);
    assert_eq!(found.estimated_tokens_freed, found.pruning_candidates.iter().map(|one| one.tokens).sum::<u64>());
    found.pruning_candidates.iter().map(|one| one.segment_id.to_string()).collect()
}

fn set(ids: &[String]) -> BTreeSet<String> {
    ids.iter().cloned().collect()
}

#[tokio::test]
async fn what_is_pinned_is_no_candidate_until_it_is_unpinned() {
    let h = Harness::new();
    let ids = add(&h, json!({ "texts": ["a", "b"] })).await;
    pin(&h, json!({ "segment_ids": [ids[0]] })).await.unwrap();
    assert_eq!(candidates(&h, json!({})).await, set(&ids[1..]));
    let refused = prune(&h, json!({ "segment_ids": ids, "action": "stash" })).await.unwrap_err();
    assert_eq!(refused, Error::SegmentsPinned(vec![ids[0].parse().unwrap()]));
    assert_eq!(find(&h, &ids[1]).await.unwrap().tier, Tier::Working, "nothing was pruned");
    unpin(&h, json!({ "segment_ids": [ids[0]] })).await.unwrap();
    assert_eq!(candidates(&h, json!({})).await, set(&ids));
}

#[tokio::test]
async fn the_last_ten_messages_of_the_current_task_are_no_candidates() {
    let h = Harness::new();
    let said = |task: &str| (0..13).map(|n| json!({ "content": format!("{task} {n}") })).collect::<Vec<_>>();
    let mine = add(&h, json!({ "messages": said("mine"), "task_id": "mine" })).await;
    let theirs = add(&h, json!({ "messages": said("theirs"), "task_id": "theirs" })).await;
    let log = add(&h, json!({ "text": "log", "type": "log", "task_id": "mine" })).await;
    set_task(&h, json!({ "task_id": "mine" })).await.unwrap();
    assert_eq!(candidates(&h, json!({})).await, set(&[&mine[..3], &theirs[..], &log[..]].concat()));
    assert_eq!(candidates(&h, json!({ "task_id": "mine" })).await, set(&[&mine[..3], &log[..]].concat()));
    set_task(&h, json!({ "task_id": "theirs" })).await.unwrap();
    assert_eq!(candidates(&h, json!({})).await, set(&[&mine[..], &theirs[..3], &log[..]].concat()));
}

#[tokio::test]
async fn segments_of_the_current_file_are_no_candidates() {
    let h = Harness::new();
    let open = add(&h, json!({ "texts": ["a", "b"], "type": "code", "file_path": "src/a.rs" })).await;
    let closed = add(&h, json!({ "text": "c", "type": "code", "file_path": "src/b.rs" })).await;
    let request = json!({ "context_descriptors": { "current_file": { "path": "src/a.rs", "line": 7 } } });
    assert_eq!(candidates(&h, request).await, set(&closed));
    assert_eq!(candidates(&h, json!({})).await, set(&[open, closed].concat()));
}

#[tokio::test]
async fn decisions_are_no_candidates_for_an_hour() {
    let h = Harness::new();
    let decision = add(&h, json!({ "text": "we use SQLite", "type": "decision" })).await;
    h.clock.advance_ms(HOUR_MS - 1);
    assert_eq!(candidates(&h, json!({})).await, set(&[]));
    h.clock.advance_ms(2);
    assert_eq!(candidates(&h, json!({})).await, set(&decision));
}

#[tokio::test]
async fn what_a_root_refers_to_stays_by_tags_and_by_topics_however_far() {
    let h = Harness::new();
    let far = add_one(&h, json!({ "text": "far" })).await;
    let topic = json!({ "texts": ["one of the topic", "another"], "topic_id": "x", "tags": [format!("ref:{far}")] });
    let topic = add(&h, topic).await;
    let near = add_one(&h, json!({ "text": "near", "tags": [format!("ref:{}", topic[0])] })).await;
    let root = add_one(&h, json!({ "text": "root", "tags": ["ref:none", format!("ref:{near}")] })).await;
    let beside = add(&h, json!({ "text": "beside", "tags": [format!("ref:{root}")], "topic_id": "y" })).await;
    let all = [&[far, near, root.clone()][..], &topic, &beside].concat();
    assert_eq!(candidates(&h, json!({})).await, set(&all));
    pin(&h, json!({ "segment_ids": [root] })).await.unwrap();
    assert_eq!(candidates(&h, json!({})).await, set(&beside), "what refers to a root may go");
    let plan = garbage(&h, json!({ "target_tokens": 1000 })).await.unwrap().pruning_plan.unwrap();
    assert_eq!(plan.stash_segments, [beside[0].parse().unwrap()]);
    let found = find(&h, &topic[0]).await.unwrap();
    assert_eq!(found.refcount, 2, "one refers to it, one shares its topic");
}

#[tokio::test]
async fn a_plan_frees_its_target_and_hardly_more_or_says_by_how_much_not() {
    let h = Harness::new();
    let text = |n: usize| format!("text {n} {}", "word ".repeat(n * 7 % 31));
    let texts: Vec<String> = (0..60).map(text).collect();
    let sum: u64 = texts.iter().map(|text| tokens::count(text) as u64).sum();
    let largest = texts.iter().map(|text| tokens::count(text) as u64).max().unwrap();
    add(&h, json!({ "texts": texts })).await;
    let kept = add_one(&h, json!({ "text": "pinned", "pinned": true })).await;
    for target in [1, 2, 17, 50, 99, 250, sum - 1, sum, sum + 1, 10 * sum] {
        let plan = garbage(&h, json!({ "target_tokens": target, "limit": 3 })).await.unwrap().pruning_plan.unwrap();
        let freed = plan.total_tokens_freed;
        assert_eq!(plan.tokens_missing, target.checked_sub(freed).filter(|missing| *missing > 0), "{target}");
        assert!(freed >= target.min(sum) && freed <= target.max(sum), "{target}: {freed}");
        assert!(freed <= target + largest.max(target / 20), "{target}: {freed}");
        assert_eq!(plan.stash_segments.len() as u64, plan.segment_count);
        assert!(!plan.stash_segments.iter().any(|id| id.as_str() == kept) && plan.delete_segments.is_empty());
        let pruned = prune(&h, json!({ "plan_id": plan.plan_id })).await.unwrap();
        assert!(prune(&h, json!({ "plan_id": plan.plan_id })).await.is_err(), "it is done");
        assert_eq!((pruned.tokens_freed, &pruned.pruned_segments), (freed, &plan.stash_segments));
        undo(&h, json!({})).await.unwrap();
    }
}

#[tokio::test]
async fn the_highest_score_goes_first_and_is_worked_out_as_documented() {
    let h = Harness::new();
    set_task(&h, json!({ "task_id": "another" })).await.unwrap();
    for kind in ["decision", "summary", "message", "code", "note", "log"] {
        add(&h, json!({ "text": "x", "type": kind, "task_id": "mine" })).await;
        h.clock.advance_ms(5 * HOUR_MS);
    }
    add(&h, json!({ "text": "x", "type": "log" })).await;
    let found = garbage(&h, json!({})).await.unwrap().pruning_candidates;
    assert!(found.is_sorted_by(|a, b| a.score >= b.score) && found.len() == 6);
    for one in &found {
        let (hours, refcount, kind) = match json!(one.segment_type).as_str().unwrap() {
            "decision" => (30.0, 0.0, 0.1),
            "summary" => (25.0, 0.0, 0.2),
            "message" => (20.0, 0.0, 0.3),
            "code" => (15.0, 0.0, 0.5),
            "note" => (10.0, 0.0, 0.8),
            _ => (0.0, 1.0, 1.0),
        };
        let recency = 1.0 - f64::exp(-hours / 24.0);
        let expected = 0.4 * recency + 0.3 * kind + 0.2 / (refcount + 1.0) + 0.1 * 0.3;
        assert!((one.score - expected).abs() < 1e-9 && (one.age_hours - hours).abs() < 1e-9, "{one:?}: {expected}");
    }
}

#[tokio::test]
async fn what_has_survived_three_collections_is_old_and_goes_later() {
    let mut h = Harness::new();
    let kept = add_one(&h, json!({ "text": "kept" })).await;
    let score = async |h: &Harness| garbage(h, json!({})).await.unwrap().pruning_candidates[0].score;
    let young = score(&h).await;
    for n in 1..=3 {
        let texts = json!([format!("stashed {n}"), format!("late {n}")]);
        let ids = add(&h, json!({ "texts": texts })).await;
        prune(&h, json!({ "segment_ids": [ids[0]], "action": "stash" })).await.unwrap();
        prune(&h, json!({ "segment_ids": [ids[0]], "action": "stash" })).await.unwrap();
        h.restart().await;
        let found = find(&h, &kept).await.unwrap();
        let generation = if n == 3 { Generation::Old } else { Generation::Young };
        assert_eq!((found.gc_survival_count, found.generation), (n, generation), "one that prunes nothing is none");
        assert_eq!(find(&h, &ids[1]).await.unwrap().gc_survival_count, 1);
        prune(&h, json!({ "segment_ids": [ids[1]], "action": "delete", "confirm": true })).await.unwrap();
        undo(&h, json!({})).await.unwrap();
        assert_eq!(find(&h, &kept).await.unwrap().gc_survival_count, n, "one that is undone was none");
        undo(&h, json!({})).await.unwrap();
        assert_eq!(find(&h, &kept).await.unwrap().gc_survival_count, n - 1);
        prune(&h, json!({ "segment_ids": ids, "action": "stash" })).await.unwrap();
    }
    assert!((young - score(&h).await - 0.03).abs() < 1e-9);
    prune(&h, json!({ "segment_ids": [kept], "action": "stash" })).await.unwrap();
    undo(&h, json!({})).await.unwrap();
    assert_eq!(find(&h, &kept).await.unwrap().generation, Generation::Old, "it is what it was");
    h.check_invariants().await;
}
