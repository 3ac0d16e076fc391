//! Secrets in JSON: found with the pointer that leads to them, and replaced in what is shown.

use std::borrow::Cow;
use std::fmt::Write;

use serde_json::{Map, Value};

use super::detect::{Detector, Hit, mark};
use super::{Finding, Findings, POINTER_CHARS_MAX, Policy, Secrets};

/// Taking a secret out may bring two texts together that look like another.
const ROUNDS_MAX: usize = 4;

/// A search through all that a request brings.
pub struct Scan<'a> {
    secrets: &'a Secrets,
    pub(super) warned: Findings,
    pub(super) blocked: Findings,
}

/// A step of the way to a text.
#[derive(Clone, Copy)]
enum Step<'a> {
    Key(&'a str),
    Item(usize),
}

impl Secrets {
    pub fn scan(&self) -> Scan<'_> {
        Scan { secrets: self, warned: Findings::default(), blocked: Findings::default() }
    }

    /// The text without its secrets, if it is to be shown without and has some.
    pub fn redact_text(&self, text: &str) -> Option<String> {
        if !self.is_redacting() {
            return None;
        }
        let detector = self.detector();
        self.redact(text, |text| detector.find(text))
    }

    /// Takes the secrets out of all texts, and says how many there were.
    pub fn redact_value(&self, value: &mut Value) -> u64 {
        if self.is_redacting() { self.redact_named("", value) } else { 0 }
    }

    /// The same in an object, keys too. Two keys that become alike are told apart.
    pub fn redact_object(&self, object: &mut Map<String, Value>) -> u64 {
        if !self.is_redacting() {
            return 0;
        }
        let mut count: u64 = object.iter_mut().map(|(key, value)| self.redact_named(key, value)).sum();
        if object.keys().any(|key| self.redact_text(key).is_some()) {
            for (key, value) in std::mem::take(object) {
                let shown = self.redact_text(&key);
                count += u64::from(shown.is_some());
                let mut name = shown.clone().unwrap_or(key);
                let mut number = 1;
                while object.contains_key(&name) {
                    number += 1;
                    name = format!("{} {number}", shown.as_deref().unwrap_or(&name));
                }
                object.insert(name, value);
            }
        }
        count
    }

    fn redact_named(&self, name: &str, value: &mut Value) -> u64 {
        match value {
            Value::String(text) => {
                let detector = self.detector();
                let redacted = self.redact(text, |text| detector.find_named(name, text));
                let is_changed = redacted.is_some();
                redacted.into_iter().for_each(|redacted| *text = redacted);
                u64::from(is_changed)
            }
            Value::Array(items) => items.iter_mut().map(|item| self.redact_named(name, item)).sum(),
            Value::Object(object) => self.redact_object(object),
            Value::Null | Value::Bool(_) | Value::Number(_) => 0,
        }
    }

    fn redact(&self, text: &str, find: impl Fn(&str) -> Vec<Hit>) -> Option<String> {
        let mut redacted: Option<String> = None;
        for _ in 0..ROUNDS_MAX {
            let text = redacted.as_deref().unwrap_or(text);
            let mut hits = find(text);
            hits.retain(|hit| self.policy(self.detector().group(hit.rule)) >= Policy::Redact);
            if hits.is_empty() {
                break;
            }
            redacted = Some(without(text, &hits, self.detector()));
        }
        redacted
    }
}

fn without(text: &str, hits: &[Hit], detector: &Detector) -> String {
    let (mut out, mut at) = (String::with_capacity(text.len()), 0);
    for hit in hits {
        out += &text[at..hit.range.start];
        out += &mark(detector.id(hit.rule));
        at = hit.range.end;
    }
    out + &text[at..]
}

impl Scan<'_> {
    /// Looks through a text that `pointer` leads to.
    pub fn text(&mut self, pointer: &str, text: &str) {
        if self.secrets.is_on() {
            let hits = self.secrets.detector().find(text);
            self.add(hits, || pointer.to_owned(), false);
        }
    }

    /// Looks through everything in an object that `pointer` leads to.
    pub fn object(&mut self, pointer: &str, object: &Map<String, Value>) {
        if self.secrets.is_on() {
            self.walk_object(pointer, object, &mut Vec::new());
        }
    }

    fn walk_object<'v>(&mut self, root: &str, object: &'v Map<String, Value>, path: &mut Vec<Step<'v>>) {
        for (key, value) in object {
            let hits = self.secrets.detector().find(key);
            self.add(hits, || self.secrets.pointer(root, path), true);
            path.push(Step::Key(key));
            self.walk(root, key, value, path);
            path.pop();
        }
    }

    fn walk<'v>(&mut self, root: &str, name: &str, value: &'v Value, path: &mut Vec<Step<'v>>) {
        match value {
            Value::String(text) => {
                let hits = self.secrets.detector().find_named(name, text);
                self.add(hits, || self.secrets.pointer(root, path), false);
            }
            Value::Array(items) => {
                for (at, item) in items.iter().enumerate() {
                    path.push(Step::Item(at));
                    self.walk(root, name, item, path);
                    path.pop();
                }
            }
            Value::Object(object) => self.walk_object(root, object, path),
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }

    fn add(&mut self, hits: Vec<Hit>, pointer: impl Fn() -> String, is_in_key: bool) {
        let secrets = self.secrets;
        for hit in hits {
            let (rule, group) = (secrets.detector().id(hit.rule), secrets.detector().group(hit.rule));
            let found = if secrets.policy(group) == Policy::Block { &mut self.blocked } else { &mut self.warned };
            let bytes = hit.range;
            found.add(|| Finding { rule: rule.to_owned(), group, pointer: pointer(), bytes, is_in_key });
        }
    }
}

impl Secrets {
    /// A JSON pointer on one line, in which no key shows a secret.
    fn pointer(&self, root: &str, path: &[Step<'_>]) -> String {
        let mut pointer = root.to_owned();
        for step in path {
            match step {
                Step::Key(key) => {
                    let hits = self.detector().find(key);
                    let shown = if hits.is_empty() { Cow::Borrowed(*key) } else { without(key, &hits, self.detector()).into() };
                    let escaped = shown.replace('~', "~0").replace('/', "~1");
                    pointer.push('/');
                    pointer.extend(escaped.chars().map(|c| if c.is_control() { ' ' } else { c }));
                }
                Step::Item(at) => write!(pointer, "/{at}").expect("a string takes all text"),
            }
        }
        match pointer.char_indices().nth(POINTER_CHARS_MAX) {
            Some((end, _)) => format!("{}…", &pointer[..end]),
            None => pointer,
        }
    }
}
