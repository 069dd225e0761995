//! The results, as a table or as JSON.

use std::fmt;
use std::time::Duration;

use serde_json::{Value, json};

use crate::bench::BenchOptions;
use crate::domain::text::word_enum::word_enum;

word_enum! {
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum Unit {
        PerSecond = "per_second",
        Milliseconds = "milliseconds",
        Bytes = "bytes",
    }
}

impl Unit {
    fn format(self, value: f64) -> String {
        match self {
            Self::PerSecond => format!("{value:.0}/s"),
            Self::Milliseconds => format!("{value:.1} ms"),
            Self::Bytes if value >= 1_048_576.0 => format!("{:.1} MiB", value / 1_048_576.0),
            Self::Bytes if value >= 1_024.0 => format!("{:.1} KiB", value / 1_024.0),
            Self::Bytes => format!("{value:.0} B"),
        }
    }
}

/// One result, with its baseline if there is one.
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    /// Stable name for programs, such as `creates_16`.
    pub name: String,
    pub description: String,
    pub value: f64,
    pub unit: Unit,
    /// Description and value of the same work without cued.
    pub baseline: Option<(String, f64)>,
}

/// All results, in the order of measurement.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct BenchReport {
    duration: Duration,
    herd: usize,
    trickle: usize,
    rows: Vec<Row>,
}

impl BenchReport {
    /// Creates an empty report of a run with these options.
    pub fn new(options: &BenchOptions) -> Self {
        Self { duration: options.duration, herd: options.herd, trickle: options.trickle, rows: Vec::new() }
    }

    /// Adds a result without a baseline.
    pub fn add(&mut self, name: &str, description: &str, value: f64, unit: Unit) {
        let description = description.to_owned();
        self.rows.push(Row { name: name.to_owned(), description, value, unit, baseline: None });
    }

    /// Adds a result and its baseline, which is the name of an earlier result.
    pub fn add_with_baseline(
        &mut self,
        name: &str,
        description: &str,
        value: f64,
        unit: Unit,
        baseline: &str,
    ) {
        let baseline = self.rows.iter().find(|row| row.name == baseline);
        let baseline = baseline.map(|row| (row.description.clone(), row.value));
        self.add(name, description, value, unit);
        if let Some(row) = self.rows.last_mut() {
            row.baseline = baseline;
        }
    }

    /// Returns the value of the result with this name.
    pub fn value(&self, name: &str) -> Option<f64> {
        self.rows.iter().find(|row| row.name == name).map(|row| row.value)
    }

    /// `{version, cpus, seconds, herd, trickle, results: [{name, description, value, unit,
    /// baseline: {description, value} | null, ratio: number | null}]}`, where `ratio` is `value` by that of the baseline.
    pub fn json(&self) -> Value {
        let row = |row: &Row| {
            let baseline = row.baseline.as_ref();
            json!({
                "name": row.name,
                "description": row.description,
                "value": rounded(row.value),
                "unit": row.unit.as_str(),
                "baseline": baseline.map(|(description, value)| json!({"description": description, "value": rounded(*value)})),
                "ratio": baseline.map(|(_, baseline)| rounded(row.value / baseline)),
            })
        };
        json!({
            "version": env!("CARGO_PKG_VERSION"),
            "cpus": std::thread::available_parallelism().ok(),
            "seconds": self.duration.as_secs_f64(),
            "herd": self.herd,
            "trickle": self.trickle,
            "results": self.rows.iter().map(row).collect::<Vec<_>>(),
        })
    }
}

impl fmt::Display for BenchReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "Each result is next to a baseline: the same work without cued, measured in the same run.\n"
        )?;
        writeln!(f, "{:<44} {:>11} {:>7}  baseline", "benchmark", "result", "ratio")?;
        for row in &self.rows {
            write!(f, "{:<44} {:>11}", row.description, row.unit.format(row.value))?;
            if let Some((description, baseline)) = &row.baseline {
                write!(f, " {:>6.0}%  {description}", 100.0 * row.value / baseline)?;
            }
            writeln!(f)?;
        }
        Ok(())
    }
}

/// Rounds to three decimals, which keeps the JSON short.
fn rounded(value: f64) -> f64 {
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
        let mut report = BenchReport::default();
        report.add("baseline", "bare", 2_000.0, Unit::PerSecond);
        report.add_with_baseline("own", "of the service", 500.0, Unit::PerSecond, "baseline");
        report.add("memory", "resident", 3.0 * 1_048_576.0, Unit::Bytes);
        report
    }

    #[test]
    fn a_result_is_printed_with_its_baseline_and_ratio() {
        let text = report().to_string();
        assert!(text.contains("500/s     25%  bare"), "{text}");
        assert!(text.contains("3.0 MiB\n"), "{text}");
        assert_eq!(
            report().json()["results"][1],
            json!({"name": "own", "description": "of the service", "value": 500.0, "unit": "per_second",
                   "baseline": {"description": "bare", "value": 2000.0}, "ratio": 0.25})
        );
    }

    #[test]
    fn a_quantile_is_one_of_the_values() {
        let mut values: Vec<f64> = (0..=100).rev().map(f64::from).collect();
        assert_eq!([0.0, 0.5, 0.99, 1.0].map(|share| quantile(&mut values, share)), [0.0, 50.0, 99.0, 100.0]);
        assert!(quantile(&mut [], 0.5).abs() < f64::EPSILON);
    }
}
