//! Checkpoints through the engine: saved, skipped, retried, at once, within limits, and loaded as they were.

use serde_json::{Value, json};
use waystone_core::api::{ListCheckpoints, SaveStatus, SavedCheckpoint};
use waystone_core::error::Quota;
use waystone_core::{Error, Limits};
use waystone_testkit::harness::{context_of, request_of};
use waystone_testkit::{Harness, audit};

fn deep(levels: usize) -> Value {
    (1..levels).fold(json!({}), |inner, _| json!({ "k": inner }))
}

#[tokio::test]
async fn what_is_saved_is_loaded_equal() {
    let mut h = Harness::new();
    let contexts = [
        json!({}),
        json!({ "n": [1.0, -0.0, 0.1, 1e-300, 1.7976931348623157e308, 5e-324] }),
        json!({ "n": [(1u64 << 53) + 1, 1u64 << 60, (1u64 << 60) + 1, u64::MAX, i64::MIN] }),
        json!({ "z": 1, "a": { "y": 2, "b": 3 }, "m": [] }),
        json!({ "text": "first\nsecond\r\n\ttab \u{0} \u{7f} \u{1f600}", "ключ": "värde", "鍵": null, "": true }),
        deep(128),
    ];
    let mut saved = Vec::new();
    for context in &contexts {
        saved.push(h.save("s", context.clone()).await.checkpoint_id);
    }
    h.restart().await;
    for (id, context) in saved.iter().zip(&contexts) {
        let loaded = h.load(id).await;
        // Compared as text: equal values with equal numbers, -0.0 and 1.0 included, and keys in the same order.
        assert_eq!(loaded.context.get(), context.to_string());
        assert_eq!(context_of(&loaded), *context);
    }
    h.check_invariants().await;
}

#[tokio::test]
async fn a_number_that_changed_by_one_is_a_change_and_another_order_of_keys_is_not() {
    let h = Harness::new();
    let status = async |context: &str| h.save("s", serde_json::from_str(context).unwrap()).await.status;
    assert_eq!(status(r#"{"a":1152921504606846976,"b":1}"#).await, SaveStatus::Saved);
    assert_eq!(status(r#"{"b":1,"a":1152921504606846976}"#).await, SaveStatus::SkippedUnchanged);
    assert_eq!(status(r#"{"a":1152921504606846977,"b":1}"#).await, SaveStatus::Saved);
    assert_eq!(status(r#"{"a":1152921504606846976,"b":1}"#).await, SaveStatus::Saved);
    assert_eq!(status(r#"{"a":1152921504606846976,"b":1.0}"#).await, SaveStatus::SkippedUnchanged);
}

#[tokio::test]
async fn an_unchanged_context_is_skipped_unless_forced() {
    let h = Harness::new();
    let first = h.save("s", json!({ "n": 1 })).await;
    let again = h.save("s", json!({ "n": 1 })).await;
    assert_eq!((again.status, &again.checkpoint_id), (SaveStatus::SkippedUnchanged, &first.checkpoint_id));
    let named = json!({ "sessionId": "s", "context": { "n": 1 }, "metadata": { "name": "x" } });
    let named = h.try_save(named).await.unwrap();
    assert!(named.warnings[0].starts_with("metadata was not kept"), "{:?}", named.warnings);
    let forced = h.try_save(json!({ "sessionId": "s", "context": { "n": 1 }, "force": true })).await.unwrap();
    assert_eq!((forced.status, forced.parent_checkpoint_id), (SaveStatus::Saved, Some(first.checkpoint_id)));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_same_context_saved_at_once_by_many_is_one_checkpoint() {
    let h = Harness::new();
    let saved = save_at_once(&h, &vec![json!({ "sessionId": "s", "context": { "n": 1 } }); 50]).await;
    let new = saved.iter().filter(|saved| saved.as_ref().unwrap().status == SaveStatus::Saved).count();
    assert_eq!((new, h.list(json!({ "limit": 100 })).await.len()), (1, 1));
}

/// Saves all at once, every other one through an engine of its own, as another process would.
async fn save_at_once(h: &Harness, requests: &[Value]) -> Vec<Result<SavedCheckpoint, Error>> {
    let engines = [h.engine.clone(), h.second()];
    let saves = requests.iter().enumerate().map(|(at, request)| {
        let (engine, scope, request) = (engines[at % 2].clone(), h.scope.clone(), request_of(request.clone()));
        tokio::spawn(async move { engine.save_checkpoint(&scope, request).await })
    });
    let mut saved = Vec::new();
    for save in saves.collect::<Vec<_>>() {
        saved.push(save.await.unwrap());
    }
    engines[1].close().await;
    saved
}

#[tokio::test(flavor = "multi_thread")]
async fn of_two_saves_at_once_on_the_same_head_exactly_one_wins() {
    let h = Harness::new();
    let mut head = h.save("s", json!({ "n": 0 })).await.checkpoint_id;
    for round in 1..=10 {
        let save = |n: u64| json!({ "sessionId": "s", "context": { "n": n }, "expectedCheckpointId": head });
        let saved = save_at_once(&h, &[save(round), save(100 + round)]).await;
        let won: Vec<_> = saved.iter().filter_map(|saved| saved.as_ref().ok()).collect();
        let lost: Vec<_> = saved.iter().filter_map(|saved| saved.as_ref().err()).map(Error::code).collect();
        assert_eq!((won.len(), lost), (1, vec!["CONFLICT"]), "{saved:?}");
        head = won[0].checkpoint_id.clone();
        let newest = h.try_load(json!({ "sessionId": "s" })).await.unwrap().checkpoint.checkpoint_id;
        assert_eq!(newest, head);
    }
    assert_eq!(h.list(json!({ "limit": 100 })).await.len(), 11);
    h.check_invariants().await;
}

/// Without a session each would make one of its own.
#[tokio::test(flavor = "multi_thread")]
async fn retries_at_once_under_one_key_all_get_the_same_answer() {
    let h = Harness::new();
    let request = json!({ "context": { "n": 1 }, "idempotencyKey": "k" });
    let saved = save_at_once(&h, &vec![request; 20]).await;
    let first = saved[0].as_ref().unwrap();
    assert!(saved.iter().all(|saved| saved.as_ref() == Ok(first)), "{saved:?}");
    assert_eq!(h.list(json!({ "limit": 100 })).await, [first.checkpoint_id.to_string()]);
    assert_eq!(h.engine.status(&h.scope).await.unwrap().session_count, 1);
    h.check_invariants().await;
}

#[tokio::test]
async fn a_save_without_a_session_makes_one_that_is_never_shared() {
    let h = Harness::new();
    let first = h.try_save(json!({ "context": { "n": 1 }, "workflowId": "w" })).await.unwrap();
    let other = h.try_save(json!({ "context": { "n": 1 }, "workflowId": "w" })).await.unwrap();
    assert_ne!(first.session_id, other.session_id);
    assert_eq!(other.status, SaveStatus::Saved);
}

#[tokio::test]
async fn a_save_on_a_head_that_moved_is_a_conflict() {
    let h = Harness::new();
    let first = h.save("s", json!({ "n": 1 })).await.checkpoint_id;
    let save = async |n: u64, expected: &str| {
        h.try_save(json!({ "sessionId": "s", "context": { "n": n }, "expectedCheckpointId": expected })).await
    };
    let second = save(2, first.as_str()).await.unwrap().checkpoint_id;
    let error = save(3, first.as_str()).await.unwrap_err();
    let expected = json!({ "actualCheckpointId": second, "expectedCheckpointId": first });
    assert_eq!((error.code(), error.reply().error.details), ("CONFLICT", expected));
    let on_nothing = json!({ "sessionId": "new", "context": {}, "expectedCheckpointId": first });
    assert_eq!(h.try_save(on_nothing).await.unwrap_err().code(), "CONFLICT");
    assert_eq!(h.list(json!({ "limit": 10 })).await.len(), 2);
}

#[tokio::test]
async fn a_retry_with_the_same_key_gives_the_first_answer() {
    let h = Harness::new();
    let request = json!({ "context": { "n": 1 }, "idempotencyKey": "k", "metadata": { "name": "x" } });
    let first = h.try_save(request.clone()).await.unwrap();
    h.save(first.session_id.as_str(), json!({ "n": 2 })).await;
    assert_eq!(h.try_save(request.clone()).await.unwrap(), first);

    let mut other = request.clone();
    other["context"]["n"] = json!(3);
    assert_eq!(h.try_save(other).await.unwrap_err().code(), "CONFLICT");

    h.clock.advance_ms(24 * 60 * 60 * 1000 + 1);
    assert_ne!(h.try_save(request).await.unwrap().session_id, first.session_id);
    h.check_invariants().await;
}

#[tokio::test]
async fn two_agents_may_use_the_same_key() {
    let h = Harness::new();
    let save = async |agent: &str| {
        h.try_save(json!({ "context": { "n": 1 }, "idempotencyKey": "step-1", "agentId": agent }))
            .await
            .unwrap()
            .session_id
    };
    assert_ne!(save("a").await, save("b").await);
    let in_session = async |session: &str| {
        let request = json!({ "sessionId": session, "context": { "s": session }, "idempotencyKey": "step-1" });
        h.try_save(request).await.unwrap().session_id.to_string()
    };
    assert_eq!((in_session("x").await.as_str(), in_session("y").await.as_str()), ("x", "y"), "also in two sessions");
}

#[tokio::test]
async fn a_checkpoint_continues_the_newest_or_the_one_that_is_named() {
    let h = Harness::new();
    let first = h.save("s", json!({ "n": 1 })).await;
    let second = h.save("s", json!({ "n": 2 })).await;
    let branch = json!({ "sessionId": "s", "context": { "n": 3 }, "parentCheckpointId": first.checkpoint_id });
    let branch = h.try_save(branch).await.unwrap();
    assert_eq!(first.parent_checkpoint_id, None);
    assert_eq!(second.parent_checkpoint_id, Some(first.checkpoint_id.clone()));
    assert_eq!(branch.parent_checkpoint_id, Some(first.checkpoint_id.clone()));

    let foreign = json!({ "sessionId": "other", "context": {}, "parentCheckpointId": first.checkpoint_id });
    assert_eq!(h.try_save(foreign).await.unwrap_err(), Error::CheckpointNotFound(first.checkpoint_id));
    assert_eq!(h.try_load(json!({ "sessionId": "other" })).await.unwrap_err().code(), "SESSION_NOT_FOUND");
}

#[tokio::test]
async fn a_session_stays_in_its_project() {
    let h = Harness::new();
    h.save("s", json!({ "n": 1 })).await;
    let save = async |project: &str| {
        h.try_save(json!({ "sessionId": "s", "context": { "n": 2 }, "projectId": project })).await
    };
    assert_eq!(save("elsewhere").await.unwrap_err().code(), "CONFLICT");
    save("project").await.unwrap();
}

#[tokio::test]
async fn metadata_comes_back_as_it_was_given() {
    let h = Harness::new();
    let metadata = json!({ "tags": ["b", "a"], "step": 3, "name": "x", "more": { "deep": [1.0] } });
    let request = json!({ "sessionId": "s", "context": {}, "metadata": metadata, "agentId": "me", "workflowId": "w" });
    let saved = h.try_save(request).await.unwrap();
    let loaded = serde_json::to_value(h.load(&saved.checkpoint_id).await).unwrap();
    assert_eq!(loaded["metadata"].to_string(), metadata.to_string());
    assert_eq!((&loaded["agentId"], &loaded["workflowId"]), (&json!("me"), &json!("w")));
}

#[tokio::test]
async fn a_load_takes_exactly_one_id() {
    let h = Harness::new();
    for request in [json!({}), json!({ "checkpointId": "a", "sessionId": "b" })] {
        assert_eq!(h.try_load(request).await.unwrap_err().code(), "INVALID_INPUT");
    }
    assert_eq!(h.try_load(json!({ "checkpointId": "a" })).await.unwrap_err().code(), "CHECKPOINT_NOT_FOUND");
}

#[tokio::test]
async fn lists_are_filtered_counted_and_paged() {
    let h = Harness::new();
    for n in 0..10u64 {
        h.clock.advance_ms(1000);
        let tags = if n % 2 == 0 { json!(["even", "any"]) } else { json!(["any"]) };
        let request = json!({
            "sessionId": format!("s{}", n % 3), "context": { "n": n }, "agentId": format!("agent-{}", n % 2),
            "workflowId": "w", "metadata": { "name": format!("Step {n} of Größe"), "tags": tags, "note": { "k": "deep word" } }
        });
        h.try_save(request).await.unwrap();
    }
    let count = async |filter: Value| {
        let mut request = filter.clone();
        request["limit"] = json!(2);
        let request: ListCheckpoints = serde_json::from_value(request).unwrap();
        let page = h.engine.list_checkpoints(&h.scope, request).await.unwrap();
        assert_eq!(page.has_more, page.total > 2, "{filter}");
        page.total
    };
    assert_eq!(count(json!({})).await, 10);
    assert_eq!(count(json!({ "sessionId": "s0" })).await, 4);
    assert_eq!(count(json!({ "tags": ["even", "any"] })).await, 5);
    assert_eq!(count(json!({ "tags": ["even"], "sessionId": "s0" })).await, 2);
    assert_eq!(count(json!({ "agentId": "agent-1" })).await, 5);
    assert_eq!(count(json!({ "workflowId": "other" })).await, 0);
    assert_eq!(count(json!({ "projectId": "project" })).await, 10);
    assert_eq!(count(json!({ "query": "step 3" })).await, 1);
    assert_eq!(count(json!({ "query": "GRÖSSE größe word" })).await, 0);
    assert_eq!(count(json!({ "query": "größe WORD" })).await, 10);
    assert_eq!(count(json!({ "query": "' OR 1=1 --" })).await, 0);
    assert_eq!(count(json!({ "since": "2026-01-01T00:00:04Z", "until": "2026-01-01T00:00:06Z" })).await, 2);

    let all = h.list(json!({ "limit": 100 })).await;
    assert_eq!(h.list(json!({ "limit": 3, "offset": 4 })).await, all[4..7]);
    let mut paged = Vec::new();
    let mut cursor = None;
    loop {
        let request = ListCheckpoints { limit: 3, cursor, ..Default::default() };
        let page = h.engine.list_checkpoints(&h.scope, request).await.unwrap();
        paged.extend(page.checkpoints.iter().map(|checkpoint| checkpoint.checkpoint_id.to_string()));
        h.save("new", json!({ "more": paged.len() })).await;
        match page.next_cursor {
            Some(next) => cursor = Some(next),
            None => break,
        }
    }
    assert_eq!(paged, all);
}

#[tokio::test]
async fn a_list_refuses_bad_bounds_and_cursors() {
    let h = Harness::new();
    for request in [json!({ "limit": 0 }), json!({ "limit": 1001 }), json!({ "cursor": "x'--" })] {
        let request: ListCheckpoints = serde_json::from_value(request).unwrap();
        assert_eq!(h.engine.list_checkpoints(&h.scope, request).await.unwrap_err().code(), "INVALID_INPUT");
    }
    let request: ListCheckpoints = serde_json::from_value(json!({ "sessionId": "nope" })).unwrap();
    assert_eq!(h.engine.list_checkpoints(&h.scope, request).await.unwrap_err().code(), "SESSION_NOT_FOUND");
}

#[tokio::test]
async fn what_was_deleted_or_pruned_is_listed_on_request_until_it_is_restored() {
    let h = Harness::with_limits(Limits { checkpoints_max: 3, ..Limits::default() });
    let named = json!({ "sessionId": "s", "context": { "n": 0 }, "metadata": { "name": "first plan", "tags": ["t"] } });
    let deleted = h.try_save(named).await.unwrap().checkpoint_id;
    let pruned = h.save("s", json!({ "n": 1 })).await.checkpoint_id;
    for n in 2..4 {
        h.save("s", json!({ "n": n })).await;
    }
    h.save("other", json!({})).await;
    h.engine.delete_checkpoint(&h.scope, &deleted, Default::default()).await.unwrap();
    let (deleted, pruned) = (deleted.to_string(), pruned.to_string());
    for within in [json!({}), json!({ "sessionId": "s" })] {
        let list = async |more: Value| {
            let mut request = within.clone();
            request["archived"] = json!(true);
            request.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            let page = h.engine.list_checkpoints(&h.scope, serde_json::from_value(request).unwrap()).await.unwrap();
            let ids: Vec<String> = page.checkpoints.iter().map(|found| found.checkpoint_id.to_string()).collect();
            assert!(page.checkpoints.iter().all(|found| found.archived));
            (ids, page.total)
        };
        assert_eq!(list(json!({})).await, (vec![pruned.clone(), deleted.clone()], 2));
        assert_eq!(list(json!({ "limit": 1, "offset": 1 })).await, (vec![deleted.clone()], 2));
        assert_eq!(list(json!({ "query": "plan" })).await, (vec![deleted.clone()], 1));
        assert_eq!(list(json!({ "tags": ["t"] })).await, (vec![deleted.clone()], 1));
    }
    h.engine.restore_checkpoint(&h.scope, &deleted.parse().unwrap()).await.unwrap();
    assert_eq!(h.list(json!({ "archived": true })).await, [pruned]);
    assert!(h.list(json!({})).await.contains(&deleted));
    assert_eq!(h.list(json!({ "archived": true, "content": true, "query": "x" })).await, Vec::<String>::new());
}

#[tokio::test]
async fn the_oldest_is_archived_when_a_session_is_full_and_what_has_a_name_tag_or_branch_is_spared() {
    let h = Harness::with_limits(Limits { checkpoints_max: 4, ..Limits::default() });
    let save = async |n: u64, more: Value| {
        let mut request = json!({ "sessionId": "s", "context": { "n": n } });
        request.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        h.try_save(request).await
    };
    let named = save(0, json!({ "metadata": { "name": "keep" } })).await.unwrap().checkpoint_id;
    let fork = save(1, json!({})).await.unwrap().checkpoint_id;
    let plain = save(2, json!({})).await.unwrap().checkpoint_id;
    let branch =
        save(3, json!({ "parentCheckpointId": fork, "metadata": { "tags": ["t"] } })).await.unwrap().checkpoint_id;
    let newest = save(4, json!({ "metadata": { "tags": ["t"] } })).await.unwrap().checkpoint_id;
    let ids = [&newest, &branch, &fork, &named].map(ToString::to_string);
    assert_eq!(h.list(json!({ "sessionId": "s", "limit": 10 })).await, ids);
    assert!(h.load(&plain).await.checkpoint.archived);

    let error = save(5, json!({})).await.unwrap_err();
    assert_eq!(error, Error::QuotaExceeded(Quota::Checkpoints { count: 4, max: 4 }));
    assert_eq!(h.list(json!({ "sessionId": "s", "limit": 10 })).await, ids);
    h.check_invariants().await;
}

#[tokio::test]
async fn who_names_every_checkpoint_is_warned_before_no_more_can_be_saved() {
    let h = Harness::with_limits(Limits { checkpoints_max: 5, ..Limits::default() });
    let save = async |n: u64| {
        let name = json!({ "name": format!("n{n}") });
        h.try_save(json!({ "sessionId": "s", "context": { "n": n }, "metadata": name })).await
    };
    h.save("s", json!({})).await;
    for n in 1..4 {
        assert_eq!(save(n).await.unwrap().warnings, Vec::<String>::new(), "{n}");
    }
    let warnings = save(4).await.unwrap().warnings;
    assert!(warnings[0].contains("80 % of what WAYSTONE_MAX_CHECKPOINTS allows (4 of 5)"), "{warnings:?}");
    let warnings = save(5).await.unwrap().warnings;
    assert!(warnings[1].contains("100 % of what WAYSTONE_MAX_CHECKPOINTS allows (5 of 5)"), "{warnings:?}");
    assert_eq!(save(6).await.unwrap_err(), Error::QuotaExceeded(Quota::Checkpoints { count: 5, max: 5 }));
}

#[tokio::test]
async fn a_session_of_one_checkpoint_can_be_saved_to() {
    let h = Harness::with_limits(Limits { checkpoints_max: 1, ..Limits::default() });
    let first = h.save("s", json!({ "n": 1 })).await.checkpoint_id;
    let second = h.save("s", json!({ "n": 2 })).await;
    assert_eq!(h.list(json!({ "sessionId": "s" })).await, [second.checkpoint_id.to_string()]);
    assert!(second.warnings[0].starts_with("1 older checkpoint was archived"), "{:?}", second.warnings);
    assert_eq!(second.parent_checkpoint_id, Some(first));
    h.check_invariants().await;
}

#[tokio::test]
async fn what_is_too_large_is_refused_with_its_limit() {
    let limits = Limits {
        context_bytes_max: 2000,
        checkpoint_bytes_max: 700,
        session_bytes_max: 1000,
        total_bytes_max: 1500,
        ..Limits::default()
    };
    let h = Harness::with_limits(limits);
    let mut random = waystone_testkit::contexts::Random::new(7);
    let mut save = async |session: &str, length: usize| {
        let request = json!({ "sessionId": session, "context": { "t": random.text(length) } });
        match h.try_save(request).await {
            Ok(_) => "saved".to_owned(),
            Err(Error::PayloadTooLarge { .. }) => "context".to_owned(),
            Err(error) => error.reply().error.details["setting"].as_str().unwrap_or_default().to_owned(),
        }
    };
    assert_eq!(save("a", 2001).await, "context");
    assert_eq!(save("a", 1500).await, "WAYSTONE_MAX_CHECKPOINT_BYTES");
    assert_eq!(save("a", 700).await, "saved");
    assert_eq!(save("a", 700).await, "WAYSTONE_MAX_SESSION_BYTES");
    assert_eq!(save("b", 700).await, "saved");
    assert_eq!(save("c", 700).await, "WAYSTONE_MAX_TOTAL_BYTES");
    h.check_invariants().await;
}

#[tokio::test]
async fn nesting_beyond_the_bound_is_refused() {
    let h = Harness::new();
    let error = h.try_save(json!({ "context": deep(129) })).await.unwrap_err();
    assert_eq!(error, Error::InvalidInput("context is nested deeper than 128 levels".to_owned()));
}

/// Overwrites the stored bytes of a checkpoint, and takes the second copy away. Meanwhile no one writes that again.
fn damage(h: &Harness, id: &str) {
    let turn = std::fs::File::create(h.data_dir().join("mirror.lock")).unwrap();
    turn.lock().unwrap();
    match std::fs::remove_dir_all(h.data_dir().join("contexts")) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
        removed => removed.unwrap(),
    }
    let db = audit::open(h.data_dir());
    let changed = db
        .execute(
            "UPDATE checkpoint_bytes SET bytes = zeroblob(length(bytes))
             WHERE checkpoint = (SELECT key FROM checkpoint WHERE id = ?1)",
            [id],
        )
        .unwrap();
    assert_eq!(changed, 1);
}

#[tokio::test]
async fn a_damaged_checkpoint_is_named_and_the_newest_good_one_is_offered() {
    let mut h = Harness::new();
    let mut ids = Vec::new();
    for n in 0..4 {
        ids.push(h.save("s", json!({ "n": n })).await.checkpoint_id);
    }
    h.restart().await;
    damage(&h, ids[3].as_str());
    damage(&h, ids[2].as_str());
    let error = h.try_load(json!({ "checkpointId": ids[3] })).await.unwrap_err();
    assert!(
        matches!(&error, Error::CheckpointCorrupt { id, nearest: Some(near), .. } if (id, near) == (&ids[3], &ids[1]))
    );

    let latest = h.try_load(json!({ "sessionId": "s" })).await.unwrap();
    assert_eq!((latest.degraded, &latest.skipped), (true, &vec![ids[3].clone(), ids[2].clone()]));
    assert_eq!((latest.checkpoint.checkpoint_id.clone(), context_of(&latest)), (ids[1].clone(), json!({ "n": 1 })));

    // What is saved after a damaged one does not build on it; the rest of a group is a chain, and ends with the group.
    for n in 4..34 {
        ids.push(h.save("s", json!({ "n": n })).await.checkpoint_id);
    }
    damage(&h, ids[0].as_str());
    let error = h.try_load(json!({ "checkpointId": ids[0] })).await.unwrap_err();
    assert!(matches!(&error, Error::CheckpointCorrupt { nearest: Some(near), .. } if *near == ids[4]), "a newer one");
    damage(&h, ids[4].as_str());
    let error = h.try_load(json!({ "checkpointId": ids[5] })).await.unwrap_err();
    assert!(matches!(&error, Error::CheckpointCorrupt { nearest: Some(near), .. } if *near == ids[32]), "{error:?}");
    damage(&h, ids[32].as_str());
    h.restart().await;
    let error = h.try_load(json!({ "sessionId": "s" })).await.unwrap_err();
    assert!(matches!(&error, Error::CheckpointCorrupt { nearest: None, .. }), "{error:?}");
}

#[tokio::test]
async fn a_save_equal_to_a_damaged_head_is_saved_anew() {
    let mut h = Harness::new();
    let first = h.save("s", json!({ "n": 1 })).await;
    h.restart().await;
    damage(&h, first.checkpoint_id.as_str());
    let request = json!({ "sessionId": "s", "context": { "n": 1 }, "idempotencyKey": "k" });
    let again = h.try_save(request.clone()).await.unwrap();
    assert_eq!(again.status, SaveStatus::Saved);
    assert_eq!(h.try_save(request).await.unwrap(), again);
    assert_eq!(context_of(&h.try_load(json!({ "sessionId": "s" })).await.unwrap()), json!({ "n": 1 }));
}
