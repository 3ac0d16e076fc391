//! What is said in a call: of tools, as models write them, and of what stands between users and the model.

use serde_json::{Map, Value};
use waystone_core::json::parse_strict;
use waystone_core::model::{ModelCall, Said};

/// More than any answer has.
pub(crate) const CALLS_MAX: usize = 256;
pub(crate) const CALLS_BYTES_MAX: usize = 16 * 1024 * 1024;

/// What neither the user nor the model said, such as what another branch came to: it stands among the user's words, marked. It has words
/// of tools and documents in it, and the role of the system prompt would give them its rank.
pub(crate) fn aside(text: &str) -> String {
    format!("<system>\n{text}\n</system>")
}

/// How many calls the conversation has so far: ids that are made up go on from there.
pub(crate) fn count_calls(call: &ModelCall) -> usize {
    let calls = |said: &Said| if let Said::Calls { calls, .. } = said { calls.len() } else { 0 };
    call.messages.iter().map(calls).sum()
}

/// The arguments that `text` says: an object, or the text itself if it is none. No text means no arguments.
pub(crate) fn read_arguments(text: &str) -> Value {
    object_in(text).map_or_else(|| Value::String(text.to_owned()), Value::Object)
}

/// The same of the last call of an answer that was cut at its most tokens: no text means that none came yet, and is no object.
pub(crate) fn read_cut_arguments(text: &str) -> Value {
    if text.trim().is_empty() { Value::String(text.to_owned()) } else { read_arguments(text) }
}

/// The object that `text` is; an empty one if there is no text.
pub(crate) fn object_in(text: &str) -> Option<Map<String, Value>> {
    if text.trim().is_empty() {
        return Some(Map::new());
    }
    // As strictly as anything that is kept: another number than the one that was written would be approved, and run.
    match parse_strict(text.as_bytes()) {
        Ok(Value::Object(object)) => Some(object),
        _ => None,
    }
}

/// `arguments` as providers take them back, which is only as an object: what was none is told in one.
pub(crate) fn sent_arguments(arguments: &Value) -> Map<String, Value> {
    match arguments {
        Value::Object(arguments) => arguments.clone(),
        other => Map::from_iter([("arguments".to_owned(), other.clone())]),
    }
}

/// Why the model may call nothing, if so.
pub(crate) fn why_no_tools(call: &ModelCall) -> Option<&'static str> {
    call.is_last.then_some("it was to answer in words")
}
