//! Ollama over chat completions: what it has, and what it does otherwise.

use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::time::{Instant, pause};
use waystone_connect::{ProviderSettings, Providers};
use waystone_core::model::{Model, ModelCall};
use waystone_testkit::model::{FakeModel, Reply};

use crate::ask::{call, call_with_tools, called, calls, drain};
use crate::everyone::{Everyone, OPENAI_KEY, nowhere, refusal};

#[tokio::test]
async fn what_only_ollama_has_is_asked_for_there_unless_another_server_may_have_it() {
    let ollama = FakeModel::start().await;
    ollama.pull(["llama3.2:latest", "gpt-4o:latest"]);
    let settings = ProviderSettings { ollama_host: Some(ollama.root_url()), ..ProviderSettings::default() };
    let keyed = ProviderSettings { openai_api_key: Some(OPENAI_KEY.to_owned()), ..settings.clone() };
    for settings in [settings, keyed] {
        let providers = Providers::new(settings);
        drain(providers.call(call("llama3.2", "hi")).await.unwrap()).await;
        assert_eq!(providers.describe("llama3.2").provider, "ollama", "it was found");
        assert_eq!(providers.describe("gpt-4o").provider, "openai", "that is known to be of OpenAI");
    }
    assert_eq!(ollama.requests().len(), 2);
    let none = Providers::new(ProviderSettings { ollama_host: Some(nowhere().await), ..ProviderSettings::default() });
    let error = refusal(&none, "llama3.2").await;
    assert_eq!((error.error.code.as_str(), error.is_recoverable), ("MODEL_NOT_CONFIGURED", false));
}

#[tokio::test]
async fn an_ollama_that_says_nothing_is_not_waited_for() {
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let ollama_host = Some(silent.local_addr().unwrap().to_string());
    let listing = tokio::spawn(async move {
        Providers::new(ProviderSettings { ollama_host, ..ProviderSettings::default() }).list().await
    });
    let _asked = silent.accept().await.unwrap();
    pause();
    let begun = Instant::now();
    assert!(listing.await.unwrap().iter().all(|model| model.provider != "ollama"));
    assert!(begun.elapsed().as_millis() < 310, "{:?}", begun.elapsed());

    let none = ProviderSettings { ollama_host: Some(nowhere().await), ..ProviderSettings::default() };
    assert!(Providers::new(none).list().await.iter().all(|model| model.provider != "ollama"));
}

#[tokio::test]
async fn ollamas_calls_are_told_apart_and_its_tools_hidden_when_words_are_wanted() {
    let everyone = Everyone::start().await;
    let providers = Providers::new(everyone.settings());
    let piece = |id: &str, name: &str| {
        let call = json!({ "id": id, "index": 0, "type": "function", "function": { "name": name, "arguments": "{\"city\":\"Bern\"}" } });
        let delta = json!({ "role": "assistant", "content": "", "tool_calls": [call] });
        json!({ "id": "chatcmpl-1", "object": "chat.completion.chunk", "model": "qwen3:4b", "system_fingerprint": "fp_ollama",
                "choices": [{ "index": 0, "delta": delta, "finish_reason": null }] })
    };
    let end = json!({ "choices": [{ "index": 0, "delta": { "role": "assistant", "content": "" }, "finish_reason": "tool_calls" }] });
    let usage = json!({ "choices": [], "usage": { "prompt_tokens": 5, "completion_tokens": 6, "total_tokens": 11 } });
    let events = [piece("call_a", "weather"), piece("call_b", "time"), end, usage].map(|event| event.to_string());
    everyone.ollama.then(Reply::events(events.into_iter().chain(["[DONE]".to_owned()])));
    let asked = call_with_tools("ollama/qwen3:4b", "how is it?");
    let (chunks, error) = drain(providers.call(asked.clone()).await.unwrap()).await;
    let bern = json!({ "city": "Bern" });
    let made = [called("call_a", "weather", bern.clone()), called("call_b", "time", bern)];
    assert_eq!((calls(&chunks), error), (made.to_vec(), None));

    providers.call(ModelCall { is_last: true, ..asked }).await.unwrap();
    let [first, last] = &everyone.ollama.requests()[..] else { panic!("two were asked") };
    assert_eq!((first["model"].as_str(), first["tools"].as_array().unwrap().len()), (Some("qwen3:4b"), 2));
    assert_eq!((&last["tools"], &last["tool_choice"]), (&Value::Null, &Value::Null));
}
