//! `waystone chat` as a person uses it, on a terminal.

use std::fs::File;
use std::io::{Read, Write};
use std::process::{Child, ChildStdout, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use waystone_testkit::model::{FakeModel, Reply};

use super::DEMO;
use super::person::{Person, told};
use super::terminal::{self, PROMPT, Terminal};

/// A conversation on a terminal, whose answers are read from a pipe.
pub(super) struct Talk {
    pub(super) child: Child,
    pub(super) terminal: File,
    pub(super) stdout: ChildStdout,
    pub(super) read: String,
}

impl Talk {
    pub(super) fn begin(person: &Person, arguments: &[&str]) -> Self {
        let (terminal, other) = terminal::open();
        let mut command = person.command(&[&["chat"], arguments].concat());
        let mut child = command.stdin(other).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        Self { stdout: child.stdout.take().unwrap(), child, terminal, read: String::new() }
    }

    pub(super) fn type_line(&mut self, line: &str) {
        self.terminal.write_all(format!("{line}\n").as_bytes()).unwrap();
    }

    /// Waits for an answer that says this.
    pub(super) fn wait_for(&mut self, text: &str) {
        let mut part = [0; 4096];
        loop {
            if let Some(at) = self.read.find(text) {
                self.read.drain(..at + text.len());
                return;
            }
            let count = self.stdout.read(&mut part).unwrap();
            assert_ne!(count, 0, "{}", self.read);
            self.read += std::str::from_utf8(&part[..count]).unwrap();
        }
    }

    pub(super) fn say(&mut self, line: &str, answer: &str) {
        self.type_line(line);
        self.wait_for(answer);
        self.wait_for("network.\n");
    }

    pub(super) fn interrupt(&self) {
        kill_process(Pid::from_child(&self.child), Signal::INT).unwrap();
    }

    /// Ends it as Ctrl-D does. Returns what it told besides answers.
    pub(super) fn end(mut self) -> String {
        self.terminal.write_all(b"\x04").unwrap();
        let output = self.child.wait_with_output().unwrap();
        assert!(output.status.success(), "{output:?}");
        told(&output)
    }
}

#[test]
fn a_person_talks_takes_back_and_says_anew() {
    let person = Person::new();
    let mut talk = Talk::begin(&person, &[]);
    talk.type_line("/undo");
    talk.say("one", "\"one\"");
    talk.say("two \\\nlines", "\"two lines\"");
    talk.type_line("/undo");
    talk.say("three", "\"three\"");
    talk.say("/edit four", "\"four\"");
    talk.type_line("/branch other");
    talk.say("five", "\"five\"");
    talk.type_line("/retry");
    talk.type_line("/switch main");
    talk.type_line("/nonsense");
    talk.say("six", "\"six\"");
    talk.type_line("/branches");
    let told = talk.end();
    for says in [
        "nothing was said here yet",
        "note: on branch edit-1 now; `/switch undo-1` goes back",
        "took it back, on branch undo-1 now; `/switch main` goes back",
        "on branch other now; `/switch edit-1` goes back",
        "the last message on this branch is answered",
        "there is no command /nonsense",
        "main *  6\n",
    ] {
        assert!(told.contains(says), "{says}: {told}");
    }
    let id = told.split("waystone chat --context ").nth(1).unwrap().split('`').next().unwrap();
    let check = |branch: &str, expected: &[&str]| {
        let said: Vec<String> =
            person.said(id, branch).into_iter().map(|(role, text)| format!("{role}: {text}")).collect();
        let answered = |text: &str| {
            let (words, unit) =
                (text.split_whitespace().collect::<Vec<_>>(), if text.contains(' ') { "words" } else { "word" });
            format!("assistant: You said \"{}\" ({} {unit}). {DEMO}", words.join(" "), words.len())
        };
        let expected: Vec<String> =
            expected.iter().flat_map(|text| [format!("user: {text}"), answered(text)]).collect();
        assert_eq!(said.len(), expected.len(), "{branch}: {said:?}");
        assert!(said.iter().zip(&expected).all(|(said, begins)| said.starts_with(begins)), "{branch}: {said:?}");
    };
    check("main", &["one", "two \nlines", "six"]);
    check("undo-1", &["one", "three"]);
    check("edit-1", &["one", "four"]);
    check("other", &["one", "four", "five"]);
}

#[test]
fn who_goes_on_is_shown_what_was_said_last() {
    let person = Person::new();
    let id = person.begin("first");
    person.ask(&["chat", "--context", &id, "one\ntwo \u{1b}[2J"]);
    let mut terminal = Terminal::begin(&person, &["chat", "--context", &id]);
    let shown = terminal.wait_for(PROMPT);
    let said = "> one\n  two \\u{1b}[2J\n  You said \"one two \\u{1b}[2J\" (3 words). ";
    assert!(shown.starts_with(said), "{shown}");
    assert!(
        shown.ends_with("\n\nnote: going on with branch main; /help shows what there is besides talking"),
        "{shown}"
    );
}

#[test]
fn the_conversation_of_the_project_that_was_used_last_is_gone_on_with() {
    let person = Person::new();
    let none = person.run(&["chat", "--last", "hello"]);
    assert!(none.status.code() == Some(1) && told(&none).contains("there is no conversation of project"), "{none:?}");
    let id = person.begin("first");
    person.begin("second");
    person.ask(&["chat", "--context", &id, "third"]);
    person.ask(&["chat", "--project", "other", "elsewhere"]);
    let answered = person.ask_json(&["chat", "--last", "--branch", "main", "fourth"]);
    assert_eq!(answered["context_id"], id.as_str());
    assert_eq!(person.run(&["chat", "--last", "--context", &id, "hello"]).status.code(), Some(2));
}

#[test]
fn a_line_is_edited_and_taken_from_those_before() {
    const UP: &str = "\x1b[A";
    const LEFT: &str = "\x1b[D";
    let person = Person::new();
    let mut terminal = Terminal::chat(&person, &[]);
    let mut said = |typed: &str, text: &str| {
        let answered = terminal.enter(typed, PROMPT);
        assert!(answered.contains(&format!("You said \"{text}\" (")), "{typed:?}: {answered}");
    };
    said(&format!("hllo{}e", LEFT.repeat(3)), "hello");
    said("there\x01over \x05 now", "over there now");
    said(&format!("{UP}{UP}{LEFT}{LEFT}\x0b"), "hel");
    said("\x12ther\x05!", "over there now!");
    said("two \\\rlines", "two lines");
    said(UP, "two lines");
    said("\x1b[200~pasted\rin two lines\x1b[201~", "pasted in two lines");
    let refused = terminal.enter("/switch nope", PROMPT);
    assert!(refused.contains("hint: list them with `/branches`"), "{refused}");
    // Only twice in a row, with no other key in between.
    for typed in ["never said", "nor this"] {
        terminal.press(&format!("{typed}\x03"));
        terminal.wait_for("Ctrl-C once more");
    }
    terminal.press("\x03");
    assert!(terminal.ended(true).contains("` goes on\n"));
    let id = person.ask_json(&["context", "list"])["contexts"][0]["id"].as_str().unwrap().to_owned();
    let said = person.said(&id, "main");
    assert_eq!((said.len(), said[12].1.as_str()), (14, "pasted\nin two lines"));
}

#[test]
fn lines_that_are_typed_ahead_are_said_one_after_the_other() {
    let person = Person::new();
    let mut terminal = Terminal::chat(&person, &[]);
    terminal.press("one\rtwo\rthree\r");
    for word in ["one", "two", "three"] {
        terminal.wait_for(&format!("You said \"{word}\""));
    }
}

/// A model that says some words and then nothing until it is released, and whoever is to talk with it.
pub(super) async fn slow_model(person: &mut Person, reply: Reply) -> FakeModel {
    let model = FakeModel::start().await;
    model.then(reply.gated());
    person.model = Some(model.base_url());
    model
}

#[tokio::test(flavor = "multi_thread")]
async fn an_interrupt_ends_the_answer_and_at_the_prompt_the_conversation() {
    let mut person = Person::new();
    let model = slow_model(&mut person, Reply::text("one two three")).await;
    let mut talk = Talk::begin(&person, &["--model", "slow"]);
    talk.type_line("a question");
    model.asked(1).await;
    model.release(2);
    talk.wait_for("one ");
    talk.interrupt();
    model.gone(1).await;
    talk.type_line("another");
    talk.wait_for("another\n");
    talk.interrupt();
    let output = talk.child.wait_with_output().unwrap();
    assert!(output.status.success(), "{output:?}");
    assert!(told(&output).contains("what was written is kept"), "{output:?}");
    let list = person.ask_json(&["context", "list"]);
    let shown = person.ask_json(&["context", "show", list["contexts"][0]["id"].as_str().unwrap()]);
    assert_eq!(shown["messages"][1]["metadata"]["cancelled"], true, "{shown}");
    assert_eq!(shown["total"], 4);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_ended_before_it_was_answered_is_asked_again() {
    let mut person = Person::new();
    let model = slow_model(&mut person, Reply::text("never said")).await;
    let mut terminal = Terminal::chat(&person, &["--model", "slow"]);
    terminal.press("a question\r");
    model.asked(1).await;
    terminal.interrupt();
    let ended = terminal.wait_for(PROMPT);
    assert!(ended.ends_with("note: ended before anything was written; /retry asks again\n"), "{ended}");
    model.release(100);
    let again = "note: on branch edit-1 now; `/switch main` goes back\na question\n";
    assert_eq!(terminal.enter("/retry", "\nedit-1> "), again, "the model echoes");
    let answered = terminal.enter("/retry", "\nedit-1> ");
    assert!(answered.contains("the last message on this branch is answered"), "{answered}");
    let id = person.ask_json(&["context", "list"])["contexts"][0]["id"].as_str().unwrap().to_owned();
    let said = |branch: &str| person.said(&id, branch).into_iter().map(|(_, text)| text).collect::<Vec<_>>();
    assert_eq!(said("edit-1"), ["a question", "a question"]);
    assert_eq!(said("main"), ["a question"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_whose_process_was_killed_is_gone_on_with() {
    let mut person = Person::new();
    let model = slow_model(&mut person, Reply::text("one two three")).await;
    let mut killed = Talk::begin(&person, &["--model", "slow"]);
    killed.type_line("a question");
    model.release(2);
    killed.wait_for("one ");
    killed.child.kill().unwrap();
    killed.child.wait().unwrap();
    let list = person.ask_json(&["context", "list"]);
    assert_eq!(list["contexts"][0]["current_state"], "StreamingLLMResponse");
    let id = list["contexts"][0]["id"].as_str().unwrap();
    let mut talk = Talk::begin(&person, &["--context", id]);
    talk.wait_for("a question\n");
    talk.type_line("another");
    talk.wait_for("another\n");
    let told = talk.end();
    assert!(told.contains("an answer is under way"), "{told}");
    let texts: Vec<String> = person.said(id, "main").into_iter().map(|(_, text)| text).collect();
    assert_eq!(texts, ["a question", "a question", "another", "another"], "the model echoes");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_another_process_writes_is_followed_first() {
    let mut person = Person::new();
    let model = slow_model(&mut person, Reply::text("one two three")).await;
    let mut first = Talk::begin(&person, &["--model", "slow"]);
    first.type_line("a question");
    model.release(2);
    first.wait_for("one ");
    let id = person.ask_json(&["context", "list"])["contexts"][0]["id"].as_str().unwrap().to_owned();
    let mut second = Talk::begin(&person, &["--context", &id]);
    second.wait_for("one ");
    model.release(100);
    second.wait_for("three\n");
    second.type_line("another");
    second.wait_for("another\n");
    assert!(second.end().contains("an answer is under way"));
    first.wait_for("three\n");
    first.end();
    assert_eq!(person.said(&id, "main").len(), 4);
}
