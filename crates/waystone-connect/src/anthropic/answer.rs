//! What an answer of messages comes to. It has ended as it should once `message_stop` came, and not before.

use serde_json::Value;
use waystone_core::model::{Call, Cut, ModelError, Usage};

use super::wire::{Block, Delta, Event};
use crate::call::{CALLS_BYTES_MAX, CALLS_MAX, read_arguments, read_cut_arguments};
use crate::failure::Peer;
use crate::streaming::{Heard, Rest, Wire};
use crate::usage::tokens;

#[derive(Debug)]
pub(super) struct Blocks {
    calls: Vec<ToolUse>,
    /// How many calls there were before.
    calls_before: usize,
    bytes: usize,
    stop_reason: Option<String>,
    /// What was read afresh is in `prompt`, apart from what the cache had.
    usage: Option<Usage>,
}

/// A call, as far as it came.
#[derive(Debug)]
struct ToolUse {
    index: u64,
    id: String,
    name: String,
    /// What its block began with; some servers give all of it there.
    input: Option<Value>,
    json: String,
}

impl Wire for Blocks {
    fn hear(&mut self, data: &[u8], peer: &Peer) -> Result<Heard, ModelError> {
        let Ok(event) = serde_json::from_slice::<Event>(data) else {
            return Err(peer.interrupted("an event of it cannot be read"));
        };
        match event {
            Event::MessageStart { message } => self.count(message.usage),
            Event::ContentBlockStart { content_block: Block::Text { text }, .. }
            | Event::ContentBlockDelta { delta: Delta::Text { text }, .. } => return Ok(Heard::Text(text)),
            Event::ContentBlockStart { index, content_block: Block::ToolUse { id, name, input } } => {
                self.calls.push(ToolUse { index, id, name, input, json: String::new() });
            }
            Event::ContentBlockDelta { index, delta: Delta::Json { partial_json } } => {
                self.bytes += partial_json.len();
                if let Some(call) = self.calls.iter_mut().rfind(|call| call.index == index) {
                    call.json.push_str(&partial_json);
                }
            }
            Event::MessageDelta { delta, usage } => {
                self.stop_reason = delta.and_then(|delta| delta.stop_reason).or(self.stop_reason.take());
                self.count(usage);
            }
            Event::MessageStop => return Ok(Heard::End),
            Event::Error { error } => return Err(peer.said(&error)),
            Event::ContentBlockStart { .. } | Event::ContentBlockDelta { .. } | Event::Other => {}
        }
        if self.calls.len() > CALLS_MAX || self.bytes > CALLS_BYTES_MAX {
            return Err(peer.interrupted("its calls of tools are too long"));
        }
        Ok(Heard::Text(String::new()))
    }

    fn is_complete(&self) -> bool {
        false
    }

    fn rest(&mut self) -> Result<Rest, &'static str> {
        let (count, cut) = (self.calls.len(), self.cut());
        let calls = self.calls.drain(..).zip(self.calls_before + 1..).enumerate().map(|(at, (call, number))| {
            let id = if call.id.is_empty() { format!("call_{number}") } else { call.id };
            let arguments = match call.input {
                Some(Value::Object(input)) if call.json.is_empty() && !input.is_empty() => Value::Object(input),
                _ if cut.is_some() && at + 1 == count => read_cut_arguments(&call.json),
                _ => read_arguments(&call.json),
            };
            Call { id, tool: call.name, arguments }
        });
        let usage =
            self.usage.map(|usage| Usage { prompt: usage.prompt + usage.cache_read + usage.cache_write, ..usage });
        Ok(Rest { calls: calls.collect(), usage, cut })
    }
}

impl Blocks {
    pub(super) fn new(calls_before: usize) -> Self {
        let (calls, stop_reason, usage) = (Vec::new(), None, None);
        Self { calls, calls_before, bytes: 0, stop_reason, usage }
    }

    fn cut(&self) -> Option<Cut> {
        match self.stop_reason.as_deref()? {
            "max_tokens" | "model_context_window_exceeded" => Some(Cut::Length),
            "refusal" => Some(Cut::Filter),
            _ => None,
        }
    }

    /// Figures come at the beginning and at the end; the later ones count, and are for the whole answer. Some servers give all
    /// but the last as 0. What is absent was said before, or is none.
    fn count(&mut self, usage: Option<Value>) {
        let Some(usage) = usage.filter(Value::is_object) else { return };
        let before = self.usage.unwrap_or_default();
        let newer = |name: &str, before: u64| tokens(&usage[name]).filter(|tokens| *tokens > 0).unwrap_or(before);
        self.usage = Some(Usage {
            prompt: newer("input_tokens", before.prompt),
            completion: newer("output_tokens", before.completion),
            cache_read: newer("cache_read_input_tokens", before.cache_read),
            cache_write: newer("cache_creation_input_tokens", before.cache_write),
        });
    }
}
