//! `cued bench`: benchmarks this machine.

use std::cell::RefCell;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use crate::bench::{self, BenchOptions};
use crate::cli::error::CliError;
use crate::cli::output::print::print;
use crate::cli::progress::Bar;

#[derive(Debug, Args)]
pub struct BenchCommand {
    /// Directory for the temporary files, on the disk to measure; they are deleted afterwards
    #[arg(long, value_name = "DIR", default_value = ".")]
    dir: PathBuf,
    /// Duration of each throughput measurement, 0.1 to 600 seconds
    #[arg(long, value_name = "SECONDS", default_value = "3", value_parser = seconds)]
    seconds: Duration,
    /// Number of cues due at the same instant
    #[arg(long, value_name = "COUNT", default_value_t = 10_000, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    herd: u64,
    /// Number of cues due one after another, ten per second
    #[arg(long, value_name = "COUNT", default_value_t = 200, value_parser = clap::value_parser!(u64).range(1..=100_000))]
    trickle: u64,
    /// Print JSON instead of a table
    #[arg(long)]
    json: bool,
}

impl BenchCommand {
    /// Runs the benchmark and prints its report.
    ///
    /// # Errors
    /// If a measurement fails or standard output cannot be written.
    pub fn run(self) -> Result<(), CliError> {
        let cues = |count: u64| usize::try_from(count).unwrap_or(usize::MAX);
        let options = BenchOptions {
            folder: self.dir,
            duration: self.seconds,
            herd: cues(self.herd),
            trickle: cues(self.trickle),
        };
        let bar = RefCell::new(Bar::new("bench"));
        let show = |step: &str, done: usize, all: usize| {
            if let Ok(mut bar) = bar.try_borrow_mut() {
                bar.show(done as u64, all as u64, step);
            }
        };
        let report = bench::run(&options, &show);
        drop(bar);
        let report = report.map_err(|error| CliError::Failed(error.to_string()))?;
        let text = if self.json { format!("{:#}\n", report.json()) } else { report.to_string() };
        print(&text)
    }
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: Option<f64> = text.parse().ok().filter(|seconds| (0.1..=600.0).contains(seconds));
    seconds.map(Duration::from_secs_f64).ok_or_else(|| "expected 0.1 to 600 seconds".to_owned())
}
