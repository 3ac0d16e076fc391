//! Whatever is said, pinned, stashed, forked and asked of a smaller model, every window keeps to the rules.

use serde_json::{Value, json};
use waystone_core::api::{ContentPart, MessageType, Role};
use waystone_core::model::Said;
use waystone_core::window::{Assembled, Cut, Entry, Room, assemble, assemble_again};
use waystone_testkit::contexts::Random;

use super::rule::{
    Checked, Counter, block_of, check, check_anthropic, check_messages, check_openai, check_size, check_step,
    check_too_small, is_result, last_request,
};

/// Of each of the four tests.
const CONVERSATIONS: u64 = 2500;

#[test]
fn windows_of_random_conversations_keep_to_the_rules_1() {
    run(1);
}

#[test]
fn windows_of_random_conversations_keep_to_the_rules_2() {
    run(2);
}

#[test]
fn windows_of_random_conversations_keep_to_the_rules_3() {
    run(3);
}

#[test]
fn windows_of_random_conversations_keep_to_the_rules_4() {
    run(4);
}

fn run(seed: u64) {
    let (mut counter, mut seen) = (Counter::default(), Seen::default());
    for number in 0..CONVERSATIONS {
        let mut conversation = Conversation::new(seed << 32 | number);
        for call in 0..conversation.calls {
            conversation.go_on();
            let checked = conversation.call(&mut counter, &mut seen);
            if let Err(broken) = checked {
                panic!("conversation {seed}/{number}, call {call}: {broken}\n{:#?}", conversation.outline());
            }
        }
    }
    // If these did not occur, nothing was shown.
    let Seen { windows, steps, digests, too_small, unchanged } = seen;
    assert!(windows > 10_000 && steps > 1000 && digests > 1000 && too_small > 100 && unchanged > 3000, "{seen:?}");
}

/// How often what is to be shown came to pass.
#[derive(Debug, Default, Clone, Copy)]
struct Seen {
    windows: u64,
    steps: u64,
    digests: u64,
    too_small: u64,
    unchanged: u64,
}

struct Conversation {
    random: Random,
    entries: Vec<Entry>,
    room: Room,
    cut: Cut,
    /// What was sent last and of how many entries, if nothing but new ones came since.
    sent: Option<(Vec<Said>, usize)>,
    calls: u64,
    /// How many messages there ever were: each has an id of its own.
    made: u64,
}

impl Conversation {
    fn new(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let (room, calls) = (room(&mut random), 2 + random.below(8));
        let mut new = Self { random, entries: Vec::new(), room, cut: Cut::default(), sent: None, calls, made: 0 };
        if new.chance(10) {
            new.add_text(Role::Assistant);
        }
        new.add_request();
        new
    }

    fn chance(&mut self, percent: u64) -> bool {
        self.random.below(100) < percent
    }

    /// What comes between two calls of the model.
    fn go_on(&mut self) {
        for _ in 0..=self.random.below(3) {
            match self.random.below(100) {
                0..25 => self.add_request(),
                25..45 => self.add_text(Role::Assistant),
                45..50 => self.add_text(Role::System),
                50..53 => self.add_result("never_called", "read"),
                _ => self.add_calls(),
            }
        }
        if self.chance(25) {
            self.mark();
        }
        if self.chance(5) {
            self.fork();
        }
        if self.chance(5) {
            self.room = room(&mut self.random);
            self.sent = None;
        }
    }

    fn add(&mut self, role: Role, message_type: MessageType, content: Vec<ContentPart>) {
        self.made += 1;
        let mut entry = super::entry(self.made, role, message_type, content);
        entry.position = self.entries.len() as u64 + 1;
        self.entries.push(entry);
    }

    fn add_request(&mut self) {
        let text = format!("{} ?", words(&mut self.random));
        self.add(Role::User, MessageType::Text, vec![ContentPart::Text { text }]);
    }

    fn add_text(&mut self, role: Role) {
        let text = match self.random.below(12) {
            0 => String::new(),
            1 => " \n".to_owned(),
            _ => words(&mut self.random),
        };
        self.add(role, MessageType::Text, vec![ContentPart::Text { text }]);
    }

    /// One to four calls and their results in any order. Some were never answered, because the turn was ended.
    fn add_calls(&mut self) {
        let count = 1 + self.random.below(4);
        let mut calls: Vec<(String, String)> = Vec::new();
        for n in 0..count {
            calls.push((call_id(&mut self.random, n), tool(&mut self.random)));
        }
        let mut parts = Vec::new();
        if self.chance(40) {
            parts.push(ContentPart::Text { text: words(&mut self.random) });
        }
        for (id, name) in &calls {
            let (id, name, arguments) = (id.parse().unwrap(), name.clone(), arguments(&mut self.random));
            parts.push(ContentPart::ToolCall { id, name, arguments });
        }
        self.add(Role::Assistant, MessageType::ToolCall, parts);
        self.random.shuffle(&mut calls);
        for (id, name) in &calls {
            if self.chance(95) {
                self.add_result(id, name);
            }
        }
    }

    fn add_result(&mut self, id: &str, name: &str) {
        let content = match self.random.below(12) {
            0 => json!(""),
            1 => json!({ "lines": [words(&mut self.random), 7, null] }),
            2 if self.chance(50) => json!("a line of a long result\n".repeat(60)),
            _ => json!(words(&mut self.random)),
        };
        let edited = self.chance(8).then(|| arguments(&mut self.random));
        let part = ContentPart::ToolResult {
            tool_call_id: id.parse().unwrap(),
            tool_name: name.to_owned(),
            content,
            arguments: edited,
            is_error: self.chance(10),
        };
        self.add(Role::User, MessageType::ToolResult, vec![part]);
    }

    /// Pins or stashes a message, or takes that back.
    fn mark(&mut self) {
        let at = self.random.below(self.entries.len() as u64) as usize;
        let entry = &mut self.entries[at];
        match self.random.below(2) {
            0 => entry.is_pinned = !entry.is_pinned,
            _ => entry.is_stashed = !entry.is_stashed,
        }
        self.sent = None;
    }

    /// Goes on from an earlier message. What was cut after it never was.
    fn fork(&mut self) {
        let first = self.entries.iter().position(|entry| entry.message.role == Role::User).unwrap() as u64 + 1;
        let keep = first + self.random.below(self.entries.len() as u64 - first + 1);
        self.entries.truncate(keep as usize);
        if self.cut.digested_to > keep || self.cut.elided_to > keep {
            self.cut = Cut::default();
        }
        self.sent = None;
    }

    fn call(&mut self, counter: &mut Counter, seen: &mut Seen) -> Checked {
        let window = match assemble(&self.entries, &self.cut, self.room) {
            Ok(window) => window,
            Err(error) => {
                seen.too_small += 1;
                return check_too_small(&self.entries, &error, self.room, counter);
            }
        };
        seen.windows += 1;
        seen.digests += u64::from(!window.cut.told.is_empty());
        let said = window.said();
        check_openai(&said)?;
        check_anthropic(&said)?;
        check_size(&window, self.room, counter)?;
        check_messages(&self.entries, &window)?;
        self.check_same(&window)?;
        self.check_stable(&window, &said, counter, seen)?;
        (self.cut, self.sent) = (window.cut, Some((said, self.entries.len())));
        Ok(())
    }

    /// The same again gives the same.
    fn check_same(&self, window: &Assembled) -> Checked {
        if self.made.is_multiple_of(4) {
            let twice = assemble(&self.entries, &self.cut, self.room).ok();
            check!(twice.as_ref() == Some(window), "the same branch has two windows");
        }
        let again = assemble_again(&self.entries, window.cut.clone(), self.room);
        let again = Assembled { new_digest: window.new_digest, ..again };
        check!(again == *window, "a window cannot be made again from its cut");
        // A call does not read what was digested before.
        if self.made % 3 == 1 {
            let part = assemble(&part_of(&self.entries, self.cut.digested_to), &self.cut, self.room);
            let part = part.map(|part| Assembled { left_out: window.left_out.clone(), ..part });
            check!(part.as_ref() == Ok(window), "what a call reads gives another window");
        }
        Ok(())
    }

    /// Where nothing was cut anew, what was sent is the beginning of what is sent now.
    fn check_stable(&self, window: &Assembled, said: &[Said], counter: &mut Counter, seen: &mut Seen) -> Checked {
        if window.cut != (Cut { result_max: window.cut.result_max, ..self.cut.clone() }) {
            seen.steps += 1;
            return check_step(&self.entries, window, self.room, counter);
        }
        let Some((sent, _)) = self.sent.as_ref().filter(|sent| !self.is_request_let_go(sent.1)) else { return Ok(()) };
        seen.unchanged += 1;
        let differs = sent.iter().zip(said).find(|(before, now)| before != now);
        check!(said.starts_with(sent), "of {} messages that were sent one is not as it was: {differs:?}", sent.len());
        Ok(())
    }

    /// Whether the last request of the first `count` entries was in only because of that, and another one came: it is stashed, or what was
    /// said after it is digested to its end.
    fn is_request_let_go(&self, count: usize) -> bool {
        let is_request = |entry: &Entry| entry.message.role == Role::User && !is_result(entry);
        let Some(last) = self.entries[..count].iter().rfind(|entry| is_request(entry)) else { return false };
        let next = self.entries[count..].iter().find(|entry| !is_result(entry));
        let is_digested = self.entries[..count].iter().skip(self.cut.digested_to as usize).all(is_result);
        last.is_stashed || (is_digested && next.is_some_and(is_request))
    }

    /// The conversation in a few words, for who reads that it broke a rule.
    fn outline(&self) -> Vec<String> {
        let outline = |entry: &Entry| {
            let marks = [(entry.is_pinned, "pinned"), (entry.is_stashed, "stashed")];
            let marks: Vec<&str> = marks.iter().filter(|(is_set, _)| *is_set).map(|(_, mark)| *mark).collect();
            let (id, kind, role) = (&entry.message.id, entry.message.message_type, entry.message.role);
            format!("{} {id} {role:?} {kind:?} {} tokens {marks:?}", entry.position, entry.tokens)
        };
        let cut = format!("{:?}, digested to {}, elided to {}", self.room, self.cut.digested_to, self.cut.elided_to);
        std::iter::once(cut).chain(self.entries.iter().map(outline)).collect()
    }
}

fn room(random: &mut Random) -> Room {
    let budget = [150, 300, 600, 1000, 2000, 4000][random.below(6) as usize] + random.below(200);
    Room { budget, system: random.below(60), tools: random.below(2) * 40 }
}

/// A few words, or many.
fn words(random: &mut Random) -> String {
    const WORDS: [&str; 12] =
        ["the", "file", "src/lib.rs", "has", "failed:", "error", "42", "über", "\n", "we decided to", "keep", "日本"];
    let count = match random.below(40) {
        0 => 80 + random.below(200),
        1..6 => 30 + random.below(60),
        _ => 1 + random.below(12),
    };
    let words = (0..count).map(|_| WORDS[random.below(WORDS.len() as u64) as usize]);
    format!("so {}", words.collect::<Vec<_>>().join(" "))
}

/// Short ones and such as no tokenizer likes.
fn call_id(random: &mut Random, n: u64) -> String {
    match random.below(6) {
        0 => format!("call_{n}"),
        1 => {
            let length = 20 + random.below(70) as usize;
            let odd = random.text(length).replace(' ', ":");
            format!("{n}{odd}")
        }
        _ => format!("toolu_{n}{}", random.text(16).replace([' ', '.'], "_")),
    }
}

fn tool(random: &mut Random) -> String {
    match random.below(8) {
        0 => format!("mcp__{}", random.text(50).replace([' ', '.'], "-")),
        _ => "read_file".to_owned(),
    }
}

fn arguments(random: &mut Random) -> Value {
    match random.below(20) {
        0 => json!("no object at all"),
        1 => json!({ "content": format!("{} {}", words(random), random.text(2000)), "path": "a" }),
        2 => json!({ "numbers": (0..random.below(600)).collect::<Vec<_>>() }),
        _ => json!({ "path": words(random) }),
    }
}

/// What a call reads of a branch that was digested up to a position.
fn part_of(entries: &[Entry], digested_to: u64) -> Vec<Entry> {
    let is_digested = |at: &usize| block_of(entries, *at)[0].position <= digested_to;
    let digested = (0..entries.len()).take_while(is_digested).count();
    let from = last_request(entries).unwrap_or(digested).min(digested);
    let before = last_request(&entries[..from]);
    let is_read =
        |at: &usize| *at >= from || before == Some(*at) || block_of(entries, *at).iter().any(|entry| entry.is_pinned);
    (0..entries.len()).filter(is_read).map(|at| entries[at].clone()).collect()
}
