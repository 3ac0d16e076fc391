//! What must not be lost, and the one function that looks whether it was: every lossy path ends here.
//!
//! Anchors are the user's last request, constraints and decisions, open tasks, the newest error, and for each file that was changed the
//! newest line that says so. They are lines of the original; one survives in view, or one call away by its key's handle.

use std::collections::{HashMap, HashSet};
use std::sync::LazyLock;

use regex::Regex;
use serde_json::{Map, Value};

use crate::classify::is_binding;

/// How many anchors there were, and where they are now.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Survivors {
    pub total: u64,
    pub in_view: u64,
    pub by_handle: u64,
    pub lost: u64,
}

static ERROR: LazyLock<Regex> = LazyLock::new(|| {
    let pattern = r"\b[A-Z]\w*(Error|Exception)\b|^\s*(error|Error|ERROR|fatal|FAILED|FAIL)\b|:\s(fatal )?error(:|\s[A-Z]+\d)|\b(ERROR|FATAL)\b|\bpanicked at\b";
    Regex::new(pattern).expect("the pattern is a constant")
});
static DECISION: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r"(?i)\b(we|i|user|team) (have |has )?(decided|agreed|confirmed)\b|\bdecision:")
        .expect("the pattern is a constant")
});
static TASK: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"^\s*[-*] \[ \]|\b(TODO|FIXME)\b").expect("the pattern is a constant"));

static CHANGED_FILE: LazyLock<Regex> = LazyLock::new(|| {
    let head = r"^(?:\+\+\+ b/|diff --git a/|\*\*\* (?:Update|Add|Delete) File: )(\S+)";
    let said = r#"(?i:\b(?:edited|created|wrote|modified|updated|patched|deleted|renamed)\b)(?:.*?[\s`'"(])((?:[\w.-]*/)*[\w-]{2,}\.[A-Za-z]\w{0,4})\b"#;
    Regex::new(&format!("{head}|{said}")).expect("the pattern is a constant")
});

/// The file that a line says was changed: the head of a diff, or words such as `edited src/main.rs`.
pub(crate) fn changed_file(line: &str) -> Option<&str> {
    let found = CHANGED_FILE.captures(line)?;
    found.get(1).or_else(|| found.get(2)).map(|path| path.as_str())
}

/// Who says something in a conversation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Speaker {
    /// Who tells the agent how to work.
    System,
    User,
    Agent,
}

/// Why a line matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Anchor {
    /// A constraint or a decision.
    Binding,
    /// Something that is still to do.
    Task,
    /// Of these only the newest is taken for unresolved.
    Error,
    /// A file was changed; of each file only the newest line counts.
    File,
}

/// Why a line matters, if it does by what it says. What a tool printed binds nobody, and what the agent says only if it decides.
pub(crate) fn anchor(line: &str, speaker: Option<Speaker>) -> Option<Anchor> {
    let binds = match speaker {
        Some(Speaker::System | Speaker::User) => is_binding(line),
        Some(Speaker::Agent) => DECISION.is_match(line),
        None => false,
    };
    match () {
        () if binds => Some(Anchor::Binding),
        () if TASK.is_match(line) => Some(Anchor::Task),
        () if ERROR.is_match(line) => Some(Anchor::Error),
        () if speaker != Some(Speaker::System) && changed_file(line).is_some() => Some(Anchor::File),
        () => None,
    }
}

/// What a list is as a conversation.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Talk {
    /// Some items are messages.
    is_talk: bool,
    /// The last message of the user.
    request: Option<usize>,
}

impl Talk {
    pub(crate) fn of(items: &[Value]) -> Self {
        let is_talk = items.iter().any(|item| role(item).is_some());
        Self { is_talk, request: items.iter().rposition(|item| speaker(item) == Some(Speaker::User)) }
    }

    /// Who says an item; in a list that is no conversation, who says the list.
    pub(crate) fn speaker(self, item: &Value, of_list: Option<Speaker>) -> Option<Speaker> {
        if self.is_talk { speaker(item) } else { of_list }
    }
}

/// What the user asked for last: a message of the newest conversation in a value, wherever that stands. Inside of a message no other
/// conversation counts.
pub(crate) fn request_of(value: &Value) -> Option<&Value> {
    path_to_request(value)?.first().copied()
}

/// The same, and all that it stands in, from the inside to the outside.
pub(crate) fn path_to_request(value: &Value) -> Option<Vec<&Value>> {
    let mut path = match value {
        Value::Array(items) => match Talk::of(items).request {
            Some(at) => vec![&items[at]],
            None if items.iter().any(|item| speaker(item).is_some()) => return None,
            // Nobody speaks here whom we know: the items may be tickets with an author each, and conversations inside.
            None => items.iter().rev().find_map(path_to_request)?,
        },
        Value::Object(map) => map.values().rev().find_map(path_to_request)?,
        _ => return None,
    };
    path.push(value);
    Some(path)
}

fn speaker(item: &Value) -> Option<Speaker> {
    match role(item)? {
        "system" | "developer" => Some(Speaker::System),
        // What tools answer comes in messages of the user with some providers.
        "user" | "human" if !is_tool_output(item) => Some(Speaker::User),
        "assistant" | "agent" | "ai" => Some(Speaker::Agent),
        _ => None,
    }
}

fn is_tool_output(message: &Value) -> bool {
    let is_output = |part: &Value| {
        part.get("type")
            .and_then(Value::as_str)
            .is_some_and(|kind| matches!(kind, "tool_result" | "function_call_output"))
    };
    let parts = message.get("content").and_then(Value::as_array);
    is_output(message) || parts.is_some_and(|parts| !parts.is_empty() && parts.iter().all(is_output))
}

const ROLES: [&str; 4] = ["role", "from", "speaker", "author"];

fn role(item: &Value) -> Option<&str> {
    ROLES.iter().find_map(|key| item.get(key)?.as_str())
}

/// Looks whether everything that matters in `before` is in `after`, or under a key that has a handle. A critical key that is not in view
/// as it was is an error: such a view must not leave.
pub fn check(
    before: &Map<String, Value>,
    after: &Map<String, Value>,
    is_critical: impl Fn(&str) -> bool,
    has_handle: impl Fn(&str) -> bool,
) -> Result<Survivors, String> {
    for (key, value) in before.iter().filter(|(key, _)| is_critical(key)) {
        if after.get(key) != Some(value) {
            return Err(format!("the view would not hold the critical key `{key}` as it is"));
        }
    }
    let mut survivors = Survivors::default();
    for (key, value) in before {
        let seen = after.get(key).map(lines_of).unwrap_or_default();
        let is_whole = after.get(key) == Some(value);
        for anchor in anchors_of(value) {
            survivors.total += 1;
            match () {
                () if is_whole || seen.contains(&anchor) => survivors.in_view += 1,
                () if has_handle(key) => survivors.by_handle += 1,
                () => survivors.lost += 1,
            }
        }
    }
    Ok(survivors)
}

/// The lines under a key that matter, each once.
fn anchors_of(value: &Value) -> HashSet<String> {
    let mut found = Found::default();
    found.read(value, Some(Speaker::User), request_of(value), false);
    found.anchors.extend(found.error);
    found.anchors.extend(found.files.into_values());
    found.anchors.remove("");
    found.anchors
}

#[derive(Default)]
struct Found {
    anchors: HashSet<String>,
    /// The newest.
    error: Option<String>,
    /// The newest line about each.
    files: HashMap<String, String>,
}

impl Found {
    /// `speaker` says it; what is no message was written down to be kept, and counts as if the user had said it.
    fn read(&mut self, value: &Value, speaker: Option<Speaker>, request: Option<&Value>, is_request: bool) {
        let is_request = is_request || request.is_some_and(|request| std::ptr::eq(request, value));
        match value {
            Value::String(text) => text.lines().for_each(|line| self.read_line(line, speaker, is_request)),
            Value::Array(items) => {
                let talk = Talk::of(items);
                for item in items {
                    self.read(item, talk.speaker(item, speaker), request, is_request);
                }
            }
            // Who says it and which it is are no lines.
            Value::Object(map) => {
                let is_text = |key: &str| !ROLES.contains(&key) && !matches!(key, "id" | "type" | "name");
                let texts = map.iter().filter(|(key, _)| is_text(key));
                texts.for_each(|(_, value)| self.read(value, speaker, request, is_request));
            }
            _ => {}
        }
    }

    fn read_line(&mut self, line: &str, speaker: Option<Speaker>, is_request: bool) {
        match anchor(line, speaker) {
            Some(Anchor::Error) if !is_request => self.error = Some(line.trim().to_owned()),
            Some(Anchor::File) if !is_request => {
                let file = changed_file(line).unwrap_or_default().to_owned();
                self.files.insert(file, line.trim().to_owned());
            }
            None if !is_request => {}
            _ => drop(self.anchors.replace(line.trim().to_owned())),
        }
    }
}

/// The same lines in the order in which they stand there.
pub(crate) fn anchor_lines(value: &Value) -> Vec<String> {
    let mut wanted = anchors_of(value);
    let mut lines = Vec::new();
    each_line(value, &mut |line| lines.extend(wanted.take(line.trim())));
    lines
}

fn each_line(value: &Value, see: &mut impl FnMut(&str)) {
    match value {
        Value::String(text) => text.lines().for_each(see),
        Value::Array(items) => items.iter().for_each(|item| each_line(item, see)),
        Value::Object(map) => map.values().for_each(|value| each_line(value, see)),
        _ => {}
    }
}

/// All lines of all texts.
pub(crate) fn lines_of(value: &Value) -> HashSet<String> {
    let mut lines = HashSet::new();
    each_line(value, &mut |line| {
        lines.insert(line.trim().to_owned());
    });
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_was_changed_is_named_by_the_line() {
        let check = |line: &str, file: Option<&str>| assert_eq!(changed_file(line), file, "{line}");
        check("I edited src/billing/ledger.rs to use cents.", Some("src/billing/ledger.rs"));
        check("Created Cargo.toml", Some("Cargo.toml"));
        check("+++ b/src/main.rs", Some("src/main.rs"));
        check("*** Update File: docs/guide.md", Some("docs/guide.md"));
        check("The file has been updated: pkg/util.py", Some("pkg/util.py"));
        check("I will look at src/main.rs next.", None);
        check("The record was updated, e.g. yesterday", None);
        check("created_at: 2026-11-01T10:00:00.123Z", None);
        check("Updated 3.5 million rows", None);
    }
}
