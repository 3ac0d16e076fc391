//! Search: which words of a query are looked for, and how what was found by words and by meaning becomes one order.

mod snippet;
mod text;

use std::collections::{HashMap, HashSet};

use crate::script::{composed, pairs, unspaced_runs};
use crate::words::humps;

pub use snippet::{Snippet, snippet};
pub use text::{searched, searched_message, text_of_context, words_of_message};

/// The share of words in a score; meaning has the rest.
const WORDS: f32 = 0.8;
/// What a segment gets of the best one beside it in its task, and of the best one after that.
const NEIGHBOURS: [f32; 2] = [0.35, 0.25];
/// What is not nearer in meaning, and has no word of the query, is not found.
pub const NEAR: f32 = 0.35;
/// So many are found by their meaning.
pub const NEAREST: usize = 100;
/// What is not nearer in meaning, and has no word of the query, is not retrieved: words that are none come as near as 0.52 to what has
/// nothing to do with them.
const RETRIEVED_NEAR: f32 = 0.55;
/// Nor is what fits less than this share of what fits best.
const RETRIEVED_SHARE: f32 = 0.3;
/// Words are taken, the rarest first, until so many texts have one.
const TEXTS_MAX: u32 = 5000;
/// As many phrases, names and paths of a query are looked for as they are.
const EXACT_MAX: usize = 32;
/// What stands in a text as it was named counts so much more.
pub const EXACT: f32 = 1.0;

/// Words that say nothing of what is looked for.
const STOP_WORDS: &str = "a about after again all am an and any are as at be because been before being but by can could did do \
    does doing down during each few for from had has have having he her here him his how i if in into is it its just me more most \
    my no not of off on once only or other our out over own she should so some such than that the their them then there these \
    they this those to too under until up very was we were what when where which while who whom why will with would you your";

/// What the index of words is given for a text: the text, the parts of its names in camelCase, and of runs without spaces between words
/// the pairs of characters. Parts of names in snake_case the index finds by itself.
pub fn indexed(text: &str) -> String {
    let text = &*composed(text);
    let mut all = text.to_owned();
    for run in runs(text) {
        let mut parts = humps(run).peekable();
        let first = parts.next();
        if parts.peek().is_some() {
            for part in first.into_iter().chain(parts) {
                all.push(if all.len() == text.len() { '\n' } else { ' ' });
                all.push_str(part);
            }
        }
    }
    for run in unspaced_runs(text) {
        // The last character alone, so that each begins a word.
        for word in pairs(&run).chain(run.last().map(char::to_string)) {
            all.push(' ');
            all.push_str(&word);
        }
    }
    all
}

fn runs(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !c.is_alphanumeric()).filter(|run| !run.is_empty())
}

/// What to look for, as the index of words understands it.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Wanted {
    /// Any of these; `None` if there is no word in the query.
    pub words: Option<String>,
    /// Those among them that were named as they stand in a text: quoted phrases, names and paths.
    pub exact: Option<String>,
    /// Words that too many texts have were left out.
    pub is_cut: bool,
    /// The rarest of those.
    pub common: Option<String>,
}

impl Wanted {
    /// Its words one by one.
    pub fn each_word(&self) -> impl Iterator<Item = &str> {
        self.words.iter().flat_map(|words| words.split(OR))
    }
}

/// Behind a term that is the beginning of words.
const BEGINS: char = '*';
/// It stands in no word, for those are in lower case.
const OR: &str = " OR ";

/// Reads a query. `frequency` says about how many texts have a word.
pub fn wanted(query: &str, frequency: impl Fn(&str) -> u32) -> Wanted {
    let query = &*composed(query);
    let exact = exact_terms(query);
    let stop: HashSet<&str> = STOP_WORDS.split_whitespace().collect();
    let mut terms: Vec<String> =
        runs(query).flat_map(|run| [run.to_lowercase()].into_iter().chain(humps(run).map(str::to_lowercase))).collect();
    if terms.iter().any(|term| !stop.contains(term.as_str())) {
        terms.retain(|term| !stop.contains(term.as_str()));
    }
    for run in unspaced_runs(query) {
        match &run[..] {
            [one] => terms.push(format!("{one}{BEGINS}")),
            run => terms.extend(pairs(run)),
        }
    }
    let mut ranked: Vec<(u32, String)> = terms.into_iter().map(|term| (frequency(&term), term)).collect();
    ranked.sort();
    ranked.dedup();
    let (mut taken, mut texts, mut is_cut, mut common) = (exact.clone(), 0, false, None);
    for (count, term) in ranked {
        if taken.contains(&term) {
            continue;
        }
        if !taken.is_empty() && texts + count > TEXTS_MAX {
            (is_cut, common) = (true, any_of(&[term]));
            break;
        }
        texts += count;
        taken.push(term);
    }
    Wanted { words: any_of(&taken), exact: any_of(&exact), is_cut, common }
}

/// Only letters and digits are left of a query, so that nothing in it is taken for an operator.
fn any_of(terms: &[String]) -> Option<String> {
    let quote = |term: &String| match term.strip_suffix(BEGINS) {
        Some(beginning) => format!("\"{beginning}\"{BEGINS}"),
        None => format!("\"{term}\""),
    };
    let quoted: Vec<String> = terms.iter().map(quote).collect();
    (!quoted.is_empty()).then(|| quoted.join(OR))
}

/// Quoted phrases, and what has the form of a name or a path: `load_user`, `loadUser`, `src/main.rs`, `E0425`.
fn exact_terms(query: &str) -> Vec<String> {
    let phrase = |text: &str| runs(text).collect::<Vec<_>>().join(" ").to_lowercase();
    let parts: Vec<&str> = query.split('"').collect();
    // A quote that is not closed quotes nothing.
    let quoted = parts.iter().enumerate().filter(|(at, _)| at % 2 == 1 && at + 1 < parts.len()).map(|(_, part)| *part);
    let is_name = |word: &&str| {
        let is_joined = runs(word).count() > 1 && !word.contains(['\'', '\u{2019}']);
        let is_mixed = word.contains(|c: char| c.is_ascii_digit()) && word.contains(char::is_alphabetic);
        // A run without spaces may be a name, and is found as it stands besides by its pairs.
        let is_unspaced = unspaced_runs(word).iter().any(|run| run.len() > 2);
        is_unspaced || is_joined || is_mixed || runs(word).any(|run| humps(run).nth(1).is_some())
    };
    let names = query.split(|c: char| c.is_whitespace() || "\"(){}[]<>,;".contains(c)).filter(is_name);
    let in_index = |part: &str| match unspaced_runs(part) {
        none if none.is_empty() => vec![phrase(part)],
        runs => runs.iter().map(|run| pairs(run).collect::<Vec<_>>().join(" ")).collect(),
    };
    let mut terms: Vec<String> = quoted.chain(names).flat_map(in_index).filter(|term| !term.is_empty()).collect();
    let mut seen = HashSet::new();
    terms.retain(|term| seen.insert(term.clone()));
    terms.truncate(EXACT_MAX);
    terms
}

/// A segment that was found, by its place among those of its project.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Found {
    pub place: usize,
    pub score: f32,
    pub by_words: bool,
    pub by_meaning: bool,
    /// How near it is in meaning; 0 if it was not found by that.
    pub near: f32,
}

/// Whether something is worth having back, by the score of what fits best: what stands beside a match or hardly fits is found only.
pub fn is_retrieved(found: &Found, best: f32) -> bool {
    (found.by_words || found.near > RETRIEVED_NEAR) && found.score >= RETRIEVED_SHARE * best
}

/// Joins what was found by words, with a score each, and by meaning, the nearest first with how near it is. `beside` names the segments
/// beside one in its task: one step away, and two.
pub fn join(
    words: &[(usize, f32)],
    nearest: &[(usize, f32)],
    beside: impl Fn(usize) -> [[Option<usize>; 2]; 2],
) -> Vec<Found> {
    let mut found: HashMap<usize, Found> = HashMap::new();
    let new = |place: usize| Found { place, score: 0.0, by_words: false, by_meaning: false, near: 0.0 };
    let best = words.iter().fold(0f32, |best, (_, score)| best.max(*score));
    for (place, score) in words.iter().filter(|(_, score)| *score > 0.0) {
        let entry = found.entry(*place).or_insert_with(|| new(*place));
        (entry.score, entry.by_words) = (WORDS * score / best, true);
    }
    let high = nearest.first().map_or(0.0, |(_, near)| *near);
    // With fewer than there could be, all that are near at all count.
    let low = nearest.get(NEAREST).map_or(0.0, |(_, near)| near.max(0.0));
    let has_words: HashSet<usize> = found.keys().copied().collect();
    let is_near = |place: usize, near: f32| near > NEAR || near > 0.0 && has_words.contains(&place);
    for (place, near) in nearest.iter().filter(|(place, near)| *near > low && is_near(*place, *near)) {
        let entry = found.entry(*place).or_insert_with(|| new(*place));
        entry.score += (1.0 - WORDS) * (near - low) / (high - low);
        (entry.by_meaning, entry.near) = (true, *near);
    }
    let mut lifts: HashMap<usize, f32> = HashMap::new();
    for entry in found.values() {
        for (places, share) in beside(entry.place).iter().zip(NEIGHBOURS) {
            for place in places.iter().flatten() {
                let lift = lifts.entry(*place).or_default();
                *lift = lift.max(share * entry.score);
            }
        }
    }
    for (place, lift) in lifts {
        found.entry(place).or_insert_with(|| new(place)).score += lift;
    }
    let mut all: Vec<Found> = found.into_values().collect();
    all.sort_by(|a, b| b.score.total_cmp(&a.score).then(b.place.cmp(&a.place)));
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_indexed_whole_and_by_their_parts() {
        assert_eq!(indexed("fn loadUser(id)"), "fn loadUser(id)\nload User");
        assert_eq!(indexed("HTTPServer and parseJson"), "HTTPServer and parseJson\nHTTP Server parse Json");
        assert_eq!(indexed("plain snake_case"), "plain snake_case");
        assert_eq!(indexed("数据库 cafe\u{301}"), "数据库 café 数据 据库 库");
    }

    #[test]
    fn a_query_becomes_words_the_rarest_first_and_nothing_else() {
        let frequency = |word: &str| match word {
            "common" => 4000,
            "usual" => 3000,
            _ => 1,
        };
        let check = |query: &str, words: &str, exact: &str| {
            let wanted = wanted(query, frequency);
            let found = (wanted.words.unwrap_or_default(), wanted.exact.unwrap_or_default());
            assert_eq!(found, (words.to_owned(), exact.to_owned()), "{query:?}");
        };
        check("What is the ledger?", r#""ledger""#, "");
        check("the", r#""the""#, "");
        check("common usual rare", r#""rare" OR "usual""#, "");
        let each: Vec<String> = wanted("get_user() or HTTP", frequency).each_word().map(str::to_owned).collect();
        assert_eq!(each, [r#""get user""#, r#""get""#, r#""http""#, r#""user""#]);
        assert!(wanted("common usual rare", frequency).is_cut && !wanted("usual rare", frequency).is_cut);
        assert_eq!(wanted("common usual rare", frequency).common.as_deref(), Some(r#""common""#));
        check("common", r#""common""#, "");
        check("loadUser", r#""loaduser" OR "load" OR "user""#, r#""loaduser""#);
        check("get_user()", r#""get user" OR "get" OR "user""#, r#""get user""#);
        check("in src/main.rs:12", r#""src main rs 12" OR "12" OR "main" OR "rs" OR "src""#, r#""src main rs 12""#);
        check("who's E0425", r#""e0425" OR "s""#, r#""e0425""#);
        check(r#""cannot open" ledger"#, r#""cannot open" OR "cannot" OR "ledger" OR "open""#, r#""cannot open""#);
        check(r#"a" OR b NOT (c*) ^d {e}: NEAR"#, r#""b" OR "c" OR "d" OR "e" OR "near""#, "");
        check("数据库", r#""数据 据库" OR "据库" OR "数据" OR "数据库""#, r#""数据 据库""#);
        check("数", r#""数" OR "数"*"#, "");
        check("", "", "");
        check("?! \0 ()", "", "");
    }

    #[test]
    fn words_count_most_then_meaning_and_what_stands_beside_comes_along() {
        let beside = |place: usize| {
            let at = |offset: i64| usize::try_from(place as i64 + offset).ok();
            [[at(-1), at(1)], [at(-2), at(2)]]
        };
        let found = join(&[(10, 2.0), (20, 1.0)], &[(30, 0.9), (20, 0.45), (40, -0.3)], beside);
        let score = |place: usize| found.iter().find(|found| found.place == place).map(|found| found.score);
        let near = |a: Option<f32>, b: f32| assert!((a.unwrap() - b).abs() < 1e-5, "{a:?} {b}");
        assert_eq!((found[0].place, found[0].by_words, found[0].by_meaning), (10, true, false));
        near(score(10), 0.8);
        near(score(20), 0.4 + 0.2 * 0.5);
        near(score(30), 0.2);
        near(score(11), 0.35 * 0.8);
        near(score(8), 0.25 * 0.8);
        assert_eq!(score(40), None, "it is not near at all");
        assert_eq!(score(13), None);
        assert!(join(&[], &[], beside).is_empty());
    }
}
