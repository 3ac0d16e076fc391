//! Tasks and snapshots of them, and what is removed when its time is over.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use waystone_core::Error;
use waystone_core::api::Tier;
use waystone_testkit::Harness;

use super::{
    add, add_one, expand, find, ids, in_window, pin, prune, put, restore, retrieve, set_task, snapshot, stash,
    task_context, undo, unpin, working_set,
};

const DAY_MS: i64 = 24 * 3_600_000;

#[tokio::test]
async fn the_working_set_is_that_of_the_current_task() {
    let mut h = Harness::new();
    let none = add(&h, json!({ "text": "none" })).await;
    let set = set_task(&h, json!({ "task_id": "a" })).await.unwrap();
    assert_eq!((json!(set.task_id), json!(set.previous_task_id)), (json!("a"), json!(null)));
    let a = add(&h, json!({ "text": "of a" })).await;
    let b = add(&h, json!({ "text": "of b", "task_id": "b" })).await;
    assert_eq!(in_window(&h).await, a);
    h.restart().await;
    let set = set_task(&h, json!({ "task_id": "b" })).await.unwrap();
    assert_eq!((json!(set.task_id), json!(set.previous_task_id)), (json!("b"), json!("a")));
    assert_eq!(in_window(&h).await, b);
    assert_eq!(ids(&working_set(&h, json!({ "task_id": "a" })).await.unwrap().segments), a);
    assert_eq!(set_task(&h, json!({ "task_id": "b" })).await.unwrap().operation_id, None, "it is already");
    let working = working_set(&h, json!({})).await.unwrap().working_set;
    assert_eq!((json!(working.task_id), working.last_updated.is_some()), (json!("b"), true));
    for clear in [json!({}), json!({ "task_id": null })] {
        set_task(&h, json!({ "task_id": "b" })).await.unwrap();
        set_task(&h, clear).await.unwrap();
        assert_eq!(in_window(&h).await, [&none[..], &a, &b].concat());
    }
    let other = set_task(&h, json!({ "project_id": "q", "task_id": "a" })).await.unwrap();
    assert_eq!(other.previous_task_id, None, "each project has its own");
    assert_eq!(task_context(&h, json!({ "task_id": "none" })).await.unwrap().segment_count, 0);
    let unknown = working_set(&h, json!({ "task_id": "none" })).await.unwrap().working_set;
    assert_eq!((json!(unknown.task_id), unknown.last_updated), (json!("none"), None));
}

#[tokio::test]
async fn a_snapshot_puts_tiers_and_pins_back_and_stashes_what_came_since() {
    let mut h = Harness::new();
    set_task(&h, json!({ "task_id": "t" })).await.unwrap();
    let all = add(&h, json!({ "texts": ["working", "stashed", "pinned", "deleted"] })).await;
    let other = add_one(&h, json!({ "text": "of another", "task_id": "u" })).await;
    prune(&h, json!({ "segment_ids": [all[1]], "action": "stash" })).await.unwrap();
    pin(&h, json!({ "segment_ids": [all[2]] })).await.unwrap();
    let before = task_context(&h, json!({})).await.unwrap();
    let taken = snapshot(&h, json!({ "name": "all" })).await.unwrap();
    assert_eq!((taken.segments_snapshot, taken.tokens_snapshot), (4, before.total_tokens));
    assert_eq!((taken.task_id.as_str(), taken.name.as_deref()), ("t", Some("all")));

    prune(&h, json!({ "segment_ids": [all[3]], "action": "delete", "confirm": true })).await.unwrap();
    unpin(&h, json!({ "segment_ids": [all[2]] })).await.unwrap();
    stash(&h, json!({})).await.unwrap();
    let since = add(&h, json!({ "texts": ["since", "since and pinned"] })).await;
    pin(&h, json!({ "segment_ids": [since[1]] })).await.unwrap();
    let changed = task_context(&h, json!({})).await.unwrap();
    h.restart().await;
    let restored = restore(&h, json!({ "snapshot_id": taken.snapshot_id })).await.unwrap();
    assert_eq!((restored.segments_restored, restored.segments_stashed), (3, 1));
    let after = task_context(&h, json!({})).await.unwrap();
    let facts = |segments: &[waystone_core::api::Segment]| -> Vec<(String, Tier, bool)> {
        segments.iter().map(|segment| (segment.segment_id.to_string(), segment.tier, segment.pinned)).collect()
    };
    assert_eq!(facts(&after.segments[..4]), facts(&before.segments));
    let came = [(since[0].clone(), Tier::Stashed, false), (since[1].clone(), Tier::Working, true)];
    assert_eq!(facts(&after.segments[4..]), came);
    assert_eq!(restored.total_tokens, working_set(&h, json!({})).await.unwrap().total_tokens);
    assert_eq!(restore(&h, json!({ "snapshot_id": taken.snapshot_id })).await.unwrap().operation_id, None);
    undo(&h, json!({})).await.unwrap();
    assert_eq!(json!(task_context(&h, json!({})).await.unwrap().segments), json!(changed.segments));
    set_task(&h, json!({})).await.unwrap();
    assert_eq!(find(&h, &other).await.unwrap().tier, Tier::Working, "other tasks are left alone");
    h.check_invariants().await;
}

#[tokio::test]
async fn a_snapshot_has_no_earlier_one_in_it_and_one_that_is_undone_is_gone() {
    let h = Harness::new();
    add(&h, json!({ "text": "a", "task_id": "t" })).await;
    let first = snapshot(&h, json!({ "task_id": "t" })).await.unwrap();
    let second = snapshot(&h, json!({ "task_id": "t" })).await.unwrap();
    assert_eq!((first.segments_snapshot, second.segments_snapshot), (1, 1));
    assert_eq!(task_context(&h, json!({ "task_id": "t" })).await.unwrap().segment_count, 1);
    let list = async |mut request: Value| {
        request["project_id"] = json!("p");
        let request = serde_json::from_value(request).unwrap();
        h.engine.list_snapshots(&h.scope, request).await.unwrap()
    };
    let page = list(json!({ "limit": 1 })).await;
    assert_eq!(page.snapshots[0].snapshot_id, second.snapshot_id);
    let rest = list(json!({ "limit": 1, "cursor": page.next_cursor })).await;
    assert_eq!((&rest.snapshots[0].snapshot_id, rest.next_cursor), (&first.snapshot_id, None));
    assert_eq!(list(json!({ "task_id": "u" })).await.snapshots, []);
    undo(&h, json!({})).await.unwrap();
    let refused = restore(&h, json!({ "snapshot_id": second.snapshot_id })).await.unwrap_err();
    assert_eq!(refused, Error::SnapshotNotFound(second.snapshot_id));
    assert_eq!(list(json!({})).await.snapshots.len(), 1);
}

#[tokio::test]
async fn what_was_deleted_is_removed_after_seven_days_unless_a_snapshot_has_it() {
    let mut h = Harness::new();
    let captured = add_one(&h, json!({ "text": "captured", "task_id": "t" })).await;
    let taken = snapshot(&h, json!({ "task_id": "t" })).await.unwrap();
    let deleted = add_one(&h, json!({ "text": "deleted", "task_id": "t" })).await;
    let stashed = add_one(&h, json!({ "text": "stashed", "task_id": "t", "stash": true })).await;
    let both = json!([captured, deleted]);
    let pruned = prune(&h, json!({ "segment_ids": both, "action": "delete", "confirm": true })).await.unwrap();
    h.clock.advance_ms(6 * DAY_MS);
    let late = add_one(&h, json!({ "text": "late", "task_id": "t" })).await;
    prune(&h, json!({ "segment_ids": [late], "action": "delete", "confirm": true })).await.unwrap();
    let handle = |id: &str| format!("ws:segment:{id}");
    assert_eq!(expand(&h, &handle(&deleted)).await.unwrap(), "deleted", "it can be had until then");
    h.clock.advance_ms(DAY_MS + 1);
    h.restart().await;
    let began = Instant::now();
    let mut restarted = began;
    while expand(&h, &handle(&deleted)).await.is_ok() {
        assert!(began.elapsed() < Duration::from_secs(30), "it is not removed");
        // A start that sees a clock so far ahead doubts it; the next one believes.
        if restarted.elapsed() > Duration::from_secs(2) {
            h.restart().await;
            restarted = Instant::now();
        }
        tokio::task::yield_now().await;
    }
    for (id, text) in [(&captured, "captured"), (&stashed, "stashed"), (&late, "late")] {
        assert_eq!(expand(&h, &handle(id)).await.unwrap(), text);
    }
    let back = restore(&h, json!({ "snapshot_id": taken.snapshot_id })).await.unwrap();
    assert_eq!(back.segments_restored, 1);
    undo(&h, json!({})).await.unwrap();
    let undone = undo(&h, json!({ "operation_id": pruned.operation_id })).await.unwrap();
    assert_eq!(undone.segments_changed, 1, "of two that were deleted one is gone for good");
    assert_eq!(find(&h, &captured).await.unwrap().tier, Tier::Working);
    assert_eq!(put(&h, json!({ "text": "deleted" })).await.unwrap().added, 1);
    h.check_invariants().await;
}

#[tokio::test]
async fn what_a_new_task_is_told_to_retrieve_comes_into_its_window() {
    let h = Harness::new();
    add(&h, json!({ "text": "of no task", "stash": true })).await;
    let set = set_task(&h, json!({ "task_id": "new" })).await.unwrap();
    assert_eq!((set.worth_retrieving.len(), set.next.is_some()), (1, false), "it would come back elsewhere");
    add(&h, json!({ "text": "of this task", "task_id": "old", "stash": true })).await;
    let set = set_task(&h, json!({ "task_id": "old" })).await.unwrap();
    let next = set.next.unwrap();
    retrieve(&h, json!(next.arguments)).await.unwrap();
    assert_eq!(in_window(&h).await.len(), 1);
}
