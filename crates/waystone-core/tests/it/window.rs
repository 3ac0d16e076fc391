//! The window of a call: what a model is told when not all of a branch fits.

mod random;
mod rule;

use serde_json::{Value, json};
use waystone_core::api::{ContentPart, Message, MessageMetadata, MessageTokens, MessageType, Origin, Role};
use waystone_core::clock::Timestamp;
use waystone_core::model::Said;
use waystone_core::secret::{Policy, Secrets};
use waystone_core::tokens;
use waystone_core::window::{Absence, Assembled, Cut, Entry, Kind, Reason, Room, TooSmall, assemble};

/// An entry as the engine makes it: its tokens are those of its text and of its calls.
fn entry(position: u64, role: Role, message_type: MessageType, content: Vec<ContentPart>) -> Entry {
    let tokens = MessageTokens { prompt: 0, completion: 0, total: 0, cache_read: 0, cache_write: 0, estimated: false };
    let metadata = MessageMetadata {
        created_at: Timestamp::from_ms(1_790_000_000_000),
        branch: "main".to_owned(),
        tokens,
        origin: Origin::User,
        model_id: None,
        cost_usd: None,
        cancelled: false,
        truncated: false,
    };
    let id = format!("01k5b0000000000000{position:08}").parse().unwrap();
    let message = Message { id, role, content, message_type, metadata, parent_id: None };
    let tokens = tokens_of(&message);
    Entry::new(position, message, tokens)
}

fn tokens_of(message: &Message) -> u64 {
    let calls = message.content.iter().filter(|part| matches!(part, ContentPart::ToolCall { .. }));
    let called: usize = calls.map(|call| tokens::count(&json!(call).to_string())).sum();
    (tokens::count(&message.text()) + called) as u64
}

/// A conversation that is written by hand.
#[derive(Default)]
struct Branch(Vec<Entry>);

impl Branch {
    fn add(&mut self, role: Role, message_type: MessageType, content: Vec<ContentPart>) -> &mut Entry {
        self.0.push(entry(self.0.len() as u64 + 1, role, message_type, content));
        self.0.last_mut().unwrap()
    }

    fn user(&mut self, text: &str) -> &mut Entry {
        self.add(Role::User, MessageType::Text, vec![ContentPart::Text { text: text.to_owned() }])
    }

    fn answer(&mut self, text: &str) -> &mut Entry {
        self.add(Role::Assistant, MessageType::Text, vec![ContentPart::Text { text: text.to_owned() }])
    }

    fn calls(&mut self, ids: &[&str], arguments: &Value) -> &mut Entry {
        let call = |id: &&str| ContentPart::ToolCall {
            id: id.parse().unwrap(),
            name: "read".to_owned(),
            arguments: arguments.clone(),
        };
        self.add(Role::Assistant, MessageType::ToolCall, ids.iter().map(call).collect())
    }

    fn result(&mut self, id: &str, text: &str) -> &mut Entry {
        let part = ContentPart::ToolResult {
            tool_call_id: id.parse().unwrap(),
            tool_name: "read".to_owned(),
            content: json!(text),
            arguments: None,
            is_error: false,
        };
        self.add(Role::User, MessageType::ToolResult, vec![part])
    }

    /// A request, a call with its result, and the answer.
    fn turn(&mut self, n: usize) {
        let id = format!("call_{n}");
        self.user(&format!("Request {n}: what is in file {n}?"));
        self.calls(&[&id], &json!({ "path": format!("src/file{n}.rs") }));
        self.result(&id, &lines(n, 60));
        self.answer(&format!("File {n} has sixty lines about number {n}."));
    }

    fn assemble(&self, before: &Cut, budget: u64) -> Result<Assembled, TooSmall> {
        assemble(&self.0, before, Room { budget, system: 10, tools: 0 })
    }
}

/// Some lines of a file, ten tokens each or so.
fn lines(n: usize, count: usize) -> String {
    (0..count).map(|line| format!("line {line} of file {n} says something else\n")).collect()
}

/// How a message is in a window: why it is there, or why it is not.
fn fate(window: &Assembled, position: usize) -> (Option<Reason>, Option<Absence>) {
    let id = entry(position as u64, Role::User, MessageType::Text, Vec::new()).message.id.clone();
    let span = window.spans.iter().find(|span| span.message.as_ref() == Some(&id));
    let out = window.left_out.iter().find(|out| out.message == id);
    (span.map(|span| span.reason), out.map(|out| out.reason))
}

#[test]
fn a_small_conversation_is_sent_as_it_is() {
    let mut branch = Branch::default();
    branch.user("Which file is it?");
    branch.calls(&["a"], &json!({ "path": "src" }));
    branch.result("a", "main.rs");
    let window = branch.assemble(&Cut::default(), 1000).unwrap();
    assert_eq!(window.cut, Cut { result_max: 250, ..Cut::default() });
    assert_eq!(window.left_out, []);
    let said = |role, text: &str| Said::Text { role, text: text.to_owned() };
    assert_eq!(window.said()[0], said(Role::User, "Which file is it?"));
    assert!(matches!(&window.said()[1], Said::Calls { calls, .. } if calls[0].id == "a"));
    assert!(matches!(&window.said()[2], Said::Result { text, .. } if text == "main.rs"));
    assert_eq!(
        window.spans.iter().map(|span| span.kind).collect::<Vec<_>>(),
        [Kind::SystemPrompt, Kind::User, Kind::ToolCall, Kind::ToolResult]
    );
}

#[test]
fn older_results_become_a_line_first() {
    let mut branch = Branch::default();
    (1..=5).for_each(|n| branch.turn(n));
    branch.user("And now?");
    let window = branch.assemble(&Cut::default(), 3000).unwrap();
    assert_eq!(fate(&window, 1), (Some(Reason::Fits), None), "a request is as it was");
    assert_eq!(fate(&window, 3), (Some(Reason::Elided), Some(Absence::Elided)));
    assert_eq!(fate(&window, 19), (Some(Reason::Fits), None), "the newest turn is whole");
    let line =
        "\n[read returned 660 tokens; left out, context_expand returns them: ws:segment:01k5b000000000000000000003]";
    let said = window.said()[2].text().to_owned();
    assert!(said.starts_with('⋯') && said.contains("line 59 of file 1") && said.ends_with(line), "{said}");
    assert!(tokens::count(&said) <= 96, "{said}");
}

#[test]
fn no_line_of_a_key_is_left_where_a_result_or_a_call_is_cut() {
    let head = format!("-----BEGIN RSA {}-----\n", "PRIVATE KEY");
    let body: String = (0..8).map(|n| format!("MIIEpAIBAAKCAQEA{n:02}x9/{}\n", "Zk3v".repeat(9))).collect();
    let key = format!("{head}{body}{}", head.replace("BEGIN", "END"));
    let mut branch = Branch::default();
    for n in 0..2 {
        branch.user("And in this file?");
        branch.calls(&["a"], &json!({ "text": format!("{}{key}{}", "x".repeat(150), lines(n, 60)) }));
        branch.result("a", &format!("{}{key}", lines(n, 200)));
        branch.answer("It has a key.");
    }
    branch.user("And now?");
    let secrets = Secrets::new(Policy::Redact, Policy::Off, Vec::new());
    let cover = secrets.shown().unwrap();
    let branch = Branch(branch.0.into_iter().map(|entry| entry.covered(cover)).collect());
    for (budget, cut) in [(9000, Reason::Shortened), (3000, Reason::Elided)] {
        let window = branch.assemble(&Cut::default(), budget).unwrap();
        assert!(window.spans.iter().any(|span| span.reason == cut), "{cut:?} is not there");
        let said = format!("{:?}", window.said());
        assert!(!said.contains("MIIEpAIBAAKCAQEA"), "{said}");
    }
}

#[test]
fn then_older_turns_become_a_digest() {
    let mut branch = Branch::default();
    (1..=20).for_each(|n| branch.turn(n));
    branch.user("And now?");
    let window = branch.assemble(&Cut::default(), 3000).unwrap();
    assert_eq!(window.spans[1].kind, Kind::Digest);
    let told = window.said()[0].text().to_owned();
    assert!(told.contains("entries that are left out here") && told.contains("ws:segment:01k5b"), "{told}");
    assert!(matches!(fate(&window, 1), (None, Some(Absence::Digested | Absence::Out))));
    assert_eq!(fate(&window, 79), (Some(Reason::Fits), None), "the newest turn is whole");
    assert_eq!(fate(&window, 81), (Some(Reason::LastRequest), None));
}

#[test]
fn a_digest_without_room_for_a_statement_only_says_that_something_is_left_out() {
    let mut branch = Branch::default();
    (1..=20).for_each(|n| branch.turn(n));
    branch.user("And now?");
    let window = branch.assemble(&Cut::default(), 700).unwrap();
    assert_eq!(window.said()[0].text(), "[76 entries are left out here; context_search_stashed finds them]");
}

#[test]
fn a_pin_stays_where_it_was_said() {
    let mut branch = Branch::default();
    (1..=20).for_each(|n| branch.turn(n));
    branch.user("And now?");
    branch.0[8].is_pinned = true;
    let window = branch.assemble(&Cut::default(), 3000).unwrap();
    assert_eq!(fate(&window, 9), (Some(Reason::Pinned), None));
    assert_eq!(window.said()[1].text(), "Request 3: what is in file 3?", "after the digest, before all that is newer");
}

#[test]
fn a_stash_takes_a_message_out_and_of_a_result_leaves_a_line() {
    let mut branch = Branch::default();
    (1..=2).for_each(|n| branch.turn(n));
    branch.calls(&["short"], &json!({}));
    branch.result("short", "ok");
    branch.user("And now?");
    for stashed in [0, 6, 9] {
        branch.0[stashed].is_stashed = true;
    }
    let window = branch.assemble(&Cut::default(), 9000).unwrap();
    assert_eq!(fate(&window, 1), (None, Some(Absence::Stashed)));
    assert_eq!(fate(&window, 7), (Some(Reason::Elided), Some(Absence::Stashed)));
    assert_eq!(fate(&window, 10), (Some(Reason::Elided), Some(Absence::Stashed)), "however short it is");
    assert_eq!(window.said()[0].text(), "[What was said before this is left out.]");
}

#[test]
fn results_of_parallel_calls_stay_together_with_a_pin_on_one_of_them() {
    let mut branch = Branch::default();
    branch.user("Read three files.");
    branch.calls(&["a", "b", "c"], &json!({ "path": "src" }));
    branch.result("c", &lines(3, 20));
    branch.result("a", &lines(1, 20)).is_pinned = true;
    (2..=20).for_each(|n| branch.turn(n));
    branch.user("And now?");
    let window = branch.assemble(&Cut::default(), 3600).unwrap();
    let told = window.said();
    assert!(matches!(&told[1], Said::Calls { calls, .. } if calls.len() == 3));
    assert!(matches!(&told[2], Said::Result { call_id, text, .. } if call_id == "c" && text.contains("left out")));
    assert!(matches!(&told[3], Said::Result { call_id, text, .. } if call_id == "a" && *text == lines(1, 20)));
    assert!(
        matches!(&told[4], Said::Result { call_id, is_error: true, .. } if call_id == "b"),
        "it was never answered"
    );
    assert_eq!(fate(&window, 2), (Some(Reason::Paired), None));
}

#[test]
fn a_step_frees_at_least_a_third_of_the_budget_and_is_followed_by_calls_without_one() {
    let (mut branch, mut cut, mut steps) = (Branch::default(), Cut::default(), Vec::new());
    for n in 1..=40 {
        branch.turn(n);
        let window = branch.assemble(&cut, 6000).unwrap();
        if window.cut != cut {
            assert!(window.tokens <= 4000, "{} tokens after a step", window.tokens);
            steps.push(n);
        }
        cut = window.cut;
    }
    assert!(steps.len() > 2 && steps.windows(2).all(|pair| pair[1] - pair[0] >= 3), "steps at {steps:?}");
}

/// The longest turns are those of agents: one request, and calls upon calls.
#[test]
fn a_turn_that_goes_on_and_on_is_cut_in_steps_that_are_as_large() {
    let (mut branch, mut cut, mut steps) = (Branch::default(), Cut::default(), Vec::new());
    branch.user("Read all the files.");
    for n in 1..=80 {
        let id = format!("call_{n}");
        branch.calls(&[&id], &json!({ "path": format!("src/file{n}.rs") }));
        branch.result(&id, &lines(n, 20));
        let window = branch.assemble(&cut, 3000).unwrap();
        if window.cut != cut {
            assert!(window.tokens <= 2000, "{} tokens after a step", window.tokens);
            steps.push(n);
        }
        assert_eq!(fate(&window, 1), (Some(Reason::LastRequest), None));
        cut = window.cut;
    }
    assert!(steps.len() > 2 && steps.windows(2).all(|pair| pair[1] - pair[0] >= 3), "steps at {steps:?}");
}

#[test]
fn what_must_be_in_and_does_not_fit_is_named_the_largest_first() {
    let mut branch = Branch::default();
    branch.user(&lines(1, 20)).is_pinned = true;
    branch.answer("Noted.");
    branch.user(&lines(2, 40));
    let TooSmall { needed, room: Room { budget, .. }, largest } = branch.assemble(&Cut::default(), 500).unwrap_err();
    assert!(needed > budget && budget == 500);
    let id = |at: usize| branch.0[at].message.id.clone();
    let tokens = |at: usize| branch.0[at].tokens;
    assert_eq!(largest, [(id(2), tokens(2), Reason::LastRequest), (id(0), tokens(0), Reason::Pinned)]);
}

#[test]
fn a_pinned_result_is_whole_however_long_it_is() {
    let mut branch = Branch::default();
    branch.user("Read it.");
    branch.calls(&["a"], &json!({}));
    branch.result("a", &lines(1, 100)).is_pinned = true;
    let window = branch.assemble(&Cut::default(), 2000).unwrap();
    assert_eq!(fate(&window, 3), (Some(Reason::Pinned), None));
    assert_eq!(window.said()[2].text(), lines(1, 100));
}

/// A window that was made for a model with more room has a longer digest than this one can take.
#[test]
fn a_smaller_budget_shortens_the_digest_too() {
    let mut branch = Branch::default();
    (1..=3).for_each(|n| branch.turn(n));
    branch.user("And now?");
    let before = Cut { digested_to: 4, elided_to: 4, told: lines(1, 130), ..Cut::default() };
    let window = branch.assemble(&before, 1500).unwrap();
    assert_eq!(window.cut.digested_to, 4, "lines for results are enough");
    assert!(window.tokens <= 1500, "{} tokens", window.tokens);
}

/// In a long turn even what follows its request is digested. That request stays where it is when the next one comes.
#[test]
fn a_new_request_does_not_change_what_was_sent_before_it() {
    let (mut branch, mut cut) = (Branch::default(), Cut::default());
    branch.user("Read all the files.");
    let mut said = Vec::new();
    for n in 1..=40 {
        let id = format!("call_{n}");
        branch.calls(&[&id], &json!({ "path": format!("src/file{n}.rs") }));
        branch.result(&id, &lines(n, 20));
        let window = branch.assemble(&cut, 3000).unwrap();
        (cut, said) = (window.cut.clone(), window.said());
    }
    assert!(cut.digested_to > 0, "some of it is digested");
    branch.user("Thanks.");
    let next = branch.assemble(&cut, 3000).unwrap();
    assert_eq!(next.cut, cut);
    assert_eq!(next.said()[..said.len()], said);
}
