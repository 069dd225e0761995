//! `cued bench`: benchmarks this machine.

use std::cell::RefCell;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use crate::bench::report::history;
use crate::bench::report::history::{Comparison, History};
use crate::bench::{self, BenchOptions, Suite};
use crate::cli::error::CliError;
use crate::cli::output::print::print;
use crate::cli::progress::Bar;

/// The herd of a file that grows and of a slow disk: a second or several of work.
const SHORT_HERD: u64 = 5_000;
const HERD: u64 = 10_000;

#[derive(Debug, Args)]
pub struct BenchCommand {
    /// Directory for the temporary files, on the disk to measure; they are deleted afterwards
    #[arg(long, value_name = "DIR", default_value = ".")]
    dir: PathBuf,
    /// Run only these scenarios: disk, responses, creates, gets, lists, changes, claims, claimable, herd, workers,
    /// trickle, hang, overview, idle; or limiter, which is not run by default
    #[arg(long, value_name = "NAME,...", value_delimiter = ',', conflicts_with = "growth")]
    only: Vec<String>,
    /// Duration of each throughput measurement, 0.1 to 600 seconds
    #[arg(long, value_name = "SECONDS", default_value = "2", value_parser = seconds)]
    seconds: Duration,
    /// Number of cues due at the same instant [default: 10000; with --growth or --fsync-delay 5000]
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    herd: Option<u64>,
    /// Number of cues due one after another, ten per second
    #[arg(long, value_name = "COUNT", default_value_t = 200, value_parser = clap::value_parser!(u64).range(1..=100_000))]
    trickle: u64,
    /// Run each scenario so often; results are medians
    #[arg(long, value_name = "COUNT", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=100))]
    repeat: u32,
    /// Measure files of 1000 to COUNT cues, and of as many executions, instead (about ten minutes)
    #[arg(long, value_name = "COUNT", num_args = 0..=1, require_equals = true, default_missing_value = "1000000", value_parser = clap::value_parser!(u32).range(1_000..=1_000_000))]
    growth: Option<u32>,
    /// Make each sync to the disk take longer, as on a slow SD card: such as 10ms. Runs the scenarios that write
    #[arg(long, value_name = "TIME", value_parser = delay)]
    fsync_delay: Option<Duration>,
    /// Print JSON instead of a table
    #[arg(long)]
    json: bool,
    /// Append the results to FILE, one JSON object a line
    #[arg(long, value_name = "FILE")]
    history: Option<PathBuf>,
    /// Name of this run in the history
    #[arg(long, value_name = "TEXT")]
    label: Option<String>,
    /// Print what changed since the last run in FILE, made by --history or --json; * marks what is beyond noise
    #[arg(long, value_name = "FILE")]
    compare: Option<PathBuf>,
}

impl BenchCommand {
    /// Runs the benchmark and prints its report.
    ///
    /// # Errors
    /// If a measurement fails, a file cannot be used or standard output cannot be written.
    pub fn run(self) -> Result<(), CliError> {
        let failed = |error: bench::BenchError| CliError::Failed(error.to_string());
        let options = self.options();
        // Before the run: it takes minutes. The older run is read before this one is appended, as it may be the same file.
        let older = self.compare.as_deref().map(history::read_last).transpose().map_err(failed)?;
        let history = self.history.as_deref().map(History::open).transpose().map_err(failed)?;
        let bar = RefCell::new(Bar::new("bench"));
        let show = |step: &str, done: usize, all: usize| {
            if let Ok(mut bar) = bar.try_borrow_mut() {
                bar.show(done as u64, all as u64, step);
            }
        };
        let run = bench::run(&options, &show);
        drop(bar);
        let run = run.map_err(failed)?;
        if let Some(mut history) = history {
            history.append(&run.report).map_err(failed)?;
        }
        let comparison = older.map(|older| Comparison::new(&older, &run.report));
        if !self.json {
            let comparison = comparison.map(|it| format!("\n{it}")).unwrap_or_default();
            return print(&format!("{run}{comparison}"));
        }
        let mut json = run.report.json();
        if let Some(comparison) = comparison {
            json["comparison"] = comparison.json();
        }
        print(&format!("{json:#}\n"))
    }

    fn options(&self) -> BenchOptions {
        let cues = |count: u64| usize::try_from(count).unwrap_or(usize::MAX);
        let is_short = self.growth.is_some() || self.fsync_delay.is_some();
        BenchOptions {
            suite: if self.growth.is_some() { Suite::Growth } else { Suite::Scenarios },
            only: self.only.clone(),
            folder: self.dir.clone(),
            duration: self.seconds,
            herd: cues(self.herd.unwrap_or(if is_short { SHORT_HERD } else { HERD })),
            trickle: cues(self.trickle),
            repeat: self.repeat,
            fsync_delay: self.fsync_delay,
            largest: self.growth.unwrap_or_default(),
            label: self.label.clone(),
        }
    }
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: Option<f64> = text.parse().ok().filter(|seconds| (0.1..=600.0).contains(seconds));
    seconds.map(Duration::from_secs_f64).ok_or_else(|| "expected 0.1 to 600 seconds".to_owned())
}

/// A delay from 0.1 ms, less than a sync takes by itself, to a second.
fn delay(text: &str) -> Result<Duration, String> {
    let milliseconds: Option<f64> = text.strip_suffix("ms").and_then(|number| number.trim().parse().ok());
    let milliseconds = milliseconds.filter(|delay| (0.1..=1_000.0).contains(delay));
    let delay = milliseconds.map(|delay| Duration::from_secs_f64(delay / 1_000.0));
    delay.ok_or_else(|| "expected 0.1ms to 1000ms, such as 10ms".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_delay_has_its_unit() {
        assert_eq!(delay("10ms"), Ok(Duration::from_millis(10)));
        assert_eq!(delay("0.5ms"), Ok(Duration::from_micros(500)));
        for wrong in ["10", "10s", "ms", "0ms", "1001ms", "-1ms", "NaNms"] {
            assert!(delay(wrong).is_err(), "{wrong}");
        }
    }
}
