//! What is counted while the program runs: counters and histograms that many threads add to without waiting for each
//! other. How they are written out is in `text`, what the system says of this process in `process`.

pub mod engine;
pub mod process;
pub mod prometheus;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, Instant};

/// Measures how long something of ours takes, a test clock or not. What is decided by time is no business of it.
#[derive(Debug, Clone, Copy)]
pub struct Stopwatch(Instant);

impl Stopwatch {
    /// Begins now.
    #[must_use]
    pub fn start() -> Self {
        Self(Instant::now())
    }

    /// The time since.
    #[must_use]
    pub fn elapsed(self) -> Duration {
        self.0.elapsed()
    }
}

/// A time as the log writes it: in milliseconds, to the microsecond.
#[must_use]
#[allow(clippy::cast_precision_loss)] // of no time that anything here takes
pub fn milliseconds(time: Duration) -> f64 {
    time.as_micros() as f64 / 1_000.0
}

/// A figure that only grows.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Counts `more`.
    pub fn add(&self, more: u64) {
        self.0.fetch_add(more, Ordering::Relaxed);
    }

    /// The count since the start.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// What a histogram measures, and up to which values its buckets go, each counting what the one before does not.
#[derive(Debug, PartialEq, Eq)]
pub struct Buckets {
    /// The highest value of each bucket, ascending; one without a bound comes after them.
    pub bounds: &'static [u64],
    /// How many of what is measured make one of what is shown.
    pub per_unit: u64,
}

/// Microseconds in a second: times are measured in the former and shown in the latter.
const SECOND: u64 = 1_000_000;

/// How long something takes or how late it is: from a millisecond over the 30 s of the longest exchange to the hour of
/// a server that was down.
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

/// How long the disk takes for a commit: from memory that says that it is a disk to a card that is about to fail.
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

/// How many things come at once.
pub const BATCH: Buckets = Buckets { bounds: &[1, 2, 4, 8, 16, 32, 64, 128, 256, 512], per_unit: 1 };

/// How many of the measured values lie in which range, and their sum.
#[derive(Debug)]
pub struct Histogram {
    scale: &'static Buckets,
    /// One for each bound, and the last one for what is above them all.
    buckets: Vec<AtomicU64>,
    sum: AtomicU64,
}

impl Histogram {
    /// One without values.
    #[must_use]
    pub fn new(scale: &'static Buckets) -> Self {
        let buckets = (0..=scale.bounds.len()).map(|_| AtomicU64::new(0)).collect();
        Self { scale, buckets, sum: AtomicU64::new(0) }
    }

    /// Notes a value, in what the scale measures.
    pub fn note(&self, value: u64) {
        let bucket = self.scale.bounds.partition_point(|bound| *bound < value);
        self.buckets[bucket].fetch_add(1, Ordering::Relaxed);
        self.sum.fetch_add(value, Ordering::Relaxed);
    }

    /// Notes a time.
    pub fn note_time(&self, time: Duration) {
        self.note(u64::try_from(time.as_micros()).unwrap_or(u64::MAX));
    }

    /// How many values there are up to each bound and in all, and their sum in what is shown.
    fn read(&self) -> HistogramSnapshot {
        let mut count = 0;
        let up_to = |bucket: &AtomicU64| {
            count += bucket.load(Ordering::Relaxed);
            count
        };
        let counts: Vec<u64> = self.buckets.iter().map(up_to).collect();
        let bounds = self.scale.bounds.iter().map(|bound| Some(shown(*bound, self.scale)));
        let buckets = bounds.chain([None]).zip(counts).collect();
        HistogramSnapshot { buckets, count, sum: shown(self.sum.load(Ordering::Relaxed), self.scale) }
    }
}

/// A histogram at one moment.
struct HistogramSnapshot {
    /// Bounds (none: without) and how many values are at or below each.
    buckets: Vec<(Option<f64>, u64)>,
    count: u64,
    sum: f64,
}

#[allow(clippy::cast_precision_loss)] // of what is added up in days, not of what is counted
fn shown(value: u64, scale: &Buckets) -> f64 {
    value as f64 / scale.per_unit as f64
}

/// A figure of its own for each combination of labels that came up. Labels are words of this program and never what
/// a caller sent, so that there is an end to their number.
#[derive(Debug)]
pub struct Family<F, const LABELS: usize> {
    new: fn() -> F,
    members: RwLock<BTreeMap<[&'static str; LABELS], Arc<F>>>,
}

impl<F, const LABELS: usize> Family<F, LABELS> {
    /// A family whose members begin as `new` makes them; those of `known` are there from the start.
    pub fn new(new: fn() -> F, known: &[[&'static str; LABELS]]) -> Self {
        let members = known.iter().map(|labels| (*labels, Arc::new(new()))).collect();
        Self { new, members: RwLock::new(members) }
    }

    /// The figure with these labels.
    pub fn with(&self, labels: [&'static str; LABELS]) -> Arc<F> {
        // Nothing that can panic runs under the lock. It is written to once for each combination of labels.
        let known = self.members.read().unwrap_or_else(PoisonError::into_inner).get(&labels).map(Arc::clone);
        known.unwrap_or_else(|| {
            let mut members = self.members.write().unwrap_or_else(PoisonError::into_inner);
            Arc::clone(members.entry(labels).or_insert_with(|| Arc::new((self.new)())))
        })
    }

    /// All of them, by their labels.
    fn all(&self) -> Vec<([&'static str; LABELS], Arc<F>)> {
        let members = self.members.read().unwrap_or_else(PoisonError::into_inner);
        members.iter().map(|(labels, figure)| (*labels, Arc::clone(figure))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bucket_bounds_are_inclusive() {
        let histogram = Histogram::new(&BATCH);
        for value in [0, 1, 2, 3, 512, 513] {
            histogram.note(value);
        }
        let reading = histogram.read();
        let up_to =
            |bound| reading.buckets.iter().find(|(it, _)| *it == bound).map(|(_, count)| *count).unwrap();
        assert_eq!([Some(1.0), Some(2.0), Some(4.0), Some(256.0)].map(up_to), [2, 3, 4, 4]);
        assert_eq!([Some(512.0), None].map(up_to), [5, 6]);
        assert_eq!((reading.count, reading.sum), (6, 1031.0));
    }

    #[test]
    fn durations_are_shown_in_seconds() {
        let histogram = Histogram::new(&TIME);
        histogram.note_time(Duration::from_micros(2_500));
        let reading = histogram.read();
        assert_eq!(reading.sum, 0.0025);
        assert_eq!(reading.buckets[..2], [(Some(0.001), 0), (Some(0.0025), 1)]);
    }

    #[test]
    fn bucket_bounds_ascend() {
        for scale in [&TIME, &COMMIT, &BATCH] {
            assert!(scale.bounds.is_sorted_by(|lower, higher| lower < higher), "{scale:?}");
        }
    }

    #[test]
    fn the_same_labels_are_the_same_counter() {
        let family = Family::new(Counter::default, &[["a"]]);
        family.with(["b"]).add(1);
        family.with(["b"]).add(2);
        let all: Vec<_> = family.all().iter().map(|(labels, counter)| (labels[0], counter.get())).collect();
        assert_eq!(all, [("a", 0), ("b", 3)]);
    }
}
