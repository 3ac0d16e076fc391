//! Arguments that someone changes before a call is approved.

use serde_json::{Value, json};
use waystone_core::secret::Policy;
use waystone_testkit::secrets::planted;

use super::super::assert_refused;
use super::{Desk, Waiting, assert_has, requested, text, until_state, write};
use crate::client::Client;

async fn edit(desk: &Desk, waiting: &Waiting, arguments: &Value) -> (u16, Value) {
    desk.talk.post(&format!("/{}/tools/call_0/arguments", waiting.context), json!({ "arguments": arguments })).await
}

async fn approve_as(desk: &Desk, waiting: &Waiting, hash: &str) -> (u16, Value) {
    let body = json!({ "tool_call_ids": ["call_0"], "hashes": { "call_0": hash } });
    desk.talk.post(&format!("/{}/tools/approve", waiting.context), body).await
}

#[tokio::test]
async fn what_is_run_is_what_the_arguments_were_changed_to() {
    let desk = Desk::new().await;
    let mut waiting = desk.wait([write("a.txt", "theirs")]).await;
    let before = text(&desk.call(&waiting.context, "call_0").await["hash"]);
    let changed = json!({ "path": "b.txt", "content": "ours" });
    let (status, edited) = edit(&desk, &waiting, &changed).await;
    assert_eq!(status, 200, "{edited}");
    assert_has(&edited, &json!({ "id": "call_0", "arguments": changed, "approval_status": "Pending" }));
    let after = text(&edited["hash"]);
    assert_ne!(after, before);
    assert_eq!(desk.call(&waiting.context, "call_0").await, edited);
    assert_eq!(desk.talk.state(&waiting.context).await, "AwaitingToolApproval");

    assert_refused(&approve_as(&desk, &waiting, &before).await, 409, "CONFLICT", "the old hash");
    assert_eq!(desk.statuses(&waiting).await, ["Pending"]);
    assert_eq!(approve_as(&desk, &waiting, &after).await.0, 200);
    until_state(&mut waiting.events, "Idle").await;
    assert_eq!((desk.file("a.txt"), desk.file("b.txt").as_deref()), (None, Some("ours")));
}

#[tokio::test]
async fn arguments_cannot_be_changed_once_the_call_is_decided() {
    for decision in ["approve", "deny"] {
        let desk = Desk::new().await;
        let mut waiting = desk.wait([write("a.txt", "theirs"), write("b.txt", "b")]).await;
        let changed = json!({ "path": "evil.txt", "content": "x" });
        assert_eq!(desk.decide(&waiting.context, decision, &["call_0"]).await.0, 200);
        assert_refused(&edit(&desk, &waiting, &changed).await, 409, "CONFLICT", "while another one waits");
        assert_eq!(desk.decide(&waiting.context, decision, &["call_1"]).await.0, 200);
        until_state(&mut waiting.events, "Idle").await;
        assert_refused(&edit(&desk, &waiting, &changed).await, 409, "CONFLICT", "after the turn");
        assert_eq!(desk.file("evil.txt"), None);
        assert_eq!(desk.file("a.txt").is_some(), decision == "approve");
        let call = desk.call(&waiting.context, "call_0").await;
        assert_eq!(call["arguments"], json!({ "path": "a.txt", "content": "theirs" }));
    }
}

#[tokio::test]
async fn changed_and_approved_at_once_it_runs_as_it_was_approved() {
    for _ in 0..10 {
        let desk = Desk::new().await;
        let mut waiting = desk.wait([write("a.txt", "theirs")]).await;
        let hash = text(&desk.call(&waiting.context, "call_0").await["hash"]);
        let changed = json!({ "path": "a.txt", "content": "ours" });
        let (edited, approved) = tokio::join!(edit(&desk, &waiting, &changed), approve_as(&desk, &waiting, &hash));
        assert_eq!(
            [edited.0, approved.0].iter().filter(|status| **status == 200).count(),
            1,
            "{edited:?} {approved:?}"
        );
        if approved.0 == 200 {
            until_state(&mut waiting.events, "Idle").await;
            assert_eq!(desk.file("a.txt").as_deref(), Some("theirs"));
        } else {
            assert_eq!((desk.file("a.txt"), desk.statuses(&waiting).await), (None, vec!["Pending".to_owned()]));
        }
    }
}

#[tokio::test]
async fn a_change_that_is_sent_again_with_its_key_gets_the_first_answer() {
    let desk = Desk::new().await;
    let mut waiting = desk.wait([write("a.txt", "theirs")]).await;
    let path = format!("/{}/tools/call_0/arguments", waiting.context);
    let body = json!({ "arguments": { "path": "a.txt", "content": "first" } });
    let other = json!({ "arguments": { "path": "a.txt", "content": "second" } });
    let first = desk.talk.post_keyed(&path, "k", &body).await;
    assert_eq!(first.0, 200, "{first:?}");
    assert_eq!(desk.talk.post_keyed(&path, "k", &body).await, first);
    assert_refused(&desk.talk.post_keyed(&path, "k", &other).await, 409, "CONFLICT", "another body");
    let second = desk.talk.post_keyed(&path, "l", &other).await;
    assert_eq!(second.0, 200, "{second:?}");
    assert_eq!(desk.talk.post_keyed(&path, "k", &body).await, first, "it changes nothing any more");
    approve_as(&desk, &waiting, &text(&second.1["hash"])).await;
    until_state(&mut waiting.events, "Idle").await;
    assert_eq!(desk.talk.post_keyed(&path, "k", &body).await, first, "and when the turn is over");
    assert_eq!(desk.file("a.txt").as_deref(), Some("second"));
}

#[tokio::test]
async fn a_path_that_leads_out_is_no_better_from_a_person() {
    let desk = Desk::new().await;
    let mut waiting = desk.wait([write("a.txt", "a")]).await;
    let outside = tempfile::tempdir().unwrap();
    let path = outside.path().join("b.txt");
    let answer = edit(&desk, &waiting, &json!({ "path": path.to_str().unwrap(), "content": "x" })).await;
    assert_eq!(answer.0, 200, "{answer:?}");
    approve_as(&desk, &waiting, &text(&answer.1["hash"])).await;
    until_state(&mut waiting.events, "Idle").await;
    assert_eq!(desk.call(&waiting.context, "call_0").await["outcome"], "failed");
    assert!(!path.exists());
}

/// Whoever listens must not go on looking at what is not to be run any more.
#[tokio::test]
async fn who_listens_is_told_of_the_changed_arguments_before_they_run() {
    let desk = Desk::new().await;
    let mut waiting = desk.wait([write("a.txt", "theirs")]).await;
    let (_, edited) = edit(&desk, &waiting, &json!({ "path": "a.txt", "content": "ours" })).await;
    let unseen = desk.decide(&waiting.context, "approve", &["call_0"]).await;
    assert_refused(&unseen, 409, "CONFLICT", "nobody says that the changed ones were looked at");
    approve_as(&desk, &waiting, &text(&edited["hash"])).await;
    let told = until_state(&mut waiting.events, "ExecutingTools").await;
    let expected =
        json!({ "id": "call_0", "name": "write_file", "arguments": edited["arguments"], "hash": edited["hash"] });
    assert_has(&json!(requested(&told)), &json!([expected]));
}

#[tokio::test]
async fn of_two_who_change_the_arguments_at_once_each_gets_the_hash_of_his_own() {
    for _ in 0..10 {
        let desk = Desk::new().await;
        let waiting = desk.wait([write("a.txt", "theirs")]).await;
        let wanted = ["one", "two"].map(|content| json!({ "path": "a.txt", "content": content }));
        let (one, two) = tokio::join!(edit(&desk, &waiting, &wanted[0]), edit(&desk, &waiting, &wanted[1]));
        assert_eq!((one.0, two.0), (200, 200));
        assert_eq!([&one.1["arguments"], &two.1["arguments"]], [&wanted[0], &wanted[1]]);
        assert_ne!(one.1["hash"], two.1["hash"]);
        let now = desk.call(&waiting.context, "call_0").await;
        let (last, first) = if now["arguments"] == wanted[0] { (one.1, two.1) } else { (two.1, one.1) };
        assert_eq!(now["hash"], last["hash"]);
        assert_refused(&approve_as(&desk, &waiting, &text(&first["hash"])).await, 409, "CONFLICT", "overwritten");
        assert_eq!(approve_as(&desk, &waiting, &text(&last["hash"])).await.0, 200);
    }
}

#[tokio::test]
async fn a_secret_in_changed_arguments_is_refused_where_none_may_be_kept() {
    let secret = planted(1).into_iter().find(|planted| planted.rule == "github-token").unwrap().secret;
    let mut client = Client::new();
    client.harness = client.harness.with_secrets(Policy::Block, Policy::Off);
    let desk = Desk::with(client, Default::default()).await;
    let waiting = desk.wait([write("a.txt", "theirs")]).await;
    let before = desk.call(&waiting.context, "call_0").await;
    let content = format!("GITHUB_TOKEN={secret}");
    let answer = edit(&desk, &waiting, &json!({ "path": ".env", "content": content })).await;
    assert_refused(&answer, 422, "SECRET_BLOCKED", "a secret");
    assert!(!answer.1.to_string().contains(&secret), "{}", answer.1);
    assert_eq!(desk.call(&waiting.context, "call_0").await, before);
}
