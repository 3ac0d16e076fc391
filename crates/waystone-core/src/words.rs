//! Words that a text must have, as a person types them: single ones, and "phrases in quotes".

use crate::script::{composed, is_unspaced};

/// What must occur in a text, whatever the case.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Words(Vec<Term>);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Term {
    Word(String),
    Phrase(String),
}

impl Words {
    /// Everything between quotes is a phrase; of the rest, runs of letters, digits and `_` are words.
    pub fn parse(query: &str) -> Self {
        let mut terms = Vec::new();
        for (at, part) in composed(query).to_lowercase().split('"').enumerate() {
            if at % 2 == 1 {
                let phrase = part.trim();
                terms.extend((!phrase.is_empty()).then(|| Term::Phrase(phrase.to_owned())));
            } else {
                terms.extend(words(part).map(|word| Term::Word(word.to_owned())));
            }
        }
        Self(terms)
    }

    /// Whether nothing is asked for, so that every text has it.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether every word stands in `text`, alone or as a part of a name such as `camelCase` or `snake_case`, and anywhere every phrase and
    /// what is written without spaces between words.
    pub fn are_in(&self, text: &str) -> bool {
        if self.0.is_empty() {
            return true;
        }
        let text = &*composed(text);
        let lower = text.to_lowercase();
        self.0.iter().all(|term| match term {
            Term::Phrase(phrase) => lower.contains(phrase.as_str()),
            Term::Word(word) => {
                lower.contains(word.as_str()) && (word.contains(is_unspaced) || has_word(text, &lower, word))
            }
        })
    }
}

fn is_letter(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !is_letter(c)).filter(|word| !word.is_empty())
}

/// Looks for a word in the text in lower case, and for one inside of a name in the text as it is.
fn has_word(text: &str, lower: &str, word: &str) -> bool {
    words(lower).any(|found| found == word || found.split('_').any(|part| part == word))
        || words(text).any(|found| has_hump(found, word))
}

/// Whether a name in camelCase has a word as one of its parts.
fn has_hump(name: &str, word: &str) -> bool {
    name.split('_').flat_map(humps).any(|part| part.to_lowercase() == word)
}

/// The parts of a name: `loadUser` has two, `HTTPServer` too, a plain word is one.
pub(crate) fn humps(name: &str) -> impl Iterator<Item = &str> {
    let mut rest = name;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let bytes = rest.as_bytes();
        let is_start = |at: &usize| {
            let (before, here) = (bytes[at - 1], bytes[*at]);
            let next_is_small = bytes.get(at + 1).is_some_and(u8::is_ascii_lowercase);
            here.is_ascii_uppercase()
                && (before.is_ascii_lowercase()
                    || before.is_ascii_digit()
                    || before.is_ascii_uppercase() && next_is_small)
        };
        let (part, after) = rest.split_at((1..bytes.len()).find(is_start).unwrap_or(bytes.len()));
        rest = after;
        Some(part)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_word_and_phrase_must_occur() {
        let check = |query: &str, text: &str, expected: bool| {
            assert_eq!(Words::parse(query).are_in(text), expected, "{query:?} in {text:?}");
        };
        check("", "anything", true);
        check("launch bugs", "Bugs of the LAUNCH", true);
        check("launch bugs", "launch day", false);
        check("数据库", "数据库连接失败,请检查端口设置", true);
        check("连接 端口", "数据库连接失败,请检查端口设置", true);
        check("连接 硬盘", "数据库连接失败,请检查端口设置", false);
        check("데이터베이스", "데이터베이스를 연결", true);
        check("caf\u{e9}", "a cafe\u{301} nearby", true);
        check("cafe\u{301}", "a caf\u{e9} nearby", true);
        check("art", "a start", false);
        check("user", "fn loadUserById()", true);
        check("user", "get_user_name", true);
        check("http", "parseHTTPRequest", true);
        check("request", "parseHTTPRequest", true);
        check("get_user", "get_user_name", false);
        check("get_user_name", "call get_user_name()", true);
        check("\"old documentation\"", "the Old Documentation is", true);
        check("\"old documentation\"", "documentation is old", false);
        check("\"a-b\" c", "c a-b", true);
        check("größe", "die GRÖSSE, Größe", true);
        check("\"", "x", true);
        check("!!! ???", "x", true);
        check("a\0b", "a b", true);
    }
}
