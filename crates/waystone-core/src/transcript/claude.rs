//! What Claude Code writes: each line is a message, or a part of one, with an id of its own.

use serde_json::Value;

use super::{Said, Turn, join_parts, text_at, time_of};

/// What a message of the user begins with that no user wrote.
const INJECTED: [&str; 15] = [
    "<local-command-caveat>",
    "<local-command-stdout>",
    "<local-command-stderr>",
    "<bash-stdout>",
    "<bash-stderr>",
    "<task-notification>",
    "<teammate-message",
    "<cross-session-message",
    "<session-start-hook>",
    "<tick>",
    "<goal>",
    "[Request interrupted by user",
    "Caveat: The messages below",
    "This session is being continued from a previous conversation",
    "<system-reminder>",
];

pub(super) fn read(record: &Value, turns: &mut Vec<Turn>) {
    let is = |key: &str| record.get(key).and_then(Value::as_bool).unwrap_or(false);
    // What other agents said inside of this one, and what the program says to itself.
    if is("isSidechain") || is("isMeta") || is("isApiErrorMessage") {
        return;
    }
    let named = |part: usize, said: Said| {
        // A copy in another file says what it is a copy of.
        let origin = record.get("forkedFrom").map(|from| text_at(from, "messageUuid")).filter(|id| !id.is_empty());
        let id = origin.unwrap_or_else(|| text_at(record, "uuid"));
        Turn { name: format!("claude/{id}/{part}"), at: time_of(record), said }
    };
    if text_at(record, "uuid").is_empty() {
        return;
    }
    let message = record.get("message").unwrap_or(&Value::Null);
    let content = message.get("content").unwrap_or(&Value::Null);
    match text_at(record, "type") {
        "user" if is("isCompactSummary") => turns.push(named(0, Said::Summary(join_parts(content)))),
        "user" if is("isVisibleInTranscriptOnly") => {}
        "user" => read_user(record, content, |part, said| turns.push(named(part, said))),
        "assistant" if text_at(message, "model") == "<synthetic>" => {}
        "assistant" => {
            let parts = content.as_array().map_or(&[][..], Vec::as_slice);
            for (part, block) in parts.iter().enumerate() {
                match text_at(block, "type") {
                    "text" => turns.push(named(part, Said::Reply(text_at(block, "text").trim().to_owned()))),
                    "tool_use" => {
                        let (id, tool) = (text_at(block, "id").to_owned(), text_at(block, "name").to_owned());
                        let input = block.get("input").cloned().unwrap_or_default();
                        turns.push(named(part, Said::Call { id, tool, input }));
                    }
                    _ => {}
                }
            }
            if let Value::String(text) = content {
                turns.push(named(0, Said::Reply(text.trim().to_owned())));
            }
        }
        "attachment" => {
            let attachment = record.get("attachment").unwrap_or(&Value::Null);
            // Typed while the agent was at work.
            if text_at(attachment, "type") == "queued_command" && is_human(attachment) {
                let prompt = attachment.get("prompt").unwrap_or(&Value::Null);
                turns.extend(request(&join_parts(prompt)).map(|text| named(0, Said::Request(text))));
            }
        }
        _ => {}
    }
}

fn read_user(record: &Value, content: &Value, mut add: impl FnMut(usize, Said)) {
    let blocks = content.as_array().map_or(&[][..], Vec::as_slice);
    let is_result = |block: &&Value| text_at(block, "type") == "tool_result";
    if !blocks.iter().any(|block| is_result(&block)) {
        if is_human(record)
            && let Some(text) = request(&join_parts(content))
        {
            add(0, Said::Request(text));
        }
        return;
    }
    let task = record.get("toolUseResult").and_then(|result| result.get("task"));
    let task = task.map(|task| (id_of(task.get("id")), text_at(task, "subject").to_owned()));
    // What was typed while the tool ran.
    let texts = blocks.iter().enumerate().filter(|(_, block)| text_at(block, "type") == "text");
    for (part, block) in texts.filter(|_| is_human(record)) {
        if let Some(text) = request(text_at(block, "text")) {
            add(part, Said::Request(text));
        }
    }
    for (part, block) in blocks.iter().enumerate().filter(|(_, block)| is_result(block)) {
        let text = without_reminders(&join_parts(block.get("content").unwrap_or(&Value::Null)));
        let is_error = block.get("is_error").and_then(Value::as_bool).unwrap_or(false);
        let id = text_at(block, "tool_use_id").to_owned();
        add(part, Said::Result { id, text, is_error, task: task.clone() });
    }
}

/// An id that may be a number.
pub(super) fn id_of(id: Option<&Value>) -> String {
    id.map(|id| id.as_str().map_or_else(|| id.to_string(), str::to_owned)).unwrap_or_default()
}

/// Newer versions say where a message is from.
fn is_human(record: &Value) -> bool {
    record.get("origin").is_none_or(|origin| matches!(text_at(origin, "kind"), "human" | ""))
}

/// What a user typed, without what was put around it; nothing if no user typed it.
fn request(text: &str) -> Option<String> {
    let text = without_reminders(text);
    if INJECTED.iter().any(|start| text.starts_with(start)) {
        return None;
    }
    if let Some(command) = between(&text, "<command-name>", "</command-name>") {
        let arguments = between(&text, "<command-args>", "</command-args>").unwrap_or_default();
        return Some(format!("{command} {arguments}").trim().to_owned());
    }
    if let Some(command) = between(&text, "<bash-input>", "</bash-input>") {
        return Some(format!("! {command}"));
    }
    Some(text)
}

fn between<'a>(text: &'a str, start: &str, end: &str) -> Option<&'a str> {
    text.split_once(start)?.1.split_once(end).map(|(inside, _)| inside.trim())
}

/// What the program and editors put into texts.
const REMINDERS: [(&str, &str); 3] = [
    ("<system-reminder>", "</system-reminder>"),
    ("<ide_opened_file>", "</ide_opened_file>"),
    ("<ide_selection>", "</ide_selection>"),
];

fn without_reminders(text: &str) -> String {
    let mut text = text.to_owned();
    for (start, end) in REMINDERS.iter().filter(|(start, _)| text.contains(start)).collect::<Vec<_>>() {
        let (mut kept, mut rest) = (String::with_capacity(text.len()), text.as_str());
        while let Some((before, inside)) = rest.split_once(start)
            && let Some((_, after)) = inside.split_once(end)
        {
            kept.push_str(before);
            rest = after;
        }
        kept.push_str(rest);
        text = kept;
    }
    text.trim().to_owned()
}
