//! Models that have an address or a key of their own.
//!
//! The key of a provider goes to that provider, or to where its own variable says that it is, and to nobody else: a model at another
//! address has the key that the configuration names for it, or none. Servers on this machine mostly want none.

use hyper::Uri;
use waystone_core::model::ModelError;

use crate::client::Client;
use crate::http::endpoint;
use crate::key::Key;
use crate::not_configured;
use crate::provider::Provider;
use crate::server::Opener;
use crate::settings::{ModelSettings, ProviderSettings};

/// Who answers for the model `id`; None if nothing of it is its own.
pub(crate) fn client(
    id: &str,
    model: &ModelSettings,
    settings: &ProviderSettings,
) -> Option<Result<Client, ModelError>> {
    if model.base_url.is_none() && model.key_env.is_none() {
        return None;
    }
    let (shared_key, shared_url) = settings.of(model.provider);
    let setting = match &model.base_url {
        Some(_) => format!("base_url of model `{id}`"),
        None => model.provider.url_variable().to_owned(),
    };
    let url = model.base_url.as_deref().or(shared_url.as_deref()).unwrap_or(model.provider.url());
    let opener = match &model.key_env {
        Some(variable) => own_opener(id, variable, settings),
        None if is_of_provider(url, model.provider, shared_url.as_deref()) => {
            Ok(Opener::of_provider(model.provider, shared_key.and_then(Key::new), &setting))
        }
        None => Ok(without_key(id, model.provider)),
    };
    Some(opener.and_then(|opener| Client::new(model.provider, Some(url), opener, &setting)))
}

fn own_opener(id: &str, variable: &str, settings: &ProviderSettings) -> Result<Opener, ModelError> {
    match settings.keys.get(variable).cloned().and_then(Key::new) {
        Some(key) => Ok(Opener::of_variable(variable, Some(key))),
        None => Err(not_configured(
            format!("{variable} is not set, which key_env of model `{id}` names"),
            &format!("set {variable} to the key of model `{id}`"),
        )),
    }
}

fn without_key(id: &str, provider: Provider) -> Opener {
    let hint = format!("name the variable with the key of model `{id}` in its key_env");
    let hint = match provider.key_variable() {
        Some(variable) => format!("{hint}; {variable} goes only to its provider or to {}", provider.url_variable()),
        None => hint,
    };
    Opener { key: None, variable: "the key".to_owned(), no_key: hint }
}

/// Whether `url` is an address of the provider itself, or the one that its variable names.
fn is_of_provider(url: &str, provider: Provider, shared_url: Option<&str>) -> bool {
    let Some(asked) = endpoint(url, "") else { return false };
    let is_shared =
        shared_url.and_then(|url| endpoint(url, "")).is_some_and(|shared| origin(&shared) == origin(&asked));
    is_shared || is_under(&asked, provider)
}

/// Providers have other hosts under that of theirs, such as those of a region.
fn is_under(asked: &Uri, provider: Provider) -> bool {
    let Some(own) = endpoint(provider.url(), "") else { return false };
    let ((scheme, host, port), (own_scheme, own_host, own_port)) = (origin(asked), origin(&own));
    let is_host = host == own_host || host.ends_with(&format!(".{own_host}"));
    is_host && (scheme, port) == (own_scheme, own_port)
}

fn origin(url: &Uri) -> (&str, String, u16) {
    let scheme = url.scheme_str().unwrap_or_default();
    let port = url.port_u16().unwrap_or(if scheme == "https" { 443 } else { 80 });
    (scheme, url.host().unwrap_or_default().trim_end_matches('.').to_ascii_lowercase(), port)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_providers_key_is_for_its_own_addresses_and_the_one_that_its_variable_names() {
        let check = |url: &str, shared: Option<&str>, expected: bool| {
            assert_eq!(is_of_provider(url, Provider::OpenAi, shared), expected, "{url} {shared:?}");
        };
        for url in [
            "https://api.openai.com/v1",
            "https://API.OpenAI.com:443",
            "https://eu.api.openai.com/v1",
            "https://u:p@api.openai.com",
        ] {
            check(url, None, true);
        }
        for url in [
            "http://api.openai.com/v1",
            "https://api.openai.com:8443/v1",
            "https://openai.com/v1",
            "https://notapi.openai.com/v1",
            "https://api.openai.com.example.com/v1",
            "https://api.openai.com@example.com/v1",
            "https://example.com/api.openai.com",
            "http://127.0.0.1:1234/v1",
            "api.openai.com",
            "",
        ] {
            check(url, None, false);
            check(url, Some("https://gateway.example/v1"), false);
        }
        check("https://gateway.example/other", Some("https://gateway.example/v1"), true);
        check("https://gateway.example:444/v1", Some("https://gateway.example/v1"), false);
        check("http://gateway.example/v1", Some("https://gateway.example/v1"), false);
        check("https://eu.gateway.example/v1", Some("https://gateway.example/v1"), false);
    }
}
