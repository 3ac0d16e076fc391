//! Which units stay: first those with an anchor, then the newest as they are, then by what they add per token, and with
//! what room is left the newest of the rest.
//!
//! An entity counts once: what is already in view adds nothing. Gains only fall as units are chosen, so a queue that looks again at
//! the first before taking it finds the same as trying all of them each time.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use super::unit::{Cut, Unit};
use crate::survive::Anchor;

/// Of the budget, for the newest items, whole.
const NEWEST_SHARE: f32 = 0.3;
/// Of the budget, for units with an anchor.
const ANCHOR_SHARE: f32 = 0.2;
/// What a mark for what is left out costs, half on each side of a unit.
const HALF_MARK_TOKENS: f32 = 1.0;

/// The units that stay.
#[derive(Debug)]
pub(super) struct Choice {
    is_chosen: Vec<bool>,
}

impl Choice {
    pub(super) fn has(&self, unit: usize) -> bool {
        self.is_chosen[unit]
    }
}

struct Chooser<'a> {
    cut: &'a Cut,
    worths: &'a [f32],
    is_open: Vec<bool>,
    is_covered: Vec<bool>,
    choice: Choice,
    spent: f32,
}

/// What meets a condition, and nothing else; `None` if nothing does.
pub(super) fn only(cut: &Cut, is_wanted: impl Fn(&Unit) -> bool) -> Option<Choice> {
    let is_chosen: Vec<bool> = cut.units.iter().map(is_wanted).collect();
    is_chosen.contains(&true).then_some(Choice { is_chosen })
}

/// As much as about `tokens_max` tokens hold. What the user asked for last is chosen in any case if `request_tokens` are given: so many it
/// takes alone.
pub(super) fn choose(cut: &Cut, worths: &[f32], tokens_max: usize, request_tokens: Option<usize>) -> Choice {
    let choice = Choice { is_chosen: vec![false; cut.units.len()] };
    let mut chooser = Chooser {
        cut,
        worths,
        is_open: vec![false; cut.frames.len()],
        is_covered: vec![false; worths.len()],
        choice,
        spent: 0.0,
    };
    let budget = tokens_max as f32;
    chooser.take_request(budget, request_tokens);
    chooser.take_anchors(budget * ANCHOR_SHARE, budget);
    chooser.take_newest(budget * NEWEST_SHARE);
    chooser.take_best(budget);
    chooser.take_rest(budget);
    chooser.choice
}

/// A unit and what it adds per token, as far as was last looked.
#[derive(PartialEq)]
struct Candidate {
    rate: f32,
    unit: usize,
}

impl Eq for Candidate {}

impl PartialOrd for Candidate {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Candidate {
    fn cmp(&self, other: &Self) -> Ordering {
        self.rate.total_cmp(&other.rate).then(other.unit.cmp(&self.unit))
    }
}

impl Chooser<'_> {
    /// The user's last request, whole if it is known what that takes, else as much of it as fits. Its parts one by one are estimated at
    /// more.
    fn take_request(&mut self, budget: f32, whole: Option<usize>) {
        for unit in 0..self.cut.units.len() {
            if self.cut.units[unit].is_request && (whole.is_some() || self.spent + self.cost(unit) <= budget) {
                self.take(unit);
            }
        }
        if let Some(tokens) = whole {
            self.spent = self.spent.min(tokens as f32);
        }
    }

    /// Whole items from the newest on, up to one that does not fit or is mostly JSON.
    fn take_newest(&mut self, share: f32) {
        let limit = self.spent + share;
        let mut end = self.cut.units.len();
        while end > 0 {
            let item = self.cut.units[end - 1].item;
            let start = self.cut.units[..end].iter().rposition(|unit| unit.item != item).map_or(0, |at| at + 1);
            let is_new = |unit: &usize| !self.choice.has(*unit);
            let new: Vec<usize> = (start..end).filter(is_new).collect();
            let cost: f32 = new.iter().map(|unit| self.cost(*unit)).sum();
            if self.cut.dense.contains(&item) || self.spent + cost > limit {
                return;
            }
            new.into_iter().for_each(|unit| self.take(unit));
            end = start;
        }
    }

    /// What binds, then the newest error, what is to do, and which files were changed, of each the newest first. The first that fits
    /// is always taken.
    fn take_anchors(&mut self, share: f32, budget: f32) {
        let limit = (self.spent + share).min(budget);
        for kind in [Anchor::Binding, Anchor::Error, Anchor::Task, Anchor::File] {
            let mut is_first = true;
            for unit in (0..self.cut.units.len()).rev() {
                let found = &self.cut.units[unit];
                if found.anchor != Some(kind) || found.is_repeat || self.choice.has(unit) {
                    continue;
                }
                let limit = if is_first { budget } else { limit };
                if self.spent + self.cost(unit) <= limit {
                    self.take(unit);
                    is_first = false;
                }
            }
        }
    }

    fn take_best(&mut self, budget: f32) {
        let mut queue: BinaryHeap<Candidate> = (0..self.cut.units.len())
            .filter(|unit| self.is_candidate(*unit))
            .map(|unit| Candidate { rate: self.rate(unit), unit })
            .collect();
        while let Some(Candidate { unit, rate }) = queue.pop() {
            if self.choice.has(unit) || rate <= 0.0 || self.spent + self.cost(unit) > budget {
                continue;
            }
            let now = self.rate(unit);
            if now < rate && queue.peek().is_some_and(|next| next.rate > now) {
                queue.push(Candidate { rate: now, unit });
                continue;
            }
            self.take(unit);
            // What stands beside it has become cheaper.
            for beside in [unit.wrapping_sub(1), unit + 1] {
                if beside < self.cut.units.len() && self.is_candidate(beside) {
                    queue.push(Candidate { rate: self.rate(beside), unit: beside });
                }
            }
        }
    }

    fn is_candidate(&self, unit: usize) -> bool {
        let found = &self.cut.units[unit];
        !found.is_repeat && !found.is_bare && !self.choice.has(unit)
    }

    /// What room is left goes to what says least, the newest first: short lines, and lines about what is in view already.
    fn take_rest(&mut self, budget: f32) {
        for unit in (0..self.cut.units.len()).rev() {
            let is_wanted = !self.cut.units[unit].is_repeat && !self.choice.has(unit);
            if is_wanted && self.spent + self.cost(unit) <= budget {
                self.take(unit);
            }
        }
    }

    fn take(&mut self, unit: usize) {
        self.spent += self.cost(unit);
        self.choice.is_chosen[unit] = true;
        let mut frame = Some(self.cut.units[unit].parent);
        while let Some(at) = frame.filter(|at| !std::mem::replace(&mut self.is_open[*at], true)) {
            frame = self.cut.frames[at].parent;
        }
        // A bare name does not say what it is about: another line may.
        if !self.cut.units[unit].is_bare {
            for entity in &self.cut.units[unit].entities {
                self.is_covered[*entity] = true;
            }
        }
    }

    /// What the view grows by with this unit.
    fn cost(&self, unit: usize) -> f32 {
        let mut cost = self.cut.units[unit].tokens as f32;
        let mut frame = Some(self.cut.units[unit].parent);
        while let Some(at) = frame.filter(|at| !self.is_open[*at]) {
            cost += self.cut.frames[at].tokens as f32;
            frame = self.cut.frames[at].parent;
        }
        let is_gap = |beside: usize| {
            let is_same = self.cut.units.get(beside).is_some_and(|other| other.parent == self.cut.units[unit].parent);
            is_same && !self.choice.has(beside)
        };
        cost + [unit.wrapping_sub(1), unit + 1].into_iter().filter(|at| is_gap(*at)).count() as f32 * HALF_MARK_TOKENS
    }

    fn rate(&self, unit: usize) -> f32 {
        let entities = self.cut.units[unit].entities.iter();
        let worth: f32 = entities.filter(|entity| !self.is_covered[**entity]).map(|entity| self.worths[*entity]).sum();
        worth * self.cut.units[unit].factor / self.cost(unit)
    }
}
