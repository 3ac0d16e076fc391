//! What an answer took, and what it cost.

use serde_json::{Value, json};
use waystone_core::id::SessionId;
use waystone_testkit::model::Reply;

use super::Talk;

/// The metadata of the last message, as it is on the wire.
async fn last(talk: &Talk, id: &SessionId) -> Value {
    let messages = talk.messages(id, None).await;
    serde_json::to_value(&messages.last().unwrap().metadata).unwrap()
}

#[tokio::test]
async fn an_answer_says_what_came_from_the_cache_and_what_it_cost() {
    let mut talk = Talk::new().await;
    let id = talk.create(json!({ "model_id": "priced" })).await.id;
    talk.fake.then(Reply::chunks(["one ", "two"]).cached(3, 0));
    talk.say(&id, "four words are said").await;

    let said = last(&talk, &id).await;
    let prompt = said["tokens"]["prompt"].as_u64().unwrap();
    assert_eq!(said["tokens"], json!({ "prompt": prompt, "completion": 2, "total": prompt + 2, "cache_read": 3 }));
    let cost = ((prompt - 3) as f64 * 2.0 + 3.0 * 0.5 + 2.0 * 8.0) / 1e6;
    assert_eq!(said["cost_usd"], json!(cost));

    talk.restart().await;
    assert_eq!(last(&talk, &id).await, said);
    let copy = talk.create(json!({ "parent_id": id })).await.id;
    let copied = last(&talk, &copy).await;
    assert_eq!((&copied["tokens"], &copied["cost_usd"]), (&said["tokens"], &said["cost_usd"]));
}

#[tokio::test]
async fn what_is_not_known_is_left_out() {
    let talk = Talk::new().await;
    let id = talk.begin().await;
    talk.say(&id, "hello").await;
    let said = last(&talk, &id).await;
    assert_eq!(
        (&said["cost_usd"], &said["tokens"]["cache_read"], &said["tokens"]["cache_write"]),
        (&Value::Null, &Value::Null, &Value::Null)
    );
    assert!(!said.as_object().unwrap().contains_key("cost_usd"), "{said}");
}

#[tokio::test]
async fn a_cost_is_an_estimate_where_the_tokens_are_one() {
    let talk = Talk::new().await;
    let id = talk.create(json!({ "model_id": "priced", "parameters": { "stream_options": null } })).await.id;
    talk.say(&id, "hello").await;
    let said = last(&talk, &id).await;
    assert_eq!(said["tokens"]["estimated"], true);
    let tokens = |name: &str| said["tokens"][name].as_u64().unwrap() as f64;
    assert_eq!(said["cost_usd"], json!((tokens("prompt") * 2.0 + tokens("completion") * 8.0) / 1e6));
}
