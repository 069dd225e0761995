//! What the threads of a worker share: the work at hand, the stop, the pauses.

use std::sync::Arc;
use std::time::Duration;

use crate::client::Client;
use crate::client::error::ClientError;
use crate::client::request::Answer;
use crate::clock::Clock;
use crate::locks::{Condvar, Mutex};
use crate::worker::api::{Api, Claim, Failure};
use crate::worker::backoff::Backoff;
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
    /// The last turn of the thread that sends heartbeats.
    turn_at: Duration,
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
            turn_at: client.clock().monotonic(),
        };
        let (state, changed) = (Mutex::new(state), Condvar::new());
        Self { settings, client, claimant, on_recorded, state, changed }
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
        let keep_at = self.now() + self.keep_interval(claim.lease_seconds);
        let run = Arc::new(Run::new(claim, place, handle, keep_at));
        self.change(|state| {
            state.queues.claimed(place);
            state.backoff.succeed();
            state.claiming -= 1;
            state.tally.runs += 1;
            state.runs.push(Arc::clone(&run));
        });
        run
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
    pub fn missed(&self, place: usize) {
        let now = self.now();
        self.change(|state| {
            state.queues.missed(place, now);
            state.backoff.succeed();
            state.claiming -= 1;
        });
    }

    /// A claim failed.
    pub fn claim_failed(&self, place: usize, error: Option<ClientError>) {
        let pause = self.change(|state| {
            state.queues.failed(place);
            state.claiming -= 1;
            self.pause_taking(state, error)
        });
        self.tell_pause(pause);
    }

    /// A run is over and its outcome reported. `failure` is why it failed.
    pub fn end(&self, run: &Arc<Run>, failure: Option<String>, is_reported: bool) {
        self.change(|state| {
            state.runs.retain(|other| !Arc::ptr_eq(other, run));
            state.tally.failures += u64::from(failure.is_some());
            state.tally.unreported += u64::from(!is_reported);
            state.tally.last_reason = failure.or(state.tally.last_reason.take());
            if self.settings.mode == Mode::Drain {
                state.queues.look_again();
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
            } else if free > 0 {
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
            self.pause_taking(state, Some(error))
        });
        self.tell_pause(pause);
    }

    /// Pauses the taking of work after a failure. Returns the pause and why, unless it is told already.
    fn pause_taking(&self, state: &mut State, error: Option<ClientError>) -> Option<(Duration, String)> {
        let text = error.as_ref().map_or_else(|| "no pipe is left".to_owned(), ToString::to_string);
        let failure = error.as_ref().map_or(Failure::Passing { retry_after: None }, Failure::of);
        // A worker that ends soon waits for a server that says when it will answer, and for no other.
        let is_told = matches!(failure, Failure::Passing { retry_after: Some(_) });
        let is_patient = self.settings.mode != Mode::Drain || error.is_none() || is_told;
        match (failure, error) {
            (Failure::Passing { retry_after }, _) if is_patient => {
                let now = self.now();
                if now < state.resume_at {
                    // One fault that several requests met.
                    return None;
                }
                let pause = state.backoff.fail(retry_after);
                state.resume_at = now + pause;
                Some((pause, text))
            }
            (_, Some(error)) => {
                self.fail(state, error);
                None
            }
            (_, None) => None,
        }
    }

    fn tell_pause(&self, pause: Option<(Duration, String)>) {
        if let Some((pause, error)) = pause {
            tracing::warn!(error, seconds = pause.as_secs(), "cannot take work; trying again");
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

    fn keep_interval(&self, lease_seconds: u64) -> Duration {
        // A lease of zero would make a busy loop.
        let third = Duration::from_secs(lease_seconds.max(3)) / 3;
        third.min(self.settings.beat * 5)
    }

    /// The runs whose leases are to be extended now, and the instant of the next one.
    pub fn runs_to_keep(&self) -> (Vec<Arc<Run>>, Option<Duration>) {
        let now = self.now();
        let mut state = self.state.lock();
        state.turn_at = now;
        let (mut due, mut next) = (Vec::new(), None::<Duration>);
        for run in &state.runs {
            match run.keep_at() {
                Some(at) if at <= now => due.push(Arc::clone(run)),
                Some(at) => next = Some(next.map_or(at, |next| next.min(at))),
                None => {}
            }
        }
        (due, next)
    }

    /// A lease was extended, or not: then it is tried again soon.
    pub fn kept(&self, run: &Run, is_extended: bool) {
        let interval = self.keep_interval(run.claim.lease_seconds);
        let pause = if is_extended { interval } else { interval.min(MAX_WAIT) };
        run.keep_next(self.now() + pause);
    }

    /// Waits until a change, or until `until`. Returns `false` at the end of the worker.
    pub fn wait_until(&self, until: Duration) {
        let state = self.state.lock();
        let pause = until.saturating_sub(self.now()).min(MAX_WAIT);
        if !pause.is_zero() {
            drop(self.changed.wait_timeout(state, pause));
        }
    }

    /// The heartbeats go on.
    #[must_use]
    pub fn is_alive(&self, within: Duration) -> bool {
        self.now().saturating_sub(self.state.lock().turn_at) < within
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
