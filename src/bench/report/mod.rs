//! The results, as a table or as JSON.

pub mod history;
pub mod spread;

use std::fmt;

use serde_json::{Value, json};

use crate::bench::report::spread::Spread;
use crate::bench::written::Written;
use crate::domain::text::word_enum::word_enum;

word_enum! {
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum Unit {
        PerSecond = "per_second",
        Milliseconds = "milliseconds",
        Bytes = "bytes",
        Count = "count",
    }
}

impl Unit {
    pub fn format(self, value: f64) -> String {
        match self {
            Self::PerSecond => format!("{value:.0}/s"),
            Self::Milliseconds if value < 1.0 => format!("{value:.2} ms"),
            Self::Milliseconds => format!("{value:.1} ms"),
            Self::Bytes if value >= 1_048_576.0 => format!("{:.1} MiB", value / 1_048_576.0),
            Self::Bytes if value >= 1_024.0 => format!("{:.1} KiB", value / 1_024.0),
            Self::Bytes => format!("{value:.0} B"),
            Self::Count if value >= 10.0 || value.fract() == 0.0 => format!("{value:.0}"),
            Self::Count => format!("{value:.2}"),
        }
    }
}

/// The shares of the calls whose latency is reported, and their names.
const QUANTILES: [(&str, &str, f64); 4] =
    [("p50", "p50", 0.5), ("p99", "p99", 0.99), ("p999", "p99.9", 0.999), ("max", "slowest", 1.0)];

/// One result, with its baselines if there are any.
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    /// Stable name for programs, such as `creates_16`.
    pub name: String,
    pub description: String,
    pub unit: Unit,
    /// One of each repetition.
    values: Vec<f64>,
    /// Names of the results of the same work without cued.
    baselines: Vec<String>,
    /// The calls whose latency this is.
    calls: Option<String>,
}

impl Row {
    pub fn spread(&self) -> Spread {
        Spread::of(&self.values)
    }
}

/// All results, in the order of measurement.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct BenchReport {
    /// The options, the machine and the time of the run: an object.
    conditions: Value,
    rows: Vec<Row>,
}

impl BenchReport {
    /// Creates an empty report of a run under these conditions, a JSON object.
    pub fn new(conditions: Value) -> Self {
        Self { conditions, rows: Vec::new() }
    }

    /// Adds a result without a baseline, or the value of a further repetition.
    pub fn add(&mut self, name: &str, description: &str, value: f64, unit: Unit) {
        self.add_compared(name, description, value, unit, &[]);
    }

    /// Adds a result and its baselines, which are names of results.
    pub fn add_compared(
        &mut self,
        name: &str,
        description: &str,
        value: f64,
        unit: Unit,
        baselines: &[&str],
    ) {
        self.push(Row {
            name: name.to_owned(),
            description: description.to_owned(),
            unit,
            values: vec![value],
            baselines: baselines.iter().map(|name| (*name).to_owned()).collect(),
            calls: None,
        });
    }

    fn push(&mut self, row: Row) {
        match self.rows.iter_mut().find(|earlier| earlier.name == row.name) {
            Some(earlier) => earlier.values.extend(row.values),
            None => self.rows.push(row),
        }
    }

    /// Adds the median, the 99th and 99.9th percentile and the slowest of the calls of the result `name`, next to those of
    /// the baseline.
    pub fn add_latencies(
        &mut self,
        name: &str,
        description: &str,
        latencies: &mut [f64],
        baseline: Option<&str>,
    ) {
        for (suffix, word, share) in QUANTILES {
            let baseline = baseline.map(|baseline| format!("{baseline}_{suffix}"));
            self.push(Row {
                name: format!("{name}_{suffix}"),
                description: format!("{description}, {word}"),
                unit: Unit::Milliseconds,
                values: vec![quantile(latencies, share)],
                baselines: Vec::from_iter(baseline),
                calls: Some(description.to_owned()),
            });
        }
    }

    /// Adds what `count` calls or deliveries have written, as far as it is known: bytes of the log and of the device for
    /// each, and how many of them one commit has.
    pub fn add_written(&mut self, name: &str, description: &str, written: Written, count: f64) {
        for (suffix, word, bytes) in [
            ("log_bytes", "to the log", written.log_bytes),
            ("disk_bytes", "to the disk", written.device_bytes),
        ] {
            let (name, description) = (format!("{name}_{suffix}"), format!("{description}: bytes {word}"));
            bytes.into_iter().for_each(|bytes| self.add(&name, &description, bytes / count, Unit::Bytes));
        }
        if let Some(commits) = written.commits.filter(|commits| *commits > 0.0) {
            let (name, description) = (format!("{name}_commits"), format!("{description}: commits"));
            self.add(&name, &description, commits / count, Unit::Count);
        }
    }

    /// Returns the value of the result with this name.
    pub fn value(&self, name: &str) -> Option<f64> {
        self.row(name).map(|row| row.spread().median)
    }

    pub fn rows(&self) -> &[Row] {
        &self.rows
    }

    fn row(&self, name: &str) -> Option<&Row> {
        self.rows.iter().find(|row| row.name == name)
    }

    /// The baselines of a result that were measured: description, value, and the result by the value.
    fn baselines<'a>(&'a self, row: &'a Row) -> impl Iterator<Item = (&'a str, f64, f64)> {
        let value = row.spread().median;
        row.baselines.iter().filter_map(|name| self.row(name)).map(move |baseline| {
            let limit = baseline.spread().median;
            (baseline.description.as_str(), limit, value / limit)
        })
    }

    /// A line for the latencies of each kind of calls, with the ratio of its 99th percentile to that of the baseline.
    fn write_latencies(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut title = Some(["p50", "p99", "p99.9", "slowest", "p99 ratio"]);
        for (row, calls) in self.rows.iter().filter_map(|row| Some((row, row.calls.as_ref()?))) {
            let Some(name) = row.name.strip_suffix("_p50") else { continue };
            if let Some([p50, p99, p999, max, ratio]) = title.take() {
                writeln!(f, "\n{:<42} {p50:>9} {p99:>9} {p999:>9} {max:>9} {ratio:>10}", "latency")?;
            }
            write!(f, "{calls:<42}")?;
            for (suffix, ..) in QUANTILES {
                let value = self.value(&format!("{name}_{suffix}")).unwrap_or_default();
                write!(f, " {:>9}", Unit::Milliseconds.format(value))?;
            }
            let slow = self.row(&format!("{name}_p99"));
            if let Some((_, _, ratio)) = slow.and_then(|row| self.baselines(row).next()) {
                write!(f, " {:>9.0}%", 100.0 * ratio)?;
            }
            writeln!(f)?;
        }
        Ok(())
    }

    /// `{version, …, results: [{name, description, value, min, max, unit, baseline: {description, value} | null,
    /// ratio: number | null, further_baselines: [{description, value, ratio}]}]}`, where `ratio` is `value` by that of the
    /// baseline.
    pub fn json(&self) -> Value {
        let row = |row: &Row| {
            let spread = row.spread();
            let mut baselines = self.baselines(row);
            let first = baselines.next();
            json!({
                "name": row.name,
                "description": row.description,
                "value": rounded(spread.median),
                "min": rounded(spread.min),
                "max": rounded(spread.max),
                "unit": row.unit.as_str(),
                "baseline": first.map(|(description, value, _)| json!({"description": description, "value": rounded(value)})),
                "ratio": first.map(|(_, _, ratio)| rounded(ratio)),
                "further_baselines": baselines.map(|(description, value, ratio)| {
                    json!({"description": description, "value": rounded(value), "ratio": rounded(ratio)})
                }).collect::<Vec<_>>(),
            })
        };
        let mut report = self.conditions.clone();
        report["results"] = self.rows.iter().map(row).collect();
        report
    }
}

impl fmt::Display for BenchReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "Each ratio is that to a baseline: the same work without cued, in the same run.")?;
        let is_repeated = self.rows.iter().any(|row| row.values.len() > 1);
        if is_repeated {
            writeln!(
                f,
                "A result is the median of the repetitions, with the least and the most in brackets."
            )?;
        }
        writeln!(f, "\n{:<44} {:>11} {:>7}  baseline", "benchmark", "result", "ratio")?;
        for row in self.rows.iter().filter(|row| row.calls.is_none()) {
            let spread = row.spread();
            write!(f, "{:<44} {:>11}", row.description, row.unit.format(spread.median))?;
            for (number, (description, _, ratio)) in self.baselines(row).enumerate() {
                if number > 0 {
                    write!(f, "\n{:<56}", "")?;
                }
                write!(f, " {:>6.0}%  {description}", 100.0 * ratio)?;
            }
            if row.values.len() > 1 {
                write!(f, "  [{} to {}]", row.unit.format(spread.min), row.unit.format(spread.max))?;
            }
            writeln!(f)?;
        }
        self.write_latencies(f)
    }
}

/// Rounds to three decimals, which keeps the JSON short.
pub fn rounded(value: f64) -> f64 {
    (value * 1_000.0).round() / 1_000.0
}

/// Returns the quantile of the values, such as 0.99 for the 99th percentile; 0 if there are none.
pub fn quantile(values: &mut [f64], quantile: f64) -> f64 {
    values.sort_by(f64::total_cmp);
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::cast_precision_loss)]
    let index = (quantile * values.len().saturating_sub(1) as f64).round() as usize;
    values.get(index).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report() -> BenchReport {
        let mut report = BenchReport::new(json!({"version": "1"}));
        report.add("baseline", "bare", 2_000.0, Unit::PerSecond);
        report.add("strongest", "strongest", 4_000.0, Unit::PerSecond);
        let baselines = ["baseline", "strongest", "unmeasured"];
        report.add_compared("own", "of the service", 500.0, Unit::PerSecond, &baselines);
        report.add("memory", "resident", 3.0 * 1_048_576.0, Unit::Bytes);
        report
    }

    /// The table with single blanks.
    fn lines(report: &BenchReport) -> String {
        let text = report.to_string();
        text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ") + "\n").collect()
    }

    #[test]
    fn a_result_is_printed_with_its_baselines_and_ratios() {
        let text = lines(&report());
        assert!(text.contains("of the service 500/s 25% bare\n12% strongest\n"), "{text}");
        assert!(text.contains("resident 3.0 MiB\n"), "{text}");
        let json = report().json();
        assert_eq!(json["version"], "1");
        assert_eq!(
            json["results"][2],
            json!({"name": "own", "description": "of the service", "value": 500.0, "min": 500.0, "max": 500.0,
                   "unit": "per_second", "baseline": {"description": "bare", "value": 2000.0}, "ratio": 0.25,
                   "further_baselines": [{"description": "strongest", "value": 4000.0, "ratio": 0.125}]})
        );
    }

    #[test]
    fn a_repeated_result_is_its_median_with_its_range() {
        let mut report = report();
        for value in [900.0, 700.0] {
            report.add("own", "of the service", value, Unit::PerSecond);
        }
        assert_eq!(report.value("own"), Some(700.0));
        assert!(report.to_string().contains("[500/s to 900/s]"), "{report}");
        assert_eq!(report.json()["results"][2]["ratio"], 0.35);
    }

    #[test]
    fn a_quantile_is_one_of_the_values() {
        let mut values: Vec<f64> = (0..=100).rev().map(f64::from).collect();
        assert_eq!([0.0, 0.5, 0.99, 1.0].map(|share| quantile(&mut values, share)), [0.0, 50.0, 99.0, 100.0]);
        assert!(quantile(&mut [], 0.5).abs() < f64::EPSILON);
    }

    #[test]
    fn latencies_are_four_results_next_to_those_of_the_baseline() {
        let mut report = BenchReport::default();
        report.add_latencies("bare", "bare", &mut [1.0, 2.0, 4.0], None);
        report.add_latencies("own", "own", &mut [2.0, 4.0, 2.0], Some("bare"));
        let names: Vec<&str> = report.rows().iter().skip(4).map(|row| row.name.as_str()).collect();
        assert_eq!(names, ["own_p50", "own_p99", "own_p999", "own_max"]);
        assert_eq!(report.json()["results"][4]["ratio"], 1.0);
        let text = lines(&report);
        assert!(
            text.contains("bare 2.0 ms 4.0 ms 4.0 ms 4.0 ms\nown 2.0 ms 4.0 ms 4.0 ms 4.0 ms 100%\n"),
            "{text}"
        );
    }
}
