//! Claims of worker executions. `due_at` in queue 'claim' is the next check: null is at once, the year 9999 never.
//! `updated_at` is the time since which it is claimable.

use jiff::Timestamp;

use crate::domain::execution::attempt::FailureCause;
use crate::domain::execution::worker::NOT_CLAIMED;
use crate::domain::execution::{Execution, ExecutionStatus};
use crate::domain::ids::ExecutionId;
use crate::domain::row_keys::{CueKey, ExecutionKey, UserKey};
use crate::error::Result;
use crate::store::db::columns::row;
use crate::store::db::counters::{QueueName, WriteEvent};
use crate::store::db::meta;
use crate::store::executions::{NEVER, attempts, columns};
use crate::store::{MAX_LIST_BYTES, ReadTx, WriteTx};

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ClaimFilter {
    pub task: Option<String>,
    pub agent: Option<String>,
}

row! { claimable_columns, "e.",
#[derive(Debug, Clone, PartialEq)]
pub struct ClaimableExecution {
    pub payload: Option<String> = "p.body",
    pub id: ExecutionId,
    pub cue_id: String = "c.id",
    pub cue_name: String = "c.name",
    pub task: Option<String>,
    pub attempt: u32 = "e.attempts + 1",
    pub scheduled_for: Timestamp,
} }

#[derive(Debug, Clone, Default, PartialEq)]
pub struct ClaimableList {
    pub executions: Vec<ClaimableExecution>,
    pub has_more: bool,
}

/// The oldest first, but runs of an outage last. Fewer if they exceed [`MAX_LIST_BYTES`]. Empty on hold.
pub fn list(
    read: &ReadTx<'_>,
    user_key: UserKey,
    filter: &ClaimFilter,
    limit: u32,
) -> Result<ClaimableList> {
    if meta::is_held(read)? {
        return Ok(ClaimableList::default());
    }
    let sql = if filter.task.is_some() { LIST_OF_TASK } else { LIST };
    let parameters = (user_key, limit.saturating_add(1), &filter.agent, &filter.task);
    let (executions, has_more) = read.page(sql, parameters, limit, MAX_LIST_BYTES)?;
    Ok(ClaimableList { executions, has_more })
}

/// The claimable executions, in their order. One statement for each index: with a parameter that may be null SQLite
/// would scan all. Joins the cue: executions of a deleted one must not be claimed.
macro_rules! claimable {
    ($columns:expr, $filter:literal) => {
        concat!(
            "SELECT ",
            $columns,
            " FROM executions e JOIN cues c ON c.key = e.cue_key LEFT JOIN payloads p ON p.key = e.payload_key
              WHERE e.queue_name = 'claim' AND e.user_key = ?1 AND ",
            $filter,
            " ORDER BY e.is_catch_up, e.key LIMIT ?2 + 0"
        )
    };
}

const LIST: &str = claimable!(claimable_columns!(), "(?3 IS NULL OR e.agent = ?3) AND ?4 IS NULL");
const LIST_OF_TASK: &str =
    claimable!(claimable_columns!(), "(?3 IS NULL OR e.agent = ?3) AND e.task = ?4");
const NEXT: &str = claimable!("e.id", "?3 IS NULL");
const NEXT_OF_TASK: &str = claimable!("e.id", "e.task = ?3");

pub fn find_next(
    read: &ReadTx<'_>,
    user_key: UserKey,
    task: Option<&str>,
) -> Result<Option<ExecutionId>> {
    read.find(if task.is_some() { NEXT_OF_TASK } else { NEXT }, (user_key, 1_i64, task))
}

pub fn payload_size(read: &ReadTx<'_>, user_key: UserKey, id: ExecutionId) -> Result<usize> {
    let sql =
        "SELECT octet_length(p.body) FROM executions e JOIN payloads p ON p.key = e.payload_key
                WHERE e.id = ?2 AND e.user_key = ?1";
    Ok(read.find(sql, (user_key, id))?.unwrap_or(0))
}

const CLAIM: &str = "
    UPDATE executions
       SET status = 'delivering', queue_name = NULL, due_at = NULL, attempts = attempts + 1,
           claimed_by_worker = ?2, claimed_at = ?3, started_at = coalesce(started_at, ?3), last_attempt_at = ?3, lease_expires_at = ?4, updated_at = ?3,
           blocks_cue = (SELECT cues.key FROM cues WHERE cues.key = cue_key AND overlap <> 'allow')
     WHERE key = ?1 AND status = 'pending' AND queue_name = 'claim'";

pub fn claim(
    tx: &WriteTx<'_>,
    key: ExecutionKey,
    worker_id: &str,
    lease_expires_at: Timestamp,
    now: Timestamp,
) -> Result<bool> {
    let is_claimed = tx.changes(CLAIM, (key, worker_id, now, lease_expires_at))?;
    tx.counters().add_queued(QueueName::Claim, -i64::from(is_claimed));
    tx.count(WriteEvent::Claimed, u64::from(is_claimed));
    Ok(is_claimed)
}

pub fn renew(
    tx: &WriteTx<'_>,
    key: ExecutionKey,
    lease_expires_at: Timestamp,
    now: Timestamp,
) -> Result<bool> {
    let sql = "UPDATE executions SET lease_expires_at = ?2, updated_at = ?3
                WHERE key = ?1 AND status = 'delivering' AND lease_expires_at IS NOT NULL";
    tx.changes(sql, (key, lease_expires_at, now))
}

row! {
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EndedLease {
    pub execution: Execution,
    pub lease_expires_at: Timestamp,
    pub max_attempts: Option<u32>,
    pub max_age_seconds: Option<u32>,
    pub last_heartbeat: Option<Timestamp>,
} }

const ENDED: &str = concat!(
    "SELECT ",
    columns!(),
    ", e.lease_expires_at, c.max_attempts, c.max_age_seconds, w.last_heartbeat
       FROM executions e
       LEFT JOIN cues c ON c.key = e.cue_key
       LEFT JOIN workers w ON w.user_key = e.user_key AND w.worker_id = e.claimed_by_worker
      WHERE e.lease_expires_at <= ?1
      ORDER BY e.lease_expires_at LIMIT ?2 + 0"
);

/// The caller releases each or moves its end forward: otherwise workers that overrun would be read again and again.
pub fn list_ended(read: &ReadTx<'_>, now: Timestamp, limit: usize) -> Result<Vec<EndedLease>> {
    read.all(ENDED, (now, limit))
}

const NEXT_END: &str = "SELECT lease_expires_at FROM executions
    WHERE lease_expires_at IS NOT NULL ORDER BY lease_expires_at LIMIT 1";

pub fn next_end(read: &ReadTx<'_>) -> Result<Option<Timestamp>> {
    read.find(NEXT_END, ())
}

const SET_END: &str = "UPDATE executions SET lease_expires_at = ?2 WHERE key = ?1";

/// Moves the end of a lease; `None` if it is never checked again, because its cue has been deleted.
pub fn set_end(
    tx: &WriteTx<'_>,
    key: ExecutionKey,
    lease_expires_at: Option<Timestamp>,
) -> Result<()> {
    tx.run(SET_END, (key, lease_expires_at))
}

/// `status` is `pending`, which makes it claimable again, or `failed`. Returns `false` if no worker holds it.
pub fn release(
    tx: &WriteTx<'_>,
    execution: &Execution,
    status: ExecutionStatus,
    reason: &str,
    cause: Option<FailureCause>,
    now: Timestamp,
) -> Result<bool> {
    let sql = concat!(
        "UPDATE executions
            SET status = ?2, queue_name = iif(?2 = 'pending', 'claim', NULL), due_at = iif(?2 = 'pending', ",
        first_check!("?4", "executions.cue_key"),
        ", NULL), lease_expires_at = NULL,
                claimed_by_worker = iif(?2 = 'pending', NULL, claimed_by_worker),
                claimed_at = iif(?2 = 'pending', NULL, claimed_at), error_message = ?3, updated_at = ?4,
                duration_ms = max(?4 - last_attempt_at, 0), cause = ?5,
                expires_at = iif(?2 = 'pending', scheduled_for + 1000 * (SELECT max_age_seconds FROM cues
                                                                          WHERE cues.key = cue_key), expires_at)
          WHERE key = ?1 AND status = 'delivering' AND lease_expires_at IS NOT NULL",
    );
    if !tx.changes(sql, (execution.key, status, reason, now, cause))? {
        return Ok(false);
    }
    let worker_id = execution.claimed_by_worker.as_deref().unwrap_or_default();
    attempts::keep_latest(tx, execution.key, execution.attempts, Some(worker_id))?;
    tx.counters().add_queued(QueueName::Claim, i64::from(status == ExecutionStatus::Pending));
    tx.count(WriteEvent::ClaimExpired, 1);
    Ok(true)
}

/// The first check of an execution that becomes claimable at `$now`, as SQL: after 15 minutes, or at the limit of its
/// cue.
macro_rules! first_check {
    ($now:literal, $cue_key:literal) => {
        concat!(
            "(",
            $now,
            " + 60000 * min(15, coalesce((SELECT cues.claim_within_minutes FROM cues WHERE cues.key = ",
            $cue_key,
            "), 15)))"
        )
    };
}
pub(in crate::store) use first_check;

const NEXT_CHECK: &str =
    "SELECT due_at FROM executions WHERE queue_name = 'claim' ORDER BY due_at LIMIT 1";

// Without a comparison of `due_at`: null comes first in the index, and the reader stops at the first later row.
const DUE: &str =
    "SELECT e.due_at, e.key, e.cue_key, e.user_key, e.scheduled_for, e.triggered_by = 'schedule',
        e.task, e.updated_at, c.key IS NULL, c.claim_within_minutes,
        iif(c.overlap <> 'allow' AND e.blocks_cue IS NOT NULL, max(
            coalesce((SELECT last FROM missed_runs m WHERE m.cue_key = c.key ORDER BY m.key DESC LIMIT 1), 0),
            (SELECT max(b.scheduled_for) FROM executions b WHERE b.blocks_cue = c.key AND b.scheduled_for <= ?2)), NULL)
   FROM executions e LEFT JOIN cues c ON c.key = e.cue_key
  WHERE e.queue_name = 'claim' ORDER BY e.due_at LIMIT ?1 + 0";

const CHECK_AT: &str = "SELECT due_at FROM executions WHERE key = ?1";

const SET_CHECK: &str = "UPDATE executions SET due_at = ?2 WHERE key = ?1 AND queue_name = 'claim'";

const CHECK_AGAIN: &str =
    "UPDATE executions SET due_at = NULL WHERE blocks_cue = ?1 AND queue_name = 'claim'";

const WAITING: &str = "SELECT count(*) FROM (
    SELECT queue_name FROM executions WHERE cue_key = ?1 ORDER BY key DESC LIMIT ?2 + 0) WHERE queue_name = 'claim'";

const FAIL_UNCLAIMED: &str = "UPDATE executions
    SET status = 'failed', queue_name = NULL, due_at = NULL, error_message = ?2, updated_at = ?3
  WHERE key = ?1 AND queue_name = 'claim'";

row! {
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnclaimedExecution {
    pub key: ExecutionKey,
    pub cue_key: CueKey,
    pub user_key: UserKey,
    pub scheduled_for: Timestamp,
    pub by_schedule: bool,
    pub task: Option<String>,
    pub claimable_since: Timestamp,
    /// True if its cue has been deleted: its row is about to be.
    pub is_deleted: bool,
    pub claim_within_minutes: Option<u32>,
    /// If it holds up its cue: the latest instant at which the cue was due.
    pub due_again: Option<Timestamp>,
} }

pub fn next_check(read: &ReadTx<'_>) -> Result<Option<Timestamp>> {
    let first: Option<Option<Timestamp>> = read.find(NEXT_CHECK, ())?;
    Ok(first.map(|due_at| due_at.unwrap_or(Timestamp::MIN)).filter(|due_at| *due_at < NEVER))
}

pub fn check_at(read: &ReadTx<'_>, key: ExecutionKey) -> Result<Option<Timestamp>> {
    read.one(CHECK_AT, [key])
}

pub fn list_due(
    read: &ReadTx<'_>,
    now: Timestamp,
    limit: usize,
) -> Result<Vec<UnclaimedExecution>> {
    let mut due = Vec::new();
    read.visit(DUE, (limit, now), |columns| {
        let due_at: Option<Timestamp> = columns.get()?;
        let is_due = due_at.is_none_or(|due_at| due_at <= now);
        if is_due {
            due.push(columns.get()?);
        }
        Ok(is_due)
    })?;
    Ok(due)
}

/// Sets the time of the next check; `None` is never. `updated_at` stays: the execution waits as before.
pub fn set_check(tx: &WriteTx<'_>, key: ExecutionKey, at: Option<Timestamp>) -> Result<()> {
    tx.run(SET_CHECK, (key, at.unwrap_or(NEVER)))
}

/// Checks the executions at once that hold up the cue, which was due.
pub fn check_again(tx: &WriteTx<'_>, cue_key: CueKey) -> Result<()> {
    tx.run(CHECK_AGAIN, [cue_key])
}

pub fn count_waiting(read: &ReadTx<'_>, cue_key: CueKey, limit: u32) -> Result<u32> {
    read.one(WAITING, (cue_key, limit))
}

pub fn fail_unclaimed(tx: &WriteTx<'_>, key: ExecutionKey, now: Timestamp) -> Result<bool> {
    let has_failed = tx.changes(FAIL_UNCLAIMED, (key, NOT_CLAIMED, now))?;
    tx.counters().add_queued(QueueName::Claim, -i64::from(has_failed));
    Ok(has_failed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::execution::worker::UNCLAIMED_AFTER;
    use crate::store::test_support::{memory_database, plan_test};

    crate::store::test_support::plan_test! { checks_are_found_by_index_and_never_sorted:
        NEXT_CHECK => "executions_unclaimed",
        DUE => "SCAN e USING INDEX executions_unclaimed",
        WAITING => "executions_by_cue (cue_key=?)",
        CHECK_AGAIN => "executions_blocking (blocks_cue=?)",
        SET_CHECK => "SEARCH executions USING INTEGER PRIMARY KEY (rowid=?)",
        FAIL_UNCLAIMED => "SEARCH executions USING INTEGER PRIMARY KEY (rowid=?)",
    }

    #[test]
    fn the_first_check_is_at_the_earlier_of_alert_and_limit() {
        let file = memory_database();
        assert_eq!(UNCLAIMED_AFTER.as_millis(), 15 * 60_000);
        let sql = first_check!("?1", "?2");
        for (minutes, expected) in [(None, 900_001), (Some(5), 300_001), (Some(10_080), 900_001)] {
            let sql = sql
                .replace("FROM cues", "FROM (SELECT 7 AS key, ?3 AS claim_within_minutes) AS cues");
            let found: i64 = file
                .query_row(&format!("SELECT {sql}"), (1, 7, minutes), |row| row.get(0))
                .unwrap();
            assert_eq!(found, expected, "{minutes:?}");
        }
    }

    plan_test! { every_query_uses_its_index_and_none_sorts:
        LIST => "executions_to_claim (user_key=?)",
        LIST_OF_TASK => "executions_to_claim_by_task (user_key=? AND task=?)",
        NEXT => "executions_to_claim (user_key=?)",
        NEXT_OF_TASK => "executions_to_claim_by_task (user_key=? AND task=?)",
        CLAIM => "INTEGER PRIMARY KEY (rowid=?)",
        ENDED => "executions_leased (lease_expires_at<?)",
        NEXT_END => "executions_leased (lease_expires_at>?)",
        SET_END => "INTEGER PRIMARY KEY (rowid=?)",
    }
}
