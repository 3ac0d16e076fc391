//! Search: which words of a query are looked for, and how what was found by words and by meaning becomes one order.

use std::collections::{HashMap, HashSet};

use crate::words::humps;

/// The share of words in a score; meaning has the rest.
const WORDS: f32 = 0.8;
/// What a segment gets of the best one beside it in its task, and of the best one after that.
const NEIGHBOURS: [f32; 2] = [0.35, 0.25];
/// So many are found by their meaning.
pub const NEAREST: usize = 100;
/// Words are taken, the rarest first, until so many texts have one.
const TEXTS_MAX: u32 = 5000;

/// Words that say nothing of what is looked for.
const STOP_WORDS: &str = "a about after again all am an and any are as at be because been before being but by can could did do \
    does doing down during each few for from had has have having he her here him his how i if in into is it its just me more most \
    my no not of off on once only or other our out over own she should so some such than that the their them then there these \
    they this those to too under until up very was we were what when where which while who whom why will with would you your";

/// What the index of words is given for a text: the text, and the parts of its names in camelCase. Parts of names in snake_case the
/// index finds by itself.
pub fn indexed(text: &str) -> String {
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
    all
}

fn runs(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !c.is_alphanumeric()).filter(|run| !run.is_empty())
}

/// What to look for, as the index of words understands it; `None` if there is nothing. `frequency` says about how many texts have a word.
pub fn wanted(query: &str, frequency: impl Fn(&str) -> u32) -> Option<String> {
    let stop: HashSet<&str> = STOP_WORDS.split_whitespace().collect();
    let (mut phrases, mut terms) = (Vec::new(), Vec::new());
    let parts: Vec<&str> = query.split('"').collect();
    for (at, part) in parts.iter().enumerate() {
        // A quote that is not closed quotes nothing.
        if at % 2 == 1 && at + 1 < parts.len() && runs(part).count() > 1 {
            phrases.push(runs(part).collect::<Vec<_>>().join(" ").to_lowercase());
        }
        for word in part.split(|c: char| !c.is_alphanumeric() && c != '_') {
            let name = word.trim_matches('_');
            if name.contains('_') {
                phrases.push(runs(name).collect::<Vec<_>>().join(" ").to_lowercase());
            }
            for run in runs(word) {
                terms.push(run.to_lowercase());
                terms.extend(humps(run).map(str::to_lowercase));
            }
        }
    }
    if terms.iter().any(|term| !stop.contains(term.as_str())) {
        terms.retain(|term| !stop.contains(term.as_str()));
    }
    let mut ranked: Vec<(u32, String)> = terms.into_iter().map(|term| (frequency(&term), term)).collect();
    ranked.sort();
    ranked.dedup();
    let (mut taken, mut texts) = (phrases, 0);
    for (count, term) in ranked {
        if !taken.is_empty() && texts + count > TEXTS_MAX {
            break;
        }
        texts += count;
        taken.push(term);
    }
    taken.dedup();
    // Only letters and digits are left of it, so that nothing in a query is taken for an operator.
    let quoted: Vec<String> = taken.iter().map(|term| format!("\"{term}\"")).collect();
    (!quoted.is_empty()).then(|| quoted.join(" OR "))
}

/// A segment that was found, by its place among those of its project.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Found {
    pub place: usize,
    pub score: f32,
    pub by_words: bool,
    pub by_meaning: bool,
}

/// Joins what was found by words, with a score each, and by meaning, the nearest first with how near it is. `beside` names the segments
/// beside one in its task: one step away, and two.
pub fn join(
    words: &[(usize, f32)],
    nearest: &[(usize, f32)],
    beside: impl Fn(usize) -> [[Option<usize>; 2]; 2],
) -> Vec<Found> {
    let mut found: HashMap<usize, Found> = HashMap::new();
    let new = |place: usize| Found { place, score: 0.0, by_words: false, by_meaning: false };
    let best = words.iter().fold(0f32, |best, (_, score)| best.max(*score));
    for (place, score) in words.iter().filter(|(_, score)| *score > 0.0) {
        let entry = found.entry(*place).or_insert_with(|| new(*place));
        (entry.score, entry.by_words) = (WORDS * score / best, true);
    }
    let high = nearest.first().map_or(0.0, |(_, near)| *near);
    // With fewer than there could be, all that are near at all count.
    let low = nearest.get(NEAREST).map_or(0.0, |(_, near)| near.max(0.0));
    for (place, near) in nearest.iter().filter(|(_, near)| *near > low) {
        let entry = found.entry(*place).or_insert_with(|| new(*place));
        entry.score += (1.0 - WORDS) * (near - low) / (high - low);
        entry.by_meaning = true;
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
    }

    #[test]
    fn a_query_becomes_words_the_rarest_first_and_nothing_else() {
        let frequency = |word: &str| match word {
            "common" => 4000,
            "usual" => 3000,
            _ => 1,
        };
        let check = |query: &str, expected: &str| {
            assert_eq!(wanted(query, frequency).unwrap_or_default(), expected, "{query:?}");
        };
        check("What is the ledger?", r#""ledger""#);
        check("the", r#""the""#);
        check("common usual rare", r#""rare" OR "usual""#);
        check("common", r#""common""#);
        check("loadUser", r#""load" OR "loaduser" OR "user""#);
        check("get_user", r#""get user" OR "get" OR "user""#);
        check(r#""cannot open" ledger"#, r#""cannot open" OR "cannot" OR "ledger" OR "open""#);
        check(r#"a" OR b NOT (c*) ^d {e}: NEAR"#, r#""b" OR "c" OR "d" OR "e" OR "near""#);
        check("", "");
        check("?! \0 ()", "");
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
