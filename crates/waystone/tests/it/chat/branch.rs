//! Branches that are compared and told of each other, and conversations that are kept as checkpoints.

use serde_json::Value;

use super::person::{Person, told};
use super::terminal::{PROMPT, Terminal};

/// A conversation of two branches that part after the first answer. `main` is the active one.
fn parted(person: &Person) -> String {
    let id = person.begin("build a store");
    let mut terminal = Terminal::chat(person, &["--context", &id]);
    terminal.enter("/branch try", "\ntry> ");
    terminal.enter("We decided to use SQLite with WAL.", "\ntry> ");
    terminal.enter("/switch main", PROMPT);
    terminal.enter("use files", PROMPT);
    terminal.press("/quit\r");
    terminal.ended(true);
    id
}

/// The messages of the next window on a branch that neither the user nor the model said.
fn merged(person: &Person, id: &str, branch: &str) -> Vec<Value> {
    let window = person.ask_json(&["context", "window", id, "--next", "--branch", branch]);
    window["spans"].as_array().unwrap().iter().filter(|span| span["kind"] == "system").cloned().collect()
}

#[test]
fn two_branches_are_compared() {
    let person = Person::new();
    let id = parted(&person);
    let shown = person.ask(&["context", "diff", &id, "main", "try"]);
    assert!(shown.starts_with("Both have 2 messages, up to "), "{shown}");
    let (ours, theirs) = shown.split_once("\nOnly on try: 2 messages, ").unwrap();
    assert!(ours.contains("\nOnly on main: 2 messages, ") && ours.contains("  use files\n"), "{shown}");
    assert!(theirs.contains("  We decided to use"), "{shown}");
    let diff = person.ask_json(&["context", "diff", &id, "main", "try"]);
    assert_eq!((&diff["common_messages"], diff["a"]["messages"].as_array().unwrap().len()), (&2.into(), 2));
    let same = person.ask(&["context", "diff", &id, "try", "try"]);
    assert!(same.contains("\nOnly on try: 0 messages, 0 tokens\n"), "{same}");
    let refused = person.run(&["context", "diff", &id, "main", "nope"]);
    assert!(refused.status.code() == Some(1) && told(&refused).contains("there is no branch `nope`"), "{refused:?}");
}

#[test]
fn a_branch_is_told_what_another_came_to_after_a_preview_and_that_is_undone() {
    let person = Person::new();
    let id = parted(&person);
    let merge = ["context", "merge", &id, "try"];
    let preview = person.ask(&[&merge[..], &["--dry-run"]].concat());
    assert!(preview.starts_with("2 messages with ") && preview.contains(" on main:\n\n"), "{preview}");
    assert!(preview.contains("SQLite with WAL") && preview.contains("ws:segment:"), "{preview}");
    let asked = person.run(&merge);
    assert!(asked.status.code() == Some(2) && told(&asked).contains("--yes"), "nobody can be asked: {asked:?}");
    assert!(told(&asked).contains("SQLite with WAL"), "{asked:?}");
    assert_eq!((person.said(&id, "main").len(), merged(&person, &id, "main")), (4, Vec::new()));

    let added = person.ask(&[&merge[..], &["--yes"]].concat());
    let message = added.strip_prefix("Added to main as message ").unwrap().split('.').next().unwrap();
    assert!(added.ends_with("`waystone undo` takes it back.\n"), "{added}");
    let said = person.said(&id, "main");
    assert_eq!((said.len(), said[4].0.as_str()), (5, "system"));
    assert!(preview.contains(said[4].1.trim_end()), "it is what was shown: {preview}");
    let spans = merged(&person, &id, "main");
    assert_eq!((spans.len(), &spans[0]["message_id"]), (1, &message.into()));
    assert_eq!(merged(&person, &id, "try"), Vec::<Value>::new(), "the other one knows nothing of it");

    let undone = person.ask(&["undo"]);
    assert!(undone.contains("1 segment changed"), "{undone}");
    assert_eq!(merged(&person, &id, "main"), Vec::<Value>::new());
    let again = undone.split("waystone undo ").nth(1).unwrap().split(' ').next().unwrap();
    person.ask(&["undo", again]);
    assert_eq!(merged(&person, &id, "main"), spans, "an undo is undone too");
}

#[test]
fn a_conversation_is_kept_as_a_checkpoint_after_each_turn_unless_a_person_does_not_want_that() {
    let person = Person::new();
    let id = person.begin("hello");
    let saved = person.ask(&["context", "checkpoint", &id, "--name", "before the change"]);
    let (checkpoint, session) = saved.trim_end().strip_prefix("saved ").unwrap().split_once(" in session ").unwrap();
    assert_eq!(session, id);
    let listed = |id: &str| person.ask_json(&["checkpoint", "list", id])["checkpoints"].as_array().unwrap().clone();
    let checkpoints = listed(&id);
    assert_eq!((checkpoints.len(), &checkpoints[0]["checkpointId"]), (2, &checkpoint.into()));
    assert_eq!(checkpoints[0]["metadata"]["name"], "before the change");
    let shown = person.ask_json(&["checkpoint", "show", checkpoint]);
    assert_eq!(shown["context"]["messages"][0]["content"][0]["text"], "hello", "{shown}");

    let other = person.ask_json(&["--checkpoint-auto-save=false", "chat", "hello"]);
    let other = other["context_id"].as_str().unwrap();
    assert_eq!(listed(other), Vec::<Value>::new());
    person.ask(&["context", "checkpoint", other]);
    assert_eq!(listed(other).len(), 1);
}
