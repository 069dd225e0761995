//! Statistics of the engine, for health checks, metrics, and the test clock, which waits until the engine is idle.

use std::sync::atomic::{AtomicI64, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use jiff::Timestamp;

use crate::clock::Notifier;
use crate::domain::execution::attempt::FailureCause;
use crate::metrics::{Counter, Family, Histogram, TIME};
use crate::system::locks::Mutex;

/// Time without a pass after which the scheduler counts as down (contract §8.7).
pub const DOWN_AFTER: Duration = Duration::from_secs(30);

#[derive(Debug)]
pub struct EngineStats {
    pub fired: Counter,
    /// Finished delivery attempts whose result is stored.
    pub delivered: Counter,
    pub passes: Counter,
    // Passes that are running.
    running: AtomicUsize,
    unfinished: AtomicUsize,
    unfinished_notifications: AtomicUsize,
    last_seen: AtomicI64,
    last_pass: Mutex<SchedulerPass>,
    // Milliseconds of the monotonic clock.
    last_heartbeat: AtomicU64,
    /// Time from the scheduled instant of a run to the start of its first attempt.
    pub lateness: Histogram,
    pub attempt_durations: Histogram,
    /// Finished attempts, by the resulting state of the execution (`success`, `retrying`, `failed`) and by the cause of
    /// a failure.
    pub attempts: Family<Counter, 2>,
    /// Attempts to send failure notifications, by result: `success`, `retrying` or `failed`.
    pub notifications: Family<Counter, 1>,
}

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
        let failed = |result| FailureCause::WORDS.map(|cause| [result, cause]);
        let results = [&[["success", "none"]][..], &failed("retrying"), &failed("failed")].concat();
        Self {
            fired: Counter::default(),
            delivered: Counter::default(),
            passes: Counter::default(),
            running: AtomicUsize::new(0),
            unfinished: AtomicUsize::new(0),
            unfinished_notifications: AtomicUsize::new(0),
            // Before every instant, because `record_last_seen` only raises it.
            last_seen: AtomicI64::new(i64::MIN),
            last_pass: Mutex::default(),
            last_heartbeat: AtomicU64::new(0),
            lateness: Histogram::new(&TIME),
            attempt_durations: Histogram::new(&TIME),
            attempts: Family::new(Counter::default, &results),
            notifications: Family::new(Counter::default, &[["success"], ["retrying"], ["failed"]]),
        }
    }
}

impl EngineStats {
    pub fn record_pass(&self, pass: SchedulerPass) {
        self.passes.add(1);
        *self.last_pass.lock() = pass;
    }

    pub fn last_pass(&self) -> SchedulerPass {
        *self.last_pass.lock()
    }

    /// Records that the scheduler is running, at `monotonic`. It calls this while the disk is failing, too.
    pub fn heartbeat(&self, monotonic: Duration) {
        let millis = u64::try_from(monotonic.as_millis()).unwrap_or(u64::MAX);
        self.last_heartbeat.store(millis, Ordering::Relaxed);
    }

    /// Returns whether the last heartbeat is recent. A scheduler without one hangs and does not recover by itself.
    pub fn is_alive(&self, monotonic: Duration) -> bool {
        let last = Duration::from_millis(self.last_heartbeat.load(Ordering::Relaxed));
        monotonic.saturating_sub(last) <= DOWN_AFTER
    }

    /// Begins a pass of the engine. It ends, and notifies `progress`, when the guard is dropped.
    pub fn begin_pass<'a>(&'a self, progress: &'a Notifier) -> PassGuard<'a> {
        self.running.fetch_add(1, Ordering::SeqCst);
        PassGuard { running: &self.running, progress }
    }

    /// Records the number of deliveries that are claimed and not recorded yet, also of runs that were deleted meanwhile.
    pub fn record_unfinished(&self, deliveries: usize) {
        self.unfinished.store(deliveries, Ordering::SeqCst);
    }

    /// As [`EngineStats::record_unfinished`], of notifications.
    pub fn record_unfinished_notifications(&self, notifications: usize) {
        self.unfinished_notifications.store(notifications, Ordering::SeqCst);
    }

    /// Returns whether no pass, no delivery and no notification is under way; the statistics then agree with the file.
    pub fn is_idle(&self) -> bool {
        [&self.running, &self.unfinished, &self.unfinished_notifications]
            .iter()
            .all(|under_way| under_way.load(Ordering::SeqCst) == 0)
    }

    pub fn record_last_seen(&self, instant: Timestamp) {
        self.last_seen.fetch_max(instant.as_millisecond(), Ordering::SeqCst);
    }

    /// Sets the newest instant that the scheduler has seen, also back.
    pub fn reset_last_seen(&self, instant: Timestamp) {
        self.last_seen.store(instant.as_millisecond(), Ordering::SeqCst);
    }

    /// The newest instant that the scheduler has seen. No schedule fires again before it, even if the clock is set
    /// back.
    pub fn last_seen(&self) -> Timestamp {
        Timestamp::from_millisecond(self.last_seen.load(Ordering::SeqCst)).unwrap_or(Timestamp::MIN)
    }
}

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
