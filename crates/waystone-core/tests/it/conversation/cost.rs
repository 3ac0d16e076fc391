//! What an answer took, and what it cost.

use serde_json::{Value, json};
use waystone_core::api::FindWindow;
use waystone_core::id::SessionId;
use waystone_core::tokens;
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

/// The fake model counts words, of which these are many tokens each.
const LONG_WORDS: &str = "antidisestablishmentarianism floccinaucinihilipilification ";

#[tokio::test]
async fn what_a_provider_did_not_count_is_expected_as_it_counted_before() {
    let talk = Talk::new().await;
    let counted = talk.begin().await;
    talk.say(&counted, &LONG_WORDS.repeat(50)).await;
    let id = talk.create(json!({ "parameters": { "stream_options": null } })).await.id;
    talk.fake.then(Reply::text(&LONG_WORDS.repeat(5)));
    talk.say(&id, LONG_WORDS).await;

    let half = |tokens: u64| (tokens as f64 / 2.0).round() as u64;
    let messages = talk.messages(&id, None).await;
    let asked = messages[0].metadata.tokens;
    assert_eq!((asked.prompt, asked.estimated), (half(tokens::count(LONG_WORDS) as u64), true));
    let window = talk.h.engine.find_window(&talk.h.scope, &id, FindWindow { next: false, branch: None }).await.unwrap();
    let answered = messages[1].metadata.tokens;
    let written = tokens::count(&messages[1].text()) as u64;
    assert_eq!((answered.prompt, answered.completion), (half(window.tokens), half(written)));
    assert!(answered.estimated);
}

#[tokio::test]
async fn a_message_to_a_model_that_counts_as_we_do_is_no_estimate() {
    let talk = Talk::new().await;
    for model in ["demo", "gpt-4o"] {
        let id = talk.create(json!({ "model_id": model })).await.id;
        talk.say(&id, LONG_WORDS).await;
        let tokens = talk.messages(&id, None).await[0].metadata.tokens;
        assert_eq!((tokens.prompt, tokens.estimated), (tokens::count(LONG_WORDS) as u64, false), "{model}");
    }
}

#[tokio::test]
async fn what_the_demo_counts_changes_no_count_of_ours() {
    let talk = Talk::new().await;
    let id = talk.create(json!({ "model_id": "demo" })).await.id;
    let budget = async || {
        let request = FindWindow { next: true, branch: None };
        talk.h.engine.find_window(&talk.h.scope, &id, request).await.unwrap().budget
    };
    let before = budget().await;
    talk.say(&id, &LONG_WORDS.repeat(50)).await;
    assert_eq!(budget().await, before);
}
