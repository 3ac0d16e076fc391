//! What fills a model's window, as a person sees it.

use serde_json::Value;

use super::person::{Person, told};
use super::talk::Talk;
use super::terminal::{PROMPT, Terminal};

fn kinds(window: &Value) -> Vec<&str> {
    window["spans"].as_array().unwrap().iter().map(|span| span["kind"].as_str().unwrap()).collect()
}

/// The number that stands behind a word of a window.
fn tokens(shown: &str, kind: &str) -> u64 {
    let row = shown.lines().find(|line| line.contains(&format!("  {kind}  "))).unwrap_or_else(|| panic!("{shown}"));
    row.split_whitespace().last().unwrap().replace(',', "").parse().unwrap()
}

#[test]
fn a_person_sees_what_fills_the_window_of_the_last_call_and_of_the_next() {
    let person = Person::new();
    let id = person.begin("hello there");
    let (last, next) =
        (person.ask_json(&["context", "window", &id]), person.ask_json(&["context", "window", &id, "--next"]));
    assert_eq!(kinds(&last), ["system_prompt", "tools", "user"]);
    assert_eq!(kinds(&next), ["system_prompt", "tools", "user", "assistant"]);
    assert_eq!((last["assembled_at"].is_string(), next["assembled_at"].is_null()), (true, true));
    assert_eq!((&next["cached_tokens"], &next["changes"]), (&last["tokens"], &Value::Null));

    let shown = person.ask(&["context", "window", &id]);
    assert!(shown.starts_with("model   demo\nfilled  ") && shown.ends_with("\nNothing is left out.\n"), "{shown}");
    assert!(shown.contains("\n[stu....") && !shown.contains("assistant"), "{shown}");
    assert_eq!(tokens(&shown, "user"), last["spans"][2]["tokens"].as_u64().unwrap());
    let shown = person.ask(&["context", "window", &id, "--next", "--branch", "main"]);
    assert!(shown.contains("\n[stua....") && shown.contains("as in the call before"), "{shown}");
    assert!(shown.lines().all(|line| line.chars().count() <= 80), "{shown}");

    for (arguments, says) in
        [(["nope", "main"], "there is no conversation `nope`"), ([&id, "nope"], "there is no branch `nope`")]
    {
        let refused = person.run(&["context", "window", arguments[0], "--branch", arguments[1]]);
        assert!(refused.status.code() == Some(1) && told(&refused).contains(says), "{refused:?}");
    }
}

#[test]
fn what_a_window_leaves_out_is_named_with_the_handle_that_shows_it() {
    let person = Person::new();
    let question = |n: usize| format!("question {n}: {}", ["some words about it"; 25].join(" "));
    let mut talk = Talk::begin(&person, &["--model-limits", r#"{"demo": 2000}"#]);
    for n in 0..14 {
        talk.say(&question(n), &format!("\"question {n}: "));
    }
    talk.end();
    let list = person.ask_json(&["context", "list"]);
    let id = list["contexts"][0]["id"].as_str().unwrap();
    let window = person.ask_json(&["context", "window", id]);
    let left_out = window["left_out"].as_array().unwrap();
    assert!(kinds(&window).contains(&"digest") && left_out.len() > 10, "{window}");
    let shown = person.ask(&["context", "window", id]);
    assert!(shown.contains(&format!("\nLeft out, not whole: {} messages with ", left_out.len())), "{shown}");
    assert!(shown.ends_with(&format!("and {} more; --json lists all\n", left_out.len() - 10)), "{shown}");
    assert!(shown.contains(left_out.last().unwrap()["handle"].as_str().unwrap()), "{shown}");
    let first = left_out[0]["handle"].as_str().unwrap();
    assert_eq!(person.ask_json(&["expand", first])["content"], question(0).as_str(), "it is whole");
}

#[test]
fn the_next_window_is_shown_in_the_conversation() {
    let person = Person::new();
    let mut terminal = Terminal::chat(&person, &[]);
    let shown = terminal.enter("/window", PROMPT);
    assert!(shown.contains("nothing was said here yet"), "{shown}");
    terminal.enter("hello there", PROMPT);
    let shown = terminal.enter("/window", PROMPT);
    assert!(shown.starts_with("model   demo\n") && shown.contains("\n[stua"), "{shown}");
    let id = person.ask_json(&["context", "list"])["contexts"][0]["id"].as_str().unwrap().to_owned();
    let bar = |shown: &str| shown.trim().split_once("\n[").unwrap().1.to_owned();
    assert_eq!(bar(&shown), bar(&person.ask(&["context", "window", &id, "--next"])), "it is that of the next call");
}
