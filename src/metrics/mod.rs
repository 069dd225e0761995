//! Counters and histograms that many threads update without locks; `prometheus` writes them as text, `process` reads the
//! figures of this process from the system.
//!
//! Events of a write are counted once its commit succeeded, in plain integers. The reasons against the prometheus-client
//! crate (0.25) are in [`prometheus`].

pub mod engine;
pub mod process;
pub mod prometheus;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::locks::RwLock;

/// Measures the duration of an operation, independent of the test clock. Decisions never depend on it.
#[derive(Debug, Clone, Copy)]
pub struct Stopwatch(Instant);

impl Stopwatch {
    pub fn start() -> Self {
        Self(Instant::now())
    }

    pub fn elapsed(self) -> Duration {
        self.0.elapsed()
    }
}

/// A duration as the log writes it: in milliseconds, with microsecond resolution.
#[allow(clippy::cast_precision_loss)] // exact up to 285 years
pub fn milliseconds(duration: Duration) -> f64 {
    duration.as_micros() as f64 / 1_000.0
}

/// A number that only grows.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    pub fn add(&self, count: u64) {
        self.0.fetch_add(count, Ordering::Relaxed);
    }

    /// The count since the start of the process.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// The buckets and the unit of a histogram.
#[derive(Debug, PartialEq, Eq)]
pub struct Buckets {
    /// The inclusive upper bounds, ascending; a bucket without a bound follows them.
    pub bounds: &'static [u64],
    /// The number of recorded units per exposed unit.
    pub per_unit: u64,
}

/// Microseconds per second: durations are recorded in microseconds and exposed in seconds.
const SECOND: u64 = 1_000_000;

/// Durations and lateness: from 1 ms, past the 30 s of the longest request, to the hour of a server that was down.
pub const TIME: Buckets = Buckets {
    bounds: &[
        1_000,
        2_500,
        5_000,
        10_000,
        25_000,
        50_000,
        100_000,
        250_000,
        500_000,
        SECOND,
        2_500_000,
        5 * SECOND,
        10 * SECOND,
        30 * SECOND,
        300 * SECOND,
        3_600 * SECOND,
    ],
    per_unit: SECOND,
};

/// Commit latency buckets, from a RAM disk to a failing SD card.
pub const COMMIT: Buckets = Buckets {
    bounds: &[
        100,
        250,
        500,
        1_000,
        2_500,
        5_000,
        10_000,
        25_000,
        50_000,
        100_000,
        500_000,
        SECOND,
        5 * SECOND,
    ],
    per_unit: SECOND,
};

/// Batch sizes, up to the maximum number of writes in a commit.
pub const BATCH: Buckets = Buckets { bounds: &[1, 2, 4, 8, 16, 32, 64, 128, 256, 512], per_unit: 1 };

/// The distribution of recorded values, and their sum.
#[derive(Debug)]
pub struct Histogram {
    buckets: &'static Buckets,
    /// One count per bound, then the count of the values above all bounds.
    counts: Vec<AtomicU64>,
    sum: AtomicU64,
    max: AtomicU64,
}

impl Histogram {
    pub fn new(buckets: &'static Buckets) -> Self {
        let counts = (0..=buckets.bounds.len()).map(|_| AtomicU64::new(0)).collect();
        Self { buckets, counts, sum: AtomicU64::new(0), max: AtomicU64::new(0) }
    }

    /// Records a value, in the recorded unit of the buckets.
    pub fn observe(&self, value: u64) {
        let bucket = self.buckets.bounds.partition_point(|bound| *bound < value);
        self.counts[bucket].fetch_add(1, Ordering::Relaxed);
        self.sum.fetch_add(value, Ordering::Relaxed);
        self.max.fetch_max(value, Ordering::Relaxed);
    }

    pub fn observe_duration(&self, duration: Duration) {
        self.observe(u64::try_from(duration.as_micros()).unwrap_or(u64::MAX));
    }

    /// The number of values, their maximum and quantiles such as 0.99, in the exposed unit. A quantile is interpolated
    /// within its bucket, as Prometheus does, and at most the maximum.
    pub fn summary<const QUANTILES: usize>(&self, quantiles: [f64; QUANTILES]) -> Summary<QUANTILES> {
        let snapshot = self.snapshot();
        let max = exposed(self.max.load(Ordering::Relaxed), self.buckets);
        let has_values = snapshot.count > 0;
        Summary {
            count: snapshot.count,
            quantiles: quantiles.map(|quantile| has_values.then(|| snapshot.quantile(quantile, max))),
            max: has_values.then_some(max),
        }
    }

    /// Reads the counts, cumulative as Prometheus expects them, and the sum, in the exposed unit.
    fn snapshot(&self) -> HistogramSnapshot {
        let mut count = 0;
        let up_to = |bucket: &AtomicU64| {
            count += bucket.load(Ordering::Relaxed);
            count
        };
        let counts: Vec<u64> = self.counts.iter().map(up_to).collect();
        let bounds = self.buckets.bounds.iter().map(|bound| Some(exposed(*bound, self.buckets)));
        let buckets = bounds.chain([None]).zip(counts).collect();
        HistogramSnapshot { buckets, count, sum: exposed(self.sum.load(Ordering::Relaxed), self.buckets) }
    }
}

/// A histogram at one moment.
struct HistogramSnapshot {
    /// The upper bounds (`None` is infinity) and the number of values at or below each.
    buckets: Vec<(Option<f64>, u64)>,
    count: u64,
    sum: f64,
}

impl HistogramSnapshot {
    #[allow(clippy::cast_precision_loss)] // exact up to 2^53
    fn quantile(&self, quantile: f64, max: f64) -> f64 {
        let rank = quantile * self.count as f64;
        let (mut lower, mut below) = (0.0, 0.0);
        for (bound, up_to) in &self.buckets {
            let (upper, up_to) = (bound.map_or(max, |bound| bound.min(max)), *up_to as f64);
            if up_to >= rank && up_to > below {
                return lower + (upper - lower).max(0.0) * (rank - below) / (up_to - below);
            }
            (lower, below) = (upper, up_to);
        }
        max
    }
}

/// A summary of the values of a histogram; `None` if there are none.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Summary<const QUANTILES: usize> {
    pub count: u64,
    pub quantiles: [Option<f64>; QUANTILES],
    pub max: Option<f64>,
}

#[allow(clippy::cast_precision_loss)] // exact up to 2^53
fn exposed(value: u64, buckets: &Buckets) -> f64 {
    value as f64 / buckets.per_unit as f64
}

/// One metric per combination of label values. Label values are constants of this program and never input from a
/// caller, so their number is bounded.
#[derive(Debug)]
pub struct Family<F, const LABELS: usize> {
    new: fn() -> F,
    members: RwLock<BTreeMap<[&'static str; LABELS], Arc<F>>>,
}

impl<F, const LABELS: usize> Family<F, LABELS> {
    /// A family whose members start as `new()`. The members `known` exist from the start: a collector sees no increase
    /// in a counter that appears with its first event.
    pub fn new(new: fn() -> F, known: &[[&'static str; LABELS]]) -> Self {
        let members = known.iter().map(|labels| (*labels, Arc::new(new()))).collect();
        Self { new, members: RwLock::new(members) }
    }

    /// Returns the member with these labels.
    pub fn with(&self, labels: [&'static str; LABELS]) -> Arc<F> {
        // The lock is written to once for each combination of labels.
        let known = self.members.read().get(&labels).map(Arc::clone);
        known.unwrap_or_else(|| {
            let mut members = self.members.write();
            Arc::clone(members.entry(labels).or_insert_with(|| Arc::new((self.new)())))
        })
    }

    /// All members, in order of their labels.
    fn all(&self) -> Vec<([&'static str; LABELS], Arc<F>)> {
        let members = self.members.read();
        members.iter().map(|(labels, member)| (*labels, Arc::clone(member))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bucket_bounds_are_inclusive() {
        let histogram = Histogram::new(&BATCH);
        for value in [0, 1, 2, 3, 512, 513] {
            histogram.observe(value);
        }
        let snapshot = histogram.snapshot();
        let up_to =
            |bound| snapshot.buckets.iter().find(|(it, _)| *it == bound).map(|(_, count)| *count).unwrap();
        assert_eq!([Some(1.0), Some(2.0), Some(4.0), Some(256.0)].map(up_to), [2, 3, 4, 4]);
        assert_eq!([Some(512.0), None].map(up_to), [5, 6]);
        assert_eq!((snapshot.count, snapshot.sum), (6, 1031.0));
    }

    #[test]
    fn a_quantile_lies_in_the_bucket_of_its_value_and_below_the_maximum() {
        let histogram = Histogram::new(&BATCH);
        assert_eq!(histogram.summary([0.5]), Summary { count: 0, quantiles: [None], max: None });
        for value in 1..=100 {
            histogram.observe(value);
        }
        let Summary { count, quantiles, max } = histogram.summary([0.0, 0.5, 0.99, 1.0]);
        assert_eq!((count, max), (100, Some(100.0)));
        assert_eq!(quantiles, [Some(0.0), Some(50.0), Some(99.0), Some(100.0)]);
        let far = Histogram::new(&BATCH);
        far.observe(9_000);
        assert_eq!(far.summary([0.5, 1.0]).quantiles, [Some(4_756.0), Some(9_000.0)]);
    }
}
