//! A run, call by call.

use std::collections::{HashMap, HashSet};

use anyhow::{anyhow, ensure};
use waystone_core::api::ContentPart;
use waystone_core::model::{Call, Said};
use waystone_core::tokens;
use waystone_core::window::{Absence, Assembled, Cut, Entry, Room, TooSmall, assemble};

use super::run::{Run, Way};
use super::{READ_PRICE, WRITE_PRICE};
use crate::eval::compression::has;

/// Sums over calls.
#[derive(Default)]
pub(super) struct Figures {
    pub(super) calls: u64,
    /// Calls with another one before them, and of those the ones that begin with all that was sent then.
    pub(super) followed: u64,
    pub(super) same: u64,
    /// How often the window was cut anew.
    pub(super) steps: u64,
    pub(super) billed: f64,
    /// Names and numbers of the model's next message that had been said before.
    pub(super) words: Seen,
    /// What the run is known to have used after its end.
    pub(super) facts: Seen,
}

#[derive(Default)]
pub(super) struct Seen {
    pub(super) all: u64,
    pub(super) in_view: u64,
    /// In view, or in a message whose handle is.
    pub(super) at_hand: u64,
}

impl Figures {
    pub(super) fn add(&mut self, other: &Self) {
        self.calls += other.calls;
        self.followed += other.followed;
        self.same += other.same;
        self.steps += other.steps;
        self.billed += other.billed;
        self.words.add(&other.words);
        self.facts.add(&other.facts);
    }
}

impl Seen {
    fn add(&mut self, other: &Self) {
        self.all += other.all;
        self.in_view += other.in_view;
        self.at_hand += other.at_hand;
    }
}

/// What a model is told in one call, and the messages that it sees a handle of.
struct Sent {
    said: Vec<Said>,
    cut: Cut,
    handles: HashSet<u64>,
}

pub(super) fn replay(run: &Run, way: Way, budget: u64) -> anyhow::Result<Figures> {
    let (mut figures, mut counter) = (Figures::default(), HashMap::new());
    let mut before: Option<Sent> = None;
    let answers = |at: &usize| run.entries.get(*at).is_some_and(|entry| entry.message.role.as_str() == "assistant");
    let ends = run.facts.iter().map(|(end, _)| *end);
    let mut ends: Vec<usize> = (1..run.entries.len()).filter(answers).chain(ends).collect();
    ends.sort_unstable();
    ends.dedup();
    for end in ends {
        let cut = before.as_ref().map(|before| before.cut.clone()).unwrap_or_default();
        let sent = send(&run.entries[..end], way, budget, &cut, &mut counter)?;
        figures.calls += 1;
        figures.steps += u64::from(sent.cut != Cut { result_max: sent.cut.result_max, ..cut });
        let same = before.as_ref().map_or(0, |before| common(&before.said, &sent.said));
        if let Some(before) = &before {
            figures.followed += 1;
            figures.same += u64::from(same == before.said.len());
        }
        let tokens =
            |said: &[Said], counter: &mut _| said.iter().map(|said| tokens_of(said, counter)).sum::<u64>() as f64;
        figures.billed += READ_PRICE * tokens(&sent.said[..same], &mut counter);
        figures.billed += WRITE_PRICE * tokens(&sent.said[same..], &mut counter);
        let facts = run.facts.iter().filter(|(at, _)| *at == end).flat_map(|(_, facts)| facts);
        look(&run.entries[..end], &sent, facts.cloned(), &mut figures.facts);
        if let Some(next) = run.entries.get(end).filter(|_| answers(&end)) {
            look(&run.entries[..end], &sent, words_of(&text_of(next)).into_iter(), &mut figures.words);
        }
        before = Some(sent);
    }
    Ok(figures)
}

fn common(before: &[Said], now: &[Said]) -> usize {
    before.iter().zip(now).take_while(|(before, now)| before == now).count()
}

type Counter = HashMap<String, u64>;

fn send(entries: &[Entry], way: Way, budget: u64, cut: &Cut, counter: &mut Counter) -> anyhow::Result<Sent> {
    let window = match way {
        Way::Window => assemble(entries, cut, Room { budget, system: 0, tools: 0 }),
        Way::Everything | Way::Newest => whole(entries),
    };
    let window = window.map_err(|small| anyhow!("the window is too small: {small:?}"))?;
    let handles = handles(entries, &window);
    let mut said = window.said();
    check(&said)?;
    if way == Way::Newest {
        said = newest(said, budget, counter);
    }
    let tokens: u64 = said.iter().map(|said| tokens_of(said, counter)).sum();
    ensure!(way == Way::Everything || tokens <= budget, "{tokens} tokens in a window of {budget}");
    Ok(Sent { said, cut: window.cut, handles })
}

/// All of it, as it is: no window shortens what is pinned, and one without a limit leaves nothing out.
fn whole(entries: &[Entry]) -> Result<Assembled, TooSmall> {
    let pinned: Vec<Entry> = entries.iter().map(|entry| entry.marked(true, false)).collect();
    let window = assemble(&pinned, &Cut::default(), Room { budget: u64::MAX / 1000, system: 0, tools: 0 })?;
    let nothing_cut = Cut { result_max: window.cut.result_max, ..Cut::default() };
    assert!(window.left_out.is_empty() && window.cut == nothing_cut, "something of it is not there");
    Ok(window)
}

/// The positions of the messages whose handle is in view.
fn handles(entries: &[Entry], window: &Assembled) -> HashSet<u64> {
    let out = window.left_out.iter().filter(|out| !matches!(out.reason, Absence::Out | Absence::Stashed));
    let ids: HashSet<&str> = out.map(|out| out.message.as_str()).collect();
    entries.iter().filter(|entry| ids.contains(entry.message.id.as_str())).map(|entry| entry.position).collect()
}

/// What fits from the end on, without results whose call does not.
fn newest(said: Vec<Said>, budget: u64, counter: &mut Counter) -> Vec<Said> {
    let (mut left, mut first) = (budget, said.len());
    for (at, said) in said.iter().enumerate().rev() {
        let tokens = tokens_of(said, counter);
        if tokens > left {
            break;
        }
        left -= tokens;
        first = at;
    }
    said.into_iter().skip(first).skip_while(|said| matches!(said, Said::Result { .. })).collect()
}

fn tokens_of(said: &Said, counter: &mut Counter) -> u64 {
    let mut count = |text: &str| match counter.get(text) {
        Some(known) => *known,
        None => {
            let counted = tokens::count(text) as u64;
            counter.insert(text.to_owned(), counted);
            counted
        }
    };
    let mut call = |call: &Call| count(&call.id) + count(&call.tool) + count(&call.arguments.to_string());
    let named = match said {
        Said::Text { .. } => 0,
        Said::Calls { calls, .. } => calls.iter().map(&mut call).sum(),
        Said::Result { call_id, tool, .. } => count(call_id) + count(tool),
    };
    4 + count(said.text()) + named
}

/// Each call is followed by its result, the user is first, and nothing is empty.
fn check(said: &[Said]) -> anyhow::Result<()> {
    let mut owed: Vec<&str> = Vec::new();
    for said in said {
        match said {
            Said::Result { call_id, .. } => {
                let at = owed.iter().position(|id| id == call_id);
                owed.remove(at.ok_or_else(|| anyhow!("a result of {call_id} without its call"))?);
            }
            _ => ensure!(owed.is_empty(), "calls without their results: {owed:?}"),
        }
        ensure!(matches!(said, Said::Calls { .. }) || !said.text().trim().is_empty(), "an empty message");
        if let Said::Calls { calls, .. } = said {
            owed = calls.iter().map(|call| call.id.as_str()).collect();
        }
    }
    let is_users = |first: &Said| matches!(first, Said::Text { role, .. } if role.as_str() != "assistant");
    ensure!(owed.is_empty() && said.first().is_none_or(is_users), "no result at the end, or no user at the beginning");
    Ok(())
}

/// Looks for words that were said before in what was sent.
fn look(entries: &[Entry], sent: &Sent, words: impl Iterator<Item = String>, seen: &mut Seen) {
    let view: String = sent.said.iter().map(said_text).collect();
    let texts: Vec<(u64, String)> = entries.iter().map(|entry| (entry.position, text_of(entry))).collect();
    for word in words {
        let mut places = texts.iter().filter(|(_, text)| has(&word, text)).map(|(position, _)| position).peekable();
        if places.peek().is_none() {
            continue;
        }
        let is_in_view = has(&word, &view);
        seen.all += 1;
        seen.in_view += u64::from(is_in_view);
        seen.at_hand += u64::from(is_in_view || places.any(|position| sent.handles.contains(position)));
    }
}

fn said_text(said: &Said) -> String {
    match said {
        Said::Calls { text, calls } => {
            let calls: String = calls.iter().map(|call| format!("{} {}\n", call.tool, call.arguments)).collect();
            format!("{text}\n{calls}")
        }
        other => format!("{}\n", other.text()),
    }
}

fn text_of(entry: &Entry) -> String {
    let calls = entry.message.content.iter().filter_map(|part| match part {
        ContentPart::ToolCall { name, arguments, .. } => Some(format!("\n{name} {arguments}")),
        _ => None,
    });
    entry.message.text() + &calls.collect::<String>()
}

/// Names and numbers: words with a digit, an underscore or a capital letter inside.
fn words_of(text: &str) -> HashSet<String> {
    let is_inside = |c: char| c.is_ascii_digit() || c == '_' || c.is_ascii_uppercase();
    let words = text.split(|c: char| !c.is_alphanumeric() && c != '_' && c != '-');
    let words = words.map(|word| word.trim_matches('-')).filter(|word| word.len() >= 4 && word.is_ascii());
    words.filter(|word| word[1..].chars().any(is_inside)).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use serde_json::json;

    use super::*;
    use crate::eval::window::run::read;

    /// A run in which a tool returns more than a window shows of any result.
    fn run() -> Run {
        let long: String = (0..3000).map(|line| format!("line {line} of a long result\n")).collect();
        let messages = json!([
            { "role": "assistant", "content": "CALL read {\"path\": \"a\"}" },
            { "role": "obs", "content": long },
            { "role": "assistant", "content": "It has many lines." },
        ]);
        let (folder, written) =
            (tempfile::tempdir().unwrap(), json!({ "goal": "read it", "messages": messages, "facts": ["line 1717"] }));
        let file = folder.path().join("run.jsonl");
        fs::write(&file, written.to_string()).unwrap();
        read(&file).unwrap().remove(0)
    }

    #[test]
    fn what_windows_are_compared_with_is_whole_however_long_it_is() {
        let run = run();
        let sent = send(&run.entries, Way::Everything, 0, &Cut::default(), &mut HashMap::new()).unwrap();
        let texts: Vec<String> = sent.said.iter().map(|said| said.text().to_owned()).collect();
        assert_eq!(texts, run.entries.iter().map(|entry| entry.message.text()).collect::<Vec<_>>());
        let window = send(&run.entries, Way::Window, 20_000, &Cut::default(), &mut HashMap::new()).unwrap();
        assert!(window.said != sent.said && !window.handles.is_empty(), "a window shows less of it");
    }
}
