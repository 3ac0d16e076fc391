//! Marks: an agent's word that a key is never shortened.

use std::fs;

use serde_json::{Value, json};
use waystone_core::api::{ListCheckpoints, MarkCritical, MarkStatus, MarkedCritical};
use waystone_core::store::Scope;
use waystone_core::{Error, Result};
use waystone_testkit::Harness;

fn request(request: Value) -> MarkCritical {
    serde_json::from_value(request).unwrap()
}

async fn mark(h: &Harness, session: &str, key: &str) -> Result<MarkedCritical> {
    h.engine.mark_critical(&h.scope, request(json!({ "sessionId": session, "contextKey": key }))).await
}

async fn unmark(h: &Harness, session: &str, key: &str) -> Result<MarkedCritical> {
    h.engine.unmark_critical(&h.scope, request(json!({ "sessionId": session, "contextKey": key }))).await
}

/// The marks, as the session, a list and a load say them.
async fn marks(h: &Harness, session: &str) -> Vec<String> {
    let found = h.engine.find_session(&h.scope, &session.parse().unwrap()).await.unwrap().critical_keys;
    let filter: ListCheckpoints = serde_json::from_value(json!({ "sessionId": session })).unwrap();
    let page = h.engine.list_checkpoints(&h.scope, filter).await.unwrap();
    let loaded = h.try_load(json!({ "sessionId": session })).await.unwrap();
    let said = |metadata: Value| -> Vec<String> {
        metadata.get("criticalKeys").map_or_else(Vec::new, |keys| serde_json::from_value(keys.clone()).unwrap())
    };
    assert_eq!(said(json!(loaded.checkpoint.metadata)), found);
    for checkpoint in page.checkpoints {
        assert_eq!(said(json!(checkpoint.metadata)), found);
    }
    found
}

#[tokio::test]
async fn a_key_that_is_there_is_marked_once_and_unmarked() {
    let mut h = Harness::new();
    h.save("s", json!({ "a": 1, "b/c ~": 2, "⋯": 3 })).await;
    assert_eq!(marks(&h, "s").await, Vec::<String>::new());
    for key in ["b/c ~", "a", "⋯"] {
        let marked = mark(&h, "s", key).await.unwrap();
        assert_eq!((marked.status, marked.session_id.as_str()), (MarkStatus::Success, "s"));
        assert!(marked.message.contains(key), "{}", marked.message);
    }
    let operations = h.engine.status(&h.scope).await.unwrap().operation_count;
    assert_eq!(mark(&h, "s", "a").await.unwrap().status, MarkStatus::Success, "it is as asked for");
    assert_eq!(h.engine.status(&h.scope).await.unwrap().operation_count, operations, "nothing happened");
    assert_eq!(marks(&h, "s").await, ["b/c ~", "a", "⋯"]);
    assert_eq!(unmark(&h, "s", "a").await.unwrap().status, MarkStatus::Success);
    assert_eq!(unmark(&h, "s", "a").await.unwrap().status, MarkStatus::KeyNotFound);
    h.restart().await;
    h.save("s", json!({ "new": 1 })).await;
    assert_eq!(marks(&h, "s").await, ["b/c ~", "⋯"], "for the session's later checkpoints too");
    h.check_invariants().await;
}

#[tokio::test]
async fn a_key_that_is_not_in_the_newest_checkpoint_changes_nothing() {
    let h = Harness::new();
    h.save("s", json!({ "old": 1 })).await;
    h.save("s", json!({ "a": { "b": 1 } })).await;
    let operations = h.engine.status(&h.scope).await.unwrap().operation_count;
    for key in ["old", "b", "A", "a "] {
        let marked = mark(&h, "s", key).await.unwrap();
        assert_eq!(marked.status, MarkStatus::KeyNotFound, "{key}");
        assert!(marked.message.contains(&format!("`{key}`")) && marked.message.contains("`s`"), "{}", marked.message);
    }
    assert_eq!(marks(&h, "s").await, Vec::<String>::new());
    assert_eq!(h.engine.status(&h.scope).await.unwrap().operation_count, operations);
    assert_eq!(mark(&h, "none", "a").await.unwrap_err(), Error::SessionNotFound("none".parse().unwrap()));
    let long = "k".repeat(1025);
    assert!(matches!(mark(&h, "s", &long).await, Err(Error::InvalidInput(why)) if why.contains("contextKey")));
}

#[tokio::test]
async fn without_a_session_it_is_the_one_that_the_same_actor_saved_last() {
    let h = Harness::new();
    let other = Scope::local("another");
    let save = async |scope: &Scope, session: &str, n: u64, project: &str| {
        let save = json!({ "sessionId": session, "context": { "a": n }, "projectId": project });
        h.engine.save_checkpoint(scope, serde_json::from_value(save).unwrap()).await.unwrap();
    };
    let mark = async |scope: &Scope| h.engine.mark_critical(scope, request(json!({ "contextKey": "a" }))).await;
    assert!(matches!(mark(&h.scope).await, Err(Error::InvalidInput(why)) if why.contains("sessionId is missing")));
    save(&h.scope, "mine", 1, "project").await;
    save(&h.scope, "elsewhere", 1, "other-project").await;
    assert!(mark(&other).await.is_err(), "what another saved is not taken");
    save(&other, "theirs", 1, "project").await;
    assert_eq!(mark(&h.scope).await.unwrap().session_id.as_str(), "mine");
    assert_eq!(mark(&other).await.unwrap().session_id.as_str(), "theirs");
    save(&h.scope, "newer", 1, "project").await;
    save(&h.scope, "mine", 2, "project").await;
    assert_eq!(mark(&h.scope).await.unwrap().session_id.as_str(), "mine");
    h.engine.delete_session(&h.scope, &"mine".parse().unwrap(), Default::default()).await.unwrap();
    assert_eq!(mark(&h.scope).await.unwrap().session_id.as_str(), "newer", "what is deleted is not marked");
    assert_eq!(marks(&h, "newer").await, ["a"]);
    assert_eq!(marks(&h, "elsewhere").await, Vec::<String>::new());
}

#[tokio::test]
async fn a_session_takes_no_more_marks_than_its_bound() {
    let h = Harness::new();
    let keys: Vec<String> = (0..=MarkCritical::MARKS_MAX).map(|n| format!("k{n}")).collect();
    h.save("s", keys.iter().map(|key| (key.clone(), json!(1))).collect::<serde_json::Map<_, _>>().into()).await;
    // One commit each would take its time on a slow disk; at once they share some.
    let marks_of = keys[..MarkCritical::MARKS_MAX].iter().map(|key| {
        let (engine, scope) = (h.engine.clone(), h.scope.clone());
        let request = request(json!({ "sessionId": "s", "contextKey": key }));
        tokio::spawn(async move { engine.mark_critical(&scope, request).await })
    });
    for marked in marks_of.collect::<Vec<_>>() {
        assert_eq!(marked.await.unwrap().unwrap().status, MarkStatus::Success);
    }
    let refused = mark(&h, "s", &keys[MarkCritical::MARKS_MAX]).await;
    assert!(matches!(refused, Err(Error::InvalidInput(why)) if why.contains("256 marks")));
    assert_eq!(mark(&h, "s", "k0").await.unwrap().status, MarkStatus::Success, "one that is marked is no more");
    assert_eq!(marks(&h, "s").await.len(), MarkCritical::MARKS_MAX);
}

#[tokio::test]
async fn marks_and_rules_come_back_from_mirror_files() {
    let mut h = Harness::new();
    let rules = json!([{ "pattern": "^x", "class": "USEFUL", "reason": "why not" }]);
    let save = json!({ "sessionId": "s", "context": { "a": 1, "b": 2, "x": 3 }, "contextRules": rules });
    h.try_save(save).await.unwrap();
    for key in ["a", "b"] {
        mark(&h, "s", key).await.unwrap();
    }
    unmark(&h, "s", "a").await.unwrap();
    h.close_mirrored().await;
    fs::remove_file(h.data_dir().join("waystone.db")).unwrap();
    h.repair();
    h.restart().await;
    assert_eq!(marks(&h, "s").await, ["b"]);
    let session = h.engine.find_session(&h.scope, &"s".parse().unwrap()).await.unwrap();
    assert_eq!(json!(session.context_rules), rules);
    let class = h.engine.find_class(&h.scope, "s".parse().unwrap(), "x".to_owned()).await.unwrap();
    assert_eq!((class.critical, json!(class.class), class.rule.as_str()), (false, json!("USEFUL"), "why not"));
    h.check_invariants().await;
}

#[tokio::test]
async fn the_class_of_a_key_comes_with_the_rule_that_gave_it() {
    let h = Harness::new();
    h.save("s", json!({ "userGoal": "x", "debugLog": "x" })).await;
    mark(&h, "s", "debugLog").await.unwrap();
    let class = async |key: &str| h.engine.find_class(&h.scope, "s".parse().unwrap(), key.to_owned()).await;
    let (goal, log) = (class("userGoal").await.unwrap(), class("debugLog").await.unwrap());
    assert_eq!((goal.critical, json!(goal.class), goal.rule.as_str()), (false, json!("CRITICAL"), "key: user goal"));
    assert_eq!((log.critical, json!(log.class), log.rule.as_str()), (true, json!("CRITICAL"), "marked critical"));
    assert_eq!(class("none").await.unwrap_err().code(), "NOT_FOUND");
}
