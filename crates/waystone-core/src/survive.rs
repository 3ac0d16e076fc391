//! What must not be lost, and the one function that looks whether it was: every lossy path ends here.
//!
//! Anchors are the user's last request, goals, constraints and decisions, open tasks, unresolved errors, and the files that the agent
//! named. They are lines of the original; one survives in view, or one call away by its key's handle.

use std::collections::HashSet;
use std::sync::LazyLock;

use regex::Regex;
use serde_json::{Map, Value};

use crate::classify::is_binding;

/// As many are looked at under a key.
const ANCHORS_MAX: usize = 1000;

/// How many anchors there were, and where they are now.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Survivors {
    pub total: u64,
    pub in_view: u64,
    pub by_handle: u64,
    pub lost: u64,
}

static ERROR: LazyLock<Regex> = LazyLock::new(|| {
    let pattern =
        r"\b[A-Z]\w*(Error|Exception)\b|^\s*(error|Error|ERROR|fatal|FAILED|FAIL)\b|\b(ERROR|FATAL)\b|\bpanicked at\b";
    Regex::new(pattern).expect("the pattern is a constant")
});
static DECISION: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r"(?i)\b(we|i|user|team) (have |has )?(decided|agreed|confirmed)\b|\bdecision:")
        .expect("the pattern is a constant")
});
static TASK: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"^\s*[-*] \[ \]|\b(TODO|FIXME)\b").expect("the pattern is a constant"));

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
        () => None,
    }
}

/// Who says an item of an array, if it is a message.
pub(crate) fn speaker(item: &Value) -> Option<Speaker> {
    match role(item)? {
        "system" | "developer" => Some(Speaker::System),
        "user" | "human" => Some(Speaker::User),
        "assistant" | "agent" | "ai" => Some(Speaker::Agent),
        _ => None,
    }
}

/// The last message of the user among the items of an array.
pub(crate) fn last_request(items: &[Value]) -> Option<usize> {
    items.iter().rposition(|item| speaker(item) == Some(Speaker::User))
}

fn role(item: &Value) -> Option<&str> {
    ["role", "from", "speaker", "author"].iter().find_map(|key| item.get(key)?.as_str())
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
    let mut anchors = HashSet::new();
    let (items, is_list) = match value {
        Value::Array(items) => (items.as_slice(), true),
        other => (std::slice::from_ref(other), false),
    };
    let request = if is_list { last_request(items) } else { None };
    let mut error = None;
    for (at, item) in items.iter().enumerate() {
        // What is no message was written down to be kept: it counts as if the user had said it.
        let speaker = if is_list { speaker(item) } else { Some(Speaker::User) };
        each_line(item, &mut |line| match anchor(line, speaker) {
            Some(Anchor::Error) => error = Some(line.trim().to_owned()),
            None if request != Some(at) => {}
            _ if anchors.len() == ANCHORS_MAX => {}
            _ => drop(anchors.insert(line.trim().to_owned())),
        });
    }
    anchors.extend(error);
    anchors.remove("");
    anchors
}

fn each_line(value: &Value, see: &mut impl FnMut(&str)) {
    match value {
        Value::String(text) => text.lines().for_each(see),
        Value::Array(items) => items.iter().for_each(|item| each_line(item, see)),
        Value::Object(map) => map.values().for_each(|value| each_line(value, see)),
        _ => {}
    }
}

fn lines_of(value: &Value) -> HashSet<String> {
    let mut lines = HashSet::new();
    each_line(value, &mut |line| {
        lines.insert(line.trim().to_owned());
    });
    lines
}
