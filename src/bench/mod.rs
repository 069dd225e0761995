//! `cued bench`: measures throughput, latency, lateness, memory and disk writes. Each rate is reported next to baselines,
//! the same work without cued measured in the same run, so that results from two machines or two versions can be compared.
//!
//! The server runs as a child process on a temporary database (`server_process`). The clients (`client`), the receiver
//! of the webhooks (`receiver`) and the baselines (`baseline`) run in this process. `harness` starts all of them,
//! `scenarios` measures, `written` counts what goes to the disk, `report` prints and compares, `cleanup` removes the child
//! processes and the temporary files. `growth` measures files of growing size, `fsync_delay` makes the disk slower.

mod baseline;
mod cleanup;
mod client;
mod fsync_delay;
mod growth;
mod harness;
mod receiver;
pub mod report;
mod scenarios;
mod server_process;
mod written;

use std::fmt;
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use thiserror::Error as ThisError;

use crate::bench::report::BenchReport;
use crate::clock::Clock;
use crate::cores;
use crate::engine::webhook_client::tls::CertificateError;
use crate::error::Error;
use crate::store::OpenError;

/// The kind of measurement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Suite {
    /// The scenarios, one after another on one file.
    Scenarios,
    /// The same few rates on files of growing size.
    Growth,
}

#[derive(Debug, Clone)]
pub struct BenchOptions {
    pub suite: Suite,
    /// Names of the scenarios to run; empty is all of them.
    pub only: Vec<String>,
    /// Folder on the disk to measure. The temporary files go into a new folder in it, which is removed afterwards.
    pub folder: PathBuf,
    /// Duration of each throughput measurement.
    pub duration: Duration,
    /// Number of cues due at the same instant.
    pub herd: usize,
    /// Number of cues due one after another, ten per second.
    pub trickle: usize,
    /// The number of runs of each scenario.
    pub repeat: u32,
    /// By how much each sync of the server and of the baselines takes longer.
    pub fsync_delay: Option<Duration>,
    /// The size of the largest file of [`Suite::Growth`], in cues and in executions.
    pub largest: u32,
    /// The name of this run in a history.
    pub label: Option<String>,
}

#[derive(Debug, ThisError)]
pub enum BenchError {
    #[error("{0}")]
    Failed(String),
    #[error(transparent)]
    Io(#[from] std::io::Error),
    #[error(transparent)]
    Action(#[from] Error),
    #[error(transparent)]
    Open(#[from] OpenError),
    #[error(transparent)]
    Certificate(#[from] CertificateError),
    #[error("cannot create {path}: {source}; choose another folder with --dir")]
    Folder { path: PathBuf, source: std::io::Error },
    #[error("cannot write the history {path}: {source}; choose another file with --history")]
    History { path: PathBuf, source: std::io::Error },
    #[error("cannot compare with {path}: {why}; give --compare a file that --history or --json made")]
    Comparison { path: PathBuf, why: String },
    #[error("there is no scenario {name:?}; those of --only are {}", scenarios::names().join(", "))]
    UnknownScenario { name: String },
    #[error("{scenario}: {source}")]
    Scenario { scenario: &'static str, source: Box<BenchError> },
    #[error("{source} (in {folder}; if its disk is full or failing, choose another with --dir)")]
    Measurement { folder: PathBuf, source: Box<BenchError> },
}

type Result<T> = std::result::Result<T, BenchError>;

/// Results and the way to print them.
pub struct BenchRun {
    pub report: BenchReport,
    suite: Suite,
}

impl fmt::Display for BenchRun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.suite {
            Suite::Scenarios => write!(f, "{}", self.report),
            Suite::Growth => write!(f, "{}", growth::Tables(&self.report)),
        }
    }
}

/// Runs the selected scenarios. `progress` receives the name of the next scenario, the number done and the total.
///
/// # Errors
/// If a scenario is unknown or fails. The temporary files are removed in any case, also on SIGINT, SIGTERM and SIGHUP.
pub fn run(options: &BenchOptions, progress: &dyn Fn(&str, usize, usize)) -> Result<BenchRun> {
    let selected = scenarios::selected(options)?;
    fsync_delay::apply(options.fsync_delay)?;
    let clock = Arc::new(Clock::system());
    let mut report = BenchReport::new(conditions(options, &clock));
    let folder = cleanup::Cleanup::install()?.create_folder(&options.folder)?;
    let measured = match options.suite {
        Suite::Scenarios => measure(options, &clock, folder, (&selected, &mut report), progress),
        Suite::Growth => growth::measure(options, &clock, &folder, &mut report, progress),
    };
    measured.map_err(|error| BenchError::Measurement {
        folder: options.folder.clone(),
        source: Box::new(error),
    })?;
    Ok(BenchRun { report, suite: options.suite })
}

fn measure(
    options: &BenchOptions,
    clock: &Arc<Clock>,
    folder: cleanup::Folder,
    (scenarios, report): (&[&scenarios::Scenario], &mut BenchReport),
    progress: &dyn Fn(&str, usize, usize),
) -> Result<()> {
    let mut bench = harness::Harness::start(options.clone(), clock, folder)?;
    let rounds = scenarios.iter().flat_map(|it| (0..options.repeat).map(move |_| it));
    let all = rounds.clone().count();
    for (done, scenario) in rounds.enumerate() {
        progress(scenario.title, done, all);
        (scenario.run)(&mut bench, report)
            .map_err(|error| BenchError::Scenario { scenario: scenario.title, source: Box::new(error) })?;
    }
    progress("done", all, all);
    Ok(())
}

/// The conditions without which this run cannot be compared with another.
fn conditions(options: &BenchOptions, clock: &Clock) -> Value {
    // Null where the system does not tell: it only explains a result.
    let load = fs::read_to_string("/proc/loadavg").ok();
    let load = load.and_then(|text| text.split_whitespace().next().and_then(|load| load.parse::<f64>().ok()));
    json!({
        "version": env!("CARGO_PKG_VERSION"),
        "commit": option_env!("CUED_COMMIT"),
        "label": options.label,
        "date": clock.now().to_string(),
        "cpus": cores::count(),
        "load": load,
        "seconds": options.duration.as_secs_f64(),
        "herd": options.herd,
        "trickle": options.trickle,
        "repeat": options.repeat,
        "fsync_delay_ms": options.fsync_delay.map(|delay| delay.as_secs_f64() * 1_000.0),
    })
}
