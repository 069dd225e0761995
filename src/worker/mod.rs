//! `cued work`: claims executions of tasks, runs a command for each, and reports its outcome.
//!
//! A few threads poll and claim while fewer commands run than may run at a time; each run has a thread; one thread sends
//! heartbeats. An execution is claimed in the name of this process, and its lease is extended for as
//! long as its command runs: if the process is killed, the lease ends and another worker runs the execution.

pub mod api;
pub mod claims;
pub mod outcome;
pub mod process;
pub mod run;
pub mod state;

use std::sync::Arc;
use std::time::Duration;
use std::{io, thread};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use uuid::Uuid;

use crate::client::Client;
use crate::client::request::Answer;
use crate::signals::EndSignals;
use crate::worker::api::HEARTBEAT_TIMEOUT;
use crate::worker::claims::MAX_CLAIMERS;
use crate::worker::state::{Ending, Settings, Shared, StopLevel};

/// Without a sign of life of the heartbeats for this long, the worker hangs. There is one before each request.
const HANG: Duration = Duration::from_secs(90);
const _: () = assert!(HANG.as_secs() > 2 * HEARTBEAT_TIMEOUT.as_secs());

/// The text that follows the name of a worker in its claims.
const SUFFIX: usize = 9;

/// The length of a worker's name: 255 with what follows it in claims (contract §7.4).
pub const MAX_NAME: usize = 255 - SUFFIX;

/// Open files of a job: its connection, and the pipes of its command on both sides while it starts; 10, and spare.
const FILES_PER_JOB: u64 = 16;

/// Those of the rest of the worker: standard streams, connections of claimers and heartbeats, signals.
const OTHER_FILES: u64 = 64;

/// What a thread of a worker does.
type ThreadBody = Box<dyn FnOnce(&Arc<Shared>) + Send>;

/// A worker that has not begun yet.
pub struct Worker {
    shared: Arc<Shared>,
    signals: EndSignals,
}

impl Worker {
    /// A worker that calls `on_recorded` with the answer to each report.
    pub fn new(
        client: Arc<Client>,
        settings: Settings,
        on_recorded: impl Fn(&Answer) + Send + Sync + 'static,
    ) -> io::Result<Self> {
        run::outcome_file().map_err(|error| {
            let text = format!("cannot use the temporary folder: {error}; TMPDIR can name another");
            io::Error::new(error.kind(), text)
        })?;
        let random = Uuid::new_v4().simple().to_string();
        let claimant = format!("{}/{}", settings.worker_id, &random[..SUFFIX - 1]);
        let shared = Shared::new(settings, client, claimant, Box::new(on_recorded));
        Ok(Self { shared: Arc::new(shared), signals: EndSignals::catch()? })
    }

    pub fn settings(&self) -> &Settings {
        &self.shared.settings
    }

    /// Returns whether the worker responds, for as long as it runs.
    pub fn liveness(&self) -> impl Fn() -> bool + Send + 'static {
        let shared = Arc::clone(&self.shared);
        move || shared.is_alive(HANG)
    }

    /// Works until the work ends or the worker is stopped. Its threads are left behind: they hold nothing, and end with the
    /// process.
    pub fn run(self, on_stop: impl Fn() + Send + 'static) -> io::Result<Ending> {
        let Self { shared, signals } = self;
        let (jobs, tasks) = (shared.settings.jobs, shared.settings.tasks.len());
        raise_file_limit(jobs)?;
        let start = |name: &str, body: ThreadBody| {
            let shared = Arc::clone(&shared);
            thread::Builder::new().name(name.to_owned()).spawn(move || body(&shared)).map(drop)
        };
        start("signals", Box::new(move |shared| watch_signals(signals, shared, on_stop)))?;
        start("heartbeats", Box::new(|shared| claims::beat(shared)))?;
        let claimers = tasks.min(MAX_CLAIMERS);
        (0..claimers).try_for_each(|first| {
            let places: Vec<usize> = (first..tasks).step_by(claimers).collect();
            start("claimer", Box::new(move |shared| claims::run(shared, &places)))
        })?;
        Ok(shared.wait_for_end())
    }
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

/// Raises the soft limit of open files as far as `jobs` need. Commands inherit it: one that suffices stays as it is.
fn raise_file_limit(jobs: usize) -> io::Result<()> {
    let needed = OTHER_FILES + FILES_PER_JOB * jobs as u64;
    let limit = getrlimit(Resource::Nofile);
    if limit.current.is_none_or(|current| current >= needed) {
        return Ok(());
    }
    let permitted = limit.maximum.map_or(needed, |maximum| maximum.min(needed));
    setrlimit(Resource::Nofile, Rlimit { current: Some(permitted), ..limit })?;
    if permitted < needed {
        let text =
            format!("{jobs} jobs need {needed} open files, and {permitted} are permitted; lower --jobs");
        return Err(io::Error::other(text));
    }
    Ok(())
}
