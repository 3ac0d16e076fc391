//! Servers that speak OpenAI's chat completions: OpenAI's own, and the many that copied it.
//!
//! Written over hyper rather than taken from a library of many providers. genai 0.7 was read for it: it takes the effort off the
//! end of a name, so that `o3-mini-high` cannot be asked for; it cannot tell an answer with a `finish_reason` and no `[DONE]`
//! from one that was cut; it logs what a server says of a failure, which may be the key; it has no bound on what it buffers; and
//! it brings a hundred crates for what is one request.
//!
//! This file asks. What is sent and read is in [`wire`], what an answer comes to in [`answer`], how calls are joined in [`call`].

mod answer;
mod call;
mod extra;
mod wire;

use std::sync::Arc;

use hyper::header::AUTHORIZATION;
use waystone_core::model::{Answer, ModelCall, ModelError};

use crate::call::{count_calls, why_no_tools};
use crate::key::Key;
use crate::server::Server;
use crate::streaming::Streaming;
use answer::Chunks;
use extra::Extras;

const OPENAI_URL: &str = "https://api.openai.com/v1";

/// One server.
#[derive(Debug)]
pub(crate) struct OpenAi {
    server: Server,
    extras: Arc<Extras>,
}

impl OpenAi {
    /// Fails if `base_url` or `key` cannot be used by anyone.
    pub(crate) fn new(base_url: Option<&str>, key: Option<Key>) -> Result<Self, ModelError> {
        let server = Server::new(base_url.unwrap_or(OPENAI_URL), "chat/completions", key)?;
        Ok(Self { server: server.with_key_in(AUTHORIZATION, "Bearer ")?, extras: Arc::default() })
    }

    pub(crate) async fn call(&self, call: &ModelCall) -> Result<Box<dyn Answer>, ModelError> {
        let body = self.server.ask(wire::request(call, &self.extras)).await?;
        let chunks = Chunks::new(count_calls(call), self.extras.clone());
        Ok(Box::new(Streaming::new(body, self.server.peer().clone(), chunks, why_no_tools(call))))
    }
}
