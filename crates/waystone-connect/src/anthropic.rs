//! Servers that speak Anthropic's messages.
//!
//! This file asks. What is sent is in [`wire`], what an answer comes to in [`answer`].

mod answer;
mod wire;

use hyper::header::{HeaderName, HeaderValue};
use waystone_core::model::{Answer, ModelCall, ModelError};

use crate::call::{count_calls, why_no_tools};
use crate::server::{Opener, Place, Server};
use crate::streaming::Streaming;
use answer::Blocks;

const API_KEY: HeaderName = HeaderName::from_static("x-api-key");
const VERSION: (HeaderName, HeaderValue) =
    (HeaderName::from_static("anthropic-version"), HeaderValue::from_static("2023-06-01"));

/// One server.
#[derive(Debug)]
pub(crate) struct Anthropic {
    server: Server,
}

impl Anthropic {
    /// Fails if the address of `place` or its key cannot be used by anyone.
    pub(crate) fn new(place: &Place, opener: Opener) -> Result<Self, ModelError> {
        // Some write the version into the address, though the path has it.
        let has_version = place.base_url.trim().trim_end_matches('/').ends_with("/v1");
        let server = Server::new(place, if has_version { "messages" } else { "v1/messages" }, opener)?;
        let server = server.with_header(VERSION.0, VERSION.1);
        Ok(Self { server: server.with_key_in(API_KEY, "")? })
    }

    pub(crate) async fn call(&self, call: &ModelCall) -> Result<Box<dyn Answer>, ModelError> {
        let body = self.server.ask(wire::request(call)).await?;
        let blocks = Blocks::new(count_calls(call));
        Ok(Box::new(Streaming::new(body, self.server.peer().clone(), blocks, why_no_tools(call))))
    }
}
