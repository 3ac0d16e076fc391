//! How figures are summed up and shown.

use std::fmt;
use std::time::Duration;

use crate::say;

/// The lines that are printed last.
#[derive(Default)]
pub(super) struct Report(Vec<String>);

impl Report {
    pub(super) fn section(&mut self, name: &str) {
        self.0.extend([String::new(), name.to_owned()]);
    }

    /// A figure that has a goal.
    pub(super) fn figure(&mut self, name: &str, value: impl fmt::Display, goal: &str) {
        self.note(name, format_args!("{value}; goal {goal}"));
    }

    /// A figure that others are read beside.
    pub(super) fn note(&mut self, name: &str, value: impl fmt::Display) {
        self.0.push(format!("  {name:<36} {value}"));
    }

    pub(super) fn print(&self) {
        self.0.iter().for_each(say);
    }
}

#[derive(Debug, Default)]
pub(super) struct Sample(Vec<Duration>);

impl Sample {
    pub(super) fn push(&mut self, time: Duration) {
        self.0.push(time);
    }

    pub(super) fn percentile(&self, percent: usize) -> Duration {
        let mut sorted = self.0.clone();
        sorted.sort_unstable();
        sorted.get(sorted.len() * percent / 100).or(sorted.last()).copied().unwrap_or_default()
    }

    pub(super) fn median(&self) -> Duration {
        self.percentile(50)
    }
}

impl fmt::Display for Sample {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "median {}, p95 {}", shown(self.median()), shown(self.percentile(95)))
    }
}

pub(super) fn shown(time: Duration) -> String {
    match time.as_micros() {
        micros if micros < 10_000 => format!("{micros} µs"),
        micros => format!("{:.1} ms", micros as f64 / 1000.0),
    }
}

/// The ratio of two medians.
pub(super) fn ratio(sample: &Sample, reference: &Sample) -> String {
    format!("{:.2} x", sample.median().as_secs_f64() / reference.median().as_secs_f64())
}
