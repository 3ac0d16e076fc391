//! Every provider at once, each at a place of its own.

use std::collections::BTreeMap;

use serde_json::Value;
use tokio::net::TcpListener;
use waystone_connect::{ModelSettings, ProviderSettings, Providers};
use waystone_core::model::{Model, ModelError};
use waystone_testkit::model::FakeModel;

use crate::ask::call;

/// Keys that nothing else contains, one for each provider.
pub(crate) const OPENAI_KEY: &str = "sk-canary-openai-1";
pub(crate) const ANTHROPIC_KEY: &str = "sk-canary-anthropic-2";
pub(crate) const GEMINI_KEY: &str = "canary-gemini-3";

/// An address where nobody listens.
pub(crate) async fn nowhere() -> String {
    TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().to_string()
}

/// Every provider at a place of its own.
pub(crate) struct Everyone {
    pub(crate) openai: FakeModel,
    pub(crate) anthropic: FakeModel,
    pub(crate) gemini: FakeModel,
    pub(crate) ollama: FakeModel,
}

impl Everyone {
    pub(crate) async fn start() -> Self {
        let (openai, anthropic) = (FakeModel::start().await, FakeModel::start().await);
        let (gemini, ollama) = (FakeModel::start().await, FakeModel::start().await);
        ollama.pull(["llama3.2:latest", "qwen3:4b"]);
        Self { openai, anthropic, gemini, ollama }
    }

    pub(crate) fn settings(&self) -> ProviderSettings {
        ProviderSettings {
            openai_api_key: Some(OPENAI_KEY.to_owned()),
            openai_base_url: Some(self.openai.base_url()),
            anthropic_api_key: Some(ANTHROPIC_KEY.to_owned()),
            anthropic_base_url: Some(self.anthropic.root_url()),
            gemini_api_key: Some(GEMINI_KEY.to_owned()),
            gemini_base_url: Some(self.gemini.base_url()),
            ollama_host: Some(self.ollama.root_url()),
            ..ProviderSettings::default()
        }
    }

    /// Who was asked for which models.
    pub(crate) fn asked(&self) -> [Vec<String>; 4] {
        let names = |fake: &FakeModel| -> Vec<String> {
            fake.requests().iter().map(|body| body["model"].as_str().unwrap().to_owned()).collect()
        };
        [names(&self.openai), names(&self.anthropic), names(&self.gemini), names(&self.ollama)]
    }
}

pub(crate) fn models(models: Value) -> BTreeMap<String, ModelSettings> {
    serde_json::from_value(models).unwrap()
}

pub(crate) async fn refusal(providers: &Providers, model: &str) -> ModelError {
    providers.call(call(model, "hi")).await.err().unwrap()
}
