//! What happens while a turn waits for someone: it can be ended, deleted, followed and found again, but not talked over.

use serde_json::json;
use waystone_testkit::model::Reply;

use super::super::{assert_refused, next_but_windows, outline, take};
use super::{Desk, Event, ask_weather, assert_has, assert_paired, requested, states, text, until_state, write};
use crate::events::Subscriber;

#[tokio::test]
async fn while_a_call_waits_nothing_else_is_said_edited_or_tried_again() {
    let desk = Desk::new().await;
    let context = desk.create_with(json!([super::weather()])).await;
    let (question, _) = desk.talk.ask(&context, "first").await;
    let waiting = desk.wait_in(context, [ask_weather("London")]).await;
    let context = &waiting.context;
    for state in ["AwaitingToolApproval", "ExecutingTools"] {
        for (method, path, body) in [
            ("POST", format!("/{context}/messages"), Some(json!({ "content": "x" }))),
            ("PUT", format!("/{context}/messages/{question}"), Some(json!({ "content": "x" }))),
            ("POST", format!("/{context}/retry"), None),
        ] {
            let answer = desk.talk.call(method, &path, body).await;
            assert_refused(&answer, 400, "INVALID_STATE", &format!("{method} {path} in {state}"));
            assert_eq!(answer.1["error"]["details"]["current_state"], state);
        }
        desk.decide(context, "approve", &["call_0"]).await;
    }
    assert_eq!(desk.talk.get(&format!("/{context}/branches")).await["branches"].as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn a_turn_that_waits_for_approval_can_be_ended() {
    let desk = Desk::new().await;
    let mut waiting = desk.wait([write("a.txt", "a"), ask_weather("London")]).await;
    let context = waiting.context.clone();
    let (status, cancelled) = desk.talk.call("POST", &format!("/{context}/cancel"), None).await;
    assert_eq!(status, 200, "{cancelled}");
    assert_has(&cancelled, &json!({ "context_state": "Idle" }));
    let told = until_state(&mut waiting.events, "Idle").await;
    assert_eq!(states(&told), ["Idle"]);
    let state = desk.talk.get(&format!("/{context}/state")).await;
    assert_has(&state, &json!({ "current_state": "Idle", "can_send_message": true, "pending_tool_approvals": 0 }));
    for decision in ["approve", "deny"] {
        let answer = desk.decide(&context, decision, &["call_0"]).await;
        assert!([400, 409].contains(&answer.0), "{decision}: {answer:?}");
        assert_refused(&answer, answer.0, if answer.0 == 400 { "INVALID_STATE" } else { "CONFLICT" }, decision);
    }
    let late = desk.answer(&context, "call_1", json!({ "result": "rain" })).await;
    assert!([400, 409].contains(&late.0), "{late:?}");
    assert_eq!((desk.file("a.txt"), desk.talk.state(&context).await.as_str()), (None, "Idle"));
    desk.talk.fake.then(Reply::text("Yes?"));
    desk.talk.ask(&context, "Are you there?").await;
    assert_paired(&desk.talk.fake.requests());
    assert_eq!(desk.file("a.txt"), None);
}

#[tokio::test]
async fn a_turn_that_waits_for_its_client_can_be_ended() {
    let desk = Desk::new().await;
    let mut waiting = desk.wait([ask_weather("London")]).await;
    let context = waiting.context.clone();
    desk.decide(&context, "approve", &["call_0"]).await;
    until_state(&mut waiting.events, "ExecutingTools").await;
    assert_eq!(desk.talk.call("POST", &format!("/{context}/cancel"), None).await.0, 200);
    until_state(&mut waiting.events, "Idle").await;
    assert_eq!(desk.call(&context, "call_0").await["outcome"], "cancelled");
    let late = desk.answer(&context, "call_0", json!({ "result": "rain" })).await;
    assert!([400, 409].contains(&late.0), "{late:?}");
    desk.talk.ask(&context, "Go on.").await;
    assert_paired(&desk.talk.fake.requests());
}

#[tokio::test]
async fn with_its_conversation_a_call_that_waits_is_gone() {
    let desk = Desk::new().await;
    for (decide, query) in [(false, ""), (false, "?purge=true"), (true, ""), (true, "?purge=true")] {
        let mut waiting = desk.wait([ask_weather("London"), write("a.txt", "a")]).await;
        let context = waiting.context.clone();
        if decide {
            desk.decide(&context, "deny", &["call_1"]).await;
            desk.decide(&context, "approve", &["call_0"]).await;
            until_state(&mut waiting.events, "ExecutingTools").await;
        }
        let (status, reply) = desk.talk.call("DELETE", &format!("/{context}{query}"), None).await;
        assert_eq!(status, 204, "{decide} {query}: {reply}");
        for (method, path, body) in [
            ("GET", format!("/{context}/tools"), None),
            ("GET", format!("/{context}/tools/call_0"), None),
            ("GET", format!("/{context}/state"), None),
            ("POST", format!("/{context}/tools/approve"), Some(json!({ "tool_call_ids": ["call_1"] }))),
            ("POST", format!("/{context}/tools/deny"), Some(json!({ "tool_call_ids": ["call_1"] }))),
            ("POST", format!("/{context}/tools/call_1/arguments"), Some(json!({ "arguments": {} }))),
            ("POST", format!("/{context}/tools/call_0/result"), Some(json!({ "result": "rain" }))),
        ] {
            desk.talk.refuses(method, &path, body, 404, "CONTEXT_NOT_FOUND").await;
        }
        assert_eq!(desk.file("a.txt"), None);
    }
}

/// Collects events until the state, in a connection that is dropped after each.
async fn drop_after_each(desk: &Desk, context: &str, mut last: String, state: &str) -> Vec<Event> {
    let mut told: Vec<Event> = Vec::new();
    while told.last().is_none_or(|event| event.2["new_state"] != state) {
        let mut reader: Subscriber = desk.talk.follow_after(context, Some(&last)).await;
        let event = next_but_windows(&mut reader).await.unwrap();
        last.clone_from(&event.0);
        told.push(event);
    }
    told
}

#[tokio::test]
async fn a_reader_that_comes_back_during_the_wait_is_told_everything_once() {
    let desk = Desk::new().await;
    let mut waiting = desk.wait([ask_weather("London"), write("a.txt", "a")]).await;
    let context = waiting.context.clone();
    let first = waiting.told[0].0.clone();
    let again = drop_after_each(&desk, &context, first.clone(), "AwaitingToolApproval").await;
    assert_eq!(again, waiting.told[1..], "{:?}", outline(&again));

    let last = waiting.told.last().unwrap().0.clone();
    let mut away = desk.talk.follow_after(&context, Some(&last)).await;
    desk.decide(&context, "deny", &["call_0"]).await;
    desk.decide(&context, "approve", &["call_1"]).await;
    let rest = until_state(&mut waiting.events, "Idle").await;
    assert_eq!(until_state(&mut away, "Idle").await, rest, "who came back before it was decided");
    let after = drop_after_each(&desk, &context, last, "Idle").await;
    assert_eq!(after, rest, "who comes back after each event");

    let all = [waiting.told, rest].concat();
    let mut replay = desk.talk.follow_after(&context, Some(&first)).await;
    assert_eq!(take(&mut replay, all.len() - 1).await, all[1..]);
    let mut ids: Vec<&String> = all.iter().map(|(id, ..)| id).collect();
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), all.len(), "no id twice");
}

#[tokio::test]
async fn a_call_that_waits_is_there_after_a_restart() {
    let mut desk = Desk::new().await;
    let waiting = desk.wait([write("a.txt", "a"), write("b.txt", "b")]).await;
    let context = waiting.context.clone();
    let before = desk.talk.get(&format!("/{context}/state")).await;
    let (path, body) = (format!("/{context}/tools/deny"), json!({ "tool_call_ids": ["call_1"] }));
    let denied = desk.talk.post_keyed(&path, "k", &body).await;
    assert_eq!(denied.0, 200, "{denied:?}");
    desk.talk.restart().await;
    assert_eq!(desk.talk.post_keyed(&path, "k", &body).await, denied, "and their keys");
    assert_eq!(desk.statuses(&waiting).await, ["Pending", "Denied"], "decisions survive");
    let state = desk.talk.get(&format!("/{context}/state")).await;
    assert_eq!(state["pending_tool_calls"], json!([before["pending_tool_calls"][0]]));
    let last = &waiting.told.last().unwrap().0;
    let mut events = desk.talk.follow_after(&context, Some(last)).await;
    assert_eq!(desk.decide(&context, "approve", &["call_0"]).await.0, 200);
    let told = until_state(&mut events, "Idle").await;
    assert_eq!(requested(&told), Vec::<serde_json::Value>::new(), "nothing is asked for twice");
    assert_eq!((desk.file("a.txt").as_deref(), desk.file("b.txt")), (Some("a"), None));
    assert_refused(&desk.decide(&context, "approve", &["call_0"]).await, 409, "CONFLICT", "again");
    assert_paired(&desk.talk.fake.requests());
}

#[tokio::test]
async fn a_turn_goes_on_where_it_began_when_another_branch_becomes_active_during_the_wait() {
    let desk = Desk::new().await;
    let context = desk.create_with(json!([super::weather()])).await;
    desk.talk.ask(&context, "first").await;
    desk.talk.post(&format!("/{context}/branches"), json!({ "name": "other" })).await;
    let mut waiting = desk.wait_in(context, [ask_weather("London")]).await;
    let context = waiting.context.clone();
    assert_eq!(desk.talk.call("PUT", &format!("/{context}/branches/other"), None).await.0, 200);
    desk.decide(&context, "deny", &["call_0"]).await;
    until_state(&mut waiting.events, "Idle").await;
    let count = async |branch: &str| {
        desk.talk.get(&format!("/{context}/messages?branch={branch}")).await["total"].as_u64().unwrap()
    };
    assert_eq!((count("main").await, count("other").await), (6, 2));
}

#[tokio::test]
async fn among_all_changes_events_of_calls_have_the_same_fields() {
    let desk = Desk::new().await;
    let mut waiting = desk.wait([ask_weather("London")]).await;
    desk.decide(&waiting.context, "deny", &["call_0"]).await;
    until_state(&mut waiting.events, "Idle").await;
    let mut all = Subscriber::new(&desk.talk.client, "/api/events?after=0", None).await;
    let mut found = Vec::new();
    loop {
        let (_, kind, change) = all.next().await.unwrap();
        let data = &change["data"];
        match kind.as_str() {
            "ToolCallRequested" => assert_eq!(text(&data["tool_calls"][0]["id"]), "call_0"),
            "ToolCallCompleted" => assert_has(data, &json!({ "tool_call_id": "call_0", "outcome": "denied" })),
            "StateChanged" if data["new_state"] == "Idle" => break,
            _ => continue,
        }
        assert_eq!(data["context_id"].as_str(), Some(waiting.context.as_str()));
        found.push(kind);
    }
    found.retain(|kind| kind != "StateChanged");
    assert_eq!(found, ["ToolCallRequested", "ToolCallCompleted"]);
}
