//! Anthropic's messages, as the fake model says them.

use serde_json::{Value, json};

use super::reply::{Parts, Spoken};

/// A whole answer: a block of text if there is some, then a block for each call.
pub(super) fn answer(spoken: &Spoken, request: &Value) -> Parts {
    let (read, written) = spoken.cached;
    let fresh = spoken.prompt.saturating_sub(read + written);
    let usage = json!({
        "input_tokens": fresh, "cache_read_input_tokens": read, "cache_creation_input_tokens": written, "output_tokens": 1,
    });
    let message = json!({
        "id": "msg_fake", "type": "message", "role": "assistant", "model": request["model"], "content": [],
        "stop_reason": null, "stop_sequence": null, "usage": usage,
    });
    let mut opening = event(json!({ "type": "message_start", "message": message }));
    opening.extend(event(json!({ "type": "ping" })));

    let mut index = 0;
    let mut chunks = Vec::new();
    if !spoken.texts.is_empty() {
        opening.extend(begin(index, &json!({ "type": "text", "text": "" })));
        let say = |text: &String| delta(index, &json!({ "type": "text_delta", "text": text }));
        chunks.extend(spoken.texts.iter().map(say));
        index += 1;
    }
    for (number, (name, arguments)) in spoken.calls.iter().enumerate() {
        let block = json!({ "type": "tool_use", "id": format!("toolu_{number}"), "name": name, "input": {} });
        let mut first = if index > 0 { end(index - 1) } else { Vec::new() };
        first.extend(begin(index, &block));
        chunks.push(first);
        let say = |piece: String| delta(index, &json!({ "type": "input_json_delta", "partial_json": piece }));
        chunks.extend(spoken.pieces(arguments).into_iter().map(say));
        index += 1;
    }
    let mut closing = if index > 0 { end(index - 1) } else { Vec::new() };
    let stop_reason = if spoken.calls.is_empty() { "end_turn" } else { "tool_use" };
    let usage = json!({ "output_tokens": chunks.len() });
    let stop = json!({ "stop_reason": stop_reason, "stop_sequence": null });
    closing.extend(event(json!({ "type": "message_delta", "delta": stop, "usage": usage })));
    closing.extend(event(json!({ "type": "message_stop" })));
    Parts { opening, chunks, closing }
}

pub(super) fn failure(message: &str) -> Value {
    json!({ "type": "error", "error": { "type": "fake_error", "message": message } })
}

fn begin(index: usize, block: &Value) -> Vec<u8> {
    event(json!({ "type": "content_block_start", "index": index, "content_block": block }))
}

fn delta(index: usize, delta: &Value) -> Vec<u8> {
    event(json!({ "type": "content_block_delta", "index": index, "delta": delta }))
}

fn end(index: usize) -> Vec<u8> {
    event(json!({ "type": "content_block_stop", "index": index }))
}

/// Each has its type as the name of the event too.
pub(super) fn event(data: Value) -> Vec<u8> {
    format!("event: {}\ndata: {data}\n\n", data["type"].as_str().unwrap_or_default()).into_bytes()
}
