//! Announces the worker, and extends the leases of its runs.

use std::time::Duration;

use crate::worker::process::Cause;
use crate::worker::state::{MAX_WAIT, Run, Shared};

/// Sends heartbeats for ever; the end of the process ends the thread. A sign of life precedes each request, because each may
/// take its whole time-out.
pub fn run(worker: &Shared) {
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
        Err(error) if error.status() == Some(401) => worker.give_up(error),
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
