//! What differs between two contexts, key by key; inside of long values line by line. Pure.

use std::time::Duration;

use serde_json::{Map, Value};
use similar::TextDiff;

use crate::api::{Change, ChangeKind};
use crate::canon::hash_value;

/// A changed value is shown as a diff from this length on.
const LONG_CHARS: usize = 200;
/// Longer texts are compared roughly: an exact answer may take minutes.
const EFFORT_MAX: Duration = Duration::from_millis(500);

/// In the order of `after`, then what only `before` has.
pub fn diff(before: &Map<String, Value>, after: &Map<String, Value>) -> Vec<Change> {
    let now = after.iter().filter_map(|(key, new)| match before.get(key) {
        None => Some(Change {
            key: key.clone(),
            kind: ChangeKind::Added,
            before: None,
            after: Some(new.clone()),
            diff: None,
        }),
        Some(old) if old == new || is_equal(old, new) => None,
        Some(old) => Some(change(key, old, new)),
    });
    let gone = before.iter().filter(|(key, _)| !after.contains_key(*key)).map(|(key, old)| Change {
        key: key.clone(),
        kind: ChangeKind::Removed,
        before: Some(old.clone()),
        after: None,
        diff: None,
    });
    now.chain(gone).collect()
}

/// As a save has it: 1.0 is 1.
fn is_equal(old: &Value, new: &Value) -> bool {
    hash_value(old).is_some_and(|hash| hash_value(new) == Some(hash))
}

fn change(key: &str, old: &Value, new: &Value) -> Change {
    let (old_text, new_text) = (text_of(old), text_of(new));
    let kind = ChangeKind::Changed;
    if old_text.len().max(new_text.len()) < LONG_CHARS {
        return Change { key: key.to_owned(), kind, before: Some(old.clone()), after: Some(new.clone()), diff: None };
    }
    let lines = TextDiff::configure().timeout(EFFORT_MAX).diff_lines(&old_text, &new_text);
    let diff = lines.unified_diff().context_radius(2).to_string();
    // Two texts that have little in common are shorter side by side; a list and its text have all in common.
    if diff.is_empty() || diff.len() > old_text.len() + new_text.len() {
        return Change { key: key.to_owned(), kind, before: Some(old.clone()), after: Some(new.clone()), diff: None };
    }
    Change { key: key.to_owned(), kind, before: None, after: None, diff: Some(diff) }
}

/// Text as it is, other values as JSON with a line for each member.
fn text_of(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => serde_json::to_string_pretty(other).unwrap_or_default(),
    }
}
