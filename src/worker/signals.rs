//! The stop of a worker by signals.

use std::sync::Arc;

use crate::signals::EndSignals;
use crate::worker::run::StopLevel;
use crate::worker::state::Shared;

/// Stops the worker at the first signal, faster at each further one. Never returns.
pub fn watch_signals(mut signals: EndSignals, worker: &Arc<Shared>, on_stop: impl Fn()) {
    signals.wait();
    let grace_s = worker.settings.grace.as_secs();
    tracing::info!(grace_s, "stopping: nothing more is claimed; running commands may end");
    // First, because an idle worker ends with the stop.
    on_stop();
    worker.stop();
    loop {
        signals.wait();
        match worker.stop() {
            StopLevel::Kill => tracing::warn!("killing the running commands"),
            _ => tracing::info!("stopping now: ending the running commands"),
        }
    }
}
