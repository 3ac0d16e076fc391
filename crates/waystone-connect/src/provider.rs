//! Who answers: what each provider is called, and what a person sets for it.

use serde::Deserialize;

/// A provider of models.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Provider {
    Demo,
    OpenAi,
    Anthropic,
    Gemini,
    Ollama,
}

impl Provider {
    pub const ALL: [Self; 5] = [Self::Demo, Self::OpenAi, Self::Anthropic, Self::Gemini, Self::Ollama];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Demo => "demo",
            Self::OpenAi => "openai",
            Self::Anthropic => "anthropic",
            Self::Gemini => "gemini",
            Self::Ollama => "ollama",
        }
    }

    /// The variable with its key; none where there is no key.
    pub(crate) fn key_variable(self) -> Option<&'static str> {
        match self {
            Self::Demo | Self::Ollama => None,
            Self::OpenAi => Some("OPENAI_API_KEY"),
            Self::Anthropic => Some("ANTHROPIC_API_KEY"),
            Self::Gemini => Some("GEMINI_API_KEY"),
        }
    }

    /// The variable with its address.
    pub(crate) fn url_variable(self) -> &'static str {
        match self {
            Self::Demo => "",
            Self::OpenAi => "OPENAI_BASE_URL",
            Self::Anthropic => "ANTHROPIC_BASE_URL",
            Self::Gemini => "GEMINI_BASE_URL",
            Self::Ollama => "OLLAMA_HOST",
        }
    }

    /// Where it is unless someone says otherwise.
    pub(crate) fn url(self) -> &'static str {
        match self {
            Self::Demo => "",
            Self::OpenAi => "https://api.openai.com/v1",
            Self::Anthropic => "https://api.anthropic.com",
            Self::Gemini => "https://generativelanguage.googleapis.com/v1beta/openai",
            Self::Ollama => "http://127.0.0.1:11434",
        }
    }

    /// What its address looks like, to people whose address does not work.
    pub(crate) fn url_shape(self) -> &'static str {
        match self {
            Self::Demo => "",
            Self::OpenAi => "it usually ends in /v1",
            Self::Anthropic => "it usually has no path",
            Self::Gemini => "it usually ends in /openai",
            Self::Ollama => "it is a host and a port",
        }
    }

    /// What to set so that it can be asked.
    pub(crate) fn what_to_set(self) -> &'static str {
        match self {
            Self::Demo => "",
            Self::OpenAi => "set OPENAI_API_KEY (or OPENAI_BASE_URL for a local server)",
            Self::Anthropic => "set ANTHROPIC_API_KEY",
            Self::Gemini => "set GEMINI_API_KEY",
            Self::Ollama => "start Ollama, or set OLLAMA_HOST to where it runs",
        }
    }
}
