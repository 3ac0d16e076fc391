//! Who may decide, how often and about what: decided once, all or nothing, bound to what was looked at.

use futures_util::future::join_all;
use serde_json::{Value, json};

use super::super::assert_refused;
use super::{Desk, ask_weather, assert_has, read, text, until_state, write};

#[tokio::test]
async fn an_approval_that_is_sent_again_without_a_key_is_refused() {
    let desk = Desk::new().await;
    let mut waiting = desk.wait([write("a.txt", "a"), write("b.txt", "b")]).await;
    let context = waiting.context.clone();
    assert_eq!(desk.decide(&context, "approve", &["call_0"]).await.0, 200);
    let again = desk.decide(&context, "approve", &["call_0"]).await;
    assert_refused(&again, 409, "CONFLICT", "while the other one waits");
    assert_eq!(desk.file("a.txt"), None, "nothing runs before all are decided");
    assert_eq!(desk.decide(&context, "approve", &["call_1"]).await.0, 200);
    until_state(&mut waiting.events, "Idle").await;
    std::fs::remove_file(desk.folder.path().join("a.txt")).unwrap();
    for decision in ["approve", "deny"] {
        assert_refused(&desk.decide(&context, decision, &["call_0"]).await, 409, "CONFLICT", "after the turn");
    }
    assert_eq!(desk.talk.state(&context).await, "Idle");
    assert_eq!(desk.file("a.txt"), None, "it is not run again");
    assert_eq!(desk.statuses(&waiting).await, ["Approved", "Approved"]);
}

#[tokio::test]
async fn a_decision_that_is_sent_again_with_its_key_gets_the_first_answer() {
    for decision in ["approve", "deny"] {
        let desk = Desk::new().await;
        let mut waiting = desk.wait([write("a.txt", "a"), write("b.txt", "b")]).await;
        let path = format!("/{}/tools/{decision}", waiting.context);
        let body = json!({ "tool_call_ids": ["call_0"] });
        let first = desk.talk.post_keyed(&path, "k", &body).await;
        assert_eq!(first.0, 200, "{first:?}");
        assert_eq!(desk.talk.post_keyed(&path, "k", &body).await, first, "while the turn waits");
        let in_body = json!({ "tool_call_ids": ["call_0"], "idempotency_key": "k" });
        assert_eq!(desk.talk.post(&path, in_body).await, first, "the header and the field are the same thing");
        let other = json!({ "tool_call_ids": ["call_1"] });
        assert_refused(&desk.talk.post_keyed(&path, "k", &other).await, 409, "CONFLICT", "another body");
        assert_eq!(desk.call(&waiting.context, "call_1").await["approval_status"], "Pending");
        assert_eq!(desk.talk.post_keyed(&path, "l", &other).await.0, 200);
        until_state(&mut waiting.events, "Idle").await;
        assert_eq!(desk.talk.post_keyed(&path, "k", &body).await, first, "and when it is over");
        assert_eq!(desk.talk.fake.requests().len(), 2, "the turn went on once");
    }
}

#[tokio::test]
async fn a_key_of_one_decision_is_none_of_the_other() {
    let desk = Desk::new().await;
    let waiting = desk.wait([write("a.txt", "a"), write("b.txt", "b")]).await;
    let path = |decision: &str| format!("/{}/tools/{decision}", waiting.context);
    let body = json!({ "tool_call_ids": ["call_0"] });
    assert_eq!(desk.talk.post_keyed(&path("approve"), "k", &body).await.0, 200);
    assert_refused(&desk.talk.post_keyed(&path("deny"), "k", &body).await, 409, "CONFLICT", "denied with the same key");
    assert_eq!(desk.statuses(&waiting).await, ["Approved", "Pending"]);
}

#[tokio::test]
async fn of_many_who_approve_at_once_one_is_heard() {
    let desk = Desk::new().await;
    let mut waiting = desk.wait([ask_weather("London")]).await;
    let answers = join_all((0..8).map(|_| desk.decide(&waiting.context, "approve", &["call_0"]))).await;
    let (heard, refused): (Vec<_>, Vec<_>) = answers.iter().partition(|(status, _)| *status == 200);
    assert_eq!((heard.len(), refused.len()), (1, 7), "{answers:?}");
    for answer in refused {
        assert_refused(answer, 409, "CONFLICT", "came too late");
    }
    assert_eq!(desk.answer(&waiting.context, "call_0", json!({ "result": "rain" })).await.0, 200);
    let told = until_state(&mut waiting.events, "Idle").await;
    assert_eq!(super::completed(&told).len(), 1);
}

#[tokio::test]
async fn of_one_who_approves_and_one_who_denies_at_once_one_is_heard() {
    for round in 0..10 {
        let desk = Desk::new().await;
        let mut waiting = desk.wait([write("a.txt", "a")]).await;
        let (approved, denied) = tokio::join!(
            desk.decide(&waiting.context, "approve", &["call_0"]),
            desk.decide(&waiting.context, "deny", &["call_0"])
        );
        assert_eq!([approved.0, denied.0].iter().filter(|status| **status == 200).count(), 1, "{round}");
        until_state(&mut waiting.events, "Idle").await;
        let is_written = desk.file("a.txt").is_some();
        let status = if is_written { "Approved" } else { "Denied" };
        assert_eq!((is_written, desk.statuses(&waiting).await), (approved.0 == 200, vec![status.to_owned()]));
    }
}

#[tokio::test]
async fn two_of_the_same_key_at_once_are_one() {
    let desk = Desk::new().await;
    let waiting = desk.wait([ask_weather("London")]).await;
    let (path, body) = (format!("/{}/tools/approve", waiting.context), json!({ "tool_call_ids": ["call_0"] }));
    let (one, two) = tokio::join!(desk.talk.post_keyed(&path, "k", &body), desk.talk.post_keyed(&path, "k", &body));
    assert_eq!((one.0, &one), (200, &two));
}

#[tokio::test]
async fn if_one_call_of_several_cannot_be_decided_none_is() {
    let desk = Desk::new().await;
    let larger = desk.wait([write("x.txt", "x"), write("y.txt", "y"), write("z.txt", "z")]).await;
    let waiting = desk.wait([write("a.txt", "a"), write("b.txt", "b")]).await;
    let context = &waiting.context;
    for decision in ["approve", "deny"] {
        for (bad, why) in [("unknown", "nobody's"), ("call_2", "another conversation's")] {
            for calls in [vec!["call_0", bad], vec![bad, "call_0"], vec![bad]] {
                let answer = desk.decide(context, decision, &calls).await;
                assert_refused(&answer, 404, "TOOL_CALL_NOT_FOUND", &format!("{decision} {why}"));
                assert_eq!(answer.1["error"]["details"]["tool_call_id"], bad);
            }
        }
    }
    assert_eq!(desk.statuses(&waiting).await, ["Pending", "Pending"]);
    assert_eq!(desk.decide(context, "deny", &["call_1"]).await.0, 200);
    for decision in ["approve", "deny"] {
        for calls in [["call_0", "call_1"], ["call_1", "call_0"]] {
            let answer = desk.decide(context, decision, &calls).await;
            assert_refused(&answer, 409, "CONFLICT", &format!("{decision} a decided one"));
        }
    }
    assert_eq!(desk.statuses(&waiting).await, ["Pending", "Denied"]);
    assert_eq!(desk.statuses(&larger).await, ["Pending"; 3]);
    assert_eq!(desk.talk.state(context).await, "AwaitingToolApproval");
    assert_eq!(["a.txt", "b.txt", "x.txt"].map(|name| desk.file(name)), [None, None, None]);
}

#[tokio::test]
async fn a_call_that_ran_unasked_cannot_be_decided_about() {
    let desk = Desk::new().await;
    let waiting = desk.wait([read("README.md"), write("a.txt", "a")]).await;
    for decision in ["approve", "deny"] {
        assert_refused(&desk.decide(&waiting.context, decision, &["call_0"]).await, 409, "CONFLICT", decision);
    }
    assert_eq!(desk.statuses(&waiting).await, ["Approved", "Pending"]);
}

#[tokio::test]
async fn over_rest_too_what_is_approved_is_what_was_looked_at() {
    let desk = Desk::new().await;
    let mut waiting = desk.wait([write("a.txt", "a"), write("b.txt", "b")]).await;
    let context = waiting.context.clone();
    let path = format!("/{context}/tools/approve");
    let hash = |call: &Value| text(&call["hash"]);
    let (a, b) = (hash(&desk.call(&context, "call_0").await), hash(&desk.call(&context, "call_1").await));
    assert_ne!(a, b, "other arguments, another hash");
    assert_eq!(super::requested(&waiting.told)[0]["hash"], a.as_str(), "the event tells of the same");
    for hashes in [json!({ "call_0": b }), json!({ "call_0": "" }), json!({ "call_0": a, "call_1": a })] {
        let body = json!({ "tool_call_ids": ["call_0", "call_1"], "hashes": hashes });
        assert_refused(&desk.talk.post(&path, body).await, 409, "CONFLICT", &hashes.to_string());
    }
    assert_eq!(desk.statuses(&waiting).await, ["Pending", "Pending"]);
    let body = json!({ "tool_call_ids": ["call_0", "call_1"], "hashes": { "call_0": a, "call_1": b } });
    let (status, approved) = desk.talk.post(&path, body).await;
    assert_eq!(status, 200, "{approved}");
    assert_has(&approved, &json!({ "approved_count": 2, "context_state": "ExecutingTools" }));
    until_state(&mut waiting.events, "Idle").await;
    assert_eq!(hash(&desk.call(&context, "call_0").await), a);
}
