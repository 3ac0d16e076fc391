//! The boundary to language models. Who answers is found by the model's id; `waystone-connect` has those that there are, the testkit
//! a server that pretends to be one.

use std::time::Duration;

use async_trait::async_trait;
use serde_json::{Map, Value};

use crate::api::{Role, TurnError};

/// What a model is asked.
#[derive(Debug, Clone, PartialEq)]
pub struct ModelCall {
    /// Which model, as the conversation names it.
    pub model: String,
    /// What it is told before everything else.
    pub system: String,
    /// What was said, oldest first.
    pub messages: Vec<Said>,
    /// The conversation's parameters, such as `temperature`.
    pub parameters: Map<String, Value>,
}

/// One message as a model sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Said {
    pub role: Role,
    pub text: String,
}

/// A part of an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Chunk {
    /// More text. Never empty.
    Text(String),
    /// What the provider counted, for the whole answer. The last one counts.
    Usage { prompt: u64, completion: u64 },
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
}

/// An answer under way.
#[async_trait]
pub trait Answer: Send {
    /// Its next part; `None` when it has ended as it should.
    async fn next(&mut self) -> Option<Result<Chunk, ModelError>>;
}
