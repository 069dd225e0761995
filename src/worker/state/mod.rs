//! The state that the threads of a worker share: its runs, the stop, the pauses.

pub mod leases;
pub mod shortages;

use std::sync::Arc;
use std::time::Duration;

use crate::client::Client;
use crate::client::error::ClientError;
use crate::client::request::Answer;
use crate::clock::Clock;
use crate::locks::{Condvar, Mutex};
use crate::worker::api::{Api, Claim, Failure};
use crate::worker::backoff::Backoff;
use crate::worker::outcome::folder::OutcomeFolder;
use crate::worker::process::handle::Handle;
use crate::worker::process::life::Cause;
use crate::worker::queues::{Permit, Queues};
use crate::worker::run::{Run, StopLevel, Tally};
use crate::worker::task::{Mode, Settings, Task};

/// After a stop, reports are retried for this long.
const REPORT_TIME: Duration = Duration::from_secs(300);

/// The longest wait, so that the watchdog sees threads that are alive.
const MAX_WAIT: Duration = Duration::from_secs(10);

#[derive(Debug)]
struct State {
    queues: Queues,
    backoff: Backoff,
    /// No claim and no poll before this instant.
    resume_at: Duration,
    claiming: usize,
    runs: Vec<Arc<Run>>,
    stop: Option<(StopLevel, Duration)>,
    error: Option<ClientError>,
    tally: Tally,
    /// Runs that have ended.
    ended_runs: u64,
    /// Slots that wait for resources of the machine.
    shortages: usize,
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
    pub outcome_folder: OutcomeFolder,
    pub on_recorded: Box<dyn Fn(&Answer) + Send + Sync>,
    state: Mutex<State>,
    changed: Condvar,
}

impl Shared {
    pub fn new(
        settings: Settings,
        client: Arc<Client>,
        claimant: String,
        outcome_folder: OutcomeFolder,
        on_recorded: Box<dyn Fn(&Answer) + Send + Sync>,
    ) -> Self {
        let queues = Queues::new(settings.tasks.len(), settings.jobs, settings.agent.is_some());
        let state = State {
            queues,
            backoff: Backoff::default(),
            resume_at: Duration::ZERO,
            claiming: 0,
            runs: Vec::new(),
            stop: None,
            error: None,
            tally: Tally::default(),
            ended_runs: 0,
            shortages: 0,
            alive_at: client.clock().monotonic(),
        };
        let (state, changed) = (Mutex::new(state), Condvar::new());
        Self { settings, client, claimant, outcome_folder, on_recorded, state, changed }
    }

    #[must_use]
    pub fn api(&self) -> Api<'_> {
        Api { client: &self.client, claimant: &self.claimant }
    }

    #[must_use]
    pub fn clock(&self) -> &Clock {
        self.client.clock()
    }

    #[must_use]
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

    /// The worker stops, or has had the only run that it is to have.
    fn claims_no_more(&self, state: &State) -> bool {
        state.stop.is_some() || (self.settings.mode == Mode::Once && state.tally.runs > 0)
    }

    /// Waits for a claim that may succeed. `None` if nothing more is to be claimed.
    pub fn next_claim(&self) -> Option<(usize, Permit)> {
        let mut state = self.state.lock();
        loop {
            if self.claims_no_more(&state) {
                return None;
            }
            let now = self.now();
            let has_slot = state.claiming + state.runs.len() < self.settings.jobs;
            if now >= state.resume_at
                && state.shortages == 0
                && has_slot
                && let Some(taken) = state.queues.take()
            {
                state.claiming += 1;
                return Some(taken);
            }
            let pause = state.resume_at.saturating_sub(now);
            let pause = if pause.is_zero() { MAX_WAIT } else { pause.min(MAX_WAIT) };
            state = self.changed.wait_timeout(state, pause).0;
        }
    }

    /// A claim succeeded: the run begins.
    pub fn begin(&self, place: usize, claim: Claim, handle: Handle) -> Arc<Run> {
        let extend_at = self.now() + self.lease_interval(claim.lease_seconds);
        let run = Arc::new(Run::new(claim, place, handle, extend_at));
        self.change(|state| {
            state.queues.claimed(place);
            state.backoff.succeed();
            state.claiming -= 1;
            state.tally.runs += 1;
            state.runs.push(Arc::clone(&run));
        });
        run
    }

    /// A run without a claim at a server.
    #[cfg(test)]
    pub fn begin_test_run(&self, claim: Claim, handle: Handle) {
        let run = Run::new(claim, 0, handle, Duration::ZERO);
        self.change(|state| state.runs.push(Arc::new(run)));
    }

    /// Waits for the end of an earlier run of the same execution. Its lease has ended: it cannot have been extended while
    /// the worker, or its machine, stood still.
    pub fn wait_for_earlier(&self, run: &Arc<Run>) {
        let mut state = self.state.lock();
        loop {
            let id = &run.claim.execution_id;
            let earlier = state.runs.iter().take_while(|other| !Arc::ptr_eq(other, run));
            let Some(earlier) = earlier.into_iter().find(|other| other.claim.execution_id == *id) else {
                return;
            };
            earlier.handle.end(Cause::Lost);
            earlier.end_lease();
            state = self.changed.wait_timeout(state, MAX_WAIT).0;
        }
    }

    /// A claim found nothing.
    pub fn claim_found_nothing(&self, place: usize) {
        let now = self.now();
        self.change(|state| {
            state.queues.found_nothing(place, now);
            state.backoff.succeed();
            state.claiming -= 1;
        });
    }

    /// A claim failed.
    pub fn claim_failed(&self, place: usize, error: ClientError) {
        let pause = self.change(|state| {
            state.queues.failed(place);
            state.claiming -= 1;
            self.pause_requests(state, error)
        });
        Self::log_pause(pause);
    }

    /// A claim was not made, because the worker stops.
    pub fn cancel_claim(&self, place: usize) {
        self.change(|state| {
            state.queues.failed(place);
            state.claiming -= 1;
        });
    }

    /// A run is over and its outcome reported. `failure` is why it failed.
    pub fn end(&self, run: &Arc<Run>, failure: Option<String>, is_reported: bool) {
        self.change(|state| {
            state.runs.retain(|other| !Arc::ptr_eq(other, run));
            state.ended_runs += 1;
            state.tally.failures += u64::from(failure.is_some());
            state.tally.unreported += u64::from(!is_reported);
            state.tally.last_reason = failure.or(state.tally.last_reason.take());
            if self.settings.mode == Mode::Drain {
                state.queues.expect_work();
            }
        });
    }

    /// Waits for a task to poll, and returns it with the number of free slots. `None` at the end.
    pub fn next_poll(&self) -> Option<(usize, usize)> {
        let mut state = self.state.lock();
        loop {
            if self.claims_no_more(&state) {
                return None;
            }
            let now = self.now();
            let free = self.settings.jobs.saturating_sub(state.claiming + state.runs.len());
            let mut pause = MAX_WAIT;
            if now < state.resume_at {
                pause = state.resume_at - now;
            } else if free > 0 && state.shortages == 0 {
                match state.queues.begin_poll(now) {
                    Ok(place) => return Some((place, free)),
                    Err(Some(poll_at)) => pause = poll_at.saturating_sub(now),
                    Err(None) => {}
                }
            }
            state = self.changed.wait_timeout(state, pause.min(MAX_WAIT)).0;
        }
    }

    pub fn polled(&self, place: usize, found: Vec<String>) {
        let now = self.now();
        self.change(|state| {
            state.queues.polled(place, found, now);
            state.backoff.succeed();
        });
    }

    pub fn poll_failed(&self, place: usize, error: ClientError) {
        let pause = self.change(|state| {
            state.queues.poll_failed(place);
            self.pause_requests(state, error)
        });
        Self::log_pause(pause);
    }

    /// Pauses claims and polls after a failure. Returns the pause and the reason, unless the pause has begun already.
    fn pause_requests(&self, state: &mut State, error: ClientError) -> Option<(Duration, String)> {
        let retry_after = match Failure::of(&error) {
            // A worker that ends soon waits for a server that says when it will answer, and for no other.
            Failure::Passing { retry_after }
                if self.settings.mode != Mode::Drain || retry_after.is_some() =>
            {
                retry_after
            }
            _ => {
                self.fail(state, error);
                return None;
            }
        };
        let now = self.now();
        if now < state.resume_at {
            // One fault that several requests met.
            return None;
        }
        let pause = state.backoff.fail(retry_after);
        state.resume_at = now + pause;
        Some((pause, error.to_string()))
    }

    fn log_pause(pause: Option<(Duration, String)>) {
        if let Some((pause, error)) = pause {
            tracing::warn!(error, seconds = pause.as_secs(), "cannot claim executions; trying again");
        }
    }

    fn fail(&self, state: &mut State, error: ClientError) {
        state.error.get_or_insert(error);
        state.stop.get_or_insert((StopLevel::Graceful, self.now()));
    }

    /// A failure after which the worker cannot go on.
    pub fn give_up(&self, error: ClientError) {
        self.change(|state| self.fail(state, error));
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

    /// Waits before the next try of a report. Returns `false` if it is to be given up.
    pub fn wait_to_report(&self, pause: Duration, ended_at: Duration) -> bool {
        let mut state = self.state.lock();
        let end = self.now() + pause;
        loop {
            let now = self.now();
            match state.stop {
                Some((StopLevel::Kill, _)) => return false,
                Some((_, at)) if now >= at.max(ended_at) + REPORT_TIME => return false,
                _ => {}
            }
            if now >= end {
                return true;
            }
            state = self.changed.wait_timeout(state, end - now).0;
        }
    }

    /// Waits until a change, or until `until`.
    pub fn wait_until(&self, until: Duration) {
        let state = self.state.lock();
        let pause = until.saturating_sub(self.now()).min(MAX_WAIT);
        if !pause.is_zero() {
            drop(self.changed.wait_timeout(state, pause));
        }
    }

    /// Waits for the end: of the work, or after a stop. Ends the runs that the stop does not wait for.
    pub fn wait_for_end(&self) -> (Tally, Option<ClientError>, bool) {
        let mut state = self.state.lock();
        loop {
            if self.is_over(&state) {
                return (state.tally.clone(), state.error.take(), state.stop.is_some());
            }
            let mut pause = MAX_WAIT;
            if let Some((level, at)) = state.stop {
                let left = (at + self.settings.grace).saturating_sub(self.now());
                match level {
                    StopLevel::Kill => state.runs.iter().for_each(|run| run.handle.kill()),
                    _ if level == StopLevel::Now || left.is_zero() => {
                        state.runs.iter().for_each(|run| run.handle.end(Cause::Stopped));
                    }
                    _ => pause = left.min(MAX_WAIT),
                }
            }
            state = self.changed.wait_timeout(state, pause).0;
        }
    }

    fn is_over(&self, state: &State) -> bool {
        let is_idle = state.claiming == 0 && state.runs.is_empty();
        match (state.stop, self.settings.mode) {
            // A claim without an answer ends with its lease.
            (Some((level, _)), _) if level > StopLevel::Graceful => state.runs.is_empty(),
            (Some(_), _) => is_idle,
            (None, Mode::Forever) => false,
            (None, Mode::Once) => is_idle && state.tally.runs > 0,
            (None, Mode::Drain) => is_idle && state.queues.are_empty(),
        }
    }
}
