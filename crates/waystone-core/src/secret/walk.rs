//! Secrets in JSON: found with the pointer that leads to them, and replaced in what is shown.

use std::borrow::Cow;
use std::fmt::Write;
use std::sync::Arc;

use serde_json::{Map, Value};

use super::detect::{Detector, Hit, mark};
use super::{Finding, Findings, POINTER_CHARS_MAX, Policy, Secrets};
use crate::error::{Error, Result};

/// Taking a secret out may bring two texts together that look like another.
const ROUNDS_MAX: usize = 4;

/// A search through all that a request brings.
pub struct Scan {
    secrets: Arc<Secrets>,
    pub(super) warned: Findings,
    pub(super) blocked: Findings,
}

/// What takes secrets out of texts.
#[derive(Clone, Copy)]
pub struct Cover<'a> {
    secrets: &'a Secrets,
    /// Of groups with this policy, or a stricter one.
    from: Policy,
}

/// A step of the way to a text.
#[derive(Clone, Copy)]
enum Step<'a> {
    Key(&'a str),
    Item(usize),
}

impl<'a> Cover<'a> {
    pub(super) fn new(secrets: &'a Secrets, from: Policy) -> Self {
        Self { secrets, from }
    }

    /// The text without its secrets, if it has some.
    pub fn text(&self, text: &str) -> Option<String> {
        self.redact(text, |text| self.secrets.detector().find(text))
    }

    /// Takes the secrets out of all texts, and says how many of these had some.
    pub fn value(&self, value: &mut Value) -> u64 {
        self.named("", value)
    }

    /// The same in an object, keys too. Two keys that become alike are told apart.
    pub fn object(&self, object: &mut Map<String, Value>) -> u64 {
        let mut count: u64 = object.iter_mut().map(|(key, value)| self.named(key, value)).sum();
        if object.keys().any(|key| self.text(key).is_some()) {
            for (key, value) in std::mem::take(object) {
                let covered = self.text(&key);
                count += u64::from(covered.is_some());
                let name = covered.unwrap_or(key);
                let taken = |name: &String| object.contains_key(name);
                let numbered = (2..).map(|number| format!("{name} {number}"));
                let free = std::iter::once(name.clone()).chain(numbered).find(|name| !taken(name)).unwrap_or(name);
                object.insert(free, value);
            }
        }
        count
    }

    fn named(&self, name: &str, value: &mut Value) -> u64 {
        match value {
            Value::String(text) => {
                let covered = self.redact(text, |text| self.secrets.detector().find_named(name, text));
                let is_changed = covered.is_some();
                covered.into_iter().for_each(|covered| *text = covered);
                u64::from(is_changed)
            }
            Value::Array(items) => items.iter_mut().map(|item| self.named(name, item)).sum(),
            Value::Object(object) => self.object(object),
            Value::Null | Value::Bool(_) | Value::Number(_) => 0,
        }
    }

    fn redact(&self, text: &str, find: impl Fn(&str) -> Vec<Hit>) -> Option<String> {
        let detector = self.secrets.detector();
        let mut redacted: Option<String> = None;
        for _ in 0..ROUNDS_MAX {
            let text = redacted.as_deref().unwrap_or(text);
            let mut hits = find(text);
            hits.retain(|hit| self.secrets.policy(detector.group(hit.rule)) >= self.from);
            if hits.is_empty() {
                break;
            }
            redacted = Some(without(text, &hits, detector));
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

impl Scan {
    pub fn new(secrets: &Arc<Secrets>) -> Self {
        Self { secrets: Arc::clone(secrets), warned: Findings::default(), blocked: Findings::default() }
    }

    /// What a client is told of what was found; an error if something of it must not be kept.
    pub fn end(self) -> Result<Vec<String>> {
        match self.blocked.total {
            0 => Ok(self.warned.tell()),
            _ => Err(Error::SecretBlocked(Box::new(self.blocked))),
        }
    }

    /// Looks through a text that `pointer` leads to.
    pub fn text(&mut self, pointer: &str, text: &str) {
        if self.secrets.is_on() {
            let hits = self.secrets.detector().find(text);
            self.add(hits, |_| pointer.to_owned(), false);
        }
    }

    /// Looks through everything in an object that `pointer` leads to.
    pub fn object(&mut self, pointer: &str, object: &Map<String, Value>) {
        if self.secrets.is_on() {
            self.walk_object(pointer, object, &mut Vec::new());
        }
    }

    /// Looks through whatever value `pointer` leads to.
    pub fn value(&mut self, pointer: &str, value: &Value) {
        if self.secrets.is_on() {
            self.walk(pointer, "", value, &mut Vec::new());
        }
    }

    fn walk_object<'v>(&mut self, root: &str, object: &'v Map<String, Value>, path: &mut Vec<Step<'v>>) {
        for (key, value) in object {
            let hits = self.secrets.detector().find(key);
            self.add(hits, |secrets| secrets.pointer(root, path), true);
            path.push(Step::Key(key));
            self.walk(root, key, value, path);
            path.pop();
        }
    }

    fn walk<'v>(&mut self, root: &str, name: &str, value: &'v Value, path: &mut Vec<Step<'v>>) {
        match value {
            Value::String(text) => {
                let hits = self.secrets.detector().find_named(name, text);
                self.add(hits, |secrets| secrets.pointer(root, path), false);
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

    fn add(&mut self, hits: Vec<Hit>, pointer: impl Fn(&Secrets) -> String, is_in_key: bool) {
        let detector = self.secrets.detector();
        for hit in hits {
            let (rule, group) = (detector.id(hit.rule), detector.group(hit.rule));
            let is_blocked = self.secrets.policy(group) == Policy::Block;
            let found = if is_blocked { &mut self.blocked } else { &mut self.warned };
            let (pointer, bytes) = (|| pointer(&self.secrets), hit.range);
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
                    let shown =
                        if hits.is_empty() { Cow::Borrowed(*key) } else { without(key, &hits, self.detector()).into() };
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
