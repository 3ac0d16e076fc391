//! Transcripts: the files in which coding agents write what was said and done, a JSON object a line, read into turns.
//!
//! Their formats are not ours and change without notice: every field may be missing, and what is not known is passed over. What Claude Code
//! writes is read in [`claude`], what Codex writes in [`codex`]; a line shows by itself which of them wrote it.

mod claude;
mod codex;
mod digest;

use serde_json::Value;

use crate::api::{Origin, SegmentType};
use crate::canon::Hash;
use crate::clock::Timestamp;
use crate::id::SessionId;
use crate::store::TranscriptEnd;

pub use digest::guide;
pub(crate) use digest::tell_statements;

/// A part of a transcript.
#[derive(Debug, Clone)]
pub struct Captured {
    /// The program that wrote it.
    pub client: &'static str,
    /// What that program calls the session.
    pub session: SessionId,
    pub path: String,
    /// The directory that the session works in.
    pub place: String,
    pub turns: Vec<Turn>,
    /// How far the file was read.
    pub end: TranscriptEnd,
}

/// One thing that was said or done.
#[derive(Debug, Clone, PartialEq)]
pub struct Turn {
    /// Names it wherever it stands: in another file, or in the same one again.
    pub name: String,
    pub at: Option<Timestamp>,
    pub said: Said,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Said {
    /// What the user asked for.
    Request(String),
    /// What the agent answered.
    Reply(String),
    /// What an earlier part of the conversation was summed up to.
    Summary(String),
    /// What the agent did, by a tool.
    Call { id: String, tool: String, input: Value },
    /// What a tool answered.
    Result {
        id: String,
        text: String,
        is_error: bool,
        /// A task that the tool made: its number and what it is about.
        task: Option<(String, String)>,
    },
}

impl Turn {
    /// What it is known by when it stands in a file again.
    pub fn hash(&self) -> [u8; 16] {
        let mut half = [0; 16];
        half.copy_from_slice(&Hash::of(self.name.as_bytes()).0[..16]);
        half
    }

    pub fn kind(&self) -> SegmentType {
        match self.said {
            Said::Request(_) | Said::Reply(_) => SegmentType::Message,
            Said::Summary(_) => SegmentType::Summary,
            Said::Call { .. } | Said::Result { .. } => SegmentType::Log,
        }
    }

    pub fn role(&self) -> &'static str {
        match self.said {
            Said::Request(_) => "user",
            Said::Reply(_) | Said::Call { .. } => "assistant",
            Said::Summary(_) => "system",
            Said::Result { .. } => "tool",
        }
    }

    pub fn origin(&self) -> Origin {
        match self.said {
            Said::Request(_) => Origin::User,
            Said::Reply(_) | Said::Summary(_) | Said::Call { .. } => Origin::Agent,
            Said::Result { .. } => Origin::Tool,
        }
    }

    /// All of it, as text.
    pub fn text(&self) -> String {
        match &self.said {
            Said::Request(text) | Said::Reply(text) | Said::Summary(text) | Said::Result { text, .. } => text.clone(),
            Said::Call { tool, input: Value::String(input), .. } => format!("{tool} {input}"),
            Said::Call { tool, input, .. } => format!("{tool} {input}"),
        }
    }
}

/// The turns in a line of a transcript. A line that was written only in part, or over another one, gives what can be read of it.
pub fn read_line(line: &[u8]) -> Vec<Turn> {
    let mut turns = Vec::new();
    for record in records(line) {
        match record.get("payload") {
            Some(_) => codex::read(&record, &mut turns),
            None => claude::read(&record, &mut turns),
        }
    }
    turns.retain(
        |turn| !matches!(&turn.said, Said::Request(text) | Said::Reply(text) | Said::Summary(text) if text.is_empty()),
    );
    turns
}

/// The objects on a line: one, or more when an end of line was lost.
fn records(line: &[u8]) -> Vec<Value> {
    let line = line.trim_ascii();
    if line.is_empty() {
        return Vec::new();
    }
    let parse = |text: &[u8]| -> Vec<Value> {
        let all = serde_json::Deserializer::from_slice(text).into_iter::<Value>();
        all.map_while(Result::ok).filter(Value::is_object).collect()
    };
    let found = parse(line);
    if !found.is_empty() {
        return found;
    }
    // Half of a character outside of the first plane, or bytes that a crash left.
    let text: String = String::from_utf8_lossy(line).chars().filter(|c| *c != '\0').collect();
    parse(without_surrogates(&text).as_bytes())
}

/// Escapes of halves of characters are replaced: alone they are no text.
fn without_surrogates(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("\\u") {
        let is_half = |from: usize| {
            let digits = rest.get(from + 2..from + 6).filter(|_| rest.get(from..from + 2) == Some("\\u"));
            digits
                .and_then(|digits| u16::from_str_radix(digits, 16).ok())
                .filter(|code| (0xd800..0xe000).contains(code))
        };
        let (end, replaced) = match (is_half(at), is_half(at + 6)) {
            (Some(first), Some(second)) if first < 0xdc00 && second >= 0xdc00 => (at + 12, false),
            (Some(_), _) => (at + 6, true),
            _ => (at + 2, false),
        };
        out.push_str(&rest[..at]);
        out.push_str(if replaced { "\\ufffd" } else { &rest[at..end] });
        rest = &rest[end..];
    }
    out + rest
}

fn text_at<'a>(value: &'a Value, key: &str) -> &'a str {
    value.get(key).and_then(Value::as_str).unwrap_or_default()
}

fn time_of(record: &Value) -> Option<Timestamp> {
    text_at(record, "timestamp").parse().ok()
}

/// The texts of a message's parts; of pictures only that there was one.
fn join_parts(content: &Value) -> String {
    let part = |part: &Value| match part {
        Value::String(text) => text.clone(),
        _ => match part.get("text").and_then(Value::as_str) {
            Some(text) => text.to_owned(),
            None if text_at(part, "type").contains("image") => "[image]".to_owned(),
            None => String::new(),
        },
    };
    match content {
        Value::Array(parts) => {
            let texts: Vec<String> = parts.iter().map(part).filter(|text| !text.is_empty()).collect();
            texts.join("\n")
        }
        other => part(other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_that_was_damaged_gives_what_can_be_read_of_it() {
        let user = |uuid: &str, text: &str| {
            format!(r#"{{"type":"user","uuid":"{uuid}","message":{{"role":"user","content":"{text}"}}}}"#)
        };
        let requests = |line: &str| -> Vec<String> { read_line(line.as_bytes()).iter().map(Turn::text).collect() };
        assert_eq!(requests(&user("a", "one")), ["one"]);
        assert_eq!(requests(&format!("{}{}", user("a", "one"), user("b", "two"))), ["one", "two"]);
        assert_eq!(requests(&user("a", "half \\ud83d here, whole \\ud83d\\ude00")), ["half \u{fffd} here, whole 😀"]);
        assert_eq!(requests(&format!("\0\0{}", user("a", "after"))), ["after"]);
        assert_eq!(requests(&user("a", "cut")[..20]), Vec::<String>::new());
        for garbage in ["", "   ", "null", "[]", "{}", "\"text\"", "{\"payload\":1}", "{\"type\":\"user\"}", "\u{0}"] {
            assert_eq!(requests(garbage), Vec::<String>::new(), "{garbage:?}");
        }
        assert_eq!(read_line(&[0xff, 0xfe, b'{']), []);
        let said = |kind: &str, text: &str| {
            format!(
                r#"{{"timestamp":"2026-10-02T09:00:00Z","type":"event_msg","payload":{{"type":"{kind}","message":"{text}"}}}}"#
            )
        };
        let both = read_line(format!("{}{}", said("user_message", "one"), said("agent_message", "two")).as_bytes());
        assert!(both.len() == 2 && both[0].name != both[1].name, "{both:?}");
        let call = |id: &str| {
            let line = format!(
                r#"{{"type":"response_item","payload":{{"type":"local_shell_call","id":{id},"action":{{"n":1}}}}}}"#
            );
            read_line(line.as_bytes()).remove(0).name
        };
        assert_ne!(call("\"a\""), call("\"b\""), "a call without a call_id has an id");
        assert!(call("null").contains("record/"), "or is known by all that it says");
    }

    #[test]
    fn what_is_typed_while_a_tool_runs_is_a_request_too() {
        let line = r#"{"type":"user","uuid":"u","message":{"content":[{"type":"tool_result","tool_use_id":"t","content":"ok"},
            {"type":"text","text":"and hurry"},{"type":"text","text":"<system-reminder>x</system-reminder>"}]}}"#;
        let turns = read_line(line.replace('\n', " ").as_bytes());
        let texts: Vec<String> = turns.iter().map(Turn::text).collect();
        assert_eq!(texts, ["and hurry", "ok"]);
    }

    #[test]
    fn many_reminders_are_taken_out_in_one_pass() {
        let text = "<system-reminder>no</system-reminder>x".repeat(200_000);
        let line = format!(r#"{{"type":"user","uuid":"u","message":{{"content":"{text}"}}}}"#);
        assert_eq!(read_line(line.as_bytes())[0].text().len(), 200_000);
    }
}
