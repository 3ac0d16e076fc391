//! Secrets in conversations: what a model says, calls, gets back and is sent.

use serde_json::json;
use waystone_core::Error;
use waystone_core::secret::{Policy, Secrets};
use waystone_testkit::model::Reply;

use super::{Talk, is_idle, told, until_state};

/// Put together here, so that no scanner finds one in this file.
fn key() -> String {
    ["AKIA", "Z7Q4", "M2XN", "W8LP", "T5RD"].concat()
}

fn token() -> String {
    ["q9Zt", "7Lw2", "Xc4V", "b8Nm", "3Rp6", "Ys1K"].concat()
}

async fn with(policy: Policy) -> Talk {
    let mut t = Talk::new().await;
    t.h.engine = t.h.engine.clone().with_secrets(Secrets::new(policy, Policy::Off, Vec::new()));
    t
}

#[tokio::test(flavor = "multi_thread")]
async fn who_reads_an_answer_is_warned_of_the_secret_in_it() {
    let t = with(Policy::Warn).await;
    t.fake.then(Reply::text(&format!("use {} then", key())));
    let id = t.begin().await;
    let mut reader = t.follow(&id, None).await;
    t.try_say(&id, json!({ "content": "which key?" })).await.unwrap();
    let frames = until_state(&mut reader, is_idle).await;
    let completed = told(&frames).into_iter().find(|(kind, _)| kind == "MessageCompleted").unwrap().1;
    let warning = completed["warnings"][0].as_str().unwrap();
    assert!(warning.contains("at /content") && !warning.contains(&key()), "{warning}");
    assert!(t.texts(&id, None).await[1].contains(&key()), "it is kept as it was said");
}

#[tokio::test(flavor = "multi_thread")]
async fn with_redact_a_model_is_sent_no_secret() {
    let t = with(Policy::Redact).await;
    let schema = json!({ "type": "object", "description": format!("not {}", key()) });
    let find =
        json!({ "name": "find", "read_only": true, "description": format!("uses {}", key()), "input_schema": schema });
    let id = t.create(json!({ "tools": [find], "parameters": { "user": key() } })).await.id;
    t.fake.then(Reply::calls([("find", json!({ "text": key() }))]).after_results(Reply::text("ok")));
    t.fake.otherwise(Reply::text("ok"));
    let mut reader = t.follow(&id, None).await;
    t.try_say(&id, json!({ "content": format!("my key is {}", key()) })).await.unwrap();
    let frames = until_state(&mut reader, |state| state == "ExecutingTools").await;
    let call = told(&frames).into_iter().find(|(kind, _)| kind == "ToolCallRequested").unwrap().1;
    let call = call["tool_calls"][0]["id"].as_str().unwrap().parse().unwrap();
    // Where the JSON of it is looked through, escapes hide where the one begins, and brackets whose the other is.
    let result = json!({ "found": format!("A=1\n{}\nB=2", key()), "api_token": [token()] });
    let answer = serde_json::from_value(json!({ "result": result })).unwrap();
    t.h.engine.answer_tool_call(&t.h.scope, &id, &call, answer, None).await.unwrap();
    until_state(&mut reader, is_idle).await;
    let sent = json!(t.fake.requests()).to_string();
    assert_eq!(t.fake.requests().len(), 2);
    assert!(!sent.contains(&key()) && !sent.contains(&token()), "{sent}");
    let kept = t.texts(&id, None).await;
    assert!(kept[0].contains(&key()) && kept[2].contains(&key()), "it is kept as it was said: {kept:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn with_redact_a_model_is_not_sent_the_secret_in_arguments_that_someone_changed() {
    let t = with(Policy::Redact).await;
    let id = t.create(json!({ "tools": [{ "name": "wipe" }] })).await.id;
    t.fake.then(Reply::calls([("wipe", json!({ "path": "a" }))]).after_results(Reply::text("ok")));
    let mut reader = t.follow(&id, None).await;
    t.try_say(&id, json!({ "content": "wipe it" })).await.unwrap();
    let frames = until_state(&mut reader, |state| state == "AwaitingToolApproval").await;
    let call = told(&frames).into_iter().find(|(kind, _)| kind == "ToolCallRequested").unwrap().1;
    let call = call["tool_calls"][0]["id"].as_str().unwrap().parse().unwrap();
    let (engine, scope) = (&t.h.engine, &t.h.scope);
    let edit = serde_json::from_value(json!({ "arguments": { "path": format!("A=1\n{}", key()) } })).unwrap();
    let edited = engine.edit_arguments(scope, &id, &call, edit, None).await.unwrap();
    let approve = json!({ "tool_call_ids": [call], "hashes": { (call.as_str()): edited.hash } });
    engine.approve_tools(scope, &id, serde_json::from_value(approve).unwrap()).await.unwrap();
    let answer = serde_json::from_value(json!({ "result": "wiped" })).unwrap();
    engine.answer_tool_call(scope, &id, &call, answer, None).await.unwrap();
    until_state(&mut reader, is_idle).await;
    let sent = json!(t.fake.requests()).to_string();
    assert!(sent.contains("the user changed the arguments") && !sent.contains(&key()), "{sent}");
}

#[tokio::test(flavor = "multi_thread")]
async fn with_block_no_secret_of_a_model_or_a_tool_is_told_or_kept() {
    let t = with(Policy::Block).await;
    let id = t.create(json!({ "tools": [{ "name": "find", "read_only": true }] })).await.id;
    let says = Reply::text(&format!("here is {} for you", key())).tool_calls([("find", json!({ "text": key() }))]);
    t.fake.otherwise(says.after_results(Reply::chunks(["and AKIA", &key()[4..], " again"])));
    let mut reader = t.follow(&id, None).await;
    t.try_say(&id, json!({ "content": "which key?" })).await.unwrap();
    let mut frames = until_state(&mut reader, |state| state == "ExecutingTools").await;
    let call = told(&frames).into_iter().find(|(kind, _)| kind == "ToolCallRequested").unwrap().1;
    let call = call["tool_calls"][0]["id"].as_str().unwrap().parse().unwrap();
    let answer = |text: &str| serde_json::from_value(json!({ "result": text })).unwrap();
    let refused = t.h.engine.answer_tool_call(&t.h.scope, &id, &call, answer(&key()), None).await.unwrap_err();
    assert!(matches!(refused, Error::SecretBlocked(_)), "{refused:?}");
    t.h.engine.answer_tool_call(&t.h.scope, &id, &call, answer("nothing"), None).await.unwrap();
    frames.extend(until_state(&mut reader, is_idle).await);
    let all = json!(told(&frames)).to_string();
    assert!(all.contains("here is ") && !all.contains(&key()), "{all}");
    let pool = json!(t.context(&id).await.message_pool).to_string();
    assert!(!pool.contains(&key()), "{pool}");
}

#[tokio::test(flavor = "multi_thread")]
async fn with_block_no_name_is_a_secret() {
    let t = with(Policy::Block).await;
    let call = json!({ "index": 0, "id": key(), "function": { "name": "wipe", "arguments": "{}" } });
    let event = json!({ "choices": [{ "delta": { "tool_calls": [call] }, "finish_reason": "tool_calls" }] });
    t.fake.then(Reply::events([event.to_string(), "[DONE]".to_owned()]));
    let id = t.create(json!({ "tools": [{ "name": "wipe" }] })).await.id;
    let mut reader = t.follow(&id, None).await;
    let said = t.try_say(&id, json!({ "content": "wipe it" })).await.unwrap().message_id;
    until_state(&mut reader, |state| state == "AwaitingToolApproval").await;
    assert_eq!(t.state(&id).await.pending_tool_calls[0].id.as_str(), "call");
    let branch = serde_json::from_value(json!({ "name": key(), "parent_message_id": said })).unwrap();
    assert!(matches!(t.h.engine.create_branch(&t.h.scope, &id, branch).await, Err(Error::SecretBlocked(_))));
    let edit = serde_json::from_value(json!({ "content": "again", "branch": key() })).unwrap();
    assert!(matches!(t.h.engine.edit_message(&t.h.scope, &id, &said, edit).await, Err(Error::SecretBlocked(_))));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_secret_in_a_configuration_is_told_or_refused() {
    let create = |t: &Talk| {
        let request = serde_json::from_value(json!({ "parameters": { "api_key": key() } })).unwrap();
        let (engine, scope) = (t.h.engine.clone(), t.h.scope.clone());
        async move { engine.create_context(&scope, request).await }
    };
    let t = with(Policy::Warn).await;
    let warnings = create(&t).await.unwrap().warnings;
    assert!(warnings.iter().any(|warning| warning.contains("/parameters/api_key")), "{warnings:?}");
    let t = with(Policy::Block).await;
    assert!(matches!(create(&t).await, Err(Error::SecretBlocked(_))));
    let id = t.begin().await;
    let change = serde_json::from_value(json!({ "agent_role": key() })).unwrap();
    assert!(matches!(t.h.engine.update_context(&t.h.scope, &id, change).await, Err(Error::SecretBlocked(_))));
}
