//! How soon a segment leaves the window, and why.

use crate::api::{Generation, SegmentType};
use crate::clock::Timestamp;
use crate::store::Facts;

/// So many collections make a segment old.
const OLD_AFTER: u64 = 3;
const HOUR_MS: f64 = 3_600_000.0;

pub fn generation(survived: u64) -> Generation {
    if survived >= OLD_AFTER { Generation::Old } else { Generation::Young }
}

/// Hours between two moments; none if the second is not later.
pub fn age_hours(since: Timestamp, now: Timestamp) -> f64 {
    (now.ms().saturating_sub(since.ms()) as f64 / HOUR_MS).max(0.0)
}

/// From 0 to 1; what is higher goes first.
pub fn prune_score(facts: &Facts, now: Timestamp) -> f64 {
    let recency = 1.0 - (-age_hours(facts.touched, now) / 24.0).exp();
    let kind = match facts.kind {
        SegmentType::Log => 1.0,
        SegmentType::Note => 0.8,
        SegmentType::Code => 0.5,
        SegmentType::Message => 0.3,
        SegmentType::Summary => 0.2,
        SegmentType::Decision => 0.1,
    };
    let generation = match generation(facts.survived) {
        Generation::Young => 0.3,
        Generation::Old => 0.0,
    };
    0.4 * recency + 0.3 * kind + 0.2 / (facts.refcount as f64 + 1.0) + 0.1 * generation
}

/// What makes it go, as people say it.
pub fn prune_reason(facts: &Facts, now: Timestamp) -> String {
    let mut reasons = Vec::new();
    match age_hours(facts.touched, now) {
        hours if hours >= 24.0 => reasons.push("old"),
        hours if hours >= 1.0 => reasons.push("not touched lately"),
        _ => {}
    }
    match facts.kind {
        SegmentType::Log => reasons.push("log output"),
        SegmentType::Note => reasons.push("a note"),
        _ => {}
    }
    if facts.refcount == 0 {
        reasons.push("low refcount");
    }
    if reasons.is_empty() {
        reasons.push("nothing refers to it that must stay");
    }
    reasons.join(" + ")
}

/// How many of what is to go, in order, free the tokens asked for; and how many they free.
pub fn enough(tokens: impl Iterator<Item = u64>, target: u64) -> (usize, u64) {
    let (mut count, mut freed) = (0, 0);
    for tokens in tokens {
        if freed >= target {
            break;
        }
        count += 1;
        freed += tokens;
    }
    (count, freed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(kind: SegmentType, hours: i64, refcount: u64, survived: u64) -> Facts {
        Facts { kind, touched: Timestamp::from_ms(-hours * 3_600_000), refcount, survived, tokens: 1 }
    }

    #[test]
    fn the_score_is_the_documented_sum() {
        let now = Timestamp::from_ms(0);
        let check = |facts: Facts, expected: f64| {
            let score = prune_score(&facts, now);
            assert!((score - expected).abs() < 1e-4, "{facts:?}: {score}, expected {expected}");
        };
        // 0.4·recency + 0.3·type + 0.2/(refcount+1) + 0.1·generation, each worked out by hand.
        check(facts(SegmentType::Log, 0, 0, 0), 0.3 + 0.2 + 0.03);
        check(facts(SegmentType::Decision, 0, 1, 0), 0.03 + 0.1 + 0.03);
        check(facts(SegmentType::Message, 24, 3, 3), 0.4 * 0.632_12 + 0.09 + 0.05);
        check(facts(SegmentType::Note, 48, 0, 2), 0.4 * 0.864_66 + 0.24 + 0.2 + 0.03);
        check(facts(SegmentType::Code, -5, 0, 4), 0.15 + 0.2);
        check(facts(SegmentType::Summary, 100_000, 9, 0), 0.4 + 0.06 + 0.02 + 0.03);
    }

    #[test]
    fn a_plan_takes_no_more_than_it_needs() {
        let check = |target: u64, expected: (usize, u64)| {
            assert_eq!(enough([5, 5, 7].into_iter(), target), expected, "{target}");
        };
        check(0, (0, 0));
        check(1, (1, 5));
        check(10, (2, 10));
        check(11, (3, 17));
        check(99, (3, 17));
    }
}
