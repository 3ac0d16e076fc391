//! Who answers for a model, and what is known of it.

use std::collections::BTreeMap;

use serde_json::json;
use waystone_connect::{ProviderSettings, Providers};
use waystone_core::api::Prices;
use waystone_core::model::Model;
use waystone_testkit::model::{FakeModel, Reply};

use crate::ask::{call, drain, text};
use crate::everyone::{ANTHROPIC_KEY, Everyone, GEMINI_KEY, OPENAI_KEY, models, refusal};

#[tokio::test]
async fn a_model_is_asked_for_where_its_name_says() {
    let everyone = Everyone::start().await;
    let providers = Providers::new(everyone.settings());
    for model in
        ["gpt-5", "claude-opus-4-1", "gemini-2.5-pro", "ollama/llama3.2", "llama3.2", "anthropic/claude-x", "o3"]
    {
        let (chunks, error) = drain(providers.call(call(model, "hi there")).await.unwrap()).await;
        assert_eq!((text(&chunks).as_str(), error), ("hi there", None), "{model}");
    }
    let openai = ["gpt-5", "llama3.2", "anthropic/claude-x", "o3"].map(str::to_owned).to_vec();
    let [anthropic, gemini, ollama] =
        ["claude-opus-4-1", "gemini-2.5-pro", "llama3.2"].map(|name| vec![name.to_owned()]);
    assert_eq!(everyone.asked(), [openai, anthropic, gemini, ollama]);
    assert_eq!(everyone.gemini.authorizations(), [Some(format!("Bearer {GEMINI_KEY}"))]);
    assert_eq!(everyone.anthropic.api_keys(), [Some(ANTHROPIC_KEY.to_owned())]);
    assert_eq!(everyone.ollama.authorizations(), [None]);
}

#[tokio::test]
async fn the_configuration_says_where_a_model_is_and_what_it_is_called_there() {
    let everyone = Everyone::start().await;
    let elsewhere = FakeModel::start().await;
    let settings = ProviderSettings {
        models: models(json!({
            "fast": { "provider": "gemini", "name": "gemini-2.5-flash" },
            "claude-here": { "provider": "openai", "base_url": elsewhere.base_url() },
            "box": { "provider": "ollama", "name": "qwen3:4b", "base_url": elsewhere.root_url() },
            "own-claude": { "provider": "anthropic", "name": "claude-x", "base_url": elsewhere.root_url() },
            "ollama/mine": { "provider": "ollama" },
            "mock": { "provider": "demo" },
        })),
        ..everyone.settings()
    };
    let providers = Providers::new(settings);
    for model in ["fast", "claude-here", "box", "own-claude", "ollama/mine", "mock"] {
        assert_eq!(drain(providers.call(call(model, "hi")).await.unwrap()).await.1, None, "{model}");
    }
    let [gemini, ollama] = ["gemini-2.5-flash", "mine"].map(|name| vec![name.to_owned()]);
    assert_eq!(everyone.asked(), [vec![], vec![], gemini, ollama]);
    let there: Vec<_> = elsewhere.requests().iter().map(|body| body["model"].clone()).collect();
    assert_eq!(there, ["claude-here", "qwen3:4b", "claude-x"]);
    assert_eq!((elsewhere.authorizations(), elsewhere.api_keys()), (vec![None; 3], vec![None; 3]));
}

#[tokio::test]
async fn a_providers_key_goes_nowhere_else_and_a_model_elsewhere_has_its_own() {
    let everyone = Everyone::start().await;
    let elsewhere = FakeModel::start().await;
    let settings = ProviderSettings {
        models: models(json!({
            "bare": { "provider": "openai", "base_url": elsewhere.base_url() },
            "bare-claude": { "provider": "anthropic", "base_url": elsewhere.root_url() },
            "own": { "provider": "openai", "base_url": elsewhere.base_url(), "key_env": "OWN_KEY" },
            "own-claude": { "provider": "anthropic", "base_url": elsewhere.root_url(), "key_env": "OWN_KEY" },
            "there": { "provider": "openai", "base_url": format!("{}/deeper", everyone.openai.base_url()) },
            "other-account": { "provider": "openai", "key_env": "OWN_KEY" },
            "keyless": { "provider": "openai", "base_url": elsewhere.base_url(), "key_env": "GONE_KEY" },
        })),
        keys: BTreeMap::from([("OWN_KEY".to_owned(), "own-canary".to_owned())]),
        ..everyone.settings()
    };
    let providers = Providers::new(settings.clone());
    for model in ["bare", "bare-claude", "own", "own-claude", "other-account"] {
        assert_eq!(drain(providers.call(call(model, "hi")).await.unwrap()).await.1, None, "{model}");
    }
    let own = Some("own-canary".to_owned());
    let own_bearer = Some("Bearer own-canary".to_owned());
    assert_eq!(elsewhere.authorizations(), [None, None, own_bearer.clone(), None]);
    assert_eq!(elsewhere.api_keys(), [None, None, None, own]);
    // Whatever is there does not know the path; what it was sent counts.
    let _ = providers.call(call("there", "hi")).await;
    let sent = everyone.openai.authorizations();
    assert_eq!(sent, [own_bearer, Some(format!("Bearer {OPENAI_KEY}"))]);

    let refused = refusal(&providers, "keyless").await;
    assert_eq!(refused.error.message, "GONE_KEY is not set, which key_env of model `keyless` names");
    let described = providers.describe("keyless");
    let hint = "set GONE_KEY to the key of model `keyless`";
    assert_eq!((described.ready, described.hint.as_deref()), (false, Some(hint)));
    assert!(!format!("{settings:?} {providers:?}").contains("own-canary"));

    elsewhere.then(Reply::text("who are you").status(401)).then(Reply::text("not you").status(401));
    let hint = "name the variable with the key of model `bare` in its key_env; OPENAI_API_KEY goes only to its provider or to \
                OPENAI_BASE_URL";
    assert_eq!(refusal(&providers, "bare").await.error.hint, hint);
    let hint = "set OWN_KEY to a key that this provider accepts";
    assert_eq!(refusal(&providers, "own").await.error.hint, hint);
}

#[tokio::test]
async fn a_gateway_has_whatever_nobody_else_is_set_up_for() {
    let gateway = FakeModel::start().await;
    let settings = ProviderSettings {
        openai_base_url: Some(gateway.base_url()),
        gemini_api_key: Some(GEMINI_KEY.to_owned()),
        ..ProviderSettings::default()
    };
    let providers = Providers::new(settings);
    let provider = |model: &str| providers.describe(model).provider;
    assert_eq!((provider("claude-x"), provider("gemini-x")), ("openai".to_owned(), "gemini".to_owned()));
    assert_eq!(drain(providers.call(call("claude-x", "hi")).await.unwrap()).await.1, None);
}

#[tokio::test]
async fn limits_are_set_configured_known_or_assumed_in_this_order() {
    let prices = Prices { input: 1.0, output: 2.0, cache_read: None, cache_write: Some(3.0) };
    let providers = Providers::new(ProviderSettings {
        models: models(json!({
            "mine": { "provider": "openai", "name": "gpt-4o", "prices": { "input": 1, "output": 2, "cache_write": 3 } },
            "small": { "provider": "openai", "limit": 1000 },
            "smaller": { "provider": "openai", "limit": 1000 },
        })),
        model_limits: BTreeMap::from([("gpt-4".to_owned(), 4000), ("smaller".to_owned(), 500)]),
        ..ProviderSettings::default()
    });
    let check = |model: &str, limit: u64, limit_assumed: bool| {
        let info = providers.describe(model);
        assert_eq!((info.limit, info.limit_assumed), (limit, limit_assumed), "{model}");
    };
    check("gpt-4", 4000, false);
    check("smaller", 500, false);
    check("small", 1000, false);
    check("mine", 128_000, false);
    check("gpt-4.1-mini", 1_047_576, false);
    check("claude-x", 200_000, false);
    check("demo", 128_000, false);
    check("what-is-this", 128_000, true);
    let mine = providers.describe("mine");
    assert_eq!((mine.name.as_str(), mine.prices), ("gpt-4o", Some(prices)));
}

#[tokio::test]
async fn all_models_are_listed_and_whether_they_can_be_asked() {
    let everyone = Everyone::start().await;
    let settings = ProviderSettings {
        openai_base_url: None,
        gemini_api_key: None,
        gemini_base_url: None,
        models: models(json!({
            "fast": { "provider": "gemini", "name": "gemini-2.5-flash" },
            "ollama/gone": { "provider": "ollama" },
        })),
        ..everyone.settings()
    };
    let listed = Providers::new(settings).list().await;
    let ready = |id: &str| listed.iter().find(|model| model.id == id).map(|model| (model.ready, model.hint.as_deref()));
    assert_eq!(ready("demo"), Some((true, None)));
    assert_eq!(ready("gpt-5"), Some((true, None)));
    assert_eq!(ready("claude-sonnet-4-5"), Some((true, None)));
    assert_eq!(ready("gemini-2.5-pro"), Some((false, Some("set GEMINI_API_KEY"))));
    assert_eq!(ready("fast"), Some((false, Some("set GEMINI_API_KEY"))));
    assert_eq!(ready("ollama/llama3.2:latest"), Some((true, None)));
    assert_eq!(ready("ollama/qwen3:4b"), Some((true, None)));
    let gone = "start Ollama, or set OLLAMA_HOST to where it runs; `ollama pull gone` gets the model";
    assert_eq!(ready("ollama/gone"), Some((false, Some(gone))));

    let gateway = Providers::new(everyone.settings()).list().await;
    let ids: Vec<_> = gateway.iter().map(|model| model.id.as_str()).collect();
    assert!(!ids.contains(&"gpt-5") && ids.contains(&"claude-sonnet-4-5"), "{ids:?}");
}
