//! A context made to fit into a budget of tokens: a view. Nothing stored changes.
//!
//! CRITICAL keys go in as they are; by type no other code sees them. What is left of the budget is divided among the classes and, within a
//! class, among its keys, so that short ones stay whole; each key is then shortened on its own ([`shorten`]). Counted once more at the
//! end, and shrunk until it fits. The same input gives the same bytes.

mod choose;
mod cut;
mod entity;
mod shorten;
mod unit;

use std::collections::HashMap;
use std::fmt::Write as _;

use serde_json::{Map, Value};

use crate::api::{Class, Strategy, Weights};
use crate::classify::Verdict;
use crate::survive::request_of;
use crate::tokens::{Counts, count, spread};
use shorten::Pieces;

/// How often a view is made until it fits.
const ROUNDS_MAX: usize = 64;
/// Of the budget, 1 part in so many is for the newest errors, of so many keys, in which each may take a little more than was counted.
const ERRORS_SHARE: usize = 2;
const ERRORS_LOOKED_FOR: usize = 64;
const ERROR_SLACK: usize = 8;
/// A key with fewer tokens has no lines to choose from.
const WORTH_CUTTING: usize = 40;
/// What is left over is given out if it is at least such a part of what there was, 1 in so many.
const LEFT_OVER_SHARE: usize = 32;
/// So many keys are tried with what is left over.
const LEFT_OVER_TRIES: usize = 16;
/// What is left over is too little for a part of a key below that.
const LEFT_OVER_MIN: usize = 8;

/// What a view is made from.
#[derive(Debug)]
pub struct Request<'a> {
    pub context: &'a Map<String, Value>,
    /// One for each key, in order.
    pub verdicts: &'a [(&'a str, Verdict)],
    pub budget: Budget,
    pub weights: Weights,
    /// Whether EPHEMERAL keys are left out whatever the budget.
    pub drops_ephemeral: bool,
    pub strategy: Strategy,
    pub goal: Option<&'a str>,
}

#[derive(Debug, Clone, Copy)]
pub enum Budget {
    Tokens(usize),
    /// So many times smaller.
    Ratio(f64),
}

/// What became of a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fate {
    Kept,
    Shortened { before: usize, after: usize },
    Dropped { tokens: usize },
}

#[derive(Debug, Clone)]
pub struct Compressed {
    pub context: Map<String, Value>,
    /// What was allowed.
    pub tokens_max: usize,
    pub tokens_before: usize,
    pub tokens_after: usize,
    /// By key, in order; CRITICAL ones are kept.
    pub fates: Vec<(String, Class, Fate)>,
}

impl Compressed {
    /// The same view with other values for keys that are shortened in it.
    pub(crate) fn with(mut self, values: Vec<(String, Value)>) -> Self {
        self.context.extend(values);
        let (text, ends) = write(&self.context);
        let seen = spread(&text, &ends);
        self.tokens_after = seen.iter().sum();
        let seen: HashMap<&str, usize> = self.context.keys().map(String::as_str).zip(seen).collect();
        for (key, _, fate) in &mut self.fates {
            if let Fate::Shortened { after, .. } = fate {
                *after = seen.get(key.as_str()).copied().unwrap_or(0);
            }
        }
        self
    }
}

/// A key that may be shortened or dropped: there is none for a CRITICAL one.
struct Loose<'a> {
    key: &'a str,
    value: &'a Value,
    class: Class,
    /// As a member: key, colon, value and comma.
    tokens: usize,
    /// Of these, what is not the value.
    key_tokens: usize,
    /// What the user's last request in it takes, as a member.
    reserved: usize,
    allotted: usize,
    /// The value in pieces, once it must be shortened.
    pieces: Option<Pieces>,
}

impl Loose<'_> {
    fn pieces(&mut self, request: &Request<'_>) -> &Pieces {
        let cut = || Pieces::cut(self.value, request.strategy != Strategy::Structural, request.goal);
        self.pieces.get_or_insert_with(cut)
    }

    /// What of the value goes into `room`, and how much that takes as a member.
    fn fit(&mut self, request: &Request<'_>, room: usize) -> Option<(Value, usize)> {
        if room >= self.tokens {
            return Some((self.value.clone(), self.tokens));
        }
        let key_tokens = self.key_tokens;
        let room = room.checked_sub(key_tokens).filter(|room| *room > 0)?;
        self.pieces(request).within(room).map(|(value, tokens)| (value, tokens + key_tokens))
    }
}

pub fn compress(request: &Request<'_>, counts: &Counts) -> Compressed {
    let (text, ends) = write(request.context);
    let members = counts.spread(&text, &ends);
    let tokens_before = members.iter().sum();
    let tokens_max = match request.budget {
        Budget::Tokens(tokens) => tokens,
        Budget::Ratio(ratio) => (tokens_before as f64 / ratio).max(1.0) as usize,
    };
    let (mut fixed, mut loose) = (1, Vec::new());
    let verdicts = request.verdicts.iter().map(|(_, verdict)| verdict.class);
    for (((key, value), class), tokens) in request.context.iter().zip(verdicts).zip(members.iter().copied()) {
        match class {
            Class::Critical => fixed += tokens,
            class => {
                let key_tokens = count(&format!(",{}:", Value::from(key.as_str())));
                loose.push(Loose { key, value, class, tokens, key_tokens, reserved: 0, allotted: 0, pieces: None });
            }
        }
    }
    let leaves_out = request.drops_ephemeral && loose.iter().any(|key| key.class == Class::Ephemeral);
    let (context, tokens_after) = match tokens_before <= tokens_max && !leaves_out {
        true => (request.context.clone(), tokens_before),
        false => View { request, loose, tokens_max }.fit(tokens_max.saturating_sub(fixed)),
    };
    let fates = fates(request, &members, &context);
    Compressed { context, tokens_max, tokens_before, tokens_after, fates }
}

/// The most telling lines of a text, in at most so many tokens; `None` if not even one fits.
pub fn extract(text: &str, tokens_max: usize) -> Option<String> {
    match Pieces::cut(&Value::from(text), true, None).within(tokens_max)?.0 {
        Value::String(best) => Some(best),
        _ => None,
    }
}

/// A context as compact JSON, and where each of its members ends in it.
fn write(context: &Map<String, Value>) -> (String, Vec<usize>) {
    let (mut text, mut ends) = ("{".to_owned(), Vec::with_capacity(context.len()));
    for (at, (key, value)) in context.iter().enumerate() {
        let separator = if at + 1 == context.len() { "}" } else { "," };
        let _ = write!(text, "{}:{value}{separator}", Value::from(key.as_str()));
        ends.push(text.len());
    }
    if context.is_empty() {
        text.push('}');
        ends.push(text.len());
    }
    (text, ends)
}

/// What became of every key. The tokens of a value are those it has in its context.
fn fates(request: &Request<'_>, members: &[usize], view: &Map<String, Value>) -> Vec<(String, Class, Fate)> {
    let (text, ends) = write(view);
    let seen = spread(&text, &ends);
    let seen: HashMap<&str, usize> = view.keys().map(String::as_str).zip(seen).collect();
    let mut fates = Vec::with_capacity(request.context.len());
    for (((key, value), (_, verdict)), before) in request.context.iter().zip(request.verdicts).zip(members) {
        let fate = match view.get(key) {
            Some(shown) if shown == value => Fate::Kept,
            Some(_) => Fate::Shortened { before: *before, after: seen.get(key.as_str()).copied().unwrap_or(0) },
            None => Fate::Dropped { tokens: *before },
        };
        fates.push((key.clone(), verdict.class, fate));
    }
    fates
}

fn count_map(map: &Map<String, Value>) -> usize {
    count(&write(map).0)
}

struct View<'a> {
    request: &'a Request<'a>,
    loose: Vec<Loose<'a>>,
    tokens_max: usize,
}

impl View<'_> {
    /// Spends `spare` tokens on what is not critical, measures, and mends what the parts did not add up to. With nothing to spare
    /// what is critical is left, whatever it takes.
    fn fit(mut self, mut spare: usize) -> (Map<String, Value>, usize) {
        self.reserve();
        let budget = self.tokens_max;
        let is_wanted = |key: &&Loose<'_>| !(self.request.drops_ephemeral && key.class == Class::Ephemeral);
        let needed: usize = self.loose.iter().filter(is_wanted).map(|key| key.tokens).sum();
        let mut good: Option<(Map<String, Value>, usize)> = None;
        for _ in 0..ROUNDS_MAX {
            let context = self.spend(spare);
            let tokens = count_map(&context);
            if tokens > budget && spare > 0 {
                if good.is_some() {
                    break;
                }
                spare = spare.saturating_sub((tokens - budget).max(spare / 8 + 1));
                continue;
            }
            let left = budget.saturating_sub(tokens);
            // What is left over is given out again, as long as that shows more.
            let is_more = good.as_ref().is_none_or(|(_, before)| *before < tokens);
            if is_more {
                good = Some((context, tokens));
            }
            if !is_more || spare == 0 || spare >= needed || left * LEFT_OVER_SHARE < budget {
                break;
            }
            spare += left;
        }
        good.unwrap_or_else(|| {
            let context = self.spend(0);
            let tokens = count_map(&context);
            (context, tokens)
        })
    }

    /// Finds out what the user's last requests take. One in what is EPHEMERAL counts where there is no other.
    fn reserve(&mut self) {
        let asks = |key: &Loose<'_>, is_ephemeral| {
            (key.class == Class::Ephemeral) == is_ephemeral && request_of(key.value).is_some()
        };
        let is_ephemeral = !self.loose.iter().any(|key| asks(key, false));
        if is_ephemeral && self.request.drops_ephemeral {
            return;
        }
        for key in self.loose.iter_mut().filter(|key| asks(key, is_ephemeral)) {
            let tokens = key.pieces(self.request).request_tokens();
            key.reserved = if tokens == 0 { 0 } else { (tokens + key.key_tokens).min(key.tokens) };
            if key.reserved == key.tokens {
                key.pieces = None;
            }
        }
    }

    /// Gives the newest errors what they take, in keys that can hardly be whole: a class that is shortened first is where they stand.
    fn allot_errors(&mut self, mut room: usize) -> usize {
        let (share, given) = (room / self.loose.len().max(1), room);
        let request = self.request;
        let is_shortened = |key: &&mut Loose<'_>| {
            let is_out = request.drops_ephemeral && key.class == Class::Ephemeral;
            key.tokens > share.max(WORTH_CUTTING) && !is_out
        };
        for key in self.loose.iter_mut().rev().filter(is_shortened).take(ERRORS_LOOKED_FOR) {
            let error = match key.pieces(request).error_tokens() {
                0 => continue,
                tokens => (tokens + key.key_tokens + ERROR_SLACK).min(key.tokens - key.allotted),
            };
            if error <= room {
                key.allotted += error;
                room -= error;
            }
        }
        given - room
    }

    /// The view with about `spare` tokens of what is not critical.
    fn spend(&mut self, spare: usize) -> Map<String, Value> {
        self.allot(spare);
        let request = self.request;
        let mut shown: Vec<Option<(Value, usize)>> = Vec::with_capacity(self.loose.len());
        shown.extend(self.loose.iter_mut().map(|key| key.fit(request, key.allotted)));
        let spent: usize = shown.iter().flatten().map(|(_, tokens)| tokens).sum();
        let left = spare.saturating_sub(spent);
        if left * LEFT_OVER_SHARE >= spare {
            self.give_left_over(left, &mut shown);
        }
        let mut loose = self.loose.iter().zip(shown).peekable();
        let members =
            request.context.iter().filter_map(|(key, value)| match loose.next_if(|(loose, _)| loose.key == key) {
                None => Some((key.clone(), value.clone())),
                Some((_, shown)) => Some((key.clone(), shown?.0)),
            });
        members.collect()
    }

    /// Gives what shares were too small to use, class by class: to as many keys of which nothing is shown as have room as a whole, the newer
    /// first, then to parts of those, and then to more of what is shown in part.
    fn give_left_over(&mut self, mut left: usize, shown: &mut [Option<(Value, usize)>]) {
        let class = |at: usize| self.loose[at].class;
        let mut out: Vec<usize> = (0..shown.len()).rev().collect();
        out.retain(|at| !(self.request.drops_ephemeral && class(*at) == Class::Ephemeral));
        out.sort_by_key(|at| (class(*at), shown[*at].is_some()));
        let classes: Vec<Vec<usize>> =
            out.chunk_by(|one, other| class(*one) == class(*other)).map(<[_]>::to_vec).collect();
        let mut tries = LEFT_OVER_TRIES;
        for of_class in classes {
            for at in &of_class {
                if shown[*at].is_none() && self.loose[*at].tokens <= left {
                    left -= self.loose[*at].tokens;
                    shown[*at] = self.loose[*at].fit(self.request, usize::MAX);
                }
            }
            for at in of_class {
                let before = shown[at].as_ref().map_or(0, |(_, tokens)| *tokens);
                if left < LEFT_OVER_MIN || tries == 0 || before == self.loose[at].tokens {
                    continue;
                }
                tries -= 1;
                let more = self.loose[at].fit(self.request, before + left);
                if let Some((value, tokens)) = more.filter(|(_, tokens)| *tokens > before) {
                    left -= (tokens - before).min(left);
                    shown[at] = Some((value, tokens));
                }
            }
        }
    }

    /// Gives what the user asked for last what it takes, of several in a class the newest first, and divides the rest of `spare` among the classes, and each part among the
    /// class's keys.
    fn allot(&mut self, mut spare: usize) {
        let mut asked: Vec<&mut Loose<'_>> = self.loose.iter_mut().rev().collect();
        asked.sort_by_key(|key| key.class);
        let mut is_last = true;
        for key in asked {
            // What was asked last is whole whatever the budget, like what is critical.
            let is_in = key.reserved <= spare || std::mem::take(&mut is_last) && key.reserved > 0;
            key.allotted = if is_in { key.reserved } else { 0 };
            is_last &= key.reserved == 0;
            spare = spare.saturating_sub(key.allotted);
        }
        spare -= self.allot_errors(spare / ERRORS_SHARE);
        let weights = self.request.weights;
        let wanted = |key: &Loose<'_>| key.tokens - key.allotted;
        let need = |class: Class| self.loose.iter().filter(|key| key.class == class).map(wanted).sum::<usize>();
        let (important, useful, ephemeral) = (need(Class::Important), need(Class::Useful), need(Class::Ephemeral));
        let sum = weights.important + weights.useful + weights.ephemeral;
        let share = |weight: f64| (spare as f64 * weight / sum) as usize;
        // EPHEMERAL gives up all but a sixteenth, then USEFUL a half, before a class of more worth gives up anything.
        let least = share(weights.ephemeral).min(ephemeral / 16);
        let ephemeral = match self.request.drops_ephemeral {
            true => 0,
            false => spare.saturating_sub(important + useful).max(least).min(ephemeral),
        };
        let least = share(weights.useful).min(useful / 2);
        let left = spare.saturating_sub(ephemeral);
        let useful = left.saturating_sub(important).max(least).min(useful);
        self.divide(Class::Ephemeral, ephemeral);
        self.divide(Class::Useful, useful);
        self.divide(Class::Important, left.saturating_sub(useful));
    }

    /// Gives each key of a class the same, and what short ones do not need to the long ones.
    fn divide(&mut self, class: Class, mut room: usize) {
        let mut keys: Vec<&mut Loose<'_>> = self.loose.iter_mut().filter(|key| key.class == class).collect();
        keys.sort_by_key(|key| key.tokens - key.allotted);
        let mut left = keys.len();
        for key in keys {
            let more = (key.tokens - key.allotted).min(room / left);
            key.allotted += more;
            room -= more;
            left -= 1;
        }
    }
}
