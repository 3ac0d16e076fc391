//! What is sent, and what settings it needs.

use serde_json::json;
use waystone_connect::{ProviderSettings, Providers};
use waystone_core::api::Role;
use waystone_core::model::{Model, Said};
use waystone_testkit::model::FakeModel;

use crate::ask::{KEY, at, call, drain, providers};

#[tokio::test]
async fn every_model_name_goes_to_chat_completions_as_it_is() {
    let fake = FakeModel::start().await;
    let providers = at(&fake);
    let names =
        ["gpt-4", "claude-x", "o3", "o3-mini-high", "gpt-5-codex", "gemini-pro", "groq::llama", "org/model:free"];
    for name in names {
        let (_, error) = drain(providers.call(call(name, "hi")).await.unwrap()).await;
        assert_eq!(error, None, "{name}");
    }
    let asked: Vec<_> = fake.requests().iter().map(|body| body["model"].as_str().unwrap().to_owned()).collect();
    assert_eq!(asked, names);
}

#[tokio::test]
async fn the_system_text_comes_before_what_was_said() {
    let fake = FakeModel::start().await;
    let mut asked = call("gpt-4", "one");
    asked.system = "Be brief.".to_owned();
    asked.messages.push(Said::Text { role: Role::Assistant, text: "two".to_owned() });
    at(&fake).call(asked).await.unwrap();
    let expected = json!({
        "model": "gpt-4",
        "messages": [
            { "role": "system", "content": "Be brief." },
            { "role": "user", "content": "one" },
            { "role": "assistant", "content": "two" },
        ],
        "stream": true,
        "stream_options": { "include_usage": true },
    });
    assert_eq!(fake.requests(), [expected]);
}

/// It has words of tools and documents in it, which the system prompt's rank is not for.
#[tokio::test]
async fn what_was_merged_is_said_like_a_users_words_and_marked() {
    let fake = FakeModel::start().await;
    let mut asked = call("gpt-4", "one");
    asked.messages.insert(0, Said::Text { role: Role::System, text: "merged".to_owned() });
    at(&fake).call(asked).await.unwrap();
    let expected = json!([
        { "role": "user", "content": "<system>\nmerged\n</system>" },
        { "role": "user", "content": "one" },
    ]);
    assert_eq!(fake.requests()[0]["messages"], expected);
}

#[tokio::test]
async fn parameters_are_passed_on_but_change_nothing_of_ours() {
    let fake = FakeModel::start().await;
    let mut asked = call("gpt-4", "hi");
    let parameters = json!({
        "temperature": 0.5, "top_p": 0.9, "max_tokens": 100, "stop": ["end"], "seed": 7, "reasoning_effort": "low",
        "user": null, "stream_options": null,
        "model": "other", "messages": [], "stream": false, "n": 4, "tools": [{}],
    });
    asked.parameters = parameters.as_object().unwrap().clone();
    at(&fake).call(asked).await.unwrap();
    let expected = json!({
        "model": "gpt-4",
        "messages": [{ "role": "user", "content": "hi" }],
        "stream": true,
        "temperature": 0.5, "top_p": 0.9, "max_tokens": 100, "stop": ["end"], "seed": 7, "reasoning_effort": "low",
    });
    assert_eq!(fake.requests(), [expected]);
}

#[tokio::test]
async fn the_key_is_sent_if_there_is_one() {
    let fake = FakeModel::start().await;
    for key in [None, Some(""), Some(KEY), Some("sk-5eCrEt-0123456789\n")] {
        providers(key, Some(&fake.base_url())).call(call("gpt-4", "hi")).await.unwrap();
    }
    let bearer = Some(format!("Bearer {KEY}"));
    assert_eq!(fake.authorizations(), [None, None, bearer.clone(), bearer]);
}

#[tokio::test]
async fn a_base_url_works_with_and_without_its_last_slash() {
    let fake = FakeModel::start().await;
    let base_url = fake.base_url();
    for base_url in [base_url.as_str(), base_url.trim_end_matches('/'), &format!(" {base_url}\n")] {
        providers(None, Some(base_url)).call(call("gpt-4", "hi")).await.unwrap();
    }
}

#[tokio::test]
async fn without_a_key_or_a_base_url_no_model_but_the_demo_is_there() {
    for providers in [providers(None, None), providers(Some(" "), Some(""))] {
        let error = providers.call(call("gpt-4", "hi")).await.err().unwrap();
        assert_eq!((error.is_recoverable, error.retry_after), (false, None));
        assert_eq!(error.error.code, "MODEL_NOT_CONFIGURED");
        assert_eq!(error.error.message, "no provider is configured for model `gpt-4`");
        let hint = "set OPENAI_API_KEY (or OPENAI_BASE_URL for a local server), or use model `demo`";
        assert_eq!(error.error.hint, hint);
    }
}

#[tokio::test]
async fn settings_that_nobody_could_use_are_said_to_be_so_at_each_call() {
    let check = async |key: Option<&str>, base_url: &str, message: &str| {
        let providers = providers(key, Some(base_url));
        for _ in 0..2 {
            let error = providers.call(call("gpt-4", "hi")).await.err().unwrap();
            assert_eq!((error.is_recoverable, error.error.code.as_str()), (false, "MODEL_NOT_CONFIGURED"));
            assert_eq!(error.error.message, message);
        }
    };
    let no_address = "OPENAI_BASE_URL is not an address that begins with http:// or https://";
    for base_url in ["localhost:8080/v1", "/v1", "ftp://host/v1", "http://", "http://a b/v1", "not one"] {
        check(None, base_url, no_address).await;
    }
    check(Some("two\nlines"), "http://127.0.0.1:9/v1", "OPENAI_API_KEY has characters that no key has").await;
}

#[tokio::test]
async fn debug_output_never_has_the_key() {
    let fake = FakeModel::start().await;
    let openai_base_url = Some(fake.base_url());
    let openai_api_key = Some(KEY.to_owned());
    let settings = ProviderSettings { openai_api_key, openai_base_url, ..ProviderSettings::default() };
    let providers = Providers::new(settings.clone());
    providers.call(call("gpt-4", "hi")).await.unwrap();
    for seen in [format!("{settings:?}"), format!("{settings:#?}"), format!("{providers:?}"), format!("{providers:#?}")]
    {
        assert!(seen.contains("[key]") && !seen.contains(KEY), "{seen}");
    }
}
