//! What the engine does and has done: figures for health, and for a test clock that waits for it to come to rest.

use std::sync::atomic::{AtomicI64, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use jiff::Timestamp;

use crate::clock::Bell;

/// What the engine did, for health and for the test clock. Figures since the start.
#[derive(Debug)]
pub struct Pulse {
    fired: AtomicU64,
    delivered: AtomicU64,
    passes: AtomicUsize,
    seen: AtomicI64,
    cycle: Mutex<Cycle>,
}

/// The scheduler's last pass.
#[derive(Debug, Clone, Copy, Default)]
pub struct Cycle {
    /// When it began, by the wall clock.
    pub last_run: Option<Timestamp>,
    /// When it ended, by the monotonic clock: a scheduler is down when this stands still.
    pub turned: Duration,
    /// Cues that it fired.
    pub cues: usize,
    /// How long it took.
    pub took: Duration,
}

impl Default for Pulse {
    fn default() -> Self {
        Self {
            fired: AtomicU64::new(0),
            delivered: AtomicU64::new(0),
            passes: AtomicUsize::new(0),
            // Before every instant: `saw` only ever raises it.
            seen: AtomicI64::new(i64::MIN),
            cycle: Mutex::default(),
        }
    }
}

impl Pulse {
    /// Notes executions that were made.
    pub fn add_fired(&self, executions: u64) {
        self.fired.fetch_add(executions, Ordering::Relaxed);
    }

    /// Notes delivery attempts that have ended and whose result is stored.
    pub fn add_delivered(&self, attempts: u64) {
        self.delivered.fetch_add(attempts, Ordering::Relaxed);
    }

    /// Executions made.
    pub fn fired(&self) -> u64 {
        self.fired.load(Ordering::Relaxed)
    }

    /// Delivery attempts ended.
    pub fn delivered(&self) -> u64 {
        self.delivered.load(Ordering::Relaxed)
    }

    /// Notes a pass of the scheduler.
    pub fn turn(&self, cycle: Cycle) {
        *self.cycle.lock().unwrap_or_else(PoisonError::into_inner) = cycle;
    }

    /// The scheduler's last pass.
    pub fn cycle(&self) -> Cycle {
        *self.cycle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that a pass of the engine begins; it ends, and rings `progress`, when the answer is dropped.
    #[must_use]
    pub fn pass<'a>(&'a self, progress: &'a Bell) -> Pass<'a> {
        self.passes.fetch_add(1, Ordering::SeqCst);
        Pass { passes: &self.passes, progress }
    }

    /// Whether no pass is under way: the figures then hold all that is in the file.
    pub fn is_idle(&self) -> bool {
        self.passes.load(Ordering::SeqCst) == 0
    }

    /// Notes the newest instant that the scheduler has seen.
    pub fn saw(&self, seen: Timestamp) {
        self.seen.fetch_max(seen.as_millisecond(), Ordering::SeqCst);
    }

    /// The newest instant that the scheduler has seen: before it nothing fires by schedule.
    pub fn seen(&self) -> Timestamp {
        Timestamp::from_millisecond(self.seen.load(Ordering::SeqCst)).unwrap_or(Timestamp::MIN)
    }
}

/// A pass of the engine that is under way.
#[derive(Debug)]
pub struct Pass<'a> {
    passes: &'a AtomicUsize,
    progress: &'a Bell,
}

impl Drop for Pass<'_> {
    fn drop(&mut self) {
        self.passes.fetch_sub(1, Ordering::SeqCst);
        self.progress.ring();
    }
}
