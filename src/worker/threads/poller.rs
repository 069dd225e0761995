//! Polls for work while slots are free.

use crate::worker::api::POLL_SECONDS;
use crate::worker::state::Shared;
use crate::worker::task::Mode;

/// Threads at most. The server holds 20 polls of an account.
pub const MAX_POLLERS: usize = 8;

/// Executions that are listed for an agent at a time. Each comes with its payload.
const MAX_FOUND: usize = 20;

/// Polls for work until the worker ends.
pub fn run(worker: &Shared) {
    let tasks = worker.settings.tasks.len();
    let wait = match worker.settings.mode {
        Mode::Drain => 0,
        _ if tasks <= MAX_POLLERS => POLL_SECONDS,
        // The threads take turns among the tasks.
        _ => 1,
    };
    while let Some((place, free)) = worker.next_poll() {
        let agent = worker.settings.agent.as_deref();
        let limit = if agent.is_some() { free.min(MAX_FOUND) } else { 1 };
        match worker.api().poll(worker.task(place).name.as_deref(), agent, limit, wait) {
            Ok(found) => worker.polled(place, found),
            Err(error) => worker.poll_failed(place, error),
        }
    }
}
