//! Many measurements in few numbers: how many fell between which bounds. Percentiles made of that are estimates.

/// What is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// How long a call took, in microseconds. Four buckets for each doubling, so an estimate is within a tenth.
    Call,
    /// How much of a context a view left out, in percent. A bucket for each.
    View,
}

impl Kind {
    pub const ALL: [Self; 2] = [Self::Call, Self::View];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Call => "call",
            Self::View => "view",
        }
    }

    pub fn bucket(self, value: u64) -> u16 {
        match self {
            Self::Call => (4.0 * (value.max(1) as f64).log2()).floor() as u16,
            Self::View => value.min(100) as u16,
        }
    }

    /// A value in the middle of a bucket.
    fn middle(self, bucket: u16) -> f64 {
        match self {
            Self::Call => ((f64::from(bucket) + 0.5) / 4.0).exp2(),
            Self::View => f64::from(bucket),
        }
    }
}

/// How many measurements of one name fell into a bucket, and what they add up to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Measured {
    pub kind: Kind,
    pub name: String,
    pub bucket: u16,
    pub count: u64,
    pub total: u64,
}

/// All measurements of one name.
#[derive(Debug, Clone, PartialEq)]
pub struct Summary {
    pub name: String,
    pub count: u64,
    pub total: u64,
    /// Estimates.
    pub median: f64,
    pub p95: f64,
}

/// What was measured of a kind, by name, the most frequent first.
pub fn summarize(kind: Kind, measured: &[Measured]) -> Vec<Summary> {
    let mut all: Vec<&Measured> = measured.iter().filter(|one| one.kind == kind && one.count > 0).collect();
    all.sort_by(|a, b| (&a.name, a.bucket).cmp(&(&b.name, b.bucket)));
    let mut summaries: Vec<Summary> = all
        .chunk_by(|a, b| a.name == b.name)
        .map(|buckets| Summary {
            name: buckets[0].name.clone(),
            count: buckets.iter().map(|one| one.count).sum(),
            total: buckets.iter().fold(0, |total, one| total.saturating_add(one.total)),
            median: percentile(kind, buckets, 50),
            p95: percentile(kind, buckets, 95),
        })
        .collect();
    summaries.sort_by(|a, b| b.count.cmp(&a.count).then_with(|| a.name.cmp(&b.name)));
    summaries
}

/// The middle of the bucket in which the one stands that so many percent are not above. Buckets are in order.
fn percentile(kind: Kind, buckets: &[&Measured], percent: u64) -> f64 {
    let count: u64 = buckets.iter().map(|one| one.count).sum();
    let place = (count * percent).div_ceil(100).max(1);
    let mut seen = 0;
    let found = buckets.iter().find(|one| {
        seen += one.count;
        seen >= place
    });
    found.map_or(0.0, |one| kind.middle(one.bucket))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measure(kind: Kind, name: &str, values: &[u64]) -> Vec<Measured> {
        let one = |value: &u64| Measured {
            kind,
            name: name.to_owned(),
            bucket: kind.bucket(*value),
            count: 1,
            total: *value,
        };
        values.iter().map(one).collect()
    }

    #[test]
    fn there_are_four_buckets_for_each_doubling() {
        for (value, bucket) in [(0, 0), (1, 0), (2, 4), (3, 6), (4, 8), (1000, 39), (1024, 40), (u64::MAX, 256)] {
            assert_eq!(Kind::Call.bucket(value), bucket, "{value}");
        }
        for (value, bucket) in [(0, 0), (99, 99), (100, 100), (1000, 100)] {
            assert_eq!(Kind::View.bucket(value), bucket, "{value}");
        }
    }

    #[test]
    fn percentiles_are_near_what_was_measured() {
        let check = |values: &[u64], median: f64, p95: f64| {
            let summary = summarize(Kind::Call, &measure(Kind::Call, "x", values)).remove(0);
            let near = |estimate: f64, exact: f64| (estimate / exact - 1.0).abs() < 0.11;
            assert!(near(summary.median, median) && near(summary.p95, p95), "{summary:?}, not {median} and {p95}");
            assert_eq!((summary.count, summary.total), (values.len() as u64, values.iter().sum()));
        };
        check(&[700], 700.0, 700.0);
        check(&(1..=1000).collect::<Vec<_>>(), 500.0, 950.0);
        check(&[10, 10, 10, 1_000_000], 10.0, 1_000_000.0);
        let views = summarize(Kind::View, &measure(Kind::View, "v", &[80, 0, 90]));
        assert_eq!((views[0].median, views[0].p95), (80.0, 90.0));
    }

    #[test]
    fn kinds_and_names_are_kept_apart_and_the_most_frequent_comes_first() {
        let mut all = measure(Kind::Call, "a", &[5]);
        all.extend(measure(Kind::View, "a", &[50]));
        all.extend(measure(Kind::Call, "b", &[9, 9]));
        let names = |kind| summarize(kind, &all).into_iter().map(|one| (one.name, one.count)).collect::<Vec<_>>();
        assert_eq!(names(Kind::Call), [("b".to_owned(), 2), ("a".to_owned(), 1)]);
        assert_eq!(names(Kind::View), [("a".to_owned(), 1)]);
        assert_eq!(summarize(Kind::Call, &[]), []);
    }
}
