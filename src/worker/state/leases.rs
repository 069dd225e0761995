//! The leases of the runs, and the sign of life of the thread that extends them.

use std::sync::Arc;
use std::time::Duration;

use crate::worker::run::Run;
use crate::worker::state::{MAX_WAIT, Shared};

impl Shared {
    pub(in crate::worker::state) fn lease_interval(&self, lease_seconds: u64) -> Duration {
        // A lease of zero would make a busy loop.
        let third = Duration::from_secs(lease_seconds.max(3)) / 3;
        third.min(self.settings.beat * 5)
    }

    /// The runs whose leases are to be extended now, and the instant of the next one.
    pub fn due_leases(&self) -> (Vec<Arc<Run>>, Option<Duration>) {
        let now = self.now();
        let (mut due, mut next) = (Vec::new(), None::<Duration>);
        for run in &self.state.lock().runs {
            match run.extend_at() {
                Some(at) if at <= now => due.push(Arc::clone(run)),
                Some(at) => next = Some(next.map_or(at, |next| next.min(at))),
                None => {}
            }
        }
        (due, next)
    }

    /// Schedules the next extension of a lease: soon if this one failed.
    pub fn schedule_extension(&self, run: &Run, is_extended: bool) {
        let interval = self.lease_interval(run.claim.lease_seconds);
        let pause = if is_extended { interval } else { interval.min(MAX_WAIT) };
        run.extend_next(self.now() + pause);
    }

    /// The thread that sends heartbeats is about to make a request, or to wait.
    pub fn record_sign_of_life(&self) {
        self.state.lock().alive_at = self.now();
    }

    /// The last sign of life of the thread that sends heartbeats.
    #[must_use]
    pub fn sign_of_life(&self) -> Duration {
        self.state.lock().alive_at
    }

    /// Returns whether the thread that sends heartbeats gave a sign of life in this time.
    #[must_use]
    pub fn is_alive(&self, within: Duration) -> bool {
        self.now().saturating_sub(self.sign_of_life()) < within
    }
}
