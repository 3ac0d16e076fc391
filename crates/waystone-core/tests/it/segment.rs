//! Segments: met once, kept wherever they are, and listed in order.

mod collect;
mod random;
mod script;
mod stash;
mod task;
mod time;
mod undo;
mod usage;

use serde_json::{Value, json};
use waystone_core::Result;
use waystone_core::api::{
    CurrentTask, ExpandHandle, Generation, ListSnapshots, ListTasks, PinReply, PruneReply, PutReply, RestoredSnapshot,
    RetrieveReply, SearchReply, Segment, SegmentType, Snapshot, StashReply, TaskContext, Tier, UndoneOperation,
    UnpinReply, UsageReply, WorkingSetReply,
};
use waystone_core::api::{GarbageReply, OperationPage};
use waystone_testkit::Harness;

/// Calls of the engine, in project `p` unless the request names another.
macro_rules! calls {
    ($($name:ident: $method:ident -> $reply:ty;)*) => {$(
        async fn $name(h: &Harness, mut request: Value) -> Result<$reply> {
            request.as_object_mut().unwrap().entry("project_id").or_insert_with(|| json!("p"));
            h.engine.$method(&h.scope, serde_json::from_value(request).unwrap()).await
        }
    )*};
}

calls! {
    put: put_segments -> PutReply;
    working_set: list_working_set -> WorkingSetReply;
    task_context: list_task_context -> TaskContext;
    usage: analyze_usage -> UsageReply;
    garbage: analyze_garbage -> GarbageReply;
    prune: prune_segments -> PruneReply;
    pin: pin_segments -> PinReply;
    unpin: unpin_segments -> UnpinReply;
    stash: stash_segments -> StashReply;
    search: search_stashed -> SearchReply;
    retrieve: retrieve_stashed -> RetrieveReply;
    set_task: set_current_task -> CurrentTask;
    snapshot: create_snapshot -> Snapshot;
    restore: restore_snapshot -> RestoredSnapshot;
    undo: undo_operation -> UndoneOperation;
    operations: list_operations -> OperationPage;
}

/// Puts texts and returns their ids.
async fn add(h: &Harness, request: Value) -> Vec<String> {
    put(h, request).await.unwrap().segment_ids.iter().map(ToString::to_string).collect()
}

/// Puts one text and returns its id.
async fn add_one(h: &Harness, request: Value) -> String {
    add(h, request).await.remove(0)
}

fn ids(segments: &[Segment]) -> Vec<String> {
    segments.iter().map(|segment| segment.segment_id.to_string()).collect()
}

async fn in_window(h: &Harness) -> Vec<String> {
    ids(&working_set(h, json!({ "limit": 1000 })).await.unwrap().segments)
}

/// A segment of project `p` that is not deleted, by its id. No task may be current.
async fn find(h: &Harness, id: &str) -> Option<Segment> {
    let all = task_context(h, json!({ "limit": 1000 })).await.unwrap().segments;
    all.into_iter().find(|segment| segment.segment_id.as_str() == id)
}

async fn expand(h: &Harness, handle: &str) -> Result<Value> {
    let request = ExpandHandle { handle: handle.to_owned(), offset: None, limit: None };
    h.engine.expand_handle(&h.scope, request).await.map(|expanded| expanded.content)
}

#[tokio::test]
async fn text_that_is_met_again_is_touched_and_not_added() {
    let h = Harness::new();
    let first = put(&h, json!({ "text": "one" })).await.unwrap();
    assert_eq!((first.added, first.touched, first.operation_id.is_some()), (1, 0, true));
    let before = find(&h, first.segment_ids[0].as_str()).await.unwrap();
    h.clock.advance_ms(5000);
    let again = put(&h, json!({ "texts": ["one", "two", "one"], "tags": ["x"] })).await.unwrap();
    assert_eq!((again.added, again.touched), (1, 2));
    assert_eq!((&again.segment_ids[0], &again.segment_ids[2]), (&first.segment_ids[0], &first.segment_ids[0]));
    let after = find(&h, first.segment_ids[0].as_str()).await.unwrap();
    let touched = waystone_core::clock::Timestamp::from_ms(before.last_touched_at.ms() + 5000);
    assert_eq!(after, Segment { last_touched_at: touched, refcount: before.refcount + 2, ..before });

    let known = put(&h, json!({ "text": "one" })).await.unwrap();
    assert_eq!((known.added, known.tokens_added, known.operation_id), (0, 0, None));
    assert_eq!(put(&h, json!({ "text": "one", "type": "log" })).await.unwrap().added, 1, "another type is another");
    assert_eq!(put(&h, json!({ "text": "one", "project_id": "q" })).await.unwrap().added, 1, "another project too");
    assert_eq!(put(&h, json!({ "text": "one " })).await.unwrap().added, 1);
    h.check_invariants().await;
}

#[tokio::test]
async fn text_that_is_stashed_and_met_again_stays_where_it_is_and_deleted_text_comes_back() {
    let h = Harness::new();
    let id = add_one(&h, json!({ "text": "one", "stash": true })).await;
    assert_eq!(add_one(&h, json!({ "text": "one" })).await, id);
    assert_eq!(find(&h, &id).await.unwrap().tier, Tier::Stashed);
    prune(&h, json!({ "segment_ids": [id], "action": "delete", "confirm": true })).await.unwrap();
    assert_eq!(find(&h, &id).await, None);
    let back = put(&h, json!({ "text": "one" })).await.unwrap();
    assert_eq!((back.added, back.segment_ids[0].as_str()), (1, id.as_str()));
    assert_eq!(find(&h, &id).await.unwrap().tier, Tier::Working);
}

#[tokio::test]
async fn what_is_known_of_a_text_is_kept_with_it() {
    let h = Harness::new();
    set_task(&h, json!({ "task_id": "now" })).await.unwrap();
    let note = json!({
        "text": "fn f() {}", "type": "code", "task_id": "later", "tags": ["a", "b"], "file_path": "src/f.rs",
        "line_range": [3, 9], "topic_id": "f", "pinned": true,
    });
    let code = add_one(&h, note).await;
    let plain = add_one(&h, json!({ "text": "plain" })).await;
    let said = json!([{ "role": "user", "content": "hi", "timestamp": "2025-01-01T00:00:00Z" }, { "content": "hm" }]);
    let said = add(&h, json!({ "messages": said })).await;
    set_task(&h, json!({})).await.unwrap();
    let code = json!(find(&h, &code).await.unwrap());
    for (field, value) in [
        ("text", json!("fn f() {}")),
        ("type", json!("code")),
        ("project_id", json!("p")),
        ("task_id", json!("later")),
        ("tags", json!(["a", "b"])),
        ("file_path", json!("src/f.rs")),
        ("line_range", json!([3, 9])),
        ("topic_id", json!("f")),
        ("pinned", json!(true)),
        ("generation", json!("young")),
        ("refcount", json!(0)),
        ("tokens", json!(waystone_core::tokens::count("fn f() {}"))),
        ("tier", json!("working")),
        ("created_at", json!("2026-01-01T00:00:00.000Z")),
        ("text_hash", json!(waystone_core::canon::Hash::of(b"fn f() {}").to_string())),
    ] {
        assert_eq!(code[field], value, "{field}");
    }
    let plain = find(&h, &plain).await.unwrap();
    assert_eq!((plain.kind, plain.task_id.unwrap().as_str()), (SegmentType::Note, "now"));
    assert_eq!((plain.generation, plain.pinned, plain.line_range), (Generation::Young, false, None));
    let (hi, hm) = (find(&h, &said[0]).await.unwrap(), find(&h, &said[1]).await.unwrap());
    assert_eq!((hi.kind, hi.tags), (SegmentType::Message, vec!["role:user".to_owned()]));
    assert_eq!(hi.created_at.to_string(), "2025-01-01T00:00:00.000Z");
    assert_eq!((hm.tags, hm.created_at.to_string()), (vec![], "2026-01-01T00:00:00.000Z".to_owned()));
}

#[tokio::test]
async fn a_long_text_is_shown_in_part_and_had_whole_by_its_handle_or_when_asked_for() {
    let h = Harness::new();
    let (fits, long) = ("é".repeat(2000), format!("{} end", "é".repeat(2000)));
    add(&h, json!({ "texts": [fits, long] })).await;
    let shown = working_set(&h, json!({})).await.unwrap().segments;
    assert_eq!((&shown[0].text, &shown[0].handle, &shown[1].text), (&fits, &None, &fits));
    assert_eq!(expand(&h, shown[1].handle.as_deref().unwrap()).await.unwrap(), long);
    assert_eq!(shown[1].tokens, waystone_core::tokens::count(&long) as u64);
    let whole = working_set(&h, json!({ "full": true })).await.unwrap().segments;
    assert_eq!((&whole[1].text, &whole[1].handle), (&long, &None));
    stash(&h, json!({})).await.unwrap();
    for full in [false, true] {
        let expected = if full { &long } else { &fits };
        assert_eq!(&search(&h, json!({ "query": "end", "full": full })).await.unwrap().segments[0].text, expected);
        let found = retrieve(&h, json!({ "query": "end", "full": full })).await.unwrap();
        assert_eq!(&found.retrieved_segments[0].text, expected);
    }
    let part = format!("ws:segment:{}?bytes=4001-4004", shown[1].segment_id);
    assert_eq!(expand(&h, &part).await.unwrap(), "end");
}

#[tokio::test]
async fn pages_have_every_segment_once_and_in_order() {
    let h = Harness::new();
    let texts: Vec<String> = (0..23).map(|n| format!("text {n}")).collect();
    let all = add(&h, json!({ "texts": texts, "task_id": "t" })).await;
    for (limit, count) in [(1, 23), (10, 3), (23, 1), (1000, 1)] {
        let (mut found, mut pages, mut cursor) = (Vec::new(), 0, Value::Null);
        loop {
            let request = json!({ "task_id": "t", "limit": limit, "cursor": cursor });
            let page = task_context(&h, request.clone()).await.unwrap();
            assert_eq!((page.segment_count, json!(page)), (23, json!(page)));
            assert_eq!(ids(&working_set(&h, request).await.unwrap().segments), ids(&page.segments));
            found.extend(ids(&page.segments));
            pages += 1;
            assert!(pages <= count, "{limit}: there is no end");
            match page.next_cursor {
                Some(next) => cursor = json!(next),
                None => break,
            }
        }
        assert_eq!((&found, pages), (&all, count));
    }
    assert_eq!(working_set(&h, json!({})).await.unwrap().segments.len(), 23);
}

#[tokio::test]
async fn everything_is_there_after_a_restart() {
    let mut h = Harness::new();
    set_task(&h, json!({ "task_id": "t" })).await.unwrap();
    let texts = add(&h, json!({ "texts": ["a", "b", "c", "d"], "type": "log" })).await;
    add(&h, json!({ "text": "elsewhere", "task_id": "u" })).await;
    snapshot(&h, json!({ "name": "first" })).await.unwrap();
    pin(&h, json!({ "segment_ids": [texts[0]] })).await.unwrap();
    let plan = garbage(&h, json!({ "target_tokens": 1 })).await.unwrap().pruning_plan.unwrap().plan_id;
    prune(&h, json!({ "segment_ids": [texts[1]], "action": "stash" })).await.unwrap();
    prune(&h, json!({ "segment_ids": [texts[2]], "action": "delete", "confirm": true })).await.unwrap();
    let before = state(&h).await;
    h.restart().await;
    assert_eq!(state(&h).await, before);
    assert_eq!(in_window(&h).await, [texts[0].clone(), texts[3].clone()]);
    prune(&h, json!({ "plan_id": plan })).await.unwrap();
    h.restart().await;
    for _ in 0..3 {
        undo(&h, json!({})).await.unwrap();
    }
    assert_eq!(in_window(&h).await, texts);
    h.check_invariants().await;
}

/// All of project `p` that anyone can see.
async fn state(h: &Harness) -> Value {
    let list_tasks: ListTasks = serde_json::from_value(json!({ "project_id": "p" })).unwrap();
    let list_snapshots: ListSnapshots = serde_json::from_value(json!({ "project_id": "p" })).unwrap();
    json!({
        "window": working_set(h, json!({ "limit": 1000 })).await.unwrap(),
        "task": task_context(h, json!({ "limit": 1000 })).await.unwrap(),
        "stash": search(h, json!({ "limit": 1000 })).await.unwrap(),
        "usage": usage(h, json!({})).await.unwrap(),
        "garbage": garbage(h, json!({})).await.unwrap(),
        "tasks": h.engine.list_tasks(&h.scope, list_tasks).await.unwrap(),
        "snapshots": h.engine.list_snapshots(&h.scope, list_snapshots).await.unwrap(),
        "operations": operations(h, json!({ "limit": 1000 })).await.unwrap(),
    })
}
