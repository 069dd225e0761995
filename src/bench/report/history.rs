//! The history of runs, a file with one JSON object a line, and what changed since the last of them.

use std::fmt::{self, Write as _};
use std::fs::{self, File, OpenOptions};
use std::io::Write as _;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::bench::report::spread::Spread;
use crate::bench::report::{BenchReport, Unit, rounded};
use crate::bench::{BenchError, Result};

/// A file that runs are appended to.
pub struct History {
    path: PathBuf,
    file: File,
}

impl History {
    /// Opens the file, or creates it: before a run, so that a long one does not end with an error.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn open(path: &Path) -> Result<Self> {
        let failed = |source| BenchError::History { path: path.to_owned(), source };
        let file = OpenOptions::new().append(true).create(true).open(path).map_err(failed)?;
        Ok(Self { path: path.to_owned(), file })
    }

    /// Appends a run as one line.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn append(&mut self, report: &BenchReport) -> Result<()> {
        let failed = |source| BenchError::History { path: self.path.clone(), source };
        self.file.write_all(format!("{}\n", report.json()).as_bytes()).map_err(failed)
    }
}

/// Reads the last run of a history, or the only one of a file made with `--json`.
///
/// # Errors
/// If the file cannot be read or is none of both.
pub fn read_last(path: &Path) -> Result<Value> {
    let text = fs::read_to_string(path)
        .map_err(|source| BenchError::Comparison { path: path.to_owned(), why: source.to_string() })?;
    last(&text).map_err(|why| BenchError::Comparison {
        path: path.to_owned(),
        why: format!("it contains no run of `cued bench`: {why}"),
    })
}

/// The run that is the whole text, else the one in its last line.
fn last(text: &str) -> std::result::Result<Value, String> {
    let last_line = text.lines().rfind(|line| !line.trim().is_empty()).unwrap_or_default();
    let run: Value = serde_json::from_str(text)
        .or_else(|_| serde_json::from_str(last_line))
        .map_err(|error| format!("its last line is no JSON: {error}"))?;
    if run["results"].is_array() { Ok(run) } else { Err("it has no `results`".to_owned()) }
}

/// The results that an older run has as well.
pub struct Comparison {
    older: String,
    changes: Vec<Change>,
}

struct Change {
    name: String,
    description: String,
    unit: Unit,
    older: Spread,
    newer: Spread,
}

impl Change {
    fn ratio(&self) -> f64 {
        self.newer.median / self.older.median
    }
}

impl Comparison {
    /// Compares `report` with an older run, as JSON.
    pub fn new(older: &Value, report: &BenchReport) -> Self {
        let name = [&older["label"], &older["commit"], &older["version"]];
        let name = name.iter().find_map(|name| name.as_str()).unwrap_or("?");
        let at = older["date"].as_str().unwrap_or("unknown date");
        let results = older["results"].as_array().map(Vec::as_slice).unwrap_or_default();
        let change = |row: &crate::bench::report::Row| {
            let older = results.iter().find(|older| older["name"] == row.name.as_str())?;
            let (value, part) = (older["value"].as_f64()?, |name: &str| older[name].as_f64());
            let older = Spread {
                min: part("min").unwrap_or(value),
                median: value,
                max: part("max").unwrap_or(value),
            };
            let (name, description) = (row.name.clone(), row.description.clone());
            Some(Change { name, description, unit: row.unit, older, newer: row.spread() })
        };
        Self { older: format!("{name} of {at}"), changes: report.rows().iter().filter_map(change).collect() }
    }

    /// `[{name, old, new, ratio, is_beyond_noise}]`.
    pub fn json(&self) -> Value {
        let change = |it: &Change| {
            json!({
                "name": it.name, "old": rounded(it.older.median), "new": rounded(it.newer.median),
                "ratio": it.ratio().is_finite().then(|| rounded(it.ratio())),
                "is_beyond_noise": it.newer.differs_from(it.older),
            })
        };
        self.changes.iter().map(change).collect()
    }
}

impl fmt::Display for Comparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let changed = self.changes.iter().filter(|it| it.newer.differs_from(it.older)).count();
        writeln!(
            f,
            "Compared with {}: {changed} of {} results differ beyond noise (*).\n",
            self.older,
            self.changes.len()
        )?;
        writeln!(f, "{:<44} {:>11}    {:>11} {:>6}", "benchmark", "old", "new", "ratio")?;
        for it in &self.changes {
            let mut line = format!("{:<44} ", it.description);
            write!(
                line,
                "{:>11} -> {:>11}",
                it.unit.format(it.older.median),
                it.unit.format(it.newer.median)
            )?;
            if it.ratio().is_finite() {
                write!(line, " {:>6.2}", it.ratio())?;
            }
            writeln!(f, "{line}{}", if it.newer.differs_from(it.older) { " *" } else { "" })?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(label: &str, values: &[f64]) -> BenchReport {
        let mut report = BenchReport::new(json!({"label": label, "version": "1", "date": "2030-01-01"}));
        values.iter().for_each(|value| report.add("gets", "get cue", *value, Unit::PerSecond));
        report
    }

    #[test]
    fn the_last_run_of_a_history_is_compared() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("history");
        let mut history = History::open(&path).unwrap();
        for (label, value) in [("first", 1.0), ("second", 100.0)] {
            history.append(&run(label, &[value])).unwrap();
        }
        let older = read_last(&path).unwrap();
        let faster = Comparison::new(&older, &run("now", &[150.0]));
        let text = faster.to_string();
        assert!(text.contains("second of 2030-01-01: 1 of 1 results differ"), "{text}");
        assert!(text.contains("100/s ->       150/s   1.50 *\n"), "{text}");
        assert_eq!(
            faster.json(),
            json!([{"name": "gets", "old": 100.0, "new": 150.0, "ratio": 1.5, "is_beyond_noise": true}])
        );
        let alike = Comparison::new(&older, &run("now", &[90.0, 95.0, 105.0]));
        assert!(!alike.to_string().contains("*\n"), "{alike}");
    }

    #[test]
    fn a_file_that_is_no_history_is_refused() {
        for text in ["", "\n", "hello", "{}", "[1]", "{\"results\": 1}"] {
            assert!(last(text).is_err(), "{text:?}");
        }
        let report = format!("{:#}\n", run("x", &[1.0]).json());
        assert_eq!(last(&report).unwrap()["label"], "x", "as --json prints it");
    }
}
