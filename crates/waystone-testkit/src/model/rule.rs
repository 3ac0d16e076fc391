//! What providers refuse: requests that are longer than a model's window, and those that break the rules of their wire.
//!
//! A window holds what is sent and what may be answered. Tokens are counted as the providers tell: the words of every message, a few
//! for what stands around it, and the tools as they are written.

use serde_json::Value;
use waystone_core::tokens;

use super::Wire;

/// For what stands around a message, and before an answer.
const AROUND: u64 = 3;

/// Why a request is not answered.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Refusal {
    /// As OpenAI has them.
    pub(super) code: Option<&'static str>,
    pub(super) message: String,
}

/// Refuses what the provider would, whose model holds `limit` tokens if that is known.
pub(super) fn check(wire: Wire, request: &Value, limit: Option<u64>) -> Result<(), Refusal> {
    let messages = request["messages"].as_array().map(Vec::as_slice).unwrap_or_default();
    let kept = match wire {
        Wire::OpenAi => check_openai(messages),
        Wire::Anthropic => check_anthropic(messages, request),
    };
    kept.map_err(|message| Refusal { code: None, message })?;
    let Some(limit) = limit else { return Ok(()) };
    let (prompt, answer) = (prompt_tokens(request), answer_tokens(request));
    if prompt + answer <= limit {
        return Ok(());
    }
    let message = match wire {
        Wire::OpenAi => format!(
            "This model's maximum context length is {limit} tokens. However, you requested {} tokens ({prompt} in the messages, {answer} in the completion).",
            prompt + answer
        ),
        Wire::Anthropic => {
            format!("input length and `max_tokens` exceed context limit: {prompt} + {answer} > {limit}")
        }
    };
    Err(Refusal { code: Some("context_length_exceeded"), message })
}

/// How many tokens a request has, without its answer.
pub(super) fn prompt_tokens(request: &Value) -> u64 {
    let messages = request["messages"].as_array().into_iter().flatten();
    let said: u64 = messages.map(|message| AROUND + words(message)).sum();
    let tools = request.get("tools").map_or(0, |tools| count(&tools.to_string()));
    AROUND + said + words(&request["system"]) + tools
}

fn answer_tokens(request: &Value) -> u64 {
    let given = ["max_tokens", "max_completion_tokens"].iter().find_map(|name| request[name].as_u64());
    given.unwrap_or_default()
}

/// Of every text in it; arguments count as they are written.
fn words(said: &Value) -> u64 {
    match said {
        Value::String(text) => count(text),
        Value::Array(parts) => parts.iter().map(words).sum(),
        Value::Object(fields) => {
            let counted = fields.iter().filter(|(name, _)| !["type", "cache_control"].contains(&name.as_str()));
            counted.map(|(name, value)| if name == "input" { count(&value.to_string()) } else { words(value) }).sum()
        }
        _ => 0,
    }
}

fn count(text: &str) -> u64 {
    tokens::count(text) as u64
}

fn texts<'a>(values: impl IntoIterator<Item = &'a Value>) -> Vec<&'a str> {
    values.into_iter().map(|value| value.as_str().unwrap_or_default()).collect()
}

fn items(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}

/// Each call is answered by a message right after it, before anyone else says something.
fn check_openai(messages: &[Value]) -> Result<(), String> {
    let mut owed: Vec<&str> = Vec::new();
    for (at, message) in messages.iter().enumerate() {
        let role = message["role"].as_str().unwrap_or_default();
        if !["system", "developer", "user", "assistant", "tool"].contains(&role) {
            return Err(format!("messages[{at}].role: {role:?} is none of them"));
        }
        if role == "tool" {
            let id = message["tool_call_id"].as_str().unwrap_or_default();
            let found = owed.iter().position(|owed| *owed == id).ok_or_else(|| {
                format!("messages[{at}]: role 'tool' must be a response to a preceding message with 'tool_calls': {id}")
            })?;
            owed.remove(found);
            continue;
        }
        all_answered(at, &owed)?;
        owed = texts(items(&message["tool_calls"]).iter().map(|call| &call["id"]));
        if !message["content"].is_string() && !message["content"].is_array() && owed.is_empty() {
            return Err(format!("messages[{at}].content: expected a string, got null"));
        }
    }
    all_answered(messages.len(), &owed)
}

fn all_answered(at: usize, owed: &[&str]) -> Result<(), String> {
    match owed {
        [] => Ok(()),
        owed => Err(format!("messages[{at}]: these tool_call_ids did not have response messages: {}", owed.join(", "))),
    }
}

/// The user begins, both take turns, no text is empty, and the calls of one message are answered at the beginning of the next.
fn check_anthropic(messages: &[Value], request: &Value) -> Result<(), String> {
    if request["max_tokens"].as_u64().is_none_or(|tokens| tokens == 0) {
        return Err("max_tokens: Field required".to_owned());
    }
    let mut owed: Vec<&str> = Vec::new();
    for (at, message) in messages.iter().enumerate() {
        let expected = if at % 2 == 0 { "user" } else { "assistant" };
        if message["role"] != expected {
            return Err(format!(
                "messages.{at}: roles must alternate, beginning with `user`, but it is {}",
                message["role"]
            ));
        }
        let blocks = items(&message["content"]);
        let of = |kind: &'static str| blocks.iter().filter(move |block| block["type"] == kind);
        let is_empty = |block: &Value| block["text"].as_str().is_none_or(|text| text.trim().is_empty());
        if of("text").any(is_empty) || message["content"].as_str().is_some_and(|text| text.trim().is_empty()) {
            return Err(format!("messages.{at}: text content blocks must contain non-whitespace text"));
        }
        let first = blocks.iter().take_while(|block| block["type"] == "tool_result");
        let mut results = texts(first.map(|block| &block["tool_use_id"]));
        results.sort_unstable();
        owed.sort_unstable();
        if results != owed || of("tool_result").count() > results.len() {
            return Err(format!(
                "messages.{at}: `tool_result` blocks {results:?} must be those of the `tool_use` blocks before, {owed:?}"
            ));
        }
        owed = texts(of("tool_use").map(|block| &block["id"]));
        let mut different = owed.clone();
        different.sort_unstable();
        different.dedup();
        if different.len() < owed.len() {
            return Err(format!("messages.{at}: `tool_use` ids must be unique"));
        }
        if !owed.is_empty() && items(&request["tools"]).is_empty() {
            return Err("requests which include `tool_use` blocks must define tools".to_owned());
        }
    }
    match owed.is_empty() {
        true => Ok(()),
        false => Err(format!("`tool_use` ids were found without `tool_result` blocks: {owed:?}")),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn refused(wire: Wire, request: &Value) -> String {
        check(wire, request, None).unwrap_err().message
    }

    #[test]
    fn openai_wants_a_result_right_after_each_call_and_none_besides() {
        let call = |ids: &[&str]| {
            let calls: Vec<Value> = ids.iter().map(|id| json!({ "id": id, "type": "function" })).collect();
            json!({ "role": "assistant", "content": null, "tool_calls": calls })
        };
        let result = |id: &str| json!({ "role": "tool", "tool_call_id": id, "content": "" });
        let user = json!({ "role": "user", "content": "hi" });
        let whole = json!({ "messages": [user, call(&["a", "b"]), result("b"), result("a"), user] });
        assert_eq!(check(Wire::OpenAi, &whole, None), Ok(()));
        for (messages, why) in [
            (json!([user, call(&["a", "b"]), result("a")]), "did not have response messages: b"),
            (json!([call(&["a"]), user, result("a")]), "did not have response messages: a"),
            (json!([user, result("a")]), "must be a response"),
            (json!([call(&["a"]), result("a"), result("a")]), "must be a response"),
            (json!([{ "role": "assistant", "content": null }]), "got null"),
            (json!([{ "role": "robot", "content": "x" }]), "is none of them"),
        ] {
            let said = refused(Wire::OpenAi, &json!({ "messages": messages }));
            assert!(said.contains(why), "{messages}: {said}");
        }
    }

    #[test]
    fn anthropic_wants_the_user_first_turns_and_all_results_at_the_beginning_of_the_next_message() {
        let said = |role: &str, blocks: Value| json!({ "role": role, "content": blocks });
        let text = |text: &str| json!({ "type": "text", "text": text });
        let user = said("user", json!([text("hi")]));
        let calls = said("assistant", json!([{ "type": "tool_use", "id": "a" }, { "type": "tool_use", "id": "b" }]));
        let result = |id: &str| json!({ "type": "tool_result", "tool_use_id": id });
        let tools = json!([{ "name": "t" }]);
        let of = |messages: Value| json!({ "max_tokens": 5, "messages": messages, "tools": tools });
        let whole = of(json!([user, calls, said("user", json!([result("b"), result("a"), text("and?")]))]));
        assert_eq!(check(Wire::Anthropic, &whole, None), Ok(()));
        for (messages, why) in [
            (json!([said("assistant", json!([text("hi")]))]), "must alternate"),
            (json!([user, user]), "must alternate"),
            (json!([said("user", json!([text(" ")]))]), "non-whitespace"),
            (json!([user, calls]), "without `tool_result`"),
            (json!([user, calls, said("user", json!([result("a")]))]), "must be those"),
            (json!([user, calls, said("user", json!([result("a"), text("x"), result("b")]))]), "must be those"),
            (json!([said("user", json!([result("a")]))]), "must be those"),
            (
                json!([
                    user,
                    said("assistant", json!([{ "type": "tool_use", "id": "a" }, { "type": "tool_use", "id": "a" }]))
                ]),
                "unique",
            ),
        ] {
            let said = refused(Wire::Anthropic, &of(messages.clone()));
            assert!(said.contains(why), "{messages}: {said}");
        }
        let toolless = json!({ "max_tokens": 5, "messages": whole["messages"] });
        assert!(refused(Wire::Anthropic, &toolless).contains("must define tools"));
        assert!(refused(Wire::Anthropic, &json!({ "messages": [user] })).contains("max_tokens"));
    }

    #[test]
    fn all_that_is_sent_and_what_may_be_answered_counts() {
        let text = "some words about it ".repeat(50);
        let messages = json!([{ "role": "system", "content": text }, { "role": "user", "content": text }]);
        let tools = json!([{ "type": "function", "function": { "name": "f", "description": text } }]);
        let request = json!({ "messages": messages, "tools": tools });
        let words = tokens::count(&text) as u64;
        let prompt = prompt_tokens(&request);
        assert!((3 * words..3 * words + 40).contains(&prompt), "{prompt} of {words}");
        assert_eq!(check(Wire::OpenAi, &request, Some(prompt)), Ok(()));
        let refusal = check(Wire::OpenAi, &request, Some(prompt - 1)).unwrap_err();
        assert_eq!(refusal.code, Some("context_length_exceeded"));
        let long = json!({ "messages": messages, "tools": tools, "max_tokens": 7 });
        assert_eq!(check(Wire::OpenAi, &long, Some(prompt + 7)), Ok(()));
        assert!(check(Wire::OpenAi, &long, Some(prompt + 6)).unwrap_err().message.contains("7 in the completion"));
    }
}
