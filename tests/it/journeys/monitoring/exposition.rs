//! A strict parser of the Prometheus text format: anything that the Prometheus parser or `promtool check metrics`
//! rejects fails the test.

use std::collections::{BTreeMap, BTreeSet};

/// A valid page of metrics.
pub struct Exposition {
    families: BTreeMap<String, String>,
    samples: Vec<Sample>,
}

struct Sample {
    name: String,
    labels: BTreeMap<String, String>,
    value: f64,
}

impl Exposition {
    #[track_caller]
    pub fn read(text: &str) -> Self {
        assert!(text.ends_with('\n'), "the last line ends with a line feed");
        let mut page = Self { families: BTreeMap::new(), samples: Vec::new() };
        let mut lines = text.lines().peekable();
        while let Some(line) = lines.next() {
            let (name, help) =
                line.strip_prefix("# HELP ").and_then(|it| it.split_once(' ')).expect("HELP first");
            assert!(help.ends_with('.') && !help.contains("  "), "{line}");
            let kind = lines.next().and_then(|it| it.strip_prefix(&format!("# TYPE {name} "))).expect(name);
            check_name(name, kind);
            let first = page.samples.len();
            while let Some(line) = lines.next_if(|line| !line.starts_with('#')) {
                page.samples.push(sample(line));
            }
            check_samples(name, kind, &page.samples[first..]);
            let before = page.families.insert(name.to_owned(), kind.to_owned());
            assert_eq!(before, None, "{name} appears in two places");
        }
        let mut known = BTreeSet::new();
        for Sample { name, labels, .. } in &page.samples {
            assert!(known.insert((name, labels)), "{name} {labels:?} appears twice");
        }
        page
    }

    /// The names and types of all metrics.
    pub fn names(&self) -> impl Iterator<Item = (&str, &str)> {
        self.families.iter().map(|(name, kind)| (name.as_str(), kind.as_str()))
    }

    /// The value of the sample with exactly these labels, or 0.
    pub fn value(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        let family = ["_bucket", "_sum", "_count"].iter().find_map(|end| name.strip_suffix(end));
        let is_there = |name: &str| self.families.contains_key(name);
        assert!(is_there(name) || family.is_some_and(is_there), "{name} is not a metric");
        let labels: BTreeMap<String, String> =
            labels.iter().map(|(label, value)| ((*label).to_owned(), (*value).to_owned())).collect();
        let found = self.samples.iter().find(|it| it.name == name && it.labels == labels);
        found.map_or(0.0, |sample| sample.value)
    }

    /// The values of a label.
    pub fn values_of(&self, name: &str, label: &str) -> BTreeSet<String> {
        let of = self.samples.iter().filter(|sample| sample.name == name);
        of.filter_map(|sample| sample.labels.get(label).cloned()).collect()
    }
}

fn is_word(text: &str) -> bool {
    !text.starts_with(|first: char| first.is_ascii_digit())
        && !text.is_empty()
        && text.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_')
}

fn check_name(name: &str, kind: &str) {
    assert!(["counter", "gauge", "histogram"].contains(&kind), "{name} is a {kind}");
    assert!(is_word(name) && (name.starts_with("cued_") || name.starts_with("process_")), "{name}");
    assert_eq!(name.ends_with("_total"), kind == "counter", "{name}");
    for reserved in ["_count", "_sum", "_bucket"] {
        assert!(!name.ends_with(reserved), "{name}");
    }
    // Base units only.
    let parts: Vec<&str> = name.split('_').collect();
    for unit in ["ms", "milliseconds", "microseconds", "minutes", "kilobytes", "mb", "percent"] {
        assert!(!parts.contains(&unit), "{name}");
    }
    for what in ["duration", "lateness", "time", "timestamp", "memory", "file", "wal"] {
        assert!(!parts.contains(&what) || parts.contains(&"seconds") || parts.contains(&"bytes"), "{name}");
    }
}

fn check_samples(name: &str, kind: &str, samples: &[Sample]) {
    for sample in samples {
        for label in sample.labels.keys() {
            assert!(is_word(label) && !label.starts_with("__"), "{name} {label}");
            assert!(kind == "histogram" || !["le", "quantile"].contains(&label.as_str()), "{name} {label}");
        }
        assert!(kind != "counter" || sample.value >= 0.0, "{name}");
    }
    if kind != "histogram" {
        assert!(!samples.is_empty(), "{name} has no sample");
        assert!(samples.iter().all(|sample| sample.name == name), "{name}");
        return;
    }
    let mut left = samples;
    while !left.is_empty() {
        left = check_histogram(name, left);
    }
}

/// Checks the buckets of one combination of labels, then its sum and count; returns the rest.
fn check_histogram<'a>(name: &str, samples: &'a [Sample]) -> &'a [Sample] {
    let bucket = format!("{name}_bucket");
    let buckets = samples.iter().take_while(|sample| sample.name == bucket);
    let mut bounds = Vec::new();
    let mut labels = None;
    for sample in buckets {
        let mut others = sample.labels.clone();
        let bound = others.remove("le").expect("a bucket has a bound");
        assert_eq!(labels.get_or_insert_with(|| others.clone()), &others, "{name}");
        bounds.push((if bound == "+Inf" { f64::INFINITY } else { bound.parse().unwrap() }, sample.value));
        if bound == "+Inf" {
            break;
        }
    }
    let ascends = |pair: &[(f64, f64)]| pair[0].0 < pair[1].0 && pair[0].1 <= pair[1].1;
    assert!(bounds.len() > 1 && bounds.windows(2).all(ascends), "{name}: {bounds:?}");
    let last = *bounds.last().unwrap();
    let [sum, count, rest @ ..] = &samples[bounds.len()..] else { panic!("{name} ends early") };
    assert_eq!(
        (sum.name.as_str(), count.name.as_str()),
        (&*format!("{name}_sum"), &*format!("{name}_count"))
    );
    assert_eq!(last, (f64::INFINITY, count.value), "{name}");
    assert_eq!((Some(&sum.labels), Some(&count.labels)), (labels.as_ref(), labels.as_ref()), "{name}");
    rest
}

fn sample(line: &str) -> Sample {
    let (series, value) = line.rsplit_once(' ').expect(line);
    let value = value.parse().expect(line);
    let Some((name, labels)) = series.split_once('{') else {
        return Sample { name: series.to_owned(), labels: BTreeMap::new(), value };
    };
    let mut left = labels.strip_suffix('}').expect(line);
    let mut labels = BTreeMap::new();
    while !left.is_empty() {
        let (label, rest) = left.split_once("=\"").expect(line);
        // No label value contains a quote.
        let (text, rest) = rest.split_once('"').expect(line);
        assert_eq!(labels.insert(label.to_owned(), text.to_owned()), None, "{line}");
        left = rest.strip_prefix(',').unwrap_or(rest);
    }
    Sample { name: name.to_owned(), labels, value }
}
