//! Rules by which secrets are found: data in `rules.json`, and in the same form what users add in a file of their own.

use std::sync::LazyLock;

use regex::{Regex, RegexBuilder};
use serde::Deserialize;
use serde_json::Value;

use crate::json::parse_strict;

/// How many rules a user's file has at most, and ours.
pub const RULES_MAX: usize = 64;
const ID_CHARS_MAX: usize = 64;
const PATTERN_CHARS_MAX: usize = 2_000;
const COMPILED_BYTES_MAX: usize = 1024 * 1024;
const KEYWORDS_MAX: usize = 32;
const KEYWORD_CHARS_MAX: usize = 64;

/// What a rule is about. Each group has a policy of its own.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Group {
    /// What opens something.
    #[default]
    Secret,
    /// What tells of a person.
    Pii,
}

impl Group {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Secret => "secret",
            Self::Pii => "pii",
        }
    }
}

/// What must hold of a match besides.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Check {
    /// It is no word: a letter is in it, and a digit or a mark that no name has.
    Mixed,
    /// The check digit of payment cards.
    Luhn,
    /// The check digits of bank accounts.
    Iban,
    /// As many digits as telephone numbers have.
    Phone,
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rule {
    pub id: String,
    #[serde(default)]
    pub group: Group,
    /// For people.
    #[serde(default)]
    pub about: String,
    /// A rule that is switched off needs no more than its id.
    #[serde(default = "on")]
    pub(super) enabled: bool,
    /// A text is searched only if it has one of these, in capitals or not; without any, always.
    #[serde(default)]
    pub(super) keywords: Vec<String>,
    /// What is found. If it has groups, the secret is the first that took part.
    #[serde(default)]
    pub(super) pattern: String,
    /// It has at least so many bits for each of its characters.
    #[serde(default)]
    pub(super) entropy: f64,
    #[serde(default)]
    pub(super) check: Option<Check>,
    /// Where this is in it, it is none.
    #[serde(default)]
    pub(super) except: Option<String>,
}

fn on() -> bool {
    true
}

static OURS: LazyLock<Vec<Rule>> =
    LazyLock::new(|| read(include_bytes!("rules.json")).expect("our own rules are tested"));

/// Our own, in the order in which they count.
pub(super) fn ours() -> &'static [Rule] {
    &OURS
}

/// The rules in a user's file. An error names the rule and what is wrong with it.
pub fn parse_rules(text: &[u8]) -> Result<Vec<Rule>, String> {
    let rules = read(text)?;
    for (at, rule) in rules.iter().enumerate() {
        let is_known = ours().iter().any(|known| known.id == rule.id);
        let wrong = |why: String| format!("rule `{}`: {why}", rule.id.escape_debug());
        if rules[..at].iter().any(|other| other.id == rule.id) {
            return Err(wrong("it stands there twice".to_owned()));
        }
        match rule.enabled {
            false if !is_known => return Err(wrong("there is no such rule to switch off".to_owned())),
            false => {}
            true => rule.check().map_err(wrong)?,
        }
    }
    Ok(rules)
}

fn read(text: &[u8]) -> Result<Vec<Rule>, String> {
    let Value::Object(mut file) = parse_strict(text)? else {
        return Err("it must be an object with `rules`".to_owned());
    };
    let Some(Value::Array(rules)) = file.remove("rules") else {
        return Err("`rules` must be a list".to_owned());
    };
    if let Some(other) = file.keys().next() {
        return Err(format!("there is no `{}`, only `rules`", other.escape_debug()));
    }
    if rules.len() > RULES_MAX {
        return Err(format!("it has {} rules, at most {RULES_MAX} are taken", rules.len()));
    }
    let read = |(at, rule): (usize, Value)| {
        let name = rule["id"].as_str().map_or_else(|| format!("{}", at + 1), |id| format!("`{}`", id.escape_debug()));
        serde_json::from_value(rule).map_err(|error| format!("rule {name}: {error}"))
    };
    rules.into_iter().enumerate().map(read).collect()
}

impl Rule {
    fn check(&self) -> Result<(), String> {
        let is_name = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        if !(1..=ID_CHARS_MAX).contains(&self.id.len()) || !self.id.chars().all(is_name) {
            return Err(format!("id must be 1 to {ID_CHARS_MAX} of a-z, 0-9 and -"));
        }
        if !(0.0..=8.0).contains(&self.entropy) {
            return Err("entropy must be from 0 to 8 bits a character".to_owned());
        }
        if self.keywords.len() > KEYWORDS_MAX {
            return Err(format!("keywords are {}, at most {KEYWORDS_MAX} are taken", self.keywords.len()));
        }
        let is_good = |keyword: &String| (1..=KEYWORD_CHARS_MAX).contains(&keyword.chars().count());
        if !self.keywords.iter().all(is_good) {
            return Err(format!("a keyword has 1 to {KEYWORD_CHARS_MAX} characters"));
        }
        compile("except", self.except.as_deref().unwrap_or("x"))?;
        match compile("pattern", &self.pattern)?.is_match("") {
            true => Err("pattern matches where nothing is".to_owned()),
            false => Ok(()),
        }
    }
}

/// A pattern of a rule, bounded in what it may cost.
pub(super) fn compile(field: &str, pattern: &str) -> Result<Regex, String> {
    if !(1..=PATTERN_CHARS_MAX).contains(&pattern.chars().count()) {
        return Err(format!("{field} must have 1 to {PATTERN_CHARS_MAX} characters"));
    }
    RegexBuilder::new(pattern).size_limit(COMPILED_BYTES_MAX).build().map_err(|error| format!("{field}: {error}"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn our_own_rules_are_as_good_as_we_ask_of_others() {
        let text = include_bytes!("rules.json");
        assert_eq!(parse_rules(text).map(|rules| rules.len()), Ok(ours().len()));
        assert!(ours().iter().all(|rule| !rule.about.is_empty()));
    }

    #[test]
    fn a_file_of_rules_is_taken_or_refused_by_name() {
        let check = |file: Value, expected: &str| {
            let refused = parse_rules(file.to_string().as_bytes()).err().unwrap_or_default();
            assert!(refused.contains(expected) && refused.is_empty() == expected.is_empty(), "{file}: {refused}");
        };
        check(json!({ "rules": [] }), "");
        check(json!({ "rules": [{ "id": "acme", "pattern": "acme_[a-z0-9]{16}", "keywords": ["acme_"] }] }), "");
        check(json!({ "rules": [{ "id": "jwt", "enabled": false }] }), "");
        check(json!({ "rules": [{ "id": "jwt", "pattern": "x{9}", "group": "pii" }] }), "");
        check(json!([]), "an object with `rules`");
        check(json!({ "rules": {} }), "`rules` must be a list");
        check(json!({ "rules": [], "more": 1 }), "there is no `more`");
        check(json!({ "rules": [{ "id": "acme", "patern": "x" }] }), "rule `acme`: unknown field `patern`");
        check(json!({ "rules": [{ "pattern": "x" }] }), "rule 1: missing field `id`");
        check(json!({ "rules": [{ "id": "acme" }] }), "rule `acme`: pattern must have 1 to");
        check(json!({ "rules": [{ "id": "acme", "pattern": "(" }] }), "rule `acme`: pattern: regex parse error");
        check(json!({ "rules": [{ "id": "acme", "pattern": "x", "except": "(" }] }), "rule `acme`: except: regex");
        check(json!({ "rules": [{ "id": "acme", "pattern": "x*" }] }), "rule `acme`: pattern matches where nothing is");
        check(json!({ "rules": [{ "id": "acme", "pattern": "(?:x{999}){999}" }] }), "rule `acme`: pattern: Compiled");
        check(json!({ "rules": [{ "id": "Acme key", "pattern": "x" }] }), "id must be");
        check(json!({ "rules": [{ "id": "acme", "pattern": "x", "keywords": [""] }] }), "a keyword has 1 to");
        check(json!({ "rules": [{ "id": "acme", "pattern": "x", "entropy": 9 }] }), "entropy must be");
        check(json!({ "rules": [{ "id": "acme", "pattern": "x", "group": "all" }] }), "unknown variant `all`");
        check(json!({ "rules": [{ "id": "jtw", "enabled": false }] }), "rule `jtw`: there is no such rule");
        let twice = json!([{ "id": "acme", "pattern": "x" }, { "id": "acme", "pattern": "y" }]);
        check(json!({ "rules": twice }), "rule `acme`: it stands there twice");
        let many: Vec<Value> = (0..=RULES_MAX).map(|n| json!({ "id": format!("r{n}"), "pattern": "x" })).collect();
        check(json!({ "rules": many }), "at most 64 are taken");
    }
}
