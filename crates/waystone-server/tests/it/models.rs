//! `/api/models`

use std::collections::BTreeMap;
use std::net::TcpListener;
use std::sync::Arc;

use serde_json::{Value, json};
use waystone_connect::{ProviderSettings, Providers};
use waystone_core::Chat;
use waystone_server::http::{Guard, Http};

use crate::client::{Client, assert_error};

const KEY: &str = "sk-canary-of-models";

fn client(model_id: &str) -> Client {
    let nowhere = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let settings = ProviderSettings {
        openai_api_key: Some(KEY.to_owned()),
        ollama_host: Some(nowhere.to_string()),
        models: serde_json::from_value(json!({
            "mine": { "provider": "openai", "name": "gpt-4o", "limit": 9000, "prices": { "input": 1.5, "output": 6 } },
        }))
        .unwrap(),
        model_limits: BTreeMap::from([("gpt-5".to_owned(), 4000)]),
        ..ProviderSettings::default()
    };
    let chat = Chat { model: Arc::new(Providers::new(settings)), model_id: model_id.to_owned(), ..Chat::default() };
    let client = Client::new();
    let engine = client.harness.engine.clone().with_chat(chat);
    let router = Http::new(engine, "tester", client.stop.subscribe()).router(Guard::default());
    Client { router, ..client }
}

fn find<'a>(list: &'a Value, id: &str) -> &'a Value {
    list["models"].as_array().unwrap().iter().find(|model| model["id"] == id).unwrap_or(&Value::Null)
}

#[tokio::test]
async fn models_are_listed_with_who_answers_and_what_they_need() {
    let (status, list) = client("demo").get("/api/models").await;
    assert_eq!((status.as_u16(), &list["default_model"]), (200, &json!("demo")));
    assert_eq!(
        find(&list, "mine"),
        &json!({
            "id": "mine", "provider": "openai", "name": "gpt-4o", "limit": 9000,
            "prices": { "input": 1.5, "output": 6.0 }, "ready": true,
        })
    );
    assert_eq!((&find(&list, "gpt-5")["limit"], &find(&list, "gpt-5")["ready"]), (&json!(4000), &json!(true)));
    let claude = find(&list, "claude-sonnet-4-5");
    assert_eq!((&claude["provider"], &claude["ready"]), (&json!("anthropic"), &json!(false)));
    assert_eq!(claude["hint"], "set ANTHROPIC_API_KEY");
    assert_eq!(find(&list, "demo")["ready"], true);
    assert!(!list.to_string().contains(KEY), "{list}");
}

#[tokio::test]
async fn the_default_is_listed_though_nothing_is_known_of_it() {
    let (_, list) = client("claude-of-tomorrow").get("/api/models").await;
    assert_eq!(list["default_model"], "claude-of-tomorrow");
    let expected = json!({
        "id": "claude-of-tomorrow", "provider": "anthropic", "name": "claude-of-tomorrow", "limit": 200_000,
        "ready": false, "hint": "set ANTHROPIC_API_KEY",
    });
    assert_eq!(list["models"][0], expected);
    assert_eq!(find(&client("what-is-this").get("/api/models").await.1, "what-is-this")["limit_assumed"], true);
}

#[tokio::test]
async fn whoever_asks_for_models_says_nothing_more() {
    assert_error(client("demo").get("/api/models?x=1").await, 400, "INVALID_INPUT");
}
