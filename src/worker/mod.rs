//! `cued work`: claims executions of tasks, runs a command for each, and reports its outcome.
//!
//! A few threads poll and claim while fewer commands run than may run at a time; each run has a thread; one thread
//! sends heartbeats. An execution is claimed in the name of this process, and its lease is extended for as long as its
//! command runs: if the process is killed, the lease ends and another worker runs the execution.

pub mod api;
pub mod claims;
pub mod init;
pub mod outcome;
pub mod process;
pub mod run;
pub mod state;

use std::sync::Arc;
use std::{io, thread};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use uuid::Uuid;

use crate::client::Client;
use crate::client::request::ApiResponse;
use crate::system::signals::EndSignals;
use crate::worker::claims::MAX_CLAIMERS;
use crate::worker::state::{Mode, Settings, Shared, StopLevel, WorkerSummary};

/// The length of the text that follows the name of a worker in its claims.
const SUFFIX: usize = 9;

/// The length of a worker's name: 255 with what follows it in claims (contract §7.4).
pub const MAX_NAME: usize = 255 - SUFFIX;

/// Open files of a job, with its connection and the pipes of its command, and of the rest of the worker.
const FILES_PER_JOB: u64 = 16;
const OTHER_FILES: u64 = 64;

pub struct Worker {
    shared: Arc<Shared>,
    signals: EndSignals,
}

impl Worker {
    /// A worker that calls `on_recorded` with the answer to each report.
    pub fn new(
        client: Arc<Client>,
        settings: Settings,
        on_recorded: impl Fn(&ApiResponse) + Send + Sync + 'static,
    ) -> io::Result<Self> {
        run::outcome_file().map_err(|error| {
            let text = format!("cannot use the temporary folder: {error}; TMPDIR can name another");
            io::Error::new(error.kind(), text)
        })?;
        let random = Uuid::new_v4().simple().to_string();
        let claimant = format!("{}/{}", settings.worker_id, &random[..SUFFIX - 1]);
        let signals = EndSignals::catch()?;
        tracing::info!(
            worker_id = settings.worker_id,
            tasks = ?settings.tasks.iter().filter_map(|task| task.name.as_deref()).collect::<Vec<_>>(),
            jobs = settings.jobs,
            server = client.connection().url,
            "worker started"
        );
        let shared = Arc::new(Shared::new(settings, client, claimant, Box::new(on_recorded)));
        Ok(Self { shared, signals })
    }

    /// Responds while the state can be locked: not if threads block each other. Each of their requests has a time-out.
    pub fn liveness(&self) -> impl Fn() -> bool + Send + 'static {
        let shared = Arc::clone(&self.shared);
        move || {
            shared.progress();
            true
        }
    }

    /// Works until the work ends or the worker is stopped. Its threads are left behind: they hold nothing, and end with
    /// the process.
    pub fn run(self, on_stop: impl Fn() + Send + 'static) -> io::Result<WorkerSummary> {
        let Self { shared, signals } = self;
        let tasks = shared.settings.tasks.len();
        raise_file_limit(shared.settings.jobs)?;
        let stopped = Arc::clone(&shared);
        start("signals", move || watch_signals(signals, &stopped, on_stop))?;
        let announced = Arc::clone(&shared);
        start("heartbeats", move || claims::beat(&announced))?;
        let is_draining = shared.settings.mode == Mode::Drain;
        let claimers = if is_draining { 1 } else { tasks.min(MAX_CLAIMERS) };
        for first in 0..claimers {
            let (claiming, places) =
                (Arc::clone(&shared), (first..tasks).step_by(claimers).collect());
            start("claimer", move || claims::run(&claiming, places))?;
        }
        Ok(shared.wait_for_end())
    }
}

fn start(name: &str, body: impl FnOnce() + Send + 'static) -> io::Result<()> {
    thread::Builder::new().name(name.to_owned()).spawn(body).map(drop)
}

/// Stops the worker at the first signal, faster at each further one. Never returns.
fn watch_signals(mut signals: EndSignals, worker: &Shared, on_stop: impl Fn()) {
    signals.wait();
    let grace_s = worker.settings.grace.as_secs();
    tracing::info!(grace_s, "stopping: nothing more is claimed; running commands may end");
    // First, because an idle worker ends with the stop.
    on_stop();
    worker.stop();
    loop {
        signals.wait();
        match worker.stop() {
            StopLevel::Kill => tracing::warn!("killing the running commands"),
            _ => tracing::info!("stopping now: ending the running commands"),
        }
    }
}

/// Raises the soft limit of open files as far as `jobs` need and the system permits. Commands inherit it: one that
/// suffices stays as it is.
fn raise_file_limit(jobs: usize) -> io::Result<()> {
    let needed = OTHER_FILES + FILES_PER_JOB * jobs as u64;
    let limit = getrlimit(Resource::Nofile);
    if limit.current.is_some_and(|current| current < needed) {
        let current = Some(limit.maximum.map_or(needed, |maximum| maximum.min(needed)));
        setrlimit(Resource::Nofile, Rlimit { current, ..limit })?;
    }
    Ok(())
}
