//! Which session is offered to who has no id, why, and with which preview.

use std::sync::Arc;

use serde_json::{Value, json};
use waystone_core::Error;
use waystone_core::api::{Git, Resumed};
use waystone_testkit::{Harness, audit};

const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";

async fn resume(h: &Harness, request: Value) -> Resumed {
    h.engine.resume_sessions(&h.scope, serde_json::from_value(request).unwrap()).await.unwrap()
}

/// The ids of the sessions that are named, best first, and whether the first is sure.
async fn named(h: &Harness, request: Value) -> (Vec<String>, bool) {
    let found = resume(h, request).await;
    (found.sessions.iter().map(|session| session.session_id.to_string()).collect(), found.confident)
}

fn ids(ids: &[&str]) -> Vec<String> {
    ids.iter().map(ToString::to_string).collect()
}

fn check_out(h: &mut Harness, branch: &str, head: Option<&str>) {
    let git = Git::new(Some(branch.to_owned()), head.map(str::to_owned));
    h.engine = h.engine.clone().with_git(Arc::new(move || git.clone()));
}

#[tokio::test]
async fn without_a_query_it_is_the_branch_and_then_the_last_use_that_counts() {
    let mut h = Harness::new();
    let empty = resume(&h, json!({})).await;
    assert_eq!((empty.sessions.len(), empty.hint, empty.next), (0, Some("nothing was saved yet"), None));

    check_out(&mut h, "feat/x", Some(COMMIT));
    h.save("x", json!({ "goal": "ship x" })).await;
    check_out(&mut h, "main", None);
    h.clock.advance_ms(60_000);
    h.save("y", json!({ "goal": "ship y" })).await;
    h.clock.advance_ms(60_000);
    h.save("z", json!({ "goal": "ship z" })).await;
    assert_eq!(named(&h, json!({})).await, (ids(&["z", "y", "x"]), false));
    assert_eq!(named(&h, json!({ "limit": 1 })).await, (ids(&["z"]), false));
    assert_eq!(resume(&h, json!({})).await.next, None, "what is not clear is not loaded on a guess");
    check_out(&mut h, "feat/x", None);
    assert_eq!(named(&h, json!({})).await, (ids(&["x", "z", "y"]), true));

    let found = resume(&h, json!({})).await;
    assert_eq!(found.sessions[0].why, ["same git branch `feat/x`", "last used 2 min ago"]);
    assert_eq!(found.sessions[0].git, Git::new(Some("feat/x".to_owned()), Some(COMMIT.to_owned())));
    let next = found.next.unwrap();
    assert_eq!((next.tool, json!(next.arguments)), ("workflow_checkpoint_load", json!({ "sessionId": "x" })));
}

#[tokio::test]
async fn a_session_is_found_by_its_words_its_name_its_tags_and_its_workflow() {
    let mut h = Harness::new();
    h.save("auth", json!({ "goal": "move the token refresh into the gateway" })).await;
    let tagged = json!({ "sessionId": "tagged", "context": { "n": 1 }, "metadata": { "tags": ["release-42"] } });
    h.try_save(tagged).await.unwrap();
    h.save("tagged", json!({ "n": 2 })).await;
    h.save("titled", json!({ "n": 3 })).await;
    let name = serde_json::from_value(json!({ "name": "Billing import" })).unwrap();
    h.engine.update_session(&h.scope, &"titled".parse().unwrap(), name).await.unwrap();
    let flow = json!({ "sessionId": "flow", "context": { "n": 4 }, "workflowId": "deploy" });
    h.try_save(flow).await.unwrap();
    let away = json!({ "sessionId": "away", "context": { "goal": "rotate certificates" }, "projectId": "other" });
    h.try_save(away).await.unwrap();
    h.save("last", json!({ "n": 5 })).await;
    h.restart_mirrored().await;

    let check = async |request: Value, first: &str, why: &str| {
        let found = resume(&h, request).await;
        let session = &found.sessions[0];
        assert_eq!((session.session_id.as_str(), session.why[0].as_str()), (first, why));
        assert!(found.confident, "{first}");
    };
    check(json!({ "query": "gateway token" }), "auth", "matches `gateway token`").await;
    check(json!({ "query": "release-42" }), "tagged", "named or tagged with `release-42`").await;
    check(json!({ "query": "billing" }), "titled", "named or tagged with `billing`").await;
    check(json!({ "workflowId": "deploy" }), "flow", "workflow `deploy`").await;
    check(json!({ "query": "rotate certificates" }), "away", "matches `rotate certificates`").await;
    let all = named(&h, json!({ "limit": 20 })).await.0;
    assert_eq!(all, ids(&["last", "flow", "titled", "tagged", "auth"]), "others are not named without a reason");
    let unknown = resume(&h, json!({ "query": "zzyzx" })).await;
    assert_eq!(
        (unknown.confident, unknown.hint),
        (false, Some("none is what was asked for; these were used here last"))
    );
}

#[tokio::test]
async fn ones_own_project_is_found_behind_any_number_of_better_matches_elsewhere() {
    let mut h = Harness::new();
    h.save(
        "own",
        json!({ "goal": "rotate the signing keys of the gateway, and much else that is said at some length" }),
    )
    .await;
    for n in 0..30 {
        let context = json!({ "goal": "rotate the signing keys", "n": n });
        let request = json!({ "sessionId": format!("away{n}"), "projectId": "other", "context": context });
        h.try_save(request).await.unwrap();
    }
    h.restart_mirrored().await;
    let found = resume(&h, json!({ "query": "rotate the signing keys" })).await;
    let own = found.sessions.iter().find(|one| one.session_id.as_str() == "own").expect("it matches as well");
    assert_eq!(own.why[0], "matches `rotate the signing keys`");
    assert!(!found.confident || found.sessions[0].session_id.as_str() == "own");
}

/// Housekeeping is a second or so behind, and nobody waits for it.
#[tokio::test]
async fn what_was_saved_a_moment_ago_is_found_by_its_words() {
    let mut h = Harness::new();
    h.save("fence", json!({ "goal": "paint the fence" })).await;
    h.restart_mirrored().await;
    h.save("roof", json!({ "goal": "mend the roof with slates" })).await;
    h.save("fence", json!({ "goal": "paint the fence turquoise" })).await;
    assert_eq!(named(&h, json!({ "query": "turquoise" })).await, (ids(&["fence", "roof"]), true));
    let found = resume(&h, json!({ "query": "slates" })).await;
    assert_eq!((found.sessions[0].session_id.as_str(), found.hint), ("roof", None));
    assert_eq!(found.sessions[0].why[0], "matches `slates`");
    assert_eq!(found.sessions[0].preview.text, "goal: mend the roof with slates");
}

#[tokio::test]
async fn a_preview_is_short_and_begins_with_what_matters() {
    let h = Harness::new();
    let mut context =
        json!({ "log": "x".repeat(5000), "notes": "some", "goal": format!("ship  it\n{}", "é".repeat(500)) });
    (0..50).for_each(|n| context[format!("key{n}{}", "k".repeat(100))] = json!(n));
    h.try_save(json!({ "sessionId": "s", "context": context, "metadata": { "name": "green" } })).await.unwrap();
    let preview = &resume(&h, json!({})).await.sessions[0].preview;
    assert_eq!(preview.checkpoint_name.as_deref(), Some("green"));
    assert_eq!((preview.keys.len(), preview.keys[0].as_str()), (12, "goal"));
    assert!(preview.keys.iter().all(|key| key.chars().count() <= 61));
    assert!(preview.text.starts_with("goal: ship it éé") && preview.text.chars().count() == 201, "{}", preview.text);
}

#[tokio::test]
async fn runs_that_began_alike_are_one_and_the_newest_counts() {
    let h = Harness::new();
    for run in ["run-1", "run-2", "run-3"] {
        h.save(run, json!({ "goal": "nightly check" })).await;
        h.save(run, json!({ "goal": "nightly check", "done": run })).await;
        h.clock.advance_ms(1000);
    }
    let found = resume(&h, json!({})).await;
    assert_eq!(found.sessions.len(), 1);
    assert_eq!(found.sessions[0].session_id.as_str(), "run-3");
    assert_eq!(json!(found.sessions[0].started_alike), json!(["run-2", "run-1"]));
    assert!(found.confident);
}

#[tokio::test]
async fn nothing_is_loaded_and_what_was_deleted_is_not_named() {
    let mut h = Harness::new();
    let kept = h.save("kept", json!({ "goal": "stay" })).await;
    h.save("gone", json!({ "goal": "go" })).await;
    h.engine.delete_session(&h.scope, &"gone".parse().unwrap(), Default::default()).await.unwrap();
    let emptied = h.save("emptied", json!({ "goal": "nothing is left" })).await;
    h.engine.delete_checkpoint(&h.scope, &emptied.checkpoint_id, Default::default()).await.unwrap();
    h.restart_mirrored().await;
    let state = |h: &Harness| -> (i64, i64, i64) {
        let sql = "SELECT (SELECT operation_seq FROM space), sum(accessed_seq), sum(last_accessed_at_ms) FROM session";
        audit::open(h.data_dir()).query_row(sql, [], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?))).unwrap()
    };
    let before = state(&h);
    h.clock.advance_ms(60_000);
    for request in [json!({}), json!({ "query": "go stay nothing" }), json!({ "workflowId": "none" })] {
        let found = resume(&h, request).await;
        assert_eq!(found.sessions.len(), 1);
        assert_eq!((&found.sessions[0].checkpoint_id, found.sessions[0].checkpoint_count), (&kept.checkpoint_id, 1));
    }
    h.restart_mirrored().await;
    assert_eq!(state(&h), before);
}

#[tokio::test]
async fn a_request_out_of_bounds_is_refused_by_name() {
    let h = Harness::new();
    for (request, field) in [
        (json!({ "limit": 0 }), "limit"),
        (json!({ "limit": 21 }), "limit"),
        (json!({ "query": "x".repeat(1001) }), "query"),
    ] {
        let refused = h.engine.resume_sessions(&h.scope, serde_json::from_value(request).unwrap()).await;
        assert!(matches!(refused, Err(Error::InvalidInput(message)) if message.contains(field)), "{field}");
    }
    let long = "word ".repeat(200);
    assert!(resume(&h, json!({ "query": long })).await.sessions.is_empty());
}

/// A session whose newest checkpoint cannot be read is named all the same: a load says what is wrong.
#[tokio::test]
async fn what_is_damaged_is_named_without_a_preview() {
    let mut h = Harness::new();
    h.save("s", json!({ "goal": "stay" })).await;
    h.restart_mirrored().await;
    std::fs::remove_dir_all(h.data_dir().join("contexts")).unwrap();
    audit::open(h.data_dir()).execute("UPDATE checkpoint_bytes SET bytes = x'00'", []).unwrap();
    let found = resume(&h, json!({})).await;
    assert_eq!(found.sessions[0].session_id.as_str(), "s");
    assert!(found.sessions[0].preview.keys.is_empty());
}

/// Where the repository stood is kept in both copies.
#[tokio::test]
async fn where_the_repository_stood_survives_the_loss_of_the_database() {
    let mut h = Harness::new();
    check_out(&mut h, "feat/x", Some(COMMIT));
    let saved = h.save("s", json!({ "goal": "stay" })).await;
    h.close_mirrored().await;
    ["", "-wal", "-shm"]
        .iter()
        .for_each(|end| drop(std::fs::remove_file(h.data_dir().join(format!("waystone.db{end}")))));
    h.repair();
    h.restart().await;
    let git = h.load(&saved.checkpoint_id).await.checkpoint.git;
    assert_eq!(git, Git::new(Some("feat/x".to_owned()), Some(COMMIT.to_owned())));
}
