//! What Waystone calls: language models, and tools: of MCP servers ([`mcp`]) and in a folder ([`workspace`]).
//!
//! Who answers is found by the model's id: the configuration may say it, else its beginning does. The demo is built in; Anthropic
//! has a wire of its own, everyone else is asked over OpenAI's chat completions. The environment is not read here;
//! [`ProviderSettings`] has what the binary found in it.

mod anthropic;
mod call;
mod client;
mod demo;
mod event;
mod failure;
mod http;
mod key;
mod limit;
pub mod mcp;
mod ollama;
mod openai;
mod own;
mod provider;
mod server;
mod settings;
mod streaming;
mod tools;
mod usage;
pub mod workspace;

use std::collections::BTreeMap;

use async_trait::async_trait;
use waystone_core::api::{ModelInfo, TurnError};
use waystone_core::model::{Answer, Model, ModelCall, ModelError};

use client::Client;
use key::Key;
use limit::{ASSUMED, WELL_KNOWN, is_of_openai, known_limit};
use ollama::Ollama;
pub use provider::Provider;
use server::Opener;
pub use settings::{ModelSettings, ProviderSettings, check_limit};
pub use tools::AllTools;

/// What stands before a model's name where Ollama is meant.
const OLLAMA: &str = "ollama/";

/// Said of a model that nobody is known to have.
const WHO_MAY_HAVE_IT: &str = "set OPENAI_API_KEY (or OPENAI_BASE_URL for a local server), ANTHROPIC_API_KEY or GEMINI_API_KEY, \
                               start Ollama and get the model with `ollama pull`, or say in `models` who has it";

/// All models that there are.
#[derive(Debug)]
pub struct Providers {
    /// Those of whom something is set; an error if that cannot be used.
    clients: BTreeMap<Provider, Result<Client, ModelError>>,
    models: BTreeMap<String, ModelSettings>,
    /// For models that have an address or a key of their own.
    own_clients: BTreeMap<String, Result<Client, ModelError>>,
    limits: BTreeMap<String, u64>,
    /// Whether what speaks OpenAI's wire is not OpenAI: it may have any model.
    has_gateway: bool,
    ollama: Ollama,
}

impl Providers {
    /// Takes no time: nothing is opened before the first call.
    pub fn new(settings: ProviderSettings) -> Self {
        let client = |provider: Provider| {
            if provider == Provider::Demo {
                return None;
            }
            let (key, url) = settings.of(provider);
            let key = key.and_then(Key::new);
            let is_set = provider == Provider::Ollama || key.is_some() || url.is_some();
            let opener = Opener::of_provider(provider, key, provider.url_variable());
            is_set.then(|| (provider, Client::new(provider, url.as_deref(), opener, provider.url_variable())))
        };
        let own_client =
            |(id, model): (&String, &ModelSettings)| Some((id.clone(), own::client(id, model, &settings)?));
        let ollama_host = settings.of(Provider::Ollama).1;
        Self {
            clients: Provider::ALL.into_iter().filter_map(client).collect(),
            own_clients: settings.models.iter().filter_map(own_client).collect(),
            has_gateway: settings.of(Provider::OpenAi).1.is_some(),
            ollama: Ollama::new(&ollama::base_url(ollama_host.as_deref().unwrap_or(Provider::Ollama.url()))),
            models: settings.models,
            limits: settings.model_limits,
        }
    }

    /// Who answers for a model, and under which name.
    fn route(&self, id: &str) -> (Provider, String) {
        let named = |name: &str| name.strip_prefix(OLLAMA).unwrap_or(name).to_owned();
        if let Some(ModelSettings { provider, name, .. }) = self.models.get(id) {
            return (*provider, name.clone().unwrap_or_else(|| named(id)));
        }
        let is_asked = |provider| self.clients.contains_key(&provider) || !self.has_gateway;
        let provider = match id {
            _ if id == "demo" || id.starts_with("demo-") => Provider::Demo,
            _ if id.starts_with(OLLAMA) => return (Provider::Ollama, named(id)),
            _ if id.starts_with("claude") && is_asked(Provider::Anthropic) => Provider::Anthropic,
            _ if id.starts_with("gemini") && is_asked(Provider::Gemini) => Provider::Gemini,
            _ if self.may_be_of_ollama(id) && self.ollama.has(id) => Provider::Ollama,
            _ => Provider::OpenAi,
        };
        (provider, id.to_owned())
    }

    /// Whether nobody else is known to have a model of that name.
    fn may_be_of_ollama(&self, id: &str) -> bool {
        !self.has_gateway && !is_of_openai(id)
    }

    /// What a person sets so that a model can be asked. By its name it may be anyone's, unless someone is known to have it.
    fn what_to_set(&self, id: &str, provider: Provider) -> &'static str {
        let is_anyones = provider == Provider::OpenAi && !self.models.contains_key(id) && !is_of_openai(id);
        if is_anyones { WHO_MAY_HAVE_IT } else { provider.what_to_set() }
    }

    /// The server that has a model, if something is set for it.
    fn client(&self, id: &str, provider: Provider) -> Option<&Result<Client, ModelError>> {
        self.own_clients.get(id).or_else(|| self.clients.get(&provider))
    }
}

#[async_trait]
impl Model for Providers {
    async fn call(&self, mut call: ModelCall) -> Result<Box<dyn Answer>, ModelError> {
        let id = call.model.clone();
        let (mut provider, name) = self.route(&id);
        if provider == Provider::Demo {
            return Ok(Box::new(demo::Demo::new(&call)));
        }
        if provider == Provider::OpenAi && !self.models.contains_key(&id) && self.may_be_of_ollama(&id) {
            self.ollama.look().await;
            provider = self.route(&id).0;
        }
        call.model = name;
        match self.client(&id, provider) {
            Some(Ok(client)) => client.call(&call).await,
            Some(Err(unusable)) => Err(unusable.clone()),
            None => Err(not_configured(
                format!("no provider is configured for model `{id}`"),
                &format!("{}, or use model `demo`", self.what_to_set(&id, provider)),
            )),
        }
    }

    fn describe(&self, model: &str) -> ModelInfo {
        let (provider, name) = self.route(model);
        let settings = self.models.get(model);
        let given = self.limits.get(model).copied().or_else(|| settings?.limit);
        let known = given.or_else(|| if provider == Provider::Demo { Some(ASSUMED) } else { known_limit(&name) });
        let hint = match self.client(model, provider) {
            _ if provider == Provider::Demo => None,
            Some(Ok(_)) => None,
            Some(Err(unusable)) => Some(unusable.error.hint.clone()),
            None => Some(self.what_to_set(model, provider).to_owned()),
        };
        ModelInfo {
            id: model.to_owned(),
            provider: provider.as_str().to_owned(),
            limit: known.unwrap_or(ASSUMED),
            limit_assumed: known.is_none(),
            prices: settings.and_then(|settings| settings.prices),
            ready: hint.is_none(),
            hint,
            name,
        }
    }

    async fn list(&self) -> Vec<ModelInfo> {
        let pulled = self.ollama.look().await;
        // Who is not OpenAI need not have what is well known.
        let well_known = WELL_KNOWN.iter().filter(|id| !self.has_gateway || self.route(id).0 != Provider::OpenAi);
        let built_in = ["demo"].into_iter().chain(well_known.copied()).map(str::to_owned);
        let found = pulled.iter().map(|name| format!("{OLLAMA}{name}"));
        let mut ids: Vec<String> = Vec::new();
        for id in self.models.keys().cloned().chain(built_in).chain(found) {
            if !ids.contains(&id) {
                ids.push(id);
            }
        }
        ids.iter().map(|id| self.as_found(self.describe(id))).collect()
    }
}

impl Providers {
    /// A model of Ollama can be asked only if that runs and has it. One that has a place of its own was not asked.
    fn as_found(&self, model: ModelInfo) -> ModelInfo {
        let is_elsewhere = self.models.get(&model.id).is_some_and(|model| model.base_url.is_some());
        if model.provider != Provider::Ollama.as_str() || is_elsewhere || self.ollama.has(&model.name) {
            return model;
        }
        let hint = format!("{}; `ollama pull {}` gets the model", Provider::Ollama.what_to_set(), model.name);
        ModelInfo { ready: false, hint: Some(hint), ..model }
    }
}

/// Nobody can be asked before a person changes the configuration.
fn not_configured(message: String, hint: &str) -> ModelError {
    let error = TurnError { code: "MODEL_NOT_CONFIGURED".to_owned(), message, hint: hint.to_owned() };
    ModelError { is_recoverable: false, retry_after: None, error }
}
