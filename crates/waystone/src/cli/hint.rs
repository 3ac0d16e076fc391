//! Hints in the words of the command line.
//!
//! What to do about an error is said once, where the error is, and names tools of agents and routes of applications. Here each of
//! these names stands beside the command that does the same. Nothing is decided: what has no command stays as it is.

use serde_json::Value;

/// What hints say, and what a person types instead. What contains another stands before it.
const COMMANDS: [(&str, &str); 22] = [
    ("at GET /api/contexts/{id} and `waystone context`", "shown by `waystone context show`"),
    ("GET /api/contexts/{id}/tools/{call}", "`waystone context show`"),
    ("with POST /api/contexts/{id}/tools/approve", "in `waystone chat --context`"),
    ("end the turn with POST /api/contexts/{id}/cancel", "end it where it was begun, with Ctrl-C in `waystone chat`"),
    ("GET /api/contexts/{id}/state", "`waystone context show`"),
    ("GET /api/contexts/{id}/branches", "`waystone context branches`"),
    ("GET /api/contexts/{id}/messages", "`waystone context show`"),
    ("the ToolCallRequested event or in the message that calls it", "what `waystone context show` prints"),
    ("GET /api/contexts or `waystone context list`", "`waystone context list`"),
    ("GET /api/operations or `waystone undo --list`", "`waystone undo --list`"),
    ("GET /api/projects/{project_id}/snapshots or `waystone task snapshots`", "`waystone task snapshots`"),
    ("in the list of checkpoints", "with `waystone checkpoint list`"),
    (
        "in the list of sessions, or of those that were deleted",
        "with `waystone session list`, or with --deleted among those that were deleted",
    ),
    (
        "context_get_working_set or context_search_stashed returned",
        "`waystone segment list` or `waystone search` prints",
    ),
    ("context_search_stashed", "`waystone search`"),
    ("context_gc_unpin", "`waystone segment unpin`"),
    ("context_gc_analyze", "`waystone segment gc --target TOKENS`"),
    ("context_expand", "`waystone expand`"),
    ("a load without maxTokens", "`waystone checkpoint show` without --max-tokens"),
    ("what details.pinned names", "details.pinned"),
    ("load details.nearestCheckpointId", "see `waystone checkpoint show details.nearestCheckpointId`"),
    ("a shorter answer (max_tokens)", "a shorter answer"),
];

/// A hint as a person can follow it.
pub(super) fn in_commands(hint: &str) -> String {
    COMMANDS.iter().fold(hint.to_owned(), |hint, (elsewhere, here)| hint.replace(elsewhere, here))
}

/// The same, with what it names of the error's details: a person is not shown them.
pub(super) fn with_details(hint: &str, details: &Value) -> String {
    let named = details.as_object().into_iter().flatten();
    named.fold(in_commands(hint), |hint, (name, value)| hint.replace(&format!("details.{name}"), &shown(value)))
}

fn shown(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(values) => values.iter().map(shown).collect::<Vec<_>>().join(", "),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use serde_json::json;

    use super::*;

    /// The texts of all files of the engine's crate under `path` that are sentences.
    fn sentences(path: &Path, found: &mut Vec<String>) {
        if path.is_dir() {
            for entry in std::fs::read_dir(path).unwrap() {
                sentences(&entry.unwrap().path(), found);
            }
            return;
        }
        let source = std::fs::read_to_string(path).unwrap();
        let source = source.split("#[cfg(test)]").next().unwrap();
        let code = source.lines().filter(|line| !line.trim_start().starts_with("//")).collect::<Vec<_>>().join("\n");
        let texts = code.split('"').skip(1).step_by(2).filter(|text| text.contains(' '));
        found.extend(texts.map(str::to_owned));
    }

    #[test]
    fn no_hint_of_the_engine_names_a_tool_or_a_route_on_the_command_line() {
        let core = Path::new(env!("CARGO_MANIFEST_DIR")).join("../waystone-core/src");
        let mut said = Vec::new();
        sentences(&core.join("error.rs"), &mut said);
        sentences(&core.join("error"), &mut said);
        sentences(&core.join("engine"), &mut said);
        let names =
            ["context_gc", "context_get", "context_search", "context_expand", "workflow_c", " /api/", "details."];
        let is_elsewhere = |text: &str| names.iter().any(|name| text.contains(name));
        let elsewhere: Vec<&String> = said.iter().filter(|text| is_elsewhere(text)).collect();
        assert!(elsewhere.len() > 10, "{elsewhere:?}");
        let details = json!({ "pinned": ["a", "b"], "nearestCheckpointId": "c" });
        for hint in elsewhere {
            let here = with_details(hint, &details);
            assert!(!is_elsewhere(&here), "{here}");
        }
        for (elsewhere, _) in COMMANDS {
            assert!(said.iter().any(|text| text.contains(elsewhere)), "nothing says {elsewhere}");
        }
        assert_eq!(with_details("leave out what details.pinned names, then", &details), "leave out a, b, then");
    }
}
