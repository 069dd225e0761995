//! `cued bench`: what this machine carries, measured on the program itself, its rates beside the machine's own in the
//! same run, so that figures of two machines, or of two versions, can be compared.
//!
//! The program runs as a process of its own on a temporary file (`program`), clients (`load`) and a receiver
//! (`receiver`) run here; `limits` measures the same work without the service; `stage` is what the measures of `work`
//! work with, `report` the figures, `traces` what must not be left behind.

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

use crate::clock::Clock;
use crate::engine::webhook_client::tls::CertificateError;
use crate::error::Error;
use crate::store::OpenError;
use report::BenchReport;

/// What is measured, and for how long.
#[derive(Debug, Clone)]
pub struct BenchOptions {
    /// The folder whose disk is measured; a folder for the temporary files is made in it and removed again.
    pub folder: PathBuf,
    /// How long each rate is measured.
    pub each: Duration,
    /// Cues that are due at one instant.
    pub herd: usize,
    /// Cues that are due one after the other, ten a second.
    pub trickle: usize,
}

/// A benchmark that ended early.
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
    #[error("{path} cannot be created: {source}; give another --dir")]
    Folder { path: PathBuf, source: std::io::Error },
    #[error("{scenario}: {source}")]
    Scenario { scenario: &'static str, source: Box<BenchError> },
    #[error("{source} (in {folder}; if its disk is full or failing, give another --dir)")]
    Measurement { folder: PathBuf, source: Box<BenchError> },
}

type Result<T> = std::result::Result<T, BenchError>;

/// Measures everything; `progress` is told what comes next, and how many of how many are done.
///
/// # Errors
/// Says what stood in the way. The temporary files are removed either way, as they are when SIGINT, SIGTERM or SIGHUP
/// ends the process.
pub fn run(options: &BenchOptions, progress: &dyn Fn(&str, usize, usize)) -> Result<BenchReport> {
    let clock = Arc::new(Clock::system());
    let folder = cleanup::Cleanup::watch()?.folder(&options.folder)?;
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
    let steps = scenarios::STEPS;
    let mut bench = harness::Harness::start(options.clone(), clock, folder)?;
    for (done, (what, step)) in steps.iter().enumerate() {
        progress(what, done, steps.len());
        step(&mut bench, report)
            .map_err(|error| BenchError::Scenario { scenario: what, source: Box::new(error) })?;
    }
    progress("done", steps.len(), steps.len());
    Ok(())
}
