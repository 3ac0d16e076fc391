//! Tokens, counted with a real tokenizer: o200k_base. What is counted is compact JSON.
//!
//! Its vocabulary takes a quarter of a second and 50 MB to load, once, when something is first counted: never at the start, for a save,
//! a list or a load.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use serde_json::Value;

use crate::canon::Hash;

/// Text is counted in pieces of this length: the tokenizer's stack does not bear long runs of spaces.
const PIECE_BYTES: usize = 32 * 1024;

pub fn count(text: &str) -> usize {
    let tokenizer = tiktoken_rs::o200k_base_singleton();
    pieces(text).map(|piece| tokenizer.count_ordinary(piece)).sum()
}

/// Cuts before a space between two words, where the tokenizer cuts too, or anywhere in a run that has none.
fn pieces(mut rest: &str) -> impl Iterator<Item = &str> {
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let (piece, after) = rest.split_at(end_of_piece(rest));
        rest = after;
        Some(piece)
    })
}

fn end_of_piece(text: &str) -> usize {
    if text.len() <= PIECE_BYTES {
        return text.len();
    }
    let bytes = text.as_bytes();
    let is_between =
        |at: &usize| bytes[*at] == b' ' && bytes[at - 1].is_ascii_alphanumeric() && bytes[at + 1].is_ascii_alphabetic();
    let end = (PIECE_BYTES / 2..PIECE_BYTES).rev().find(is_between);
    end.unwrap_or_else(|| (0..=PIECE_BYTES).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(text.len()))
}

/// Counts of long texts that were counted before, by their hash: the contexts of a session are mostly alike.
#[derive(Debug, Default)]
pub struct Counts(Mutex<HashMap<Hash, usize>>);

/// A shorter text is counted faster than it is looked up.
const CACHED_BYTES_MIN: usize = 1024;
const CACHED_MAX: usize = 4096;

impl Counts {
    /// The tokens of a value as compact JSON.
    pub fn of(&self, value: &Value) -> usize {
        let text = value.to_string();
        if text.len() < CACHED_BYTES_MIN {
            return count(&text);
        }
        let hash = Hash::of(text.as_bytes());
        let lock = || self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = lock().get(&hash) {
            return *known;
        }
        let counted = count(&text);
        let mut counts = lock();
        if counts.len() >= CACHED_MAX {
            counts.clear();
        }
        counts.insert(hash, counted);
        counted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counting_in_pieces_gives_what_counting_at_once_gives() {
        let words = "the engine keeps what an agent knows, 42 times over; ".repeat(3000);
        assert!(words.len() > 4 * PIECE_BYTES);
        assert_eq!(count(&words), tiktoken_rs::o200k_base_singleton().count_ordinary(&words));
    }

    #[test]
    fn no_text_is_too_monotonous_to_be_counted() {
        for run in [" ", "\n", "a", "-", "é", "\\n"] {
            assert!(count(&run.repeat(400_000 / run.len())) > 1000, "{run:?}");
        }
        assert_eq!(count(""), 0);
    }

    #[test]
    fn a_count_is_remembered_by_its_text() {
        let counts = Counts::default();
        let long = Value::from("a long text ".repeat(200));
        assert_eq!(counts.of(&long), count(&long.to_string()));
        assert_eq!(counts.0.lock().unwrap().len(), 1);
        assert_eq!(counts.of(&long), count(&long.to_string()));
        counts.of(&Value::from("short"));
        assert_eq!(counts.0.lock().unwrap().len(), 1);
    }
}
