//! Secrets in what is kept: found by rules, told by rule and place, never by what they say.
//!
//! What counts as one is data, in `secret/rules.json` and in a file of the user's in the same form ([`rule`]); how a text is searched is in
//! [`detect`]; how a context is walked and what a view shows in place of a secret is in [`walk`]. Nothing is read or compiled before the
//! first text is searched.

mod detect;
mod rule;
mod walk;

use std::fmt;
use std::ops::Range;
use std::sync::{LazyLock, OnceLock};

pub use rule::{Group, RULES_MAX, Rule, parse_rules};
pub use walk::{Cover, Scan};

use detect::Detector;

/// As many are told.
const TOLD_MAX: usize = 20;
/// A pointer that is longer is cut.
const POINTER_CHARS_MAX: usize = 200;

/// What is done about secrets. Each does what the one before it does, too.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Policy {
    /// They are not looked for.
    Off,
    /// Who saves one is told.
    Warn,
    /// Views, guides and exports do not show them.
    Redact,
    /// They are not kept.
    Block,
}

impl Policy {
    pub const NAMES: &[&str] = &["off", "warn", "redact", "block"];

    /// By its name, as in [`Self::NAMES`].
    pub fn named(name: &str) -> Option<Self> {
        let all = [Self::Off, Self::Warn, Self::Redact, Self::Block];
        Self::NAMES.iter().zip(all).find(|(known, _)| **known == name).map(|(_, policy)| policy)
    }
}

/// `text` without what looks like a secret, whatever is set: for words of others in settings and errors.
pub fn without_secrets(text: &str) -> String {
    static ALL: LazyLock<Secrets> = LazyLock::new(|| Secrets::new(Policy::Redact, Policy::Off, Vec::new()));
    ALL.shown().and_then(|cover| cover.text(text)).unwrap_or_else(|| text.to_owned())
}

/// What is looked for, and what is done about it.
pub struct Secrets {
    secret: Policy,
    pii: Policy,
    rules: Vec<Rule>,
    detector: OnceLock<Detector>,
}

/// Personal data is everywhere in ordinary text: it is looked for where someone wants that.
impl Default for Secrets {
    fn default() -> Self {
        Self::new(Policy::Warn, Policy::Off, Vec::new())
    }
}

/// A secret, and where it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    pub rule: String,
    pub group: Group,
    /// Leads to the text that it is in.
    pub pointer: String,
    /// In that text.
    pub bytes: Range<usize>,
    /// It is in the name of the last step, not in what stands there.
    pub is_in_key: bool,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { rule, pointer, bytes, .. } = self;
        let place = if self.is_in_key { "in a key of" } else { "at" };
        let place_of = if pointer.is_empty() { "the top" } else { pointer };
        write!(f, "{rule} {place} {place_of}, bytes {}-{}", bytes.start, bytes.end)
    }
}

/// As many findings as are told, and how many there are.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Findings {
    pub first: Vec<Finding>,
    pub total: u64,
}

impl Findings {
    fn add(&mut self, finding: impl FnOnce() -> Finding) {
        self.total += 1;
        if self.first.len() < TOLD_MAX {
            self.first.push(finding());
        }
    }

    /// A line for each.
    fn tell(&self) -> Vec<String> {
        let more = self.total - self.first.len() as u64;
        let told = self.first.iter().map(|found| match found.group {
            Group::Secret => format!("possible secret: {found}"),
            Group::Pii => format!("possible personal data: {found}"),
        });
        told.chain((more > 0).then(|| format!("and {more} more possible secrets"))).collect()
    }
}

impl Secrets {
    /// `rules` are a user's: one with the id of ours takes its place, or switches it off.
    pub fn new(secret: Policy, pii: Policy, rules: Vec<Rule>) -> Self {
        Self { secret, pii, rules, detector: OnceLock::new() }
    }

    fn policy(&self, group: Group) -> Policy {
        match group {
            Group::Secret => self.secret,
            Group::Pii => self.pii,
        }
    }

    fn strictest(&self) -> Policy {
        self.secret.max(self.pii)
    }

    /// Whether anything is looked for.
    fn is_on(&self) -> bool {
        self.strictest() > Policy::Off
    }

    /// What takes secrets out of what is shown; `None` if it is shown as it is.
    pub fn shown(&self) -> Option<Cover<'_>> {
        self.cover(Policy::Redact)
    }

    /// The same for what is kept where no one can be told that it must not be.
    pub fn kept(&self) -> Option<Cover<'_>> {
        self.cover(Policy::Block)
    }

    fn cover(&self, from: Policy) -> Option<Cover<'_>> {
        (self.strictest() >= from).then(|| Cover::new(self, from))
    }

    /// A user's rules come first: who writes one knows what it is about.
    fn detector(&self) -> &Detector {
        self.detector.get_or_init(|| {
            let replaced = |rule: &&Rule| !self.rules.iter().any(|own| own.id == rule.id);
            let rules = self.rules.iter().chain(rule::ours().iter().filter(replaced));
            let is_wanted = |rule: &&Rule| rule.enabled && self.policy(rule.group) > Policy::Off;
            Detector::new(rules.filter(is_wanted).cloned().collect())
        })
    }

    /// The rule of each secret in a text, and where it is.
    pub fn find(&self, text: &str) -> Vec<(&str, Range<usize>)> {
        if !self.is_on() {
            return Vec::new();
        }
        let detector = self.detector();
        detector.find(text).into_iter().map(|hit| (detector.id(hit.rule), hit.range)).collect()
    }
}
