//! What people are told who have set something wrong or nothing, and that no key is among it.

use serde_json::json;
use waystone_connect::{ProviderSettings, Providers};
use waystone_core::model::Model;
use waystone_testkit::model::Reply;

use crate::ask::{call, drain};
use crate::everyone::{ANTHROPIC_KEY, Everyone, GEMINI_KEY, OPENAI_KEY, models, nowhere, refusal};

#[tokio::test]
async fn whoever_has_set_nothing_is_told_what_to_set() {
    let providers = Providers::new(ProviderSettings::default());
    for (model, hint) in [
        ("gpt-5", "set OPENAI_API_KEY (or OPENAI_BASE_URL for a local server)"),
        ("claude-x", "set ANTHROPIC_API_KEY"),
        ("gemini-x", "set GEMINI_API_KEY"),
    ] {
        let error = refusal(&providers, model).await;
        assert_eq!((error.error.code.as_str(), error.is_recoverable), ("MODEL_NOT_CONFIGURED", false));
        assert_eq!(error.error.message, format!("no provider is configured for model `{model}`"));
        assert_eq!(error.error.hint, format!("{hint}, or use model `demo`"));
        let described = providers.describe(model);
        assert_eq!((described.ready, described.hint.as_deref()), (false, Some(hint)));
    }
    assert_eq!((providers.describe("demo").ready, providers.describe("demo").hint), (true, None));
}

#[tokio::test]
async fn whoever_asks_for_a_model_that_nobody_is_known_to_have_is_told_of_all_who_may() {
    let providers = Providers::new(ProviderSettings { ollama_host: Some(nowhere().await), ..Default::default() });
    let hint = "set OPENAI_API_KEY (or OPENAI_BASE_URL for a local server), ANTHROPIC_API_KEY or GEMINI_API_KEY, start Ollama \
                and get the model with `ollama pull`, or say in `models` who has it";
    for model in ["mistral-large", "llama3.2", "gpt-oss:20b"] {
        assert_eq!(refusal(&providers, model).await.error.hint, format!("{hint}, or use model `demo`"));
        assert_eq!(providers.describe(model).hint.as_deref(), Some(hint));
    }
    let own = models(json!({ "mine": { "provider": "openai" } }));
    let providers = Providers::new(ProviderSettings { models: own, ..ProviderSettings::default() });
    let hint = "set OPENAI_API_KEY (or OPENAI_BASE_URL for a local server)";
    assert_eq!(providers.describe("mine").hint.as_deref(), Some(hint));
}

#[tokio::test]
async fn settings_that_nobody_could_use_name_their_own_variable() {
    let check = async |settings: ProviderSettings, model: &str, message: &str| {
        let providers = Providers::new(settings);
        let error = refusal(&providers, model).await;
        assert_eq!((error.error.code.as_str(), error.error.message.as_str()), ("MODEL_NOT_CONFIGURED", message));
        let described = providers.describe(model);
        assert_eq!((described.ready, described.hint), (false, Some(error.error.hint)));
    };
    let none = ProviderSettings::default;
    let broken = || Some("two\nlines".to_owned());
    let no_url = "is not an address that begins with http:// or https://";
    let settings = ProviderSettings { anthropic_api_key: broken(), ..none() };
    check(settings, "claude-x", "ANTHROPIC_API_KEY has characters that no key has").await;
    let settings = ProviderSettings { gemini_api_key: broken(), ..none() };
    check(settings, "gemini-x", "GEMINI_API_KEY has characters that no key has").await;
    let settings = ProviderSettings { anthropic_base_url: Some("nothing".to_owned()), ..none() };
    check(settings, "claude-x", &format!("ANTHROPIC_BASE_URL {no_url}")).await;
    let settings = ProviderSettings { ollama_host: Some("a b".to_owned()), ..none() };
    check(settings, "ollama/x", &format!("OLLAMA_HOST {no_url}")).await;
    let own = models(json!({ "mine": { "provider": "openai", "base_url": "nothing" } }));
    check(ProviderSettings { models: own, ..none() }, "mine", &format!("base_url of model `mine` {no_url}")).await;
}

#[tokio::test]
async fn hints_name_the_variable_of_the_provider_that_failed() {
    let everyone = Everyone::start().await;
    let providers = Providers::new(everyone.settings());
    let places = [
        (&everyone.openai, "gpt-5", Some("OPENAI_API_KEY"), "OPENAI_BASE_URL"),
        (&everyone.anthropic, "claude-x", Some("ANTHROPIC_API_KEY"), "ANTHROPIC_BASE_URL"),
        (&everyone.gemini, "gemini-x", Some("GEMINI_API_KEY"), "GEMINI_BASE_URL"),
        (&everyone.ollama, "ollama/x", None, "OLLAMA_HOST"),
    ];
    for (fake, model, key, url) in places {
        let statuses = [
            (400, "MODEL_REFUSED", false, None),
            (401, "MODEL_UNAUTHORIZED", false, Some(key.unwrap_or(url))),
            (402, "MODEL_REFUSED", false, None),
            (403, "MODEL_UNAUTHORIZED", false, Some(key.unwrap_or(url))),
            (404, "MODEL_NOT_FOUND", false, Some(url)),
            (429, "MODEL_OVERLOADED", true, None),
            (500, "MODEL_FAILED", true, None),
            (503, "MODEL_FAILED", true, None),
            (529, "MODEL_FAILED", true, None),
        ];
        for (status, code, is_recoverable, named) in statuses {
            fake.then(Reply::text("no").status(status).retry_after(3));
            let error = refusal(&providers, model).await;
            let found =
                (error.error.code.as_str(), error.is_recoverable, error.retry_after.map(|after| after.as_secs()));
            assert_eq!(found, (code, is_recoverable, Some(3)), "{model} {status}");
            assert!(error.error.message.ends_with(&format!("answered {status}: no")), "{error:?}");
            assert!(named.is_none_or(|named| error.error.hint.contains(named)), "{error:?}");
        }
        fake.then(Reply::text("<html>").content_type("text/html"));
        let error = refusal(&providers, model).await;
        assert!(error.error.hint.contains(url) && !error.is_recoverable, "{error:?}");
    }
    let gone = nowhere().await;
    let settings = ProviderSettings {
        openai_base_url: Some(format!("http://{gone}/v1")),
        anthropic_base_url: Some(format!("http://{gone}")),
        gemini_base_url: Some(format!("http://{gone}/v1")),
        ollama_host: Some(gone),
        ..everyone.settings()
    };
    let providers = Providers::new(settings);
    for (_, model, _, url) in places {
        let error = refusal(&providers, model).await;
        assert_eq!((error.error.code.as_str(), error.is_recoverable), ("MODEL_UNREACHABLE", true));
        assert!(error.error.hint.contains(url), "{error:?}");
    }
}

#[tokio::test]
async fn an_account_that_has_run_dry_is_not_asked_again() {
    let everyone = Everyone::start().await;
    let body = json!({ "error": { "message": "You exceeded your quota", "type": "insufficient_quota", "code": "insufficient_quota" } });
    everyone.openai.then(Reply::chunks([body.to_string()]).content_type("application/json").status(429));
    let error = refusal(&Providers::new(everyone.settings()), "gpt-5").await;
    assert_eq!((error.error.code.as_str(), error.is_recoverable), ("MODEL_REFUSED", false));
    assert_eq!(error.error.hint, "check the plan and the credit of your account");
}

#[tokio::test]
async fn no_key_is_ever_seen_though_servers_echo_it() {
    let everyone = Everyone::start().await;
    let settings = everyone.settings();
    let providers = Providers::new(settings.clone());
    let all = [OPENAI_KEY, ANTHROPIC_KEY, GEMINI_KEY];
    let unseen = |seen: &str| assert!(!all.iter().any(|key| seen.contains(key)), "{seen}");
    let places = [
        (&everyone.openai, "gpt-5", OPENAI_KEY),
        (&everyone.anthropic, "claude-x", ANTHROPIC_KEY),
        (&everyone.gemini, "gemini-x", GEMINI_KEY),
    ];
    for (fake, model, key) in places {
        fake.then(Reply::text(&format!("wrong key: {key}")).status(401));
        let refused = refusal(&providers, model).await;
        assert!(refused.error.message.ends_with("answered 401: wrong key: [key]"), "{refused:?}");
        let echo = json!({ "type": "error", "error": { "type": "api_error", "message": format!("{key}!") } });
        fake.then(Reply::events([echo.to_string()]));
        let broken = drain(providers.call(call(model, "hi")).await.unwrap()).await.1.unwrap();
        assert!(broken.error.message.ends_with("broke off: [key]!"), "{broken:?}");
        fake.then(Reply::chunks([format!("plain {key}")]).content_type("text/plain").status(500));
        let failed = refusal(&providers, model).await;
        [refused, broken, failed].iter().for_each(|error| unseen(&format!("{error:?} {error:#?}")));
    }
    for seen in [format!("{settings:?}"), format!("{settings:#?}"), format!("{providers:?}"), format!("{providers:#?}")]
    {
        assert!(seen.contains("[key]"), "{seen}");
        unseen(&seen);
    }
    let listed = format!("{:?}", providers.list().await);
    unseen(&listed);
}

#[tokio::test]
async fn a_password_in_an_address_is_not_seen() {
    let own = models(
        json!({ "mine": { "provider": "openai", "base_url": "http://user:hunter2@127.0.0.1:9/v1?key=hunter2" } }),
    );
    let settings = ProviderSettings {
        openai_base_url: Some("http://user:hunter2@127.0.0.1:9/v1?key=hunter2".to_owned()),
        ollama_host: Some("http://user:hunter2@127.0.0.1:9".to_owned()),
        models: own,
        ..ProviderSettings::default()
    };
    let providers = Providers::new(settings.clone());
    let seen =
        format!("{settings:?} {providers:?} {:?} {:?}", refusal(&providers, "mine").await, providers.list().await);
    assert!(seen.contains("127.0.0.1") && !seen.contains("hunter2"), "{seen}");
}
