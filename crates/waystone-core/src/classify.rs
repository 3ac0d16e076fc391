//! What a top-level key of a context is worth: its class, and the rule that gave it.
//!
//! First match wins: the agent's mark, the session's rules, the configuration's, the contract's key patterns, what the value says, its
//! length, else IMPORTANT. Keys are matched by whole words, so `catalogItems` is no log and `attempt` nothing temporary. Content alone
//! makes nothing EPHEMERAL. Pure; the words and cues are data below.

mod pattern;

use std::sync::LazyLock;

use regex::{Regex, RegexSet};
use serde_json::{Map, Value};

use crate::api::Class::{self, Critical, Ephemeral, Important, Useful};
use crate::api::ContextRule;
use pattern::{PATTERNS, is_word};

/// A value with more text than this, in characters of JSON, is a long one.
const LONG_CHARS: usize = 500;

/// What is said of keys from outside: marks and rules, strongest first.
#[derive(Debug, Clone, Default)]
pub struct Rules {
    marks: Vec<String>,
    /// The session's, then the configuration's.
    rules: Vec<(Regex, Class, String)>,
}

impl Rules {
    /// A pattern that is no regular expression is an error that names it.
    pub fn new<'a>(marks: &[String], rules: impl IntoIterator<Item = &'a ContextRule>) -> Result<Self, String> {
        let compile = |rule: &ContextRule| {
            let why = rule.reason.clone().unwrap_or_else(|| format!("contextRules: {}", rule.pattern));
            Ok((rule.compile()?, rule.class, why))
        };
        Ok(Self { marks: marks.to_vec(), rules: rules.into_iter().map(compile).collect::<Result<_, String>>()? })
    }

    pub fn is_marked(&self, key: &str) -> bool {
        self.marks.iter().any(|mark| mark == key)
    }

    fn find(&self, key: &str) -> Option<Verdict> {
        if self.is_marked(key) {
            return Some(Verdict::new(Critical, "marked critical"));
        }
        let (_, class, why) = self.rules.iter().find(|(pattern, _, _)| pattern.is_match(key))?;
        Some(Verdict { class: *class, rule: why.clone() })
    }
}

/// A class, and the rule that gave it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verdict {
    pub class: Class,
    pub rule: String,
}

impl Verdict {
    fn new(class: Class, rule: &str) -> Self {
        Self { class, rule: rule.to_owned() }
    }
}

pub fn classify(key: &str, value: &Value, rules: &Rules) -> Verdict {
    let by_key = || by_words(&words(key), value);
    let by_text = || by_text(key, value);
    rules.find(key).or_else(by_key).or_else(by_text).unwrap_or_else(|| Verdict::new(Important, "default"))
}

/// Every key of `context` with its verdict, in order.
pub fn classify_all<'a>(context: &'a Map<String, Value>, rules: &Rules) -> Vec<(&'a str, Verdict)> {
    context.iter().map(|(key, value)| (key.as_str(), classify(key, value, rules))).collect()
}

/// The words of a key in camelCase, snake_case or kebab-case, in lower case. Digits are words of their own.
fn words(key: &str) -> Vec<String> {
    #[derive(PartialEq, Clone, Copy)]
    enum Kind {
        Upper,
        Lower,
        Digit,
        Other,
    }
    let kind = |c: char| match c {
        c if c.is_numeric() => Kind::Digit,
        c if c.is_uppercase() => Kind::Upper,
        c if c.is_alphabetic() => Kind::Lower,
        _ => Kind::Other,
    };
    let chars: Vec<char> = key.chars().collect();
    let mut words: Vec<String> = Vec::new();
    let mut before = Kind::Other;
    for (at, &c) in chars.iter().enumerate() {
        let now = kind(c);
        // `HTMLPage` is `html`, `page`: the last capital belongs to the word it begins.
        let begins_word = before == Kind::Upper && chars.get(at + 1).is_some_and(|next| kind(*next) == Kind::Lower);
        let goes_on = match (before, now) {
            (Kind::Upper, Kind::Lower) => true,
            (Kind::Upper, Kind::Upper) => !begins_word,
            (before, now) => before == now,
        };
        if now != Kind::Other {
            if !goes_on || words.is_empty() {
                words.push(String::new());
            }
            if let Some(word) = words.last_mut() {
                word.extend(c.to_lowercase());
            }
        }
        before = now;
    }
    words
}

fn by_words(words: &[String], value: &Value) -> Option<Verdict> {
    if let Some(pattern) = PATTERNS.iter().find(|pattern| pattern.is_match(words)) {
        return Some(Verdict { class: pattern.class, rule: format!("key: {}", pattern.words.join(" ")) });
    }
    // `startedAt` with a time in it is a timestamp; `lookAt` with a text is not.
    let is_at = words.len() > 1 && words.last().is_some_and(|last| last == "at");
    (is_at && is_time(value)).then(|| Verdict::new(Ephemeral, "key: a time of bookkeeping"))
}

fn is_time(value: &Value) -> bool {
    const EPOCH_2001: u64 = 1_000_000_000;
    static TIME: LazyLock<Regex> = LazyLock::new(|| regex(r"^\d{4}-\d\d-\d\d[T ]\d\d:\d\d"));
    match value {
        Value::Number(number) => number.as_u64().is_some_and(|number| number >= EPOCH_2001),
        Value::String(text) => TIME.is_match(text),
        _ => false,
    }
}

fn regex(pattern: &str) -> Regex {
    Regex::new(pattern).expect("the pattern is a constant")
}

/// What text says that is a wish.
static WISH: LazyLock<RegexSet> = LazyLock::new(|| {
    let cues = [
        r"(?i)\b(user|customer|client) (\w+ )?(wants?|requires?|needs|insists|confirmed|asked|prefers|expects)\b",
        r"(?i)\bi (want|need)\b",
        r"(?i)\bbenutzer (will|möchte|braucht)\b",
    ];
    RegexSet::new(cues).expect("the cues are constants")
});

/// What text says that binds whoever goes on: a decision, a demand, a prohibition.
static BINDING: LazyLock<RegexSet> = LazyLock::new(|| {
    let cues = [
        r"(?i)\b(we|they|team|board|group|i) (have |has )?(decided|agreed|chose)\b",
        r"(?i)\bdecision:",
        r"(?i)\brequirements?\b",
        r"(?i)\bmust (never|not)\b",
        r"(?i)\bessential that\b",
        r"(?i)\bunder (any|no) circumstances\b",
        r"(?i)^critical:",
        r"(?i)\b(do not|don't|never) (touch|change|modify|edit|delete|remove|rename|push|merge|deploy|break|use|run|send)\b",
        r"(?i)^(do not|don't|never|always) \w+ (the|any|a|an|in|to|on|without)\b",
    ];
    RegexSet::new(cues).expect("the cues are constants")
});

/// Words of keys whose text quotes or shows something: what it says binds nobody.
const QUOTED: &[&str] =
    &["error", "message", "exception", "title", "string", "name", "label", "quote", "template", "lyric", "headline"];

fn by_text(key: &str, value: &Value) -> Option<Verdict> {
    let length = text_length(value);
    if length > LONG_CHARS {
        return Some(Verdict::new(Useful, "content: long"));
    }
    // A message of the user is not quoted.
    let is_quoted = |words: Vec<String>| {
        let is_quote = |word: &String| QUOTED.iter().any(|quoted| is_word(word, quoted));
        words.iter().any(is_quote) && !words.iter().any(|word| word == "user")
    };
    let is_binding = binds(value) && !is_quoted(words(key));
    is_binding.then(|| Verdict::new(Critical, "content: a wish, a decision or a prohibition"))
}

/// Whether a text says what binds.
pub(crate) fn is_binding(text: &str) -> bool {
    BINDING.is_match(text)
}

fn binds(value: &Value) -> bool {
    match value {
        Value::String(text) => is_binding(text) || WISH.is_match(text),
        Value::Array(items) => items.iter().any(binds),
        Value::Object(map) => map.values().any(binds),
        _ => false,
    }
}

/// About how many characters the value has as JSON; counting stops where it is long.
fn text_length(value: &Value) -> usize {
    fn sum(lengths: impl Iterator<Item = usize>) -> usize {
        let mut total = 2;
        for length in lengths {
            total += length + 1;
            if total > LONG_CHARS {
                break;
            }
        }
        total
    }
    match value {
        Value::String(text) => text.len() + 2,
        Value::Array(items) => sum(items.iter().map(text_length)),
        Value::Object(map) => sum(map.iter().map(|(key, value)| key.len() + 3 + text_length(value))),
        _ => 4,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn class(key: &str, value: &Value) -> (Class, String) {
        let verdict = classify(key, value, &Rules::default());
        (verdict.class, verdict.rule)
    }

    /// The class that a key has by its name, with a value that says nothing.
    #[track_caller]
    fn check_keys(expected: Class, keys: &[&str]) {
        for key in keys {
            let (class, rule) = class(key, &json!("x"));
            assert_eq!(class, expected, "{key}: {rule}");
            assert!(rule.starts_with("key: "), "{key}: {rule}");
        }
    }

    #[test]
    fn a_key_is_cut_into_its_words() {
        let check = |key: &str, expected: &[&str]| assert_eq!(words(key), expected, "{key}");
        check("userGoals", &["user", "goals"]);
        check("user_goals", &["user", "goals"]);
        check("user-goals", &["user", "goals"]);
        check("USER_GOALS", &["user", "goals"]);
        check("UserGoals", &["user", "goals"]);
        check("user goals", &["user", "goals"]);
        check("  user..goals__", &["user", "goals"]);
        check("HTMLPage", &["html", "page"]);
        check("parseHTMLPage", &["parse", "html", "page"]);
        check("pageHTML", &["page", "html"]);
        check("aB", &["a", "b"]);
        check("AB", &["ab"]);
        check("step2Log", &["step", "2", "log"]);
        check("log2024", &["log", "2024"]);
        check("sha256sum", &["sha", "256", "sum"]);
        check("2", &["2"]);
        check("ÄnderungsZiel", &["änderungs", "ziel"]);
        check("цельПользователя", &["цель", "пользователя"]);
        check("鍵", &["鍵"]);
        check("", &[]);
        check("⋯/~-_", &[]);
    }

    #[test]
    fn the_contracts_patterns_give_their_classes() {
        check_keys(
            Critical,
            &[
                "userGoal",
                "user_goals",
                "userRequirements",
                "taskComplexity",
                "task-type",
                "goals",
                "projectGoal",
                "requirements",
                "decisions",
                "designDecision",
                "constraints",
                "finalAnswer",
            ],
        );
        check_keys(
            Important,
            &["analysisResults", "analysis", "findings", "keyFindings", "implementationPlan", "plan", "reasoning"],
        );
        check_keys(Useful, &["detailedAnalysis", "codeExamples", "exampleCode", "verboseOutput", "codeSnippet"]);
        check_keys(
            Ephemeral,
            &["debugInfo", "logs", "build_log", "tempFiles", "tmp", "timestamp", "lastTimestamps", "temporaryData"],
        );
    }

    /// The letters of a pattern inside of another word are not the pattern.
    #[test]
    fn a_pattern_is_matched_on_whole_words() {
        let keys = [
            "catalogItems",
            "login",
            "loginState",
            "dialog",
            "logic",
            "blog",
            "attempt",
            "attempts",
            "template",
            "temperature",
            "contemporary",
            "timestamped",
            "debugger",
            "planet",
            "explanation",
            "goalie",
            "logo",
        ];
        for key in keys {
            assert_eq!(class(key, &json!("x")), (Important, "default".to_owned()), "{key}");
        }
        assert_eq!(class("goalsScored", &json!(3)).0, Important, "of another kind");
        assert_eq!(class("decisionTree", &json!("x")).0, Important);
    }

    #[test]
    fn a_time_is_bookkeeping_only_where_there_is_one() {
        for time in [
            json!(1_767_225_600),
            json!(1_767_225_600_000u64),
            json!("2026-01-01T00:00:00Z"),
            json!("2026-01-01 10:00"),
        ] {
            assert_eq!(class("startedAt", &time).0, Ephemeral, "{time}");
        }
        for other in [json!("the left side"), json!(7), json!(null), json!(["2026-01-01T00:00:00Z"])] {
            assert_eq!(class("startedAt", &other).0, Important, "{other}");
        }
        assert_eq!(class("at", &json!(1_767_225_600)).0, Important);
    }

    #[test]
    fn what_a_value_says_can_bind_and_its_length_makes_it_useful() {
        for text in [
            "The user wants a dark theme",
            "we decided to use SQLite",
            "You must not delete the table",
            "Decision: ship on Friday",
            "Do not touch the generated files",
        ] {
            assert_eq!(class("note", &json!(text)).0, Critical, "{text}");
            assert_eq!(class("note", &json!({ "deep": [text] })).0, Critical, "{text}");
            assert_eq!(class("errorMessage", &json!(text)).0, Important, "what is quoted binds nobody: {text}");
            assert_eq!(class("userMessage", &json!(text)).0, Critical, "what the user says does: {text}");
        }
        assert_eq!(class("note", &json!("x ".repeat(300))), (Useful, "content: long".to_owned()));
        assert_eq!(class("note", &json!(vec!["xxxx"; 100])).0, Useful);
        assert_eq!(class("note", &json!("x ".repeat(100))), (Important, "default".to_owned()));
    }

    #[test]
    fn content_alone_makes_nothing_ephemeral() {
        let log = "2026-01-01T00:00:00Z DEBUG worker took job\n";
        let values = [
            json!(log),
            json!(log.repeat(50)),
            json!({ "debug": log, "timestamp": 1_767_225_600 }),
            json!("temp tmp log debug timestamp"),
            json!("2026-01-01T00:00:00Z"),
            json!(1_767_225_600_000u64),
            json!([]),
            json!(""),
            json!(null),
        ];
        for value in values {
            for key in ["toolOutput", "x", "", "⋯"] {
                let (class, rule) = class(key, &value);
                assert_ne!(class, Ephemeral, "{key}: {value}: {rule}");
            }
        }
        assert_eq!(class("toolOutput", &json!(log.repeat(50))).0, Useful);
    }

    #[test]
    fn every_verdict_names_its_rule_and_the_first_that_matches_counts() {
        let rule = |pattern: &str, class: Class, reason: Option<&str>| ContextRule {
            pattern: pattern.to_owned(),
            class,
            reason: reason.map(str::to_owned),
        };
        let all = [
            rule("^debug[12]$", Useful, Some("wanted")),
            rule("2$", Important, None),
            rule("3$", Important, None),
            rule("^$", Ephemeral, None),
        ];
        let rules = Rules::new(&["debug1".to_owned(), "⋯".to_owned()], &all).unwrap();
        let check = |key: &str, class: Class, rule: &str| {
            assert_eq!(classify(key, &json!("x"), &rules), Verdict { class, rule: rule.to_owned() }, "{key}");
        };
        check("debug1", Critical, "marked critical");
        check("⋯", Critical, "marked critical");
        check("debug2", Useful, "wanted");
        check("debug3", Important, "contextRules: 3$");
        check("debug4", Ephemeral, "key: debug");
        check("userGoal", Critical, "key: user goal");
        check("other", Important, "default");
        check("", Ephemeral, "contextRules: ^$");
        let error = Rules::new(&[], &[rule("(", Useful, None)]).unwrap_err();
        assert!(error.contains("`(`"), "{error}");
    }
}
