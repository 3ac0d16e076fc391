//! Messages that are in a window together, or not at all.

use super::Entry;
use super::entry::{MESSAGE_TOKENS, named_tokens};
use crate::api::ContentPart;
use crate::tokens;

/// What stands for a result that is left out has at most so many tokens. What is no longer stays.
pub(super) const LINE_TOKENS: u64 = 96;
/// What is told of a result that says nothing.
pub(super) const NOTHING: &str = "(nothing)";
pub(super) const NOTHING_TOKENS: u64 = 4;

/// A message, or one that calls tools with their results after it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Block<'a> {
    pub(super) entries: &'a [Entry],
    pub(super) calls: u64,
    /// It begins with what a user says.
    pub(super) begins_turn: bool,
    pub(super) is_last_request: bool,
    /// It belongs to the turn that is under way.
    pub(super) is_current: bool,
}

/// The request of a turn that was cut in the middle. It stays although another one is the last by now: nothing that was sent changes
/// because something new is said.
pub(super) fn kept(blocks: &[Block<'_>], digested_to: u64) -> Option<usize> {
    let digested = blocks.partition_point(|block| block.first() <= digested_to);
    blocks.get(digested).filter(|next| !next.begins_turn)?;
    blocks[..digested].iter().rposition(|block| block.begins_turn)
}

pub(super) fn blocks(entries: &[Entry]) -> Vec<Block<'_>> {
    let last_request = entries.iter().rposition(Entry::is_request);
    let (mut blocks, mut at) = (Vec::new(), 0);
    while let Some(entry) = entries.get(at) {
        let calls = entry.calls();
        let results = match calls {
            0 => 0,
            // What follows a gap belongs to what is not there.
            _ => {
                let follows = |(next, position): &(&Entry, u64)| next.is_result() && next.position == *position;
                entries[at + 1..].iter().zip(entry.position + 1..).take_while(follows).count()
            }
        };
        let end = at + 1 + results;
        blocks.push(Block {
            entries: &entries[at..end],
            calls,
            begins_turn: entry.is_request(),
            is_last_request: last_request == Some(at),
            is_current: last_request.is_some_and(|last| at >= last),
        });
        at = end;
    }
    blocks
}

/// What a block costs: whole, with a line for each result, and when only what must be in it is.
#[derive(Debug, Clone, Copy)]
pub(super) struct Cost {
    pub(super) whole: u64,
    pub(super) lined: u64,
    pub(super) floor: u64,
}

impl Block<'_> {
    /// Where it begins. By that it is before a cut or after it, also when it has grown since.
    pub(super) fn first(&self) -> u64 {
        self.entries.first().map_or(0, |entry| entry.position)
    }

    pub(super) fn last(&self) -> u64 {
        self.entries.last().map_or(0, |entry| entry.position)
    }

    /// It is in every window.
    pub(super) fn must_be_in(&self) -> bool {
        self.is_last_request || self.entries.iter().any(|entry| entry.is_pinned)
    }

    /// Someone took it out, and nothing keeps it in.
    pub(super) fn is_stashed(&self) -> bool {
        !self.must_be_in() && self.entries.first().is_some_and(|entry| entry.is_stashed)
    }

    /// What is told of calls that no message has a result of.
    fn missing(&self) -> u64 {
        let calls = self.entries.iter().flat_map(|entry| &entry.message.content).filter_map(|part| match part {
            ContentPart::ToolCall { id, name, .. } => Some((id.as_str(), name)),
            _ => None,
        });
        let missing = calls.filter(|(id, _)| !self.entries.iter().any(|entry| answers(entry, id)));
        missing.map(|(id, name)| missing_tokens(id, name)).sum()
    }

    /// `result_max` is how much of a result is shown as it is.
    pub(super) fn cost(&self, result_max: u64) -> Cost {
        if self.is_stashed() {
            return Cost { whole: 0, lined: 0, floor: 0 };
        }
        let around = self.missing() + self.entries.iter().map(Entry::frame_tokens).sum::<u64>();
        let sum =
            |is_lined| around + self.entries.iter().map(|entry| words_of(entry, is_lined, result_max)).sum::<u64>();
        let lined = sum(true);
        Cost { whole: sum(false), lined, floor: if self.must_be_in() { lined } else { 0 } }
    }
}

/// What an entry says, in tokens, at most.
fn words_of(entry: &Entry, is_lined: bool, result_max: u64) -> u64 {
    match form_of(entry, is_lined) {
        Form::Line => LINE_TOKENS,
        Form::CutCalls => entry.cut_tokens(),
        Form::Whole if !entry.is_result() => entry.tokens,
        Form::Whole if entry.is_pinned => entry.tokens.max(NOTHING_TOKENS) + edited_tokens(entry),
        Form::Whole => entry.tokens.clamp(NOTHING_TOKENS, result_max) + edited_tokens(entry),
    }
}

/// How a message stands in a window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    Whole,
    /// A result of which a line is left.
    Line,
    /// A call whose long arguments are cut.
    CutCalls,
}

pub(super) fn form_of(entry: &Entry, is_lined: bool) -> Form {
    match entry.is_result() {
        _ if entry.is_pinned => Form::Whole,
        true if entry.is_stashed || (is_lined && entry.tokens > LINE_TOKENS) => Form::Line,
        false if is_lined && entry.calls() > 0 && entry.tokens > 2 * entry.cut_tokens() => Form::CutCalls,
        _ => Form::Whole,
    }
}

/// What is told of a call that was never answered: without a result no provider takes it.
pub(super) const MISSING: &str = "there is no result: the turn was ended";

pub(super) fn missing_tokens(id: &str, tool: &str) -> u64 {
    tokens::count(MISSING) as u64 + named_tokens(id, tool) + MESSAGE_TOKENS
}

fn edited_tokens(entry: &Entry) -> u64 {
    let notes = entry.message.content.iter().filter_map(edit_of);
    notes.map(|note| tokens::count(&note) as u64).sum()
}

/// The note before a result whose arguments someone changed.
pub(super) fn edit_of(part: &ContentPart) -> Option<String> {
    match part {
        ContentPart::ToolResult { arguments: Some(arguments), .. } => {
            Some(format!("[the user changed the arguments to {arguments}]\n"))
        }
        _ => None,
    }
}

pub(super) fn answers(result: &Entry, call: &str) -> bool {
    let is_it = |part: &ContentPart| matches!(part, ContentPart::ToolResult { tool_call_id, .. } if tool_call_id.as_str() == call);
    result.message.content.iter().any(is_it)
}
