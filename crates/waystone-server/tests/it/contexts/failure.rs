//! Turns whose model fails: given up at once, tried again, saved by a person.

use serde_json::{Value, json};
use waystone_core::Limits;
use waystone_server::http::Guard;
use waystone_testkit::model::{FakeModel, Reply};

use super::{Event, Talk, client_of, outline, text, until_state, with_chat};
use crate::client::Client;

/// The error of the last event.
fn error_of(events: &[Event]) -> &Value {
    &events.last().unwrap().2["error"]
}

#[tokio::test]
async fn a_fatal_error_ends_the_turn_and_says_why_in_the_event_and_the_state() {
    let talk = Talk::new().await;
    talk.fake.then(Reply::text("no such key").status(401));
    let context = talk.create().await;
    let mut events = talk.follow(&context).await;
    talk.say(&context, "hello").await;
    let told = until_state(&mut events, "PermanentFailure").await;
    assert_eq!(outline(&told), ["ProcessingUserMessage", "AwaitingLLMResponse", "PermanentFailure"]);
    let error = error_of(&told);
    let fields: Vec<&String> = error.as_object().unwrap().keys().collect();
    assert_eq!(fields, ["code", "message", "hint"]);
    assert_eq!(error["code"], "MODEL_UNAUTHORIZED");
    assert!(text(&error["message"]).contains("no such key"), "{error}");
    assert!(text(&error["hint"]).contains("OPENAI_API_KEY"), "{error}");
    let state = talk.get(&format!("/{context}/state")).await;
    let expected = json!({
        "current_state": "PermanentFailure", "can_send_message": true, "pending_tool_approvals": 0, "branch": "main", "error": error,
    });
    assert_eq!(state, expected);
    assert_eq!(talk.get(&format!("/{context}")).await["error"], *error);
    let failed = talk.get("?state=PermanentFailure").await;
    assert_eq!((&failed["contexts"][0]["id"], &failed["contexts"][0]["error"]), (&json!(context), error));
    assert_eq!(talk.fake.requests().len(), 1, "it was not asked again");
}

#[tokio::test]
async fn a_model_without_a_provider_is_taken_and_its_turn_names_the_variable_to_set() {
    let talk = Talk { client: client_of(None), fake: FakeModel::start().await };
    let context = talk.create().await;
    let mut events = talk.follow(&context).await;
    talk.say(&context, "hello").await;
    let told = until_state(&mut events, "PermanentFailure").await;
    let error = error_of(&told);
    assert!(text(&error["message"]).contains("gpt-4") && text(&error["hint"]).contains("OPENAI_API_KEY"), "{error}");
}

#[tokio::test]
async fn after_three_failures_the_turn_is_given_up() {
    let talk = Talk::new().await;
    talk.fake.then(Reply::text("busy").status(503)).then(Reply::text("x").cut()).then(Reply::text("busy").status(503));
    let context = talk.create().await;
    let mut events = talk.follow(&context).await;
    talk.say(&context, "hello").await;
    let mut all = Vec::new();
    for _ in 0..2 {
        all.extend(until_state(&mut events, "TransientFailure").await);
        let state = talk.get(&format!("/{context}/state")).await;
        let expected = json!({
            "current_state": "TransientFailure", "can_send_message": false, "pending_tool_approvals": 0, "branch": "main",
            "error": error_of(&all),
        });
        assert_eq!(state, expected);
        talk.pass_back_off().await;
    }
    all.extend(until_state(&mut events, "PermanentFailure").await);
    let expected = [
        "ProcessingUserMessage",
        "AwaitingLLMResponse",
        "TransientFailure",
        "AwaitingLLMResponse",
        "TransientFailure",
        "AwaitingLLMResponse",
        "PermanentFailure",
    ];
    assert_eq!(outline(&all), expected);
    assert_eq!(error_of(&all)["code"], "MODEL_FAILED");
    assert_eq!(talk.fake.requests().len(), 3);
    assert_eq!(talk.said(&context, None).await, [("user".to_owned(), "hello".to_owned())]);
}

#[tokio::test]
async fn a_failure_that_passes_is_followed_by_the_answer() {
    let talk = Talk::new().await;
    talk.fake.then(Reply::text("busy").status(503)).then(Reply::text("here"));
    let context = talk.create().await;
    let mut events = talk.follow(&context).await;
    talk.say(&context, "hello").await;
    let failed = until_state(&mut events, "TransientFailure").await;
    assert!(error_of(&failed).is_object(), "{failed:?}");
    talk.pass_back_off().await;
    let told = until_state(&mut events, "Idle").await;
    let expected =
        ["AwaitingLLMResponse", "StreamingLLMResponse", "\"here\"", "ProcessingLLMResponse", "= here", "Idle"];
    assert_eq!(outline(&told), expected);
    assert!(told.iter().all(|event| event.2["error"].is_null()), "{told:?}");
    let idle =
        json!({ "current_state": "Idle", "can_send_message": true, "pending_tool_approvals": 0, "branch": "main" });
    assert_eq!(talk.get(&format!("/{context}/state")).await, idle, "nothing is left of the failure");
}

#[tokio::test]
async fn an_interrupted_answer_begins_anew_under_the_same_id() {
    let talk = Talk::new().await;
    talk.fake.then(Reply::chunks(["one ", "two "]).cut_after(2)).then(Reply::chunks(["three ", "four"]));
    let context = talk.create().await;
    let mut events = talk.follow(&context).await;
    talk.say(&context, "count").await;
    let mut told = until_state(&mut events, "TransientFailure").await;
    talk.pass_back_off().await;
    told.extend(until_state(&mut events, "Idle").await);
    let deltas: Vec<Value> =
        told.iter().filter(|event| event.1 == "ContentDelta").map(|event| event.2.clone()).collect();
    let message = &deltas[0]["message_id"];
    let delta = |delta: &str, sequence: u64, attempt: u64| json!({ "context_id": context, "message_id": message, "delta": delta, "sequence": sequence, "attempt": attempt });
    let expected = [delta("one ", 1, 1), delta("two ", 2, 1), delta("three ", 1, 2), delta("four", 2, 2)];
    assert_eq!(deltas, expected);
    let completed = &told.iter().find(|event| event.1 == "MessageCompleted").unwrap().2;
    assert_eq!((&completed["message_id"], &completed["final_content"]), (message, &json!("three four")));
    let content = talk.get(&format!("/{context}/messages/{}/content", text(message))).await;
    let expected = json!({
        "message_id": message, "content": "three four", "from_sequence": 1, "next_sequence": 3, "attempt": 2,
        "is_complete": true,
    });
    assert_eq!(content, expected);
}

#[tokio::test]
async fn a_turn_that_waits_to_try_again_can_be_hurried() {
    let talk = Talk::new().await;
    talk.fake.then(Reply::text("busy").status(503)).then(Reply::text("here"));
    let context = talk.create().await;
    let mut events = talk.follow(&context).await;
    talk.say(&context, "hello").await;
    until_state(&mut events, "TransientFailure").await;
    let retried = talk.call("POST", &format!("/{context}/retry"), None).await;
    assert_eq!(retried, (200, json!({ "context_state": "AwaitingLLMResponse" })));
    let told = until_state(&mut events, "Idle").await;
    assert_eq!(outline(&told)[0], "AwaitingLLMResponse");
    talk.client.harness.clock.advance_ms(60_000);
    talk.ask(&context, "again").await;
    assert_eq!(talk.fake.requests().len(), 3, "who waited does not ask too");
}

#[tokio::test]
async fn a_provider_that_says_when_to_come_back_is_asked_then() {
    let talk = Talk::new().await;
    talk.fake.then(Reply::text("busy").status(429).retry_after(30)).then(Reply::text("here"));
    let context = talk.create().await;
    let mut events = talk.follow(&context).await;
    talk.say(&context, "hello").await;
    until_state(&mut events, "TransientFailure").await;
    talk.client.harness.clock.wait_for_sleeper().await;
    talk.client.harness.clock.advance_ms(29_999);
    assert_eq!(talk.state(&context).await, "TransientFailure");
    talk.client.harness.clock.advance_ms(1);
    until_state(&mut events, "Idle").await;
}

#[tokio::test]
async fn what_was_given_up_can_be_tried_again_and_the_question_is_not_said_twice() {
    let talk = Talk::new().await;
    talk.fake.then(Reply::text("no").status(401)).then(Reply::text("yes"));
    let context = talk.create().await;
    let mut events = talk.follow(&context).await;
    talk.say(&context, "hello").await;
    until_state(&mut events, "PermanentFailure").await;
    let retried = talk.call("POST", &format!("/{context}/retry"), None).await;
    assert_eq!(retried, (200, json!({ "context_state": "AwaitingLLMResponse" })));
    let told = until_state(&mut events, "Idle").await;
    let expected = ["AwaitingLLMResponse", "StreamingLLMResponse", "\"yes\"", "ProcessingLLMResponse", "= yes", "Idle"];
    assert_eq!(outline(&told), expected);
    let pair = |role: &str, text: &str| (role.to_owned(), text.to_owned());
    assert_eq!(talk.said(&context, None).await, [pair("user", "hello"), pair("assistant", "yes")]);
    let requests = talk.fake.requests();
    assert_eq!(requests[0]["messages"], requests[1]["messages"]);
    talk.refuses("POST", &format!("/{context}/retry"), None, 400, "INVALID_STATE").await;
}

#[tokio::test]
async fn a_turn_that_is_tried_again_by_a_person_has_three_tries_more() {
    let talk = Talk::new().await;
    talk.fake.otherwise(Reply::text("busy").status(503));
    let context = talk.create().await;
    let mut events = talk.follow(&context).await;
    talk.say(&context, "hello").await;
    for _ in 0..2 {
        for _ in 0..2 {
            until_state(&mut events, "TransientFailure").await;
            talk.pass_back_off().await;
        }
        until_state(&mut events, "PermanentFailure").await;
        assert_eq!(talk.call("POST", &format!("/{context}/retry"), None).await.0, 200);
    }
    assert_eq!(talk.fake.requests().len() / 3, 2);
}

#[tokio::test]
async fn after_a_failure_one_can_say_something_else() {
    let talk = Talk::new().await;
    talk.fake.then(Reply::text("no").status(400));
    let context = talk.create().await;
    let mut events = talk.follow(&context).await;
    talk.say(&context, "bad").await;
    until_state(&mut events, "PermanentFailure").await;
    talk.say(&context, "good").await;
    let told = until_state(&mut events, "Idle").await;
    assert_eq!(outline(&told)[0], "ProcessingUserMessage");
    let said: Vec<String> = talk.said(&context, None).await.into_iter().map(|(_, text)| text).collect();
    assert_eq!(said, ["bad", "good", "good"]);
    assert_eq!(talk.get(&format!("/{context}")).await["error"], Value::Null);
}

#[tokio::test]
async fn an_answer_without_words_is_a_failure_and_no_message() {
    let talk = Talk::new().await;
    talk.fake.otherwise(Reply::chunks([""]));
    let context = talk.create().await;
    let mut events = talk.follow(&context).await;
    talk.say(&context, "hello").await;
    for _ in 0..2 {
        until_state(&mut events, "TransientFailure").await;
        talk.pass_back_off().await;
    }
    let told = until_state(&mut events, "PermanentFailure").await;
    assert!(error_of(&told)["code"].is_string(), "{told:?}");
    assert_eq!(talk.said(&context, None).await.len(), 1);
}

/// Readers had every word of it; that it could not be kept does not make it unsaid.
#[tokio::test]
async fn what_was_streamed_is_told_again_also_when_there_was_no_room_for_the_message() {
    let fake = FakeModel::start().await;
    let limits = Limits { total_bytes_max: 1000, ..Limits::default() };
    let client = with_chat(Client::with(limits, Guard::default()), Some(fake.base_url()));
    let mut talk = Talk { client, fake };
    talk.fake.then(Reply::chunks(["x".repeat(900), "y".repeat(900)]));
    let context = talk.create().await;
    let mut events = talk.follow(&context).await;
    talk.say(&context, "go").await;
    let told = until_state(&mut events, "PermanentFailure").await;
    assert_eq!(error_of(&told)["code"], "STORAGE_QUOTA_EXCEEDED", "{told:?}");
    assert_eq!(talk.said(&context, None).await.len(), 1);
    talk.restart().await;
    let deltas = |events: &[Event]| events.iter().filter(|event| event.1 == "ContentDelta").count();
    let mut again = talk.follow_after(&context, Some(&told[0].0)).await;
    let rest = until_state(&mut again, "PermanentFailure").await;
    assert_eq!((deltas(&told), deltas(&rest)), (2, 2), "{:?}", outline(&rest));
    talk.refuses(
        "POST",
        &format!("/{context}/messages"),
        Some(json!({ "content": "z".repeat(2000) })),
        413,
        "STORAGE_QUOTA_EXCEEDED",
    )
    .await;
}
