//! Hints in the words of the command line: [`Face`] has them, and what they name of an error's details is put in.

use serde_json::Value;
use waystone_core::error::Face;

/// A hint as a person can follow it.
pub(super) fn in_commands(hint: &str) -> String {
    Face::Person.words(hint)
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

    /// The sentences that errors and the engine say.
    fn said() -> Vec<String> {
        let core = Path::new(env!("CARGO_MANIFEST_DIR")).join("../waystone-core/src");
        let mut said = Vec::new();
        for path in ["error.rs", "error/conflict.rs", "error/quota.rs", "engine"] {
            sentences(&core.join(path), &mut said);
        }
        said
    }

    #[test]
    fn no_hint_of_the_engine_names_what_another_face_has() {
        const TOOLS: [&str; 6] =
            ["context_gc", "context_get", "context_search", "context_expand", "context_create", "workflow_c"];
        const ROUTE: &str = " /api/";
        let (said, is_tool) = (said(), |text: &str| TOOLS.iter().any(|name| text.contains(name)));
        let elsewhere: Vec<&String> = said.iter().filter(|text| is_tool(text) || text.contains(ROUTE)).collect();
        assert!(elsewhere.len() > 10, "{elsewhere:?}");
        for hint in elsewhere {
            let [agent, application, person] =
                [Face::Agent, Face::Application, Face::Person].map(|face| face.words(hint));
            assert!(!is_tool(&person) && !person.contains(ROUTE), "{person}");
            assert!(!is_tool(&application) && !application.contains("`waystone"), "{application}");
            // Conversations have no tools, so their hints reach no agent.
            let is_told = hint.contains("/api/contexts") && !agent.contains("use another session");
            assert!(is_told || !agent.contains(ROUTE) && !agent.contains("`waystone"), "{agent}");
        }
        for words in Face::translated() {
            assert!(said.iter().any(|text| text.contains(words)), "nothing says {words}");
        }
    }

    #[test]
    fn what_a_hint_names_of_the_details_is_put_in() {
        let details = json!({ "pinned": ["a", "b"], "nearestCheckpointId": "c" });
        let check = |hint: &str, expected: &str| assert_eq!(with_details(hint, &details), expected);
        check("leave out what details.pinned names, then", "leave out a, b, then");
        check("load details.nearestCheckpointId, the nearest", "see `waystone checkpoint show c`, the nearest");
        let named = said().into_iter().filter(|text| text.contains("details."));
        for hint in named.map(|hint| with_details(&hint, &details)) {
            assert!(!hint.contains("details."), "{hint}");
        }
    }
}
