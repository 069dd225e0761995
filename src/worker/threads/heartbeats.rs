//! Announces the worker, and extends the leases of its runs.

use std::time::Duration;

use crate::client::error::ClientError;
use crate::worker::process::life::Cause;
use crate::worker::run::Run;
use crate::worker::state::Shared;

/// Sends heartbeats for ever; the end of the process ends the thread.
pub fn run(worker: &Shared) {
    let tasks: Vec<&str> = worker.settings.tasks.iter().filter_map(|task| task.name.as_deref()).collect();
    let mut beat_at = Duration::ZERO;
    loop {
        let now = worker.clock().monotonic();
        if now >= beat_at {
            beat_at = now + worker.settings.beat;
            match worker.api().beat(&worker.settings.worker_id, &tasks) {
                Ok(()) => {}
                Err(error) if is_unauthorized(&error) => worker.give_up(error),
                Err(error) => tracing::warn!(%error, "heartbeat failed"),
            }
        }
        let (due, next) = worker.runs_to_keep();
        for run in due {
            keep(worker, &run);
        }
        worker.wait_until(next.map_or(beat_at, |next| next.min(beat_at)));
    }
}

fn keep(worker: &Shared, run: &Run) {
    let id = run.claim.execution_id.as_str();
    match worker.api().keep(id) {
        Ok(true) => worker.kept(run, true),
        Ok(false) => {
            tracing::warn!(execution_id = id, "the claim is lost; ending the command");
            run.handle.end(Cause::Lost);
            run.end_lease();
        }
        Err(error) => {
            tracing::warn!(execution_id = id, %error, "the lease was not extended; trying again");
            worker.kept(run, false);
        }
    }
}

#[must_use]
fn is_unauthorized(error: &ClientError) -> bool {
    matches!(error, ClientError::Refused(refused) if refused.status == 401)
}
