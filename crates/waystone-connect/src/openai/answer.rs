//! What an answer of chat completions comes to.
//!
//! It has ended as it should once the provider said `[DONE]` or gave a `finish_reason`. A `finish_reason` does not end it at once,
//! as the usage comes after it.

use std::sync::Arc;

use waystone_core::model::{Cut, ModelError, Usage};

use super::call::Calls;
use super::extra::Extras;
use super::wire::Event;
use crate::failure::Peer;
use crate::streaming::{Heard, Rest, Wire};

#[derive(Debug)]
pub(super) struct Chunks {
    calls: Calls,
    /// How many calls there were before.
    calls_before: usize,
    extras: Arc<Extras>,
    usage: Option<Usage>,
    /// Whether a `finish_reason` was given.
    is_complete: bool,
    cut: Option<Cut>,
}

impl Chunks {
    pub(super) fn new(calls_before: usize, extras: Arc<Extras>) -> Self {
        Self { calls: Calls::default(), calls_before, extras, usage: None, is_complete: false, cut: None }
    }
}

impl Wire for Chunks {
    fn hear(&mut self, data: &[u8], peer: &Peer) -> Result<Heard, ModelError> {
        if data == b"[DONE]" {
            return Ok(Heard::End);
        }
        let Ok(mut event) = serde_json::from_slice::<Event>(data) else {
            return Err(peer.interrupted("an event of it cannot be read"));
        };
        if let Some(error) = event.error.take() {
            return Err(peer.said(&error));
        }
        self.usage = event.usage().or(self.usage);
        let Some(mut choice) = event.into_choice() else { return Ok(Heard::Text(String::new())) };
        for delta in choice.calls() {
            self.calls.add(delta).map_err(|why| peer.interrupted(why))?;
        }
        match choice.finish_reason.as_deref() {
            None | Some("") => {}
            Some("error") => return Err(peer.interrupted("its provider failed")),
            Some(reason) => {
                self.is_complete = true;
                self.cut = match reason {
                    "length" | "max_tokens" => Some(Cut::Length),
                    "content_filter" => Some(Cut::Filter),
                    _ => None,
                };
            }
        }
        Ok(Heard::Text(choice.text()))
    }

    fn is_complete(&self) -> bool {
        self.is_complete
    }

    fn rest(&mut self) -> Result<Rest, &'static str> {
        let joined = std::mem::take(&mut self.calls).join(self.calls_before, self.cut.is_some())?;
        let calls = joined.into_iter().map(|joined| {
            if let Some(extra) = joined.extra {
                self.extras.keep(&joined.call.id, extra);
            }
            joined.call
        });
        Ok(Rest { calls: calls.collect(), usage: self.usage, cut: self.cut })
    }
}
