//! What writes have done since the start, for metrics: counted once it is on the disk, and not at all if it was rolled
//! back. And how the writer's commits went.

use std::cell::Cell;
use std::time::Duration;

use crate::domain::execution::Trigger;
use crate::domain::schedule::catch_up::MissReason;
use crate::metrics::{BATCH, COMMIT, Counter, Histogram};

/// What a write may do that is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WriteEvent {
    /// Executions were made.
    Made(Trigger),
    /// Executions were recorded as failed, since the quota was used up.
    OverQuota,
    /// Executions were given to workers.
    Claimed,
    /// Executions were taken back from workers that lost them.
    LostClaim,
    /// Runs were missed.
    Missed(MissReason),
}

/// How many places they have.
const KINDS: usize = 8;

impl WriteEvent {
    fn place(self) -> usize {
        match self {
            Self::Made(Trigger::Schedule) => 0,
            Self::Made(Trigger::ManualFire) => 1,
            Self::Made(Trigger::Replay) => 2,
            Self::OverQuota => 3,
            Self::Claimed => 4,
            Self::LostClaim => 5,
            Self::Missed(MissReason::Downtime) => 6,
            Self::Missed(MissReason::Clock) => 7,
        }
    }
}

/// What the writes of a transaction have done so far.
#[derive(Debug, Default, Clone)]
pub struct EventCounts(Cell<[u64; KINDS]>);

impl EventCounts {
    /// Counts `deed` so many times more.
    pub fn add(&self, deed: WriteEvent, times: u64) {
        let mut counted = self.0.get();
        counted[deed.place()] = counted[deed.place()].saturating_add(times);
        self.0.set(counted);
    }

    pub(in crate::store) fn add_all(&self, others: &Self) {
        let (mut counted, others) = (self.0.get(), others.0.get());
        for (sum, more) in counted.iter_mut().zip(others) {
            *sum = sum.saturating_add(more);
        }
        self.0.set(counted);
    }
}

/// The figures of a store since its start.
#[derive(Debug)]
pub struct WriteStats {
    counters: [Counter; KINDS],
    /// Writes that share a commit.
    pub batches: Histogram,
    /// How long commits take, the writes themselves included.
    pub commits: Histogram,
    /// Commits that failed: nothing of them is on the disk.
    pub failed_commits: Counter,
}

impl Default for WriteStats {
    fn default() -> Self {
        Self {
            counters: Default::default(),
            batches: Histogram::new(&BATCH),
            commits: Histogram::new(&COMMIT),
            failed_commits: Counter::default(),
        }
    }
}

impl WriteStats {
    /// How often `deed` was done.
    pub fn count(&self, deed: WriteEvent) -> u64 {
        self.counters[deed.place()].get()
    }

    pub(in crate::store) fn add(&self, count: &EventCounts) {
        for (counter, more) in self.counters.iter().zip(count.0.get()) {
            // Most writes do one thing or none.
            if more > 0 {
                counter.add(more);
            }
        }
    }

    pub(in crate::store) fn committed(&self, writes: usize, took: Duration) {
        self.batches.observe(u64::try_from(writes).unwrap_or(u64::MAX));
        self.commits.observe_duration(took);
    }
}
