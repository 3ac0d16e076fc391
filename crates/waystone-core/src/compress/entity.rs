//! What a piece of text is about: the paths, identifiers, numbers and rare words in it, each with its worth.
//!
//! Worth is learned from real agent runs: what an agent uses again later are above all codes and names with digits, dates, file names and
//! mixed-case identifiers; bare numbers hardly ever.

use std::collections::HashMap;
use std::sync::LazyLock;

use regex::Regex;
use serde_json::Value;

use crate::survive::Speaker;

pub(super) type EntityId = usize;

static ENTITY: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r"[\p{L}\p{N}_](?:[\p{L}\p{N}_./-]*[\p{L}\p{N}_])?").expect("the pattern is a constant")
});

/// Longer ones are noise: base64, hashes of hashes.
const LENGTH_MAX: usize = 120;

#[derive(Debug)]
struct Entity {
    worth: f32,
    /// Where it was met last, and where the agent or the user last said it, as a share of the whole.
    last: f32,
    said: Option<f32>,
    /// In how many places it was met.
    places: u32,
    last_place: usize,
    /// In which text it was met last.
    last_text: usize,
}

/// Every entity that was met.
#[derive(Debug, Default)]
pub(super) struct Entities {
    ids: HashMap<Box<str>, EntityId>,
    all: Vec<Entity>,
    /// How many texts were read.
    texts: usize,
}

/// Where a piece of text stands.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place<'a> {
    /// Which item of an array, or which line.
    pub(super) number: usize,
    /// From 0, the oldest, to 1.
    pub(super) recency: f32,
    /// The agent or the user; nobody where a tool printed it.
    pub(super) speaker: Option<Speaker>,
    /// What the user asked for last, if it is in the value, and all that it stands in.
    pub(super) asked: &'a [&'a Value],
    /// In that.
    pub(super) is_request: bool,
}

impl Entities {
    /// The entities of `text`, each once.
    pub(super) fn read(&mut self, text: &str, place: Place<'_>) -> Vec<EntityId> {
        let mut found = Vec::new();
        self.texts += 1;
        for whole in ENTITY.find_iter(text) {
            self.add(whole.as_str(), place, &mut found);
            if whole.as_str().contains('/') {
                whole.as_str().split('/').for_each(|part| self.add(part, place, &mut found));
            }
        }
        found
    }

    fn add(&mut self, name: &str, place: Place<'_>, found: &mut Vec<EntityId>) {
        let worth = worth(name);
        if worth == 0.0 {
            return;
        }
        let id = match self.ids.get(name) {
            Some(id) => *id,
            None => {
                let entity = Entity { worth, last: 0.0, said: None, places: 0, last_place: usize::MAX, last_text: 0 };
                self.all.push(entity);
                self.ids.insert(name.into(), self.all.len() - 1);
                self.all.len() - 1
            }
        };
        let entity = &mut self.all[id];
        entity.last = place.recency;
        if place.speaker.is_some() {
            entity.said = Some(place.recency);
        }
        if entity.last_place != place.number {
            entity.last_place = place.number;
            entity.places += 1;
        }
        if std::mem::replace(&mut entity.last_text, self.texts) != self.texts {
            found.push(id);
        }
    }

    /// What each is worth in the end. What `goal` names counts five times.
    pub(super) fn worths(&self, goal: Option<&str>) -> Vec<f32> {
        let mut worths: Vec<f32> = self.all.iter().map(Entity::weigh).collect();
        for named in goal.into_iter().flat_map(|goal| ENTITY.find_iter(goal)) {
            if let Some(id) = self.ids.get(named.as_str()) {
                worths[*id] *= 5.0;
            }
        }
        worths
    }
}

impl Entity {
    fn weigh(&self) -> f32 {
        let said = self.said.map_or(1.0, |recency| 1.5 * (1.0 + recency));
        let spread = 1.0 + 0.25 * (self.places as f32).ln();
        self.worth * said * spread * (0.7 + 0.3 * self.last)
    }
}

/// What a name is worth by its shape alone.
fn worth(name: &str) -> f32 {
    if name.len() > LENGTH_MAX {
        return 0.0;
    }
    let (mut digits, mut lower, mut upper, mut other) = (0, 0, 0, 0);
    let (mut has_slash, mut has_underscore, mut has_hump, mut dot) = (false, false, false, None);
    let mut before = ' ';
    for (at, c) in name.char_indices() {
        match c {
            '0'..='9' => digits += 1,
            '/' => has_slash = true,
            '_' => has_underscore = true,
            '.' => dot = Some(at),
            c if c.is_uppercase() => {
                upper += 1;
                has_hump |= before.is_lowercase();
            }
            c if c.is_alphabetic() => lower += 1,
            _ => other += 1,
        }
        before = c;
    }
    let letters = lower + upper;
    let is_file = dot.is_some_and(|dot| (2..=5).contains(&(name.len() - dot)) && letters > 0);
    match () {
        () if letters == 0 && is_date(name) => 3.0,
        () if letters == 0 && digits == name.len() => {
            if digits <= 2 {
                0.05
            } else {
                0.3
            }
        }
        () if letters == 0 => 0.2,
        () if has_slash => 1.0,
        () if is_file => 3.0,
        () if has_underscore && digits > 0 => 3.0,
        () if lower == 0 && digits > 0 && other == 0 => 3.0,
        () if has_hump => 2.5,
        () if has_underscore => 1.0,
        () if digits > 0 => 0.3,
        () if name.len() >= 4 => 0.1,
        () => 0.0,
    }
}

/// As 2024-05-21.
fn is_date(name: &str) -> bool {
    let bytes = name.as_bytes();
    bytes.len() == 10
        && bytes.iter().enumerate().all(|(at, b)| if at == 4 || at == 7 { *b == b'-' } else { b.is_ascii_digit() })
}
