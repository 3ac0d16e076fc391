//! What is set for models: keys and addresses by variables that every program knows, which are in no file, and what `models` and
//! `modelLimits` say.

use std::collections::BTreeMap;

use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};
use waystone_connect::{ModelSettings, Provider, ProviderSettings, check_limit};
use waystone_core::api::TOKENS_MAX;

use super::Settings;

/// As every program that calls models knows them.
pub(super) const VARIABLES: [&str; 7] = [
    "OPENAI_API_KEY",
    "OPENAI_BASE_URL",
    "ANTHROPIC_API_KEY",
    "ANTHROPIC_BASE_URL",
    "GEMINI_API_KEY",
    "GEMINI_BASE_URL",
    "OLLAMA_HOST",
];

impl Settings {
    pub(crate) fn providers(&self) -> ProviderSettings {
        let [
            openai_api_key,
            openai_base_url,
            anthropic_api_key,
            anthropic_base_url,
            gemini_api_key,
            gemini_base_url,
            ollama_host,
        ] = VARIABLES.map(|name| self.provider_variables.get(name).map(|text| text.as_str().to_owned()));
        let models = self.models();
        ProviderSettings {
            keys: key_variables(&models).into_iter().filter_map(own_key).collect(),
            openai_api_key,
            openai_base_url,
            anthropic_api_key,
            anthropic_base_url,
            gemini_api_key,
            gemini_base_url,
            ollama_host,
            models,
            model_limits: read(&self.values["modelLimits"]).unwrap_or_default(),
        }
    }

    fn models(&self) -> BTreeMap<String, ModelSettings> {
        read(&self.values["models"]).unwrap_or_default()
    }

    /// All variables that open models.
    pub(super) fn provider_variables(&self) -> Vec<String> {
        VARIABLES.into_iter().map(str::to_owned).chain(key_variables(&self.models())).collect()
    }
}

/// The variables with keys of single models.
fn key_variables(models: &BTreeMap<String, ModelSettings>) -> Vec<String> {
    models.values().filter_map(|model| model.key_env.clone()).collect()
}

#[expect(clippy::disallowed_methods, reason = "which variables have keys of models the user says")]
fn own_key(variable: String) -> Option<(String, String)> {
    let key = std::env::var(&variable).ok()?;
    Some((variable, key))
}

/// An object whose fields are all of a kind; the first that is not is named.
fn read<T: DeserializeOwned>(value: &Value) -> Result<BTreeMap<String, T>, String> {
    let fields = value.as_object().ok_or_else(|| format!("{value} is not an object of models"))?;
    let read = |(id, value): (&String, &Value)| match serde_json::from_value(value.clone()) {
        Ok(read) => Ok((id.clone(), read)),
        Err(error) => Err(format!("model `{}`: {error}", id.escape_debug())),
    };
    fields.iter().map(read).collect()
}

pub(super) fn check_models(value: &Value) -> Result<(), String> {
    let models = read::<ModelSettings>(value)?;
    models
        .iter()
        .try_for_each(|(id, model)| model.check().map_err(|error| format!("model `{}`: {error}", id.escape_debug())))
}

pub(super) fn check_limits(value: &Value) -> Result<(), String> {
    let limits = read::<u64>(value)?;
    limits.iter().try_for_each(|(id, limit)| {
        check_limit(*limit).map_err(|error| format!("model `{}`: {error}", id.escape_debug()))
    })
}

pub(super) fn models_schema() -> Value {
    let price = json!({ "type": "number", "minimum": 0 });
    let prices: Map<_, _> = ["input", "output", "cache_read", "cache_write"]
        .map(|name| (name.to_owned(), price.clone()))
        .into_iter()
        .collect();
    let model = json!({
        "type": "object",
        "additionalProperties": false,
        "required": ["provider"],
        "properties": {
            "provider": { "enum": Provider::ALL.map(Provider::as_str) },
            "name": { "type": "string", "minLength": 1, "description": "What the provider calls it; its id when left out." },
            "base_url": { "type": "string", "format": "uri", "description": "Where it is, if elsewhere than the provider's others." },
            "key_env": {
                "type": "string",
                "pattern": "^[A-Za-z_][A-Za-z0-9_]*$",
                "description": "The variable with its key. A provider's own key goes only to that provider or to its base URL variable, so a model elsewhere has no key without this.",
            },
            "limit": limit_schema(),
            "prices": {
                "type": "object",
                "additionalProperties": false,
                "required": ["input", "output"],
                "properties": prices,
                "description": "What a million tokens cost, in US dollars.",
            },
        },
    });
    json!({ "type": "object", "additionalProperties": model })
}

pub(super) fn limits_schema() -> Value {
    json!({ "type": "object", "additionalProperties": limit_schema() })
}

fn limit_schema() -> Value {
    json!({ "type": "integer", "minimum": 1, "maximum": TOKENS_MAX })
}
