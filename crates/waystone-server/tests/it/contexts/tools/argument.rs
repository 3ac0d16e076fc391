//! Arguments that someone changes before a call is approved.

use serde_json::{Value, json};

use super::super::assert_refused;
use super::{Desk, Waiting, assert_has, text, until_state, write};

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
    assert_eq!(desk.talk.post_keyed(&path, "l", &other).await.0, 200);
    assert_eq!(desk.talk.post_keyed(&path, "k", &body).await, first, "it changes nothing any more");
    desk.decide(&waiting.context, "approve", &["call_0"]).await;
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
    desk.decide(&waiting.context, "approve", &["call_0"]).await;
    until_state(&mut waiting.events, "Idle").await;
    assert_eq!(desk.call(&waiting.context, "call_0").await["outcome"], "failed");
    assert!(!path.exists());
}
