//! A message of a branch, as windows see it.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use crate::api::{ContentPart, Message, MessageType, Role};
use crate::compress::extract;
use crate::tokens;

/// What a message costs besides what it says: its role, and what stands around it.
pub(super) const MESSAGE_TOKENS: u64 = 4;
/// And each call or result that it has.
const CALL_TOKENS: u64 = 4;
/// A message that calls tools has at most so many when it is cut, and so many more for each call besides its name and id.
const CUT_TOKENS: u64 = 300;
const CUT_CALL_TOKENS: u64 = 60;

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
    /// Its most telling lines, in at most so many tokens, and how many they have.
    excerpts: Mutex<Vec<(u64, Excerpt)>>,
}

type Excerpt = Option<(Arc<str>, u64)>;

impl Entry {
    pub fn new(position: u64, message: Message, tokens: u64) -> Self {
        let (message, found) = (Arc::new(message), Arc::default());
        Self { position, message, tokens, is_pinned: false, is_stashed: false, found }
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

    /// Its most telling lines, and how many tokens they have; none if not even one fits.
    pub(super) fn excerpt(&self, tokens_max: u64) -> Excerpt {
        let known = || self.found.excerpts.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, excerpt)) = known().iter().find(|(most, _)| *most == tokens_max) {
            return excerpt.clone();
        }
        let best = extract(&self.message.text(), usize::try_from(tokens_max).unwrap_or(usize::MAX));
        let excerpt = best.map(|best| (Arc::from(best.as_str()), tokens::count(&best) as u64));
        known().push((tokens_max, excerpt.clone()));
        excerpt
    }
}

pub(super) fn named_tokens(id: &str, tool: &str) -> u64 {
    (tokens::count(id) + tokens::count(tool)) as u64
}
