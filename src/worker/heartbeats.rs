//! Announces the worker, and extends the leases of its runs.

use std::time::Duration;

use crate::worker::process::Cause;
use crate::worker::state::{MAX_WAIT, Run, Shared};

/// Sends heartbeats for ever; the end of the process ends the thread. A sign of life precedes each request, because each may
/// take its whole time-out.
pub fn run(worker: &Shared) {
    let mut beat_at = Duration::ZERO;
    loop {
        let now = worker.clock().monotonic();
        if now >= beat_at {
            beat_at = now + worker.settings.beat;
            announce(worker);
        }
        let (runs, changes) = worker.runs();
        let mut next = beat_at.min(now + MAX_WAIT);
        for run in runs {
            // Its command may have ended during the requests for the runs before it.
            if run.extend_at().is_some_and(|at| at <= now) {
                worker.record_sign_of_life();
                extend_lease(worker, &run);
            }
            next = next.min(run.extend_at().unwrap_or(next));
        }
        worker.record_sign_of_life();
        worker.wait_for_change(changes, next);
    }
}

fn announce(worker: &Shared) {
    let tasks: Vec<&str> = worker.settings.tasks.iter().filter_map(|task| task.name.as_deref()).collect();
    worker.record_sign_of_life();
    match worker.api().beat(&worker.settings.worker_id, &tasks) {
        Ok(()) => {}
        Err(error) if error.status() == Some(401) => worker.give_up(error),
        Err(error) => tracing::warn!(%error, "heartbeat failed"),
    }
}

fn extend_lease(worker: &Shared, run: &Run) {
    let id = run.claim.execution_id.as_str();
    let interval = worker.settings.lease_interval(run.claim.lease_seconds);
    let pause = match worker.api().extend_lease(id) {
        Ok(true) => interval,
        // Its outcome has been reported since.
        Ok(false) if run.extend_at().is_none() => return,
        Ok(false) => {
            tracing::warn!(execution_id = id, "the execution is no longer this worker's; ending the command");
            return run.end(Cause::Lost, false);
        }
        Err(error) => {
            tracing::warn!(execution_id = id, %error, "the lease was not extended; trying again");
            interval.min(MAX_WAIT)
        }
    };
    run.extend_next(worker.clock().monotonic() + pause);
}
