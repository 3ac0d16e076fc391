//! What a model is asked, made to fit: the window of one call.
//!
//! A branch is seen as [`Block`]s: a message, or one that calls tools with all their results, which are never apart. A [`Cut`] says how far
//! from its beginning on results are a line each, and how far only what must be in it still is; a digest stands for the rest. Between two calls
//! nothing of what was sent changes: new messages follow it. Only when they do not fit any more is it cut anew, and then so deep that
//! several turns have room again. Pure: the same branch, marks and cut give the same bytes.

mod block;
mod cut;
mod digest;
mod entry;
mod render;

use crate::api::Class;
use crate::id::SegmentId;
use crate::model::Said;

use block::{Block, blocks, kept};
pub use cut::Cut;
pub(crate) use digest::{digest_of, retell, survivors, tell_digest, tell_summary};
pub use entry::Entry;
use render::Renderer;

/// How much room there is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Room {
    /// For all that the model is told.
    pub budget: u64,
    /// Of that, for the system prompt.
    pub system: u64,
    /// And for the tools.
    pub tools: u64,
}

impl Room {
    /// More of a result is not shown as it is.
    pub(crate) fn result_max(&self) -> u64 {
        (self.budget / 4).clamp(RESULT_TOKENS_MIN, RESULT_TOKENS_MAX)
    }

    /// What is in every window, before anything was said.
    fn fixed(&self) -> u64 {
        self.system + self.tools + OPENING_TOKENS
    }
}

const RESULT_TOKENS_MAX: u64 = 4000;
const RESULT_TOKENS_MIN: u64 = 200;
/// For the line before what is not the user's and stands first.
const OPENING_TOKENS: u64 = 24;

/// A part of a window.
#[derive(Debug, Clone, PartialEq)]
pub struct Span {
    /// The message it is of, or is made from.
    pub message: Option<SegmentId>,
    pub kind: Kind,
    pub class: Class,
    pub reason: Reason,
    pub tokens: u64,
    /// As the model is told; the system prompt and the tools stand apart.
    pub said: Option<Said>,
}

/// What a part of a window is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    SystemPrompt,
    Tools,
    Digest,
    User,
    Assistant,
    System,
    ToolCall,
    ToolResult,
}

impl Kind {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::SystemPrompt => "system_prompt",
            Self::Tools => "tools",
            Self::Digest => "digest",
            Self::User => "user",
            Self::Assistant => "assistant",
            Self::System => "system",
            Self::ToolCall => "tool_call",
            Self::ToolResult => "tool_result",
        }
    }
}

/// Why a part is in a window, or how it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// It always is.
    Always,
    Pinned,
    LastRequest,
    /// It belongs to the turn that is under way.
    CurrentTurn,
    /// There is room for it.
    Fits,
    /// Without it a call would be without its result, or a result without its call.
    Paired,
    /// A line stands for it, and its most telling words.
    Elided,
    /// Its most telling lines are there.
    Shortened,
    /// It stands for what was left out.
    StandsForMore,
}

impl Reason {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Always => "always",
            Self::Pinned => "pinned",
            Self::LastRequest => "last_request",
            Self::CurrentTurn => "current_turn",
            Self::Fits => "fits",
            Self::Paired => "paired",
            Self::Elided => "elided",
            Self::Shortened => "shortened",
            Self::StandsForMore => "stands_for_more",
        }
    }
}

/// A message that the model does not see, or not whole.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeftOut {
    pub message: SegmentId,
    /// How many of its tokens are not there.
    pub tokens: u64,
    pub reason: Absence,
}

/// Why a message is not in a window as it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Absence {
    /// A line stands for it, and its most telling words.
    Elided,
    /// Its most telling lines are there.
    Shortened,
    /// The digest has something of it.
    Digested,
    /// The digest has nothing of it.
    Out,
    Stashed,
}

impl Absence {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Elided => "elided",
            Self::Shortened => "shortened",
            Self::Digested => "digested",
            Self::Out => "out",
            Self::Stashed => "stashed",
        }
    }
}

/// A window, all of it.
#[derive(Debug, Clone, PartialEq)]
pub struct Assembled {
    pub cut: Cut,
    pub spans: Vec<Span>,
    pub left_out: Vec<LeftOut>,
    pub tokens: u64,
    /// Where the digest was not told before.
    pub new_digest: Option<NewDigest>,
}

/// A digest that is told for the first time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct NewDigest {
    /// It stands for what was digested before, which is up to this position, and for more.
    pub after: u64,
    /// How long it may be.
    pub tokens_max: u64,
}

impl Assembled {
    /// What was said, as the model is told.
    pub fn said(&self) -> Vec<Said> {
        self.spans.iter().filter_map(|span| span.said.clone()).collect()
    }
}

/// What must be in a window does not fit into it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TooSmall {
    pub needed: u64,
    pub room: Room,
    /// What is pinned, and the last request, the largest first.
    pub largest: Vec<(SegmentId, u64, Reason)>,
}

/// The window of the next call: what was sent before, and what is new; cut anew if that does not fit.
pub fn assemble(entries: &[Entry], before: &Cut, room: Room) -> Result<Assembled, TooSmall> {
    let blocks = blocks(entries);
    let (cut, new_digest) = cut::choose(&blocks, before, room)?;
    Ok(Assembled { new_digest, ..render(&blocks, cut, room) })
}

/// The window as it was when it was cut so.
pub fn assemble_again(entries: &[Entry], cut: Cut, room: Room) -> Assembled {
    render(&blocks(entries), cut, room)
}

fn render(blocks: &[Block<'_>], cut: Cut, room: Room) -> Assembled {
    let mut renderer = Renderer::new(&cut, room);
    let kept = kept(blocks, cut.digested_to);
    for (at, block) in blocks.iter().enumerate() {
        renderer.add(block, kept == Some(at));
    }
    let (spans, left_out) = renderer.end();
    let tokens = spans.iter().map(|span| span.tokens).sum();
    Assembled { cut, spans, left_out, tokens, new_digest: None }
}
