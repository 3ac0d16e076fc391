//! What stands for messages that are left out: what was asked, decided and changed, with where the whole of it is.

use std::fmt::Write as _;

use serde_json::{Map, json};

use super::Entry;
use super::block::Block;
use crate::api::{ContentPart, Digest, Message, MessageType, Origin, Role};
use crate::compress::extract;
use crate::handle::text_of;
use crate::id::SegmentId;
use crate::prose::{NOTICE, entry, fence, quoted};
use crate::survive::{self, Survivors};
use crate::tokens;
use crate::transcript::{Said, Turn, tell_statements};

/// Bytes of a token, about: where to begin with.
const TOKEN_BYTES: u64 = 3;
/// Of a call and of its result so much is told to who sums up.
const RETOLD_TOKENS: usize = 300;

pub(super) fn digest_of_blocks(mut digest: Digest, blocks: &[Block<'_>]) -> Digest {
    let entries = blocks.iter().flat_map(|block| block.entries);
    digest.add(&told(entries).flat_map(|entry| turns_of(&entry.message)).collect::<Vec<_>>());
    digest
}

/// What some messages come to.
pub(crate) fn digest_of(entries: &[Entry]) -> Digest {
    let mut digest = Digest::default();
    digest.add(&told(entries).flat_map(|entry| turns_of(&entry.message)).collect::<Vec<_>>());
    digest
}

/// What someone took out, or undid, does not come back by what stands for it.
fn told<'a>(entries: impl IntoIterator<Item = &'a Entry>) -> impl Iterator<Item = &'a Entry> {
    entries.into_iter().filter(|entry| entry.is_pinned || !entry.is_stashed)
}

/// What became of the lines that must not be lost: those the digest says, as it is told, and the others. `is_reachable` says that a model
/// can look for what it is not told.
pub(crate) fn survivors(digest: &Digest, told: &str, is_reachable: bool) -> Result<Option<Survivors>, String> {
    if digest.turns == 0 {
        return Ok(None);
    }
    let errors = digest.unresolved_errors.iter().map(|failure| failure.text.as_str());
    let said = digest.decisions.iter().map(|said| said.text.as_str()).chain(errors);
    let is_told = |line: &&str| told.contains(line.trim());
    let lines = |all: Vec<&str>| Map::from_iter([("left_out".to_owned(), json!(all))]);
    let before: Vec<&str> = said.flat_map(str::lines).collect();
    let after = before.iter().copied().filter(is_told).collect();
    survive::check(&lines(before), &lines(after), |_| false, |_| is_reachable).map(Some)
}

fn turns_of(message: &Message) -> Vec<(Turn, SegmentId)> {
    let said = message.content.iter().filter_map(|part| match part {
        ContentPart::Text { text } if text.is_empty() => None,
        ContentPart::Text { text } => Some(match message.role {
            Role::User if message.message_type == MessageType::ToolResult => return None,
            Role::User => Said::Request(text.clone()),
            // What was merged is as good as said here.
            Role::Assistant | Role::System => Said::Reply(text.clone()),
        }),
        ContentPart::ToolCall { id, name, arguments } => {
            Some(Said::Call { id: id.to_string(), tool: name.clone(), input: arguments.clone() })
        }
        ContentPart::ToolResult { tool_call_id, content, is_error, .. } => Some(Said::Result {
            id: tool_call_id.to_string(),
            text: text_of(content).into_owned(),
            is_error: *is_error,
            task: None,
        }),
    });
    let turn = |said| Turn { name: String::new(), at: Some(message.metadata.created_at), said };
    said.map(|said| (turn(said), message.id.clone())).collect()
}

/// What was said, for who sums it up: of what tools returned the most telling lines.
pub(crate) fn retell(entries: &[Entry]) -> String {
    let mut retold = String::new();
    for (turn, _) in told(entries).flat_map(|entry| turns_of(&entry.message)) {
        let (who, said) = match turn.said {
            Said::Request(text) => ("User", text),
            Said::Reply(text) | Said::Summary(text) => ("Assistant", text),
            Said::Call { tool, input, .. } => ("Call", format!("{tool} {}", cut(&input.to_string()))),
            Said::Result { text, is_error, .. } => (if is_error { "Failed" } else { "Result" }, cut(&text)),
        };
        let _ = writeln!(retold, "{who}: {said}");
    }
    retold
}

fn cut(text: &str) -> String {
    match tokens::count(text) > RETOLD_TOKENS {
        true => extract(text, RETOLD_TOKENS).unwrap_or_default(),
        false => text.to_owned(),
    }
}

/// A digest as a model is told, in at most so many tokens; the least is that something was left out.
pub(crate) fn tell(digest: &Digest, tokens_max: u64) -> String {
    let head = format!("[Earlier in this conversation, {} entries that are left out here. ", digest.turns);
    tell_digest(&head, "", digest, tokens_max)
}

/// The same with a summary of it all; `None` if there is no room for that.
pub(crate) fn tell_summary(
    digest: &Digest,
    summary: &str,
    model: &str,
    origin: Origin,
    tokens_max: u64,
) -> Option<String> {
    let head = format!("[Earlier in this conversation, {} entries that are left out here. ", digest.turns);
    let first = entry(&format!("Summary, written by {}", quoted(model)), origin, summary);
    Some(tell_digest(&head, &first, digest, tokens_max)).filter(|told| told.contains(&first))
}

/// The same after other words, and behind entries of other kinds.
pub(crate) fn tell_digest(head: &str, first: &str, digest: &Digest, tokens_max: u64) -> String {
    let head = format!("{head}{NOTICE}");
    let tail = "context_search_stashed finds more of it, context_expand returns what a handle (ws:…) stands for.]";
    let mut room = usize::try_from(tokens_max * TOKEN_BYTES).unwrap_or(usize::MAX);
    while room > head.len() + tail.len() {
        let statements = tell_statements(first, digest, room - head.len() - tail.len(), false);
        if statements == fence("") {
            break;
        }
        let told = format!("{head}{statements}{tail}");
        if tokens::count(&told) as u64 <= tokens_max {
            return told;
        }
        room = room * 3 / 4;
    }
    format!("[{} entries are left out here; context_search_stashed finds them]", digest.turns)
}
