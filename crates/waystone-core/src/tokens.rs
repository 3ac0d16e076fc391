//! Tokens, counted with a real tokenizer: o200k_base. What is counted is compact JSON.
//!
//! Its vocabulary takes a quarter of a second and 50 MB to load, once, when something is first counted: never at the start, for a save,
//! a list or a load. How far it is from what models with another vocabulary count is in [`calibration`].

mod calibration;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use tiktoken_rs::o200k_base_singleton;

use crate::canon::Hash;

pub use calibration::{Calibration, has_vocabulary};

/// Text is counted in pieces of this length: the tokenizer's stack does not bear long runs of spaces.
const PIECE_BYTES: usize = 32 * 1024;

pub fn count(text: &str) -> usize {
    let tokenizer = o200k_base_singleton();
    pieces(text).map(|piece| tokenizer.count_ordinary(piece)).sum()
}

/// How many of a text's tokens begin in each of its parts, which end at `ends` and are in order. One count for all of them, and
/// what they add up to is what the text has, up to the last end.
pub fn spread(text: &str, ends: &[usize]) -> Vec<usize> {
    let tokenizer = o200k_base_singleton();
    let (mut counts, mut part, mut at) = (vec![0; ends.len()], 0, 0);
    for token in pieces(text).flat_map(|piece| tokenizer.encode_ordinary(piece)) {
        while ends.get(part).is_some_and(|end| *end <= at) {
            part += 1;
        }
        let Some(count) = counts.get_mut(part) else { break };
        *count += 1;
        at += tokenizer.decode_bytes(&[token]).map_or(0, |bytes| bytes.len());
    }
    counts
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

/// What was counted before, by the hash of the text: the same context is viewed again and again.
#[derive(Debug, Default)]
pub struct Counts(Mutex<HashMap<Hash, Arc<[usize]>>>);

const CACHED_MAX: usize = 1024;

impl Counts {
    /// [`spread`], from what is known if it was asked before. A text has its parts always at the same places.
    pub fn spread(&self, text: &str, ends: &[usize]) -> Arc<[usize]> {
        let hash = Hash::of(text.as_bytes());
        let lock = || self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = lock().get(&hash).filter(|known| known.len() == ends.len()) {
            return Arc::clone(known);
        }
        let counted: Arc<[usize]> = spread(text, ends).into();
        let mut counts = lock();
        if counts.len() >= CACHED_MAX {
            counts.clear();
        }
        counts.insert(hash, Arc::clone(&counted));
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
        assert_eq!(count(&words), o200k_base_singleton().count_ordinary(&words));
    }

    #[test]
    fn no_text_is_too_monotonous_to_be_counted() {
        for run in [" ", "\n", "a", "-", "é", "\\n"] {
            assert!(count(&run.repeat(400_000 / run.len())) > 1000, "{run:?}");
        }
        assert_eq!(count(""), 0);
    }

    #[test]
    fn tokens_belong_to_the_part_that_they_begin_in() {
        let text = r#"{"a":"one two three","b":[1,2,3],"c":"äöü 漢字"}"#;
        let ends = [21, 33, text.len()];
        let counts = spread(text, &ends);
        assert_eq!(counts.iter().sum::<usize>(), count(text));
        assert!(counts.iter().all(|count| *count > 2), "{counts:?}");
        assert_eq!(spread(text, &[]), Vec::<usize>::new());
        assert_eq!(spread("", &[0, 0]), [0, 0]);
        assert_eq!(spread("one two", &[0, 3, 3, 7]), [0, 1, 0, 1]);
    }

    #[test]
    fn a_count_is_remembered_by_its_text() {
        let counts = Counts::default();
        let first = counts.spread("one two", &[3, 7]);
        assert!(Arc::ptr_eq(&first, &counts.spread("one two", &[3, 7])));
        assert_eq!(*counts.spread("one two", &[7]), [2]);
        assert_eq!(*counts.spread("one two three", &[13]), [3]);
    }
}
