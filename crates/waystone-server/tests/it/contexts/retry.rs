//! Requests that are sent twice under one `Idempotency-Key`: the first answer again, and one effect.

use serde_json::{Value, json};
use waystone_testkit::model::Reply;

use super::{Talk, assert_refused, text, until_state};

#[tokio::test]
async fn a_context_is_created_once() {
    let talk = Talk::new().await;
    let body = json!({ "model_id": "gpt-4" });
    let first = talk.post_keyed("", "k", &body).await;
    assert_eq!(first.0, 201);
    assert_eq!(talk.post_keyed("", "k", &body).await, first);
    let mut in_body = body.clone();
    in_body["idempotency_key"] = json!("k");
    assert_eq!(talk.post("", in_body.clone()).await, first, "the header and the field are the same thing");
    assert_refused(&talk.post_keyed("", "other", &in_body).await, 400, "VALIDATION_ERROR", "two keys");
    assert_refused(&talk.post_keyed("", "k", &json!({ "model_id": "demo" })).await, 409, "CONFLICT", "another body");
    assert_eq!(talk.get("").await["contexts"].as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn a_message_is_said_once_and_answered_the_same_while_its_turn_runs_and_after() {
    let talk = Talk::new().await;
    talk.fake.then(Reply::text("answer").gated());
    let context = talk.create().await;
    let path = format!("/{context}/messages");
    let body = json!({ "content": "hello" });
    let mut events = talk.follow(&context).await;
    let first = talk.post_keyed(&path, "k", &body).await;
    assert_eq!((first.0, &first.1["context_state"]), (201, &json!("ProcessingUserMessage")));
    until_state(&mut events, "AwaitingLLMResponse").await;
    let again = talk.post_keyed(&path, "k", &body).await;
    assert_eq!((again.0, &again.1["message_id"]), (201, &first.1["message_id"]));
    assert_refused(&talk.post_keyed(&path, "k", &json!({ "content": "x" })).await, 409, "CONFLICT", "another body");
    assert_refused(&talk.post_keyed(&path, "new", &body).await, 400, "INVALID_STATE", "another key");
    talk.fake.release(1);
    until_state(&mut events, "Idle").await;
    let again = talk.post_keyed(&path, "k", &body).await;
    assert_eq!((again.0, &again.1["message_id"]), (201, &first.1["message_id"]));
    assert_refused(&talk.post_keyed(&path, "k", &json!({ "content": "x" })).await, 409, "CONFLICT", "another body");
    assert_eq!((talk.said(&context, None).await.len(), talk.fake.requests().len()), (2, 1));
    assert_eq!(talk.post_keyed(&path, "new", &body).await.0, 201, "a key that was refused is free");
}

/// A retry returns the first answer, not what has become of it.
#[tokio::test]
async fn the_answer_to_a_message_sent_again_is_the_first_one_whole() {
    let talk = Talk::new().await;
    let context = talk.create().await;
    let path = format!("/{context}/messages");
    let body = json!({ "content": "hello" });
    let mut events = talk.follow(&context).await;
    let first = talk.post_keyed(&path, "k", &body).await;
    until_state(&mut events, "Idle").await;
    assert_eq!(talk.post_keyed(&path, "k", &body).await, first);
}

#[tokio::test]
async fn two_of_the_same_at_once_are_one() {
    let talk = Talk::new().await;
    talk.fake.then(Reply::text("answer").gated());
    let context = talk.create().await;
    let path = format!("/{context}/messages");
    let body = json!({ "content": "hello" });
    let (one, two) = tokio::join!(talk.post_keyed(&path, "k", &body), talk.post_keyed(&path, "k", &body));
    assert_eq!((one.0, two.0, &one.1["message_id"]), (201, 201, &two.1["message_id"]));
    assert_eq!(talk.said(&context, None).await.len(), 1);
}

#[tokio::test]
async fn an_edit_is_made_once() {
    let talk = Talk::new().await;
    let context = talk.create().await;
    let (question, _) = talk.ask(&context, "one").await;
    let path = format!("/{context}/messages/{question}");
    let mut body = json!({ "content": "uno" });
    let mut events = talk.follow(&context).await;
    let first = talk.call_keyed("PUT", &path, "k", &body).await;
    assert_eq!(first.0, 201);
    until_state(&mut events, "Idle").await;
    assert_eq!(talk.call_keyed("PUT", &path, "k", &body).await, first);
    body["idempotency_key"] = json!("k");
    assert_eq!(talk.call("PUT", &path, Some(body.clone())).await, first, "the header and the field are the same thing");
    assert_refused(&talk.call_keyed("PUT", &path, "other", &body).await, 400, "VALIDATION_ERROR", "two keys");
    let branches = talk.get(&format!("/{context}/branches")).await;
    assert_eq!((branches["branches"].as_array().unwrap().len(), talk.fake.requests().len()), (2, 2));
}

#[tokio::test]
async fn a_branch_is_created_once() {
    let talk = Talk::new().await;
    let context = talk.create().await;
    let (question, _) = talk.ask(&context, "one").await;
    let path = format!("/{context}/branches");
    let body = json!({ "name": "b", "parent_message_id": question });
    let first = talk.post_keyed(&path, "k", &body).await;
    assert_eq!(first.0, 201);
    assert_eq!(talk.post_keyed(&path, "k", &body).await, first);
    assert_refused(&talk.post_keyed(&path, "k", &json!({ "name": "c" })).await, 409, "CONFLICT", "another body");
    assert_eq!(talk.get(&path).await["branches"].as_array().unwrap().len(), 2);
}

#[tokio::test]
async fn the_answer_to_a_branch_created_again_is_the_first_one_whole() {
    let talk = Talk::new().await;
    let context = talk.create().await;
    let path = format!("/{context}/branches");
    let body = json!({ "name": "b" });
    let first = talk.post_keyed(&path, "k", &body).await;
    talk.call("PUT", &format!("{path}/b"), None).await;
    talk.ask(&context, "one").await;
    assert_eq!(talk.post_keyed(&path, "k", &body).await, first);
    talk.call("PUT", &format!("{path}/main"), None).await;
    talk.call("DELETE", &format!("{path}/b"), None).await;
    assert_eq!(talk.post_keyed(&path, "k", &body).await, first, "it was created, whatever came after");
}

#[tokio::test]
async fn the_answer_to_a_context_created_again_is_the_first_one_whole() {
    let talk = Talk::new().await;
    let body = json!({ "model_id": "gpt-4" });
    let first = talk.post_keyed("", "k", &body).await;
    let context = text(&first.1["id"]);
    talk.ask(&context, "one").await;
    talk.call("PUT", &format!("/{context}"), Some(json!({ "mode": "plan" }))).await;
    assert_eq!(talk.post_keyed("", "k", &body).await, first);
}

#[tokio::test]
async fn a_failed_turn_is_tried_again_once() {
    let talk = Talk::new().await;
    talk.fake.then(Reply::text("no").status(401)).then(Reply::text("no").status(401)).then(Reply::text("yes").gated());
    let context = talk.create().await;
    let path = format!("/{context}/retry");
    let mut events = talk.follow(&context).await;
    talk.say(&context, "hello").await;
    until_state(&mut events, "PermanentFailure").await;
    let first = talk.post_keyed(&path, "k", &Value::Null).await;
    assert_eq!(first, (200, json!({ "context_state": "AwaitingLLMResponse" })));
    until_state(&mut events, "PermanentFailure").await;
    assert_eq!(talk.post_keyed(&path, "k", &Value::Null).await.0, 200);
    assert_eq!(talk.state(&context).await, "PermanentFailure", "it was tried for this key");
    assert_eq!(talk.fake.requests().len(), 2);
    assert_eq!(talk.post_keyed(&path, "l", &Value::Null).await, first);
    until_state(&mut events, "AwaitingLLMResponse").await;
    assert_eq!(talk.post_keyed(&path, "l", &Value::Null).await, first, "while it runs too");
    talk.fake.release(1);
    until_state(&mut events, "Idle").await;
    assert_eq!(talk.fake.requests().len(), 3);
}

#[tokio::test]
async fn a_key_is_one_of_its_place() {
    let talk = Talk::new().await;
    let (one, two) = (talk.create().await, talk.create().await);
    let body = json!({ "content": "hello" });
    let first = talk.post_keyed(&format!("/{one}/messages"), "k", &body).await;
    let second = talk.post_keyed(&format!("/{two}/messages"), "k", &body).await;
    assert_eq!((first.0, second.0), (201, 201));
    assert_ne!(first.1["message_id"], second.1["message_id"]);
    assert_eq!(talk.post_keyed("", "k", &json!({})).await.0, 201);
}
