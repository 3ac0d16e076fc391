//! Where a branch is cut, so that it fits.

use super::block::{Block, Cost, kept};
use super::digest::{digest_of_blocks, tell};
use super::{NewDigest, Reason, Room, TooSmall};
use crate::api::Digest;
use crate::tokens;

/// What has been left out of the windows of a branch, and what stands for it. It changes in rare, large steps.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Cut {
    /// Up to this position only what must be in a window is. In the middle of a turn its request stays too.
    pub digested_to: u64,
    /// Up to this position results are a line each, and long arguments are cut.
    pub elided_to: u64,
    /// Of a longer result only the most telling lines are shown; 0 before anything was cut or shown. It changes only with a step, though what
    /// there is room for may change at any time.
    pub result_max: u64,
    /// What stands for what was digested, all of it and as the model is told.
    pub digest: Digest,
    pub told: String,
}

/// Of the room that is not taken by what must be in, so much is filled after a step, at most: the rest is for the turns that follow.
const FILLED_PERCENT: u64 = 60;
/// What came last stays whole if it takes no more than so much of it.
const RECENT_PERCENT: u64 = 25;
/// A digest takes at most so much of it, and never more than so many tokens.
const DIGEST_PERCENT: u64 = 10;
const DIGEST_TOKENS_MAX: u64 = 2000;
/// The least that is told of what was left out.
const MARK_TOKENS: u64 = 64;

/// The cut of the next window: the one before it, if that still fits; and what its digest stands for besides, if that is told anew.
pub(super) fn choose(blocks: &[Block<'_>], before: &Cut, room: Room) -> Result<(Cut, Option<NewDigest>), TooSmall> {
    let result_max = if before.result_max > 0 { before.result_max } else { room.result_max() };
    let mut lines = Lines::new(blocks, before, room, result_max);
    if lines.tokens(lines.digested, lines.elided, lines.told) <= room.budget {
        return Ok((Cut { result_max, ..before.clone() }, None));
    }
    let result_max = room.result_max();
    if before.result_max != result_max {
        lines = Lines::new(blocks, before, room, result_max);
    }
    let (digested, elided) = lines.step().ok_or_else(|| lines.too_small())?;
    // What was digested before may not be among the blocks, so where nothing moves the position is the one before.
    let last = |count: usize| count.checked_sub(1).map_or(0, |last| blocks[last].last());
    let digested_to = if digested == lines.digested { before.digested_to } else { last(digested) };
    let elided_to = if elided == lines.elided { before.elided_to.max(digested_to) } else { last(elided) };
    let left = room.budget.saturating_sub(lines.tokens(digested, elided, 0));
    let told_max = lines.told_max().min(left).max(MARK_TOKENS);
    let is_told = digested == lines.digested && lines.told <= told_max;
    let digest = digest_of_blocks(before.digest.clone(), &blocks[lines.digested..digested]);
    let told = if is_told { before.told.clone() } else { tell(&digest, told_max) };
    let new = (!is_told).then_some(NewDigest { after: before.digested_to, tokens_max: told_max });
    Ok((Cut { digested_to, elided_to, result_max, digest, told }, new))
}

/// How many blocks are digested, and how many are that or have lines for results. The rest is whole.
type Depth = (usize, usize);

/// A branch and how it was cut so far.
struct Lines<'a> {
    blocks: &'a [Block<'a>],
    room: Room,
    digested: usize,
    elided: usize,
    /// How long the digest is.
    told: u64,
    /// For the request of a turn that was cut in the middle, until the next block is digested.
    kept: u64,
    /// What the blocks up to each one cost.
    whole: Vec<u64>,
    lined: Vec<u64>,
    floor: Vec<u64>,
}

impl<'a> Lines<'a> {
    fn new(blocks: &'a [Block<'a>], before: &Cut, room: Room, result_max: u64) -> Self {
        let costs: Vec<Cost> = blocks.iter().map(|block| block.cost(result_max)).collect();
        let digested = blocks.partition_point(|block| block.first() <= before.digested_to);
        let kept = kept(blocks, before.digested_to).map_or(0, |at| costs[at].lined - costs[at].floor);
        Self {
            blocks,
            room,
            digested,
            elided: blocks.partition_point(|block| block.first() <= before.elided_to).max(digested),
            told: tokens::count(&before.told) as u64,
            kept,
            whole: sums(costs.iter().map(|cost| cost.whole)),
            lined: sums(costs.iter().map(|cost| cost.lined)),
            floor: sums(costs.iter().map(|cost| cost.floor)),
        }
    }

    fn tokens(&self, digested: usize, elided: usize, told: u64) -> u64 {
        let kept = if digested == self.digested { self.kept } else { 0 };
        let lined = self.lined[elided] - self.lined[digested];
        let whole = self.whole[self.blocks.len()] - self.whole[elided];
        self.room.fixed() + told + kept + self.floor[digested] + lined + whole
    }

    /// What must be in.
    fn least(&self) -> u64 {
        self.room.fixed() + self.floor[self.blocks.len()]
    }

    fn percent(&self, percent: u64) -> u64 {
        self.room.budget.saturating_sub(self.least()) * percent / 100
    }

    fn told_max(&self) -> u64 {
        self.percent(DIGEST_PERCENT).clamp(MARK_TOKENS, DIGEST_TOKENS_MAX)
    }

    /// How deep it is cut now: so that there is much room again, or else as deep as it must be.
    fn step(&self) -> Option<Depth> {
        let goal = (self.least() + self.percent(FILLED_PERCENT)).min(self.room.budget);
        let told_max = self.told_max();
        let told = |digested| if digested == self.digested { self.told.min(told_max) } else { told_max };
        let is_enough = |(digested, elided): &Depth| self.tokens(*digested, *elided, told(*digested)) <= goal;
        let mark = |digested| if digested > 0 { MARK_TOKENS } else { 0 };
        let fits = |(digested, elided): &Depth| self.tokens(*digested, *elided, mark(*digested)) <= self.room.budget;
        let count = self.blocks.len();
        let newest = count.saturating_sub(1).max(self.digested);
        let deepest = [(newest, newest.max(self.elided)), (newest, count), (count, count)];
        self.depths(newest).into_iter().find(is_enough).or_else(|| deepest.into_iter().find(fits))
    }

    /// Results first, then turns, the oldest of each first; then the same of the turn under way; what is new only where nothing else helps.
    fn depths(&self, newest: usize) -> Vec<Depth> {
        let current = self.blocks.iter().position(|block| block.is_current).unwrap_or(self.blocks.len());
        let latest = self.recent(self.blocks.len(), |_| true).clamp(current.min(newest), newest);
        let recent = self.recent(current, |at| self.blocks[at].begins_turn);
        let ends_turn = |to: &usize| self.blocks.get(*to).is_none_or(|next| next.begins_turn);
        let mut depths: Vec<Depth> = (self.elided + 1..=recent).map(|elided| (self.digested, elided)).collect();
        let turns = (self.digested + 1..=current).filter(ends_turn);
        depths.extend(turns.map(|digested| (digested, recent.max(self.elided).max(digested))));
        let (mut digested, mut elided) = (self.digested.max(current), self.elided.max(current));
        for end in [latest, newest] {
            depths.extend((elided + 1..=end).map(|elided| (digested, elided)));
            elided = elided.max(end);
            depths.extend((digested + 1..=end).map(|digested| (digested, elided)));
            digested = digested.max(end);
        }
        depths
    }

    /// The first of the blocks before `end` that stay whole; it is one that `begins`.
    fn recent(&self, end: usize, begins: impl Fn(usize) -> bool) -> usize {
        let most = self.percent(RECENT_PERCENT);
        let fits = |at: &usize| self.whole[end] - self.whole[*at] <= most;
        (0..end).rev().take_while(fits).filter(|at| begins(*at)).last().unwrap_or(end)
    }

    fn too_small(&self) -> TooSmall {
        let entries = self.blocks.iter().flat_map(|block| block.entries.iter().map(move |entry| (block, entry)));
        let must = entries.filter_map(|(block, entry)| match () {
            () if block.is_last_request => Some((entry, Reason::LastRequest)),
            () if entry.is_pinned => Some((entry, Reason::Pinned)),
            () => None,
        });
        let mut largest: Vec<_> = must.map(|(entry, why)| (entry.message.id.clone(), entry.tokens, why)).collect();
        largest.sort_by_key(|(_, tokens, _)| std::cmp::Reverse(*tokens));
        TooSmall { needed: self.least() + MARK_TOKENS, room: self.room, largest }
    }
}

/// What all before each one come to, and at the end what all come to.
fn sums(costs: impl Iterator<Item = u64>) -> Vec<u64> {
    let mut sums = vec![0];
    let mut sum = 0;
    for cost in costs {
        sum += cost;
        sums.push(sum);
    }
    sums
}
