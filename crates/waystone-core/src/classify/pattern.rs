//! The contract's patterns and examples as data: which words of a key give which class.

use crate::api::Class::{self, Critical, Ephemeral, Important, Useful};

/// A pattern on the words of a key. All of `words` must follow each other somewhere, at the beginning where it says so.
pub(super) struct Pattern {
    pub(super) class: Class,
    at_start: bool,
    pub(super) words: &'static [&'static str],
    /// A word after them that makes them mean something else.
    not_before: &'static [&'static str],
}

const fn anywhere(class: Class, words: &'static [&'static str]) -> Pattern {
    Pattern { class, at_start: false, words, not_before: &[] }
}

const fn at_start(class: Class, words: &'static [&'static str]) -> Pattern {
    Pattern { class, at_start: true, words, not_before: &[] }
}

const fn unless_before(class: Class, words: &'static [&'static str], not_before: &'static [&'static str]) -> Pattern {
    Pattern { class, at_start: false, words, not_before }
}

/// The contract's patterns and examples, each word in singular. Before a class that loses more.
pub(super) const PATTERNS: &[Pattern] = &[
    at_start(Critical, &["user", "goal"]),
    at_start(Critical, &["user", "requirement"]),
    at_start(Critical, &["task", "complexity"]),
    at_start(Critical, &["task", "type"]),
    unless_before(
        Critical,
        &["goal"],
        &["scored", "conceded", "difference", "against", "kick", "line", "scorer", "post"],
    ),
    unless_before(Critical, &["requirement"], &["txt", "file"]),
    unless_before(Critical, &["decision"], &["tree", "boundary", "forest", "table"]),
    anywhere(Critical, &["constraint"]),
    anywhere(Critical, &["objective"]),
    anywhere(Critical, &["acceptance", "criteria"]),
    anywhere(Critical, &["success", "criteria"]),
    anywhere(Critical, &["definition", "of", "done"]),
    anywhere(Critical, &["out", "of", "scope"]),
    anywhere(Critical, &["non", "negotiable"]),
    anywhere(Critical, &["must", "have"]),
    anywhere(Critical, &["problem", "statement"]),
    anywhere(Critical, &["final", "answer"]),
    anywhere(Critical, &["user", "story"]),
    anywhere(Critical, &["user", "request"]),
    anywhere(Critical, &["user", "need"]),
    anywhere(Critical, &["user", "intent"]),
    anywhere(Critical, &["user", "query"]),
    anywhere(Critical, &["user", "prompt"]),
    anywhere(Critical, &["original", "request"]),
    anywhere(Critical, &["initial", "request"]),
    anywhere(Critical, &["task", "description"]),
    anywhere(Critical, &["task", "statement"]),
    anywhere(Critical, &["deadline"]),
    anywhere(Critical, &["instruction"]),
    // The same words where people work in another language.
    anywhere(Critical, &["benutzerziel"]),
    anywhere(Critical, &["ziel"]),
    anywhere(Critical, &["ziele"]),
    anywhere(Critical, &["anforderung"]),
    anywhere(Critical, &["anforderungen"]),
    anywhere(Critical, &["entscheidung"]),
    anywhere(Critical, &["entscheidungen"]),
    anywhere(Critical, &["décision"]),
    anywhere(Critical, &["decisión"]),
    anywhere(Critical, &["decisiones"]),
    anywhere(Critical, &["exigence"]),
    anywhere(Critical, &["objectif"]),
    anywhere(Critical, &["objetivo"]),
    anywhere(Critical, &["requisito"]),
    // Detailed analysis is the contract's example of what is useful, analysis as such of what is important.
    anywhere(Useful, &["detailed", "analysis"]),
    at_start(Important, &["analysis"]),
    anywhere(Important, &["finding"]),
    at_start(Important, &["implementation", "plan"]),
    at_start(Important, &["implementation", "strategy"]),
    anywhere(Important, &["reasoning"]),
    anywhere(Important, &["chain", "of", "thought"]),
    anywhere(Important, &["hypothesis"]),
    anywhere(Important, &["hypotheses"]),
    anywhere(Useful, &["terraform", "plan"]),
    anywhere(Useful, &["query", "plan"]),
    unless_before(Important, &["plan"], &["output"]),
    anywhere(Important, &["strategy"]),
    anywhere(Ephemeral, &["timestamp"]),
    anywhere(Ephemeral, &["horodatage"]),
    anywhere(Ephemeral, &["zeitstempel"]),
    anywhere(Ephemeral, &["debug"]),
    anywhere(Ephemeral, &["log"]),
    anywhere(Ephemeral, &["temp"]),
    anywhere(Ephemeral, &["tmp"]),
    anywhere(Ephemeral, &["temporary"]),
    anywhere(Useful, &["code", "example"]),
    anywhere(Useful, &["example", "code"]),
    anywhere(Useful, &["sample", "code"]),
    anywhere(Useful, &["code", "sample"]),
    anywhere(Useful, &["snippet"]),
    anywhere(Useful, &["verbose"]),
];

impl Pattern {
    pub(super) fn is_match(&self, words: &[String]) -> bool {
        let is_here = |found: &[String]| found.iter().zip(self.words).all(|(word, wanted)| is_word(word, wanted));
        let goes_wrong = |after: Option<&String>| after.is_some_and(|word| self.not_before.contains(&word.as_str()));
        let mut places = words.windows(self.words.len()).enumerate();
        places.any(|(at, found)| {
            (at == 0 || !self.at_start) && is_here(found) && !goes_wrong(words.get(at + self.words.len()))
        })
    }
}

/// Singular or plural.
pub(super) fn is_word(word: &str, wanted: &str) -> bool {
    word.strip_prefix(wanted).is_some_and(|rest| rest.is_empty() || rest == "s")
}
