//! Meaning: a vector for each wordpiece, made once from a language model, and for a text the sum of its pieces' vectors, each weighted by
//! how rare it is. There is no model here, only a table; `tools/vectors.py` makes it.

use std::collections::HashMap;
use std::sync::LazyLock;

use unicode_normalization::UnicodeNormalization;
use unicode_normalization::char::is_combining_mark;

use crate::words::humps;

pub const DIMENSIONS: usize = 128;
/// Magic, number of rows, and number of dimensions come first.
const HEADER_BYTES: usize = 16;
/// A scale and a number for each dimension.
const ROW_BYTES: usize = 4 + DIMENSIONS;
/// Longer words are no words.
const WORD_CHARS_MAX: usize = 100;

static VECTORS: &[u8] = include_bytes!("../data/vectors.bin");
static VOCABULARY: LazyLock<Vocabulary> = LazyLock::new(|| Vocabulary::read(include_str!("../data/vocab.txt")));

/// The number of a wordpiece in the table.
pub type Piece = u16;
/// What a text means, to be compared with others.
pub type Vector = [i8; DIMENSIONS];

#[derive(Default)]
struct Vocabulary {
    /// Pieces that a word begins with, and those inside of one.
    first: HashMap<&'static str, Piece>,
    inner: HashMap<&'static str, Piece>,
    /// Bytes of the longest.
    longest: usize,
}

impl Vocabulary {
    fn read(text: &'static str) -> Self {
        let mut vocabulary = Self::default();
        for (number, line) in text.lines().enumerate() {
            let number = Piece::try_from(number).expect("the table has fewer rows");
            vocabulary.longest = vocabulary.longest.max(line.len());
            match line.strip_prefix("##") {
                Some(inner) => vocabulary.inner.insert(inner, number),
                None => vocabulary.first.insert(line, number),
            };
        }
        vocabulary
    }

    /// The pieces of a word, the longest first that fits; none if a part of it is unknown.
    fn split(&self, word: &str, pieces: &mut Vec<Piece>) {
        let begun = pieces.len();
        let mut rest = word;
        while !rest.is_empty() {
            let known = if pieces.len() == begun { &self.first } else { &self.inner };
            let longest = (1..=rest.len().min(self.longest)).rev().filter(|end| rest.is_char_boundary(*end));
            let Some((end, piece)) = longest.filter_map(|end| Some((end, *known.get(&rest[..end])?))).next() else {
                return pieces.truncate(begun);
            };
            pieces.push(piece);
            rest = &rest[end..];
        }
    }
}

/// The wordpieces of a text, in lower case and without accents; names in camelCase by their parts.
pub fn pieces(text: &str) -> Vec<Piece> {
    let vocabulary = &*VOCABULARY;
    let mut pieces = Vec::with_capacity(text.len() / 4);
    let mut plain = String::new();
    for run in text.split(|c: char| !c.is_alphanumeric() && !is_combining_mark(c)).filter(|run| !run.is_empty()) {
        for part in humps(run) {
            plain.clear();
            match part.is_ascii() {
                true => plain.extend(part.chars().map(|c| c.to_ascii_lowercase())),
                false => plain.extend(part.to_lowercase().nfd().filter(|c| !is_combining_mark(*c))),
            }
            // Each of these is a word.
            for word in plain.split_inclusive(is_ideograph) {
                let (word, ideograph) = match word.char_indices().next_back() {
                    Some((at, last)) if is_ideograph(last) => word.split_at(at),
                    _ => (word, ""),
                };
                for word in [word, ideograph] {
                    if word.len() <= 4 * WORD_CHARS_MAX && word.chars().count() <= WORD_CHARS_MAX {
                        vocabulary.split(word, &mut pieces);
                    }
                }
            }
        }
    }
    pieces
}

fn is_ideograph(c: char) -> bool {
    matches!(c, '\u{3400}'..='\u{4dbf}' | '\u{4e00}'..='\u{9fff}' | '\u{f900}'..='\u{faff}' | '\u{20000}'..='\u{2ceaf}'
        | '\u{2f800}'..='\u{2fa1f}')
}

/// In how many texts each piece occurs.
#[derive(Debug, Clone)]
pub struct Frequencies {
    texts: u32,
    counts: Vec<u32>,
}

impl Default for Frequencies {
    fn default() -> Self {
        Self { texts: 0, counts: vec![0; (VECTORS.len() - HEADER_BYTES) / ROW_BYTES] }
    }
}

impl Frequencies {
    /// Counts a text.
    pub fn add(&mut self, pieces: &[Piece]) {
        self.texts += 1;
        let mut distinct = pieces.to_vec();
        distinct.sort_unstable();
        distinct.dedup();
        for piece in distinct {
            if let Some(count) = self.counts.get_mut(usize::from(piece)) {
                *count += 1;
            }
        }
    }

    /// How rare a piece is.
    fn weight(&self, piece: Piece) -> f32 {
        let count = self.counts.get(usize::from(piece)).copied().unwrap_or(0) as f32;
        ((self.texts as f32 - count + 0.5) / (count + 0.5)).ln_1p()
    }

    /// About how many texts have a word: as many as its rarest piece.
    pub fn of_word(&self, word: &str) -> u32 {
        let counts = pieces(word).into_iter().filter_map(|piece| self.counts.get(usize::from(piece)));
        counts.min().copied().unwrap_or(1)
    }

    /// What a text of these pieces means.
    pub fn vector(&self, pieces: &[Piece]) -> Vector {
        let mut sum = [0f32; DIMENSIONS];
        for piece in pieces {
            let Some(row) = row_of(*piece) else { continue };
            let (scale, numbers) = row.split_at(4);
            let scale = f32::from_le_bytes([scale[0], scale[1], scale[2], scale[3]]);
            let weight = scale * self.weight(*piece);
            for (sum, number) in sum.iter_mut().zip(numbers) {
                *sum += weight * f32::from(number.cast_signed());
            }
        }
        let largest = sum.iter().fold(0f32, |largest, number| largest.max(number.abs()));
        let scale = if largest > 0.0 { 127.0 / largest } else { 0.0 };
        // Within -127 and 127, as the largest of them is 127.
        sum.map(|number| (number * scale).round() as i8)
    }
}

fn row_of(piece: Piece) -> Option<&'static [u8]> {
    let start = HEADER_BYTES + usize::from(piece) * ROW_BYTES;
    VECTORS.get(start..start + ROW_BYTES)
}

/// How long a vector is.
pub fn norm(vector: &Vector) -> f32 {
    (dot(vector, vector) as f32).sqrt()
}

/// What two vectors have in common.
#[inline(always)]
fn dot(a: &Vector, b: &Vector) -> i32 {
    a.iter().zip(b).map(|(a, b)| i32::from(*a) * i32::from(*b)).sum()
}

/// What each of many vectors has in common with one. Most of the time of a search is spent here.
pub fn dots(vectors: &[Vector], wanted: &Vector) -> Vec<i32> {
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("avx2") {
        #[expect(unsafe_code, reason = "the processor was just asked whether it has these instructions")]
        return unsafe { dots_avx2(vectors, wanted) };
    }
    vectors.iter().map(|vector| dot(vector, wanted)).collect()
}

/// The same lines, compiled for processors with wider registers: three times as fast.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn dots_avx2(vectors: &[Vector], wanted: &Vector) -> Vec<i32> {
    vectors.iter().map(|vector| dot(vector, wanted)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words_of(text: &str) -> Vec<String> {
        let inverse = |piece: Piece| {
            let found =
                VOCABULARY.first.iter().find(|(_, number)| **number == piece).map(|(text, _)| (*text).to_owned());
            found.unwrap_or_else(|| {
                let inner = VOCABULARY.inner.iter().find(|(_, number)| **number == piece).unwrap().0;
                format!("##{inner}")
            })
        };
        pieces(text).into_iter().map(inverse).collect()
    }

    #[test]
    fn a_text_is_cut_into_pieces_that_the_table_has() {
        let check = |text: &str, expected: &[&str]| assert_eq!(words_of(text), expected, "{text:?}");
        check("The database", &["the", "database"]);
        check("loadUserById", &["load", "user", "by", "id"]);
        check("HTTPServer_error", &["http", "server", "error"]);
        check("unaffable", &["una", "##ffa", "##ble"]);
        check("Größe", &["gr", "##o", "##ße"]);
        check("café", &["cafe"]);
        check("日本", &["日", "本"]);
        check("", &[]);
        check("\u{0}!?…", &[]);
        check(&"x".repeat(200), &[]);
    }

    #[test]
    fn what_means_nearly_the_same_is_nearer_than_what_does_not() {
        let mut frequencies = Frequencies::default();
        let texts = ["the dog barks", "a puppy and a canine", "the database has tables", "sql queries"];
        texts.iter().for_each(|text| frequencies.add(&pieces(text)));
        let near = |a: &str, b: &str| {
            let (a, b) = (frequencies.vector(&pieces(a)), frequencies.vector(&pieces(b)));
            dot(&a, &b) as f32 / (norm(&a) * norm(&b))
        };
        assert!(near("dog", "puppy") > near("dog", "sql") + 0.2);
        assert!(near("database", "sql queries") > near("database", "puppy") + 0.2);
        assert_eq!(frequencies.vector(&[]), [0; DIMENSIONS]);
    }

    #[test]
    fn a_word_is_as_frequent_as_its_rarest_piece() {
        let mut frequencies = Frequencies::default();
        (0..3).for_each(|_| frequencies.add(&pieces("the the unaffable")));
        frequencies.add(&pieces("the"));
        assert_eq!(frequencies.of_word("the"), 4);
        assert_eq!(frequencies.of_word("unaffable"), 3);
        assert_eq!(frequencies.of_word("dog"), 0);
        assert_eq!(frequencies.of_word("\u{1f600}"), 1, "what has no piece may still occur");
    }
}
