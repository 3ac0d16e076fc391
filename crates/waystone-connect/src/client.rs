//! A provider that can be asked, over the wire that it speaks.

use waystone_core::model::{Answer, ModelCall, ModelError};

use crate::anthropic::Anthropic;
use crate::ollama;
use crate::openai::OpenAi;
use crate::provider::Provider;
use crate::server::{Opener, Place};

#[derive(Debug)]
pub(crate) enum Client {
    OpenAi(OpenAi),
    Anthropic(Anthropic),
}

impl Client {
    /// Fails if its address or its key cannot be used by anyone. `setting` is what the address is set with.
    pub(crate) fn new(
        provider: Provider,
        base_url: Option<&str>,
        opener: Opener,
        setting: &str,
    ) -> Result<Self, ModelError> {
        let base_url = base_url.unwrap_or_else(|| provider.url());
        let base_url = match provider {
            Provider::Ollama => ollama::base_url(base_url) + "/v1",
            _ => base_url.to_owned(),
        };
        let place = Place { provider, base_url, setting: setting.to_owned() };
        match provider {
            Provider::Anthropic => Anthropic::new(&place, opener).map(Self::Anthropic),
            _ => OpenAi::new(&place, opener).map(Self::OpenAi),
        }
    }

    pub(crate) async fn call(&self, call: &ModelCall) -> Result<Box<dyn Answer>, ModelError> {
        match self {
            Self::OpenAi(openai) => openai.call(call).await,
            Self::Anthropic(anthropic) => anthropic.call(call).await,
        }
    }
}
