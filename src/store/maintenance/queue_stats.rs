//! Queue statistics for health and metrics, and for the test clock, which waits until the engine is idle.

use jiff::{SignedDuration, Timestamp};

use crate::domain::execution::worker::ACTIVE_FOR;
use crate::domain::time::saturating_sub;
use crate::error::Result;
use crate::store::ReadTx;
use crate::store::db::columns::{millis, row};

/// Age of an attempt from which health reports the execution as stale (contract §8).
const STALE_AFTER: SignedDuration = SignedDuration::from_secs(300);

row! {
/// Lengths of the queues, and executions and workers in progress.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueueStats {
    /// Due webhook executions that no delivery thread has claimed.
    pub pending_outbox: i64,
    /// Executions in `delivering` for over 300 s.
    pub stale_executions: i64,
    /// Executions whose next attempt is not due yet.
    pub pending_retries: i64,
    pub pending_worker_claims: i64,
    pub active_workers: i64,
    /// True if any worker has ever sent a heartbeat.
    pub any_workers: bool,
    /// The time since which the first of them is claimable.
    pub claimable_since: Option<Timestamp>,
} }

// Queues that can hold millions of executions have a stored counter in `backlog`. Executions in progress are counted:
// three times the number of delivery threads, and the workers, limit them.
const QUEUE: &str = "SELECT (SELECT count FROM backlog WHERE name = 'send'),
        (SELECT count(*) FROM executions WHERE status = 'delivering' AND last_attempt_at < ?1),
        (SELECT count FROM backlog WHERE name = 'retry'),
        (SELECT count FROM backlog WHERE name = 'claim'),
        (SELECT count(*) FROM workers WHERE last_heartbeat > ?2),
        EXISTS (SELECT 1 FROM workers),
        (SELECT updated_at FROM executions WHERE queue_name = 'claim' ORDER BY updated_at LIMIT 1)";

impl QueueStats {
    /// The time for which the execution that has been claimable longest has waited.
    pub fn oldest_claim(&self, now: Timestamp) -> Option<SignedDuration> {
        Some(now.duration_since(self.claimable_since?).max(SignedDuration::ZERO))
    }
}

pub fn queue(read: &ReadTx<'_>, now: Timestamp) -> Result<QueueStats> {
    let before = |age| millis(saturating_sub(now, age));
    read.one(QUEUE, [before(STALE_AFTER), before(ACTIVE_FOR)])
}

/// True if a webhook delivery is queued for a thread or in progress.
pub fn is_delivering(read: &ReadTx<'_>) -> Result<bool> {
    let sql = "SELECT EXISTS (SELECT 1 FROM executions WHERE queue_name = 'send')
                   OR EXISTS (SELECT 1 FROM executions WHERE status = 'delivering' AND transport = 'webhook')";
    read.one(sql, [])
}

#[cfg(test)]
crate::store::test_support::plan_test! { health_reads_counters_and_counts_only_running_deliveries:
    QUEUE => "SEARCH backlog USING PRIMARY KEY (name=?)",
    QUEUE => "SCAN executions USING INDEX executions_in_flight",
    QUEUE => "SEARCH workers USING INDEX workers_by_heartbeat (last_heartbeat>?)",
    QUEUE => "SCAN workers USING INDEX workers_by_heartbeat",
    QUEUE => "SCAN executions USING INDEX executions_claimable_since",
}
