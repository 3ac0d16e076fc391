//! What Codex writes: each line is an event or an item of what the model was sent. What was typed and answered is taken from events only,
//! since the items hold it once more, among much that no one typed.

use std::sync::LazyLock;

use regex::Regex;
use serde_json::Value;

use super::{Said, Turn, join_parts, text_at, time_of};
use crate::canon::Hash;

/// How a command ended is said in the text that it printed.
static EXIT_CODE: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r#"(?m)^(?:Process exited with code|Exit code:)\s*(-?\d+)|"exit_code":\s*(-?\d+)"#)
        .expect("the pattern is a constant")
});
/// Before it stands what an editor added.
const REQUEST_HEAD: &str = "## My request for Codex:";

pub(super) fn read(record: &Value, turns: &mut Vec<Turn>) {
    let payload = record.get("payload").unwrap_or(&Value::Null);
    let at = time_of(record);
    let mut add = |name: String, said: Said| turns.push(Turn { name: format!("codex/{name}"), at, said });
    // Records of older versions have no id, but a time.
    let by_record = || format!("record/{}", Hash::of(record.to_string().as_bytes()));
    match (text_at(record, "type"), text_at(payload, "type")) {
        ("event_msg", "user_message") => add(by_record(), Said::Request(request(text_at(payload, "message")))),
        ("event_msg", "agent_message") => {
            add(by_record(), Said::Reply(text_at(payload, "message").trim().to_owned()));
        }
        ("event_msg", "item_completed") => {
            let thread = text_at(payload, "thread_id");
            read_item(thread, payload.get("item").unwrap_or(&Value::Null), add);
        }
        ("response_item", "function_call") => {
            let input = payload.get("arguments").cloned().unwrap_or_default();
            // It is JSON inside of a text.
            let input = input.as_str().and_then(|text| serde_json::from_str(text).ok()).unwrap_or(input);
            add_call(id_of(payload), by_record, text_at(payload, "name"), input, add);
        }
        ("response_item", "custom_tool_call") => {
            add_call(
                id_of(payload),
                by_record,
                text_at(payload, "name"),
                payload.get("input").cloned().unwrap_or_default(),
                add,
            );
        }
        ("response_item", "local_shell_call") => {
            add_call(id_of(payload), by_record, "shell", payload.get("action").cloned().unwrap_or_default(), add);
        }
        ("response_item", "function_call_output" | "custom_tool_call_output") => {
            let output = payload.get("output").unwrap_or(&Value::Null);
            let output = output.get("content").unwrap_or(output);
            let (id, text) = (id_of(payload), join_parts(output));
            let is_error = exit_code(&text).is_some_and(|code| code != 0);
            let name = if id.is_empty() { by_record() } else { format!("result/{id}") };
            add(name, Said::Result { id, text, is_error, task: None });
        }
        ("compacted", _) => add(by_record(), Said::Summary(text_at(payload, "message").trim().to_owned())),
        _ => {}
    }
}

fn add_call(id: String, or: impl Fn() -> String, tool: &str, input: Value, mut add: impl FnMut(String, Said)) {
    let name = if id.is_empty() { or() } else { format!("call/{id}") };
    add(name, Said::Call { id, tool: tool.to_owned(), input });
}

/// What a call and its answer have in common.
fn id_of(payload: &Value) -> String {
    let ids = ["call_id", "id"].iter().map(|key| text_at(payload, key));
    ids.into_iter().find(|id| !id.is_empty()).unwrap_or_default().to_owned()
}

/// What newer versions write when something is done.
fn read_item(thread: &str, item: &Value, mut add: impl FnMut(String, Said)) {
    let id = text_at(item, "id").to_owned();
    let name = format!("item/{thread}/{id}");
    let content = item.get("content").unwrap_or(&Value::Null);
    let status = text_at(item, "status");
    match text_at(item, "type") {
        "UserMessage" => add(name, Said::Request(request(&join_parts(content)))),
        "AgentMessage" => add(name, Said::Reply(join_parts(content).trim().to_owned())),
        "Plan" => add(name, Said::Reply(text_at(item, "text").trim().to_owned())),
        "CommandExecution" => {
            let command = item.get("command").cloned().unwrap_or_default();
            let input = serde_json::json!({ "command": command });
            add(format!("call/{id}"), Said::Call { id: id.clone(), tool: "shell".to_owned(), input });
            let code = item.get("exit_code").and_then(Value::as_i64);
            let text = ["aggregated_output", "stdout", "stderr"].iter().map(|key| text_at(item, key));
            let text = text.into_iter().find(|text| !text.is_empty()).unwrap_or_default().to_owned();
            let is_error = code.map_or(status == "failed", |code| code != 0);
            add(format!("result/{id}"), Said::Result { id, text, is_error, task: None });
        }
        "FileChange" => {
            let input = item.get("changes").cloned().unwrap_or_default();
            add(format!("call/{id}"), Said::Call { id, tool: "file_change".to_owned(), input });
        }
        "McpToolCall" => {
            let tool = format!("{}.{}", text_at(item, "server"), text_at(item, "tool"));
            let input = item.get("arguments").cloned().unwrap_or_default();
            add(format!("call/{id}"), Said::Call { id: id.clone(), tool, input });
            let result = item.get("result").cloned().unwrap_or_default();
            let text = join_parts(result.get("content").unwrap_or(&result));
            let text = if text.is_empty() && !result.is_null() { result.to_string() } else { text };
            add(format!("result/{id}"), Said::Result { id, text, is_error: status == "failed", task: None });
        }
        _ => {}
    }
}

fn request(text: &str) -> String {
    text.split_once(REQUEST_HEAD).map_or(text, |(_, request)| request).trim().to_owned()
}

fn exit_code(text: &str) -> Option<i64> {
    let found = EXIT_CODE.captures(text)?;
    found.get(1).or_else(|| found.get(2))?.as_str().parse().ok()
}
