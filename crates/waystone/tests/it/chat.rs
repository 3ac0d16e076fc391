//! `waystone chat` and `waystone context` as people meet them.

mod approval;
mod branch;
pub(crate) mod person;
mod servers;
mod talk;
pub(crate) mod terminal;
mod window;
mod workspace;

use std::path::Path;

use serde_json::Value;
use waystone_testkit::model::{FakeModel, Reply};
use waystone_testkit::secrets::planted;

use person::{Person, printed, told};
use terminal::{PROMPT, Terminal};

const DEMO: &str = "This is the built-in demo model";

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

/// A conversation whose model refused to answer and cannot be asked any more.
async fn failed_at(person: &mut Person, message: &str) -> String {
    let fake = FakeModel::start().await;
    fake.then(Reply::text("no").status(401));
    person.model = Some(fake.base_url());
    let failed = person.run(&["chat", "--model", "gpt-x", message]);
    assert!(told(&failed).contains("answered 401"), "{failed:?}");
    person.model = None;
    let list = person.ask_json(&["context", "list", "--state", "PermanentFailure"]);
    list["contexts"][0]["id"].as_str().unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn what_fails_says_why_and_what_to_do() {
    let mut person = Person::new();
    let id = failed_at(&mut person, "hi").await;
    let check = |arguments: &[&str], code: i32, says: &[&str]| {
        let output = person.run(arguments);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {output:?}");
        assert!(says.iter().all(|says| told(&output).contains(says)), "{arguments:?}: {output:?}");
        assert!(output.stdout.is_empty(), "{arguments:?}: {output:?}");
    };
    check(&["chat", "--context", "nope", "hi"], 1, &["there is no conversation `nope`"]);
    check(
        &["chat", "--context", "nope", "hi", "--json"],
        1,
        &[r#""code":"CONTEXT_NOT_FOUND""#, "Context with ID nope"],
    );
    check(&["context", "show", "nope", "--json"], 1, &[r#""code":"CONTEXT_NOT_FOUND""#]);
    check(&["context", "delete", "nope", "--yes"], 1, &["there is no conversation `nope`"]);
    check(&["context", "list", "--state", "Asleep"], 2, &["Idle, ProcessingUserMessage"]);
    check(&["chat", "--branch", "b", "hi"], 2, &["--context"]);

    check(
        &["chat", "--model", "gpt-x", "hi"],
        1,
        &["no provider is configured for model `gpt-x`", "hint: set OPENAI_API_KEY", "with `--model demo`"],
    );
    check(&["chat", "--model", "gpt-x", "hi", "--json"], 1, &[r#""code":"MODEL_NOT_CONFIGURED""#]);
    check(&["chat", "--context", &id, "--branch", "b", "hi"], 1, &["there is no branch `b`"]);
    check(&["chat", "--last", "hi"], 1, &["no provider is configured for model `gpt-x`", "with `--model demo`"]);
    check(&["chat", "--last", "--model", "gpt-y", "hi"], 1, &["no provider is configured for model `gpt-y`"]);
    assert_eq!(person.ask_json(&["context", "show", &id])["config"]["model_id"], "gpt-x", "it is left as it was");
    assert!(person.ask(&["chat", "--last", "--model", "demo", "hi"]).contains(DEMO), "the model can be changed");
}

#[test]
fn nothing_is_begun_with_a_model_that_cannot_be_asked() {
    let person = Person::new();
    assert_eq!(person.run(&["chat", "--model", "gpt-x", "hi"]).status.code(), Some(1));
    assert!(person.ask(&["context", "list"]).contains("No conversations yet"));
    assert!(person.ask(&["session", "list"]).contains("No sessions yet"));

    let mut terminal = Terminal::begin(&person, &["chat", "--model", "gpt-x"]);
    let greeted = terminal.wait_for(PROMPT);
    assert!(greeted.contains("no provider is configured for model `gpt-x`"), "{greeted}");
    let refused = terminal.enter("hi", PROMPT);
    assert!(refused.contains("no provider is configured") && refused.contains("`/model demo`"), "{refused}");
    let refused = terminal.enter("/model nope", PROMPT);
    assert!(refused.contains("no provider is configured for model `nope`"), "{refused}");
    assert!(!refused.contains("answers from now on"), "{refused}");
    terminal.enter("/model demo", PROMPT);
    assert!(terminal.enter("hi", PROMPT).contains(DEMO));
    assert_eq!(person.ask_json(&["context", "list"])["contexts"].as_array().unwrap().len(), 1);
}

#[test]
fn nothing_is_left_of_a_conversation_in_which_nothing_could_be_said() {
    let person = Person::new();
    let secret = planted(5).into_iter().find(|one| one.rule == "github-token").unwrap().secret;
    let blocked = person.run(&["chat", "--secrets", "block", &format!("my key is {secret}")]);
    assert!(blocked.status.code() == Some(1) && !told(&blocked).contains("goes on"), "{blocked:?}");
    assert!(person.ask(&["context", "list"]).contains("No conversations yet"));
    let gone = person.ask(&["session", "list", "--deleted"]);
    assert!(gone.contains("No "), "{gone}");

    let mut terminal = Terminal::chat(&person, &["--secrets", "block"]);
    let refused = terminal.enter(&format!("my key is {secret}"), PROMPT);
    assert!(refused.contains("error: "), "{refused}");
    terminal.enter("hello", PROMPT);
    let list = person.ask_json(&["context", "list"]);
    assert_eq!(list["contexts"].as_array().unwrap().len(), 1);
    assert_eq!(list["contexts"][0]["title"], "hello");
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

#[tokio::test(flavor = "multi_thread")]
async fn a_list_fits_a_narrow_terminal_and_shows_what_each_conversation_is_about() {
    let mut person = Person::new();
    let long = person.begin("please explain\n\twhat a \u{1b}[2J waystone is, at great length");
    person.ask(&["chat", "--context", &long, "and a milestone?"]);
    let short = person.begin("hello");
    failed_at(&mut person, "will this work?").await;
    let listed = person.ask(&["context", "list"]);
    let lines: Vec<&str> = listed.lines().collect();
    assert_eq!(lines[0].split_whitespace().collect::<Vec<_>>(), ["CONTEXT", "LAST", "USED", "BEGINS", "WITH"]);
    assert!(lines[1].contains(" s ago ") && lines[1].ends_with("  [failed] will this work?"), "{listed}");
    assert!(lines[2].starts_with(&format!("{short} ")) && lines[2].ends_with("  hello"), "{listed}");
    assert!(
        lines[3].starts_with(&format!("{long} ")) && lines[3].contains("  please explain what a \\u{1b"),
        "{listed}"
    );
    assert!(lines.iter().all(|line| line.chars().count() <= 80), "{listed}");
    let json = person.ask_json(&["context", "list"]);
    assert_eq!(json["contexts"][2]["title"], "please explain what a \u{1b}[2J waystone is, at great length");
}

#[test]
fn help_fits_a_narrow_terminal_and_has_the_settings_that_are_about_the_command() {
    let person = Person::new();
    for command in ["chat", "context", "context list", "context show", "context export"] {
        let help = |form: &str| {
            let arguments: Vec<&str> = command.split(' ').chain([form]).collect();
            let shown = Terminal::begin(&person, &arguments).ended(true);
            assert!(shown.lines().all(|line| line.chars().count() <= 80), "{shown}");
            shown
        };
        let (short, long) = (help("-h"), help("--help"));
        assert!(short.lines().count() <= 40 && !short.contains("--max-checkpoints"), "{short}");
        assert_eq!(long, short, "there is no more to say of it");
        assert_eq!(short.contains("--tool-policy"), command == "chat", "{short}");
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
