//! How figures are summed up and shown.

use std::fmt;
use std::time::Duration;

#[derive(Debug, Default)]
pub(super) struct Sample(Vec<Duration>);

impl Sample {
    pub(super) fn push(&mut self, time: Duration) {
        self.0.push(time);
    }

    fn percentile(&self, percent: usize) -> Duration {
        let mut sorted = self.0.clone();
        sorted.sort_unstable();
        sorted.get(sorted.len() * percent / 100).or(sorted.last()).copied().unwrap_or_default()
    }
}

impl fmt::Display for Sample {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = |time: Duration| match time.as_micros() {
            micros if micros < 10_000 => format!("{micros} µs"),
            micros => format!("{:.1} ms", micros as f64 / 1000.0),
        };
        write!(f, "median {}, p95 {}", shown(self.percentile(50)), shown(self.percentile(95)))
    }
}

/// The ratio of two medians.
pub(super) fn ratio(sample: &Sample, reference: &Sample) -> String {
    format!("{:.2} x", sample.percentile(50).as_secs_f64() / reference.percentile(50).as_secs_f64())
}
