//! Tools that the model calls, and what a person says to that.

use serde_json::{Value, json};
use waystone_testkit::model::Reply;

use super::person::{Person, told};
use super::talk::slow_model;
use super::terminal::{PROMPT, Terminal};

const ASKED: &str = "[y,n,e,s,q,?] ";
const WRITE: &str = r#"call write_file {"path": "a.txt", "content": "hi"}"#;
const CALLED: &str = "Calling `write_file`.\nrun write_file?\n  path     \"a.txt\"\n  content  \"hi\"\n";

/// A folder in which there is a README.md.
fn with_readme() -> Person {
    let person = Person::new();
    std::fs::write(person.folder.path().join("README.md"), "# hello\nworld\n").unwrap();
    person
}

/// What is in a file of the folder, if it is there.
fn written(person: &Person, name: &str) -> Option<String> {
    std::fs::read_to_string(person.folder.path().join(name)).ok()
}

fn id_of(person: &Person) -> String {
    person.ask_json(&["context", "list"])["contexts"][0]["id"].as_str().unwrap().to_owned()
}

/// What the tools of a conversation returned, as the model is told.
fn results(person: &Person) -> Vec<String> {
    let shown = person.ask_json(&["context", "show", &id_of(person)]);
    let parts = shown["messages"].as_array().unwrap().iter().flat_map(|message| message["content"].as_array().unwrap());
    let results = parts.filter(|part| part["type"] == "tool_result");
    results.map(|part| part["content"].as_str().unwrap().to_owned()).collect()
}

/// What people are shown of the calls of [`WRITE`] in a conversation, after the call itself.
fn called(person: &Person) -> Vec<String> {
    let shown = person.ask(&["context", "show", &id_of(person)]);
    let calls =
        shown.lines().filter_map(|line| line.strip_prefix("  → write_file {\"path\":\"a.txt\",\"content\":\"hi\"}"));
    calls.map(str::to_owned).collect()
}

#[test]
fn tools_are_listed_also_before_the_first_word() {
    let person = Person::new();
    let mut terminal = Terminal::chat(&person, &[]);
    let before = terminal.enter("/tools", PROMPT);
    assert!(before.starts_with("TOOL") && before.contains("\nwrite_file "), "{before}");
    assert!(before.lines().all(|line| line.chars().count() <= 80), "{before}");
    assert!(before.lines().any(|line| line.chars().count() > 75), "there is room for more: {before}");
    assert!(person.ask(&["context", "list"]).contains("No conversations yet"), "nothing is begun by looking");
    terminal.enter("hello", PROMPT);
    assert_eq!(terminal.enter("/tools", PROMPT), before);
}

#[test]
fn what_only_reads_runs_unasked_and_what_writes_when_it_is_allowed() {
    let person = with_readme();
    let mut terminal = Terminal::chat(&person, &[]);
    let read = terminal.enter(r#"call read_file {"path": "README.md"}"#, PROMPT);
    let said = "The tool `read_file` said: \"# hello world\".\n";
    assert_eq!(read, format!("Calling `read_file`.\n[read_file {{\"path\":\"README.md\"}}]\n{said}"));

    assert_eq!(terminal.enter(WRITE, ASKED), CALLED);
    assert_eq!(written(&person, "a.txt"), None, "it waits");
    assert_eq!(terminal.enter("y", PROMPT), "The tool `write_file` said: \"made `a.txt`: 2 bytes\".\n");
    assert_eq!(written(&person, "a.txt").as_deref(), Some("hi"));
    terminal.press("\x04");
    assert!(terminal.ended(true).contains("` goes on\n"));
}

#[test]
fn what_is_denied_does_not_run_and_the_model_is_told_why() {
    let person = Person::new();
    let mut terminal = Terminal::chat(&person, &[]);
    for (typed, told) in [("n", "The user denied this call."), ("n not there", "The user denied this call: not there.")]
    {
        assert_eq!(terminal.enter(WRITE, ASKED), CALLED);
        let answered = terminal.enter(typed, PROMPT);
        assert_eq!(answered, format!("[write_file: denied]\nThe tool `write_file` failed: \"{told}\".\n"));
        assert_eq!(results(&person).last().unwrap(), told);
    }
    assert_eq!(written(&person, "a.txt"), None);
    assert_eq!(called(&person), [": denied", ": denied"]);
    terminal.enter(WRITE, ASKED);
    terminal.enter("y", PROMPT);
    assert_eq!(called(&person), [": denied", ": denied", ""]);
    let markdown = person.ask(&["context", "export", &id_of(&person), "--format", "markdown", "--output", "-"]);
    assert_eq!(markdown.matches("\"content\":\"hi\"}: denied\n").count(), 2, "{markdown}");
}

#[test]
fn what_was_typed_before_the_question_does_not_answer_it() {
    let person = Person::new();
    let mut terminal = Terminal::chat(&person, &[]);
    terminal.enter(&format!("{WRITE}\ry\ry"), ASKED);
    let denied = terminal.enter("n", PROMPT);
    assert_eq!(denied, "[write_file: denied]\nThe tool `write_file` failed: \"The user denied this call.\".\n");
    assert_eq!(written(&person, "a.txt"), None);

    terminal.enter(WRITE, ASKED);
    terminal.enter("perhaps\ry", ASKED);
    terminal.enter("n", PROMPT);
    assert_eq!(written(&person, "a.txt"), None, "nor does what came with a wrong answer");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_typed_while_the_model_works_does_not_answer_the_question() {
    let mut person = Person::new();
    let call = ("write_file", json!({ "path": "a.txt", "content": "hi" }));
    let model = slow_model(&mut person, Reply::calls([call])).await;
    let mut terminal = Terminal::chat(&person, &["--model", "slow"]);
    terminal.press("go\r");
    model.asked(1).await;
    terminal.press("y\r");
    terminal.wait_for("y\n");
    model.release(100);
    terminal.wait_for(ASKED);
    terminal.enter("n", PROMPT);
    assert_eq!((written(&person, "a.txt"), results(&person)), (None, vec!["The user denied this call.".to_owned()]));
}

#[test]
fn a_call_runs_with_the_arguments_that_a_person_gives() {
    let person = Person::new();
    let mut terminal = Terminal::chat(&person, &[]);
    terminal.enter(WRITE, ASKED);
    let wrong = terminal.enter("e {\"path\": ", ASKED);
    assert!(wrong.starts_with("these are no arguments: EOF while parsing"), "{wrong}");
    let answered = terminal.enter(r#"e {"path": "b.txt", "content": "other"}"#, PROMPT);
    let answered = answered.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(answered.contains("[the user changed the arguments to {\"path\":\"b.txt\""), "{answered}");
    assert_eq!((written(&person, "a.txt"), written(&person, "b.txt").as_deref()), (None, Some("other")));

    const OTHER: &str = "other arguments, or nothing to keep them: ";
    terminal.enter(WRITE, ASKED);
    assert_eq!(terminal.enter("e", OTHER), "{\"path\":\"a.txt\",\"content\":\"hi\"}\n");
    assert_eq!(terminal.enter("", ASKED), "", "they are kept, and nothing is decided");
    terminal.enter("e", OTHER);
    let wrong = terminal.enter("{\"path\": ", ASKED);
    assert!(wrong.starts_with("these are no arguments: EOF while parsing"), "{wrong}");
    terminal.enter("e", OTHER);
    terminal.enter(r#"{"path": "c.txt", "content": "third"}"#, PROMPT);
    assert_eq!((written(&person, "a.txt"), written(&person, "c.txt").as_deref()), (None, Some("third")));
}

#[test]
fn a_long_call_is_cut_and_shown_in_full_to_who_asks_and_cannot_steer_the_terminal() {
    let person = Person::new();
    let mut terminal = Terminal::chat(&person, &[]);
    let long = "so long ".repeat(5);
    let first = format!(r#"call write_file {{"content": "{long}\u001b]0;owned\u0007\u202e\npath: x","#);
    let asked = terminal.enter(&format!("{first} \"path\": \"a.txt\"}}"), ASKED);
    let asked = asked.split_once("run write_file?\n").unwrap().1;
    let cut = r#"  content  "so long so long so long so long so long… (s shows all 79 characters)"#;
    assert_eq!(asked, format!("{cut}\n  path     \"a.txt\"\n"));
    assert!(asked.lines().all(|line| line.chars().count() <= 80), "{asked}");
    let full = terminal.enter("s", ASKED);
    let content = format!("  {long}\\u{{1b}}]0;owned\\u{{7}}\\u{{202e}}\n  path: x");
    assert_eq!(full, format!("content:\n{content}\npath: \"a.txt\"\n"));
    let help = terminal.enter("?", ASKED);
    assert!(help.starts_with("y    run it\n") && help.ends_with("q    end the turn\n"), "{help}");
    assert_eq!(terminal.enter("", ASKED), help, "nothing is decided by nothing");
    terminal.enter("n", PROMPT);

    let (content, id) = ("x".repeat(5000), id_of(&person));
    person.run(&["chat", "--context", &id, &format!(r#"call write_file {{"path": "a.txt", "content": "{content}"}}"#)]);
    let shown = person.ask(&["context", "show", &id]);
    let last = shown.lines().rfind(|line| line.starts_with("  → write_file")).unwrap();
    assert!(last.ends_with("xxx…: waits for approval") && last.chars().count() < 300, "{last}");
    let markdown = person.ask(&["context", "export", &id, "--format", "markdown", "--output", "-"]);
    assert_eq!(markdown.matches(&content).count(), 2, "all of it is exported");
}

#[test]
fn who_ends_the_turn_runs_nothing_and_is_heard_next() {
    let person = Person::new();
    let mut terminal = Terminal::chat(&person, &[]);
    let ended = "note: ended; what was written is kept\n";
    terminal.enter(WRITE, ASKED);
    assert_eq!(called(&person), [": waits for approval"]);
    assert_eq!(terminal.enter("q", PROMPT), ended);
    assert_eq!(called(&person), [": cancelled"]);
    terminal.enter(WRITE, ASKED);
    terminal.press("\x04");
    assert_eq!(terminal.wait_for(PROMPT), format!("\n{ended}"));
    terminal.enter(WRITE, ASKED);
    terminal.interrupt();
    assert!(terminal.wait_for(PROMPT).ends_with(ended));
    let answered = terminal.enter("hello", PROMPT);
    assert!(answered.starts_with("You said \"hello\" (1 word)."), "{answered}");
    assert_eq!(written(&person, "a.txt"), None);
}

#[test]
fn calls_that_are_made_at_once_are_decided_one_by_one() {
    let person = Person::new();
    let mut terminal = Terminal::chat(&person, &[]);
    terminal.enter(&format!("{WRITE}\\"), ". ");
    terminal.enter(r#"call write_file {"path": "b.txt", "content": "two"}"#, ASKED);
    let second = terminal.enter("n", ASKED);
    assert_eq!(second, "run write_file?\n  path     \"b.txt\"\n  content  \"two\"\n");
    let answered = terminal.enter("y", PROMPT);
    assert!(answered.ends_with("said: \"made `b.txt`: 3 bytes\".\n"), "{answered}");
    assert_eq!((written(&person, "a.txt"), written(&person, "b.txt").as_deref()), (None, Some("two")));
    assert_eq!(results(&person), ["The user denied this call.", "made `b.txt`: 3 bytes"]);
}

#[test]
fn who_comes_back_to_a_call_that_waits_is_asked_again() {
    let person = Person::new();
    let mut killed = Terminal::chat(&person, &[]);
    killed.enter(WRITE, ASKED);
    killed.kill();
    let id = id_of(&person);
    let alone = person.run(&["chat", "--context", &id, "and now?", "--json"]);
    assert_eq!(alone.status.code(), Some(1), "{alone:?}");
    assert!(told(&alone).contains(r#""code":"APPROVAL_WANTED""#), "{alone:?}");

    let mut terminal = Terminal::begin(&person, &["chat", "--context", &id]);
    let asked = terminal.wait_for(ASKED);
    assert!(asked.ends_with("run write_file?\n  path     \"a.txt\"\n  content  \"hi\"\n"), "{asked}");
    let answered = terminal.enter("y", PROMPT);
    assert!(answered.starts_with("The tool `write_file` said: \"made `a.txt`: 2 bytes\".\n"), "{answered}");
    assert_eq!(written(&person, "a.txt").as_deref(), Some("hi"));
}

#[test]
fn without_a_terminal_only_what_was_allowed_before_runs() {
    let person = with_readme();
    let refused = person.run(&["chat", WRITE]);
    assert_eq!((refused.status.code(), written(&person, "a.txt")), (Some(1), None), "{refused:?}");
    let told = told(&refused);
    let id = person.ask_json(&["context", "show", &id_of(&person)])["messages"][1]["content"][1]["id"].clone();
    let wants = format!("error: the model wants to call write_file ({}), and", id.as_str().unwrap());
    assert!(told.contains(&format!("{wants} someone has to approve that\n")), "{told}");
    assert!(told.contains(&format!("hint: `waystone chat --context {}` on a terminal asks", id_of(&person))), "{told}");

    let allowed = person.ask(&["chat", "--allowed-tools", "write_file", WRITE]);
    assert!(allowed.ends_with("The tool `write_file` said: \"made `a.txt`: 2 bytes\".\n"), "{allowed}");
    assert_eq!(written(&person, "a.txt").as_deref(), Some("hi"));

    let read = ["chat", r#"call read_file {"path": "README.md"}"#, "--json"];
    let answered: Value = serde_json::from_str(&person.ask(&read)).unwrap();
    assert_eq!(answered["message"]["content"][0]["text"], "The tool `read_file` said: \"# hello world\".");
    let manual = person.run(&[&read[..], &["--tool-policy", "manual"]].concat());
    assert_eq!(manual.status.code(), Some(1), "{manual:?}");
    assert!(super::told(&manual).contains(r#""code":"APPROVAL_WANTED""#), "{manual:?}");
}

#[test]
fn with_the_manual_policy_a_person_is_asked_about_reading_too() {
    let person = with_readme();
    let mut terminal =
        Terminal::begin(&person, &["chat", "--tool-policy", "manual", r#"call read_file {"path": "README.md"}"#]);
    assert_eq!(terminal.wait_for(ASKED), "Calling `read_file`.\nrun read_file?\n  path  \"README.md\"\n");
    assert_eq!(terminal.enter("y", ".\n"), "The tool `read_file` said: \"# hello world\"");
    terminal.ended(true);
}
