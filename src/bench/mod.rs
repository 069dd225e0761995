//! `cued bench`: measures throughput, lateness, memory and disk writes. Each rate is reported next to a baseline, the
//! same work without cued measured in the same run, so that results from two machines or two versions can be compared.
//!
//! The server runs as a child process on a temporary database (`server_process`). The clients (`client`), the receiver
//! of the webhooks (`receiver`) and the baselines (`baseline`) run in this process. `harness` starts all of them,
//! `scenarios` measures, `report` prints, `cleanup` removes the child process and the temporary files.

mod baseline;
mod cleanup;
mod client;
mod harness;
mod receiver;
pub mod report;
mod scenarios;
mod server_process;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use thiserror::Error as ThisError;

use crate::bench::report::BenchReport;
use crate::clock::Clock;
use crate::engine::webhook_client::tls::CertificateError;
use crate::error::Error;
use crate::store::OpenError;

#[derive(Debug, Clone)]
pub struct BenchOptions {
    /// Folder on the disk to measure. The temporary files go into a new folder in it, which is removed afterwards.
    pub folder: PathBuf,
    /// Duration of each throughput measurement.
    pub duration: Duration,
    /// Number of cues due at the same instant.
    pub herd: usize,
    /// Number of cues due one after another, ten per second.
    pub trickle: usize,
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
    #[error("{scenario}: {source}")]
    Scenario { scenario: &'static str, source: Box<BenchError> },
    #[error("{source} (in {folder}; if its disk is full or failing, choose another with --dir)")]
    Measurement { folder: PathBuf, source: Box<BenchError> },
}

type Result<T> = std::result::Result<T, BenchError>;

/// Runs all scenarios. `progress` receives the name of the next scenario, the number done and the total.
///
/// # Errors
/// If a scenario fails. The temporary files are removed in any case, also on SIGINT, SIGTERM and SIGHUP.
pub fn run(options: &BenchOptions, progress: &dyn Fn(&str, usize, usize)) -> Result<BenchReport> {
    let clock = Arc::new(Clock::system());
    let folder = cleanup::Cleanup::install()?.create_folder(&options.folder)?;
    let mut report = BenchReport::new(options);
    measure(options, &clock, folder, &mut report, progress).map_err(|error| BenchError::Measurement {
        folder: options.folder.clone(),
        source: Box::new(error),
    })?;
    Ok(report)
}

fn measure(
    options: &BenchOptions,
    clock: &Arc<Clock>,
    folder: cleanup::Folder,
    report: &mut BenchReport,
    progress: &dyn Fn(&str, usize, usize),
) -> Result<()> {
    let scenarios = scenarios::SCENARIOS;
    let mut bench = harness::Harness::start(options.clone(), clock, folder)?;
    for (done, (name, scenario)) in scenarios.iter().enumerate() {
        progress(name, done, scenarios.len());
        scenario(&mut bench, report)
            .map_err(|error| BenchError::Scenario { scenario: name, source: Box::new(error) })?;
    }
    progress("done", scenarios.len(), scenarios.len());
    Ok(())
}
