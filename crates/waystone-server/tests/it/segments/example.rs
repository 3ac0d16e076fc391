//! Every example of the contract: its request is taken, and the reply has the fields of its reply, with their types.

use serde_json::{Value, json};

use super::{ask, ids_in, put, tiers};
use crate::client::Client;

/// Objects whose keys are data, each with a number.
const COUNTS: [&str; 3] = ["tokens_by_type", "segments_by_type", "tokens_by_task"];

/// Panics unless `reply` has every field that `example` has, with the same type.
#[track_caller]
fn assert_like(reply: &Value, example: &Value, path: &str) {
    let fits = match example {
        Value::Null => true,
        Value::Bool(_) => reply.is_boolean(),
        Value::String(_) => reply.is_string(),
        Value::Number(number) if number.is_u64() => reply.is_u64(),
        Value::Number(_) => reply.is_number(),
        Value::Array(items) => reply.as_array().is_some_and(|found| items.is_empty() || !found.is_empty()),
        Value::Object(_) => reply.is_object(),
    };
    assert!(fits, "{path} is {reply}, the contract has {example}");
    match (example, reply) {
        (Value::Array(items), Value::Array(found)) if !items.is_empty() => {
            found.iter().for_each(|found| assert_like(found, &items[0], &format!("{path}[]")));
        }
        (Value::Object(_), Value::Object(found)) if COUNTS.iter().any(|name| path.ends_with(name)) => {
            assert!(!found.is_empty() && found.values().all(Value::is_u64), "{path} is {reply}");
        }
        (Value::Object(fields), Value::Object(found)) => {
            for (name, example) in fields {
                let reply = found.get(name).unwrap_or_else(|| panic!("{path} has no {name}: {reply}"));
                assert_like(reply, example, &format!("{path}.{name}"));
            }
        }
        _ => {}
    }
}

fn segment() -> Value {
    json!({
        "segment_id": "seg1", "text": "...", "type": "message", "project_id": "my-project", "task_id": "task-123",
        "created_at": "2024-01-01T10:00:00Z", "last_touched_at": "2024-01-01T12:00:00Z", "pinned": false,
        "generation": "young", "gc_survival_count": 0, "refcount": 1, "file_path": null, "line_range": null,
        "tags": [], "topic_id": null, "tokens": 100, "tokens_computed_at": "2024-01-01T10:00:00Z",
        "text_hash": "...", "tier": "working",
    })
}

/// A client, and a project with a current task that has messages, code, and a log.
async fn at_work() -> (Client, Vec<String>) {
    let c = Client::new();
    ask(&c, "context_set_current_task", json!({ "project_id": "my-project", "task_id": "task-123" })).await;
    let mut ids =
        put(&c, json!({ "project_id": "my-project", "messages": [{ "role": "user", "content": "fix the launch" }] }))
            .await;
    let code =
        json!({ "project_id": "my-project", "text": "fn main() {}", "type": "code", "file_path": "src/main.py" });
    ids.extend(put(&c, code).await);
    ids.extend(
        put(&c, json!({ "project_id": "my-project", "texts": ["boot ok", "boot failed"], "type": "log" })).await,
    );
    (c, ids)
}

#[tokio::test]
async fn usage_is_analysed_as_in_the_contract() {
    let (c, _) = at_work().await;
    let example = json!({
        "usage_metrics": {
            "total_tokens": 25000, "total_segments": 150, "tokens_by_type": {}, "segments_by_type": {},
            "tokens_by_task": {}, "oldest_segment_age_hours": 24.5, "newest_segment_age_hours": 0.1,
            "pinned_segments_count": 5, "pinned_tokens": 5000, "usage_percent": 2.5,
            "estimated_remaining_tokens": 975_000,
        },
        "health_score": {
            "score": 85.0, "usage_percent": 2.5, "factors": { "usage": 0.9, "distribution": 0.8, "age": 0.9 },
        },
        "recommendations": [{ "priority": "low", "message": "Context usage is healthy", "action": null }],
        "warnings": [],
        "suggested_actions": [],
        "impact_summary": {
            "pruning_candidates_count": 50, "estimated_tokens_freed": 10000, "estimated_usage_after_pruning": 1.5,
        },
        "pruning_candidates_count": 50,
    });
    let usage = ask(&c, "context_analyze_usage", json!({ "project_id": "my-project", "token_limit": 1_000_000 })).await;
    assert_like(&usage, &example, "usage");
    let metrics = &usage["usage_metrics"];
    assert_eq!(metrics["segments_by_type"], json!({ "code": 1, "log": 2, "message": 1 }));
    assert_eq!(metrics["tokens_by_task"]["task-123"], metrics["total_tokens"]);
    let (used, left) = (&metrics["total_tokens"], &metrics["estimated_remaining_tokens"]);
    assert_eq!(used.as_u64().unwrap() + left.as_u64().unwrap(), 1_000_000);
    assert_eq!(usage["recommendations"], example["recommendations"]);
    assert_eq!((&usage["warnings"], &usage["suggested_actions"]), (&json!([]), &json!([])));
}

#[tokio::test]
async fn descriptors_are_taken_as_an_object_and_as_json_text() {
    let descriptors = json!({
        "recent_messages": [
            { "role": "user", "content": "hello", "timestamp": "2025-12-31T00:00:00Z" },
            { "role": "assistant", "content": "how can I help" },
        ],
        "current_file": { "path": "src/main.py", "line": 123 },
        "token_usage": { "current": 25000, "limit": 2000, "usage_percent": 2.5 },
        "segment_summaries": [{ "text": "the tests pass", "type": "summary" }, { "text": "ERROR 1", "type": "log", "id": "x" }],
        "task_info": { "task_id": "described", "title": "a title" },
        "weather": "sunny",
    });
    for given in [descriptors.clone(), json!(descriptors.to_string())] {
        let c = Client::new();
        put(&c, json!({ "project_id": "p", "text": "open", "type": "log", "file_path": "src/main.py" })).await;
        let usage = ask(&c, "context_analyze_usage", json!({ "project_id": "p", "context_descriptors": given })).await;
        let metrics = &usage["usage_metrics"];
        assert_eq!(metrics["segments_by_type"], json!({ "log": 2, "message": 2, "summary": 1 }));
        assert_eq!(metrics["estimated_remaining_tokens"], json!(2000 - metrics["total_tokens"].as_u64().unwrap()));
        let task = ask(&c, "context_get_task_context", json!({ "project_id": "p", "task_id": "described" })).await;
        assert_eq!(task["segment_count"], 4);
        let found = task["segments"].as_array().unwrap();
        let hello = found.iter().find(|segment| segment["text"] == "hello").unwrap();
        assert_eq!(hello["created_at"], "2025-12-31T00:00:00.000Z");
        assert_eq!(usage["pruning_candidates_count"], 2, "the current file's segment stays, and the newest messages");
        let garbage = ask(&c, "context_gc_analyze", json!({ "project_id": "p", "context_descriptors": given })).await;
        assert_eq!(garbage["total_candidates"], 2);
        assert_eq!(ask(&c, "context_gc_analyze", json!({ "project_id": "p" })).await["total_candidates"], 3);
    }
}

#[tokio::test]
async fn the_working_set_and_a_task_are_listed_as_in_the_contract() {
    let (c, ids) = at_work().await;
    let working = ask(&c, "context_get_working_set", json!({ "project_id": "my-project" })).await;
    let example = json!({
        "working_set": {
            "project_id": "my-project", "task_id": "task-123", "total_tokens": 25000,
            "last_updated": "2024-01-01T12:00:00Z",
        },
        "segments": [segment()], "total_tokens": 25000, "segment_count": 150,
    });
    assert_like(&working, &example, "working");
    assert_eq!(ids_in(&working["segments"]), ids);
    let tokens: u64 =
        working["segments"].as_array().unwrap().iter().map(|segment| segment["tokens"].as_u64().unwrap()).sum();
    assert_eq!((&working["total_tokens"], &working["working_set"]["total_tokens"]), (&json!(tokens), &json!(tokens)));

    ask(&c, "context_gc_prune", json!({ "project_id": "my-project", "segment_ids": ids[3..], "action": "stash" }))
        .await;
    let request = json!({ "project_id": "my-project", "task_id": "task-123" });
    let task = ask(&c, "context_get_task_context", request.clone()).await;
    let example =
        json!({ "task_id": "task-123", "segments": [segment()], "total_tokens": 50000, "segment_count": 200 });
    assert_like(&task, &example, "task");
    assert_eq!((ids_in(&task["segments"]), &task["total_tokens"]), (ids.clone(), &json!(tokens)));
    assert_eq!(ids_in(&ask(&c, "context_get_working_set", request).await["segments"]), ids[..3]);
}

#[tokio::test]
async fn candidates_and_a_plan_are_as_in_the_contract() {
    let (c, ids) = at_work().await;
    let candidate = json!({
        "segment_id": "seg1", "score": 0.85, "tokens": 500, "reason": "old + low refcount", "segment_type": "log",
        "age_hours": 48.5,
    });
    let mut example =
        json!({ "pruning_candidates": [candidate], "total_candidates": 50, "estimated_tokens_freed": 25000 });
    let found = ask(&c, "context_gc_analyze", json!({ "project_id": "my-project" })).await;
    assert_like(&found, &example, "garbage");
    assert_eq!(found.get("pruning_plan"), None);

    example["pruning_plan"] = json!({
        "candidates": [candidate], "total_tokens_freed": 25000, "stash_segments": ["seg1", "seg2"],
        "delete_segments": [], "reason": "Plan to free 25000 tokens by stashing old segments",
    });
    let found = ask(&c, "context_gc_analyze", json!({ "project_id": "my-project", "target_tokens": 100_000 })).await;
    assert_like(&found, &example, "garbage");
    let plan = &found["pruning_plan"];
    assert_eq!(plan["stash_segments"], json!([ids[2], ids[3], ids[1]]), "logs before code, and the message stays");
    assert_eq!(plan["delete_segments"], json!([]));
    assert!(plan["reason"].as_str().unwrap().contains("fewer than asked for"), "{plan}");
    let request = json!({ "project_id": "my-project", "plan_id": plan["plan_id"], "action": "stash" });
    let pruned = ask(&c, "context_gc_prune", request).await;
    assert_eq!(pruned["pruned_segments"], plan["stash_segments"]);
    assert_eq!(pruned["tokens_freed"], plan["total_tokens_freed"]);
}

#[tokio::test]
async fn segments_are_pinned_unpinned_and_pruned_as_in_the_contract() {
    let (c, ids) = at_work().await;
    let request = json!({ "project_id": "my-project", "segment_ids": ids[..2] });
    let pinned = ask(&c, "context_gc_pin", request.clone()).await;
    assert_like(&pinned, &json!({ "pinned_segments": ["seg1"], "errors": [] }), "pinned");
    assert_eq!((&pinned["pinned_segments"], &pinned["errors"]), (&json!(ids[..2]), &json!([])));
    let unpinned = ask(&c, "context_gc_unpin", request.clone()).await;
    assert_like(&unpinned, &json!({ "unpinned_segments": ["seg1"], "errors": [] }), "unpinned");
    assert_eq!(unpinned["unpinned_segments"], json!(ids[..2]));

    let example = json!({ "pruned_segments": ["seg1"], "tokens_freed": 1000, "action": "stashed", "errors": [] });
    for (part, action, done) in [(&ids[..2], "stash", "stashed"), (&ids[2..], "delete", "deleted")] {
        let request = json!({ "project_id": "my-project", "segment_ids": part, "action": action, "confirm": true });
        let pruned = ask(&c, "context_gc_prune", request).await;
        assert_like(&pruned, &example, "pruned");
        assert_eq!((&pruned["action"], &pruned["pruned_segments"]), (&json!(done), &json!(part)));
    }
    assert_eq!(tiers(&c, "my-project", &ids).await, ["stashed", "stashed", "gone", "gone"]);
}

#[tokio::test]
async fn the_stash_is_filled_searched_and_retrieved_as_in_the_contract() {
    for as_text in [false, true] {
        let c = Client::new();
        let filters = |filters: Value| if as_text { json!(filters.to_string()) } else { filters };
        let said = |text: &str, at: &str| json!({ "content": text, "timestamp": at });
        let notes = json!([
            said("old documentation of launch bugs", "2023-06-01T00:00:00Z"),
            said("documentation that is old, too", "2024-06-01T00:00:00Z"),
            said("something else", "2023-06-01T00:00:00Z"),
        ]);
        let ids = put(&c, json!({ "messages": notes, "type": "note" })).await;
        let request = json!({
            "query": "old documentation",
            "filters": filters(json!({ "type": "note", "created_before": "2024-01-01T00:00:00Z" })),
        });
        let stashed = ask(&c, "context_stash", request).await;
        let example =
            json!({ "stashed_segments": ["seg1"], "tokens_stashed": 5000, "segments_matched": 10, "errors": [] });
        assert_like(&stashed, &example, "stashed");
        assert_eq!((&stashed["stashed_segments"], &stashed["segments_matched"]), (&json!(ids[..1]), &json!(1)));

        let request = json!({ "query": "launch bugs", "move_to_active": true });
        let back = ask(&c, "context_retrieve_stashed", request).await;
        let mut found = segment();
        found["task_id"] = Value::Null;
        let example = json!({ "retrieved_segments": [found], "moved_to_active": ["seg1"], "segments_found": 5 });
        assert_like(&back, &example, "retrieved");
        assert_eq!((&back["moved_to_active"], &back["segments_found"]), (&json!(ids[..1]), &json!(1)));
        let looked = ask(&c, "context_retrieve_stashed", json!({ "query": "launch bugs" })).await;
        assert_eq!((looked.get("moved_to_active"), &looked["segments_found"]), (None, &json!(0)));

        let code = json!({ "text": "the function f", "file_path": "src/main.py", "type": "code", "stash": true,
            "task_id": "task-123", "tags": ["important", "reference"] });
        let code = put(&c, code).await;
        let request =
            json!({ "query": "function", "filters": filters(json!({ "file_path": "src/main.py" })), "limit": 20 });
        let searched = ask(&c, "context_search_stashed", request).await;
        let example = json!({
            "segments": [segment()], "total_matches": 25, "query": "function",
            "filters_applied": { "file_path": "src/main.py" },
        });
        assert_like(&searched, &example, "searched");
        assert_eq!((ids_in(&searched["segments"]), &searched["total_matches"]), (code.clone(), &json!(1)));
        assert_eq!(searched["filters_applied"], example["filters_applied"]);

        let every = json!({
            "file_path": "src/main.py", "task_id": "task-123", "tags": ["important", "reference"], "type": "code",
            "created_after": "2024-01-01T00:00:00Z", "created_before": "2099-12-31T23:59:59Z",
        });
        let searched = ask(&c, "context_search_stashed", json!({ "filters": filters(every.clone()) })).await;
        assert_eq!(ids_in(&searched["segments"]), code);
        for (field, other) in [
            ("file_path", json!("src/main.rs")),
            ("task_id", json!("task-124")),
            ("tags", json!(["important", "x"])),
            ("type", json!("log")),
            ("created_after", json!("2098-01-01")),
            ("created_before", json!("2024-01-01")),
        ] {
            let mut filter = every.clone();
            filter[field] = other;
            let searched = ask(&c, "context_search_stashed", json!({ "filters": filters(filter) })).await;
            assert_eq!(searched["total_matches"], 0, "{field} counts");
        }
    }
}

#[tokio::test]
async fn projects_tasks_and_snapshots_are_as_in_the_contract() {
    let (c, ids) = at_work().await;
    assert_eq!(ask(&c, "context_list_projects", json!({})).await["projects"], json!(["my-project"]));
    put(&c, json!({ "project_id": "default", "text": "x" })).await;
    assert_eq!(ask(&c, "context_list_projects", json!({})).await["projects"], json!(["default", "my-project"]));

    ask(&c, "context_set_current_task", json!({ "project_id": "my-project", "task_id": "task-456" })).await;
    let request = json!({ "project_id": "my-project", "task_id": "task-123" });
    let set = ask(&c, "context_set_current_task", request).await;
    let expected = json!({ "project_id": "my-project", "task_id": "task-123", "previous_task_id": "task-456" });
    for (field, value) in expected.as_object().unwrap() {
        assert_eq!(&set[field], value);
    }
    for request in [json!({ "project_id": "my-project", "task_id": null }), json!({ "project_id": "my-project" })] {
        let cleared = ask(&c, "context_set_current_task", request).await;
        assert_eq!(cleared["task_id"], Value::Null);
    }

    let request = json!({ "project_id": "my-project", "task_id": "task-123", "name": "before-refactor" });
    let snapshot = ask(&c, "context_create_task_snapshot", request).await;
    let example = json!({
        "snapshot_id": "snapshot-123", "task_id": "task-123", "name": "before-refactor", "segments_snapshot": 150,
        "tokens_snapshot": 25000,
    });
    assert_like(&snapshot, &example, "snapshot");
    assert_eq!((&snapshot["name"], &snapshot["segments_snapshot"]), (&json!("before-refactor"), &json!(4)));
    ask(&c, "context_stash", json!({ "project_id": "my-project" })).await;
    assert_eq!(tiers(&c, "my-project", &ids).await, ["stashed"; 4]);
    let request = json!({ "project_id": "my-project", "snapshot_id": snapshot["snapshot_id"] });
    let restored = ask(&c, "context_restore_task_snapshot", request).await;
    assert_eq!(restored["segments_restored"], 4);
    assert_eq!(tiers(&c, "my-project", &ids).await, ["working"; 4]);
    ask(&c, "context_undo", json!({ "project_id": "my-project" })).await;
    assert_eq!(tiers(&c, "my-project", &ids).await, ["stashed"; 4]);
}
