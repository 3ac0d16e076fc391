//! What binds a call: the folder in which it was looked at, the room there is for what it returns, and the time that a client has.

use waystone_core::Limits;
use waystone_core::api::Deletion;
use waystone_testkit::Harness;

use super::*;

#[tokio::test(flavor = "multi_thread")]
async fn a_call_runs_in_the_folder_in_which_it_was_looked_at() {
    let mut b = Bench::new().await;
    b.t.fake.then(Reply::calls([note("eggs")])).then(Reply::text("Done."));
    let id = b.t.create(json!({ "workspace_path": "/home/dev/one" })).await.id;
    b.say(&id, "Note eggs.").await;
    let call = b.t.state(&id).await.pending_tool_calls[0].clone();
    assert_eq!(call.workspace_path.as_deref(), Some("/home/dev/one"));
    let elsewhere = serde_json::from_value(json!({ "workspace_path": "/home/dev/two" })).unwrap();
    b.t.h.engine.update_context(&b.t.h.scope, &id, elsewhere).await.unwrap();
    b.restart().await;
    let edit = EditArguments { arguments: Map::from_iter([("line".to_owned(), "milk".into())]) };
    let edited = b.t.h.engine.edit_arguments(&b.t.h.scope, &id, &call.id, edit, None).await.unwrap();
    let mut reader = b.t.follow(&id, None).await;
    let hashes = [(call.id.to_string(), edited.hash)].into();
    let approval = DecideTools { hashes, ..of(&[call.id.as_str()]) };
    b.t.h.engine.approve_tools(&b.t.h.scope, &id, approval).await.unwrap();
    until_rest(&mut reader).await;
    assert_eq!(
        (b.notes().as_str(), b.notes.folders.lock().unwrap().clone()),
        ("milk\n", vec![Some("/home/dev/one".to_owned())])
    );
    b.check(&id).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn that_a_tool_has_run_is_kept_though_there_is_no_room_for_what_it_returned() {
    let mut b = Bench::new().await;
    b.t.h = Harness::with_limits(Limits { total_bytes_max: 100_000, ..Limits::default() });
    b.t.h.engine = b.equip(b.t.h.engine.clone());
    std::fs::write(&b.notes.file, "milk\n".repeat(50_000)).unwrap();
    b.t.fake.then(Reply::calls([("look", json!({})), ("look", json!({}))])).then(Reply::text("Very long."));
    let id = b.t.begin().await;
    assert_eq!(b.say(&id, "What is on the list?").await.last().unwrap(), "Idle");
    let messages = b.t.messages(&id, None).await;
    for part in &messages[1].content {
        let call = b.call(&id, json!(part)["id"].as_str().unwrap()).await;
        assert_eq!(call.outcome, Some(ToolOutcome::Succeeded));
        let told = call.result.unwrap().to_string();
        assert!(told.contains("it has run, and what it returned is not kept"), "{told}");
    }
    b.check(&id).await;
}

/// The other process is heard of only after a moment, in which the time runs out.
#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_a_client_gave_in_the_last_moment_counts() {
    let b = Bench::new().await;
    let id = b.t.create(json!({ "tools": [{ "name": "weather", "read_only": true }] })).await.id;
    b.t.fake.then(Reply::calls([("weather", json!({}))])).then(Reply::text("Fine."));
    let mut reader = b.t.follow(&id, None).await;
    b.t.try_say(&id, json!({ "content": "?" })).await.unwrap();
    let frames = until_state(&mut reader, |state| state == "ExecutingTools").await;
    let requested = told(&frames).into_iter().find(|(kind, _)| kind == "ToolCallRequested").unwrap().1;
    let call = requested["tool_calls"][0]["id"].as_str().unwrap().parse().unwrap();
    let answer = serde_json::from_value(json!({ "result": "sun" })).unwrap();
    b.t.h.second().answer_tool_call(&b.t.h.scope, &id, &call, answer, None).await.unwrap();
    b.t.h.clock.advance_ms(300_000);
    until_rest(&mut reader).await;
    let call = b.call(&id, call.as_str()).await;
    assert_eq!((call.result, call.outcome), (Some(json!("sun")), Some(ToolOutcome::Succeeded)));
    b.check(&id).await;
}

/// A conversation in which a client has answered one call while another waits for a decision.
async fn answered_early(b: &Bench) -> (SessionId, String) {
    let id = b.t.create(json!({ "tools": [{ "name": "pay" }] })).await.id;
    b.t.fake.then(Reply::calls([("pay", json!({ "to": "one" })), ("pay", json!({ "to": "two" }))]));
    b.t.fake.otherwise(Reply::text("Paid."));
    b.say(&id, "Pay both.").await;
    let call = b.t.state(&id).await.pending_tool_calls[0].id.to_string();
    b.approve(&id, &[&call]).await.unwrap();
    let answer = serde_json::from_value(json!({ "result": "PAYMENT 4711 DONE" })).unwrap();
    b.t.h.engine.answer_tool_call(&b.t.h.scope, &id, &call.parse().unwrap(), answer, None).await.unwrap();
    let shown = b.call(&id, &call).await;
    assert_eq!((shown.result, shown.outcome), (Some(json!("PAYMENT 4711 DONE")), Some(ToolOutcome::Succeeded)));
    (id, call)
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_client_answered_is_kept_when_the_turn_is_ended() {
    let b = Bench::new().await;
    let (id, call) = answered_early(&b).await;
    b.t.h.engine.cancel_turn(&b.t.h.scope, &id, None).await.unwrap();
    let kept = b.call(&id, &call).await;
    assert_eq!((kept.result, kept.outcome), (Some(json!("PAYMENT 4711 DONE")), Some(ToolOutcome::Succeeded)));
    b.say(&id, "Did you?").await;
    let told = b.t.fake.requests().pop().unwrap()["messages"].to_string();
    assert!(told.contains("PAYMENT 4711 DONE"), "{told}");
    b.check(&id).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_client_answered_is_kept_when_the_conversation_is_deleted_and_restored() {
    let b = Bench::new().await;
    let (id, call) = answered_early(&b).await;
    b.t.h.engine.delete_context(&b.t.h.scope, &id, Deletion::default()).await.unwrap();
    b.t.h.engine.restore_session(&b.t.h.scope, &id).await.unwrap();
    assert_eq!(b.call(&id, &call).await.result, Some(json!("PAYMENT 4711 DONE")));
    b.check(&id).await;
}
