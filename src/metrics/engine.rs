//! Statistics of the engine, for health checks, metrics, and the test clock, which waits until the engine is idle.

use std::sync::atomic::{AtomicI64, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use jiff::Timestamp;

use crate::clock::Notifier;
use crate::domain::execution::attempt::FailureCause;
use crate::locks::Mutex;
use crate::metrics::{Counter, Family, Histogram, TIME};

/// Time without a pass after which the scheduler counts as down (contract §8.7).
pub const DOWN_AFTER: Duration = Duration::from_secs(30);

/// Every combination of `result` and `cause`, so that all counters start at 0.
fn attempt_labels() -> Vec<[&'static str; 2]> {
    let failed = |result: &'static str| FailureCause::WORDS.map(|cause| [result, cause]);
    [["success", "none"]].into_iter().chain(failed("retrying")).chain(failed("failed")).collect()
}

/// Counts and times of the engine since the process started.
#[derive(Debug)]
pub struct EngineStats {
    fired: AtomicU64,
    delivered: AtomicU64,
    // Passes and attempts that are running.
    running: AtomicUsize,
    last_seen: AtomicI64,
    last_pass: Mutex<SchedulerPass>,
    passes: Counter,
    // Milliseconds of the monotonic clock.
    last_heartbeat: AtomicU64,
    pub deliveries: DeliveryMetrics,
    /// Attempts to send failure notifications, by result: `success`, `retrying` or `failed`.
    pub notifications: Family<Counter, 1>,
}

#[derive(Debug)]
pub struct DeliveryMetrics {
    /// Time from the scheduled instant of a run to the start of its first attempt.
    pub lateness: Histogram,
    pub durations: Histogram,
    /// Finished attempts, by the resulting state of the execution (`success`, `retrying`, `failed`) and by the cause of
    /// a failure.
    pub attempts: Family<Counter, 2>,
}

/// One pass of the scheduler.
#[derive(Debug, Clone, Copy, Default)]
pub struct SchedulerPass {
    /// Its start, on the wall clock.
    pub started_at: Option<Timestamp>,
    /// Its end, on the monotonic clock. A scheduler is down if this does not advance.
    pub ended: Duration,
    pub cues: usize,
    pub duration: Duration,
}

impl Default for EngineStats {
    fn default() -> Self {
        Self {
            fired: AtomicU64::new(0),
            delivered: AtomicU64::new(0),
            running: AtomicUsize::new(0),
            // Before every instant, because `record_last_seen` only raises it.
            last_seen: AtomicI64::new(i64::MIN),
            last_pass: Mutex::default(),
            passes: Counter::default(),
            last_heartbeat: AtomicU64::new(0),
            deliveries: DeliveryMetrics {
                lateness: Histogram::new(&TIME),
                durations: Histogram::new(&TIME),
                attempts: Family::new(Counter::default, &attempt_labels()),
            },
            notifications: Family::new(Counter::default, &[["success"], ["retrying"], ["failed"]]),
        }
    }
}

impl EngineStats {
    pub fn add_fired(&self, executions: u64) {
        self.fired.fetch_add(executions, Ordering::Relaxed);
    }

    /// Counts finished delivery attempts whose result is stored.
    pub fn add_delivered(&self, attempts: u64) {
        self.delivered.fetch_add(attempts, Ordering::Relaxed);
    }

    pub fn fired(&self) -> u64 {
        self.fired.load(Ordering::Relaxed)
    }

    pub fn delivered(&self) -> u64 {
        self.delivered.load(Ordering::Relaxed)
    }

    pub fn record_pass(&self, pass: SchedulerPass) {
        self.passes.add(1);
        *self.last_pass.lock() = pass;
    }

    pub fn last_pass(&self) -> SchedulerPass {
        *self.last_pass.lock()
    }

    pub fn passes(&self) -> u64 {
        self.passes.get()
    }

    /// Records that the scheduler is running, at `monotonic`. It calls this while the disk is failing, too.
    pub fn heartbeat(&self, monotonic: Duration) {
        self.last_heartbeat
            .store(u64::try_from(monotonic.as_millis()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// Returns whether the last heartbeat is recent. A scheduler without one hangs and does not recover by itself.
    pub fn is_alive(&self, monotonic: Duration) -> bool {
        monotonic.saturating_sub(Duration::from_millis(self.last_heartbeat.load(Ordering::Relaxed)))
            <= DOWN_AFTER
    }

    /// Begins a pass of the engine. It ends, and notifies `progress`, when the guard is dropped.
    pub fn begin_pass<'a>(&'a self, progress: &'a Notifier) -> PassGuard<'a> {
        self.running.fetch_add(1, Ordering::SeqCst);
        PassGuard { running: &self.running, progress }
    }

    /// Returns whether no pass is running; the statistics then agree with the file.
    pub fn is_idle(&self) -> bool {
        self.running.load(Ordering::SeqCst) == 0
    }

    /// Raises the newest instant that the scheduler has seen.
    pub fn record_last_seen(&self, instant: Timestamp) {
        self.last_seen.fetch_max(instant.as_millisecond(), Ordering::SeqCst);
    }

    /// Sets the newest instant that the scheduler has seen, also back.
    pub fn reset_last_seen(&self, instant: Timestamp) {
        self.last_seen.store(instant.as_millisecond(), Ordering::SeqCst);
    }

    /// The newest instant that the scheduler has seen. No schedule fires again before it, even if the clock is set back.
    pub fn last_seen(&self) -> Timestamp {
        Timestamp::from_millisecond(self.last_seen.load(Ordering::SeqCst)).unwrap_or(Timestamp::MIN)
    }
}

/// A running pass of the engine.
#[derive(Debug)]
pub struct PassGuard<'a> {
    running: &'a AtomicUsize,
    progress: &'a Notifier,
}

impl Drop for PassGuard<'_> {
    fn drop(&mut self) {
        self.running.fetch_sub(1, Ordering::SeqCst);
        self.progress.notify();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scheduler_is_alive_for_thirty_seconds_after_a_heartbeat() {
        let engine_stats = EngineStats::default();
        engine_stats.heartbeat(Duration::from_secs(100));
        for (seconds, alive) in [(99, true), (100, true), (130, true), (131, false)] {
            assert_eq!(engine_stats.is_alive(Duration::from_secs(seconds)), alive, "{seconds}");
        }
    }
}
