//! `cued bench`: shows what this machine carries.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use serde_json::json;

use crate::bench::{self, BenchOptions, Figure, Unit};
use crate::cli::error::{CliError, failed};
use crate::cli::output::print;
use crate::cli::progress::Bar;
use crate::cores;

#[derive(Debug, Args)]
pub struct BenchCommand {
    /// Directory for the temporary files, on the disk to measure; they are deleted afterwards
    #[arg(long, value_name = "DIR", default_value = ".")]
    dir: PathBuf,
    /// Duration of each measurement of a rate, 0.1 to 60 seconds
    #[arg(long, value_name = "SECONDS", default_value = "3", value_parser = seconds)]
    seconds: Duration,
    /// Number of cues due at the same instant
    #[arg(long, value_name = "COUNT", default_value_t = 5_000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    herd: u32,
    /// Print JSON instead of a table
    #[arg(long)]
    json: bool,
}

impl BenchCommand {
    pub fn run(self) -> Result<(), CliError> {
        let herd = usize::try_from(self.herd).unwrap_or(usize::MAX);
        let options = BenchOptions { folder: self.dir, duration: self.seconds, herd };
        let mut bar = Bar::new("bench");
        let mut show =
            |step: &str, done: usize, all: usize| bar.show(done as u64, all as u64, step);
        let figures = bench::run(&options, &mut show);
        bar.end();
        let figures = figures.map_err(failed)?;
        if self.json {
            let (version, seconds) = (env!("CARGO_PKG_VERSION"), options.duration.as_secs_f64());
            let report = json!({
                "version": version, "cpus": cores::count(), "seconds": seconds, "herd": herd, "results": figures,
            });
            return print(&format!("{report:#}\n"));
        }
        print(&figures.iter().map(line).collect::<String>())
    }
}

fn line(figure: &Figure) -> String {
    let value = match figure.unit {
        Unit::PerSecond => format!("{:.0}/s", figure.value),
        Unit::Milliseconds => format!("{:.2} ms", figure.value),
        Unit::Bytes => format!("{:.1} MiB", figure.value / 1_048_576.0),
    };
    format!("{:<48} {value:>12}\n", figure.description)
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: Option<f64> = text.parse().ok().filter(|seconds| (0.1..=60.0).contains(seconds));
    seconds.map(Duration::from_secs_f64).ok_or_else(|| "expected 0.1 to 60 seconds".to_owned())
}
