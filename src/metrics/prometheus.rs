//! Figures as Prometheus reads them: its text format, version 0.0.4.

use std::fmt::Display;

use crate::metrics::{Counter, Family, Histogram};

/// What the text is called in `Content-Type`.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// A page of figures that is being written. Each name comes once, with all its members.
#[derive(Debug, Default)]
pub struct TextEncoder(String);

impl TextEncoder {
    /// A figure that only grows; its name ends in `_total`.
    pub fn counter(&mut self, name: &str, help: &str, value: u64) {
        self.head(name, "counter", help);
        self.sample(name, &[], value);
    }

    /// Figures that only grow, one for each value of `label`.
    pub fn counters(&mut self, name: &str, help: &str, label: &str, values: &[(&str, u64)]) {
        self.head(name, "counter", help);
        for (value, count) in values {
            self.sample(name, &[(label, value)], count);
        }
    }

    /// Figures that only grow, one for each combination of labels.
    pub fn counter_family<const L: usize>(
        &mut self,
        name: &str,
        help: &str,
        labels: [&str; L],
        family: &Family<Counter, L>,
    ) {
        self.head(name, "counter", help);
        for (values, counter) in family.all() {
            self.sample(name, &pairs(&labels, &values), counter.get());
        }
    }

    /// A figure that goes up and down; nothing where it is not known.
    pub fn gauge(&mut self, name: &str, help: &str, value: Option<impl Display>) {
        if let Some(value) = value {
            self.head(name, "gauge", help);
            self.sample(name, &[], value);
        }
    }

    /// Figures that go up and down, one for each value of `label`.
    pub fn gauges(&mut self, name: &str, help: &str, label: &str, values: &[(&str, impl Display)]) {
        self.head(name, "gauge", help);
        for (value, figure) in values {
            self.sample(name, &[(label, value)], figure);
        }
    }

    /// How values are spread.
    pub fn histogram(&mut self, name: &str, help: &str, histogram: &Histogram) {
        self.head(name, "histogram", help);
        self.spread(name, &[], histogram);
    }

    /// How values are spread, for each combination of labels.
    pub fn histogram_family<const L: usize>(
        &mut self,
        name: &str,
        help: &str,
        labels: [&str; L],
        family: &Family<Histogram, L>,
    ) {
        self.head(name, "histogram", help);
        for (values, histogram) in family.all() {
            self.spread(name, &pairs(&labels, &values), &histogram);
        }
    }

    /// The text.
    #[must_use]
    pub fn into_text(self) -> String {
        self.0
    }

    fn head(&mut self, name: &str, kind: &str, help: &str) {
        self.0.push_str(&format!("# HELP {name} {}\n# TYPE {name} {kind}\n", help.replace('\\', "\\\\")));
    }

    fn spread(&mut self, name: &str, labels: &[(&str, &str)], histogram: &Histogram) {
        let reading = histogram.read();
        let bucket = format!("{name}_bucket");
        for (bound, count) in &reading.buckets {
            let bound = bound.map_or_else(|| "+Inf".to_owned(), |bound| bound.to_string());
            let labels: Vec<_> = labels.iter().copied().chain([("le", bound.as_str())]).collect();
            self.sample(&bucket, &labels, count);
        }
        self.sample(&format!("{name}_sum"), labels, reading.sum);
        self.sample(&format!("{name}_count"), labels, reading.count);
    }

    fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: impl Display) {
        self.0.push_str(name);
        for (place, (label, value)) in labels.iter().enumerate() {
            let before = if place == 0 { '{' } else { ',' };
            self.0.push_str(&format!("{before}{label}=\"{}\"", escaped(value)));
        }
        self.0.push_str(&format!("{} {value}\n", if labels.is_empty() { "" } else { "}" }));
    }
}

fn pairs<'a>(labels: &[&'a str], values: &[&'a str]) -> Vec<(&'a str, &'a str)> {
    labels.iter().copied().zip(values.iter().copied()).collect()
}

fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::BATCH;

    #[test]
    fn the_output_follows_the_prometheus_text_format() {
        let family = Family::new(Counter::default, &[["GET", "a\"b\\c\nd"]]);
        family.with(["GET", "a\"b\\c\nd"]).add(7);
        let histogram = Histogram::new(&BATCH);
        histogram.note(300);
        let mut page = TextEncoder::default();
        page.counter_family("x_total", "What x is.", ["method", "route"], &family);
        page.gauge("y", "What y is.", Some(0.5));
        page.gauge("z", "Not known.", None::<u64>);
        page.histogram("h", "What h is.", &histogram);
        let text = page.into_text();
        let expected = "# HELP x_total What x is.\n# TYPE x_total counter\n\
                        x_total{method=\"GET\",route=\"a\\\"b\\\\c\\nd\"} 7\n\
                        # HELP y What y is.\n# TYPE y gauge\ny 0.5\n\
                        # HELP h What h is.\n# TYPE h histogram\nh_bucket{le=\"1\"} 0\n";
        assert!(text.starts_with(expected), "{text}");
        let end =
            "h_bucket{le=\"256\"} 0\nh_bucket{le=\"512\"} 1\nh_bucket{le=\"+Inf\"} 1\nh_sum 300\nh_count 1\n";
        assert!(text.ends_with(end), "{text}");
    }
}
