//! Made-up text that has its words as often as real text has: the second most frequent half as often as the first, the third a third.
//! The words are those of the product's own vocabulary, which lists them by how frequent they are.

use std::fs;

use anyhow::{Context, ensure};
use waystone_testkit::contexts::Random;

use crate::root;

const VOCABULARY: &str = "crates/waystone-core/data/vocab.txt";
/// As many words come first that nearly every text has some of.
const COMMON: usize = 300;
/// Words of a text.
const WORDS: std::ops::RangeInclusive<u64> = 20..=80;
/// Words of a question that are taken from a text, and common ones besides.
const ASKED: (usize, usize) = (5, 2);

pub(super) struct Language {
    words: Vec<String>,
    /// How often a word or one before it comes, out of the last of these numbers.
    sums: Vec<f64>,
}

impl Language {
    pub(super) fn read() -> anyhow::Result<Self> {
        let text =
            fs::read_to_string(root().join(VOCABULARY)).with_context(|| format!("{VOCABULARY} cannot be read"))?;
        let is_word = |line: &&str| line.len() > 1 && line.bytes().all(|byte| byte.is_ascii_lowercase());
        let words: Vec<String> = text.lines().filter(is_word).map(str::to_owned).collect();
        ensure!(words.len() > 10_000, "{VOCABULARY} has {} words only", words.len());
        let frequencies = (1..=words.len()).map(|rank| 1.0 / rank as f64);
        let sums = frequencies.scan(0.0, |sum, frequency| {
            *sum += frequency;
            Some(*sum)
        });
        Ok(Self { sums: sums.collect(), words })
    }

    pub(super) fn text(&self, random: &mut Random) -> String {
        let length = WORDS.start() + random.below(WORDS.end() - WORDS.start() + 1);
        (0..length).map(|_| self.word(random)).collect::<Vec<_>>().join(" ")
    }

    fn word(&self, random: &mut Random) -> &str {
        let share = random.number() as f64 / u64::MAX as f64;
        let at = self.sums.partition_point(|sum| *sum < share * self.sums[self.sums.len() - 1]);
        &self.words[at.min(self.words.len() - 1)]
    }

    /// Words of one of `texts`, and common ones.
    pub(super) fn question(&self, random: &mut Random, texts: &[String]) -> String {
        let text = &texts[random.below(texts.len() as u64) as usize];
        let mut words: Vec<&str> = text.split(' ').collect();
        random.shuffle(&mut words);
        words.truncate(ASKED.0);
        words.extend((0..ASKED.1).map(|_| self.words[random.below(COMMON as u64) as usize].as_str()));
        random.shuffle(&mut words);
        words.join(" ")
    }

    /// A word of one of `texts` that is not common.
    pub(super) fn rare_word<'a>(&self, random: &mut Random, texts: &'a [String]) -> &'a str {
        loop {
            let text = &texts[random.below(texts.len() as u64) as usize];
            let words: Vec<&str> = text.split(' ').collect();
            let word = words[random.below(words.len() as u64) as usize];
            if !self.words[..COMMON].iter().any(|common| common == word) {
                return word;
            }
        }
    }
}
