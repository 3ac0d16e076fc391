//! What the store keeps of windows.

use std::ops::Range;

use crate::clock::Timestamp;
use crate::id::SegmentId;
use crate::window::{Cut, Entry, Room};

/// Which messages of a branch are loaded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WindowPart {
    Whole,
    /// Those that a window with the last one's cut, or a deeper one, can have: all behind the cut, the turn under way, and from before the cut
    /// what is pinned, with the calls and results it belongs to, and the last request.
    AfterCut {
        at_hand: Option<AtHand>,
    },
}

/// Messages of a branch that whoever asks has: all from one position on up to this message. They are not loaded again if it is on the branch:
/// then so is all that was said before it, and nobody can change that.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AtHand {
    pub from: u64,
    pub last: SegmentId,
}

/// What a window is assembled from.
#[derive(Debug, Clone, Default)]
pub struct WindowRows {
    /// Messages of the branch, oldest first.
    pub entries: Vec<Entry>,
    /// How many there are besides.
    pub passed_over: u64,
    /// The positions of those that belong between them and are at hand.
    pub at_hand: Range<u64>,
    /// What is pinned on the branch, and what was put aside.
    pub pinned: Vec<SegmentId>,
    pub stashed: Vec<SegmentId>,
    /// The windows that were made last of it, newest first; at most two. Of a branch without one, those of the branch it was forked from,
    /// as far as they are of what both have.
    pub made: Vec<MadeWindow>,
}

/// A window that a model was told.
#[derive(Debug, Clone, PartialEq)]
pub struct MadeWindow {
    /// Position of the newest message in it.
    pub head: u64,
    pub tokens: u64,
    pub at: Timestamp,
    pub manifest: Manifest,
}

/// All that a window depends on besides the messages of its branch.
#[derive(Debug, Clone, PartialEq)]
pub struct Manifest {
    pub model: String,
    /// What the model's window holds.
    pub limit: u64,
    pub room: Room,
    pub system: String,
    pub cut: Cut,
    /// What was pinned, and what was put aside.
    pub pinned: Vec<SegmentId>,
    pub stashed: Vec<SegmentId>,
    /// Whether the model was offered our own tools too.
    pub has_own_tools: bool,
}

/// A window that a model is about to be told.
#[derive(Debug, Clone)]
pub struct NewWindow {
    /// Of the event that tells of it.
    pub id: String,
    pub head: u64,
    pub tokens: u64,
    pub manifest: Manifest,
}
