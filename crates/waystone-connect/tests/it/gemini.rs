//! Gemini over chat completions: what it does otherwise.

use serde_json::{Value, json};
use waystone_connect::Providers;
use waystone_core::model::{Model, ModelCall, Said};
use waystone_testkit::model::Reply;

use crate::ask::{call_with_tools, called, calls, drain, text};
use crate::everyone::{Everyone, refusal};

#[tokio::test]
async fn geminis_calls_are_read_as_it_writes_them_and_signed_when_they_go_back() {
    let everyone = Everyone::start().await;
    let providers = Providers::new(everyone.settings());
    let signed = json!({ "google": { "thought_signature": "CiQBjz1rX7w" } });
    let weather = json!({
        "extra_content": signed, "function": { "arguments": "{\"city\":\"Bern\"}", "name": "weather" },
        "id": "function-call-1", "type": "function",
    });
    let time = json!({ "function": { "arguments": "{}", "name": "time" }, "id": "", "type": "function" });
    let events = [
        json!({ "choices": [{ "delta": { "content": "Let me see.", "role": "assistant" }, "index": 0 }], "model": "gemini-x" }),
        json!({ "choices": [{ "delta": { "role": "assistant", "tool_calls": [weather, time] }, "finish_reason": "stop", "index": 0 }],
                "usage": { "completion_tokens": 9, "prompt_tokens": 40, "total_tokens": 60 } }),
    ];
    everyone.gemini.then(Reply::events(events.map(|event| event.to_string()).into_iter().chain(["[DONE]".to_owned()])));
    let mut asked = call_with_tools("gemini-x", "how is it?");
    let (chunks, error) = drain(providers.call(asked.clone()).await.unwrap()).await;
    let made = [called("function-call-1", "weather", json!({ "city": "Bern" })), called("call_2", "time", json!({}))];
    assert_eq!((text(&chunks).as_str(), calls(&chunks), error), ("Let me see.", made.to_vec(), None));

    let result = |call: &str| Said::Result {
        call_id: call.to_owned(),
        tool: String::new(),
        text: "fine".to_owned(),
        is_error: false,
    };
    asked.messages.push(Said::Calls { text: "Let me see.".to_owned(), calls: made.to_vec() });
    asked.messages.extend([result("function-call-1"), result("call_2")]);
    asked.messages.push(Said::Calls { text: String::new(), calls: vec![called("other", "time", json!({}))] });
    asked.messages.push(result("other"));
    providers.call(asked.clone()).await.unwrap();
    let sent = &everyone.gemini.requests()[1]["messages"];
    let extras = |message: usize, call: usize| sent[message]["tool_calls"][call]["extra_content"].clone();
    assert_eq!((extras(1, 0), extras(1, 1)), (signed, Value::Null));
    let unsigned = json!({ "google": { "thought_signature": "skip_thought_signature_validator" } });
    assert_eq!(extras(4, 0), unsigned, "another model made that call");

    providers.call(ModelCall { model: "gpt-5".to_owned(), ..asked }).await.unwrap();
    assert_eq!(everyone.openai.requests()[0]["messages"][4]["tool_calls"][0]["extra_content"], Value::Null);
}

#[tokio::test]
async fn gemini_calls_a_wrong_key_a_bad_request() {
    let everyone = Everyone::start().await;
    let details = json!([{ "@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": "API_KEY_INVALID" }]);
    let body = json!([{ "error": {
        "code": 400, "message": "API key not valid. Please pass a valid API key.", "status": "INVALID_ARGUMENT", "details": details,
    } }]);
    everyone.gemini.then(Reply::chunks([body.to_string()]).content_type("application/json").status(400));
    let error = refusal(&Providers::new(everyone.settings()), "gemini-x").await;
    assert_eq!((error.error.code.as_str(), error.is_recoverable), ("MODEL_UNAUTHORIZED", false));
    assert!(
        error.error.message.ends_with("answered 400: API key not valid. Please pass a valid API key."),
        "{error:?}"
    );
    assert!(error.error.hint.contains("GEMINI_API_KEY"), "{error:?}");
}
