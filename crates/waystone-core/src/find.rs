//! What checkpoints are found by in lists: the words and tags of their metadata, as terms of an index.
//!
//! A word is found wherever it stands inside of another, so each end of each word is a term, cut to a length, and a word is looked for as
//! the beginning of one. The index only narrows down: what it names is looked at again with [`Metadata::has_words`], so it may name too
//! much, never too little. Terms are hex, in which nothing can be taken for an operator.

use std::collections::BTreeSet;

use crate::api::Metadata;
use crate::canon::Hash;

/// Of a longer end only the beginning is a term.
const TERM_CHARS: usize = 12;
/// Metadata with more terms are looked at whatever is asked for.
const TERMS_MAX: usize = 1024;
/// Stands in the index for all that such metadata say.
const ANYTHING: &str = "x";

/// The terms of a checkpoint, as the index takes them; empty when nothing is said of it.
pub fn terms(metadata: &Metadata, tags: &[String]) -> String {
    let mut terms = BTreeSet::new();
    metadata.each_text(&mut |text| {
        for word in text.to_lowercase().split_whitespace() {
            for (start, _) in word.char_indices() {
                if terms.len() > TERMS_MAX {
                    return;
                }
                terms.insert(term(&word[start..]));
            }
        }
    });
    if terms.len() > TERMS_MAX {
        terms = BTreeSet::from([ANYTHING.to_owned()]);
    }
    terms.extend(tags.iter().map(|tag| tag_term(tag)));
    terms.into_iter().collect::<Vec<_>>().join(" ")
}

/// What a checkpoint with all these words and tags has in the index; `None` when any has it.
pub fn expression(query: &str, tags: &[String]) -> Option<String> {
    let words = query.to_lowercase();
    let words = words.split_whitespace().map(|word| format!("(\"{}\" * OR {ANYTHING})", term(word)));
    let tags = tags.iter().map(|tag| format!("\"{}\"", tag_term(tag)));
    let all: Vec<String> = words.chain(tags).collect();
    (!all.is_empty()).then(|| all.join(" AND "))
}

/// A word, or an end of it.
fn term(word: &str) -> String {
    let end = word.char_indices().nth(TERM_CHARS).map_or(word.len(), |(end, _)| end);
    word[..end].bytes().fold("w".to_owned(), |term, byte| format!("{term}{byte:02x}"))
}

/// A tag is found whole.
fn tag_term(tag: &str) -> String {
    Hash::of(tag.as_bytes()).0[..8].iter().fold("t".to_owned(), |term, byte| format!("{term}{byte:02x}"))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn metadata(value: &Value) -> Metadata {
        Metadata::new(value.as_object().unwrap().clone()).unwrap()
    }

    /// Whether the index would name it: some term begins with each word, and each tag is one.
    fn is_named(terms: &str, query: &str, tags: &[String]) -> bool {
        let Some(expression) = expression(query, tags) else { return true };
        let terms: Vec<&str> = terms.split(' ').collect();
        expression.split(" AND ").all(|part| {
            let wanted = part.split('"').nth(1).unwrap();
            match part.starts_with('(') {
                true => terms.iter().any(|term| term.starts_with(wanted) || *term == ANYTHING),
                false => terms.contains(&wanted),
            }
        })
    }

    #[test]
    fn whatever_has_the_words_is_named() {
        let long: String = (0..4000).map(|n| format!("{n:x}")).collect();
        let all = [
            json!({ "name": "Größe İstanbul ΣΑΣ", "tags": ["a b", "ui"] }),
            json!({ "n": [1.5, { "deep": "Check\tpoint\u{a0}42" }], "true": true }),
            json!({ "path": "crates/waystone-core/src/engine/checkpoint.rs", "quote": "say \"no\" * AND" }),
            json!({ "long": long }),
            json!({}),
        ];
        for value in &all {
            let metadata = metadata(value);
            let tags: Vec<String> = metadata.tags().map(str::to_owned).collect();
            let terms = terms(&metadata, &tags);
            assert!(terms.chars().all(|c| c.is_ascii_hexdigit() || "wtx ".contains(c)), "{terms}");
            assert!(tags.iter().all(|tag| is_named(&terms, "", std::slice::from_ref(tag))));
            assert!(!is_named(&terms, "", &["u".to_owned()]), "a part of a tag is not the tag");
            let text = value.to_string();
            let starts: Vec<usize> = text.char_indices().map(|(at, _)| at).step_by(7).collect();
            for start in starts {
                for length in [1, 2, 3, 11, 12, 13, 40] {
                    let query: String = text[start..].chars().take(length).collect();
                    for query in [query.to_uppercase(), query] {
                        let is_there = metadata.has_words(&query);
                        assert!(!is_there || is_named(&terms, &query, &[]), "{query:?} in {value}");
                    }
                }
            }
        }
    }

    #[test]
    fn what_has_not_the_words_is_rarely_named() {
        let one = metadata(&json!({ "name": "Mended the parser", "tags": ["ui"] }));
        let terms = terms(&one, &["ui".to_owned()]);
        for (query, expected) in
            [("arse", true), ("mended PARSER", true), ("ars the", true), ("parsers", false), ("en dd", false)]
        {
            assert_eq!((is_named(&terms, query, &[]), one.has_words(query)), (expected, expected), "{query}");
        }
        assert_eq!(expression(" \t", &[]), None);
        assert_eq!(super::terms(&Metadata::default(), &[]), "");
        assert!(super::terms(&metadata(&json!({ "x": "y".repeat(16_000) })), &[]).len() < 40 * TERMS_MAX);
    }
}
