//! What every window must keep to, found out without what the window is made with.

use std::collections::{HashMap, HashSet};

use waystone_core::api::{ContentPart, Role};
use waystone_core::handle::Handle;
use waystone_core::model::{Call, Said};
use waystone_core::tokens;
use waystone_core::window::{Absence, Assembled, Entry, Kind, Room, TooSmall};

pub(super) type Checked = Result<(), String>;

macro_rules! check {
    ($holds:expr, $($what:tt)+) => {
        if !$holds {
            return Err(format!($($what)+));
        }
    };
}
pub(super) use check;

/// Counts that were made before: the same texts come again and again.
#[derive(Default)]
pub(super) struct Counter(HashMap<String, u64>);

impl Counter {
    pub(super) fn count(&mut self, text: &str) -> u64 {
        if let Some(known) = self.0.get(text) {
            return *known;
        }
        let counted = tokens::count(text) as u64;
        self.0.insert(text.to_owned(), counted);
        counted
    }

    /// What a message costs at least: its words, what names its calls, and four for what is around it.
    fn said(&mut self, said: &Said) -> u64 {
        let named = match said {
            Said::Text { .. } => 0,
            Said::Calls { calls, .. } => calls.iter().map(|call| self.call(call)).sum(),
            Said::Result { call_id, tool, .. } => self.count(call_id) + self.count(tool),
        };
        4 + self.count(said.text()) + named
    }

    fn call(&mut self, call: &Call) -> u64 {
        self.count(&call.id) + self.count(&call.tool) + self.count(&call.arguments.to_string())
    }
}

/// Results follow their calls at once, one for each, and there are no others.
pub(super) fn check_openai(said: &[Said]) -> Checked {
    let mut owed: Vec<&str> = Vec::new();
    for said in said {
        match said {
            Said::Result { call_id, .. } => {
                let at = owed.iter().position(|id| id == call_id);
                owed.remove(at.ok_or_else(|| format!("a result of {call_id}, which was not called"))?);
            }
            _ if !owed.is_empty() => return Err(format!("{said:?} before the results of {owed:?}")),
            Said::Calls { calls, .. } => {
                owed = calls.iter().map(|call| call.id.as_str()).collect();
                check!(!owed.is_empty(), "calls without a call");
                check!(owed.iter().collect::<HashSet<_>>().len() == owed.len(), "an id twice in {owed:?}");
            }
            Said::Text { .. } => {}
        }
    }
    check!(owed.is_empty(), "no results of {owed:?}");
    Ok(())
}

/// Users and the model in turn, a user first, and in what follows calls their results are first.
pub(super) fn check_anthropic(said: &[Said]) -> Checked {
    let mut merged: Vec<(bool, Vec<&Said>)> = Vec::new();
    for said in said {
        let is_users = !matches!(said, Said::Calls { .. } | Said::Text { role: Role::Assistant, .. });
        check!(!matches!(said, Said::Text { text, .. } | Said::Result { text, .. } if text.is_empty()), "no text");
        match merged.last_mut() {
            Some((last, together)) if *last == is_users => together.push(said),
            _ => merged.push((is_users, vec![said])),
        }
    }
    check!(merged.first().is_some_and(|(is_users, _)| *is_users), "the first is not the user's");
    let mut owed: HashSet<&str> = HashSet::new();
    for (is_users, together) in &merged {
        let results = together.iter().map_while(|said| match said {
            Said::Result { call_id, .. } => Some(call_id.as_str()),
            _ => None,
        });
        let results: Vec<&str> = results.collect();
        let all = together.iter().filter(|said| matches!(said, Said::Result { .. })).count();
        check!(all == results.len(), "a result after a text");
        check!(!*is_users || results.iter().copied().collect::<HashSet<_>>() == owed, "{results:?} for {owed:?}");
        owed = together.iter().flat_map(|said| calls_of(said)).map(|call| call.id.as_str()).collect();
    }
    check!(owed.is_empty(), "no results of {owed:?}");
    Ok(())
}

fn calls_of(said: &Said) -> &[Call] {
    match said {
        Said::Calls { calls, .. } => calls,
        _ => &[],
    }
}

/// Within the budget, and as large as it says that it is.
pub(super) fn check_size(window: &Assembled, room: Room, counter: &mut Counter) -> Checked {
    let said = window.said();
    let tokens = room.system + room.tools + said.iter().map(|said| counter.said(said)).sum::<u64>();
    check!(tokens <= room.budget, "{tokens} tokens, the budget is {}", room.budget);
    check!(window.tokens <= room.budget, "{} tokens are claimed, the budget is {}", window.tokens, room.budget);
    check!(tokens <= window.tokens, "{tokens} tokens, {} are claimed", window.tokens);
    // What JSON has around a call, and what is around messages.
    let calls: usize = said.iter().map(|said| calls_of(said).len()).sum();
    let slack = 8 * said.len() as u64 + 30 * calls as u64;
    check!(window.tokens <= tokens + slack, "{tokens} tokens, {} are claimed, that is too many", window.tokens);
    let system = window.spans.first().filter(|span| span.kind == Kind::SystemPrompt).map_or(0, |span| span.tokens);
    check!(system == room.system, "{system} tokens of system prompt, there are {}", room.system);
    Ok(())
}

/// Every message is whole, or left out once with a handle that finds it; what must be in is whole; all is in order.
pub(super) fn check_messages(entries: &[Entry], window: &Assembled) -> Checked {
    let last_request = last_request(entries);
    for (at, entry) in entries.iter().enumerate() {
        let id = &entry.message.id;
        let whole = window.spans.iter().filter(|span| {
            span.message.as_ref() == Some(id) && span.said.as_ref().is_some_and(|said| is_whole(entry, said))
        });
        let (whole, out) = (whole.count(), window.left_out.iter().filter(|out| out.message == *id).collect::<Vec<_>>());
        if is_blank(entry) {
            check!(whole == 0 && out.len() <= 1, "{id} says nothing, and is there");
            continue;
        }
        check!(whole + out.len() == 1, "{id} is whole {whole} times and left out {} times", out.len());
        let must = entry.is_pinned || last_request == Some(at);
        check!(!must || whole == 1, "{id} must be in the window");
        check!(must || !entry.is_stashed || whole == 0 || keeps(entries, at), "{id} was stashed and is there");
    }
    check!(window.left_out.iter().all(|out| entries.iter().any(|entry| entry.message.id == out.message)), "a stranger");
    for out in &window.left_out {
        check_handle(window, &out.message.to_string(), out.reason)?;
    }
    check_order(entries, window)
}

fn check_handle(window: &Assembled, id: &str, reason: Absence) -> Checked {
    let handle = format!("ws:segment:{id}");
    check!(handle.parse::<Handle>().is_ok(), "{handle} is no handle");
    let in_span = window.spans.iter().any(|span| {
        span.message.as_ref().is_some_and(|message| message.as_str() == id)
            && span.said.as_ref().is_some_and(|said| format!("{said:?}").contains(&handle))
    });
    match reason {
        Absence::Elided | Absence::Shortened => check!(in_span, "{id} is {reason:?} without its handle"),
        Absence::Digested => check!(window.cut.told.contains(&handle), "{id} is not in the digest"),
        Absence::Out | Absence::Stashed => {}
    }
    Ok(())
}

/// Spans stand as their messages do. Only a result that no call asked for may come after the others of its block.
fn check_order(entries: &[Entry], window: &Assembled) -> Checked {
    let positions = window.spans.iter().filter_map(|span| {
        let said = span.said.as_ref()?;
        let entry = entries.iter().find(|entry| Some(&entry.message.id) == span.message.as_ref())?;
        (!is_result(entry) || matches!(said, Said::Result { .. })).then_some(entry.position)
    });
    check!(positions.is_sorted_by(|a, b| a < b), "spans are not in the order of the branch");
    Ok(())
}

fn is_whole(entry: &Entry, said: &Said) -> bool {
    let text = entry.message.text();
    match said {
        Said::Text { text: told, .. } | Said::Result { text: told, .. } if is_result(entry) => {
            told.ends_with(if text.trim().is_empty() { "(nothing)" } else { &text })
        }
        Said::Text { role, text: told } => *role == entry.message.role && *told == text,
        Said::Calls { text: told, calls } => *told == text && *calls == calls_in(entry),
        Said::Result { .. } => false,
    }
}

pub(super) fn is_result(entry: &Entry) -> bool {
    entry.message.content.iter().any(|part| matches!(part, ContentPart::ToolResult { .. }))
}

pub(super) fn calls_in(entry: &Entry) -> Vec<Call> {
    let call = |part: &ContentPart| match part {
        ContentPart::ToolCall { id, name, arguments } => {
            Some(Call { id: id.to_string(), tool: name.clone(), arguments: arguments.clone() })
        }
        _ => None,
    };
    entry.message.content.iter().filter_map(call).collect()
}

fn is_blank(entry: &Entry) -> bool {
    !is_result(entry) && calls_in(entry).is_empty() && entry.message.text().is_empty()
}

pub(super) fn last_request(entries: &[Entry]) -> Option<usize> {
    entries.iter().rposition(|entry| entry.message.role == Role::User && !is_result(entry))
}

/// The entries that are with this one in a window or not at all.
pub(super) fn block_of(entries: &[Entry], at: usize) -> &[Entry] {
    let mut first = at;
    while first > 0 && is_result(&entries[first]) && (is_result(&entries[first - 1]) || has_calls(&entries[first - 1]))
    {
        first -= 1;
    }
    if !has_calls(&entries[first]) {
        return &entries[at..=at];
    }
    let results = entries[first + 1..].iter().take_while(|entry| is_result(entry)).count();
    &entries[first..=first + results]
}

fn has_calls(entry: &Entry) -> bool {
    !calls_in(entry).is_empty()
}

/// Whether a pin on a result keeps the message that called for it.
fn keeps(entries: &[Entry], at: usize) -> bool {
    has_calls(&entries[at]) && block_of(entries, at).iter().any(|entry| entry.is_pinned)
}

/// What must be in a window costs more than there is, also when everything else is out.
pub(super) fn check_too_small(entries: &[Entry], error: &TooSmall, room: Room, counter: &mut Counter) -> Checked {
    let most = most_needed(entries, room, counter);
    check!(most > room.budget, "{most} tokens would do, the budget is {}", room.budget);
    check!(error.room == room && error.needed > room.budget, "{error:?}");
    let last = last_request(entries);
    let must = entries.iter().enumerate().filter(|(at, entry)| entry.is_pinned || last == Some(*at));
    let mut must: Vec<&str> = must.map(|(_, entry)| entry.message.id.as_str()).collect();
    let mut named: Vec<&str> = error.largest.iter().map(|(id, ..)| id.as_str()).collect();
    check!(error.largest.is_sorted_by_key(|(_, tokens, _)| std::cmp::Reverse(*tokens)), "not the largest first");
    must.sort_unstable();
    named.sort_unstable();
    check!(must == named, "{named:?} are named, {must:?} must be in");
    Ok(())
}

/// The most that what must be in takes in its smallest form: 24 tokens for an opening, 64 for the mark of what is left out, a line of 96 for a
/// result that is not pinned itself, and for a call that is not twice what a cut one has.
pub(super) fn most_needed(entries: &[Entry], room: Room, counter: &mut Counter) -> u64 {
    let last = last_request(entries);
    let mut needed = room.system + room.tools + 24 + 64;
    for (at, entry) in entries.iter().enumerate() {
        let block = block_of(entries, at);
        if last != Some(at) && !block.iter().any(|entry| entry.is_pinned) {
            continue;
        }
        let calls = calls_in(entry);
        let named: u64 = calls.iter().map(|call| counter.count(&call.id) + counter.count(&call.tool)).sum();
        needed += 4 + match entry.is_pinned {
            _ if is_result(entry) => result_needed(entry, counter),
            false if !calls.is_empty() => entry.tokens.min(2 * (300 + 60 * calls.len() as u64 + named)),
            _ => entry.tokens,
        };
        let answered = |call: &&Call| block.iter().any(|entry| answers(entry, &call.id));
        let missing = calls.iter().filter(|call| !answered(call));
        needed += 4 * calls.len() as u64;
        needed += missing.map(|call| 16 + counter.count(&call.id) + counter.count(&call.tool)).sum::<u64>();
    }
    needed
}

fn result_needed(entry: &Entry, counter: &mut Counter) -> u64 {
    let around = entry.message.content.iter().map(|part| match part {
        ContentPart::ToolResult { tool_call_id, tool_name, arguments, .. } => {
            let note = arguments.as_ref().map_or(0, |arguments| 16 + counter.count(&arguments.to_string()));
            4 + counter.count(tool_call_id.as_str()) + counter.count(tool_name) + note
        }
        _ => 0,
    });
    let around: u64 = around.sum();
    around + if entry.is_pinned { entry.tokens.max(4) } else { 96 }
}

fn answers(entry: &Entry, call: &str) -> bool {
    let is_it = |part: &ContentPart| matches!(part, ContentPart::ToolResult { tool_call_id, .. } if tool_call_id.as_str() == call);
    entry.message.content.iter().any(is_it)
}

/// After a step there is room for several turns, unless nothing is left that could go.
pub(super) fn check_step(entries: &[Entry], window: &Assembled, room: Room, counter: &mut Counter) -> Checked {
    let least = most_needed(entries, room, counter).min(room.budget);
    if window.tokens <= least + (room.budget - least) * 2 / 3 {
        return Ok(());
    }
    let newest = entries.len() - block_of(entries, entries.len() - 1).len();
    let last = last_request(entries);
    for (at, entry) in entries[..newest].iter().enumerate() {
        let stays = last == Some(at) || block_of(entries, at).iter().any(|entry| entry.is_pinned) || is_blank(entry);
        let is_out = |out: &&waystone_core::window::LeftOut| {
            out.message == entry.message.id && !matches!(out.reason, Absence::Elided | Absence::Shortened)
        };
        let is_gone = window.left_out.iter().any(|out| is_out(&out));
        check!(stays || is_gone, "{} tokens after a step, and {} is still there", window.tokens, entry.message.id);
    }
    Ok(())
}
