//! What all commands have in common for a person at a terminal of 80 columns: questions, tables, hints, and words.

use serde_json::Value;

use crate::chat::person::{Person, told};
use crate::chat::terminal::{PROMPT, Terminal};

/// Saves a context into a session of this id. Returns the checkpoint's id.
fn save(person: &Person, session: &str) -> String {
    let saved = person.pipe(&["--json", "checkpoint", "save", session, "-"], br#"{ "goal": "ship it" }"#);
    let saved: Value = serde_json::from_slice(&saved.stdout).unwrap();
    saved["checkpointId"].as_str().unwrap().to_owned()
}

#[test]
fn who_says_no_is_told_that_nothing_was_done_and_an_unclear_answer_is_asked_about_again() {
    let person = Person::new();
    save(&person, "billing");
    let mut terminal = Terminal::begin(&person, &["session", "delete", "billing"]);
    terminal.wait_for("[y/N] ");
    let again = terminal.enter("maybe", "[y/N] ");
    assert!(again.contains("Answer y or n"), "{again}");
    terminal.press("n\r");
    assert_eq!(terminal.ended(false).trim_start_matches("n\n"), "Nothing was deleted.\n");

    // Ctrl-D says no too.
    let mut terminal = Terminal::begin(&person, &["cleanup", "--keep-last", "1"]);
    assert!(terminal.wait_for("Nothing is to be deleted").is_empty());
    drop(terminal);
    let mut terminal = Terminal::begin(&person, &["session", "delete", "billing"]);
    terminal.wait_for("[y/N] ");
    terminal.press("\u{4}");
    assert_eq!(terminal.ended(false), "\nNothing was deleted.\n");
    assert!(person.ask(&["session", "list"]).contains("billing"));

    let mut terminal = Terminal::begin(&person, &["session", "delete", "billing"]);
    terminal.wait_for("[y/N] ");
    terminal.press("YES\r");
    assert!(terminal.ended(true).contains("deleted billing"));
}

#[test]
fn a_list_of_sessions_without_names_has_a_line_each() {
    let person = Person::new();
    for session in ["billing", "orders"] {
        save(&person, session);
    }
    let shown = Terminal::begin(&person, &["session", "list"]).ended(true);
    let first: Vec<&str> = shown.lines().map(|line| line.split_whitespace().next().unwrap_or_default()).collect();
    assert_eq!(first, ["SESSION", "orders", "billing"], "{shown}");
    assert!(!shown.contains("NAME"), "{shown}");
    person.ask(&["session", "rename", "billing", "Bills"]);
    assert!(Terminal::begin(&person, &["session", "list"]).ended(true).contains("Bills"));
}

#[test]
fn a_hint_is_a_command_or_is_not_there() {
    let person = Person::new();
    let id = save(&person, "billing");
    let fails = |arguments: &[&str]| {
        let output = person.run(arguments);
        assert!(!output.status.success(), "{arguments:?}: {output:?}");
        told(&output)
    };
    let shown = fails(&["checkpoint", "show", "billing"]);
    assert!(shown.contains("hint: `waystone checkpoint show --latest billing`"), "{shown}");
    assert!(fails(&["checkpoint", "show", "nope"]).contains("waystone checkpoint list"));
    let undone = fails(&["undo", "1"]);
    assert!(undone.contains("a save is not undone"), "{undone}");
    assert!(undone.contains(&format!("`waystone checkpoint delete {id}`")) && !undone.contains("hint: "), "{undone}");
    let refused = fails(&["session", "list", "--limit", "0"]);
    assert!(refused.lines().count() == 1 && refused.contains("limit"), "{refused}");
    assert!(fails(&["session", "list", "--limit", "0", "--json"]).contains("correct what the message names"));
}

#[test]
fn a_segment_is_shown_by_its_handle_too() {
    let person = Person::new();
    let put = person.ask_json(&["segment", "put", "amounts are kept in cents"]);
    let id = put["segment_ids"][0].as_str().unwrap();
    for named in [id.to_owned(), format!("ws:segment:{id}")] {
        assert_eq!(person.ask(&["segment", "show", &named]), "amounts are kept in cents\n");
    }
    let check = |handle: &str, says: &str| {
        let told = told(&person.run(&["segment", "show", handle]));
        assert!(told.contains(says) && !told.contains("ws:segment:ws:"), "{told}");
    };
    check(&format!("ws:segment:{id}?lines=1-2"), "waystone expand");
    check("ws:segment:nope", "nope");
}

#[test]
fn who_imports_a_conversation_is_told_that_this_is_not_possible_yet() {
    let person = Person::new();
    let (id, file) = (person.begin("hello"), person.folder.path().join("talk.json"));
    let file = file.to_str().unwrap();
    person.ask(&["context", "export", &id, "--output", file]);
    let refused = person.run(&["session", "import", file]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(told(&refused).contains("conversations cannot be imported yet"), "{refused:?}");
}

#[test]
fn a_file_behind_a_command_that_writes_one_is_answered_with_the_flag_that_it_takes() {
    let person = Person::new();
    for arguments in [&["session", "export", "billing", "b.json"][..], &["key", "generate", "b.json"]] {
        let refused = person.run(arguments);
        assert_eq!(refused.status.code(), Some(2));
        assert!(told(&refused).contains("use '--output b.json'"), "{refused:?}");
        let json = person.run(&[arguments, &["--json"]].concat());
        assert!(told(&json).contains("--output b.json"), "{json:?}");
    }
    assert!(!told(&person.run(&["session", "show", "a", "b"])).contains("--output"));
}

#[test]
fn a_project_is_named_by_one_flag_everywhere() {
    let person = Person::new();
    person.ask(&["segment", "put", "amounts are kept in cents", "--project", "p1"]);
    person.ask(&["task", "use", "t1", "--project", "p1"]);
    person.pipe(&["checkpoint", "save", "billing", "-", "--project", "p1"], b"{}");
    for flag in ["--project", "--in"] {
        let shown = |command: &str, project: &str| {
            person.ask(&[&command.split(' ').collect::<Vec<_>>()[..], &[flag, project]].concat())
        };
        for (command, what) in [
            ("segment list --all-tasks", "cents"),
            ("task list", "t1"),
            ("session list", "billing"),
            ("checkpoint list", "billing"),
            ("search cents", "cents"),
        ] {
            assert!(shown(command, "p1").contains(what), "{command}");
            assert!(!shown(command, "p2").contains(what), "{command}");
        }
        shown("context list", "p1");
        shown("resume", "p1");
    }
    for command in [
        "segment list",
        "task list",
        "resume",
        "session list",
        "checkpoint list",
        "checkpoint save",
        "context list",
        "search",
    ] {
        let help = person.ask(&[&command.split(' ').collect::<Vec<_>>()[..], &["--help"]].concat());
        assert!(help.contains("--project") && !help.contains("--in "), "{command}: {help}");
    }
    assert!(!person.ask(&["session", "rename", "--help"]).contains("--project"));
}

#[test]
fn the_doctor_says_how_many_checkpoints_there_are_and_in_how_many_copies() {
    let person = Person::new();
    assert_eq!(person.ask(&["doctor"]), "All is well: there is no checkpoint yet.\n");
    save(&person, "billing");
    assert_eq!(person.ask(&["doctor"]), "All is well: 1 checkpoint, in two copies.\n");
    let id = person.begin("hello");
    person.ask(&["chat", "--context", &id, "and again"]);
    save(&person, "orders");
    let well =
        "All is well: 2 checkpoints, each in two copies; 2 of conversations are in the database and the backups.\n";
    assert_eq!(person.ask(&["doctor"]), well);
    assert_eq!(person.ask_json(&["status"])["checkpointCount"], 4);
}

#[test]
fn tags_are_taken_away_only_when_that_is_said() {
    let person = Person::new();
    save(&person, "billing");
    let tags = || person.ask_json(&["session", "show", "billing"])["tags"].clone();
    person.ask(&["session", "tag", "billing", "a", "b"]);
    let refused = person.run(&["session", "tag", "billing"]);
    assert!(refused.status.code() == Some(2) && told(&refused).contains("--clear"), "{refused:?}");
    assert_eq!(tags(), serde_json::json!(["a", "b"]));
    assert_eq!(person.run(&["session", "tag", "billing", "c", "--clear"]).status.code(), Some(2));
    person.ask(&["session", "tag", "billing", "--clear"]);
    assert_eq!(tags(), serde_json::json!([]));
}

#[test]
fn what_is_not_what_was_asked_for_is_said_to_be_that_before_it_is_shown() {
    let person = Person::new();
    save(&person, "billing");
    person.ask(&["segment", "put", "amounts are kept in cents, and money is never rounded"]);
    let resumed = person.ask(&["resume", "zzzzzz"]);
    assert!(resumed.starts_with("note: none is what was asked for") && resumed.contains("\nbilling\n"), "{resumed}");
    assert!(person.ask(&["search", "cents"]).starts_with(|first| first != 'n'));
    let found = person.ask(&["search", "prices of currency"]);
    assert!(found.starts_with("note: nothing has these words;") && found.contains(" by meaning, "), "{found}");
}

#[test]
fn what_is_told_on_a_terminal_is_broken_between_words() {
    let person = Person::new();
    let wrong = ["chat", "--model", "gpt-x", "hi"];
    let shown = Terminal::begin(&person, &wrong).ended(false);
    assert!(shown.lines().count() > 1 && shown.lines().all(|line| line.chars().count() <= 80), "{shown}");
    let unbroken = told(&person.run(&wrong));
    assert_eq!(shown.split_whitespace().collect::<Vec<_>>(), unbroken.split_whitespace().collect::<Vec<_>>());
    let help = Terminal::chat(&person, &[]).enter("/help", PROMPT);
    assert!(help.contains("/branches") && help.lines().all(|line| line.chars().count() <= 80), "{help}");
}

#[test]
fn what_is_wrong_is_said_in_plain_words() {
    let person = Person::new();
    let check = |arguments: &[&str], code: i32, says: &str| {
        let output = person.run(arguments);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {output:?}");
        assert!(told(&output).contains(says), "{arguments:?}: {output:?}");
    };
    check(
        &["checkpoint", "view", "--latest", "s", "--tokens", "abc"],
        2,
        "error: `abc` is not a whole number, for '--tokens <",
    );
    check(
        &["checkpoint", "show", "c", "--max-tokens", "99999999999999999999"],
        2,
        "`99999999999999999999` is too large, for '--max-tokens <",
    );
    check(
        &["session", "list", "--limit", "x", "--json"],
        2,
        r#""message":"`x` is not a whole number, for '--limit <LIMIT>'""#,
    );
    check(&["segment", "prune"], 2, "<SEGMENTS|--plan <PLAN>>");
    check(&["context", "show", "nope"], 1, "error: there is no conversation `nope`");
    let folder = person.folder.path().to_str().unwrap();
    check(&["restore-from", folder, "--yes"], 3, "there is no waystone.db in it");
    check(&["serve", "--host", "0.0.0.0"], 2, "ssh -L");
    let empty = Person::new();
    let mut sealed = empty.command(&["status"]);
    sealed.env("WAYSTONE_ENCRYPTION", "enabled").env("DBUS_SESSION_BUS_ADDRESS", "unix:path=/nonexistent");
    let refused = told(&sealed.output().unwrap());
    assert!(refused.contains("cannot keep a key: ") && refused.contains("there is none that answers ("), "{refused}");
}

#[test]
fn who_types_mcp_is_told_that_it_waits_for_an_agent() {
    let person = Person::new();
    let mut terminal = Terminal::begin(&person, &["mcp"]);
    terminal.wait_for("note: waiting for an agent's messages; `waystone install`");
    terminal.interrupt();
    terminal.ended(true);
    let piped = person.run(&["mcp"]);
    assert!(!told(&piped).contains("waiting"), "{piped:?}");
}

#[test]
fn who_seals_a_directory_is_asked_before_and_told_what_became_of_its_copies() {
    let person = Person::new();
    save(&person, "billing");
    person.ask(&["backup"]);
    let key = person.folder.path().join("key");
    person.ask(&["key", "generate", "--output", key.to_str().unwrap()]);
    let seal = ["--key-file", key.to_str().unwrap(), "key", "encrypt-store"];
    let refused = person.run(&seal);
    assert!(refused.status.code() == Some(2) && told(&refused).contains("use --yes"), "{refused:?}");
    let mut terminal = Terminal::begin(&person, &seal);
    assert!(terminal.wait_for("[y/N] ").contains("There is no way back"));
    terminal.press("n\r");
    assert!(terminal.ended(false).ends_with("Nothing was sealed.\n"));
    assert_eq!(person.ask_json(&["status"])["encrypted"], false);

    let sealed = told(&person.run(&[&seal[..], &["--yes"]].concat()));
    assert!(sealed.contains("note: a new backup was made under the new key"), "{sealed}");
    assert!(sealed.contains("older copies removed, which were plain: "), "{sealed}");
}

#[test]
fn an_answer_is_broken_between_words() {
    let person = Person::new();
    let said = "please tell me about waystones, and how travellers of old found their way by them over the moors";
    let mut terminal = Terminal::chat(&person, &[]);
    let shown = terminal.enter(said, PROMPT);
    let answer = &shown[shown.find("You said").unwrap()..];
    assert!(answer.lines().count() > 1 && answer.lines().all(|line| line.chars().count() <= 80), "{shown}");
    let id = person.ask_json(&["context", "list"])["contexts"][0]["id"].as_str().unwrap().to_owned();
    let kept = person.said(&id, "main")[1].1.clone();
    assert_eq!(answer.split_whitespace().collect::<Vec<_>>(), kept.split_whitespace().collect::<Vec<_>>());
    assert!(!kept.contains('\n'), "{kept}");
}
