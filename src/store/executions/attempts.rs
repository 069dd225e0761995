//! Attempts that another one followed, lost claims, and deliveries that the end of the program cut off. The latest
//! attempt is in the row of its execution, so that one that succeeds at once writes none here.

use jiff::{SignedDuration, Timestamp};

use crate::domain::execution::attempt::{AttemptEnd, FailureCause, MAX_KEPT};
use crate::domain::ids::ExecutionId;
use crate::domain::json::JsonText;
use crate::domain::row_keys::{ExecutionKey, UserKey};
use crate::domain::time::saturating_add;
use crate::error::Result;
use crate::store::db::columns::row;
use crate::store::{ReadTx, WriteTx};

row! {
#[derive(Debug, Clone, PartialEq)]
pub struct Attempt {
    /// Its number, from 1. An attempt that was cut off has the number of the one that repeated it.
    pub number: u32,
    pub started_at: Option<Timestamp>,
    /// `None` while it runs.
    pub end: Option<AttemptEnd>,
    pub worker_id: Option<String>,
    pub next_retry: Option<Timestamp>,
    /// `None` while it runs, after it was cut off, and in attempts of earlier versions.
    pub duration: Option<SignedDuration>,
    pub cause: Option<FailureCause>,
    pub http_status: Option<u16>,
    pub error_message: Option<String>,
    pub response_headers: Option<JsonText>,
    pub response_body: Option<String>,
} }

impl Attempt {
    pub fn ended_at(&self) -> Option<Timestamp> {
        self.started_at.zip(self.duration).map(|(start, duration)| saturating_add(start, duration))
    }
}

// The page is in the cache. After a lost claim `due_at` is no time of a retry.
const KEEP_LATEST: &str =
    "INSERT OR REPLACE INTO attempts (execution_key, attempt, is_counted, started_at, duration_ms, http_status, cause,
                                      error_message, response_headers, response_body, next_retry, worker_id)
     SELECT key, attempts, 1, coalesce(last_attempt_at, updated_at), duration_ms, http_status, cause, error_message,
            response_headers, response_body, iif(?2 IS NULL, due_at, NULL), ?2
       FROM executions WHERE key = ?1";

const DELETE_OLDEST: &str = "DELETE FROM attempts WHERE execution_key = ?1 AND attempt <= ?2";

// At most one row for each number of an attempt: of several cuts the latest.
const KEEP_CUT: &str =
    "INSERT OR REPLACE INTO attempts (execution_key, attempt, is_counted, started_at)
     SELECT key, attempts, 0, coalesce(last_attempt_at, updated_at) FROM executions
      WHERE status = 'delivering' AND transport = 'webhook'";

// While an attempt runs, the row has the results of the one before.
const FIND_LATEST: &str =
    "SELECT e.key, e.attempts, e.last_attempt_at,
            CASE WHEN e.status = 'pending' AND e.transport = 'worker' THEN 'claim_lost'
                 WHEN e.status = 'pending' THEN 'retrying' WHEN e.status <> 'delivering' THEN e.status END,
            e.claimed_by_worker,
            iif(e.status = 'retrying' OR e.status = 'pending' AND e.transport <> 'worker', e.due_at, NULL),
            r.duration_ms, r.cause, r.http_status, r.error_message, r.response_headers, r.response_body
       FROM executions e JOIN cues c ON c.key = e.cue_key
            LEFT JOIN executions r ON r.key = e.key AND e.status <> 'delivering'
      WHERE e.id = ?2 AND e.user_key = ?1";

const LIST: &str = "SELECT attempt, started_at,
        CASE WHEN NOT is_counted THEN 'cut' WHEN worker_id IS NULL THEN 'retrying' ELSE 'claim_lost' END,
        worker_id, next_retry, duration_ms, cause, http_status, error_message, response_headers, response_body
   FROM attempts WHERE execution_key = ?1 ORDER BY attempt, is_counted";

/// The row of the execution has the result of attempt `number`; `worker_id` has lost its claim, if given.
pub fn keep_latest(
    tx: &WriteTx<'_>,
    key: ExecutionKey,
    number: u32,
    worker_id: Option<&str>,
) -> Result<()> {
    tx.run(KEEP_LATEST, (key, worker_id))?;
    if let Some(superseded) = number.checked_sub(MAX_KEPT).filter(|superseded| *superseded > 0) {
        tx.run(DELETE_OLDEST, (key, superseded))?;
    }
    Ok(())
}

pub fn keep_cut(tx: &WriteTx<'_>) -> Result<()> {
    tx.run(KEEP_CUT, ())
}

pub fn list(read: &ReadTx<'_>, user_key: UserKey, id: ExecutionId) -> Result<Option<Vec<Attempt>>> {
    let found = read.find(FIND_LATEST, (user_key, id))?;
    let Some((key, latest)): Option<(ExecutionKey, Attempt)> = found else { return Ok(None) };
    let mut attempts: Vec<Attempt> = read.all(LIST, [key])?;
    // A cut attempt has a later number, and comes after it.
    let is_kept =
        attempts.iter().any(|it| it.number >= latest.number && it.end != Some(AttemptEnd::Cut));
    if latest.number > 0 && !is_kept {
        attempts.push(latest);
    }
    Ok(Some(attempts))
}

#[cfg(test)]
crate::store::test_support::plan_test! { attempts_are_found_by_their_keys_and_never_sorted:
    KEEP_LATEST => "SEARCH executions USING INTEGER PRIMARY KEY (rowid=?)",
    DELETE_OLDEST => "SEARCH attempts USING PRIMARY KEY (execution_key=? AND attempt<?)",
    KEEP_CUT => "SCAN executions USING INDEX executions_in_flight",
    FIND_LATEST => "SEARCH e USING INDEX sqlite_autoindex_executions_1 (id=?)",
    FIND_LATEST => "SEARCH c USING INTEGER PRIMARY KEY (rowid=?)",
    FIND_LATEST => "SEARCH r USING INTEGER PRIMARY KEY (rowid=?) LEFT-JOIN",
    LIST => "SEARCH attempts USING PRIMARY KEY (execution_key=?)",
}
