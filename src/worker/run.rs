//! A run of an execution, as the threads of a worker share it; the counts of all runs.

use std::sync::Arc;
use std::time::Duration;

use crate::locks::Mutex;
use crate::worker::api::Claim;
use crate::worker::process::handle::Handle;

/// How urgent a stop is: the number of signals.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum StopLevel {
    /// Runs may end within the grace time.
    Graceful,
    /// Runs are ended.
    Now,
    /// Runs are killed, and reports that the server does not accept are given up.
    Kill,
}

/// An execution that this worker holds.
#[derive(Debug)]
pub struct Run {
    pub claim: Claim,
    /// The place of its task in the settings.
    pub place: usize,
    pub handle: Arc<Handle>,
    extend_at: Mutex<Option<Duration>>,
}

impl Run {
    #[must_use]
    pub fn new(claim: Claim, place: usize, handle: Handle, extend_at: Duration) -> Self {
        Self { claim, place, handle: Arc::new(handle), extend_at: Mutex::new(Some(extend_at)) }
    }

    /// When its lease is to be extended; `None` once the command has ended.
    #[must_use]
    pub fn extend_at(&self) -> Option<Duration> {
        *self.extend_at.lock()
    }

    /// The lease is to be extended at `at`, unless the command has ended meanwhile.
    pub fn extend_next(&self, at: Duration) {
        if let Some(extend_at) = &mut *self.extend_at.lock() {
            *extend_at = at;
        }
    }

    /// The command has ended. The lease is not needed for the report.
    pub fn end_lease(&self) {
        *self.extend_at.lock() = None;
    }
}

/// The counts of the runs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tally {
    pub runs: u64,
    pub failures: u64,
    /// Reports that the server did not accept.
    pub unreported: u64,
    /// Why the last failed run failed.
    pub last_reason: Option<String>,
}
