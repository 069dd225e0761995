//! `cued work`: claims executions of tasks, runs a command for each, and reports its outcome.
//!
//! One thread per slot claims, runs and reports, so that as many commands run as there are slots; a few threads poll for
//! work while slots are free; one sends heartbeats. An execution is claimed in the name of this process, and its lease is
//! extended for as long as its command runs: if the process is killed, the lease ends and another worker runs the execution.

pub mod api;
pub mod backoff;
pub mod environment;
pub mod outcome;
pub mod process;
pub mod queues;
pub mod run;
pub mod signals;
pub mod state;
pub mod task;
pub mod threads;

use std::io;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use uuid::Uuid;

use crate::client::Client;
use crate::client::error::ClientError;
use crate::client::request::Answer;
use crate::signals::EndSignals;
use crate::worker::api::HEARTBEAT_TIMEOUT;
use crate::worker::outcome::folder::OutcomeFolder;
use crate::worker::process::open_files;
use crate::worker::run::Tally;
use crate::worker::signals::watch_signals;
use crate::worker::state::Shared;
use crate::worker::task::Settings;
use crate::worker::threads::poller::MAX_POLLERS;
use crate::worker::threads::{heartbeats, poller, slot};

/// Without a sign of life of the heartbeats for this long, the worker hangs. There is one before each request.
const HANG: Duration = Duration::from_secs(90);
const _: () = assert!(HANG.as_secs() > 2 * HEARTBEAT_TIMEOUT.as_secs());

/// The text that follows the name of a worker in its claims.
const SUFFIX: usize = 9;

/// The length of a worker's name: 255 with what follows it in claims (contract §7.4).
pub const MAX_NAME: usize = 255 - SUFFIX;

/// A worker that has not begun yet.
pub struct Worker {
    shared: Arc<Shared>,
    signals: EndSignals,
}

/// The end of a worker.
#[derive(Debug)]
pub struct Ending {
    pub tally: Tally,
    /// The reason why it could not go on.
    pub error: Option<ClientError>,
    /// It ended before its work did.
    pub is_stopped: bool,
}

impl Worker {
    /// A worker that calls `on_recorded` with the answer to each report.
    ///
    /// # Errors
    /// If the temporary folder cannot be used, or the system refuses the handlers of signals.
    pub fn new(
        client: Arc<Client>,
        settings: Settings,
        on_recorded: impl Fn(&Answer) + Send + Sync + 'static,
    ) -> io::Result<Self> {
        let random = Uuid::new_v4().simple().to_string();
        let claimant = format!("{}/{}", settings.worker_id, &random[..SUFFIX - 1]);
        let folder = OutcomeFolder::create().map_err(|error| {
            let text = format!("cannot use the temporary folder: {error}; TMPDIR can name another");
            io::Error::new(error.kind(), text)
        })?;
        let shared = Shared::new(settings, client, claimant, folder, Box::new(on_recorded));
        Ok(Self { shared: Arc::new(shared), signals: EndSignals::catch()? })
    }

    #[must_use]
    pub fn settings(&self) -> &Settings {
        &self.shared.settings
    }

    /// Returns whether the worker responds, for as long as it runs.
    pub fn liveness(&self) -> impl Fn() -> bool + Send + 'static {
        let shared = Arc::clone(&self.shared);
        move || shared.is_alive(HANG)
    }

    /// Works until the work ends or the worker is stopped. Threads that wait for the server are left behind: they hold
    /// nothing, and end with the process.
    ///
    /// # Errors
    /// If the system cannot start a thread.
    pub fn run(self, on_stop: impl Fn() + Send + 'static) -> io::Result<Ending> {
        let settings = &self.shared.settings;
        let (jobs, pollers) = (settings.jobs, settings.tasks.len().min(MAX_POLLERS));
        if let Err(error) = open_files::raise_limit(jobs) {
            tracing::warn!(%error, jobs, "the limit of open files is low; commands may have to wait for others");
        }
        let start = |name: &str, body: fn(&Shared)| {
            let shared = Arc::clone(&self.shared);
            thread::Builder::new().name(name.to_owned()).spawn(move || body(&shared)).map(drop)
        };
        let (shared, signals) = (Arc::clone(&self.shared), self.signals);
        let watch = move || watch_signals(signals, &shared, on_stop);
        thread::Builder::new().name("signals".to_owned()).spawn(watch)?;
        start("heartbeats", heartbeats::run)?;
        (0..jobs).try_for_each(|_| start("slot", slot::run))?;
        (0..pollers).try_for_each(|_| start("poller", poller::run))?;
        let (tally, error, is_stopped) = self.shared.wait_for_end();
        self.shared.outcome_folder.remove();
        Ok(Ending { tally, error, is_stopped })
    }
}
