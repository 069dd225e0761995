//! Counters and histograms that many threads update without locks, and their text for Prometheus (format 0.0.4).
//!
//! Events of a write are counted once its commit succeeded, in plain integers. Written here instead of with the
//! prometheus-client crate (0.25): half of the values are read at scrape time and would need collectors, its histograms
//! take a mutex and add floats (17 ns against 11 ns per observation, on two cores), and its label members appear in the
//! order of a `HashMap`.

pub mod engine;
pub mod process;

use std::borrow::Borrow;
use std::collections::BTreeMap;
use std::fmt::{self, Display};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::system::locks::Mutex;

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

#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    pub fn add(&self, count: u64) {
        self.0.fetch_add(count, Ordering::Relaxed);
    }

    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl Display for Counter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.get().fmt(f)
    }
}

#[derive(Debug)]
pub struct Buckets {
    /// The inclusive upper bounds, ascending; a bucket without a bound follows them.
    bounds: &'static [u64],
    /// The number of recorded units per exposed unit.
    per_unit: u64,
}

/// Durations are recorded in microseconds and exposed in seconds.
const SECOND: u64 = 1_000_000;

/// Durations and lateness: from 1 ms, past the 30 s of the longest request, to the hour of a server that was down.
#[rustfmt::skip]
pub const TIME: Buckets = Buckets {
    bounds: &[
        1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000,
        SECOND, 2_500_000, 5 * SECOND, 10 * SECOND, 30 * SECOND, 300 * SECOND, 3_600 * SECOND,
    ],
    per_unit: SECOND,
};

/// Commit latency, from a RAM disk to a failing SD card.
#[rustfmt::skip]
pub const COMMIT: Buckets = Buckets {
    bounds: &[
        100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 500_000, SECOND, 5 * SECOND,
    ],
    per_unit: SECOND,
};

/// Batch sizes, up to the maximum number of writes in a commit.
pub const BATCH: Buckets =
    Buckets { bounds: &[1, 2, 4, 8, 16, 32, 64, 128, 256, 512], per_unit: 1 };

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
    pub fn summary<const QUANTILES: usize>(
        &self,
        quantiles: [f64; QUANTILES],
    ) -> Summary<QUANTILES> {
        let (counts, max) = (self.cumulative(), self.exposed(&self.max));
        let count = counts.last().map_or(0, |(_, count)| *count);
        let value = |of| (count > 0).then(|| quantile(of, &counts, max));
        Summary { count, quantiles: quantiles.map(value), max: (count > 0).then_some(max) }
    }

    /// The upper bounds (the last is infinite), in the exposed unit, and the number of values at or below each.
    fn cumulative(&self) -> Vec<(f64, u64)> {
        let bounds =
            self.buckets.bounds.iter().map(|bound| self.in_unit(*bound)).chain([f64::INFINITY]);
        let mut count = 0;
        let counts = self.counts.iter().map(|bucket| {
            count += bucket.load(Ordering::Relaxed);
            count
        });
        bounds.zip(counts).collect()
    }

    fn exposed(&self, value: &AtomicU64) -> f64 {
        self.in_unit(value.load(Ordering::Relaxed))
    }

    #[allow(clippy::cast_precision_loss)] // exact up to 2^53
    fn in_unit(&self, value: u64) -> f64 {
        value as f64 / self.buckets.per_unit as f64
    }
}

#[allow(clippy::cast_precision_loss)] // exact up to 2^53
fn quantile(quantile: f64, counts: &[(f64, u64)], max: f64) -> f64 {
    let rank = quantile * counts.last().map_or(0, |(_, count)| *count) as f64;
    let (mut lower, mut below) = (0.0, 0.0);
    for (bound, up_to) in counts {
        let (upper, up_to) = (bound.min(max), *up_to as f64);
        if up_to >= rank && up_to > below {
            return lower + (upper - lower).max(0.0) * (rank - below) / (up_to - below);
        }
        (lower, below) = (upper, up_to);
    }
    max
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Summary<const QUANTILES: usize> {
    pub count: u64,
    pub quantiles: [Option<f64>; QUANTILES],
    pub max: Option<f64>,
}

/// One metric per combination of label values. Label values are constants of this program and never input from a
/// caller, so their number is bounded.
#[derive(Debug)]
pub struct Family<F, const LABELS: usize> {
    new: fn() -> F,
    members: Mutex<BTreeMap<[&'static str; LABELS], Arc<F>>>,
}

impl<F, const LABELS: usize> Family<F, LABELS> {
    /// A family whose members start as `new()`. The members `known` exist from the start: a collector sees no increase
    /// in a counter that appears with its first event.
    pub fn new(new: fn() -> F, known: &[[&'static str; LABELS]]) -> Self {
        let members = known.iter().map(|labels| (*labels, Arc::new(new()))).collect();
        Self { new, members: Mutex::new(members) }
    }

    pub fn with(&self, labels: [&'static str; LABELS]) -> Arc<F> {
        Arc::clone(self.members.lock().entry(labels).or_insert_with(|| Arc::new((self.new)())))
    }

    pub fn all(&self) -> Vec<([&'static str; LABELS], Arc<F>)> {
        self.members.lock().iter().map(|(labels, member)| (*labels, Arc::clone(member))).collect()
    }
}

pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Writes metrics as text. Each name must be written once, with all its samples.
#[derive(Debug, Default)]
pub struct TextEncoder(String);

impl TextEncoder {
    /// Writes a counter; its name ends in `_total`.
    pub fn counter(&mut self, name: &str, help: &str, value: u64) {
        self.family("counter", name, help, [], [([], value)]);
    }

    /// Writes a gauge, or nothing if its value is not known.
    pub fn gauge(&mut self, name: &str, help: &str, value: Option<impl Display>) {
        if let Some(value) = value {
            self.family("gauge", name, help, [], [([], value)]);
        }
    }

    /// Writes counters or gauges (`kind`), one per combination of labels.
    pub fn family<'a, const L: usize>(
        &mut self,
        kind: &str,
        name: &str,
        help: &str,
        labels: [&str; L],
        members: impl IntoIterator<Item = ([&'a str; L], impl Display)>,
    ) {
        self.head(name, kind, help);
        for (values, value) in members {
            self.sample(name, labels.into_iter().zip(values), value);
        }
    }

    pub fn histogram(&mut self, name: &str, help: &str, histogram: &Histogram) {
        self.histograms(name, help, [], [([], histogram)]);
    }

    pub fn histograms<'a, const L: usize>(
        &mut self,
        name: &str,
        help: &str,
        labels: [&str; L],
        members: impl IntoIterator<Item = ([&'a str; L], impl Borrow<Histogram>)>,
    ) {
        self.head(name, "histogram", help);
        for (values, histogram) in members {
            let histogram: &Histogram = histogram.borrow();
            let counts = histogram.cumulative();
            let labels = || labels.into_iter().zip(values);
            for (bound, count) in &counts {
                let bound = if bound.is_finite() { bound.to_string() } else { "+Inf".to_owned() };
                self.sample(
                    &format!("{name}_bucket"),
                    labels().chain([("le", bound.as_str())]),
                    count,
                );
            }
            self.sample(&format!("{name}_sum"), labels(), histogram.exposed(&histogram.sum));
            self.sample(
                &format!("{name}_count"),
                labels(),
                counts.last().map_or(0, |(_, count)| *count),
            );
        }
    }

    pub fn into_text(self) -> String {
        self.0
    }

    fn head(&mut self, name: &str, kind: &str, help: &str) {
        self.0.push_str(&format!(
            "# HELP {name} {}\n# TYPE {name} {kind}\n",
            help.replace('\\', "\\\\")
        ));
    }

    fn sample<'a>(
        &mut self,
        name: &str,
        labels: impl Iterator<Item = (&'a str, &'a str)>,
        value: impl Display,
    ) {
        let escaped =
            |value: &str| value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
        let labels: Vec<_> =
            labels.map(|(label, value)| format!("{label}=\"{}\"", escaped(value))).collect();
        let labels =
            if labels.is_empty() { String::new() } else { format!("{{{}}}", labels.join(",")) };
        self.0.push_str(&format!("{name}{labels} {value}\n"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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

    #[test]
    fn metrics_are_written_in_the_text_format() {
        let family = Family::new(Counter::default, &[["GET", "a\"b\\c\nd"]]);
        family.with(["GET", "a\"b\\c\nd"]).add(7);
        let histogram = Histogram::new(&BATCH);
        [256, 257, 600].into_iter().for_each(|value| histogram.observe(value));
        let mut encoder = TextEncoder::default();
        encoder.family("counter", "x_total", "Help of x.", ["method", "route"], family.all());
        encoder.gauge("y", "Help of y.", Some(0.5));
        encoder.gauge("z", "Help of z.", None::<u64>);
        encoder.histogram("h", "Help of h.", &histogram);
        let text = encoder.into_text();
        let expected = "# HELP x_total Help of x.\n# TYPE x_total counter\n\
                        x_total{method=\"GET\",route=\"a\\\"b\\\\c\\nd\"} 7\n\
                        # HELP y Help of y.\n# TYPE y gauge\ny 0.5\n\
                        # HELP h Help of h.\n# TYPE h histogram\nh_bucket{le=\"1\"} 0\n";
        assert!(text.starts_with(expected), "{text}");
        let end = "h_bucket{le=\"256\"} 1\nh_bucket{le=\"512\"} 2\nh_bucket{le=\"+Inf\"} 3\nh_sum 1113\nh_count 3\n";
        assert!(text.ends_with(end), "{text}");
    }
}
