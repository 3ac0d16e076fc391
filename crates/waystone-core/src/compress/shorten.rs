//! One value made smaller: cut into units, the best of them chosen, put together again in their order and shape.
//!
//! Units are original lines, members and items, never rewritten ones. What is left out is marked where it was with a short count (`⋯14`).

use std::collections::HashSet;

use serde_json::{Map, Value};

use super::choose::{Choice, choose};
use super::cut::{WORDS_MIN, cut, word_count};
use super::entity::{Entities, EntityId, Place};
use crate::survive::{Anchor, anchor, last_request, speaker};
use crate::tokens::count;

/// A value up to this length as JSON is one unit.
const WHOLE_MAX: usize = 120;
/// How often the budget is tried to be filled.
const TRIES: usize = 4;
/// A member of an object that is this short stands for the object: `role`, `id`, `path`.
const LABEL_MAX: usize = 48;
/// No more of a value is looked at, from its end: what is older is left out.
const TEXT_BYTES_MAX: usize = 4 * 1024 * 1024;

/// A piece that is kept or left out whole.
#[derive(Debug)]
pub(super) struct Unit {
    /// As it stands in the view; for what is not text, its JSON.
    text: String,
    pub(super) tokens: usize,
    pub(super) entities: Vec<EntityId>,
    /// What its entities' worth is multiplied by.
    pub(super) factor: f32,
    /// The innermost container it is in.
    pub(super) parent: usize,
    /// A repeat, or too little to say anything.
    pub(super) is_idle: bool,
    pub(super) anchor: Option<Anchor>,
    /// It goes on in the line of the unit before.
    is_joined: bool,
    /// Which item of the value it is in.
    pub(super) item: usize,
}

/// Something that must be there for its units to be: an array, an object, a text.
#[derive(Debug)]
pub(super) struct Frame {
    pub(super) parent: Option<usize>,
    /// Brackets, keys and labels.
    pub(super) tokens: usize,
}

/// The shape of a value.
#[derive(Debug)]
enum Node {
    Whole(usize, Value),
    Text(std::ops::Range<usize>),
    List(Vec<Node>),
    /// Members that are labels have no units of their own.
    Object(Vec<(String, Member)>),
}

#[derive(Debug)]
enum Member {
    Label(Value),
    Node(Node),
}

/// A value cut into units.
#[derive(Debug, Default)]
pub(super) struct Cut {
    pub(super) units: Vec<Unit>,
    pub(super) frames: Vec<Frame>,
    entities: Entities,
    /// Items that are mostly JSON: nothing of them is kept for being new.
    pub(super) dense: HashSet<usize>,
    /// The item that is the user's last request.
    pub(super) request: Option<usize>,
    items: usize,
}

/// A value in pieces, from which it is put together as large as wanted.
#[derive(Debug)]
pub(super) struct Pieces {
    root: Node,
    cut: Cut,
    worths: Vec<f32>,
}

impl Pieces {
    /// `lines` says that texts are cut inside; what `goal` names is worth more.
    pub(super) fn cut(value: &Value, lines: bool, goal: Option<&str>) -> Self {
        let mut cut = Cut::default();
        let root = cut.read(value, lines);
        cut.mark_repeats();
        let worths = cut.entities.worths(goal);
        Self { root, cut, worths }
    }

    /// The most of it that fits into `tokens_max`; `None` if nothing does.
    pub(super) fn within(&self, tokens_max: usize) -> Option<Value> {
        // What units cost in their places is an estimate: it is corrected by what they cost together.
        let (mut best, mut estimate, mut too_much) = (None, tokens_max, usize::MAX);
        let mut tries = 0;
        while best.is_none() || tries < TRIES {
            tries += 1;
            let choice = choose(&self.cut, &self.worths, estimate);
            let shortened = render(&self.root, &self.cut.units, &choice)?;
            let tokens = count(&shortened.to_string());
            if tokens > tokens_max {
                too_much = estimate;
                let excess = (tokens - tokens_max).max(estimate / 32).max(1);
                estimate = estimate.checked_sub(excess)?;
            } else {
                let left = tokens_max - tokens;
                best = Some(shortened);
                if left * 64 < tokens_max {
                    break;
                }
                estimate += left;
            }
            if best.is_some() && estimate >= too_much {
                break;
            }
        }
        best
    }
}

impl Cut {
    fn read(&mut self, value: &Value, lines: bool) -> Node {
        self.frames.push(Frame { parent: None, tokens: 2 });
        match value {
            Value::Array(items) => {
                self.items = items.len();
                self.request = last_request(items);
                let first = first_of_newest(items);
                let mut nodes: Vec<Node> = (0..first).map(|_| Node::List(Vec::new())).collect();
                for (number, item) in items.iter().enumerate().skip(first) {
                    let place =
                        Place { number, recency: (number + 1) as f32 / items.len() as f32, speaker: speaker(item) };
                    nodes.push(self.read_node(item, 0, place, lines));
                }
                Node::List(nodes)
            }
            Value::String(text) => {
                let place = Place { number: 0, recency: 1.0, speaker: None };
                self.read_text(text, 0, place, lines)
            }
            other => {
                self.items = 1;
                let place = Place { number: 0, recency: 1.0, speaker: None };
                self.read_members(other, 0, place, lines)
            }
        }
    }

    fn read_node(&mut self, value: &Value, parent: usize, place: Place, lines: bool) -> Node {
        match value {
            Value::String(text) if text.len() > WHOLE_MAX && lines => {
                let frame = self.open(parent, 1);
                self.read_text(text, frame, place, lines)
            }
            Value::Array(_) | Value::Object(_) if !is_short(value) => self.read_members(value, parent, place, lines),
            _ => {
                let at = self.add(value.to_string(), parent, place, false, 1);
                // `{"role":"user","content":"yes"}` says one word, not four.
                self.units[at].is_idle |= place.speaker.is_some() && longest(value) < WORDS_MIN;
                Node::Whole(at, value.clone())
            }
        }
    }

    fn read_members(&mut self, value: &Value, parent: usize, place: Place, lines: bool) -> Node {
        match value {
            Value::Array(items) => {
                let frame = self.open(parent, 3);
                Node::List(items.iter().map(|item| self.read_node(item, frame, place, lines)).collect())
            }
            Value::Object(map) => {
                let label = |value: &Value| match value {
                    Value::String(text) => text.len() <= LABEL_MAX && !text.contains(char::is_whitespace),
                    Value::Number(_) | Value::Bool(_) => true,
                    _ => false,
                };
                // An object of nothing but labels is a record whose members stand for themselves.
                let has_labels = !map.values().all(label);
                let labels: Map<String, Value> = map
                    .iter()
                    .filter(|(_, value)| has_labels && label(value))
                    .map(|(k, v)| (k.clone(), v.clone()))
                    .collect();
                let frame = self.open(parent, count(&Value::from(labels.clone()).to_string()) + 1);
                let members = map.iter().map(|(key, value)| {
                    let member = match labels.contains_key(key) {
                        true => Member::Label(value.clone()),
                        false => {
                            let inner = self.open(frame, count(key) + 1);
                            Member::Node(self.read_node(value, inner, place, lines))
                        }
                    };
                    (key.clone(), member)
                });
                Node::Object(members.collect())
            }
            scalar => Node::Whole(self.add(scalar.to_string(), parent, place, false, 1), scalar.clone()),
        }
    }

    fn read_text(&mut self, text: &str, parent: usize, place: Place, lines: bool) -> Node {
        let first = self.units.len();
        let start = text.len().saturating_sub(TEXT_BYTES_MAX);
        let start = (start..=text.len()).find(|at| text.is_char_boundary(*at)).unwrap_or(0);
        if !lines {
            self.add(text[start..].to_owned(), parent, place, false, 0);
            return Node::Text(first..self.units.len());
        }
        let (pieces, is_json) = cut(&text[start..]);
        let is_root = self.items == 0;
        let total = pieces.len();
        if is_json {
            self.dense.insert(place.number);
        }
        for (at, piece) in pieces.into_iter().enumerate() {
            let place = match is_root {
                true => Place { number: at, recency: (at + 1) as f32 / total as f32, ..place },
                false => place,
            };
            self.add(piece.text, parent, place, piece.is_joined, 1);
        }
        if is_root {
            self.items = total;
        }
        Node::Text(first..self.units.len())
    }

    fn open(&mut self, parent: usize, tokens: usize) -> usize {
        self.frames.push(Frame { parent: Some(parent), tokens });
        self.frames.len() - 1
    }

    /// `extra` is what stands between it and the next: a line end or a comma.
    fn add(&mut self, text: String, parent: usize, place: Place, is_joined: bool, extra: usize) -> usize {
        let escaped = Value::from(text.as_str()).to_string();
        let anchor = anchor(&text, place.speaker);
        let mut factor = 0.6 + 0.4 * place.recency;
        if place.speaker.is_some() {
            factor *= 1.5;
        }
        if anchor == Some(Anchor::Error) {
            factor *= 1.3;
        }
        self.units.push(Unit {
            tokens: count(&escaped[1..escaped.len() - 1]) + extra,
            entities: self.entities.read(&text, place),
            factor,
            parent,
            is_idle: word_count(&text) < WORDS_MIN,
            anchor,
            is_joined,
            item: place.number,
            text,
        });
        self.units.len() - 1
    }

    /// Of lines that say the same the last copy counts, of errors the last one.
    fn mark_repeats(&mut self) {
        let (mut seen, mut has_error) = (HashSet::new(), false);
        for unit in self.units.iter_mut().rev() {
            unit.anchor =
                unit.anchor.filter(|anchor| *anchor != Anchor::Error || !std::mem::replace(&mut has_error, true));
            let text = unit.text.trim_start_matches(|c: char| c.is_ascii_digit() || c.is_whitespace());
            unit.is_idle |= !seen.insert(text.trim_start_matches([':', '|']).trim().to_owned());
        }
    }
}

/// Items before this one are too old to be looked at.
fn first_of_newest(items: &[Value]) -> usize {
    let mut bytes = 0;
    let too_old = items.iter().rposition(|item| {
        bytes += item.to_string().len();
        bytes > TEXT_BYTES_MAX
    });
    too_old.map_or(0, |at| at + 1)
}

fn is_short(value: &Value) -> bool {
    value.to_string().len() <= WHOLE_MAX
}

/// Up to [`WORDS_MIN`] words of the text in `value` that has most.
fn longest(value: &Value) -> usize {
    match value {
        Value::String(text) => word_count(text),
        Value::Array(items) => items.iter().map(longest).max().unwrap_or(0),
        Value::Object(map) => map.values().map(longest).max().unwrap_or(0),
        _ => 0,
    }
}

fn mark(left_out: usize) -> String {
    format!("⋯{left_out}")
}

fn render(node: &Node, units: &[Unit], choice: &Choice) -> Option<Value> {
    match node {
        Node::Whole(at, value) => choice.has(*at).then(|| value.clone()),
        Node::Text(range) => render_text(range.clone(), units, choice),
        Node::List(nodes) => {
            let (mut items, mut gap) = (Vec::new(), 0);
            for node in nodes {
                match render(node, units, choice) {
                    None => gap += 1,
                    Some(item) => {
                        items.extend((gap > 0).then(|| Value::from(mark(gap))));
                        items.push(item);
                        gap = 0;
                    }
                }
            }
            if items.is_empty() {
                return None;
            }
            items.extend((gap > 0).then(|| Value::from(mark(gap))));
            Some(items.into())
        }
        Node::Object(members) => {
            let (mut map, mut gap, mut is_empty) = (Map::new(), 0, true);
            for (key, member) in members {
                match member {
                    Member::Label(value) => drop(map.insert(key.clone(), value.clone())),
                    Member::Node(node) => match render(node, units, choice) {
                        Some(value) => {
                            is_empty = false;
                            map.insert(key.clone(), value);
                        }
                        None => gap += 1,
                    },
                }
            }
            if gap > 0 {
                // A member may have that name.
                let mut key = "⋯".to_owned();
                while members.iter().any(|(name, _)| *name == key) {
                    key.push('⋯');
                }
                map.insert(key, gap.into());
            }
            (!is_empty).then(|| map.into())
        }
    }
}

fn render_text(range: std::ops::Range<usize>, units: &[Unit], choice: &Choice) -> Option<Value> {
    let (mut text, mut gap, mut is_first) = (String::new(), 0, true);
    let mut is_next = false;
    let separate = |text: &mut String, is_first: &mut bool| {
        if !std::mem::take(is_first) {
            text.push('\n');
        }
    };
    for at in range.clone() {
        if !choice.has(at) {
            gap += 1;
            is_next = false;
            continue;
        }
        if gap > 0 {
            separate(&mut text, &mut is_first);
            text.push_str(&mark(gap));
            gap = 0;
        }
        if !(is_next && units[at].is_joined) {
            separate(&mut text, &mut is_first);
        }
        text.push_str(&units[at].text);
        is_next = true;
    }
    if is_first {
        return None;
    }
    if gap > 0 {
        separate(&mut text, &mut is_first);
        text.push_str(&mark(gap));
    }
    Some(text.into())
}
