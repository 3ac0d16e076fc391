//! Tools that a client declares, and answers itself.

use serde_json::{Value, json};
use waystone_core::secret::Policy;
use waystone_testkit::model::Reply;
use waystone_testkit::secrets::planted;

use super::super::assert_refused;
use super::{Desk, Waiting, ask_weather, assert_has, assert_paired, completed, text, until_state, weather, write};
use crate::client::Client;
use crate::events::Subscriber;

/// A conversation in which a call of `look`, which only reads, waits for its client's answer.
async fn looking(desk: &Desk) -> (String, Subscriber) {
    let context = desk.create_with(json!([{ "name": "look", "read_only": true }, weather()])).await;
    desk.talk.fake.then(Reply::calls([("look", json!({ "at": "sky" }))])).then(Reply::text("Done."));
    let mut events = desk.talk.follow(&context).await;
    desk.talk.say(&context, "Look.").await;
    until_state(&mut events, "ExecutingTools").await;
    (context, events)
}

#[tokio::test]
async fn the_model_is_told_of_a_clients_tool_as_it_was_declared() {
    let desk = Desk::new().await;
    let context = desk.create_with(json!([weather()])).await;
    desk.talk.ask(&context, "hello").await;
    let request = desk.talk.fake.requests().pop().unwrap();
    let offered = request["tools"].as_array().unwrap().iter();
    let found = offered.map(|tool| &tool["function"]).find(|function| function["name"] == "get_weather").unwrap();
    let declared = weather();
    let expected = json!({ "description": declared["description"], "parameters": declared["input_schema"] });
    assert_has(found, &expected);
}

#[tokio::test]
async fn what_the_client_said_only_reads_waits_for_its_answer_alone() {
    let desk = Desk::new().await;
    let (context, mut events) = looking(&desk).await;
    let state = desk.talk.get(&format!("/{context}/state")).await;
    assert_has(&state, &json!({ "can_send_message": false, "pending_tool_approvals": 0 }));
    let (status, answered) = desk.answer(&context, "call_0", json!({ "result": "It is blue." })).await;
    assert_eq!(status, 200, "{answered}");
    assert_has(&answered, &json!({ "result": "It is blue.", "outcome": "succeeded", "approval_status": "Approved" }));
    let told = until_state(&mut events, "Idle").await;
    assert_eq!(completed(&told), [("call_0".to_owned(), "succeeded".to_owned())]);
    assert_eq!(desk.results(), [("call_0".to_owned(), "It is blue.".to_owned())]);
}

#[tokio::test]
async fn an_answer_may_be_anything_that_json_can_say() {
    for result in [
        json!(null),
        json!(0),
        json!(false),
        json!([]),
        json!({}),
        json!(""),
        json!("żółć \u{0}"),
        json!([1, { "a": [null] }]),
        (0..130).fold(json!(1), |inner, _| json!([inner])),
    ] {
        let desk = Desk::new().await;
        let (context, mut events) = looking(&desk).await;
        let (status, answered) = desk.answer(&context, "call_0", json!({ "result": result })).await;
        assert_eq!(status, 200, "{result}: {answered}");
        until_state(&mut events, "Idle").await;
        let call = desk.call(&context, "call_0").await;
        assert_eq!((call.get("result"), &call["outcome"]), (Some(&result), &json!("succeeded")));
    }
}

#[tokio::test]
async fn an_error_of_a_client_is_told_to_the_model() {
    let desk = Desk::new().await;
    let (context, mut events) = looking(&desk).await;
    let (status, answered) = desk.answer(&context, "call_0", json!({ "result": "clouds", "is_error": true })).await;
    assert_eq!(status, 200, "{answered}");
    let told = until_state(&mut events, "Idle").await;
    assert_eq!(completed(&told), [("call_0".to_owned(), "failed".to_owned())]);
    assert!(desk.results()[0].1.contains("clouds"), "{:?}", desk.results());
    let call = desk.call(&context, "call_0").await;
    assert_has(&call, &json!({ "approval_status": "Approved", "outcome": "failed", "result": "clouds" }));
    let message = desk.talk.get(&format!("/{context}/messages/{}", text(&call["result_message_id"]))).await;
    assert_eq!(message["content"][0]["is_error"], true, "{message}");
}

#[tokio::test]
async fn a_second_answer_is_refused_and_the_first_one_stays() {
    let desk = Desk::new().await;
    let (context, mut events) = looking(&desk).await;
    assert_eq!(desk.answer(&context, "call_0", json!({ "result": "first" })).await.0, 200);
    let at_once = desk.answer(&context, "call_0", json!({ "result": "second" })).await;
    assert_refused(&at_once, 409, "CONFLICT", "at once");
    until_state(&mut events, "Idle").await;
    let later = desk.answer(&context, "call_0", json!({ "result": "third" })).await;
    assert_refused(&later, 409, "CONFLICT", "after the turn");
    assert_eq!(desk.call(&context, "call_0").await["result"], "first");
    assert_eq!(desk.results(), [("call_0".to_owned(), "first".to_owned())]);
}

#[tokio::test]
async fn of_many_answers_at_once_one_is_taken() {
    let desk = Desk::new().await;
    let (context, mut events) = looking(&desk).await;
    let answers = (0..8).map(|n| desk.answer(&context, "call_0", json!({ "result": n })));
    let answers = futures_util::future::join_all(answers).await;
    let taken: Vec<_> = answers.iter().filter(|(status, _)| *status == 200).collect();
    assert_eq!(taken.len(), 1, "{answers:?}");
    until_state(&mut events, "Idle").await;
    assert_eq!(desk.call(&context, "call_0").await["result"], taken[0].1["result"]);
}

#[tokio::test]
async fn an_answer_that_is_sent_again_with_its_key_gets_the_first_reply() {
    let desk = Desk::new().await;
    let (context, mut events) = looking(&desk).await;
    let path = format!("/{context}/tools/call_0/result");
    let body = json!({ "result": "blue" });
    let first = desk.talk.post_keyed(&path, "k", &body).await;
    assert_eq!(first.0, 200, "{first:?}");
    assert_eq!(desk.talk.post_keyed(&path, "k", &body).await, first);
    let other = json!({ "result": "red" });
    assert_refused(&desk.talk.post_keyed(&path, "k", &other).await, 409, "CONFLICT", "another body");
    until_state(&mut events, "Idle").await;
    assert_eq!(desk.talk.post_keyed(&path, "k", &body).await, first, "and when the turn is over");
    assert_eq!(desk.call(&context, "call_0").await["result"], "blue");
}

#[tokio::test]
async fn nothing_is_answered_before_it_is_approved() {
    let desk = Desk::new().await;
    let mut waiting = desk.wait([ask_weather("London"), ask_weather("Paris")]).await;
    let early = desk.answer(&waiting.context, "call_0", json!({ "result": "rain" })).await;
    assert!([400, 409].contains(&early.0), "before approval: {early:?}");
    assert_refused(&early, early.0, if early.0 == 400 { "INVALID_STATE" } else { "CONFLICT" }, "before approval");
    assert!(desk.call(&waiting.context, "call_0").await["result"].is_null());
    assert_eq!(desk.decide(&waiting.context, "deny", &["call_0"]).await.0, 200);
    let denied = desk.answer(&waiting.context, "call_0", json!({ "result": "rain" })).await;
    assert_eq!(denied.0 / 100, 4, "after denial: {denied:?}");
    assert_eq!(desk.decide(&waiting.context, "approve", &["call_1"]).await.0, 200);
    assert_eq!(desk.answer(&waiting.context, "call_1", json!({ "result": "dry" })).await.0, 200);
    until_state(&mut waiting.events, "Idle").await;
    assert!(!desk.results()[0].1.contains("rain"), "{:?}", desk.results());
    assert_paired(&desk.talk.fake.requests());
}

#[tokio::test]
async fn a_client_answers_for_no_tool_but_its_own() {
    let desk = Desk::new().await;
    let mut waiting = desk.wait([super::read("README.md"), write("a.txt", "a")]).await;
    let Waiting { context, .. } = &waiting;
    let forged = json!({ "result": "forged" });
    for call in ["call_0", "call_1"] {
        let answer = desk.answer(context, call, forged.clone()).await;
        assert_eq!(answer.0 / 100, 4, "{call}: {answer:?}");
        assert_refused(&answer, answer.0, &text(&answer.1["error"]["code"]), call);
    }
    assert_eq!(desk.decide(context, "approve", &["call_1"]).await.0, 200);
    until_state(&mut waiting.events, "Idle").await;
    let answer = desk.answer(&waiting.context, "call_1", forged).await;
    assert_eq!(answer.0 / 100, 4, "{answer:?}");
    assert_eq!(desk.file("a.txt").as_deref(), Some("a"));
    assert!(desk.results().iter().all(|(_, result)| !result.contains("forged")), "{:?}", desk.results());
}

#[tokio::test]
async fn a_tool_that_is_declared_badly_is_refused_by_name() {
    let desk = Desk::new().await;
    let long = "x".repeat(65);
    let many: Vec<Value> = (0..1000).map(|n| json!({ "name": format!("tool_{n}") })).collect();
    let declarations = [
        json!([{ "name": "" }]),
        json!([{ "name": "a b" }]),
        json!([{ "name": "a/b" }]),
        json!([{ "name": "../x" }]),
        json!([{ "name": "żółć" }]),
        json!([{ "name": "a\u{0}" }]),
        json!([{ "name": long }]),
        json!([{ "name": 1 }]),
        json!([{ "name": null }]),
        json!([{ "description": "no name" }]),
        json!([{ "name": "a" }, { "name": "a" }]),
        json!([{ "name": "a", "description": "one" }, { "name": "b" }, { "name": "a", "description": "two" }]),
        json!(many),
        json!([{ "name": "a", "description": 1 }]),
        json!([{ "name": "a", "input_schema": "object" }]),
        json!([{ "name": "a", "input_schema": [] }]),
        json!([{ "name": "a", "input_schema": null }]),
        json!([{ "name": "a", "input_schema": true }]),
        json!([{ "name": "a", "input_schema": { "type": "string" } }]),
        json!([{ "name": "a", "input_schema": { "type": ["object", "null"] } }]),
        json!([{ "name": "a", "input_schema": { "type": 1 } }]),
        json!([{ "name": "a", "read_only": "yes" }]),
        json!([{ "name": "a", "idempotent": 1 }]),
        json!([{ "name": "a", "unknown": 1 }]),
        json!([{ "name": "a", "readOnly": true }]),
        json!(["a"]),
        json!([null]),
        json!({ "name": "a" }),
        json!("a"),
        json!(1),
    ];
    let mut taken = Vec::new();
    for tools in declarations {
        let shown: String = tools.to_string().chars().take(100).collect();
        let answer = desk.talk.post("", json!({ "model_id": "gpt-4", "tools": tools })).await;
        if (answer.0, &answer.1["error"]["code"]) != (400, &json!("VALIDATION_ERROR")) {
            taken.push((shown, answer));
        }
    }
    assert!(taken.is_empty(), "{taken:#?}");
    assert_eq!(desk.talk.get("").await["contexts"], json!([]));
    let whole =
        json!([{ "name": "a-B_9", "description": "", "input_schema": {}, "read_only": false, "idempotent": true }]);
    let longest = json!([{ "name": "x".repeat(64), "input_schema": { "type": "object" } }]);
    for tools in [json!([]), whole, longest] {
        assert_eq!(desk.talk.post("", json!({ "tools": tools })).await.0, 201, "{tools}");
    }
}

/// A tool of the folder and one of the client under one name: which of them is asked must not be left to chance.
#[tokio::test]
async fn a_clients_tool_does_not_take_the_place_of_the_folders() {
    let desk = Desk::new().await;
    let folder = desk.folder.path().to_str().unwrap();
    let body = json!({ "model_id": "gpt-4", "workspace_path": folder, "tools": [{ "name": "write_file", "read_only": true }] });
    let (status, created) = desk.talk.post("", body).await;
    if status == 201 {
        let list = desk.talk.get(&format!("/{}/tools", text(&created["id"]))).await;
        let named = list["tools"].as_array().unwrap().iter().filter(|tool| tool["name"] == "write_file").count();
        assert_eq!(named, 1, "the model cannot tell them apart: {list}");
        return;
    }
    assert_refused(&(status, created), 400, "VALIDATION_ERROR", "a name of the folder's");
}

#[tokio::test]
async fn an_answer_is_searched_for_secrets_like_all_that_is_kept() {
    let secret = planted(1).into_iter().find(|planted| planted.rule == "github-token").unwrap().secret;
    for (policy, is_kept) in [(Policy::Warn, true), (Policy::Block, false)] {
        let mut client = Client::new();
        client.harness = client.harness.with_secrets(policy, Policy::Off);
        let desk = Desk::with(client, Default::default()).await;
        let (context, mut events) = looking(&desk).await;
        let (status, answered) =
            desk.answer(&context, "call_0", json!({ "result": format!("GITHUB_TOKEN={secret}") })).await;
        assert!(status == 200 || (status == 422 && !is_kept), "{answered}");
        if status == 422 {
            assert_refused(&(status, answered), 422, "SECRET_BLOCKED", "an answer with a secret");
            assert_eq!(desk.answer(&context, "call_0", json!({ "result": "none" })).await.0, 200);
        } else if is_kept {
            assert!(text(&answered["warnings"][0]).contains("github-token"), "who answers is told: {answered}");
        }
        let told = until_state(&mut events, "Idle").await;
        for (_, kind, data) in told.iter().filter(|(_, kind, _)| kind == "ToolCallCompleted") {
            assert!(!data.to_string().contains(&secret), "{kind}: {data}");
        }
        let call = desk.call(&context, "call_0").await;
        assert_eq!(call["result"].to_string().contains(&secret), is_kept, "{call}");
    }
}
