//! Our counts for models whose vocabulary we do not have, set right by what their providers counted of the same requests.
//!
//! It is kept in memory only: a few answers are enough to know a model again.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, PoisonError};

/// Of how many requests the middle is taken.
const SAMPLES_MAX: usize = 16;
/// Of a smaller request most is what a provider puts around every message.
const SAMPLE_TOKENS_MIN: u64 = 64;
/// A provider that counts something else entirely does not lead us far away.
const RATIO_MIN: f64 = 0.5;
const RATIO_MAX: f64 = 2.0;
/// More are forgotten, all at once.
const MODELS_MAX: usize = 256;

/// Beginnings of the names of models that have the vocabulary we count with, o200k_base.
const WITH_VOCABULARY: [&str; 9] = ["gpt-4o", "chatgpt-4o", "gpt-4.1", "gpt-4.5", "gpt-5", "gpt-oss", "o1", "o3", "o4"];

/// How much more or less than we each model's provider counts.
#[derive(Debug, Default)]
pub struct Calibration(Mutex<HashMap<String, Samples>>);

impl Calibration {
    /// Notes that a request to `model` had `reported` tokens to its provider and `estimated` to us.
    pub fn note(&self, model: &str, estimated: u64, reported: u64) {
        if has_vocabulary(model) || estimated < SAMPLE_TOKENS_MIN || reported == 0 {
            return;
        }
        let mut models = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if models.len() >= MODELS_MAX && !models.contains_key(model) {
            models.clear();
        }
        models.entry(model.to_owned()).or_default().add(reported as f64 / estimated as f64);
    }

    /// What is to be expected of `model` where we count `estimated` tokens.
    pub fn adjust(&self, model: &str, estimated: u64) -> u64 {
        (estimated as f64 * self.ratio(model)).round() as u64
    }

    /// By how much its counts differ from ours; 1 where nothing is known, and where we have its vocabulary.
    pub fn ratio(&self, model: &str) -> f64 {
        if has_vocabulary(model) {
            return 1.0;
        }
        let models = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        models.get(model).and_then(Samples::middle).map_or(1.0, |ratio| ratio.clamp(RATIO_MIN, RATIO_MAX))
    }
}

/// Whether we count as `model` does, by what its provider calls it. Who made it may stand before it, as in `openai/gpt-4o`.
pub fn has_vocabulary(model: &str) -> bool {
    let name = model.rsplit('/').next().unwrap_or(model);
    let is_of = |family: &str| {
        name.strip_prefix(family).is_some_and(|rest| !rest.starts_with(|next: char| next.is_ascii_alphanumeric()))
    };
    WITH_VOCABULARY.iter().any(|family| is_of(family))
}

/// The last ratios of one model.
#[derive(Debug, Default)]
struct Samples(VecDeque<f64>);

impl Samples {
    fn add(&mut self, ratio: f64) {
        if self.0.len() == SAMPLES_MAX {
            self.0.pop_front();
        }
        self.0.push_back(ratio);
    }

    /// The median: one request that was counted oddly changes little.
    fn middle(&self) -> Option<f64> {
        let mut sorted: Vec<f64> = self.0.iter().copied().collect();
        sorted.sort_by(f64::total_cmp);
        let (low, high) = (sorted.get(sorted.len().checked_sub(1)? / 2)?, sorted.get(sorted.len() / 2)?);
        Some((low + high) / 2.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_changed_before_something_is_known() {
        let calibration = Calibration::default();
        assert_eq!((calibration.adjust("claude-x", 1000), calibration.ratio("claude-x")), (1000, 1.0));
    }

    #[test]
    fn the_middle_of_the_last_requests_counts() {
        let calibration = Calibration::default();
        calibration.note("claude-x", 1000, 1200);
        assert_eq!(calibration.adjust("claude-x", 1000), 1200);
        calibration.note("claude-x", 1000, 1400);
        assert_eq!(calibration.adjust("claude-x", 1000), 1300);
        calibration.note("claude-x", 1000, 100);
        assert_eq!(calibration.adjust("claude-x", 1000), 1200, "one that was counted oddly changes little");
        for _ in 0..SAMPLES_MAX {
            calibration.note("claude-x", 2000, 2200);
        }
        assert_eq!(calibration.adjust("claude-x", 1000), 1100, "what was long ago is forgotten");
        assert_eq!(calibration.adjust("gemini-x", 1000), 1000, "each model has its own");
    }

    #[test]
    fn no_provider_leads_us_far_away() {
        let calibration = Calibration::default();
        calibration.note("much", 1000, 50_000);
        calibration.note("little", 1000, 10);
        assert_eq!((calibration.adjust("much", 1000), calibration.adjust("little", 1000)), (2000, 500));
    }

    #[test]
    fn what_says_nothing_is_not_noted() {
        let calibration = Calibration::default();
        calibration.note("claude-x", 0, 500);
        calibration.note("claude-x", SAMPLE_TOKENS_MIN - 1, 500);
        calibration.note("claude-x", 1000, 0);
        assert_eq!(calibration.ratio("claude-x"), 1.0);
        calibration.note("claude-x", SAMPLE_TOKENS_MIN, 96);
        assert_eq!(calibration.ratio("claude-x"), 1.5);
    }

    #[test]
    fn models_whose_vocabulary_we_have_are_counted_as_they_are() {
        let calibration = Calibration::default();
        for model in ["gpt-4o", "gpt-4o-mini", "openai/gpt-4.1", "gpt-5.1", "o3-mini", "gpt-oss:20b", "o1"] {
            calibration.note(model, 1000, 1500);
            assert_eq!(calibration.adjust(model, 1000), 1000, "{model}");
        }
        for model in ["gpt-4", "gpt-3.5-turbo", "claude-x", "llama3.2", "o10", "gpt-4omni", "mistral/o-large"] {
            calibration.note(model, 1000, 1500);
            assert_eq!(calibration.adjust(model, 1000), 1500, "{model}");
        }
    }

    #[test]
    fn not_every_name_is_remembered_for_ever() {
        let calibration = Calibration::default();
        for number in 0..=MODELS_MAX {
            calibration.note(&format!("model-{number}"), 1000, 1500);
        }
        let newest = format!("model-{MODELS_MAX}");
        assert_eq!((calibration.ratio("model-0"), calibration.ratio(&newest)), (1.0, 1.5));
    }
}
