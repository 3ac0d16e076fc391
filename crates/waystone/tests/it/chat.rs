use std::fs::File;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Output, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use serde_json::Value;
use tempfile::TempDir;
use waystone_testkit::harness::private_dir;
use waystone_testkit::model::{FakeModel, Reply};
use waystone_testkit::process::{binary, command};
use waystone_testkit::secrets::planted;

const DEMO: &str = "This is the built-in demo model";

struct Person {
    folder: TempDir,
    /// Where a model is, if there is one besides the demo.
    model: Option<String>,
}

impl Person {
    fn new() -> Self {
        Self { folder: private_dir(), model: None }
    }

    fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    fn command(&self, arguments: &[&str]) -> std::process::Command {
        let mut command = command(&binary("waystone"), &self.data());
        command.args(arguments).env_remove("OPENAI_API_KEY").env_remove("OPENAI_BASE_URL");
        command.envs(self.model.as_ref().map(|url| ("OPENAI_BASE_URL", url)));
        command.current_dir(self.folder.path()).stdin(Stdio::null());
        command
    }

    fn run(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
    }

    /// What a command prints that does what it is to do.
    fn ask(&self, arguments: &[&str]) -> String {
        printed(&self.run(arguments))
    }

    fn ask_json(&self, arguments: &[&str]) -> Value {
        serde_json::from_str(&self.ask(&[&["--json"], arguments].concat())).unwrap()
    }

    fn pipe(&self, arguments: &[&str], input: &[u8]) -> Output {
        let mut command = self.command(arguments);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let _ = child.stdin.take().unwrap().write_all(input);
        child.wait_with_output().unwrap()
    }

    /// The id of a new conversation in which something was said.
    fn begin(&self, message: &str) -> String {
        self.ask_json(&["chat", message])["context_id"].as_str().unwrap().to_owned()
    }

    /// What was said on a branch of a conversation: who, and what.
    fn said(&self, context: &str, branch: &str) -> Vec<(String, String)> {
        let shown = self.ask_json(&["context", "show", context, "--branch", branch]);
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let said = |message: &Value| (text(&message["role"]), text(&message["content"][0]["text"]));
        shown["messages"].as_array().unwrap().iter().map(said).collect()
    }
}

fn printed(output: &Output) -> String {
    assert!(output.status.success(), "{}", told(output));
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn told(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn one_message_is_answered_and_gone_on_with() {
    let person = Person::new();
    let first = person.run(&["chat", "hello", "there"]);
    assert!(printed(&first).starts_with("You said \"hello there\" (2 words). "), "{first:?}");
    let told = told(&first);
    let id = told.split("waystone chat --context ").nth(1).unwrap().split('`').next().unwrap();
    assert!(person.ask(&["chat", "--context", id, "and again"]).starts_with("You said \"and again\""));

    let said = person.said(id, "main");
    assert_eq!(
        said.iter().map(|(role, _)| role.as_str()).collect::<Vec<_>>(),
        ["user", "assistant", "user", "assistant"]
    );
    assert_eq!((said[0].1.as_str(), said[2].1.as_str()), ("hello there", "and again"));
    let shown = person.ask(&["context", "show", id]);
    assert!(shown.contains("model       demo\n") && shown.contains("state       Idle\n"), "{shown}");
    assert!(shown.contains("main: 4 messages\n") && shown.contains("\n  You said \"hello there\""), "{shown}");
    let page = person.ask(&["context", "show", id, "--limit", "2", "--offset", "1"]);
    assert!(page.contains("\n  and again\n") && page.ends_with("3 of 4; more: --offset 3\n"), "{page}");
    let context = person.ask_json(&["context", "show", id]);
    assert_eq!(context["config"]["workspace_path"], person.folder.path().canonicalize().unwrap().to_str().unwrap());
    assert!(person.ask(&["context", "list"]).contains(id));
    assert!(person.ask(&["context", "list", "--state", "permanentfailure"]).contains("No such conversations."));
}

#[test]
fn all_of_standard_input_is_one_message() {
    let person = Person::new();
    let answered = person.pipe(&["chat", "--json", "--mode", "plan"], b"/undo is no command here\n\xc3\xa9\n");
    let answered: Value = serde_json::from_str(&printed(&answered)).unwrap();
    assert_eq!((&answered["message"]["message_type"], &answered["branch"]), (&"plan".into(), &"main".into()));
    let id = answered["context_id"].as_str().unwrap();
    assert_eq!(person.said(id, "main")[0].1, "/undo is no command here\né");

    for (input, says) in [(&b" \n"[..], "there is no message"), (b"\xff", "it is not UTF-8")] {
        let output = person.pipe(&["chat"], input);
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        assert!(told(&output).contains(says), "{output:?}");
    }
    assert_eq!(
        person.ask_json(&["context", "list"])["contexts"].as_array().unwrap().len(),
        1,
        "nothing else was begun"
    );
}

#[test]
fn what_fails_says_why_and_what_to_do() {
    let person = Person::new();
    let check = |arguments: &[&str], code: i32, says: &[&str]| {
        let output = person.run(arguments);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {output:?}");
        assert!(says.iter().all(|says| told(&output).contains(says)), "{arguments:?}: {output:?}");
        assert!(output.stdout.is_empty(), "{arguments:?}: {output:?}");
    };
    check(&["chat", "--context", "nope", "hi"], 1, &["Context with ID nope not found"]);
    check(&["chat", "--context", "nope", "hi", "--json"], 1, &[r#""code":"CONTEXT_NOT_FOUND""#]);
    check(&["context", "show", "nope", "--json"], 1, &[r#""code":"CONTEXT_NOT_FOUND""#]);
    check(&["context", "delete", "nope", "--yes"], 1, &["Context with ID nope not found"]);
    check(&["context", "list", "--state", "Asleep"], 2, &["Idle, ProcessingUserMessage"]);
    check(&["chat", "--branch", "b", "hi"], 2, &["--context"]);

    check(
        &["chat", "--model", "gpt-x", "hi"],
        1,
        &["no provider is configured for model `gpt-x`", "hint: set OPENAI_API_KEY"],
    );
    check(&["chat", "--model", "gpt-x", "hi", "--json"], 1, &[r#""code":"MODEL_NOT_CONFIGURED""#]);
    let failed = person.ask_json(&["context", "list", "--state", "PermanentFailure"]);
    let id = failed["contexts"][0]["id"].as_str().unwrap();
    check(&["chat", "--context", id, "--branch", "b", "hi"], 1, &["there is no branch `b`"]);
    assert!(person.ask(&["chat", "--context", id, "--model", "demo", "hi"]).contains(DEMO), "the model can be changed");
}

#[test]
fn a_text_cannot_steer_a_terminal() {
    let person = Person::new();
    let hostile = "\u{1b}]0;owned\u{7}\u{9b}31m\u{202e}x\nassistant, now\n  ok";
    let answered = person.run(&["chat", hostile]);
    let told = told(&answered);
    let id = told.split("waystone chat --context ").nth(1).unwrap().split('`').next().unwrap();
    for text in
        [printed(&answered), person.ask(&["context", "show", id]), person.ask(&["context", "show", id, "--json"])]
    {
        assert!(!text.contains(['\u{1b}', '\u{7}', '\u{9b}', '\u{202e}']), "{text:?}");
    }
    let shown = person.ask(&["context", "show", id]);
    assert!(shown.contains("\\u{1b}]0;owned\\u{7}") && shown.contains("\n  assistant, now\n"), "{shown}");
    assert_eq!(person.said(id, "main")[0].1, hostile, "it is kept as it is");
}

#[test]
fn a_conversation_is_exported_as_json_and_as_markdown() {
    let person = Person::new();
    let hostile = "````\n## assistant, now\n\u{1b}[2J";
    let id = person.begin(hostile);
    let exported = person.ask_json(&["context", "export", &id]);
    assert_eq!(exported["count"], 2);
    let path = Path::new(exported["path"].as_str().unwrap());
    assert_eq!(path.parent(), Some(&*person.data().join("exports")));
    let context: Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    assert_eq!((&context["id"], context["message_pool"].as_object().unwrap().len()), (&id.as_str().into(), 2));

    let file = person.folder.path().join("talk.md");
    let markdown = ["context", "export", &id, "--format", "markdown", "--output", file.to_str().unwrap()];
    assert!(person.ask(&markdown).starts_with("exported 2 messages to "));
    assert_eq!(person.run(&markdown).status.code(), Some(2), "it is there already");
    person.ask(&[&markdown[..], &["--force"]].concat());
    let text = std::fs::read_to_string(&file).unwrap();
    assert!(text.starts_with(&format!("# Conversation {id}\n")), "{text}");
    assert!(text.contains(&format!("\n`````text\n{hostile}\n`````\n")), "it stands as it is: {text}");
    assert!(text.contains("\n## user, 2") && text.contains(DEMO), "{text}");
    assert_eq!(person.ask(&["context", "export", &id, "--format", "markdown", "--output", "-"]), text);
    assert_eq!(person.run(&["context", "export", &id, "--branch", "main"]).status.code(), Some(2));

    let secret = planted(5).into_iter().find(|one| one.rule == "github-token").unwrap().secret;
    person.ask(&["chat", "--context", &id, &format!("my key is {secret}")]);
    let export = |more: &[&str]| person.ask(&[&["context", "export", &id, "--output", "-"], more].concat());
    assert!(export(&[]).contains(&secret));
    for format in ["json", "markdown"] {
        let covered = export(&["--format", format, "--secrets", "redact"]);
        assert!(!covered.contains(&secret) && covered.contains("my key is "), "{covered}");
    }
}

#[test]
fn a_conversation_is_deleted_and_restored() {
    let person = Person::new();
    let id = person.begin("hello");
    let asked = person.run(&["context", "delete", &id]);
    assert!(asked.status.code() == Some(2) && told(&asked).contains("--yes"), "{asked:?}");
    assert!(person.ask(&["context", "delete", &id, "--yes"]).contains("session restore"));
    assert!(person.ask(&["context", "list"]).contains("No conversations yet"));
    person.ask(&["session", "restore", &id]);
    assert_eq!(person.said(&id, "main").len(), 2);
}

/// A conversation on a terminal, whose answers are read from a pipe.
struct Talk {
    child: Child,
    terminal: File,
    stdout: ChildStdout,
    read: String,
}

impl Talk {
    fn begin(person: &Person, arguments: &[&str]) -> Self {
        let terminal = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&terminal).unwrap();
        unlockpt(&terminal).unwrap();
        let other = ptsname(&terminal, Vec::new()).unwrap().into_string().unwrap();
        let other = File::options().read(true).write(true).open(other).unwrap();
        let mut command = person.command(&[&["chat"], arguments].concat());
        let mut child = command.stdin(other).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        Self { stdout: child.stdout.take().unwrap(), child, terminal: terminal.into(), read: String::new() }
    }

    fn type_line(&mut self, line: &str) {
        self.terminal.write_all(format!("{line}\n").as_bytes()).unwrap();
    }

    /// Waits for an answer that says this.
    fn wait_for(&mut self, text: &str) {
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

    fn say(&mut self, line: &str, answer: &str) {
        self.type_line(line);
        self.wait_for(answer);
        self.wait_for("network.\n");
    }

    fn interrupt(&self) {
        kill_process(Pid::from_child(&self.child), Signal::INT).unwrap();
    }

    /// Ends it as Ctrl-D does. Returns what it told besides answers.
    fn end(mut self) -> String {
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
        let said = person.said(id, branch);
        let said: Vec<&str> = said.iter().filter(|(role, _)| role == "user").map(|(_, text)| text.as_str()).collect();
        assert_eq!(said, expected, "{branch}");
    };
    check("main", &["one", "two \nlines", "six"]);
    check("undo-1", &["one", "three"]);
    check("edit-1", &["one", "four"]);
    check("other", &["one", "four", "five"]);
}

/// A model that says some words and then nothing until it is released, and whoever is to talk with it.
async fn slow_model(person: &mut Person, reply: Reply) -> FakeModel {
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
