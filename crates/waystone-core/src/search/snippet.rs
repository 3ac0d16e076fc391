//! The line of a text that is shown beside a hit.

use std::collections::HashSet;

use aho_corasick::AhoCorasick;

use super::{STOP_WORDS, exact_terms, runs};
use crate::script::{pairs, unspaced_runs};
use crate::words::humps;

/// As many characters are shown.
const CHARS: usize = 240;
/// No more of a text, of a line and of a query is looked at closely; for every hit all of it is gone through, and in a longer text only
/// lines with one of the words count.
const TEXT_BYTES: usize = 256 * 1024;
const LINE_BYTES: usize = 16 * 1024;
const WORDS_MAX: usize = 32;
/// What counts of a long word: another form of it has the same beginning.
const STEM_CHARS: usize = 6;

/// What is shown of a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snippet {
    pub text: String,
    /// Which line it is, from 1 on.
    pub line: u64,
}

/// The line of a text that has most of the words of a query, or else its first, cut to what can be shown.
pub fn snippet(text: &str, query: &str) -> Snippet {
    let stop: HashSet<&str> = STOP_WORDS.split_whitespace().collect();
    let words = runs(query).map(str::to_lowercase).filter(|word| !stop.contains(word.as_str()));
    let stems: HashSet<String> = words.map(|word| stem(&word).to_owned()).take(WORDS_MAX).collect();
    let exact = exact_terms(query);
    let parts: Vec<String> = unspaced_runs(query).iter().flat_map(|run| parts_of(run)).take(WORDS_MAX).collect();
    let has_word = Words::of(&stems, text.len() > TEXT_BYTES);
    let (mut best, mut most, mut number, mut read) = ("", 0, 1, 0);
    let lines = text.lines().map(str::trim).zip(1..).filter(|(line, _)| !line.is_empty());
    for (line, at) in lines {
        let line = &line[..line.floor_char_boundary(LINE_BYTES)];
        if !best.is_empty() && !has_word.is_in(line) {
            continue;
        }
        read += line.len();
        if read > TEXT_BYTES {
            break;
        }
        let found: HashSet<&str> = runs(line).flat_map(|run| found_in(run, &stems)).collect();
        let named = match exact.is_empty() || found.is_empty() {
            true => 0,
            false => {
                let plain = format!(" {} ", runs(line).collect::<Vec<_>>().join(" ").to_lowercase());
                exact.iter().filter(|term| plain.contains(&format!(" {term} "))).count()
            }
        };
        // A line that says something is shown rather than a title, where none fits.
        let found = found.len() + parts.iter().filter(|part| line.contains(part.as_str())).count();
        let worth = WORDS_MAX * named + 2 * found + usize::from(line.split_whitespace().nth(2).is_some());
        if best.is_empty() || worth > most {
            (best, most, number) = (line, worth, at);
        }
    }
    let first = runs(best).find(|run| found_in(run, &stems).next().is_some());
    let first = first.map(|run| run.as_ptr() as usize - best.as_ptr() as usize);
    let at = parts.iter().filter_map(|part| best.find(part.as_str())).chain(first).min().unwrap_or(0);
    let (before, length) = (best[..at].chars().count(), best.chars().count());
    let skip = if length <= CHARS { 0 } else { before.saturating_sub(CHARS / 3) };
    let shown: String = best.chars().skip(skip).take(CHARS).collect();
    let (head, tail) = (if skip > 0 { "…" } else { "" }, if length > skip + CHARS { "…" } else { "" });
    Snippet { text: format!("{head}{shown}{tail}"), line: number }
}

/// Finds lines that may have one of the words, without a close look at the others.
struct Words(Option<AhoCorasick>);

impl Words {
    fn of(stems: &HashSet<String>, is_needed: bool) -> Self {
        let find = || AhoCorasick::builder().ascii_case_insensitive(true).build(stems).ok();
        Self(is_needed.then(find).flatten())
    }

    fn is_in(&self, line: &str) -> bool {
        // Letters beyond ASCII have capitals that are not looked for.
        self.0.as_ref().is_none_or(|words| !line.is_ascii() || words.is_match(line))
    }
}

/// Which of the stems a run of letters or a part of it begins with.
fn found_in<'a>(run: &'a str, stems: &'a HashSet<String>) -> impl Iterator<Item = &'a str> {
    [run].into_iter().chain(humps(run)).flat_map(move |part| {
        let lower: String = part.chars().take(STEM_CHARS).collect::<String>().to_lowercase();
        let ends: Vec<usize> = lower.char_indices().map(|(at, _)| at).skip(1).chain([lower.len()]).collect();
        ends.into_iter().filter_map(move |end| stems.get(&lower[..end]).map(String::as_str)).collect::<Vec<_>>()
    })
}

/// What of a run without spaces is looked for in a line.
fn parts_of(run: &[char]) -> Vec<String> {
    if let [one] = run { vec![one.to_string()] } else { pairs(run).collect() }
}

fn stem(word: &str) -> &str {
    let plain = ["ing", "ed", "s"].iter().find_map(|end| word.strip_suffix(end)).filter(|rest| rest.len() > 2);
    let word = plain.unwrap_or(word);
    &word[..word.char_indices().map(|(at, _)| at).nth(STEM_CHARS).unwrap_or(word.len())]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_snippet_is_the_line_with_most_of_the_words() {
        let text = "first line\n\nthe ledger is here\n  cannot open the Ledger file: permissions\nlast";
        let check = |query: &str, expected: &str| assert_eq!(snippet(text, query).text, expected, "{query}");
        check("why could the ledger not be opened, permission?", "cannot open the Ledger file: permissions");
        check("ledger", "the ledger is here");
        check("nothing of it", "the ledger is here");
        assert_eq!(snippet("一切正常\n数据库连接失败", "连接失败").text, "数据库连接失败");
        let found = snippet("Exit code 1\n--- FAIL: TestRetry", "retry tests failing");
        assert_eq!(found, Snippet { text: "--- FAIL: TestRetry".to_owned(), line: 2 });
        check("", "the ledger is here");
        assert_eq!(
            snippet("goal: ship invoice export\nnext: write export_invoice now", "export_invoice").text,
            "next: write export_invoice now"
        );
        assert_eq!(snippet("", "x").text, "");
        let long = format!("{} needle {}", "hay ".repeat(500), "straw ".repeat(500));
        let found = snippet(&long, "needle").text;
        assert!(found.contains("needle") && found.starts_with('…') && found.ends_with('…'), "{found}");
        assert_eq!(found.chars().count(), CHARS + 2);
        assert_eq!(snippet("größe ÄÖÜ straße", "STRASSE größe").text, "größe ÄÖÜ straße");
    }

    #[test]
    fn a_long_query_and_a_long_text_are_looked_at_in_bounds() {
        let query: String = (0..4000).map(|n| format!("w{n} ")).collect();
        let text = format!("{}\nw7 stands here", "other words all the time ".repeat(40_000));
        assert!(!snippet(&text, &query).text.is_empty());
    }

    #[test]
    fn what_stands_at_the_end_of_a_long_text_is_found_with_its_line() {
        let log: String = (0..20_000).map(|n| format!("[{n}] cc -O2 -c src/module_{n}.c\n")).collect();
        let found =
            snippet(&format!("{log}src/ledger.c:9: error: Ledger_Open is missing\nmake: failed"), "ledger_open");
        let expected = "src/ledger.c:9: error: Ledger_Open is missing";
        assert_eq!(found, Snippet { text: expected.to_owned(), line: 20_001 });
    }
}
