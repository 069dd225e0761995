//! Figures for health and for a test clock that waits for the engine to come to rest.

use jiff::{SignedDuration, Timestamp};
use rusqlite::params;

use crate::domain::execution::worker::ACTIVE_FOR;
use crate::domain::time::saturating_sub;
use crate::error::Result;
use crate::store::ReadTx;
use crate::store::db::columns::millis;

/// How long an execution may be under way before health calls it stale (contract §8).
const STALE_AFTER: SignedDuration = SignedDuration::from_secs(300);

/// What waits and what is under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueueStats {
    /// Due webhook executions that no delivery thread has taken up.
    pub pending_outbox: i64,
    /// Executions in `delivering` for over 300 s.
    pub stale_executions: i64,
    /// Executions that wait for another attempt.
    pub pending_retries: i64,
    /// Executions that wait for a worker.
    pub pending_worker_claims: i64,
    /// Workers whose last heartbeat is recent.
    pub active_workers: i64,
    /// Whether any worker ever sent a heartbeat.
    pub any_workers: bool,
}

// What may be a backlog of millions has a figure in `backlog`. The rest is counted: no more is under way for long than
// there are delivery threads and workers.
const QUEUE: &str = "SELECT (SELECT count FROM backlog WHERE name = 'send'),
        (SELECT count(*) FROM executions WHERE status = 'delivering' AND last_attempt_at < ?1),
        (SELECT count FROM backlog WHERE name = 'retry'),
        (SELECT count FROM backlog WHERE name = 'claim'),
        (SELECT count(*) FROM workers WHERE last_heartbeat > ?2),
        EXISTS (SELECT 1 FROM workers)";

/// The figures of the queue at `now`.
///
/// # Errors
/// When the file cannot be read.
pub fn queue(read: &ReadTx<'_>, now: Timestamp) -> Result<QueueStats> {
    let before = |age| millis(saturating_sub(now, age));
    Ok(read.prepare_cached(QUEUE)?.query_row(params![before(STALE_AFTER), before(ACTIVE_FOR)], |row| {
        Ok(QueueStats {
            pending_outbox: row.get(0)?,
            stale_executions: row.get(1)?,
            pending_retries: row.get(2)?,
            pending_worker_claims: row.get(3)?,
            active_workers: row.get(4)?,
            any_workers: row.get(5)?,
        })
    })?)
}

/// Whether a delivery is due or under way: an execution that waits for a thread, or that one has taken.
///
/// # Errors
/// When the file cannot be read.
pub fn is_delivering(read: &ReadTx<'_>) -> Result<bool> {
    Ok(read
        .prepare_cached(
            "SELECT EXISTS (SELECT 1 FROM executions WHERE queue_name = 'send')
                 OR EXISTS (SELECT 1 FROM executions WHERE status = 'delivering' AND transport = 'webhook')",
        )?
        .query_row([], |row| row.get(0))?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::test_support::plan;

    #[test]
    fn health_reads_figures_and_counts_only_what_is_under_way() {
        let steps: Vec<String> = plan(QUEUE).into_iter().filter(|step| !step.contains("SUBQUERY")).collect();
        assert_eq!(
            steps,
            [
                "SCAN CONSTANT ROW",
                "SEARCH backlog USING PRIMARY KEY (name=?)",
                "SEARCH executions USING COVERING INDEX executions_in_flight (last_attempt_at<?)",
                "SEARCH backlog USING PRIMARY KEY (name=?)",
                "SEARCH backlog USING PRIMARY KEY (name=?)",
                "SEARCH workers USING COVERING INDEX workers_by_heartbeat (last_heartbeat>?)",
                // Stops at the first.
                "SCAN workers USING COVERING INDEX workers_by_heartbeat",
            ]
        );
    }
}
