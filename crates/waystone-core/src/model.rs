//! The boundary to language models. Who answers is found by the model's id; `waystone-connect` has those that there are, the testkit
//! a server that pretends to be one.

use std::time::Duration;

use async_trait::async_trait;
use serde_json::{Map, Value};

use crate::api::{ModelInfo, Prices, Role, Tool, TurnError};

/// What a model is asked.
#[derive(Debug, Clone, PartialEq)]
pub struct ModelCall {
    /// Which model, as the conversation names it.
    pub model: String,
    /// What it is told before everything else.
    pub system: String,
    /// What was said, oldest first. The result of a call follows it before anything else is said.
    pub messages: Vec<Said>,
    /// What it may call.
    pub tools: Vec<Tool>,
    /// Whether it must answer in words, though there are tools: it has called enough of them.
    pub is_last: bool,
    /// The conversation's parameters, such as `temperature`.
    pub parameters: Map<String, Value>,
    /// How many tokens its answer may have beside what it is told, for providers that must be told when the parameters say nothing.
    pub answer_tokens: u64,
}

/// One message as a model sees it.
#[derive(Debug, Clone, PartialEq)]
pub enum Said {
    Text {
        role: Role,
        text: String,
    },
    /// An answer that calls tools; its text may be empty.
    Calls {
        text: String,
        calls: Vec<Call>,
    },
    /// What came of a call.
    Result {
        call_id: String,
        tool: String,
        text: String,
        is_error: bool,
    },
}

impl Said {
    /// What it says in words.
    pub fn text(&self) -> &str {
        match self {
            Self::Text { text, .. } | Self::Calls { text, .. } | Self::Result { text, .. } => text,
        }
    }
}

/// A call of a tool.
#[derive(Debug, Clone, PartialEq)]
pub struct Call {
    /// By the model, or its provider.
    pub id: String,
    pub tool: String,
    /// An object, or the text that the model wrote in place of one.
    pub arguments: Value,
}

/// A part of an answer.
#[derive(Debug, Clone, PartialEq)]
pub enum Chunk {
    /// More text. Never empty.
    Text(String),
    /// A whole call.
    Call(Call),
    /// What the provider counted, for the whole answer. The last one counts.
    Usage(Usage),
    /// It ends before what was to be said is.
    Cut(Cut),
}

/// Why an answer ends where it does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cut {
    /// It may not be longer.
    Length,
    /// Its provider let no more of it through.
    Filter,
}

/// Tokens as a provider counts them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    /// All that was read, what came from a cache and what went into one included.
    pub prompt: u64,
    pub completion: u64,
    pub cache_read: u64,
    pub cache_write: u64,
}

impl Prices {
    /// What an answer costs, in US dollars.
    pub fn cost_usd(&self, usage: Usage) -> f64 {
        let fresh = usage.prompt.saturating_sub(usage.cache_read + usage.cache_write);
        let parts = [
            (fresh, self.input),
            (usage.cache_read, self.cache_read.unwrap_or(self.input * 0.1)),
            (usage.cache_write, self.cache_write.unwrap_or(self.input * 1.25)),
            (usage.completion, self.output),
        ];
        parts.iter().map(|(tokens, price)| *tokens as f64 * price).sum::<f64>() / 1e6
    }

    /// Whether every price that `usage` needs is known. Where one is not, what it costs is an estimate.
    pub fn are_known_for(&self, usage: Usage) -> bool {
        (usage.cache_read == 0 || self.cache_read.is_some()) && (usage.cache_write == 0 || self.cache_write.is_some())
    }
}

/// Why a model does not answer, or not to the end.
#[derive(Debug, Clone, PartialEq)]
pub struct ModelError {
    /// Whether the same call may succeed later.
    pub is_recoverable: bool,
    /// How long the provider asks to wait.
    pub retry_after: Option<Duration>,
    /// What people are told. Never a key.
    pub error: TurnError,
}

/// Language models.
#[async_trait]
pub trait Model: Send + Sync {
    /// Begins an answer. To drop it is to break it off.
    async fn call(&self, call: ModelCall) -> Result<Box<dyn Answer>, ModelError>;

    /// What is known of a model, whether it can be asked or not.
    fn describe(&self, model: &str) -> ModelInfo;

    /// Those that are configured, built in or found to run on this machine.
    async fn list(&self) -> Vec<ModelInfo>;
}

/// An answer under way.
#[async_trait]
pub trait Answer: Send {
    /// Its next part; `None` when it has ended as it should.
    async fn next(&mut self) -> Option<Result<Chunk, ModelError>>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_from_a_cache_or_goes_into_one_has_its_own_price() {
        let usage = Usage { prompt: 1_000_000, completion: 100_000, cache_read: 500_000, cache_write: 200_000 };
        let given = Prices { input: 3.0, output: 15.0, cache_read: Some(1.0), cache_write: Some(4.0) };
        assert_eq!(given.cost_usd(usage), 0.9 + 0.5 + 0.8 + 1.5);
        let left_out = Prices { cache_read: None, cache_write: None, ..given };
        assert!((left_out.cost_usd(usage) - (0.9 + 0.15 + 0.75 + 1.5)).abs() < 1e-12);
        let odd = Usage { prompt: 1, cache_read: 2, ..Usage::default() };
        assert!((left_out.cost_usd(odd) - 0.6e-6).abs() < 1e-15, "a provider may count as it likes");
    }

    #[test]
    fn a_cost_is_exact_only_where_every_price_it_needs_is_given() {
        let given = Prices { input: 3.0, output: 15.0, cache_read: Some(1.0), cache_write: Some(4.0) };
        let fresh = Usage { prompt: 10, completion: 1, ..Usage::default() };
        let read = Usage { cache_read: 5, ..fresh };
        let written = Usage { cache_write: 5, ..fresh };
        let check = |prices: Prices, expected: [bool; 3]| {
            assert_eq!([fresh, read, written].map(|usage| prices.are_known_for(usage)), expected, "{prices:?}");
        };
        check(given, [true, true, true]);
        check(Prices { cache_read: None, ..given }, [true, false, true]);
        check(Prices { cache_write: None, ..given }, [true, true, false]);
        check(Prices { cache_read: None, cache_write: None, ..given }, [true, false, false]);
    }
}
