//! A value taken apart into units: lines of its texts, members and items, each kept or left out whole.
//!
//! Units are in the order of the value, with what each is about, what it costs and where it stands; [`Node`] is the shape that they are
//! put together in again.

use std::collections::{HashMap, HashSet};
use std::io;
use std::ops::Range;

use serde_json::{Map, Value};

use super::cut::{WORDS_MIN, cut, cut_lines, word_count};
use super::entity::{Entities, EntityId, Place};
use crate::survive::{Anchor, Speaker, Talk, anchor, changed_file, path_to_request};
use crate::tokens::{count, spread};

/// A value up to this length as JSON is one unit.
const WHOLE_MAX: usize = 120;
/// A member of an object that is this short stands for the object: `role`, `id`, `path`.
const LABEL_MAX: usize = 48;
/// So many members stand for an object: what many of them take would be in the way of what they stand for.
const LABELS_MAX: usize = 16;
/// No more of a value is looked at, from its end: what is older is left out, but for the user's last request.
const TEXT_BYTES_MAX: usize = 4 * 1024 * 1024;
/// From so many lines on, which differ only in their numbers, those in the middle are worth less.
const TEMPLATE_MIN: usize = 8;
const FOLDED: f32 = 0.5;

/// A piece that is kept or left out whole.
#[derive(Debug)]
pub(super) struct Unit {
    /// As it stands in the view; for what is not text, its JSON.
    pub(super) text: String,
    pub(super) tokens: usize,
    pub(super) entities: Vec<EntityId>,
    /// What its entities' worth is multiplied by.
    pub(super) factor: f32,
    /// The innermost container it is in.
    pub(super) parent: usize,
    /// The same stands in a later one.
    pub(super) is_repeat: bool,
    /// It has too few words to say anything.
    pub(super) is_bare: bool,
    pub(super) anchor: Option<Anchor>,
    /// The user's last request, or a part of it.
    pub(super) is_request: bool,
    pub(super) form: Form,
    /// Which item of the value it is in.
    pub(super) item: usize,
}

/// How a unit stands in the view.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    /// A line of a text.
    Line,
    /// It goes on in the line of the unit before.
    Joined,
    /// A value of its own, as JSON.
    Json,
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
pub(super) enum Node {
    Whole(usize, Value),
    /// Units, after so much that is too old to be looked at.
    Text(Range<usize>, usize),
    List(Vec<Node>),
    /// Members that are labels have no units of their own.
    Object(Vec<(String, Member)>),
}

#[derive(Debug)]
pub(super) enum Member {
    Label(Value),
    Node(Node),
}

/// A value cut into units.
#[derive(Debug, Default)]
pub(super) struct Cut {
    pub(super) units: Vec<Unit>,
    pub(super) frames: Vec<Frame>,
    pub(super) entities: Entities,
    /// Items that are mostly JSON: nothing of them is kept for being new.
    pub(super) dense: HashSet<usize>,
    items: usize,
    /// How many bytes are still too old to be looked at, as [`bytes_of`] counts them.
    old_bytes: usize,
}

impl Cut {
    /// Takes a value apart. `lines` says that texts are cut inside.
    pub(super) fn read(value: &Value, lines: bool) -> (Self, Node) {
        let mut cut = Self { old_bytes: bytes_of(value).saturating_sub(TEXT_BYTES_MAX), ..Self::default() };
        let asked = path_to_request(value).unwrap_or_default();
        let root = cut.read_root(value, Place { asked: &asked, ..WRITTEN }, lines);
        cut.count_tokens();
        cut.mark_repeats();
        cut.fold_templates();
        (cut, root)
    }

    fn read_root(&mut self, value: &Value, place: Place<'_>, lines: bool) -> Node {
        self.frames.push(Frame { parent: None, tokens: 2 });
        match value {
            Value::Array(items) => {
                self.items = items.len();
                let talk = Talk::of(items);
                let nodes = items.iter().enumerate().map(|(number, item)| {
                    let recency = (number + 1) as f32 / items.len() as f32;
                    self.read_node(item, 0, Place { number, recency, ..place }.within(talk, item), lines)
                });
                Node::List(nodes.collect())
            }
            Value::String(text) => self.read_text(text, 0, place, lines),
            other => {
                self.items = 1;
                self.read_members(other, 0, place, lines)
            }
        }
    }

    fn read_node(&mut self, value: &Value, parent: usize, mut place: Place<'_>, lines: bool) -> Node {
        let has_request = place.has_request(value);
        if self.old_bytes > 0 && !has_request {
            let bytes = bytes_of(value);
            if bytes <= self.old_bytes {
                self.old_bytes -= bytes;
                return Node::List(Vec::new());
            }
        }
        match value {
            Value::String(text) if text.len() > WHOLE_MAX && lines => {
                let frame = self.open(parent, 1);
                self.read_text(text, frame, place, lines)
            }
            Value::Array(_) | Value::Object(_) if !is_short(value) => self.read_members(value, parent, place, lines),
            _ => {
                self.old_bytes = self.old_bytes.saturating_sub(bytes_of(value));
                place.is_request = has_request;
                let at = self.add(value.to_string(), parent, place, Form::Json);
                // `{"role":"user","content":"yes"}` says one word, not four.
                self.units[at].is_bare |= place.speaker.is_some() && longest(value) < WORDS_MIN;
                Node::Whole(at, value.clone())
            }
        }
    }

    fn read_members(&mut self, value: &Value, parent: usize, place: Place<'_>, lines: bool) -> Node {
        match value {
            Value::Array(items) => {
                let frame = self.open(parent, 3);
                let talk = Talk::of(items);
                Node::List(
                    items.iter().map(|item| self.read_node(item, frame, place.within(talk, item), lines)).collect(),
                )
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
                    .take(LABELS_MAX)
                    .map(|(k, v)| (k.clone(), v.clone()))
                    .collect();
                let frame = self.open(parent, count(&Value::from(labels.clone()).to_string()) + 1);
                let members = map.iter().map(|(key, value)| {
                    let member = match labels.contains_key(key) {
                        true => {
                            self.old_bytes = self.old_bytes.saturating_sub(bytes_of(value));
                            Member::Label(value.clone())
                        }
                        false => {
                            let inner = self.open(frame, count(key) + 1);
                            Member::Node(self.read_node(value, inner, place, lines))
                        }
                    };
                    (key.clone(), member)
                });
                Node::Object(members.collect())
            }
            scalar => Node::Whole(self.add(scalar.to_string(), parent, place, Form::Json), scalar.clone()),
        }
    }

    fn read_text(&mut self, text: &str, parent: usize, place: Place<'_>, lines: bool) -> Node {
        let first = self.units.len();
        if !lines {
            self.add(text.to_owned(), parent, place, Form::Line);
            return Node::Text(first..self.units.len(), 0);
        }
        let start = if place.is_request { text.len().saturating_sub(TEXT_BYTES_MAX) } else { self.old_bytes };
        let start = (start..text.len()).find(|at| text.is_char_boundary(*at)).unwrap_or(text.len());
        self.old_bytes = self.old_bytes.saturating_sub(text.len());
        let (pieces, is_json) = match place.is_request {
            true => (cut_lines(&text[start..]), false),
            false => cut(&text[start..]),
        };
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
            self.add(piece.text, parent, place, if piece.is_joined { Form::Joined } else { Form::Line });
        }
        if is_root {
            self.items = total;
        }
        Node::Text(first..self.units.len(), text[..start].lines().count())
    }

    fn open(&mut self, parent: usize, tokens: usize) -> usize {
        self.frames.push(Frame { parent: Some(parent), tokens });
        self.frames.len() - 1
    }

    fn add(&mut self, text: String, parent: usize, place: Place<'_>, form: Form) -> usize {
        let anchor = anchor(&text, place.speaker);
        let mut factor = 0.6 + 0.4 * place.recency;
        if place.speaker.is_some() {
            factor *= 1.2;
        }
        if anchor == Some(Anchor::Error) {
            factor *= 1.3;
        }
        self.units.push(Unit {
            tokens: 0,
            entities: self.entities.read(&text, place),
            factor,
            parent,
            is_repeat: false,
            is_bare: word_count(&text) < WORDS_MIN,
            anchor,
            is_request: place.is_request,
            form,
            item: place.number,
            text,
        });
        self.units.len() - 1
    }

    /// Counts the tokens of all units at once, each with what stands between it and the next.
    fn count_tokens(&mut self) {
        let (mut text, mut ends) = (String::new(), Vec::with_capacity(self.units.len()));
        for unit in &self.units {
            match unit.form {
                Form::Json => text.extend([unit.text.as_str(), ","]),
                Form::Line | Form::Joined => {
                    let quoted = Value::from(unit.text.as_str()).to_string();
                    text.extend([&quoted[1..quoted.len() - 1], "\\n"]);
                }
            }
            ends.push(text.len());
        }
        for (unit, tokens) in self.units.iter_mut().zip(spread(&text, &ends)) {
            unit.tokens = tokens;
        }
    }

    /// Of lines that say the same the last copy counts, of errors the last one, and of each file that was changed.
    fn mark_repeats(&mut self) {
        let (mut seen, mut files, mut has_error) = (HashSet::new(), HashSet::new(), false);
        for unit in self.units.iter_mut().rev() {
            unit.anchor = unit.anchor.filter(|anchor| match anchor {
                Anchor::Error => !std::mem::replace(&mut has_error, true),
                Anchor::File => files.insert(changed_file(&unit.text).unwrap_or_default().to_owned()),
                Anchor::Binding | Anchor::Task => true,
            });
            // A file that is shown again has its lines under other numbers.
            let text = unit.text.trim_start_matches(|c: char| c.is_ascii_digit() || c.is_whitespace());
            let text = text.trim_start_matches([':', '|']).trim();
            // A number is no line without its number.
            unit.is_repeat = !seen.insert(if text.is_empty() { unit.text.trim() } else { text }.to_owned());
        }
    }

    /// Of many lines that differ only in their numbers, as in a log, the first and the last tell most.
    fn fold_templates(&mut self) {
        let mut places: HashMap<(usize, String), Vec<usize>> = HashMap::new();
        for (at, unit) in
            self.units.iter().enumerate().filter(|(_, unit)| unit.text.contains(|c: char| c.is_ascii_digit()))
        {
            places.entry((unit.parent, template(&unit.text))).or_default().push(at);
        }
        for places in places.values().filter(|places| places.len() >= TEMPLATE_MIN) {
            for at in &places[1..places.len() - 1] {
                self.units[*at].factor *= FOLDED;
            }
        }
    }
}

/// Where what was written down stands that is no message: it counts as if the user had said it.
const WRITTEN: Place<'_> =
    Place { number: 0, recency: 1.0, speaker: Some(Speaker::User), asked: &[], is_request: false };

impl Place<'_> {
    /// The place of an item of a list that stands here.
    fn within(self, talk: Talk, item: &Value) -> Self {
        let is_request = self.is_request || self.asked.first().is_some_and(|request| std::ptr::eq(*request, item));
        Self { speaker: talk.speaker(item, self.speaker), is_request, ..self }
    }

    /// Whether a value that stands here is in the user's last request, is that, or has it inside.
    fn has_request(self, value: &Value) -> bool {
        self.is_request || self.asked.iter().any(|around| std::ptr::eq(*around, value))
    }
}

/// What there is to read in a value: its texts, and something for all else that stands for itself.
fn bytes_of(value: &Value) -> usize {
    match value {
        Value::String(text) => text.len(),
        Value::Array(items) => items.iter().map(bytes_of).sum(),
        Value::Object(map) => map.values().map(bytes_of).sum(),
        Value::Null | Value::Bool(_) | Value::Number(_) => 8,
    }
}

/// A line with its numbers taken out.
fn template(line: &str) -> String {
    let mut template = String::with_capacity(line.len());
    for c in line.chars() {
        let c = if c.is_ascii_digit() { '0' } else { c };
        if c != '0' || !template.ends_with('0') {
            template.push(c);
        }
    }
    template
}

/// Whether a value has up to [`WHOLE_MAX`] bytes as JSON; no more of it is written to see that.
fn is_short(value: &Value) -> bool {
    serde_json::to_writer(io::Cursor::new([0; WHOLE_MAX].as_mut_slice()), value).is_ok()
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
