//! The settings of a worker, and the state that its threads share: its runs, the stop, the pauses.

use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustix::fs::{Access, access};

use crate::api::work::Claim;
use crate::client::Client;
use crate::client::request::{ApiResponse, ClientError};
use crate::system::locks::{Condvar, Mutex};
use crate::worker::api::Api;
use crate::worker::process::{Cause, EndRequest};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Task {
    /// Executions with this `payload.task`; `None` is any task of the agent.
    pub name: Option<String>,
    /// The program and its arguments. No shell reads them.
    pub command: Vec<OsString>,
    pub timeout: Duration,
    pub folder: Option<PathBuf>,
    pub environment: Vec<(String, String)>,
}

impl Task {
    /// The reason why the working directory cannot be used.
    pub fn folder_fault(&self) -> Option<String> {
        let folder = self.folder.as_deref()?;
        fault(folder, true)
            .map(|fault| format!("cannot use the working directory {}: {fault}", folder.display()))
    }

    /// The reason why the command cannot be run; `None` if its working directory and its program exist.
    pub fn command_fault(&self) -> Option<String> {
        if let Some(fault) = self.folder_fault() {
            return Some(fault);
        }
        let program = self.command.first()?;
        if program.as_bytes().contains(&b'/') {
            let path = self.folder.as_deref().unwrap_or_else(|| Path::new("")).join(program);
            return fault(&path, false)
                .map(|fault| format!("cannot run {}: {fault}", path.display()));
        }
        let folders = std::env::var_os("PATH").unwrap_or_default();
        let is_found =
            std::env::split_paths(&folders).any(|it| fault(&it.join(program), false).is_none());
        (!is_found).then(|| format!("there is no program {} in PATH", program.display()))
    }
}

/// The reason why a path is not a folder to enter, or not a program to run.
fn fault(path: &Path, is_folder: bool) -> Option<String> {
    match path.metadata() {
        Err(error) => Some(error.to_string()),
        Ok(metadata) if metadata.is_dir() != is_folder => {
            Some(format!("it is not a {}", if is_folder { "folder" } else { "file" }))
        }
        Ok(_) => {
            access(path, Access::EXEC_OK).err().map(|error| io::Error::from(error).to_string())
        }
    }
}

/// When a worker ends by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    Forever,
    Once,
    /// When nothing waits and nothing runs.
    Drain,
}

#[derive(Debug, Clone)]
pub struct Settings {
    pub worker_id: String,
    pub tasks: Vec<Task>,
    pub agent: Option<String>,
    pub jobs: usize,
    /// The time that commands have to end after a stop signal.
    pub grace: Duration,
    pub mode: Mode,
    pub passes_key: bool,
    /// Time between two heartbeats of the worker. A run has its own after a third of its lease, or after five times
    /// this time if that is shorter.
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

pub const MAX_WAIT: Duration = Duration::from_secs(10);

/// How urgent a stop is: the number of signals.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum StopLevel {
    /// Runs may end within the grace time.
    Graceful,
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
    end: Mutex<EndRequest>,
}

impl Run {
    pub fn end_request(&self) -> EndRequest {
        *self.end.lock()
    }

    pub fn end(&self, cause: Cause, is_urgent: bool) {
        let mut end = self.end.lock();
        if end.cause.is_none() || cause == Cause::Lost {
            end.cause = Some(cause);
        }
        end.is_urgent |= is_urgent;
    }

    /// The command has ended: the report needs no lease.
    pub fn end_lease(&self) {
        self.end.lock().has_ended = true;
    }

    pub fn needs_lease(&self) -> bool {
        let end = self.end_request();
        !end.has_ended && end.cause != Some(Cause::Lost)
    }
}

/// What a worker has done, and why it ended.
#[derive(Debug, Default)]
pub struct WorkerSummary {
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
    /// Nothing waits and nothing runs, in [`Mode::Drain`].
    is_drained: bool,
    /// Failed requests for work in a row, and the instant before which there is no other.
    failures: u32,
    resume_at: Duration,
    stop: Option<(StopLevel, Duration)>,
    summary: WorkerSummary,
}

pub struct Shared {
    pub settings: Settings,
    pub client: Arc<Client>,
    /// The name under which this process claims. No other process has it, so that heartbeats of a successor do not
    /// extend the leases of a process that was killed.
    claimant: String,
    pub on_recorded: Box<dyn Fn(&ApiResponse) + Send + Sync>,
    state: Mutex<State>,
    changed: Condvar,
}

impl Shared {
    pub fn new(
        settings: Settings,
        client: Arc<Client>,
        claimant: String,
        on_recorded: Box<dyn Fn(&ApiResponse) + Send + Sync>,
    ) -> Self {
        let (state, changed) = (Mutex::default(), Condvar::default());
        Self { settings, client, claimant, on_recorded, state, changed }
    }

    pub fn api(&self) -> Api<'_> {
        Api { client: &self.client, claimant: &self.claimant }
    }

    pub fn task(&self, place: usize) -> &Task {
        &self.settings.tasks[place]
    }

    pub fn now(&self) -> Duration {
        self.client.clock().monotonic()
    }

    fn change<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let result = change(&mut self.state.lock());
        self.changed.notify_all();
        result
    }

    /// Waits until `next` has a result. Without one it returns the time after which it is asked again at the latest.
    fn wait_for<T>(&self, mut next: impl FnMut(&mut State) -> Result<T, Duration>) -> T {
        let mut state = self.state.lock();
        loop {
            match next(&mut state) {
                Ok(result) => return result,
                Err(pause) => state = self.changed.wait_timeout(state, pause.min(MAX_WAIT)).0,
            }
        }
    }

    /// Waits until `is_over` or `until`. Returns whether it is over.
    fn wait(&self, until: Duration, is_over: impl Fn(&State) -> bool) -> bool {
        self.wait_for(|state| match until.saturating_sub(self.now()) {
            _ if is_over(state) => Ok(true),
            Duration::ZERO => Ok(false),
            left => Err(left),
        })
    }

    /// Waits for a free slot and the end of all pauses. Takes the slot for a claim if `takes`. Returns `None` if
    /// nothing more is claimed: after a stop, and after the only run of [`Mode::Once`].
    pub fn wait_for_slot(&self, takes: bool) -> Option<()> {
        self.wait_for(|state| {
            if state.stop.is_some() || (self.settings.mode == Mode::Once && state.summary.runs > 0)
            {
                return Ok(None);
            }
            match state.resume_at.saturating_sub(self.now()) {
                Duration::ZERO if state.claiming + state.runs.len() < self.settings.jobs => {
                    state.claiming += usize::from(takes);
                    Ok(Some(()))
                }
                Duration::ZERO => Err(MAX_WAIT),
                pause => Err(pause),
            }
        })
    }

    pub fn free_slot(&self) {
        self.change(|state| state.claiming -= 1);
    }

    /// A claim succeeded: the run begins.
    pub fn begin(&self, place: usize, claim: Claim) -> Arc<Run> {
        let run = Arc::new(Run { claim, place, end: Mutex::default() });
        self.change(|state| {
            state.failures = 0;
            state.claiming -= 1;
            state.changes += 1;
            state.summary.runs += 1;
            state.runs.push(Arc::clone(&run));
        });
        run
    }

    pub fn request_succeeded(&self) {
        self.state.lock().failures = 0;
    }

    /// A poll or a claim failed: claims and polls pause, or the worker ends.
    pub fn request_failed(&self, error: ClientError) {
        let retry_after = error.retry_after();
        // A worker that ends soon waits for a server that says when it will answer, and for no other.
        if !error.may_pass() || (self.settings.mode == Mode::Drain && retry_after.is_none()) {
            return self.give_up(Some(error));
        }
        let (now, mut state) = (self.now(), self.state.lock());
        // Several requests may meet the same fault.
        if now >= state.resume_at {
            state.failures += 1;
            let pause = pause_after(state.failures, retry_after);
            state.resume_at = now + pause;
            tracing::warn!(%error, seconds = pause.as_secs(), "cannot claim executions; trying again");
        }
    }

    /// Stops the worker as the first signal does, after a failure of the server or of the machine.
    pub fn give_up(&self, error: Option<ClientError>) {
        let now = self.now();
        self.change(|state| {
            state.summary.error = state.summary.error.take().or(error);
            state.stop.get_or_insert((StopLevel::Graceful, now));
        });
    }

    /// The number of changes, and whether no command runs.
    pub fn progress(&self) -> (u64, bool) {
        let state = self.state.lock();
        (state.changes, state.runs.is_empty())
    }

    pub fn end_work(&self) {
        self.change(|state| state.is_drained = true);
    }

    /// Waits until `until`, or until a run begins or ends after so many changes.
    pub fn wait_for_change(&self, changes: u64, until: Duration) {
        self.wait(until, |state| state.changes != changes);
    }

    /// Waits for the end of an earlier run of the same execution. Its lease has ended: it cannot have been extended
    /// while the worker, or its machine, stood still.
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
            state.summary.failures += u64::from(failure.is_some());
            state.summary.unreported += u64::from(!is_reported);
            state.summary.last_reason = failure.or(state.summary.last_reason.take());
        });
    }

    /// The runs under way, and the number of changes so far.
    pub fn runs(&self) -> (Vec<Arc<Run>>, u64) {
        let state = self.state.lock();
        (state.runs.clone(), state.changes)
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
    pub fn wait_for_end(&self) -> WorkerSummary {
        self.wait_for(|state| {
            if self.is_over(state) {
                let is_stopped = state.stop.is_some();
                return Ok(WorkerSummary { is_stopped, ..std::mem::take(&mut state.summary) });
            }
            let Some((level, at)) = state.stop else { return Err(MAX_WAIT) };
            let left = (at + self.settings.grace).saturating_sub(self.now());
            if level == StopLevel::Graceful && !left.is_zero() {
                return Err(left);
            }
            let is_urgent = level == StopLevel::Kill;
            state.runs.iter().for_each(|run| run.end(Cause::Stopped, is_urgent));
            Err(MAX_WAIT)
        })
    }

    fn is_over(&self, state: &State) -> bool {
        let is_idle = state.claiming == 0 && state.runs.is_empty();
        match state.stop {
            // A claim without an answer ends with its lease.
            Some((level, _)) => state.runs.is_empty() && (is_idle || level > StopLevel::Graceful),
            None if self.settings.mode == Mode::Once => is_idle && state.summary.runs > 0,
            None => state.is_drained,
        }
    }
}

/// The pause after `failures` in a row: 1 second, doubled with each of them, or what the server asks for if that is
/// longer; at most a minute, because a wrong header would stop the worker for ever.
pub fn pause_after(failures: u32, retry_after: Option<Duration>) -> Duration {
    let seconds = 2_u64.saturating_pow(failures.saturating_sub(1));
    Duration::from_secs(seconds).max(retry_after.unwrap_or_default()).min(Duration::from_secs(60))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_a_minute_or_are_those_that_the_server_asks_for() {
        let seconds = |failures| pause_after(failures, None).as_secs();
        assert_eq!([1, 2, 3, 6, 7, u32::MAX].map(seconds), [1, 2, 4, 32, 60, 60]);
        let asked = |seconds| pause_after(1, Some(Duration::from_secs(seconds))).as_secs();
        assert_eq!([0, 7, 86_400].map(asked), [1, 7, 60]);
    }
}
