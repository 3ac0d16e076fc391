//! A window as the model is told, part by part.

use serde_json::{Value, json};

use super::block::{
    Block, Form, LINE_TOKENS, MISSING, NOTHING, NOTHING_TOKENS, answers, edit_of, form_of, missing_tokens,
};
use super::entry::{MESSAGE_TOKENS, Shown};
use super::{Absence, Cut, Entry, Kind, LeftOut, Reason, Room, Span};
use crate::api::{Class, ContentPart, Role};
use crate::handle::Handle;
use crate::id::SegmentId;
use crate::model::{Call, Said};
use crate::tokens;

/// Of a text that is cut so many characters stay, and fewer where that is still too much.
const CUT_CHARS: [usize; 3] = [200, 40, 0];
/// And of the name of a tool.
const TOOL_CHARS: usize = 40;
const OPENING: &str = "[What was said before this is left out.]";

pub(super) struct Renderer<'a> {
    cut: &'a Cut,
    spans: Vec<Span>,
    left_out: Vec<LeftOut>,
}

impl<'a> Renderer<'a> {
    pub(super) fn new(cut: &'a Cut, room: Room) -> Self {
        let mut new = Self { cut, spans: Vec::new(), left_out: Vec::new() };
        for (kind, tokens) in [(Kind::SystemPrompt, room.system), (Kind::Tools, room.tools)] {
            let (class, reason) = (Class::Critical, Reason::Always);
            if tokens > 0 {
                new.spans.push(Span { message: None, kind, class, reason, tokens, said: None });
            }
        }
        if !cut.told.is_empty() {
            let digest = standing_in(&cut.told);
            new.spans.push(digest);
        }
        new
    }

    pub(super) fn end(mut self) -> (Vec<Span>, Vec<LeftOut>) {
        let first = self.spans.iter().position(|span| span.said.is_some());
        let is_users =
            |at: usize| matches!(self.spans[at].said, Some(Said::Text { role: Role::User | Role::System, .. }));
        if let Some(first) = first.filter(|first| !is_users(*first)) {
            let opening = standing_in(OPENING);
            self.spans.insert(first, opening);
        }
        (self.spans, self.left_out)
    }

    /// Adds a block, of which at least what must be in is in the window. `stays` if it is kept though it is digested.
    pub(super) fn add(&mut self, block: &Block<'_>, stays: bool) {
        let is_digested = block.first() <= self.cut.digested_to;
        if block.is_stashed() || (is_digested && !block.must_be_in() && !stays) {
            return self.add_nothing(block);
        }
        let is_lined = is_digested || block.first() <= self.cut.elided_to;
        let Some((first, results)) = block.entries.split_first() else { return };
        if block.calls == 0 {
            return self.add_text(block, first, is_lined);
        }
        self.add_calls(block, first, is_lined);
        let others = self.add_results(block, results, is_lined);
        for other in others {
            self.add_text(block, other, is_lined);
        }
    }

    fn add_nothing(&mut self, block: &Block<'_>) {
        for entry in block.entries {
            let reason = match block.is_stashed() {
                true => Absence::Stashed,
                false if self.cut.told.contains(&handle(&entry.message.id)) => Absence::Digested,
                false => Absence::Out,
            };
            self.leave_out(entry, entry.tokens, reason);
        }
    }

    /// The results as they stand on the branch, one for each call. Those that no call of the block asked for are returned.
    fn add_results<'b>(&mut self, block: &Block<'b>, results: &'b [Entry], is_lined: bool) -> Vec<&'b Entry> {
        let calls = block.entries.iter().flat_map(|entry| entry.message.content.iter().filter_map(named));
        let (mut owed, mut others): (Vec<(&str, &str)>, Vec<&Entry>) = (calls.collect(), Vec::new());
        for result in results {
            let Some(at) = owed.iter().position(|(id, _)| answers(result, id)) else {
                others.push(result);
                continue;
            };
            let (id, tool) = owed.remove(at);
            let (call_id, tool) = (id.to_owned(), tool.to_owned());
            let (text, span) = self.result(block, result, is_lined);
            let is_error = result.message.content.iter().any(is_error);
            self.spans.push(Span { said: Some(Said::Result { call_id, tool, text, is_error }), ..span });
        }
        for (id, tool) in owed {
            self.add_missing(id, tool);
        }
        others
    }

    /// A message without calls. The result of a call that is not before it is something that is known all the same.
    fn add_text(&mut self, block: &Block<'_>, entry: &Entry, is_lined: bool) {
        if entry.is_result() {
            let (text, span) = self.result(block, entry, is_lined);
            self.spans.push(Span { said: Some(Said::Text { role: entry.message.role, text }), ..span });
            return;
        }
        let text = entry.message.text();
        if text.is_empty() {
            return;
        }
        let said = Said::Text { role: entry.message.role, text };
        let (kind, reason) = (kind_of(entry), reason_of(block, entry, self.cut));
        self.push(entry, kind, reason, entry.tokens, said);
    }

    fn push(&mut self, entry: &Entry, kind: Kind, reason: Reason, words: u64, said: Said) {
        let tokens = words + entry.frame_tokens();
        let message = Some(entry.message.id.clone());
        self.spans.push(Span { message, kind, class: class_of(reason), reason, tokens, said: Some(said) });
    }

    fn add_calls(&mut self, block: &Block<'_>, entry: &Entry, is_lined: bool) {
        let text: String = entry.message.content.iter().filter_map(text_of).collect();
        let calls: Vec<Call> = entry.message.content.iter().filter_map(call_of).collect();
        let (mut words, mut reason) = (entry.tokens, reason_of(block, entry, self.cut));
        let (text, calls) = match form_of(entry, is_lined) {
            Form::CutCalls => {
                let (text, calls) = cut_calls(entry, &text, &calls);
                (words, reason) = (calls_tokens(&text, &calls), Reason::Elided);
                self.leave_out(entry, entry.tokens.saturating_sub(words), Absence::Elided);
                (text, calls)
            }
            Form::Whole | Form::Line => (text, calls),
        };
        let said = Said::Calls { text, calls };
        self.push(entry, Kind::ToolCall, reason, words, said);
    }

    /// The text of a result, and its span without what is said.
    fn result(&mut self, block: &Block<'_>, entry: &Entry, is_lined: bool) -> (String, Span) {
        let most = self.cut.result_max;
        let (mut text, mut words, mut reason) = match form_of(entry, is_lined) {
            Form::Line => {
                let shown = line(entry);
                let reason = if entry.is_stashed { Absence::Stashed } else { Absence::Elided };
                self.leave_out(entry, entry.tokens.saturating_sub(shown.kept), reason);
                (shown.text.to_string(), shown.tokens, Reason::Elided)
            }
            form if entry.tokens > most && !entry.is_pinned => {
                let note = format!(
                    "[{} tokens were returned; these are the most telling lines. context_expand returns the whole: {}]",
                    entry.tokens,
                    handle(&entry.message.id)
                );
                let shown = entry.shown(form, most, &note);
                self.leave_out(entry, entry.tokens.saturating_sub(shown.kept), Absence::Shortened);
                (shown.text.to_string(), shown.tokens, Reason::Shortened)
            }
            _ => match entry.message.text() {
                text if text.trim().is_empty() => (NOTHING.to_owned(), NOTHING_TOKENS, Reason::Fits),
                text => (text, entry.tokens, Reason::Fits),
            },
        };
        if reason != Reason::Elided {
            for note in entry.message.content.iter().filter_map(edit_of) {
                words += tokens::count(&note) as u64;
                text.insert_str(0, &note);
            }
        }
        if reason == Reason::Fits {
            reason = reason_of(block, entry, self.cut);
        }
        let span = Span {
            message: Some(entry.message.id.clone()),
            kind: Kind::ToolResult,
            class: class_of(reason),
            reason,
            tokens: words + entry.frame_tokens(),
            said: None,
        };
        (text, span)
    }

    fn add_missing(&mut self, id: &str, tool: &str) {
        let (class, reason, tokens) = (Class::Ephemeral, Reason::Paired, missing_tokens(id, tool));
        let (call_id, tool, text) = (id.to_owned(), tool.to_owned(), MISSING.to_owned());
        let said = Said::Result { call_id, tool, text, is_error: true };
        self.spans.push(Span { message: None, kind: Kind::ToolResult, class, reason, tokens, said: Some(said) });
    }

    fn leave_out(&mut self, entry: &Entry, tokens: u64, reason: Absence) {
        self.left_out.push(LeftOut { message: entry.message.id.clone(), tokens, reason });
    }
}

fn standing_in(text: &str) -> Span {
    Span {
        message: None,
        kind: Kind::Digest,
        class: Class::Useful,
        reason: Reason::StandsForMore,
        tokens: tokens::count(text) as u64 + MESSAGE_TOKENS,
        said: Some(Said::Text { role: Role::User, text: text.to_owned() }),
    }
}

fn handle(id: &SegmentId) -> String {
    Handle::to_segment(id).to_string()
}

/// What stands for a result that is left out.
fn line(entry: &Entry) -> Shown {
    let tools = entry.message.content.iter().find_map(|part| match part {
        ContentPart::ToolResult { tool_name, .. } => Some(tool_name.as_str()),
        _ => None,
    });
    let failed = if entry.message.content.iter().any(is_error) { " and failed" } else { "" };
    let (tool, id) = (shorten(tools.unwrap_or("a tool"), TOOL_CHARS), handle(&entry.message.id));
    let line =
        format!("[{tool} returned {} tokens{failed}; left out, context_expand returns them: {id}]", entry.tokens);
    // What someone put aside is not to be seen.
    if entry.is_stashed {
        return Shown { tokens: tokens::count(&line) as u64, text: line.into(), kept: 0 };
    }
    entry.shown(Form::Line, LINE_TOKENS, &line)
}

/// A message that calls tools, without most of what is long in it.
fn cut_calls(entry: &Entry, text: &str, calls: &[Call]) -> (String, Vec<Call>) {
    let most = entry.cut_tokens();
    let handle = handle(&entry.message.id);
    let cut = |chars: usize| {
        let text = match text.chars().nth(chars) {
            Some(_) => format!("{} [left out: {handle}]", shorten(text, chars)),
            None => text.to_owned(),
        };
        let calls = calls.iter().cloned().map(|mut call| {
            match chars {
                0 => call.arguments = json!({ "left_out": handle }),
                _ => shorten_value(&mut call.arguments, chars, &handle),
            }
            call
        });
        (text, calls.collect::<Vec<_>>())
    };
    let mut tries = CUT_CHARS.into_iter().map(cut);
    let fits = |(text, calls): &(String, Vec<Call>)| calls_tokens(text, calls) <= most;
    tries.find(fits).unwrap_or_else(|| cut(0))
}

/// As many tokens as the calls are counted when they are kept.
fn calls_tokens(text: &str, calls: &[Call]) -> u64 {
    let calls = calls.iter().map(|call| json!({ "id": call.id, "name": call.tool, "arguments": call.arguments }));
    (tokens::count(text) + calls.map(|call| tokens::count(&call.to_string())).sum::<usize>()) as u64
}

fn shorten(text: &str, chars: usize) -> String {
    match text.char_indices().nth(chars) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

fn shorten_value(value: &mut Value, chars: usize, handle: &str) {
    match value {
        Value::String(text) if text.chars().nth(chars).is_some() => {
            *text = format!("{} [{} characters, left out: {handle}]", shorten(text, chars), text.chars().count());
        }
        Value::Array(items) => items.iter_mut().for_each(|item| shorten_value(item, chars, handle)),
        Value::Object(map) => map.values_mut().for_each(|item| shorten_value(item, chars, handle)),
        _ => {}
    }
}

fn kind_of(entry: &Entry) -> Kind {
    match entry.message.role {
        Role::User => Kind::User,
        Role::Assistant => Kind::Assistant,
        Role::System => Kind::System,
    }
}

fn reason_of(block: &Block<'_>, entry: &Entry, cut: &Cut) -> Reason {
    match () {
        () if entry.is_pinned => Reason::Pinned,
        () if block.is_last_request => Reason::LastRequest,
        () if block.first() <= cut.digested_to => Reason::Paired,
        () if block.is_current => Reason::CurrentTurn,
        () => Reason::Fits,
    }
}

fn class_of(reason: Reason) -> Class {
    match reason {
        Reason::Always | Reason::Pinned | Reason::LastRequest => Class::Critical,
        Reason::CurrentTurn => Class::Important,
        Reason::Fits | Reason::StandsForMore => Class::Useful,
        Reason::Paired | Reason::Elided | Reason::Shortened => Class::Ephemeral,
    }
}

fn call_of(part: &ContentPart) -> Option<Call> {
    match part {
        ContentPart::ToolCall { id, name, arguments } => {
            Some(Call { id: id.to_string(), tool: name.clone(), arguments: arguments.clone() })
        }
        _ => None,
    }
}

/// The id of a call, and its tool.
fn named(part: &ContentPart) -> Option<(&str, &str)> {
    match part {
        ContentPart::ToolCall { id, name, .. } => Some((id.as_str(), name)),
        _ => None,
    }
}

fn text_of(part: &ContentPart) -> Option<&str> {
    match part {
        ContentPart::Text { text } => Some(text),
        _ => None,
    }
}

fn is_error(part: &ContentPart) -> bool {
    matches!(part, ContentPart::ToolResult { is_error: true, .. })
}
