//! The signals that stop a worker.

use std::future::poll_fn;
use std::io;
use std::sync::Arc;
use std::task::Poll;

use tokio::runtime::{Builder, Runtime};
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::worker::run::StopLevel;
use crate::worker::state::Shared;

/// SIGTERM and SIGINT, from now on.
pub struct Signals {
    runtime: Runtime,
    signals: [Signal; 2],
}

impl Signals {
    /// # Errors
    /// If the system refuses the handlers.
    pub fn new() -> io::Result<Self> {
        let runtime = Builder::new_current_thread().enable_io().build()?;
        let context = runtime.enter();
        let signals = [signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?];
        drop(context);
        Ok(Self { runtime, signals })
    }

    /// Stops the worker at the first signal, faster at each further one. Never returns while signals can come.
    pub fn watch(mut self, worker: &Arc<Shared>, on_stop: impl Fn()) {
        let Some(()) = self.next() else { return };
        let grace_s = worker.settings.grace.as_secs();
        tracing::info!(grace_s, "stopping: nothing more is claimed; running commands may end");
        // First, because an idle worker ends with the stop.
        on_stop();
        worker.stop();
        while let Some(()) = self.next() {
            match worker.stop() {
                StopLevel::Kill => tracing::warn!("killing the running commands"),
                _ => tracing::info!("stopping now: ending the running commands"),
            }
        }
    }

    fn next(&mut self) -> Option<()> {
        let Self { runtime, signals } = self;
        runtime.block_on(poll_fn(|context| {
            let received = signals.iter_mut().map(|signal| signal.poll_recv(context));
            received.filter(|received| received.is_ready()).last().unwrap_or(Poll::Pending)
        }))
    }
}
