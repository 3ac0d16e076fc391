//! Text cut into pieces that are kept or left out whole: lines, sentences of long lines, members of JSON.

use serde_json::Value;

/// A line up to this length is one piece.
const LINE_MAX: usize = 240;
/// Sentences are joined up to this length.
const SENTENCE_MIN: usize = 80;
/// A JSON value up to this length is one piece.
const VALUE_MAX: usize = 60;
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
    let mut pieces = Vec::new();
    for line in text.split('\n') {
        cut_line(line, &mut pieces);
    }
    (pieces, false)
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
    let ends = |needle: &'static str| {
        line.match_indices(needle).map(move |(at, found)| at + found.len()).find(|end| *end >= SENTENCE_MIN)
    };
    let sentence = [". ", "; ", "! ", "? "].into_iter().filter_map(ends).min().filter(|end| *end <= LINE_MAX);
    let word = || line.match_indices(' ').map(|(at, _)| at + 1).take_while(|end| *end <= LINE_MAX).last();
    let anywhere = || (0..=LINE_MAX).rev().find(|at| line.is_char_boundary(*at) && *at > 0);
    sentence.or_else(word).or_else(anywhere).filter(|end| *end < line.len())
}

fn cut_json(text: &str) -> Option<Vec<Piece>> {
    let trimmed = text.trim();
    if !trimmed.starts_with(['{', '[']) {
        return None;
    }
    let value: Value = serde_json::from_str(trimmed).ok()?;
    let mut parts = Vec::new();
    cut_value(&value, String::new(), "", &mut parts);
    let mut pieces: Vec<Piece> = Vec::new();
    for text in parts {
        let says_little = word_count(&text) < WORDS_MIN;
        match pieces.last_mut() {
            Some(last) if word_count(&last.text) < WORDS_MIN || (says_little && last.text.len() < 2 * VALUE_MAX) => {
                last.text.push_str(&text);
            }
            last => {
                let is_joined = last.is_some();
                pieces.push(Piece { text, is_joined });
            }
        }
    }
    Some(pieces)
}

fn cut_value(value: &Value, before: String, after: &str, parts: &mut Vec<String>) {
    let whole = value.to_string();
    let members: Vec<(String, &Value)> = match value {
        Value::Object(map) if whole.len() > VALUE_MAX => {
            map.iter().map(|(key, value)| (format!("{}:", Value::from(key.as_str())), value)).collect()
        }
        Value::Array(items) if whole.len() > VALUE_MAX => items.iter().map(|item| (String::new(), item)).collect(),
        _ => return parts.push(before + &whole + after),
    };
    let (open, close) = if value.is_object() { ("{", "}") } else { ("[", "]") };
    let mut lead = before + open;
    let last = members.len() - 1;
    for (at, (key, member)) in members.into_iter().enumerate() {
        let end = if at == last { format!("{close}{after}") } else { ",".to_owned() };
        cut_value(member, std::mem::take(&mut lead) + &key, &end, parts);
    }
}

/// Up to [`WORDS_MIN`] words of `text`.
pub(super) fn word_count(text: &str) -> usize {
    text.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|word| !word.is_empty()).take(WORDS_MIN).count()
}
