//! What Waystone calls: language models, and tools: of MCP servers ([`mcp`]) and in a folder ([`workspace`]).
//!
//! Who answers is found by the model's id: the demo is built in, everything else goes to one server that speaks OpenAI's chat
//! completions. The environment is not read here; [`ProviderSettings`] has what the binary found in it.

mod call;
mod demo;
mod event;
mod failure;
mod http;
mod key;
pub mod mcp;
mod openai;
mod server;
mod streaming;
mod tools;
pub mod workspace;

use std::fmt;

use async_trait::async_trait;
use waystone_core::api::{ModelInfo, TurnError};
use waystone_core::model::{Answer, Model, ModelCall, ModelError};

use key::Key;
use openai::OpenAi;
pub use tools::AllTools;

/// Where models are, and what opens them. Blank texts count as absent.
#[derive(Clone, Default)]
pub struct ProviderSettings {
    /// `OPENAI_API_KEY`.
    pub openai_api_key: Option<String>,
    /// `OPENAI_BASE_URL`: what `/chat/completions` is added to. OpenAI's own if there is a key alone.
    pub openai_base_url: Option<String>,
}

impl fmt::Debug for ProviderSettings {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("ProviderSettings")
            .field("openai_api_key", &self.openai_api_key.as_ref().map(|_| key::HIDDEN))
            .field("openai_base_url", &self.openai_base_url)
            .finish()
    }
}

/// All models that there are.
#[derive(Debug)]
pub struct Providers {
    /// None if nothing says where it would be; an error if what is said cannot be used.
    openai: Option<Result<OpenAi, ModelError>>,
}

impl Providers {
    /// Takes no time: nothing is opened before the first call.
    pub fn new(settings: ProviderSettings) -> Self {
        let key = settings.openai_api_key.and_then(Key::new);
        let base_url = settings.openai_base_url.filter(|url| !url.trim().is_empty());
        let is_configured = key.is_some() || base_url.is_some();
        Self { openai: is_configured.then(|| OpenAi::new(base_url.as_deref(), key)) }
    }
}

#[async_trait]
impl Model for Providers {
    async fn call(&self, call: ModelCall) -> Result<Box<dyn Answer>, ModelError> {
        if call.model == "demo" || call.model.starts_with("demo-") {
            return Ok(Box::new(demo::Demo::new(&call)));
        }
        match &self.openai {
            Some(Ok(openai)) => openai.call(&call).await,
            Some(Err(unusable)) => Err(unusable.clone()),
            None => Err(not_configured(
                format!("no provider is configured for model `{}`", call.model),
                "set OPENAI_API_KEY (or OPENAI_BASE_URL for a local server), or use model `demo`",
            )),
        }
    }

    fn describe(&self, model: &str) -> ModelInfo {
        let is_demo = model == "demo" || model.starts_with("demo-");
        ModelInfo {
            id: model.to_owned(),
            provider: if is_demo { "demo" } else { "openai" }.to_owned(),
            name: model.to_owned(),
            limit: 128_000,
            limit_assumed: true,
            prices: None,
            ready: is_demo || matches!(self.openai, Some(Ok(_))),
            hint: None,
        }
    }

    async fn list(&self) -> Vec<ModelInfo> {
        vec![self.describe("demo")]
    }
}

/// Nobody can be asked before a person changes the configuration.
fn not_configured(message: String, hint: &str) -> ModelError {
    let error = TurnError { code: "MODEL_NOT_CONFIGURED".to_owned(), message, hint: hint.to_owned() };
    ModelError { is_recoverable: false, retry_after: None, error }
}
