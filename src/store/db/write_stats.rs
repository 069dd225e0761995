//! Counts of committed writes for the metrics, and the size, duration and failures of commits. Events count once they
//! are on the disk; those of a rolled-back write never do.

use std::time::Duration;

use crate::domain::execution::Trigger;
use crate::domain::schedule::catch_up::MissReason;
use crate::metrics::{BATCH, COMMIT, Counter, Histogram};

/// An effect of a write that the metrics count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WriteEvent {
    /// Executions were created.
    Created(Trigger),
    /// Executions were recorded as failed because the user's quota was used up.
    OverQuota,
    /// Workers claimed executions.
    Claimed,
    /// Claims expired without an outcome.
    ClaimExpired,
    /// Runs were recorded as missed.
    Missed(MissReason),
}

/// The number of counters: the cases of [`WriteEvent::index`].
const EVENT_KINDS: usize = 8;

impl WriteEvent {
    fn index(self) -> usize {
        match self {
            Self::Created(Trigger::Schedule) => 0,
            Self::Created(Trigger::ManualFire) => 1,
            Self::Created(Trigger::Replay) => 2,
            Self::OverQuota => 3,
            Self::Claimed => 4,
            Self::ClaimExpired => 5,
            Self::Missed(MissReason::Downtime) => 6,
            Self::Missed(MissReason::Clock) => 7,
        }
    }
}

#[derive(Debug, Default)]
pub struct EventCounts([u64; EVENT_KINDS]);

impl EventCounts {
    pub fn add(&mut self, event: WriteEvent, times: u64) {
        self.0[event.index()] += times;
    }

    pub(in crate::store) fn add_all(&mut self, others: &Self) {
        self.0.iter_mut().zip(others.0).for_each(|(sum, more)| *sum += more);
    }
}

/// Totals since the start of the store.
#[derive(Debug)]
pub struct WriteStats {
    counters: [Counter; EVENT_KINDS],
    /// Writes per commit.
    pub batches: Histogram,
    /// The duration of commits, including the writes themselves.
    pub commits: Histogram,
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
    pub fn count(&self, event: WriteEvent) -> u64 {
        self.counters[event.index()].get()
    }

    pub(in crate::store) fn add(&self, events: &EventCounts) {
        for (counter, more) in self.counters.iter().zip(events.0) {
            // Most writes have one event or none, and an atomic addition costs more than a comparison.
            if more > 0 {
                counter.add(more);
            }
        }
    }

    pub(in crate::store) fn record_commit(&self, writes: usize, took: Duration) {
        self.batches.observe(u64::try_from(writes).unwrap_or(u64::MAX));
        self.commits.observe_duration(took);
    }
}
