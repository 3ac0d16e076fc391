//! An answer under way.
//!
//! It has ended as it should once the provider said `[DONE]` or gave a `finish_reason`; a body that merely stops is an answer
//! that was cut. A `finish_reason` does not end it at once, as the usage comes after it.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use tokio::time::timeout;
use waystone_core::model::{self, Answer, Chunk, ModelError};

use super::event::Events;
use super::failure::Peer;
use super::wire::{Event, Usage};
use super::{SILENCE_MAX, root_cause};

/// How long the usage is waited for after the last word.
const USAGE_MAX: Duration = Duration::from_secs(10);

pub(super) struct Streaming {
    body: Incoming,
    peer: Arc<Peer>,
    events: Events,
    usage: Option<Usage>,
    has_text: bool,
    has_tool_call: bool,
    /// Whether a `finish_reason` was given.
    is_complete: bool,
    /// Whether nothing more is read, and `last` is what remains to be told.
    is_over: bool,
    last: VecDeque<Result<Chunk, ModelError>>,
}

#[async_trait]
impl Answer for Streaming {
    /// May be dropped and called again: nothing is lost.
    async fn next(&mut self) -> Option<Result<Chunk, ModelError>> {
        while !self.is_over {
            let text = match self.events.pop() {
                Some(data) => self.hear(&data),
                None => {
                    self.read().await;
                    continue;
                }
            };
            if !text.is_empty() {
                return Some(Ok(Chunk::Text(text)));
            }
        }
        self.last.pop_front()
    }
}

impl Streaming {
    pub(super) fn new(body: Incoming, peer: Arc<Peer>) -> Self {
        Self {
            body,
            peer,
            events: Events::default(),
            usage: None,
            has_text: false,
            has_tool_call: false,
            is_complete: false,
            is_over: false,
            last: VecDeque::new(),
        }
    }

    async fn read(&mut self) {
        let silence_max = if self.is_complete { USAGE_MAX } else { SILENCE_MAX };
        match timeout(silence_max, self.body.frame()).await {
            Ok(Some(Ok(frame))) => {
                if !self.events.push(frame.data_ref().map_or(&[], |bytes| bytes)) {
                    self.fail(self.peer.interrupted("an event of it is too long"));
                }
            }
            Ok(Some(Err(error))) => self.stop(&root_cause(&error)),
            Ok(None) => self.stop("it stopped before its end"),
            Err(_) => self.stop(&format!("nothing came for {} s", silence_max.as_secs())),
        }
    }

    /// Takes in one event and returns the text in it.
    fn hear(&mut self, data: &[u8]) -> String {
        if data == b"[DONE]" {
            self.finish();
            return String::new();
        }
        let Ok(mut event) = serde_json::from_slice::<Event>(data) else {
            self.fail(self.peer.interrupted("an event of it cannot be read"));
            return String::new();
        };
        if let Some(error) = event.error.take() {
            self.fail(self.peer.said(&error));
            return String::new();
        }
        self.usage = event.usage.or(self.usage);
        let Some(mut choice) = event.into_choice() else { return String::new() };
        let text = choice.text();
        self.has_text |= !text.trim().is_empty();
        self.has_tool_call |= choice.calls_tool();
        match choice.finish_reason.as_deref() {
            None | Some("") => {}
            Some("error") => self.fail(self.peer.interrupted("its provider failed")),
            Some(_) => self.is_complete = true,
        }
        text
    }

    /// The body gives no more.
    fn stop(&mut self, why: &str) {
        if self.is_complete { self.finish() } else { self.fail(self.peer.interrupted(why)) }
    }

    fn finish(&mut self) {
        self.is_over = true;
        if let Some(usage) = self.usage {
            let (prompt, completion) = (usage.prompt_tokens.unwrap_or(0), usage.completion_tokens.unwrap_or(0));
            let counted = model::Usage { prompt, completion, ..model::Usage::default() };
            self.last.push_back(Ok(Chunk::Usage(counted)));
        }
        if self.has_tool_call && !self.has_text {
            self.last.push_back(Err(self.peer.called_tool()));
        }
    }

    fn fail(&mut self, error: ModelError) {
        self.is_over = true;
        self.last.push_back(Err(error));
    }
}
