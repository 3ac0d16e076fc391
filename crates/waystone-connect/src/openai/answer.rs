//! What an answer of chat completions comes to.
//!
//! It has ended as it should once the provider said `[DONE]` or gave a `finish_reason`. A `finish_reason` does not end it at once,
//! as the usage comes after it.

use waystone_core::model::{ModelError, Usage};

use super::wire::Event;
use crate::failure::Peer;
use crate::streaming::{Heard, Wire};

#[derive(Debug, Default)]
pub(super) struct Chunks {
    usage: Option<Usage>,
    has_tool_call: bool,
    /// Whether a `finish_reason` was given.
    is_complete: bool,
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
        self.usage = event.usage.take().map(|usage| usage.counted()).or(self.usage);
        let Some(mut choice) = event.into_choice() else { return Ok(Heard::Text(String::new())) };
        self.has_tool_call |= choice.calls_tool();
        match choice.finish_reason.as_deref() {
            None | Some("") => {}
            Some("error") => return Err(peer.interrupted("its provider failed")),
            Some(_) => self.is_complete = true,
        }
        Ok(Heard::Text(choice.text()))
    }

    fn is_complete(&self) -> bool {
        self.is_complete
    }

    fn rest(&mut self) -> (bool, Option<Usage>) {
        (self.has_tool_call, self.usage)
    }
}
