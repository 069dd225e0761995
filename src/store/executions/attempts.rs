//! Attempts: a row for each that another one followed, each claim that was lost, and each delivery that the end of the
//! program cut off. The latest attempt of an execution is in its own row, so that an execution that succeeds at once
//! writes none here.

use jiff::{SignedDuration, Timestamp};
use rusqlite::{OptionalExtension, Row, params};

use crate::domain::execution::ExecutionStatus;
use crate::domain::execution::attempt::{AttemptEnd, MAX_KEPT};
use crate::domain::execution::failure_cause::FailureCause;
use crate::domain::ids::ExecutionId;
use crate::domain::json::JsonText;
use crate::domain::time::saturating_add;
use crate::error::Result;
use crate::store::db::columns::{instant, maybe_instant, maybe_json, parse_maybe_word, parse_word};
use crate::store::{ReadTx, WriteTx};

/// An attempt of an execution.
#[derive(Debug, Clone, PartialEq)]
pub struct Attempt {
    /// Its number, from 1. An attempt that was cut off has the number of the one that repeated it.
    pub number: u32,
    pub started_at: Option<Timestamp>,
    /// `None` while it runs, after it was cut off, and in attempts of earlier versions.
    pub duration: Option<SignedDuration>,
    /// `None` while it runs.
    pub end: Option<AttemptEnd>,
    pub cause: Option<FailureCause>,
    pub http_status: Option<u16>,
    pub error_message: Option<String>,
    /// A JSON array of pairs.
    pub response_headers: Option<JsonText>,
    pub response_body: Option<String>,
    pub next_retry: Option<Timestamp>,
    pub worker_id: Option<String>,
}

impl Attempt {
    pub fn ended_at(&self) -> Option<Timestamp> {
        self.started_at.zip(self.duration).map(|(start, duration)| saturating_add(start, duration))
    }
}

// The row has just been changed, so its page is in the cache. After a lost claim `due_at` is no time of a retry: nobody
// knows when a worker claims the execution again.
const KEEP_LATEST: &str =
    "INSERT OR REPLACE INTO attempts (execution_key, attempt, is_counted, started_at, duration_ms, http_status, cause,
                                      error_message, response_headers, response_body, next_retry, worker_id)
     SELECT key, attempts, 1, coalesce(last_attempt_at, updated_at), duration_ms, http_status, cause, error_message,
            response_headers, response_body, iif(?2 IS NULL, due_at, NULL), ?2
       FROM executions WHERE key = ?1";

const DELETE_OLDEST: &str = "DELETE FROM attempts WHERE execution_key = ?1 AND attempt <= ?2";

// At most one row for each number of an attempt: of several cuts the latest.
const KEEP_CUT: &str = "INSERT OR REPLACE INTO attempts (execution_key, attempt, is_counted, started_at)
     SELECT key, attempts, 0, coalesce(last_attempt_at, updated_at) FROM executions
      WHERE status = 'delivering' AND transport = 'webhook'";

const FIND_LATEST: &str =
    "SELECT e.key, e.status, e.transport = 'worker' AS is_worker, e.attempts, e.last_attempt_at, e.duration_ms, e.cause,
            e.http_status, e.error_message, e.response_headers, e.response_body, e.due_at, e.claimed_by_worker
       FROM executions e JOIN cues c ON c.key = e.cue_key
      WHERE e.id = ?2 AND e.user_key = ?1";

const LIST: &str = "SELECT attempt, is_counted, started_at, duration_ms, http_status, cause, error_message,
        response_headers, response_body, next_retry, worker_id
   FROM attempts WHERE execution_key = ?1 ORDER BY attempt, is_counted";

/// Keeps the latest attempt of the execution in row `key`, which is number `number`: another one follows, or `worker_id`
/// has lost its claim. The row of the execution has its result.
pub fn keep_latest(tx: &WriteTx<'_>, key: i64, number: u32, worker_id: Option<&str>) -> Result<()> {
    tx.prepare_cached(KEEP_LATEST)?.execute(params![key, worker_id])?;
    if let Some(superseded) = number.checked_sub(MAX_KEPT).filter(|superseded| *superseded > 0) {
        tx.prepare_cached(DELETE_OLDEST)?.execute(params![key, superseded])?;
    }
    Ok(())
}

/// Keeps the start of the deliveries that the end of an earlier process cut off.
pub fn keep_cut(tx: &WriteTx<'_>) -> Result<()> {
    tx.prepare_cached(KEEP_CUT)?.execute([])?;
    Ok(())
}

/// The attempts of the user's execution `id`, oldest first; `None` if there is no such execution.
pub fn list(read: &ReadTx<'_>, user_key: i64, id: ExecutionId) -> Result<Option<Vec<Attempt>>> {
    let mut latest = read.prepare_cached(FIND_LATEST)?;
    let latest =
        latest.query_row(params![user_key, id.bytes()], |row| Ok((row.get("key")?, read_latest(row)?)));
    let Some((key, latest)) = latest.optional()? else { return Ok(None) };
    let key: i64 = key;
    let mut kept = read.prepare_cached(LIST)?;
    let attempts = kept.query_map([key], read_kept)?;
    let mut attempts: Vec<Attempt> = attempts.collect::<rusqlite::Result<_>>()?;
    // A cut attempt has a later number, and comes after it.
    let is_kept = |latest: &Attempt| {
        attempts.iter().any(|it| it.number >= latest.number && it.end != Some(AttemptEnd::Cut))
    };
    let latest = latest.filter(|latest| !is_kept(latest));
    attempts.extend(latest);
    Ok(Some(attempts))
}

fn read_kept(row: &Row<'_>) -> rusqlite::Result<Attempt> {
    let worker_id: Option<String> = row.get("worker_id")?;
    let is_counted: bool = row.get("is_counted")?;
    let end = match &worker_id {
        _ if !is_counted => AttemptEnd::Cut,
        Some(_) => AttemptEnd::ClaimLost,
        None => AttemptEnd::Retrying,
    };
    Ok(Attempt {
        number: row.get("attempt")?,
        started_at: Some(instant(row, "started_at")?),
        duration: duration(row)?,
        end: Some(end),
        cause: parse_maybe_word(row, "cause", FailureCause::parse)?,
        http_status: row.get("http_status")?,
        error_message: row.get("error_message")?,
        response_headers: maybe_json(row, "response_headers")?,
        response_body: row.get("response_body")?,
        next_retry: maybe_instant(row, "next_retry")?,
        worker_id,
    })
}

/// The latest attempt from the row of its execution; `None` if there was none.
fn read_latest(row: &Row<'_>) -> rusqlite::Result<Option<Attempt>> {
    let number: u32 = row.get("attempts")?;
    let status = parse_word(row, "status", ExecutionStatus::parse)?;
    let started_at = maybe_instant(row, "last_attempt_at")?;
    let worker_id = row.get("claimed_by_worker")?;
    if number == 0 {
        return Ok(None);
    }
    let end = match status {
        ExecutionStatus::Delivering => None,
        ExecutionStatus::Success => Some(AttemptEnd::Success),
        ExecutionStatus::Failed => Some(AttemptEnd::Failed),
        // Earlier versions kept no row of it.
        ExecutionStatus::Pending if row.get("is_worker")? => Some(AttemptEnd::ClaimLost),
        ExecutionStatus::Pending | ExecutionStatus::Retrying => Some(AttemptEnd::Retrying),
    };
    let latest = Attempt {
        number,
        started_at,
        duration: None,
        end,
        cause: None,
        http_status: None,
        error_message: None,
        response_headers: None,
        response_body: None,
        next_retry: None,
        worker_id,
    };
    // While an attempt runs, the row has the results of the one before.
    let Some(end) = end else { return Ok(Some(latest)) };
    Ok(Some(Attempt {
        duration: duration(row)?,
        cause: parse_maybe_word(row, "cause", FailureCause::parse)?,
        http_status: row.get("http_status")?,
        error_message: row.get("error_message")?,
        response_headers: maybe_json(row, "response_headers")?,
        response_body: row.get("response_body")?,
        next_retry: maybe_instant(row, "due_at")?.filter(|_| end == AttemptEnd::Retrying),
        ..latest
    }))
}

fn duration(row: &Row<'_>) -> rusqlite::Result<Option<SignedDuration>> {
    Ok(row.get::<_, Option<i64>>("duration_ms")?.map(SignedDuration::from_millis))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::test_support::plan;

    #[test]
    fn attempts_are_found_by_their_keys_and_never_sorted() {
        for (sql, steps) in [
            (KEEP_LATEST, &["SEARCH executions USING INTEGER PRIMARY KEY (rowid=?)"][..]),
            (DELETE_OLDEST, &["SEARCH attempts USING PRIMARY KEY (execution_key=? AND attempt<?)"]),
            (KEEP_CUT, &["SCAN executions USING INDEX executions_in_flight"]),
            (
                FIND_LATEST,
                &[
                    "SEARCH e USING INDEX sqlite_autoindex_executions_1 (id=?)",
                    "SEARCH c USING INTEGER PRIMARY KEY (rowid=?)",
                ],
            ),
            (LIST, &["SEARCH attempts USING PRIMARY KEY (execution_key=?)"]),
        ] {
            assert_eq!(plan(sql), steps, "{sql}");
        }
    }
}
