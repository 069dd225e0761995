//! Worker executions on their way: what can be claimed, who holds what until when, and which claims are lost.

use jiff::Timestamp;
use rusqlite::{OptionalExtension, Row, params};
use serde_json::Value;

use crate::domain::execution::{Execution, ExecutionStatus, claim_lost_at};
use crate::domain::ids::ExecutionId;
use crate::error::Result;
use crate::store::db::columns::{instant, maybe_instant, maybe_json, millis};
use crate::store::db::counters::QueueName;
use crate::store::db::hold;
use crate::store::db::write_stats::WriteEvent;
use crate::store::executions::{COLUMNS, read_execution, read_id};
use crate::store::{ReadTx, WriteTx};

/// Most bytes of payloads in one list: a hundred of the largest would be 100 MB. The list is then shorter.
const PAYLOAD_BYTES: usize = 8 << 20;

/// What a worker asks for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ClaimFilter {
    /// Only executions whose `payload.task` is this.
    pub task: Option<String>,
    /// Only executions whose `payload.agent` is this.
    pub agent: Option<String>,
}

/// An execution that waits for a worker.
#[derive(Debug, Clone, PartialEq)]
pub struct ClaimableExecution {
    pub id: ExecutionId,
    pub cue_id: String,
    pub cue_name: String,
    pub task: Option<String>,
    /// The number that the attempt of whoever claims it will have.
    pub attempt: u32,
    pub scheduled_for: Timestamp,
    pub payload: Option<Value>,
}

/// The user's executions that wait for a worker, oldest first, at most `limit` of those that fit the filter. A file
/// that is held has nothing for workers.
pub fn list(
    read: &ReadTx<'_>,
    user_key: i64,
    filter: &ClaimFilter,
    limit: u32,
) -> Result<Vec<ClaimableExecution>> {
    if hold::is_held(read)? {
        return Ok(Vec::new());
    }
    let mut statement = read.prepare_cached(list_sql(filter))?;
    let mut rows = statement.query(params![user_key, limit, filter.agent, filter.task])?;
    let (mut claimable, mut bytes) = (Vec::new(), 0);
    while let Some(row) = rows.next()? {
        let (next, payload_bytes) = read_claimable(row)?;
        bytes += payload_bytes;
        if bytes > PAYLOAD_BYTES && !claimable.is_empty() {
            break;
        }
        claimable.push(next);
    }
    Ok(claimable)
}

fn read_claimable(row: &Row<'_>) -> rusqlite::Result<(ClaimableExecution, usize)> {
    let bytes = row.get_ref("body")?.as_str_or_null()?.map_or(0, str::len);
    let claimable = ClaimableExecution {
        id: read_id(row)?,
        cue_id: row.get("cue_id")?,
        cue_name: row.get("cue_name")?,
        task: row.get("task")?,
        attempt: row.get("attempt")?,
        scheduled_for: instant(row, "scheduled_for")?,
        payload: maybe_json(row, "body")?,
    };
    Ok((claimable, bytes))
}

/// One text for each index: a task that may be null would make SQLite walk all of the user's executions.
fn list_sql(filter: &ClaimFilter) -> &'static str {
    macro_rules! sql {
        ($task:literal) => {
            concat!(
                "SELECT e.id, c.id AS cue_id, c.name AS cue_name, e.task, e.attempts + 1 AS attempt,
                        e.scheduled_for, p.body
                   FROM executions e
                   JOIN cues c ON c.key = e.cue_key
                   LEFT JOIN payloads p ON p.key = e.payload_key
                  WHERE e.queue_name = 'claim' AND e.user_key = ?1 AND (?3 IS NULL OR e.agent = ?3) AND ",
                $task,
                " ORDER BY e.key LIMIT ?2 + 0"
            )
        };
    }
    if filter.task.is_some() { sql!("e.task = ?4") } else { sql!("?4 IS NULL") }
}

// With the cue, as in the list: what a removed one has left behind is not handed out.
const OLDEST: &str = "SELECT e.id FROM executions e JOIN cues c ON c.key = e.cue_key
  WHERE e.queue_name = 'claim' AND e.user_key = ?1 AND ?2 IS NULL ORDER BY e.key LIMIT 1";
const OLDEST_OF_TASK: &str = "SELECT e.id FROM executions e JOIN cues c ON c.key = e.cue_key
  WHERE e.queue_name = 'claim' AND e.user_key = ?1 AND e.task = ?2 ORDER BY e.key LIMIT 1";

/// The id of the user's oldest execution that waits for a worker, of those with this task where one is given.
pub fn find_oldest(read: &ReadTx<'_>, user_key: i64, task: Option<&str>) -> Result<Option<ExecutionId>> {
    let sql = if task.is_some() { OLDEST_OF_TASK } else { OLDEST };
    Ok(read.prepare_cached(sql)?.query_row(params![user_key, task], read_id).optional()?)
}

const CLAIM: &str = "
    UPDATE executions
       SET status = 'delivering', queue_name = NULL, attempts = attempts + 1, claimed_by_worker = ?2, claimed_at = ?3,
           started_at = coalesce(started_at, ?3), last_attempt_at = ?3, lease_expires_at = ?4, updated_at = ?3
     WHERE key = ?1 AND status = 'pending' AND queue_name = 'claim'";

/// Gives an execution to a worker, if it still waits for one; tells whether it did.
pub fn claim(
    tx: &WriteTx<'_>,
    key: i64,
    worker_id: &str,
    lease_expires_at: Timestamp,
    now: Timestamp,
) -> Result<bool> {
    let claimed =
        tx.prepare_cached(CLAIM)?.execute(params![key, worker_id, millis(now), millis(lease_expires_at)])?;
    tx.tally().waiting(QueueName::Claim, -i64::from(claimed == 1));
    tx.count(WriteEvent::Claimed, u64::from(claimed == 1));
    Ok(claimed == 1)
}

/// Extends the lease of an execution, if a worker still holds it; tells whether one did.
pub fn renew(tx: &WriteTx<'_>, key: i64, lease_expires_at: Timestamp, now: Timestamp) -> Result<bool> {
    let extended = tx
        .prepare_cached(
            "UPDATE executions SET lease_expires_at = ?2, updated_at = ?3
              WHERE key = ?1 AND status = 'delivering' AND lease_expires_at IS NOT NULL",
        )?
        .execute(params![key, millis(lease_expires_at), millis(now)])?;
    Ok(extended == 1)
}

/// An execution whose claim is lost.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExpiredClaim {
    /// The execution.
    pub execution: Execution,
    /// How many attempts its cue allows.
    pub max_attempts: u32,
}

/// The claims that are lost at `now`, the longest overdue first, at most `limit`.
pub fn list_expired(read: &ReadTx<'_>, now: Timestamp, limit: usize) -> Result<Vec<ExpiredClaim>> {
    let mut statement = read.prepare_cached(&lost_sql())?;
    let mut rows = statement.query([millis(now)])?;
    let mut lost = Vec::new();
    // The limit counts what is lost: workers that overrun their leases and show life must not hide the others.
    while lost.len() < limit
        && let Some(row) = rows.next()?
    {
        let lease_expires_at = instant(row, "lease_expires_at")?;
        if claim_lost_at(lease_expires_at, maybe_instant(row, "last_heartbeat")?) <= now {
            lost.push(ExpiredClaim {
                execution: read_execution(row)?,
                max_attempts: row.get("max_attempts")?,
            });
        }
    }
    Ok(lost)
}

fn lost_sql() -> String {
    format!(
        "SELECT {COLUMNS}, c.max_attempts, w.last_heartbeat
           FROM executions e
           JOIN cues c ON c.key = e.cue_key
           LEFT JOIN workers w ON w.user_key = e.user_key AND w.worker_id = e.claimed_by_worker
          WHERE e.lease_expires_at <= ?1
          ORDER BY e.lease_expires_at"
    )
}

const NEXT_LOST: &str = "
    SELECT e.lease_expires_at, w.last_heartbeat
      FROM executions e
      JOIN cues c ON c.key = e.cue_key
      LEFT JOIN workers w ON w.user_key = e.user_key AND w.worker_id = e.claimed_by_worker
     WHERE e.lease_expires_at IS NOT NULL
     ORDER BY e.lease_expires_at";

/// The earliest instant at which a claim is lost if its worker stays silent.
pub fn next_expiry(read: &ReadTx<'_>) -> Result<Option<Timestamp>> {
    let mut statement = read.prepare_cached(NEXT_LOST)?;
    let mut rows = statement.query([])?;
    let mut earliest: Option<Timestamp> = None;
    while let Some(row) = rows.next()? {
        let lease_expires_at = instant(row, "lease_expires_at")?;
        // No claim is lost before its lease is over: later leases cannot come first.
        if earliest.is_some_and(|earliest| earliest <= lease_expires_at) {
            break;
        }
        let lost_at = claim_lost_at(lease_expires_at, maybe_instant(row, "last_heartbeat")?);
        earliest = Some(earliest.map_or(lost_at, |earliest| earliest.min(lost_at)));
    }
    Ok(earliest)
}

/// Takes an execution from the worker that lost it: `pending` and ready for another one, or over as `failed`.
pub fn release(
    tx: &WriteTx<'_>,
    key: i64,
    status: ExecutionStatus,
    reason: &str,
    now: Timestamp,
) -> Result<bool> {
    let taken = tx
        .prepare_cached(
            "UPDATE executions
                SET status = ?2, queue_name = iif(?2 = 'pending', 'claim', NULL), lease_expires_at = NULL,
                    claimed_by_worker = iif(?2 = 'pending', NULL, claimed_by_worker),
                    claimed_at = iif(?2 = 'pending', NULL, claimed_at), error_message = ?3, updated_at = ?4
              WHERE key = ?1 AND status = 'delivering' AND lease_expires_at IS NOT NULL",
        )?
        .execute(params![key, status.as_str(), reason, millis(now)])?;
    tx.tally().waiting(QueueName::Claim, i64::from(taken == 1 && status == ExecutionStatus::Pending));
    tx.count(WriteEvent::LostClaim, u64::from(taken == 1));
    Ok(taken == 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::test_support::plan;

    fn filter(task: Option<&str>) -> ClaimFilter {
        ClaimFilter { task: task.map(str::to_owned), agent: None }
    }

    #[test]
    fn every_look_uses_its_index_and_none_sorts() {
        let by_task = "executions_to_claim_by_task (user_key=? AND task=?)";
        for (sql, index) in [
            (list_sql(&filter(None)).to_owned(), "executions_to_claim (user_key=?)"),
            (list_sql(&filter(Some("resize"))).to_owned(), by_task),
            (OLDEST.to_owned(), "executions_to_claim (user_key=?)"),
            (OLDEST_OF_TASK.to_owned(), by_task),
            (CLAIM.to_owned(), "INTEGER PRIMARY KEY (rowid=?)"),
            (lost_sql(), "executions_leased (lease_expires_at<?)"),
            (NEXT_LOST.to_owned(), "executions_leased (lease_expires_at>?)"),
        ] {
            let plan = plan(&sql);
            assert!(plan[0].starts_with("SEARCH ") && plan[0].ends_with(index), "{sql}: {plan:?}");
            assert!(plan.iter().all(|step| step.starts_with("SEARCH ")), "{sql}: {plan:?}");
        }
    }
}
