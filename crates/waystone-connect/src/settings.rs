//! What the binary found in the environment and in the configuration.

use std::collections::BTreeMap;
use std::fmt;

use hyper::Uri;
use serde::Deserialize;
use waystone_core::api::{Prices, TOKENS_MAX};

use crate::http::endpoint;
use crate::key::HIDDEN;
use crate::provider::Provider;

/// Where models are, and what opens them. Blank texts count as absent.
#[derive(Clone, Default)]
pub struct ProviderSettings {
    /// `OPENAI_API_KEY`.
    pub openai_api_key: Option<String>,
    /// `OPENAI_BASE_URL`: what `/chat/completions` is added to. OpenAI's own if there is a key alone.
    pub openai_base_url: Option<String>,
    /// `ANTHROPIC_API_KEY`.
    pub anthropic_api_key: Option<String>,
    /// `ANTHROPIC_BASE_URL`: what `/v1/messages` is added to.
    pub anthropic_base_url: Option<String>,
    /// `GEMINI_API_KEY`.
    pub gemini_api_key: Option<String>,
    /// `GEMINI_BASE_URL`: what `/chat/completions` is added to.
    pub gemini_base_url: Option<String>,
    /// `OLLAMA_HOST`, as Ollama itself reads it.
    pub ollama_host: Option<String>,
    /// What the variables hold that `key_env` of models names.
    pub keys: BTreeMap<String, String>,
    /// What the configuration says of models, by id.
    pub models: BTreeMap<String, ModelSettings>,
    /// How many tokens the windows of models hold, by id, whatever else is said of them.
    pub model_limits: BTreeMap<String, u64>,
}

impl ProviderSettings {
    /// The key of a provider, and its address.
    pub(crate) fn of(&self, provider: Provider) -> (Option<String>, Option<String>) {
        let (key, url) = match provider {
            Provider::Demo => (&None, &None),
            Provider::OpenAi => (&self.openai_api_key, &self.openai_base_url),
            Provider::Anthropic => (&self.anthropic_api_key, &self.anthropic_base_url),
            Provider::Gemini => (&self.gemini_api_key, &self.gemini_base_url),
            Provider::Ollama => (&None, &self.ollama_host),
        };
        (key.clone(), url.clone().filter(|url| !url.trim().is_empty()))
    }
}

impl fmt::Debug for ProviderSettings {
    /// Keys are hidden, and of addresses what may be a password.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = formatter.debug_map();
        for provider in Provider::ALL {
            let (key, url) = self.of(provider);
            let key = key.map(|_| HIDDEN);
            let url = url.map(|url| url.parse::<Uri>().ok().and_then(|url| url.host().map(str::to_owned)));
            shown.entry(&provider.as_str(), &(key, url));
        }
        shown.entry(&"keys", &self.keys.keys());
        shown.entry(&"models", &self.models).entry(&"model_limits", &self.model_limits).finish()
    }
}

/// A model as the configuration describes it.
#[derive(Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelSettings {
    pub provider: Provider,
    /// What the provider calls it; as its id if left out.
    pub name: Option<String>,
    /// Where it is, if elsewhere than the provider's other models.
    pub base_url: Option<String>,
    /// The variable with its key, if that is another one than the provider's. Without it, a model that is elsewhere has none.
    pub key_env: Option<String>,
    pub limit: Option<u64>,
    pub prices: Option<Prices>,
}

impl ModelSettings {
    /// Why nobody could use them, if so.
    pub fn check(&self) -> Result<(), String> {
        if self.name.as_ref().is_some_and(|name| name.trim().is_empty()) {
            return Err("name is empty".to_owned());
        }
        if self.base_url.as_ref().is_some_and(|url| endpoint(url, "").is_none()) {
            return Err("base_url is not an address that begins with http:// or https://".to_owned());
        }
        if self.provider == Provider::Demo && self.base_url.is_some() {
            return Err("base_url: the demo is built in".to_owned());
        }
        if self.provider == Provider::Demo && self.key_env.is_some() {
            return Err("key_env: the demo needs no key".to_owned());
        }
        if self.key_env.as_ref().is_some_and(|variable| !is_variable(variable)) {
            return Err("key_env is not the name of a variable: letters, digits and `_`".to_owned());
        }
        self.limit.map_or(Ok(()), check_limit).map_err(|error| format!("limit: {error}"))?;
        let prices = self.prices.map(|prices| {
            let cached = [prices.cache_read, prices.cache_write].into_iter().flatten();
            [prices.input, prices.output].into_iter().chain(cached).collect::<Vec<_>>()
        });
        match prices.into_iter().flatten().find(|price| !(0.0..=1e6).contains(price)) {
            Some(price) => Err(format!("prices: {price} is not a price of a million tokens")),
            None => Ok(()),
        }
    }
}

/// A key itself mostly has other characters too: whoever writes one here is told.
fn is_variable(name: &str) -> bool {
    let is_part = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    name.bytes().all(is_part) && name.bytes().next().is_some_and(|first| !first.is_ascii_digit())
}

/// Why a window cannot hold so many tokens, if so.
pub fn check_limit(tokens: u64) -> Result<(), String> {
    match tokens {
        1..=TOKENS_MAX => Ok(()),
        _ => Err(format!("{tokens} is not a number of tokens from 1 to {TOKENS_MAX}")),
    }
}

impl fmt::Debug for ModelSettings {
    /// Without its address, which may have a password in it.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = formatter.debug_struct("ModelSettings");
        shown.field("provider", &self.provider).field("name", &self.name).field("limit", &self.limit);
        shown.finish_non_exhaustive()
    }
}
