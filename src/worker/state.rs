//! The settings of a worker, and the state that its threads share: its runs, the stop, the pauses.

use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustix::fs::{Access, access};

use crate::client::Client;
use crate::client::request::{Answer, ClientError};
use crate::clock::Clock;
use crate::locks::{Condvar, Mutex};
use crate::worker::api::{Api, Claim, may_pass, pause_after};
use crate::worker::process::{Cause, EndRequest};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Task {
    /// Executions with this `payload.task`; `None` is any task of the agent.
    pub name: Option<String>,
    /// The program and its arguments. No shell reads them.
    pub command: Vec<OsString>,
    /// The time after which the command is ended.
    pub timeout: Duration,
    /// The working directory, if it is not that of the worker.
    pub folder: Option<PathBuf>,
    /// Variables of the environment in addition to those of the worker.
    pub environment: Vec<(String, String)>,
}

impl Task {
    /// The reason why the working directory cannot be used; `None` if it can.
    pub fn folder_fault(&self) -> Option<String> {
        let folder = self.folder.as_deref()?;
        let fault = match folder.metadata() {
            Ok(metadata) if metadata.is_dir() => return None,
            Ok(_) => "it is not a folder".to_owned(),
            Err(error) => error.to_string(),
        };
        Some(format!("cannot use the working directory {}: {fault}", folder.display()))
    }

    /// The reason why the command cannot be run; `None` if its working directory and its program exist.
    pub fn command_fault(&self) -> Option<String> {
        if let Some(fault) = self.folder_fault() {
            return Some(fault);
        }
        let program = self.command.first()?;
        if program.as_bytes().contains(&b'/') {
            let path = self.folder.as_deref().unwrap_or_else(|| Path::new("")).join(program);
            return program_fault(&path).map(|fault| format!("cannot run {}: {fault}", path.display()));
        }
        let folders = std::env::var_os("PATH").unwrap_or_default();
        if std::env::split_paths(&folders).any(|folder| program_fault(&folder.join(program)).is_none()) {
            return None;
        }
        let program = program.display();
        let hint = if Path::new(self.command.first()?).exists() {
            format!("; write ./{program}")
        } else {
            String::new()
        };
        Some(format!("there is no program {program} in PATH{hint}"))
    }
}

fn program_fault(path: &Path) -> Option<String> {
    match path.metadata() {
        Err(error) => Some(error.to_string()),
        Ok(metadata) if !metadata.is_file() => Some("it is not a file".to_owned()),
        Ok(_) => access(path, Access::EXEC_OK)
            .err()
            .map(|error| format!("{}; `chmod +x` makes it executable", io::Error::from(error))),
    }
}

/// When a worker ends by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Never.
    Forever,
    /// After one run.
    Once,
    /// When nothing waits and nothing runs.
    Drain,
}

#[derive(Debug, Clone)]
pub struct Settings {
    /// The name in the list of workers.
    pub worker_id: String,
    pub tasks: Vec<Task>,
    /// Only executions with this `payload.agent`.
    pub agent: Option<String>,
    /// Commands that run at a time.
    pub jobs: usize,
    /// The time that commands have to end after a stop signal.
    pub grace: Duration,
    pub mode: Mode,
    /// Commands get the key of the worker.
    pub passes_key: bool,
    /// Time between two heartbeats of the worker. A run has its own after a third of its lease, or after five times this time
    /// if that is shorter.
    pub beat: Duration,
}

impl Settings {
    /// The time between two extensions of a lease of so many seconds.
    pub fn lease_interval(&self, lease_seconds: u64) -> Duration {
        // A lease of zero would make a busy loop.
        (Duration::from_secs(lease_seconds.max(3)) / 3).min(self.beat * 5)
    }
}

/// After a stop, reports are retried for this long.
const REPORT_TIME: Duration = Duration::from_secs(300);

/// The longest wait, so that the watchdog sees threads that are alive.
pub const MAX_WAIT: Duration = Duration::from_secs(10);

/// How urgent a stop is: the number of signals.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum StopLevel {
    /// Runs may end within the grace time.
    Graceful,
    /// Runs are ended.
    Now,
    /// Runs are killed, and reports that the server does not accept are given up.
    Kill,
}

/// An execution that this worker holds.
#[derive(Debug)]
pub struct Run {
    pub claim: Claim,
    /// The place of its task in the settings.
    pub place: usize,
    state: Mutex<RunState>,
}

#[derive(Debug, Default)]
struct RunState {
    end: EndRequest,
    /// The lease is lost, or the command has ended: the report needs no lease.
    needs_no_lease: bool,
}

impl Run {
    pub fn end_request(&self) -> EndRequest {
        self.state.lock().end
    }

    /// Ends the command. The first cause counts.
    pub fn end(&self, cause: Cause, is_urgent: bool) {
        let mut state = self.state.lock();
        state.end.cause.get_or_insert(cause);
        state.end.is_urgent |= is_urgent;
        state.needs_no_lease |= cause == Cause::Lost;
    }

    pub fn needs_lease(&self) -> bool {
        !self.state.lock().needs_no_lease
    }

    pub fn end_lease(&self) {
        self.state.lock().needs_no_lease = true;
    }
}

/// What a worker has done, and why it ended.
#[derive(Debug, Default)]
pub struct Ending {
    pub runs: u64,
    pub failures: u64,
    /// Reports that the server did not accept.
    pub unreported: u64,
    /// Why the last failed run failed.
    pub last_reason: Option<String>,
    /// The reason why it could not go on.
    pub error: Option<ClientError>,
    /// It ended before its work did.
    pub is_stopped: bool,
}

#[derive(Debug, Default)]
struct State {
    runs: Vec<Arc<Run>>,
    claiming: usize,
    /// Begins and ends of runs so far.
    changes: u64,
    /// By the places of the tasks: the number of changes before the last poll, if it found nothing.
    idle_since: Vec<Option<u64>>,
    /// Failed requests for work in a row, and the instant before which there is no other.
    failures: u32,
    resume_at: Duration,
    stop: Option<(StopLevel, Duration)>,
    ending: Ending,
    /// The last sign of life of the thread that sends heartbeats.
    alive_at: Duration,
}

/// The worker, as its threads see it.
pub struct Shared {
    pub settings: Settings,
    pub client: Arc<Client>,
    /// The name under which this process claims. No other process has it, so that heartbeats of a successor do not extend
    /// the leases of a process that was killed.
    pub claimant: String,
    pub on_recorded: Box<dyn Fn(&Answer) + Send + Sync>,
    state: Mutex<State>,
    changed: Condvar,
}

impl Shared {
    pub fn new(
        settings: Settings,
        client: Arc<Client>,
        claimant: String,
        on_recorded: Box<dyn Fn(&Answer) + Send + Sync>,
    ) -> Self {
        let idle_since = vec![None; settings.tasks.len()];
        let state = State { idle_since, alive_at: client.clock().monotonic(), ..State::default() };
        let (state, changed) = (Mutex::new(state), Condvar::new());
        Self { settings, client, claimant, on_recorded, state, changed }
    }

    pub fn api(&self) -> Api<'_> {
        Api { client: &self.client, claimant: &self.claimant }
    }

    pub fn clock(&self) -> &Clock {
        self.client.clock()
    }

    pub fn task(&self, place: usize) -> &Task {
        &self.settings.tasks[place]
    }

    fn now(&self) -> Duration {
        self.clock().monotonic()
    }

    /// Changes the state and wakes the threads.
    fn change<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let result = change(&mut self.state.lock());
        self.changed.notify_all();
        result
    }

    /// Waits until `is_over` or `until`. Returns whether it is over.
    fn wait(&self, until: Duration, is_over: impl Fn(&State) -> bool) -> bool {
        let mut state = self.state.lock();
        while !is_over(&state) {
            let left = until.saturating_sub(self.now());
            if left.is_zero() {
                return false;
            }
            state = self.changed.wait_timeout(state, left.min(MAX_WAIT)).0;
        }
        true
    }

    /// After a stop, and after the only run of [`Mode::Once`].
    fn claims_no_more(&self, state: &State) -> bool {
        state.stop.is_some() || (self.settings.mode == Mode::Once && state.ending.runs > 0)
    }

    /// Waits until a slot is free and nothing speaks against a request for work. Takes the slot for a claim if `takes`.
    /// Returns the number of changes so far, or `None` if nothing more is claimed.
    pub fn wait_for_slot(&self, takes: bool) -> Option<u64> {
        let mut state = self.state.lock();
        while !self.claims_no_more(&state) {
            let pause = state.resume_at.saturating_sub(self.now());
            let is_free = state.claiming + state.runs.len() < self.settings.jobs;
            if pause.is_zero() && is_free {
                state.claiming += usize::from(takes);
                return Some(state.changes);
            }
            let pause = if pause.is_zero() { MAX_WAIT } else { pause.min(MAX_WAIT) };
            state = self.changed.wait_timeout(state, pause).0;
        }
        None
    }

    /// A poll of this task began after so many changes, and found nothing.
    pub fn found_nothing(&self, place: usize, changes: u64) {
        self.change(|state| (state.failures, state.idle_since[place]) = (0, Some(changes)));
    }

    /// A claim succeeded: the run begins.
    pub fn begin(&self, place: usize, claim: Claim) -> Arc<Run> {
        let run = Arc::new(Run { claim, place, state: Mutex::default() });
        self.change(|state| {
            state.failures = 0;
            state.claiming -= 1;
            state.changes += 1;
            state.ending.runs += 1;
            state.runs.push(Arc::clone(&run));
        });
        run
    }

    pub fn claim_found_nothing(&self) {
        self.change(|state| (state.failures, state.claiming) = (0, state.claiming - 1));
    }

    /// A poll or a claim failed: claims and polls pause, or the worker ends.
    pub fn request_failed(&self, error: ClientError, is_claim: bool) {
        let (text, now) = (error.to_string(), self.now());
        let pause = self.change(|state| {
            state.claiming -= usize::from(is_claim);
            let retry_after = error.retry_after();
            // A worker that ends soon waits for a server that says when it will answer, and for no other.
            if !may_pass(&error) || (self.settings.mode == Mode::Drain && retry_after.is_none()) {
                state.ending.error.get_or_insert(error);
                state.stop.get_or_insert((StopLevel::Graceful, now));
                return None;
            }
            // Several requests may meet the same fault.
            (now >= state.resume_at).then(|| {
                state.failures += 1;
                let pause = pause_after(state.failures, retry_after);
                state.resume_at = now + pause;
                pause
            })
        });
        if let Some(pause) = pause {
            tracing::warn!(error = text, seconds = pause.as_secs(), "cannot claim executions; trying again");
        }
    }

    /// Stops the worker as the first signal does, after a failure of the server or of the machine.
    pub fn give_up(&self, error: Option<ClientError>) {
        let now = self.now();
        self.change(|state| {
            state.ending.error = state.ending.error.take().or(error);
            state.stop.get_or_insert((StopLevel::Graceful, now));
        });
    }

    /// Waits until `until`, or until a run begins or ends after so many changes.
    pub fn wait_for_change(&self, changes: u64, until: Duration) {
        self.wait(until, |state| state.changes != changes);
    }

    /// Waits for the end of an earlier run of the same execution. Its lease has ended: it cannot have been extended while
    /// the worker, or its machine, stood still.
    pub fn wait_for_earlier(&self, run: &Arc<Run>) {
        self.wait(Duration::MAX, |state| {
            let mut earlier = state.runs.iter().take_while(|other| !Arc::ptr_eq(other, run));
            let same = earlier.find(|other| other.claim.execution_id == run.claim.execution_id);
            same.inspect(|earlier| earlier.end(Cause::Lost, false)).is_none()
        });
    }

    /// Waits before a report is sent again. Returns `false` if it is given up.
    pub fn wait_to_report(&self, pause: Duration, ended_at: Duration) -> bool {
        !self.wait(self.now() + pause, |state| {
            state.stop.is_some_and(|(level, at)| {
                level == StopLevel::Kill || self.now() >= at.max(ended_at) + REPORT_TIME
            })
        })
    }

    /// A run is over and its outcome reported. `failure` is why it failed.
    pub fn end(&self, run: &Arc<Run>, failure: Option<String>, is_reported: bool) {
        self.change(|state| {
            state.runs.retain(|other| !Arc::ptr_eq(other, run));
            state.changes += 1;
            state.ending.failures += u64::from(failure.is_some());
            state.ending.unreported += u64::from(!is_reported);
            state.ending.last_reason = failure.or(state.ending.last_reason.take());
        });
    }

    /// The runs under way, and the number of changes so far.
    pub fn runs(&self) -> (Vec<Arc<Run>>, u64) {
        let state = self.state.lock();
        (state.runs.clone(), state.changes)
    }

    /// The thread that sends heartbeats is about to make a request, or to wait.
    pub fn record_sign_of_life(&self) {
        self.state.lock().alive_at = self.now();
    }

    /// Whether the thread that sends heartbeats gave a sign of life in this time.
    pub fn is_alive(&self, within: Duration) -> bool {
        let alive_at = self.state.lock().alive_at;
        self.now().saturating_sub(alive_at) < within
    }

    /// A signal to stop, the first or a further one.
    pub fn stop(&self) -> StopLevel {
        let now = self.now();
        self.change(|state| {
            let (level, at) = match state.stop {
                None => (StopLevel::Graceful, now),
                Some((StopLevel::Graceful, at)) => (StopLevel::Now, at),
                Some((_, at)) => (StopLevel::Kill, at),
            };
            state.stop = Some((level, at));
            level
        })
    }

    /// Waits for the end: of the work, or after a stop. Ends the runs that the stop does not wait for.
    pub fn wait_for_end(&self) -> Ending {
        let mut state = self.state.lock();
        while !self.is_over(&state) {
            let mut pause = MAX_WAIT;
            if let Some((level, at)) = state.stop {
                let left = (at + self.settings.grace).saturating_sub(self.now());
                if level > StopLevel::Graceful || left.is_zero() {
                    let is_urgent = level == StopLevel::Kill;
                    state.runs.iter().for_each(|run| run.end(Cause::Stopped, is_urgent));
                    self.changed.notify_all();
                } else {
                    pause = left.min(MAX_WAIT);
                }
            }
            state = self.changed.wait_timeout(state, pause).0;
        }
        Ending { is_stopped: state.stop.is_some(), ..std::mem::take(&mut state.ending) }
    }

    fn is_over(&self, state: &State) -> bool {
        let is_idle = state.claiming == 0 && state.runs.is_empty();
        match (state.stop, self.settings.mode) {
            // A claim without an answer ends with its lease.
            (Some((level, _)), _) if level > StopLevel::Graceful => state.runs.is_empty(),
            (Some(_), _) => is_idle,
            (None, Mode::Forever) => false,
            (None, Mode::Once) => is_idle && state.ending.runs > 0,
            (None, Mode::Drain) => {
                is_idle && state.idle_since.iter().all(|changes| *changes == Some(state.changes))
            }
        }
    }
}
