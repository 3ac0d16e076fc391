//! Text cut into pieces that are kept or left out whole: lines, sentences of long lines, members of JSON.

use serde::de::IgnoredAny;

/// A line up to this length is one piece.
const LINE_MAX: usize = 240;
/// Sentences are joined up to this length.
const SENTENCE_MIN: usize = 80;
/// A JSON value up to this length is one piece.
const VALUE_MAX: usize = 40;
/// A piece says something from this many words on.
pub(super) const WORDS_MIN: usize = 3;

/// A piece of a text.
#[derive(Debug, PartialEq)]
pub(super) struct Piece {
    pub(super) text: String,
    /// It goes on in the line of the piece before.
    pub(super) is_joined: bool,
}

/// Cuts a text. One that is JSON is minified first; the second value says so.
pub(super) fn cut(text: &str) -> (Vec<Piece>, bool) {
    if let Some(pieces) = cut_json(text) {
        return (pieces, true);
    }
    (cut_lines(text), false)
}

/// Cuts a text into pieces that make the same text again.
pub(super) fn cut_lines(text: &str) -> Vec<Piece> {
    let mut pieces = Vec::new();
    for line in text.split('\n') {
        cut_line(line, &mut pieces);
    }
    pieces
}

fn cut_line(line: &str, pieces: &mut Vec<Piece>) {
    let (mut rest, mut is_joined) = (line, false);
    while rest.len() > LINE_MAX {
        let Some(end) = end_of_sentence(rest) else { break };
        let (sentence, after) = rest.split_at(end);
        pieces.push(Piece { text: sentence.to_owned(), is_joined });
        (rest, is_joined) = (after, true);
    }
    pieces.push(Piece { text: rest.to_owned(), is_joined });
}

/// Behind the first sentence that is long enough, or a word where there is no sentence.
fn end_of_sentence(line: &str) -> Option<usize> {
    // Only so far: the rest may be megabytes.
    let reach = (0..=LINE_MAX.min(line.len())).rev().find(|at| line.is_char_boundary(*at)).unwrap_or(0);
    let (whole, line) = (line.len(), &line[..reach]);
    let ends = |needle: &'static str| {
        line.match_indices(needle).map(move |(at, found)| at + found.len()).find(|end| *end >= SENTENCE_MIN)
    };
    let sentence = [". ", "; ", "! ", "? "].into_iter().filter_map(ends).min();
    let word = || line.rfind(' ').map(|at| at + 1);
    sentence.or_else(word).or(Some(reach)).filter(|end| 0 < *end && *end < whole)
}

/// JSON is cut behind commas, and pieces are joined up to a certain length, but not into the next object. Nothing but white space is left
/// out: a number stays as it was written.
fn cut_json(text: &str) -> Option<Vec<Piece>> {
    let trimmed = text.trim();
    if !trimmed.starts_with(['{', '[']) || serde_json::from_str::<IgnoredAny>(trimmed).is_err() {
        return None;
    }
    let mut pieces: Vec<Piece> = Vec::new();
    for text in split_members(trimmed) {
        let says_little = word_count(&text) < WORDS_MIN;
        let joins = |last: &str| {
            let is_short = last.len() + text.len() <= VALUE_MAX && !text.starts_with(['{', '[']);
            word_count(last) < WORDS_MIN || is_short || (says_little && last.len() < 2 * VALUE_MAX)
        };
        match pieces.last_mut() {
            Some(last) if joins(&last.text) => last.text.push_str(&text),
            last => {
                let is_joined = last.is_some();
                pieces.push(Piece { text, is_joined });
            }
        }
    }
    Some(pieces)
}

/// Members and items of JSON, each with its comma, without white space between them.
fn split_members(json: &str) -> Vec<String> {
    let (mut parts, mut part) = (Vec::new(), String::new());
    let (mut is_text, mut is_escaped) = (false, false);
    for c in json.chars() {
        if is_text {
            is_text = c != '"' || is_escaped;
            is_escaped = c == '\\' && !is_escaped;
            part.push(c);
            continue;
        }
        if !c.is_ascii_whitespace() {
            is_text = c == '"';
            part.push(c);
        }
        if c == ',' {
            parts.push(std::mem::take(&mut part));
        }
    }
    parts.push(part);
    parts
}

/// Up to [`WORDS_MIN`] words of `text`.
pub(super) fn word_count(text: &str) -> usize {
    text.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|word| !word.is_empty()).take(WORDS_MIN).count()
}
