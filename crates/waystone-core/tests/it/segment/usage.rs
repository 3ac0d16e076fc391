//! Usage: what is counted, how healthy it is, and from where on it is too much.

use serde_json::{Value, json};
use waystone_core::Limits;
use waystone_core::tokens::count;
use waystone_testkit::Harness;

use super::{add, add_one, garbage, pin, prune, put, set_task, stash, undo, usage, working_set};

const HOUR_MS: i64 = 3_600_000;

/// A text of so many tokens.
fn text_of(tokens: usize) -> String {
    let mut text = String::from("a");
    while count(&text) < tokens {
        text.push_str(" a");
    }
    assert_eq!(count(&text), tokens);
    text
}

#[track_caller]
fn assert_close(number: f64, expected: f64) {
    assert!((number - expected).abs() < 1e-6, "{number}, expected {expected}");
}

#[tokio::test]
async fn usage_counts_the_working_tier_of_the_project_or_of_a_task() {
    let h = Harness::new();
    add(&h, json!({ "text": text_of(10), "type": "log", "task_id": "t" })).await;
    h.clock.advance_ms(3 * HOUR_MS);
    let code = add_one(&h, json!({ "text": text_of(20), "type": "code", "task_id": "t" })).await;
    pin(&h, json!({ "segment_ids": [code] })).await.unwrap();
    add(&h, json!({ "text": text_of(30), "type": "log", "task_id": "u" })).await;
    let gone = add(&h, json!({ "texts": [text_of(40), text_of(50)] })).await;
    add(&h, json!({ "text": text_of(60), "project_id": "q" })).await;
    stash(&h, json!({ "query": format!("\"{}\"", text_of(50)) })).await.unwrap();
    prune(&h, json!({ "segment_ids": [gone[0]], "action": "delete", "confirm": true })).await.unwrap();
    h.clock.advance_ms(HOUR_MS);

    let metrics = json!(usage(&h, json!({ "token_limit": 1000 })).await.unwrap().usage_metrics);
    let expected = json!({
        "total_tokens": 60, "total_segments": 3, "tokens_by_type": { "code": 20, "log": 40 },
        "segments_by_type": { "code": 1, "log": 2 }, "tokens_by_task": { "t": 30, "u": 30 },
        "oldest_segment_age_hours": 4.0, "newest_segment_age_hours": 1.0, "pinned_segments_count": 1,
        "pinned_tokens": 20, "usage_percent": 6.0, "estimated_remaining_tokens": 940, "token_limit": 1000,
    });
    assert_eq!(metrics, expected);
    set_task(&h, json!({ "task_id": "u" })).await.unwrap();
    let whole = json!(usage(&h, json!({ "token_limit": 1000 })).await.unwrap().usage_metrics);
    assert_eq!(whole, expected, "which task is current does not matter");
    let of_task = usage(&h, json!({ "token_limit": 1000, "task_id": "u" })).await.unwrap().usage_metrics;
    assert_eq!((of_task.total_tokens, json!(of_task.tokens_by_task)), (30, json!({ "u": 30 })));
    assert_eq!(usage(&h, json!({ "task_id": "none" })).await.unwrap().usage_metrics.total_tokens, 0);
}

#[tokio::test]
async fn a_task_without_segments_is_empty_whatever_belongs_to_no_task() {
    let h = Harness::new();
    let none = add_one(&h, json!({ "text": text_of(70) })).await;
    let of_task = usage(&h, json!({ "task_id": "zzz", "token_limit": 100 })).await.unwrap();
    assert_eq!((of_task.usage_metrics.total_tokens, of_task.usage_metrics.total_segments), (0, 0));
    assert_eq!((of_task.pruning_candidates_count, of_task.health_score.score), (0, 100.0));
    assert_eq!((of_task.next, of_task.suggested_actions, of_task.warnings), (None, vec![], Vec::<String>::new()));
    let again = put(&h, json!({ "text": text_of(70), "task_id": "zzz" })).await.unwrap();
    assert_eq!((again.segment_ids[0].as_str(), again.usage_percent), (none.as_str(), 0.0), "it stays without a task");
    assert_eq!(usage(&h, json!({ "token_limit": 100 })).await.unwrap().usage_metrics.total_tokens, 70);
}

#[tokio::test]
async fn health_falls_with_usage_and_age_and_rises_with_variety() {
    let h = Harness::new();
    let empty = usage(&h, json!({})).await.unwrap().health_score;
    assert_eq!((empty.score, empty.usage_percent, empty.factors.distribution), (100.0, 0.0, 0.0));
    add(&h, json!({ "texts": [text_of(10), text_of(20), text_of(30)], "type": "log" })).await;
    add(&h, json!({ "text": text_of(40), "type": "code" })).await;
    h.clock.advance_ms(3 * 24 * HOUR_MS);
    let health = usage(&h, json!({ "token_limit": 1000 })).await.unwrap().health_score;
    let spread = -(0.75_f64 * 0.75_f64.ln() + 0.25_f64 * 0.25_f64.ln()) / 2_f64.ln();
    assert_close(health.usage_percent, 10.0);
    assert_close(health.factors.usage, 0.9);
    assert_close(health.factors.age, 1.0 - 6.0 / 20.0);
    assert_close(health.factors.distribution, spread);
    assert_close(health.score, 100.0 - 10.0 - 6.0 + 10.0 * spread);
    h.clock.advance_ms(400 * 24 * HOUR_MS);
    let old = usage(&h, json!({ "token_limit": 1000 })).await.unwrap().health_score;
    assert_close(old.factors.age, 0.0);
    assert_close(old.score, 100.0 - 10.0 - 20.0 + 10.0 * spread);
    let over = usage(&h, json!({ "token_limit": 50 })).await.unwrap().health_score;
    assert_eq!((over.score, over.factors.usage), (0.0, 0.0));
}

#[tokio::test]
async fn from_sixty_percent_on_it_warns_and_says_what_to_call() {
    let h = Harness::new();
    add(&h, json!({ "text": text_of(36) })).await;
    for (limit, priority) in [
        (61, "low"),
        (60, "medium"),
        (46, "medium"),
        (45, "high"),
        (41, "high"),
        (40, "urgent"),
        (36, "urgent"),
        (20, "urgent"),
    ] {
        let usage = usage(&h, json!({ "token_limit": limit })).await.unwrap();
        assert_eq!(usage.recommendations[0].priority, priority, "{limit}");
        let is_full = priority != "low";
        assert_eq!((usage.warnings.is_empty(), usage.suggested_actions.is_empty()), (!is_full, !is_full), "{limit}");
        assert_eq!(usage.recommendations[0].action.is_some(), is_full);
        for action in &usage.suggested_actions {
            let call = json!(action);
            assert_eq!((&call["tool"], &call["arguments"]["project_id"]), (&json!("context_gc_analyze"), &json!("p")));
            let mut arguments: Value = call["arguments"].clone();
            arguments["limit"] = json!(5);
            let plan = garbage(&h, arguments).await.unwrap().pruning_plan.unwrap();
            assert_eq!(plan.segment_count, 1, "what it says can be called");
        }
    }
}

#[tokio::test]
async fn a_limit_that_is_given_counts_before_a_described_one_and_that_before_the_configured() {
    let h = Harness::with_limits(Limits { window_tokens: 5000, ..Limits::default() });
    let described = json!({ "token_usage": { "limit": 700 } });
    let limit = async |request: Value| usage(&h, request).await.unwrap().usage_metrics.token_limit;
    assert_eq!(limit(json!({})).await, 5000);
    assert_eq!(limit(json!({ "context_descriptors": described })).await, 700);
    assert_eq!(limit(json!({ "context_descriptors": described, "token_limit": 90 })).await, 90);
    let put = put(&h, json!({ "text": text_of(50) })).await.unwrap();
    assert_eq!((put.tokens_added, put.usage_percent, put.next), (50, 1.0, None));
}

#[tokio::test]
async fn what_is_described_twice_is_there_once() {
    let h = Harness::new();
    let described = json!({ "recent_messages": [{ "role": "user", "content": "hello" }], "task_info": {} });
    set_task(&h, json!({ "task_id": "t" })).await.unwrap();
    for n in 0..3 {
        let usage = usage(&h, json!({ "context_descriptors": described })).await.unwrap();
        assert_eq!(usage.usage_metrics.total_segments, 1);
        let segment = working_set(&h, json!({ "task_id": "t" })).await.unwrap().segments.remove(0);
        assert_eq!((segment.refcount, segment.tags), (n, vec!["role:user".to_owned()]));
    }
}

#[tokio::test]
async fn what_is_described_can_be_taken_back_by_the_operation_that_is_named() {
    let h = Harness::new();
    let described = |text: &str| json!({ "context_descriptors": { "segment_summaries": [{ "text": text }] } });
    assert_eq!(usage(&h, json!({})).await.unwrap().operation_id, None, "nothing was put");
    let operation = usage(&h, described("one")).await.unwrap().operation_id.unwrap();
    undo(&h, json!({ "operation_id": operation })).await.unwrap();
    assert_eq!(working_set(&h, json!({})).await.unwrap().segments, []);
    let operation = garbage(&h, described("two")).await.unwrap().operation_id.unwrap();
    undo(&h, json!({ "operation_id": operation })).await.unwrap();
    assert_eq!(working_set(&h, json!({})).await.unwrap().segments, []);
}
