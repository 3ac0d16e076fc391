//! OpenAI's chat completions, as the fake model says them.

use serde_json::{Value, json};

use super::reply::{Parts, Spoken};

/// A whole answer.
pub(super) fn answer(spoken: &Spoken, request: &Value) -> Parts {
    let of = |choices: Value, usage: Value| {
        let (id, object, model) = ("chatcmpl-fake", "chat.completion.chunk", &request["model"]);
        let chunk =
            json!({ "id": id, "object": object, "created": 0, "model": model, "choices": choices, "usage": usage });
        event(&chunk.to_string())
    };
    let add = |delta: Value| of(json!([{ "index": 0, "delta": delta, "finish_reason": null }]), Value::Null);
    let mut chunks: Vec<_> = spoken.texts.iter().map(|text| add(json!({ "content": text }))).collect();
    chunks.extend(tool_deltas(spoken).into_iter().map(|delta| add(json!({ "tool_calls": [delta] }))));

    let finish_reason = if spoken.calls.is_empty() { "stop" } else { "tool_calls" };
    let mut closing = of(json!([{ "index": 0, "delta": {}, "finish_reason": finish_reason }]), Value::Null);
    if request["stream_options"]["include_usage"] == true {
        let (prompt, completion) = (spoken.prompt, chunks.len() as u64);
        let total = prompt + completion;
        let mut usage = json!({ "prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": total });
        if spoken.cached != (0, 0) {
            usage["prompt_tokens_details"] = json!({ "cached_tokens": spoken.cached.0, "audio_tokens": 0 });
        }
        closing.extend(of(json!([]), usage));
    }
    closing.extend(event("[DONE]"));
    Parts { opening: add(json!({ "role": "assistant", "content": "" })), chunks, closing }
}

pub(super) fn failure(message: &str, code: Option<&str>) -> Value {
    let kind = if code.is_some() { "invalid_request_error" } else { "fake_error" };
    json!({ "error": { "message": message, "type": kind, "param": null, "code": code } })
}

/// What begins with a colon is a comment, which is no event.
pub(super) fn event(data: &str) -> Vec<u8> {
    let field = if data.starts_with(':') { "" } else { "data: " };
    format!("{field}{data}\n\n").into_bytes()
}

/// The calls begin one after the other, and their arguments come in turn, as of a provider that makes them at once.
fn tool_deltas(spoken: &Spoken) -> Vec<Value> {
    let begin = spoken.calls.iter().enumerate().map(|(index, (name, _))| {
        let function = json!({ "name": name, "arguments": "" });
        json!({ "index": index, "id": format!("call_{index}"), "type": "function", "function": function })
    });
    let pieces: Vec<Vec<String>> = spoken.calls.iter().map(|(_, arguments)| spoken.pieces(arguments)).collect();
    let rounds = pieces.iter().map(Vec::len).max().unwrap_or_default();
    let in_turn = (0..rounds).flat_map(|round| {
        pieces.iter().enumerate().filter_map(move |(index, pieces)| {
            let piece = pieces.get(round)?;
            Some(json!({ "index": index, "function": { "arguments": piece } }))
        })
    });
    begin.chain(in_turn).collect()
}
