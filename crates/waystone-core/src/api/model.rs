//! Language models, as they can be asked for.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A model that conversations can name.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct ModelInfo {
    /// What a conversation names it.
    pub id: String,
    /// Who answers: `demo`, `openai`, `anthropic`, `gemini` or `ollama`.
    pub provider: String,
    /// What the provider calls it.
    pub name: String,
    /// How many tokens its window holds.
    pub limit: u64,
    /// That number is not known but assumed.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub limit_assumed: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prices: Option<Prices>,
    /// Whether it can be asked: its provider has what it needs.
    pub ready: bool,
    /// What to set so that it can be.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
}

/// What a million tokens cost, in US dollars.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(inline)]
pub struct Prices {
    pub input: f64,
    pub output: f64,
    /// Of what comes from the provider's cache; a tenth of `input` when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache_read: Option<f64>,
    /// Of what goes into it; 1.25 times `input` when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache_write: Option<f64>,
}

/// The models that there are.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct ModelList {
    pub models: Vec<ModelInfo>,
    /// The one that answers where none is named.
    pub default_model: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}
