//! What is refused, and how: a failed tool result with a code, a message, details and a hint.

use serde_json::{Value, json};

use super::{ask, call, put, tiers};
use crate::client::Client;

async fn refused(c: &Client, tool: &str, arguments: Value, code: &str) -> Value {
    let (is_error, mut reply) = call(c, tool, arguments.clone()).await;
    assert!(is_error, "{tool} {arguments}: {reply}");
    let error = reply["error"].take();
    assert_eq!(error["code"], code, "{tool} {arguments}: {error}");
    let is_text = |field: &str| error[field].as_str().is_some_and(|text| !text.is_empty());
    assert!(is_text("message") && is_text("hint") && error["details"].is_object(), "{tool} {arguments}: {error}");
    error
}

#[tokio::test]
async fn a_project_that_is_missing_or_no_id_is_an_invalid_parameter() {
    let c = Client::new();
    for (tool, rest) in [
        ("context_analyze_usage", json!({})),
        ("context_get_working_set", json!({})),
        ("context_gc_analyze", json!({})),
        ("context_gc_prune", json!({ "segment_ids": ["seg1"], "action": "stash" })),
        ("context_gc_pin", json!({ "segment_ids": ["seg1"] })),
        ("context_gc_unpin", json!({ "segment_ids": ["seg1"] })),
        ("context_set_current_task", json!({ "task_id": "task-123" })),
        ("context_get_task_context", json!({ "task_id": "task-123" })),
        ("context_create_task_snapshot", json!({ "task_id": "task-123" })),
    ] {
        let error = refused(&c, tool, rest.clone(), "INVALID_PARAMETER").await;
        assert!(error["message"].as_str().unwrap().contains("project_id"), "{error}");
        for project in
            [json!(""), json!("a b"), json!("../x"), json!(".."), json!("x".repeat(129)), json!(7), json!(null)]
        {
            let mut arguments = rest.clone();
            arguments["project_id"] = project;
            let error = refused(&c, tool, arguments, "INVALID_PARAMETER").await;
            assert!(error["message"].as_str().unwrap().contains("project_id"), "{error}");
        }
    }
    for tool in ["context_stash", "context_search_stashed", "context_retrieve_stashed", "context_put", "context_undo"] {
        refused(&c, tool, json!({ "project_id": "a/b" }), "INVALID_PARAMETER").await;
    }
}

#[tokio::test]
async fn that_a_text_was_imported_is_refused_on_every_face() {
    let c = Client::new();
    let error = refused(&c, "context_put", json!({ "text": "a", "origin": "import" }), "INVALID_PARAMETER").await;
    assert!(error["message"].as_str().unwrap().contains("origin is user, agent or tool"), "{error}");
    let save = json!({ "context": {}, "sessionId": "s", "origin": "import" });
    refused(&c, "workflow_checkpoint_save", save, "INVALID_INPUT").await;
    refused(&c, "context_put", json!({ "text": "a", "origin": "god" }), "INVALID_PARAMETER").await;
    let save = json!({ "context": {}, "sessionId": "s", "origin": "import" });
    let saved = c.call("POST", "/api/checkpoints", Some(save)).await;
    crate::client::assert_error(saved, 400, "INVALID_INPUT");
    let put = c.call("POST", "/api/projects/p/segments", Some(json!({ "text": "a", "origin": "import" }))).await;
    crate::client::assert_error(put, 400, "INVALID_PARAMETER");
    assert_eq!(ask(&c, "context_list_projects", json!({})).await["projects"], json!([]), "nothing was put");
}

#[tokio::test]
async fn descriptors_and_filters_that_are_no_object_are_invalid_parameters() {
    let c = Client::new();
    for bad in [json!("{"), json!("[]"), json!("7"), json!(""), json!([]), json!(7), json!("{\"a\": 1} x")] {
        for tool in ["context_analyze_usage", "context_gc_analyze"] {
            let error =
                refused(&c, tool, json!({ "project_id": "p", "context_descriptors": bad }), "INVALID_PARAMETER").await;
            assert!(error["message"].as_str().unwrap().contains("context_descriptors"), "{error}");
        }
        for tool in ["context_stash", "context_search_stashed", "context_retrieve_stashed"] {
            let error = refused(&c, tool, json!({ "filters": bad }), "INVALID_PARAMETER").await;
            assert!(error["message"].as_str().unwrap().contains("filters"), "{error}");
        }
    }
    for filters in [
        json!({ "type": "poem" }),
        json!({ "created_after": "yesterday" }),
        json!({ "tags": "important" }),
        json!({ "colour": "red" }),
        json!("{\"type\": \"poem\"}"),
    ] {
        for tool in ["context_stash", "context_search_stashed", "context_retrieve_stashed"] {
            refused(&c, tool, json!({ "filters": filters }), "INVALID_PARAMETER").await;
        }
    }
    assert_eq!(ask(&c, "context_list_projects", json!({})).await["projects"], json!([]), "nothing was put");
}

#[tokio::test]
async fn what_is_pinned_is_not_pruned_and_nothing_beside_it_is() {
    let c = Client::new();
    let ids = put(&c, json!({ "project_id": "p", "texts": ["a", "b", "c"] })).await;
    ask(&c, "context_gc_pin", json!({ "project_id": "p", "segment_ids": [ids[1]] })).await;
    for action in ["stash", "delete"] {
        let request = json!({ "project_id": "p", "segment_ids": ids, "action": action, "confirm": true });
        let error = refused(&c, "context_gc_prune", request, "INVALID_PARAMETER").await;
        assert_eq!(error["details"]["pinned"], json!([ids[1]]));
        assert_eq!(tiers(&c, "p", &ids).await, ["working"; 3]);
    }
    let stashed = ask(&c, "context_stash", json!({ "project_id": "p" })).await;
    assert_eq!((&stashed["stashed_segments"], &stashed["segments_matched"]), (&json!([ids[0], ids[2]]), &json!(3)));
    assert_eq!(stashed["errors"][0]["segment_id"], ids[1]);
    assert_eq!(stashed["errors"][0]["code"], "PERMISSION_DENIED");
}

#[tokio::test]
async fn to_delete_needs_a_confirmation() {
    let c = Client::new();
    let ids = put(&c, json!({ "project_id": "p", "text": "a" })).await;
    for confirm in [json!({}), json!({ "confirm": false })] {
        let mut request = json!({ "project_id": "p", "segment_ids": ids, "action": "delete" });
        request.as_object_mut().unwrap().extend(confirm.as_object().unwrap().clone());
        let error = refused(&c, "context_gc_prune", request, "INVALID_PARAMETER").await;
        assert!(error["message"].as_str().unwrap().contains("confirm"), "{error}");
    }
    assert_eq!(tiers(&c, "p", &ids).await, ["working"]);
    let plan = json!({ "project_id": "p", "target_tokens": 1, "action": "delete" });
    let plan = ask(&c, "context_gc_analyze", plan).await["pruning_plan"].take();
    assert_eq!((&plan["delete_segments"], &plan["stash_segments"]), (&json!(ids), &json!([])));
    refused(&c, "context_gc_prune", json!({ "project_id": "p", "plan_id": plan["plan_id"] }), "INVALID_PARAMETER")
        .await;
    assert_eq!(tiers(&c, "p", &ids).await, ["working"]);
    ask(&c, "context_gc_prune", json!({ "project_id": "p", "plan_id": plan["plan_id"], "confirm": true })).await;
    assert_eq!(tiers(&c, "p", &ids).await, ["gone"]);
}

#[tokio::test]
async fn unknown_ids_are_errors_beside_the_good_and_fail_the_call_alone() {
    let c = Client::new();
    let mine = put(&c, json!({ "project_id": "p", "text": "mine" })).await;
    let theirs = put(&c, json!({ "project_id": "other", "text": "theirs" })).await;
    for (tool, done) in [
        ("context_gc_pin", "pinned_segments"),
        ("context_gc_unpin", "unpinned_segments"),
        ("context_gc_prune", "pruned_segments"),
    ] {
        let request = |ids: Value| match tool {
            "context_gc_prune" => json!({ "project_id": "p", "segment_ids": ids, "action": "stash" }),
            _ => json!({ "project_id": "p", "segment_ids": ids }),
        };
        let reply = ask(&c, tool, request(json!(["seg1", mine[0], theirs[0]]))).await;
        assert_eq!(reply[done], json!(mine), "{reply}");
        let errors = reply["errors"].as_array().unwrap();
        let unknown: Vec<&Value> = errors.iter().map(|error| &error["segment_id"]).collect();
        assert_eq!(unknown, [&json!("seg1"), &json!(theirs[0])]);
        assert!(errors.iter().all(|error| error["code"] == "SEGMENT_NOT_FOUND" && error["message"].is_string()));
        let error = refused(&c, tool, request(json!(["seg1", theirs[0]])), "SEGMENT_NOT_FOUND").await;
        assert_eq!(error["details"]["segment_ids"], json!(["seg1", theirs[0]]));
        refused(&c, tool, request(json!([])), "INVALID_PARAMETER").await;
        refused(&c, tool, request(json!("seg1")), "INVALID_PARAMETER").await;
    }
    assert_eq!(tiers(&c, "other", &theirs).await, ["working"]);
}

#[tokio::test]
async fn parameters_that_do_not_fit_are_named() {
    let c = Client::new();
    for (tool, arguments, named) in [
        ("context_gc_prune", json!({ "project_id": "p", "segment_ids": ["a"] }), "action"),
        ("context_gc_prune", json!({ "project_id": "p", "segment_ids": ["a"], "action": "burn" }), "action"),
        ("context_gc_prune", json!({ "project_id": "p", "action": "stash" }), "segment_ids"),
        ("context_gc_pin", json!({ "project_id": "p" }), "segment_ids"),
        ("context_gc_analyze", json!({ "project_id": "p", "target_tokens": 0 }), "target_tokens"),
        ("context_gc_analyze", json!({ "project_id": "p", "target_tokens": -5 }), "target_tokens"),
        ("context_analyze_usage", json!({ "project_id": "p", "token_limit": 0 }), "token_limit"),
        ("context_analyze_usage", json!({ "project_id": "p", "tokenLimit": 9 }), "tokenLimit"),
        ("context_search_stashed", json!({ "limit": 0 }), "limit"),
        ("context_search_stashed", json!({ "limit": 1001 }), "limit"),
        ("context_retrieve_stashed", json!({ "move_to_active": "yes" }), "move_to_active"),
        ("context_set_current_task", json!({ "project_id": "p", "task_id": "a b" }), "task_id"),
        ("context_create_task_snapshot", json!({ "project_id": "p" }), "task_id"),
        ("context_create_task_snapshot", json!({ "project_id": "p", "task_id": "none" }), "none"),
        ("context_put", json!({ "project_id": "p" }), "text"),
        ("context_put", json!({ "project_id": "p", "text": "a", "texts": ["b"] }), "text"),
        ("context_put", json!({ "project_id": "p", "text": "a", "line_range": [9, 3] }), "line_range"),
        ("context_list_projects", json!({ "project_id": "p" }), "project_id"),
    ] {
        let error = refused(&c, tool, arguments, "INVALID_PARAMETER").await;
        assert!(error["message"].as_str().unwrap().contains(named), "{tool}: {error}");
    }
}

#[tokio::test]
async fn plans_snapshots_and_operations_that_are_not_there_have_codes_of_their_own() {
    let c = Client::new();
    put(&c, json!({ "project_id": "p", "text": "a", "task_id": "t" })).await;
    put(&c, json!({ "project_id": "other", "text": "a" })).await;
    let plan = ask(&c, "context_gc_analyze", json!({ "project_id": "p", "target_tokens": 1 })).await;
    let plan = &plan["pruning_plan"]["plan_id"];
    let snapshot = ask(&c, "context_create_task_snapshot", json!({ "project_id": "p", "task_id": "t" })).await;
    let snapshot = &snapshot["snapshot_id"];
    for (project, plan) in [("p", &json!("none")), ("other", plan)] {
        let request = json!({ "project_id": project, "plan_id": plan, "action": "stash" });
        let error = refused(&c, "context_gc_prune", request, "PLAN_NOT_FOUND").await;
        assert_eq!(&error["details"]["plan_id"], plan);
    }
    for (project, snapshot) in [("p", &json!("none")), ("other", snapshot)] {
        let request = json!({ "project_id": project, "snapshot_id": snapshot });
        let error = refused(&c, "context_restore_task_snapshot", request, "SNAPSHOT_NOT_FOUND").await;
        assert_eq!(&error["details"]["snapshot_id"], snapshot);
    }
    for operation in ["999", "none", "0"] {
        refused(&c, "context_undo", json!({ "operation_id": operation }), "OPERATION_NOT_FOUND").await;
    }
    refused(&c, "context_undo", json!({ "project_id": "empty" }), "OPERATION_NOT_FOUND").await;
    refused(&c, "context_expand", json!({ "handle": "ws:segment:none" }), "HANDLE_NOT_FOUND").await;
}

#[tokio::test]
async fn an_undo_of_what_was_changed_since_is_a_conflict_that_names_what_changed_it() {
    let c = Client::new();
    let put = ask(&c, "context_put", json!({ "project_id": "p", "text": "a" })).await;
    let ids = json!(put["segment_ids"]);
    let pinned = ask(&c, "context_gc_pin", json!({ "project_id": "p", "segment_ids": ids })).await;
    let undo = async |operation: &Value| json!({ "project_id": "p", "operation_id": operation });
    let error = refused(&c, "context_undo", undo(&put["operation_id"]).await, "CONFLICT").await;
    assert_eq!(error["details"]["operations_between"], json!([pinned["operation_id"]]));
    ask(&c, "context_undo", undo(&pinned["operation_id"]).await).await;
    refused(&c, "context_undo", undo(&pinned["operation_id"]).await, "CONFLICT").await;
    let undone = ask(&c, "context_undo", json!({ "project_id": "p" })).await;
    assert_eq!(undone["undone"]["operation_id"], put["operation_id"]);
    refused(&c, "context_undo", json!({ "project_id": "p" }), "OPERATION_NOT_FOUND").await;
}

#[tokio::test]
async fn an_operation_is_named_by_its_number_with_quotes_or_without() {
    let c = Client::new();
    let put = ask(&c, "context_put", json!({ "project_id": "p", "text": "a" })).await;
    let number: u64 = put["operation_id"].as_str().unwrap().parse().unwrap();
    let undone = ask(&c, "context_undo", json!({ "project_id": "p", "operation_id": number })).await;
    assert_eq!(undone["undone"]["operation_id"], put["operation_id"]);
    refused(&c, "context_undo", json!({ "project_id": "p", "operation_id": true }), "INVALID_PARAMETER").await;
    refused(&c, "context_undo", json!({ "project_id": "p", "operation_id": 1.5 }), "OPERATION_NOT_FOUND").await;
}
