//! A message of a branch, as windows see it.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use serde_json::Value;

use super::block::Form;
use crate::api::{ContentPart, Message, MessageType, Role};
use crate::compress::extract;
use crate::secret::Cover;
use crate::tokens;

/// What a message costs besides what it says: its role, and what stands around it.
pub(super) const MESSAGE_TOKENS: u64 = 4;
/// And each call or result that it has.
const CALL_TOKENS: u64 = 4;
/// A message that calls tools has at most so many when it is cut, and so many more for each call besides its name and id.
const CUT_TOKENS: u64 = 300;
const CUT_CALL_TOKENS: u64 = 60;
/// What a message takes in memory besides its texts, how much more JSON takes than its text, and what is shown of a result at most, about.
const ENTRY_BYTES: usize = 1000;
const VALUE_FACTOR: usize = 4;
const SHOWN_BYTES_MAX: usize = 20_000;

#[derive(Debug, Clone)]
pub struct Entry {
    /// How many there are from the beginning up to it.
    pub position: u64,
    pub message: Arc<Message>,
    /// Of what it says, calls included, by our tokenizer.
    pub tokens: u64,
    pub is_pinned: bool,
    /// Someone took it out of the window.
    pub is_stashed: bool,
    found: Arc<Found>,
}

/// What was found out about a message. It never changes, so neither do these.
#[derive(Debug, Default)]
struct Found {
    frame_tokens: OnceLock<u64>,
    cut_tokens: OnceLock<u64>,
    bytes: OnceLock<usize>,
    /// Each with how many tokens it may have.
    line: Mutex<Option<(u64, Shown)>>,
    shortened: Mutex<Option<(u64, Shown)>>,
}

/// What a window shows of a result that is not whole.
#[derive(Debug, Clone)]
pub(super) struct Shown {
    pub(super) text: Arc<str>,
    pub(super) tokens: u64,
    /// So many of them are the result's own.
    pub(super) kept: u64,
}

impl Entry {
    pub fn new(position: u64, message: Message, tokens: u64) -> Self {
        let (message, found) = (Arc::new(message), Arc::default());
        Self { position, message, tokens, is_pinned: false, is_stashed: false, found }
    }

    /// The same message without secrets.
    pub fn covered(mut self, cover: Cover<'_>) -> Self {
        let mut message = Message::clone(&self.message);
        if message.cover(cover) > 0 {
            self.message = Arc::new(message);
        }
        self
    }

    /// The same message with other marks.
    pub fn marked(&self, is_pinned: bool, is_stashed: bool) -> Self {
        Self { is_pinned, is_stashed, ..self.clone() }
    }

    pub(super) fn is_result(&self) -> bool {
        self.message.message_type == MessageType::ToolResult
    }

    /// Whether the user says it.
    pub(crate) fn is_request(&self) -> bool {
        self.message.role == Role::User && !self.is_result()
    }

    pub(super) fn calls(&self) -> u64 {
        self.message.content.iter().filter(|part| matches!(part, ContentPart::ToolCall { .. })).count() as u64
    }

    /// What is around its words.
    pub(super) fn frame_tokens(&self) -> u64 {
        let around = |part: &ContentPart| match part {
            ContentPart::Text { .. } => 0,
            ContentPart::ToolCall { .. } => CALL_TOKENS,
            ContentPart::ToolResult { tool_call_id, tool_name, .. } => {
                CALL_TOKENS + named_tokens(tool_call_id.as_str(), tool_name)
            }
        };
        let count = || MESSAGE_TOKENS + self.message.content.iter().map(around).sum::<u64>();
        *self.found.frame_tokens.get_or_init(count)
    }

    /// How long it is when its calls are cut, at most.
    pub(super) fn cut_tokens(&self) -> u64 {
        let call = |part: &ContentPart| match part {
            ContentPart::ToolCall { id, name, .. } => CUT_CALL_TOKENS + named_tokens(id.as_str(), name),
            _ => 0,
        };
        let count = || CUT_TOKENS + self.message.content.iter().map(call).sum::<u64>();
        *self.found.cut_tokens.get_or_init(count)
    }

    /// What is shown of it in at most so many tokens: its most telling lines, if there is room for them, and what we say about the rest.
    pub(super) fn shown(&self, form: Form, tokens_max: u64, about: &str) -> Shown {
        let slot = if form == Form::Line { &self.found.line } else { &self.found.shortened };
        let slot = || slot.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, shown)) = slot().as_ref().filter(|(known, _)| *known == tokens_max) {
            return shown.clone();
        }
        let text = self.message.text();
        // A line break comes between them, and may become a token of its own.
        let left = usize::try_from(tokens_max).unwrap_or(usize::MAX).saturating_sub(tokens::count(about) + 2);
        let best = extract(&text, left).unwrap_or_default();
        let text = if best.is_empty() { about.to_owned() } else { format!("{best}\n{about}") };
        let (tokens, kept) = (tokens::count(&text) as u64, tokens::count(&best) as u64);
        let shown = Shown { text: text.into(), tokens, kept };
        *slot() = Some((tokens_max, shown.clone()));
        shown
    }

    /// The same message, of which something was found out before.
    pub(crate) fn known_as(self, other: &Self) -> Self {
        Self { found: Arc::clone(&other.found), ..self }
    }

    /// How much memory it takes, with what is found out about it.
    pub(crate) fn bytes(&self) -> usize {
        let part = |part: &ContentPart| match part {
            ContentPart::Text { text } => text.len(),
            ContentPart::ToolCall { arguments, .. } => VALUE_FACTOR * arguments.to_string().len(),
            ContentPart::ToolResult { content: Value::String(text), .. } => {
                text.len() + text.len().min(SHOWN_BYTES_MAX)
            }
            ContentPart::ToolResult { content, .. } => VALUE_FACTOR * content.to_string().len() + SHOWN_BYTES_MAX,
        };
        let count = || ENTRY_BYTES + self.message.content.iter().map(part).sum::<usize>();
        *self.found.bytes.get_or_init(count)
    }
}

pub(super) fn named_tokens(id: &str, tool: &str) -> u64 {
    (tokens::count(id) + tokens::count(tool)) as u64
}
