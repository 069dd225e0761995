//! Claims of worker executions: the queue of claimable executions, leases, and expired claims.

use jiff::Timestamp;
use rusqlite::params;

use crate::domain::execution::{Execution, ExecutionStatus};
use crate::domain::ids::ExecutionId;
use crate::error::Result;
use crate::store::db::columns::{RowReader, from_row, millis, row, row_count};
use crate::store::db::counters::QueueName;
use crate::store::db::hold;
use crate::store::db::write_stats::WriteEvent;
use crate::store::executions::unclaimed::first_check;
use crate::store::executions::{attempts, columns};
use crate::store::{MAX_LIST_BYTES, ReadTx, WriteTx};

/// Executions that a worker asks for; `None` matches all.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ClaimFilter {
    /// Matches `payload.task`.
    pub task: Option<String>,
    /// Matches `payload.agent`.
    pub agent: Option<String>,
}

row! { claimable_columns, "e.",
#[derive(Debug, Clone, PartialEq)]
pub struct ClaimableExecution {
    /// The stored text.
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
    /// There are more that match.
    pub has_more: bool,
}

/// The user's claimable executions that match the filter, at most `limit`: the oldest first, but runs of an outage
/// after all others. Fewer if they exceed [`MAX_LIST_BYTES`]. Empty while the database is on hold.
pub fn list(read: &ReadTx<'_>, user_key: i64, filter: &ClaimFilter, limit: u32) -> Result<ClaimableList> {
    if hold::is_held(read)? {
        return Ok(ClaimableList::default());
    }
    let mut statement = read.prepare_cached(list_sql(filter))?;
    let mut rows = statement.query(params![user_key, limit.saturating_add(1), filter.agent, filter.task])?;
    let (mut executions, mut bytes) = (Vec::new(), 0);
    while let Some(row) = rows.next()? {
        bytes += RowReader::new(row).maybe_text()?.map_or(0, str::len);
        let is_full = executions.len() as u64 >= u64::from(limit) || bytes > MAX_LIST_BYTES;
        if is_full && !executions.is_empty() {
            return Ok(ClaimableList { executions, has_more: true });
        }
        executions.push(from_row(row)?);
    }
    Ok(ClaimableList { executions, has_more: false })
}

/// The statement with and without a task, one for each index. With a parameter that may be null SQLite would scan all
/// of the user's claimable executions.
fn list_sql(filter: &ClaimFilter) -> &'static str {
    macro_rules! sql {
        ($task:literal) => {
            concat!(
                "SELECT ",
                claimable_columns!(),
                " FROM executions e
                   JOIN cues c ON c.key = e.cue_key
                   LEFT JOIN payloads p ON p.key = e.payload_key
                  WHERE e.queue_name = 'claim' AND e.user_key = ?1 AND (?3 IS NULL OR e.agent = ?3) AND ",
                $task,
                " ORDER BY e.is_catch_up, e.key LIMIT ?2 + 0"
            )
        };
    }
    if filter.task.is_some() { sql!("e.task = ?4") } else { sql!("?4 IS NULL") }
}

// Joins the cue, as the list does: executions of a deleted cue must not be claimed.
const NEXT: &str = "SELECT e.id FROM executions e JOIN cues c ON c.key = e.cue_key
  WHERE e.queue_name = 'claim' AND e.user_key = ?1 AND ?2 IS NULL ORDER BY e.is_catch_up, e.key LIMIT 1";
const NEXT_OF_TASK: &str = "SELECT e.id FROM executions e JOIN cues c ON c.key = e.cue_key
  WHERE e.queue_name = 'claim' AND e.user_key = ?1 AND e.task = ?2 ORDER BY e.is_catch_up, e.key LIMIT 1";

/// The id of the first execution in the order of [`list`], with this task if one is given.
pub fn find_next(read: &ReadTx<'_>, user_key: i64, task: Option<&str>) -> Result<Option<ExecutionId>> {
    read.find(if task.is_some() { NEXT_OF_TASK } else { NEXT }, params![user_key, task])
}

/// The size of the payload of the user's execution, in bytes; 0 if there is none.
pub fn payload_size(read: &ReadTx<'_>, user_key: i64, id: ExecutionId) -> Result<usize> {
    let sql = "SELECT octet_length(p.body) FROM executions e JOIN payloads p ON p.key = e.payload_key
                WHERE e.id = ?2 AND e.user_key = ?1";
    Ok(read.find(sql, params![user_key, id.bytes()])?.unwrap_or(0))
}

const CLAIM: &str = "
    UPDATE executions
       SET status = 'delivering', queue_name = NULL, due_at = NULL, attempts = attempts + 1,
           claimed_by_worker = ?2, claimed_at = ?3, started_at = coalesce(started_at, ?3), last_attempt_at = ?3, lease_expires_at = ?4, updated_at = ?3
     WHERE key = ?1 AND status = 'pending' AND queue_name = 'claim'";

/// Claims an execution for a worker. Returns `false` if it is no longer claimable.
pub fn claim(
    tx: &WriteTx<'_>,
    key: i64,
    worker_id: &str,
    lease_expires_at: Timestamp,
    now: Timestamp,
) -> Result<bool> {
    let is_claimed = tx.changes(CLAIM, params![key, worker_id, millis(now), millis(lease_expires_at)])?;
    tx.counters().add_queued(QueueName::Claim, -i64::from(is_claimed));
    tx.count(WriteEvent::Claimed, u64::from(is_claimed));
    Ok(is_claimed)
}

/// Renews the lease of an execution. Returns `false` if no worker holds it.
pub fn renew(tx: &WriteTx<'_>, key: i64, lease_expires_at: Timestamp, now: Timestamp) -> Result<bool> {
    let sql = "UPDATE executions SET lease_expires_at = ?2, updated_at = ?3
                WHERE key = ?1 AND status = 'delivering' AND lease_expires_at IS NOT NULL";
    tx.changes(sql, params![key, millis(lease_expires_at), millis(now)])
}

row! {
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EndedLease {
    pub execution: Execution,
    pub lease_expires_at: Timestamp,
    /// The number of attempts that its cue allows; `None` if the cue has been deleted.
    pub max_attempts: Option<u32>,
    /// The last heartbeat of the worker, if it ever sent one.
    pub last_heartbeat: Option<Timestamp>,
} }

const ENDED: &str = concat!(
    "SELECT ",
    columns!(),
    ", e.lease_expires_at, c.max_attempts, w.last_heartbeat
       FROM executions e
       LEFT JOIN cues c ON c.key = e.cue_key
       LEFT JOIN workers w ON w.user_key = e.user_key AND w.worker_id = e.claimed_by_worker
      WHERE e.lease_expires_at <= ?1
      ORDER BY e.lease_expires_at LIMIT ?2 + 0"
);

/// The claims whose leases have ended at `now`, earliest first, at most `limit`. The caller releases each, or moves the
/// end of its lease forward: otherwise those of workers that overrun would be read again and again.
pub fn list_ended(read: &ReadTx<'_>, now: Timestamp, limit: usize) -> Result<Vec<EndedLease>> {
    read.all(ENDED, [millis(now), row_count(limit)])
}

const NEXT_END: &str = "SELECT lease_expires_at FROM executions
    WHERE lease_expires_at IS NOT NULL ORDER BY lease_expires_at LIMIT 1";

pub fn next_end(read: &ReadTx<'_>) -> Result<Option<Timestamp>> {
    read.find(NEXT_END, [])
}

const SET_END: &str = "UPDATE executions SET lease_expires_at = ?2 WHERE key = ?1";

/// Moves the end of a lease; `None` if it is never checked again, because its cue has been deleted.
pub fn set_end(tx: &WriteTx<'_>, key: i64, lease_expires_at: Option<Timestamp>) -> Result<()> {
    tx.run(SET_END, params![key, lease_expires_at.map(millis)])
}

/// Releases an execution whose claim has expired, and keeps the attempt. `status` is `pending`, which makes it claimable
/// again, or `failed`. Returns `false` if no worker holds it.
pub fn release(
    tx: &WriteTx<'_>,
    execution: &Execution,
    status: ExecutionStatus,
    reason: &str,
    now: Timestamp,
) -> Result<bool> {
    let sql = concat!(
        "UPDATE executions
            SET status = ?2, queue_name = iif(?2 = 'pending', 'claim', NULL), due_at = iif(?2 = 'pending', ",
        first_check!("?4", "executions.cue_key"),
        ", NULL), lease_expires_at = NULL,
                claimed_by_worker = iif(?2 = 'pending', NULL, claimed_by_worker),
                claimed_at = iif(?2 = 'pending', NULL, claimed_at), error_message = ?3, updated_at = ?4,
                duration_ms = max(?4 - last_attempt_at, 0)
          WHERE key = ?1 AND status = 'delivering' AND lease_expires_at IS NOT NULL",
    );
    if !tx.changes(sql, params![execution.key, status.as_str(), reason, millis(now)])? {
        return Ok(false);
    }
    let worker_id = execution.claimed_by_worker.as_deref().unwrap_or_default();
    attempts::keep_latest(tx, execution.key, execution.attempts, Some(worker_id))?;
    tx.counters().add_queued(QueueName::Claim, i64::from(status == ExecutionStatus::Pending));
    tx.count(WriteEvent::ClaimExpired, 1);
    Ok(true)
}

#[cfg(test)]
crate::store::test_support::plan_test! { every_query_uses_its_index_and_none_sorts:
    list_sql(&ClaimFilter::default()) => "executions_to_claim (user_key=?)",
    list_sql(&ClaimFilter { task: Some("resize".to_owned()), agent: None })
        => "executions_to_claim_by_task (user_key=? AND task=?)",
    NEXT => "executions_to_claim (user_key=?)",
    NEXT_OF_TASK => "executions_to_claim_by_task (user_key=? AND task=?)",
    CLAIM => "INTEGER PRIMARY KEY (rowid=?)",
    ENDED => "executions_leased (lease_expires_at<?)",
    NEXT_END => "executions_leased (lease_expires_at>?)",
    SET_END => "INTEGER PRIMARY KEY (rowid=?)",
}
