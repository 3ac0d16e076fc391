//! Policies, caps and the time that things may take.

use std::time::Duration;

use serde_json::{Value, json};
use waystone_core::{PolicyKind, ToolPolicy};
use waystone_testkit::model::Reply;

use super::super::assert_refused;
use super::{Desk, assert_has, assert_paired, completed, read, requested, states, until_state, write};
use crate::client::Client;

async fn desk_of(kind: PolicyKind, allowed: &[&str]) -> Desk {
    let allowed = allowed.iter().map(|name| (*name).to_owned()).collect();
    Desk::with(Client::new(), ToolPolicy { kind, allowed, approval_max: None }).await
}

#[tokio::test]
async fn the_policy_says_which_calls_wait() {
    let cases: [(PolicyKind, &[&str], &[&str]); 5] = [
        (PolicyKind::Manual, &[], &["call_0", "call_1"]),
        (PolicyKind::Manual, &["write_file"], &["call_0", "call_1"]),
        (PolicyKind::AllowList, &["write_file"], &["call_0"]),
        (PolicyKind::AllowList, &["read_file"], &["call_1"]),
        (PolicyKind::Auto, &[], &["call_1"]),
    ];
    for (kind, allowed, expected) in cases {
        let desk = desk_of(kind, allowed).await;
        let waiting = desk.wait([read("README.md"), write("a.txt", "a")]).await;
        let statuses = desk.statuses(&waiting).await;
        let pending: Vec<_> =
            waiting.ids().into_iter().zip(&statuses).filter(|(_, status)| *status == "Pending").collect();
        let pending: Vec<&str> = pending.into_iter().map(|(id, _)| id).collect();
        assert_eq!(pending, expected, "{kind:?} {allowed:?}");
    }
    let desk = desk_of(PolicyKind::AllowList, &["read_file", "write_file"]).await;
    desk.talk.fake.then(Reply::calls([read("README.md"), write("a.txt", "a")])).then(Reply::text("Done."));
    let context = desk.create().await;
    desk.talk.ask(&context, "Go.").await;
    assert_eq!(desk.file("a.txt").as_deref(), Some("a"), "all of them are allowed");
}

#[tokio::test]
async fn tools_beyond_what_models_take_are_left_out_and_it_is_said_how_many() {
    let desk = Desk::new().await;
    let tools: Vec<Value> = (0..128).map(|n| json!({ "name": format!("t{n:03}"), "read_only": true })).collect();
    let context = desk.create_with(json!(tools)).await;
    let listed = desk.talk.get(&format!("/{context}/tools")).await;
    let names: Vec<&str> =
        listed["tools"].as_array().unwrap().iter().map(|tool| tool["name"].as_str().unwrap()).collect();
    assert_eq!((names.len(), names.last()), (126, Some(&"t125")), "there is room for two of our own");
    let told = "there are 132 tools, and a model takes 126 besides ours: 6 of them, `t126` and those after it, are left out; declare \
                fewer, or disable servers that are not needed";
    assert_eq!(listed["warnings"], json!([told]));
    desk.talk.ask(&context, "hello").await;
    assert_eq!(desk.talk.fake.requests().pop().unwrap()["tools"].as_array().unwrap().len(), 126);
}

#[tokio::test]
async fn a_model_that_calls_without_end_is_asked_once_more_without_tools() {
    let desk = Desk::new().await;
    for _ in 0..5 {
        desk.talk.fake.then(Reply::calls([read("README.md")]));
    }
    let context = desk.create().await;
    let mut events = desk.talk.follow(&context).await;
    desk.talk.say(&context, "Go.").await;
    let told = until_state(&mut events, "Idle").await;
    assert_eq!(states(&told).iter().filter(|state| *state == "ExecutingTools").count(), 5);
    assert_eq!(completed(&told).iter().filter(|(_, outcome)| outcome == "succeeded").count(), 5);
    let requests = desk.talk.fake.requests();
    assert_eq!(requests.len(), 6);
    let may_call = |request: &Value| request["tools"].is_array() && request["tool_choice"] != "none";
    assert_eq!(requests.iter().map(may_call).collect::<Vec<_>>(), [true, true, true, true, true, false]);
    assert_paired(&requests);
}

#[tokio::test]
async fn of_very_many_calls_twenty_run_and_the_model_is_told_of_the_others() {
    let desk = Desk::new().await;
    desk.talk.fake.then(Reply::calls((0..25).map(|_| read("README.md")))).then(Reply::text("Done."));
    let context = desk.create().await;
    let mut events = desk.talk.follow(&context).await;
    desk.talk.say(&context, "Go.").await;
    let told = until_state(&mut events, "Idle").await;
    let succeeded = completed(&told).iter().filter(|(_, outcome)| outcome == "succeeded").count();
    assert_eq!((succeeded, desk.results().len()), (20, 25));
    let request = desk.talk.fake.requests().pop().unwrap();
    assert!(!request["tools"].is_array() || request["tool_choice"] == "none", "at a cap no more tools are offered");
    assert_paired(&desk.talk.fake.requests());
}

#[tokio::test]
async fn a_client_that_never_answers_is_given_up_and_the_model_is_told() {
    let desk = Desk::new().await;
    let context = desk.create_with(json!([{ "name": "look", "read_only": true }])).await;
    desk.talk.fake.then(Reply::calls([("look", json!({}))])).then(Reply::text("Never mind."));
    let mut events = desk.talk.follow(&context).await;
    desk.talk.say(&context, "Look.").await;
    until_state(&mut events, "ExecutingTools").await;
    desk.talk.client.harness.clock.wait_for_sleeper().await;
    desk.talk.client.harness.clock.advance_ms(301_000);
    let told = until_state(&mut events, "Idle").await;
    assert_eq!(completed(&told), [("call_0".to_owned(), "timed_out".to_owned())]);
    assert_eq!(desk.results().len(), 1);
    let late = desk.answer(&context, "call_0", json!({ "result": "late" })).await;
    assert_eq!(late.0 / 100, 4, "{late:?}");
    assert_eq!(desk.call(&context, "call_0").await["outcome"], "timed_out");
    assert_paired(&desk.talk.fake.requests());
}

#[tokio::test]
async fn a_call_that_nobody_decides_about_expires() {
    let policy = ToolPolicy { approval_max: Some(Duration::from_secs(60)), ..ToolPolicy::default() };
    let desk = Desk::with(Client::new(), policy).await;
    let mut waiting = desk.wait([write("a.txt", "a"), write("b.txt", "b")]).await;
    let (context, clock) = (waiting.context.clone(), &desk.talk.client.harness.clock);
    assert_eq!(desk.decide(&context, "approve", &["call_1"]).await.0, 200);
    clock.advance_ms(61_000);
    let late = desk.decide(&context, "approve", &["call_0"]).await;
    assert_refused(&late, 409, "CONFLICT", "too late, whether or not anyone has noticed");
    assert_eq!(desk.engine.expire_tools(&desk.talk.client.harness.scope).await.unwrap(), 1);
    let told = until_state(&mut waiting.events, "Idle").await;
    assert!(completed(&told).contains(&("call_0".to_owned(), "expired".to_owned())), "{told:#?}");
    assert_eq!(desk.statuses(&waiting).await, ["Expired", "Approved"]);
    assert_eq!((desk.file("a.txt"), desk.file("b.txt").as_deref()), (None, Some("b")));
    assert_eq!(desk.results().len(), 2, "the model is told");
    for decision in ["approve", "deny"] {
        assert_refused(&desk.decide(&context, decision, &["call_0"]).await, 409, "CONFLICT", decision);
    }
    let edit = json!({ "arguments": { "path": "a.txt", "content": "x" } });
    let edited = desk.talk.post(&format!("/{context}/tools/call_0/arguments"), edit).await;
    assert_refused(&edited, 409, "CONFLICT", "changed when it has expired");
    assert_paired(&desk.talk.fake.requests());
}

#[tokio::test]
async fn by_default_a_call_waits_for_ever() {
    let desk = Desk::new().await;
    let mut waiting = desk.wait([write("a.txt", "a")]).await;
    desk.talk.client.harness.clock.advance_ms(30 * 24 * 3_600_000);
    assert_has(&desk.call(&waiting.context, "call_0").await, &json!({ "approval_status": "Pending" }));
    assert_eq!(desk.decide(&waiting.context, "approve", &["call_0"]).await.0, 200);
    until_state(&mut waiting.events, "Idle").await;
    assert_eq!(desk.file("a.txt").as_deref(), Some("a"), "the time that a person took is none of the tool's");
    assert_eq!(requested(&waiting.told).len(), 1);
}
