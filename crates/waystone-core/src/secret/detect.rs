//! Where secrets are in a text: one pass for the keywords of all rules, then only the rules whose keywords are there. A pattern is compiled
//! when it is first needed, since most texts need none.

use std::ops::Range;
use std::sync::OnceLock;

use aho_corasick::{AhoCorasick, AhoCorasickBuilder, AhoCorasickKind};
use regex::Regex;

use super::rule::{Check, Group, RULES_MAX, Rule, compile};

/// Rules are bits of it.
type Mask = u128;

const _: () = assert!(2 * RULES_MAX <= Mask::BITS as usize);

/// What is longer is not assigned to a name as a secret.
const ASSIGNED_BYTES_MAX: usize = 256;
/// What stands for a secret where it was.
const MARK: &str = "[redacted:";
const DIGITS: usize = 10;

/// A secret in a text, in bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Hit {
    pub(super) rule: usize,
    pub(super) range: Range<usize>,
}

pub(super) struct Detector {
    rules: Vec<Compiled>,
    keywords: AhoCorasick,
    /// Which rules each keyword belongs to.
    wanted_by: Vec<Mask>,
    /// Rules without keywords.
    always: Mask,
}

struct Compiled {
    rule: Rule,
    pattern: OnceLock<Regex>,
    except: OnceLock<Regex>,
}

impl Detector {
    /// The first rule is the strongest.
    pub(super) fn new(rules: Vec<Rule>) -> Self {
        let (mut words, mut wanted_by, mut always) = (Vec::new(), Vec::new(), 0);
        for (at, rule) in rules.iter().enumerate() {
            let bit = 1 << at;
            if rule.keywords.is_empty() {
                always |= bit;
            }
            words.extend(rule.keywords.iter().map(String::as_str));
            wanted_by.extend(rule.keywords.iter().map(|_| bit));
        }
        let kind = Some(AhoCorasickKind::DFA);
        let keywords = AhoCorasickBuilder::new().ascii_case_insensitive(true).kind(kind).build(&words);
        let keywords = keywords.expect("keywords are few and short");
        let compiled = |rule| Compiled { rule, pattern: OnceLock::new(), except: OnceLock::new() };
        Self { keywords, wanted_by, always, rules: rules.into_iter().map(compiled).collect() }
    }

    pub(super) fn id(&self, rule: usize) -> &str {
        &self.rules[rule].rule.id
    }

    pub(super) fn group(&self, rule: usize) -> Group {
        self.rules[rule].rule.group
    }

    /// In order, and none within another.
    pub(super) fn find(&self, text: &str) -> Vec<Hit> {
        let mut hits = Vec::new();
        self.find_by(self.wanted(text) | self.always, text, 0..text.len(), &mut hits);
        merge(hits)
    }

    /// The same in a value that has a name: what is assigned to `password` is one, where alone it might not be.
    pub(super) fn find_named(&self, name: &str, value: &str) -> Vec<Hit> {
        let mut hits = Vec::new();
        self.find_by(self.wanted(value) | self.always, value, 0..value.len(), &mut hits);
        let named = self.wanted(name);
        if named != 0 && (1..=ASSIGNED_BYTES_MAX).contains(&value.len()) {
            let text = format!("{name}=\"{value}\"");
            let start = name.len() + 2;
            let mut found = Vec::new();
            self.find_by(named, &text, start..start + value.len(), &mut found);
            let moved = |hit: Hit| Hit { range: hit.range.start - start..hit.range.end - start, ..hit };
            hits.extend(found.into_iter().map(moved));
        }
        merge(hits)
    }

    /// The rules of which a keyword is in the text.
    fn wanted(&self, text: &str) -> Mask {
        self.keywords
            .find_overlapping_iter(text)
            .fold(0, |mask, found| mask | self.wanted_by[found.pattern().as_usize()])
    }

    fn find_by(&self, mut wanted: Mask, text: &str, within: Range<usize>, hits: &mut Vec<Hit>) {
        while wanted != 0 {
            let rule = wanted.trailing_zeros() as usize;
            wanted &= wanted - 1;
            let compiled = &self.rules[rule];
            compiled.each(text, |range| {
                if within.start <= range.start && range.end <= within.end {
                    hits.push(Hit { rule, range });
                }
            });
        }
    }
}

impl Compiled {
    /// Gives each secret, and returns how many bytes were gone through.
    fn each(&self, text: &str, mut give: impl FnMut(Range<usize>)) -> usize {
        let pattern = self.pattern.get_or_init(|| compile("pattern", &self.rule.pattern).expect("rules are checked"));
        let (mut at, mut searched) = (0, 0);
        while let Some(found) = pattern.captures_at(text, at) {
            let whole = found.get_match();
            searched += whole.end() - at;
            let secret = found.iter().skip(1).flatten().next().unwrap_or(whole);
            let is_secret = !secret.is_empty() && self.holds(secret.as_str());
            if is_secret {
                give(secret.range());
            }
            // In what is none, one may begin; from a long one on that would be looked for again and again.
            let is_passed = is_secret || secret.len() > ASSIGNED_BYTES_MAX || secret.start() <= at.max(whole.start());
            at = if is_passed { whole.end() } else { secret.start() };
            if whole.is_empty() {
                let Some(next) = text[at..].chars().next() else { break };
                at += next.len_utf8();
            }
        }
        searched + text.len() - at
    }

    /// Whether what was matched is a secret.
    fn holds(&self, secret: &str) -> bool {
        let except = || {
            self.rule.except.as_ref().is_some_and(|pattern| {
                self.except.get_or_init(|| compile("except", pattern).expect("rules are checked")).is_match(secret)
            })
        };
        let holds = match self.rule.check {
            None => true,
            Some(Check::Mixed) => {
                let has = |is: fn(&u8) -> bool| secret.as_bytes().iter().any(is);
                let is_odd = |c: &u8| c.is_ascii_digit() || b"!@#$%^&*+?~".contains(c);
                secret.len() <= ASSIGNED_BYTES_MAX && has(is_odd) && has(u8::is_ascii_alphabetic)
            }
            Some(Check::Luhn) => is_card(secret),
            Some(Check::Iban) => is_iban(secret),
            Some(Check::Phone) => (8..=15).contains(&secret.bytes().filter(u8::is_ascii_digit).count()),
        };
        holds && !is_placeholder(secret) && entropy(secret) >= self.rule.entropy && !except()
    }
}

/// Those that overlap are one, by the stronger rule.
fn merge(mut hits: Vec<Hit>) -> Vec<Hit> {
    hits.sort_unstable_by_key(|hit| (hit.range.start, hit.rule));
    let mut merged: Vec<Hit> = Vec::with_capacity(hits.len());
    for hit in hits {
        match merged.last_mut() {
            Some(last) if hit.range.start < last.range.end => {
                last.range.end = last.range.end.max(hit.range.end);
                last.rule = last.rule.min(hit.rule);
            }
            _ => merged.push(hit),
        }
    }
    merged
}

pub(super) fn mark(rule: &str) -> String {
    format!("{MARK}{rule}]")
}

/// What people write where a secret would be.
fn is_placeholder(text: &str) -> bool {
    let has_run =
        |of: &[u8], length: usize| text.as_bytes().windows(length).any(|run| run.iter().all(|c| of.contains(c)));
    text.contains(MARK) || has_run(b"xX", 4) || has_run(b"*", 3) || has_run(b".", 3)
}

/// Bits for each byte, by how often each occurs.
fn entropy(text: &str) -> f64 {
    let mut counts = [0u64; 256];
    text.bytes().for_each(|byte| counts[byte as usize] += 1);
    let total = text.len() as f64;
    let share = |count: &u64| *count as f64 / total;
    counts.iter().filter(|count| **count > 0).map(share).map(|share| -share * share.log2()).sum()
}

fn is_card(text: &str) -> bool {
    let digits: Vec<u32> = text.chars().filter_map(|c| c.to_digit(10)).collect();
    let doubled = |(at, digit): (usize, &u32)| match at % 2 {
        0 => *digit,
        _ => digit * 2 / 10 + digit * 2 % 10,
    };
    let sum: u32 = digits.iter().rev().enumerate().map(doubled).sum();
    (13..=19).contains(&digits.len()) && sum.is_multiple_of(10) && digits.windows(2).any(|pair| pair[0] != pair[1])
}

fn is_iban(text: &str) -> bool {
    let text: String = text.chars().filter(|c| *c != ' ').collect();
    if !(15..=34).contains(&text.len()) {
        return false;
    }
    let rest = text[4..].chars().chain(text[..4].chars()).try_fold(0, |rest: u32, c| {
        let value = c.to_digit(36)?;
        let shifted = if value < DIGITS as u32 { rest * 10 } else { rest * 100 };
        Some((shifted + value) % 97)
    });
    rest == Some(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cards_and_accounts_have_their_check_digits() {
        let check =
            |text: &str, card: bool, iban: bool| assert_eq!((is_card(text), is_iban(text)), (card, iban), "{text}");
        check("4111 1111 1111 1111", true, false);
        check("4111-1111-1111-1112", false, false);
        check("378282246310005", true, false);
        check("0000000000000000", false, false);
        check("GB82 WEST 1234 5698 7654 32", false, true);
        check("DE89370400440532013000", false, true);
        check("DE88370400440532013000", false, false);
        check("DE89", false, false);
    }

    #[test]
    fn entropy_is_that_of_its_letters() {
        let check = |text: &str, expected: f64| assert!((entropy(text) - expected).abs() < 1e-9, "{text}");
        check("", 0.0);
        check("aaaa", 0.0);
        check("abab", 1.0);
        check("0123456789abcdef", 4.0);
    }

    #[test]
    fn no_text_is_gone_through_again_and_again() {
        let detector = Detector::new(super::super::rule::ours().to_vec());
        let parts = [
            "password=",
            "password=\"",
            "key=a1",
            "token:a1b2c3d4e5f6g7h8=",
            "eyJ",
            "a://b:",
            "--key= ",
            "bearer a1",
            "sk-",
        ];
        for part in parts {
            let text = part.repeat(200_000 / part.len());
            for rule in &detector.rules {
                let searched = rule.each(&text, |_| {});
                assert!(searched <= 32 * text.len(), "{part} by {}: {searched}", rule.rule.id);
            }
        }
    }

    #[test]
    fn what_overlaps_is_one_by_the_stronger_rule() {
        let hit = |rule, range| Hit { rule, range };
        let merged = merge(vec![hit(3, 4..9), hit(1, 6..12), hit(2, 12..13), hit(0, 20..21)]);
        assert_eq!(merged, [hit(1, 4..12), hit(2, 12..13), hit(0, 20..21)]);
    }
}
