//! What the engine does and has done: figures for health, and for a test clock that waits for it to come to rest.

use std::sync::atomic::{AtomicI64, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use jiff::Timestamp;

use crate::clock::Notifier;
use crate::metrics::{Counter, Family, Histogram, TIME};

/// How long the scheduler may stand still before it counts as down (contract §8).
pub const DOWN_AFTER: Duration = Duration::from_secs(30);

/// The words that tell why an attempt at delivery was no success.
pub const CAUSES: [&str; 11] = [
    "timeout",
    "blocked_address",
    "unknown_name",
    "connection",
    "tls",
    "unsendable",
    "status_3xx",
    "status_4xx",
    "status_5xx",
    "status_other",
    "fault",
];

/// What can become of an attempt. All of it is counted from 0 on: a collector sees no growth in a figure that begins
/// with its first event.
fn attempts() -> Vec<[&'static str; 2]> {
    let failed = |result: &'static str| CAUSES.map(|cause| [result, cause]);
    [["success", "none"]].into_iter().chain(failed("retrying")).chain(failed("failed")).collect()
}

/// What the engine did, for health and for the test clock. Figures since the start.
#[derive(Debug)]
pub struct EngineStats {
    fired: AtomicU64,
    delivered: AtomicU64,
    passes: AtomicUsize,
    seen: AtomicI64,
    cycle: Mutex<SchedulerPass>,
    turns: Counter,
    // Milliseconds of the monotonic clock.
    alive: AtomicU64,
    /// What became of deliveries.
    pub deliveries: DeliveryMetrics,
    /// Attempts to tell of failures, by what became of the notice: `success`, `retrying` or `failed`.
    pub notifications: Family<Counter, 1>,
}

/// The figures of webhook deliveries.
#[derive(Debug)]
pub struct DeliveryMetrics {
    /// From the instant that a run was scheduled for to the start of its first attempt.
    pub lateness: Histogram,
    /// How long attempts take.
    pub durations: Histogram,
    /// Attempts that have ended, by what their execution is then (`success`, `retrying`, `failed`) and by the cause of a
    /// failure.
    pub attempts: Family<Counter, 2>,
}

/// The scheduler's last pass.
#[derive(Debug, Clone, Copy, Default)]
pub struct SchedulerPass {
    /// When it began, by the wall clock.
    pub last_run: Option<Timestamp>,
    /// When it ended, by the monotonic clock: a scheduler is down when this stands still.
    pub turned: Duration,
    /// Cues that it fired.
    pub cues: usize,
    /// How long it took.
    pub took: Duration,
}

impl Default for EngineStats {
    fn default() -> Self {
        Self {
            fired: AtomicU64::new(0),
            delivered: AtomicU64::new(0),
            passes: AtomicUsize::new(0),
            // Before every instant: `saw` only ever raises it.
            seen: AtomicI64::new(i64::MIN),
            cycle: Mutex::default(),
            turns: Counter::default(),
            alive: AtomicU64::new(0),
            deliveries: DeliveryMetrics {
                lateness: Histogram::new(&TIME),
                durations: Histogram::new(&TIME),
                attempts: Family::new(Counter::default, &attempts()),
            },
            notifications: Family::new(Counter::default, &[["success"], ["retrying"], ["failed"]]),
        }
    }
}

impl EngineStats {
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
    pub fn record_pass(&self, cycle: SchedulerPass) {
        self.turns.add(1);
        *self.cycle.lock().unwrap_or_else(PoisonError::into_inner) = cycle;
    }

    /// The scheduler's last pass.
    pub fn cycle(&self) -> SchedulerPass {
        *self.cycle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Passes of the scheduler.
    pub fn turns(&self) -> u64 {
        self.turns.get()
    }

    /// Notes that the scheduler goes about its work, at this reading of the monotonic clock: that of a disk that
    /// fails too.
    pub fn heartbeat(&self, monotonic: Duration) {
        self.alive.store(u64::try_from(monotonic.as_millis()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// Whether the scheduler went about its work a short while ago. One that does not is stuck for good.
    pub fn is_alive(&self, monotonic: Duration) -> bool {
        monotonic.saturating_sub(Duration::from_millis(self.alive.load(Ordering::Relaxed))) <= DOWN_AFTER
    }

    /// Notes that a pass of the engine begins; it ends, and rings `progress`, when the answer is dropped.
    #[must_use]
    pub fn begin_pass<'a>(&'a self, progress: &'a Notifier) -> PassGuard<'a> {
        self.passes.fetch_add(1, Ordering::SeqCst);
        PassGuard { passes: &self.passes, progress }
    }

    /// Whether no pass is under way: the figures then hold all that is in the file.
    pub fn is_idle(&self) -> bool {
        self.passes.load(Ordering::SeqCst) == 0
    }

    /// Notes the newest instant that the scheduler has seen.
    pub fn record_last_seen(&self, seen: Timestamp) {
        self.seen.fetch_max(seen.as_millisecond(), Ordering::SeqCst);
    }

    /// The newest instant that the scheduler has seen: before it nothing fires by schedule.
    pub fn seen(&self) -> Timestamp {
        Timestamp::from_millisecond(self.seen.load(Ordering::SeqCst)).unwrap_or(Timestamp::MIN)
    }
}

/// A pass of the engine that is under way.
#[derive(Debug)]
pub struct PassGuard<'a> {
    passes: &'a AtomicUsize,
    progress: &'a Notifier,
}

impl Drop for PassGuard<'_> {
    fn drop(&mut self) {
        self.passes.fetch_sub(1, Ordering::SeqCst);
        self.progress.notify();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_scheduler_is_alive_until_thirty_seconds_of_silence() {
        let engine_stats = EngineStats::default();
        engine_stats.heartbeat(Duration::from_secs(100));
        for (seconds, alive) in [(99, true), (100, true), (130, true), (131, false)] {
            assert_eq!(engine_stats.is_alive(Duration::from_secs(seconds)), alive, "{seconds}");
        }
    }
}
