//! What is kept of a window gives again what was sent.

use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::strict::Strict;
use crate::contexts::text;

fn hash(told: &str) -> String {
    hex::encode(Sha256::digest(told))
}

/// The hash of each part of a request over OpenAI's wire, by what the provider was sent. That wire does not say which calls failed.
fn hashes_of(request: &Value, has_failed: impl Fn(&str) -> bool) -> Vec<String> {
    let told = request["messages"].as_array().unwrap().iter().map(|message| {
        let content = message["content"].as_str().unwrap_or_default();
        match message["role"].as_str().unwrap() {
            "system" => content.to_owned(),
            "tool" => json!(["result", message["tool_call_id"], content, has_failed(content)]).to_string(),
            role => match message["tool_calls"].as_array() {
                None => json!([role, content]).to_string(),
                Some(calls) => json!([role, content, calls.iter().map(call_of).collect::<Vec<_>>()]).to_string(),
            },
        }
    });
    told.map(|told| hash(&told)).collect()
}

fn call_of(call: &Value) -> Value {
    let function = &call["function"];
    let arguments: Value = serde_json::from_str(&text(&function["arguments"])).unwrap();
    json!([call["id"], function["name"], arguments])
}

fn hashes_in(window: &Value) -> Vec<String> {
    let spans = window["spans"].as_array().unwrap().iter();
    spans.filter(|span| span["kind"] != "tools").map(|span| text(&span["hash"])).collect()
}

fn count(window: &Value, field: &str, value: &str) -> usize {
    window["spans"].as_array().unwrap().iter().filter(|span| span[field] == value).count()
}

#[tokio::test]
async fn what_is_kept_of_a_window_gives_what_the_model_was_sent_also_after_a_restart() {
    let mut strict = Strict::new("gpt-4o").await;
    strict.ask("What does missing.txt say?").await;
    let failed = |content: &str| content.contains("missing.txt") || content.contains(" and failed; left out");
    let mut forms = [0; 3];
    for turn in 0..14 {
        strict.ask_of(turn).await;
        let (window, sent) = (strict.window().await, strict.talk.fake.requests().pop().unwrap());
        assert_eq!(hashes_in(&window), hashes_of(&sent, failed), "after turn {turn}: {window:#}");
        forms[0] += count(&window, "reason", "elided");
        forms[1] += count(&window, "reason", "shortened");
        forms[2] += count(&window, "kind", "digest");
        if turn % 5 == 2 {
            strict.restart().await;
            assert_eq!(strict.window().await, window, "after turn {turn}");
        }
    }
    assert!(forms.iter().all(|seen| *seen > 0), "each form was there: {forms:?}");
}
