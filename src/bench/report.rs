//! The figures: as a table for people, as JSON for programs.

use std::fmt;
use std::time::Duration;

use serde_json::{Value, json};

use crate::bench::BenchOptions;

/// What a figure counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// So many a second.
    PerSecond,
    /// Milliseconds.
    Milliseconds,
    /// Bytes.
    Bytes,
}

impl Unit {
    fn as_str(self) -> &'static str {
        match self {
            Self::PerSecond => "per_second",
            Self::Milliseconds => "milliseconds",
            Self::Bytes => "bytes",
        }
    }

    fn show(self, figure: f64) -> String {
        match self {
            Self::PerSecond => format!("{figure:.0}/s"),
            Self::Milliseconds => format!("{figure:.1} ms"),
            Self::Bytes if figure >= 1_048_576.0 => format!("{:.1} MiB", figure / 1_048_576.0),
            Self::Bytes if figure >= 1_024.0 => format!("{:.1} KiB", figure / 1_024.0),
            Self::Bytes => format!("{figure:.0} B"),
        }
    }
}

/// One figure, and the machine's own beside it.
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    /// A name for programs, such as `creates_16`.
    pub name: String,
    /// What was measured, for people.
    pub what: String,
    /// What was seen.
    pub figure: f64,
    /// What it counts.
    pub unit: Unit,
    /// What the machine does of it without the service, where there is such a thing: what that is, and the figure.
    pub limit: Option<(String, f64)>,
}

/// All figures, in the order in which they were taken.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct BenchReport {
    each: Duration,
    herd: usize,
    trickle: usize,
    rows: Vec<Row>,
}

impl BenchReport {
    /// One without figures, of a run with these options.
    #[must_use]
    pub fn new(options: &BenchOptions) -> Self {
        Self { each: options.each, herd: options.herd, trickle: options.trickle, rows: Vec::new() }
    }

    /// Adds a figure that stands alone.
    pub fn add(&mut self, name: &str, what: &str, figure: f64, unit: Unit) {
        self.rows.push(Row { name: name.to_owned(), what: what.to_owned(), figure, unit, limit: None });
    }

    /// Adds a figure beside the one of `limit`, which was added before.
    pub fn add_beside(&mut self, name: &str, what: &str, figure: f64, unit: Unit, limit: &str) {
        self.add(name, what, figure, unit);
        let limit = self.rows.iter().find(|row| row.name == limit).map(|row| (row.what.clone(), row.figure));
        if let Some(row) = self.rows.last_mut() {
            row.limit = limit;
        }
    }

    /// The figure of this name.
    #[must_use]
    pub fn figure(&self, name: &str) -> Option<f64> {
        self.rows.iter().find(|row| row.name == name).map(|row| row.figure)
    }

    /// `{version, cpus, seconds, herd, trickle, figures: [{name, what, figure, unit, limit: {what, figure} | null, ratio: number | null}]}`.
    #[must_use]
    pub fn json(&self) -> Value {
        let row = |row: &Row| {
            json!({
                "name": row.name,
                "what": row.what,
                "figure": rounded(row.figure),
                "unit": row.unit.as_str(),
                "limit": row.limit.as_ref().map(|(what, figure)| json!({"what": what, "figure": rounded(*figure)})),
                "ratio": row.limit.as_ref().map(|(_, limit)| rounded(row.figure / limit)),
            })
        };
        json!({
            "version": env!("CARGO_PKG_VERSION"),
            "cpus": std::thread::available_parallelism().ok(),
            "seconds": self.each.as_secs_f64(),
            "herd": self.herd,
            "trickle": self.trickle,
            "figures": self.rows.iter().map(row).collect::<Vec<_>>(),
        })
    }
}

impl fmt::Display for BenchReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{:<52} {:>12} {:>7}  of the machine's own", "measured", "figure", "share")?;
        for row in &self.rows {
            write!(f, "{:<52} {:>12}", row.what, row.unit.show(row.figure))?;
            if let Some((what, limit)) = &row.limit {
                write!(f, " {:>6.0}%  {what}", 100.0 * row.figure / limit)?;
            }
            writeln!(f)?;
        }
        Ok(())
    }
}

fn rounded(figure: f64) -> f64 {
    (figure * 1_000.0).round() / 1_000.0
}

/// The value below which this share of the values lies; 0 where there are none.
#[must_use]
pub fn quantile(values: &mut [f64], share: f64) -> f64 {
    values.sort_by(f64::total_cmp);
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::cast_precision_loss)]
    let place = (share * values.len().saturating_sub(1) as f64).round() as usize;
    values.get(place).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report() -> BenchReport {
        let mut report = BenchReport::default();
        report.add("limit", "bare", 2_000.0, Unit::PerSecond);
        report.add_beside("own", "of the service", 500.0, Unit::PerSecond, "limit");
        report.add("memory", "resident", 3.0 * 1_048_576.0, Unit::Bytes);
        report
    }

    #[test]
    fn a_result_is_printed_with_its_baseline_and_ratio() {
        let text = report().to_string();
        assert!(text.contains("500/s     25%  bare"), "{text}");
        assert!(text.contains("3.0 MiB\n"), "{text}");
        assert_eq!(
            report().json()["figures"][1],
            json!({"name": "own", "what": "of the service", "figure": 500.0, "unit": "per_second",
                   "limit": {"what": "bare", "figure": 2000.0}, "ratio": 0.25})
        );
    }

    #[test]
    fn a_quantile_is_one_of_the_values() {
        let mut values: Vec<f64> = (0..=100).rev().map(f64::from).collect();
        assert_eq!([0.0, 0.5, 0.99, 1.0].map(|share| quantile(&mut values, share)), [0.0, 50.0, 99.0, 100.0]);
        assert!(quantile(&mut [], 0.5).abs() < f64::EPSILON);
    }
}
