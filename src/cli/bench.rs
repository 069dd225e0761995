//! `cued bench`: what this machine carries.

use std::io::{IsTerminal, Write};
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use crate::bench::{self, BenchOptions};
use crate::cli::CliError;

/// Flags of `cued bench`.
#[derive(Debug, Args)]
pub struct BenchCommand {
    /// The folder whose disk is measured; the temporary files in it are removed afterwards
    #[arg(long, value_name = "FOLDER", default_value = ".")]
    dir: PathBuf,
    /// How long each rate is measured
    #[arg(long, value_name = "SECONDS", default_value = "3", value_parser = seconds)]
    seconds: Duration,
    /// Cues that are due at one instant
    #[arg(long, value_name = "CUES", default_value_t = 10_000, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    herd: u64,
    /// Cues that are due one after the other, ten a second
    #[arg(long, value_name = "CUES", default_value_t = 200, value_parser = clap::value_parser!(u64).range(1..=100_000))]
    trickle: u64,
    /// Print JSON in place of a table
    #[arg(long)]
    json: bool,
}

impl BenchCommand {
    /// Measures, and prints what was seen.
    ///
    /// # Errors
    /// Says what stood in the way.
    pub fn run(self) -> Result<(), CliError> {
        let cues = |count: u64| usize::try_from(count).unwrap_or(usize::MAX);
        let options = BenchOptions {
            folder: self.dir,
            each: self.seconds,
            herd: cues(self.herd),
            trickle: cues(self.trickle),
        };
        let report = bench::run(&options, &progress).map_err(|error| CliError::Failed(error.to_string()))?;
        let text = if self.json { format!("{:#}\n", report.json()) } else { report.to_string() };
        let mut out = std::io::stdout().lock();
        out.write_all(text.as_bytes())
            .and_then(|()| out.flush())
            .map_err(|error| CliError::Failed(format!("standard output cannot be written: {error}")))
    }
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: Option<f64> = text.parse().ok().filter(|seconds| (0.1..=600.0).contains(seconds));
    seconds.map(Duration::from_secs_f64).ok_or_else(|| "give 0.1 to 600 seconds".to_owned())
}

/// A bar on a terminal; nothing where standard error is a file.
fn progress(what: &str, done: usize, all: usize) {
    if !std::io::stderr().is_terminal() {
        return;
    }
    let bar = format!("{}{}", "#".repeat(2 * done), ".".repeat(2 * (all - done)));
    let line = if done == all { String::new() } else { format!("[{bar}] {what}") };
    eprint!("\r{line:<100}\r{line}");
}
