//! The threads that claim executions while fewer commands run than may run at a time, and the one that announces the worker
//! and extends the leases of its runs.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use crate::worker::process::Cause;
use crate::worker::run::execute;
use crate::worker::state::{MAX_WAIT, Mode, Run, Shared};

/// Threads at most. The server holds 20 polls of an account.
pub const MAX_CLAIMERS: usize = 8;

/// Seconds for which the server holds a poll.
const POLL_SECONDS: u64 = 25;

/// From the begin of a poll that found nothing to the next one.
const PAUSE: Duration = Duration::from_secs(1);

/// The pause after a poll whose work other workers claimed. Each further one doubles it.
const FIRST_PAUSE: Duration = Duration::from_millis(50);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Search {
    Claimed,
    /// Other workers were faster.
    Lost,
    Nothing,
}

/// Claims executions of the tasks at these places, in turns, until nothing more is claimed.
pub fn run(worker: &Arc<Shared>, places: &[usize]) {
    let mut has_work = vec![false; places.len()];
    let mut lost = 0;
    loop {
        let begin = worker.clock().monotonic();
        let mut pause = PAUSE;
        let mut seen = 0;
        for (index, place) in places.iter().enumerate() {
            let wait = match worker.settings.mode {
                Mode::Drain => 0,
                _ if places.len() == 1 => POLL_SECONDS,
                _ if has_work.contains(&true) => 0,
                _ => 1,
            };
            let Some(changes) = worker.wait_for_slot(false) else { return };
            seen = changes;
            let found = search(worker, *place, has_work[index], wait, changes);
            has_work[index] = found == Search::Claimed;
            match found {
                Search::Claimed => (lost, pause) = (0, Duration::ZERO),
                Search::Lost => {
                    pause = pause.min(FIRST_PAUSE * 2_u32.pow(lost));
                    lost = (lost + 1).min(5);
                }
                Search::Nothing => {}
            }
        }
        worker.wait_for_change(seen, begin + pause);
    }
}

/// Polls for work, unless the task has some, and claims it.
fn search(worker: &Arc<Shared>, place: usize, has_work: bool, wait: u64, changes: u64) -> Search {
    let (task, agent) = (worker.task(place).name.as_deref(), worker.settings.agent.as_deref());
    let mut id = None;
    if !has_work || agent.is_some() {
        match worker.api().poll(task, agent, wait) {
            // The next execution of the task may be of another agent.
            Ok(Some(found)) => id = agent.map(|_| found),
            Ok(None) => {
                worker.found_nothing(place, changes);
                return Search::Nothing;
            }
            Err(error) => {
                worker.request_failed(error, false);
                return Search::Nothing;
            }
        }
    }
    // Other tasks may have taken the slots.
    if worker.wait_for_slot(true).is_none() {
        return Search::Nothing;
    }
    match worker.api().claim(id.as_deref(), task) {
        Ok(Some(claim)) => {
            let (run, shared) = (worker.begin(place, claim), Arc::clone(worker));
            let (claimed, builder) = (Arc::clone(&run), thread::Builder::new().name("run".to_owned()));
            if let Err(error) = builder.spawn(move || execute(&shared, &claimed)) {
                tracing::error!(%error, "the machine cannot start a thread for a run");
                worker.give_up(None);
                worker.end(&run, Some(format!("the run was not started: {error}")), false);
            }
            return Search::Claimed;
        }
        Ok(None) => worker.claim_found_nothing(),
        Err(error) => worker.request_failed(error, true),
    }
    Search::Lost
}

/// Sends heartbeats for ever; the end of the process ends the thread. A sign of life precedes each request, because each may
/// take its whole time-out.
pub fn beat(worker: &Shared) {
    let (mut beat_at, mut extend_at) = (Duration::ZERO, Duration::MAX);
    loop {
        let now = worker.clock().monotonic();
        if now >= beat_at {
            beat_at = now + worker.settings.beat;
            announce(worker);
        }
        let (runs, changes) = worker.runs();
        let intervals = runs.iter().map(|run| worker.settings.lease_interval(run.claim.lease_seconds));
        let interval = intervals.min().unwrap_or(Duration::MAX);
        extend_at = extend_at.min(now.saturating_add(interval));
        if now >= extend_at {
            // The command of a run may have ended during the requests for the runs before it.
            let failed = runs.iter().filter(|run| run.needs_lease() && !extend_lease(worker, run)).count();
            extend_at = now.saturating_add(if failed > 0 { interval.min(MAX_WAIT) } else { interval });
        }
        worker.record_sign_of_life();
        worker.wait_for_change(changes, beat_at.min(extend_at).min(now + MAX_WAIT));
    }
}

fn announce(worker: &Shared) {
    let tasks: Vec<&str> = worker.settings.tasks.iter().filter_map(|task| task.name.as_deref()).collect();
    worker.record_sign_of_life();
    match worker.api().beat(&worker.settings.worker_id, &tasks) {
        Ok(()) => {}
        Err(error) if error.status() == Some(401) => worker.give_up(Some(error)),
        Err(error) => tracing::warn!(%error, "heartbeat failed"),
    }
}

/// Extends the lease of a run, or ends its command if the lease is lost. Returns `false` if the request failed.
fn extend_lease(worker: &Shared, run: &Run) -> bool {
    let id = run.claim.execution_id.as_str();
    worker.record_sign_of_life();
    match worker.api().extend_lease(id) {
        // Its outcome may have been reported since.
        Ok(is_extended) if is_extended || !run.needs_lease() => {}
        Ok(_) => {
            tracing::warn!(execution_id = id, "the execution is no longer this worker's; ending the command");
            run.end(Cause::Lost, false);
        }
        Err(error) => {
            tracing::warn!(execution_id = id, %error, "the lease was not extended; trying again");
            return false;
        }
    }
    true
}
