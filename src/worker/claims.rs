//! The threads that claim executions while fewer commands run than may run at a time, and the one that announces the
//! worker and extends the leases of its runs.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use crate::api::work::{Claim, Heartbeat};
use crate::worker::process::Cause;
use crate::worker::run::execute;
use crate::worker::state::{MAX_WAIT, Mode, Run, Shared};

/// Threads at most. The server holds 20 polls of an account.
pub const MAX_CLAIMERS: usize = 8;

/// Seconds for which the server holds a poll.
const POLL_SECONDS: u64 = 25;

/// From the begin of a poll that found nothing to the next one.
const PAUSE: Duration = Duration::from_secs(1);

/// The pause after a failed request, or after another worker was faster.
const SHORT_PAUSE: Duration = Duration::from_millis(100);

/// Claims executions of the tasks at these places, in turns, until nothing more is claimed.
pub fn run(worker: &Arc<Shared>, places: Vec<usize>) {
    let mut has_work = false;
    loop {
        let (begin, (changes, is_idle)) = (worker.now(), worker.progress());
        let mut pause = PAUSE;
        for place in &places {
            let wait = match worker.settings.mode {
                Mode::Drain => 0,
                _ if places.len() == 1 => POLL_SECONDS,
                _ => u64::from(!has_work),
            };
            let Some(found) = search(worker, *place, wait) else { return };
            pause = pause.min(found);
        }
        has_work = pause.is_zero();
        // Nothing ran, so that nothing could add work since the first poll.
        if worker.settings.mode == Mode::Drain && is_idle && pause == PAUSE {
            return worker.end_work();
        }
        worker.wait_for_change(changes, begin + pause);
    }
}

/// Claims an execution of a task and starts its run. Returns the pause before the next search: none if there is work,
/// and [`PAUSE`] if there is none; `None` if nothing more is claimed.
fn search(worker: &Arc<Shared>, place: usize, wait: u64) -> Option<Duration> {
    let (task, agent) = (worker.task(place).name.as_deref(), worker.settings.agent.as_deref());
    let poll = || match worker.api().poll(task, agent, wait) {
        Ok(found) => {
            worker.request_succeeded();
            found.ok_or(PAUSE)
        }
        Err(error) => {
            worker.request_failed(error);
            Err(SHORT_PAUSE)
        }
    };
    // An execution of an agent is claimed by its id. A poll is repeated after a fault, which would end the drain.
    let polls_first = agent.is_some() || worker.settings.mode == Mode::Drain;
    let mut id = None;
    if polls_first {
        worker.wait_for_slot(false)?;
        match poll() {
            Ok(found) => id = agent.map(|_| found),
            Err(pause) => return Some(pause),
        }
    }
    worker.wait_for_slot(true)?;
    match worker.api().claim(id.as_deref(), task) {
        Ok(Some(claim)) => {
            start(worker, place, claim);
            return Some(Duration::ZERO);
        }
        Ok(None) => worker.free_slot(),
        Err(error) => {
            worker.request_failed(error);
            worker.free_slot();
            return Some(SHORT_PAUSE);
        }
    }
    if polls_first { Some(SHORT_PAUSE) } else { Some(poll().err().unwrap_or_default()) }
}

fn start(worker: &Arc<Shared>, place: usize, claim: Claim) {
    let (run, shared) = (worker.begin(place, claim), Arc::clone(worker));
    let claimed = Arc::clone(&run);
    let thread = thread::Builder::new().name("run".to_owned());
    if let Err(error) = thread.spawn(move || execute(&shared, &claimed)) {
        tracing::error!(%error, "the machine cannot start a thread for a run");
        worker.give_up(None);
        worker.end(&run, Some(format!("the run was not started: {error}")), false);
    }
}

/// Sends heartbeats for ever; the end of the process ends the thread.
pub fn beat(worker: &Shared) {
    let (mut beat_at, mut extend_at) = (Duration::ZERO, Duration::MAX);
    loop {
        let now = worker.now();
        if now >= beat_at {
            beat_at = now + worker.settings.beat;
            announce(worker);
        }
        let (runs, changes) = worker.runs();
        let intervals =
            runs.iter().map(|run| worker.settings.lease_interval(run.claim.lease_seconds));
        let interval = intervals.min().unwrap_or(Duration::MAX);
        extend_at = extend_at.min(now.saturating_add(interval));
        if now >= extend_at {
            // The command of a run may have ended during the requests for the runs before it.
            let failed =
                runs.iter().filter(|run| run.needs_lease() && !extend_lease(worker, run)).count();
            extend_at =
                now.saturating_add(if failed > 0 { interval.min(MAX_WAIT) } else { interval });
        }
        worker.wait_for_change(changes, beat_at.min(extend_at).min(now + MAX_WAIT));
    }
}

fn announce(worker: &Shared) {
    let handlers = worker.settings.tasks.iter().filter_map(|task| task.name.clone()).collect();
    let heartbeat = Heartbeat { worker_id: worker.settings.worker_id.clone(), handlers };
    match worker.api().beat(&heartbeat) {
        Ok(()) => {}
        Err(error) if error.status() == Some(401) => worker.give_up(Some(error)),
        Err(error) => tracing::warn!(%error, "heartbeat failed"),
    }
}

/// Extends the lease of a run, or ends its command if the lease is lost. Returns `false` if the request failed.
fn extend_lease(worker: &Shared, run: &Run) -> bool {
    let id = run.claim.execution_id.as_str();
    match worker.api().extend_lease(id) {
        // Its outcome may have been reported since.
        Ok(is_extended) if is_extended || !run.needs_lease() => {}
        Ok(_) => {
            tracing::warn!(
                execution_id = id,
                "the execution is no longer this worker's; ending the command"
            );
            run.end(Cause::Lost, false);
        }
        Err(error) => {
            tracing::warn!(execution_id = id, %error, "the lease was not extended; trying again");
            return false;
        }
    }
    true
}
