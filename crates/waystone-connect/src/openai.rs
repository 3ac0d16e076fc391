//! Servers that speak OpenAI's chat completions: OpenAI's own, Gemini's, Ollama's, and the many others that copied it.
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
use crate::provider::Provider;
use crate::server::{Opener, Place, Server};
use crate::streaming::Streaming;
use answer::Chunks;
use extra::Extras;

/// One server.
#[derive(Debug)]
pub(crate) struct OpenAi {
    provider: Provider,
    server: Server,
    extras: Arc<Extras>,
}

impl OpenAi {
    /// Fails if the address of `place` or its key cannot be used by anyone.
    pub(crate) fn new(place: &Place, opener: Opener) -> Result<Self, ModelError> {
        let server = Server::new(place, "chat/completions", opener)?.with_key_in(AUTHORIZATION, "Bearer ")?;
        Ok(Self { provider: place.provider, server, extras: Arc::default() })
    }

    pub(crate) async fn call(&self, call: &ModelCall) -> Result<Box<dyn Answer>, ModelError> {
        let body = self.server.ask(wire::request(self.provider, call, &self.extras)).await?;
        let chunks = Chunks::new(count_calls(call), self.extras.clone());
        Ok(Box::new(Streaming::new(body, self.server.peer().clone(), chunks, why_no_tools(call))))
    }
}
