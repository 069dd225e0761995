//! The data of live events about executions and cues, read in the write that changes them (contract §8.13).

use jiff::Timestamp;
use rusqlite::{OptionalExtension, Row, params};

use crate::domain::cue::CueStatus;
use crate::domain::execution::verification::OutcomeState;
use crate::domain::execution::{ExecutionStatus, Trigger};
use crate::domain::ids::ExecutionId;
use crate::domain::notification::event::{CueEvent, ExecutionEvent, message};
use crate::domain::time::rfc3339;
use crate::error::Result;
use crate::store::ReadTx;
use crate::store::db::columns::{instant, maybe_instant, millis, parse_maybe_word, parse_word};

const EXECUTION: &str =
    "SELECT e.id, c.id AS cue_id, c.name AS cue_name, e.status, e.triggered_by, e.scheduled_for, e.attempts,
            c.max_attempts, e.claimed_by_worker, e.outcome_state, e.cause, e.http_status, e.error_message,
            e.duration_ms, e.started_at, iif(e.status = 'retrying', e.due_at, NULL) AS next_retry
       FROM executions e JOIN cues c ON c.key = e.cue_key
      WHERE e.key = ?1";

const USER_OF_CUE: &str = "SELECT user_key FROM cues WHERE key = ?1";

const CUE: &str = "SELECT id, name, status, next_run FROM cues WHERE key = ?1";

const NAME: &str = "SELECT name FROM cues WHERE id = ?2 AND user_key = ?1";

const LAST_HEARTBEAT: &str = "SELECT last_heartbeat FROM workers WHERE user_key = ?1 AND worker_id = ?2";

/// The execution in row `key` as its events show it at `at`; `None` if its cue has been deleted.
pub fn execution(read: &ReadTx<'_>, key: i64, at: Timestamp) -> Result<Option<ExecutionEvent>> {
    let found = read.prepare_cached(EXECUTION)?.query_row([key], |row| read_execution(row, at));
    Ok(found.optional()?)
}

fn read_execution(row: &Row<'_>, at: Timestamp) -> rusqlite::Result<ExecutionEvent> {
    let scheduled_for = instant(row, "scheduled_for")?;
    let started_at = maybe_instant(row, "started_at")?;
    let error: Option<String> = row.get("error_message")?;
    Ok(ExecutionEvent {
        execution_id: ExecutionId::from_bytes(row.get("id")?).to_string(),
        cue_id: row.get("cue_id")?,
        cue_name: row.get("cue_name")?,
        status: parse_word(row, "status", ExecutionStatus::parse)?.as_str(),
        triggered_by: parse_word(row, "triggered_by", Trigger::parse)?.as_str(),
        scheduled_for: rfc3339(scheduled_for),
        attempt: row.get("attempts")?,
        max_attempts: row.get("max_attempts")?,
        worker_id: row.get("claimed_by_worker")?,
        outcome_state: parse_maybe_word(row, "outcome_state", OutcomeState::parse)?.map(OutcomeState::as_str),
        cause: row.get("cause")?,
        http_status: row.get("http_status")?,
        error_message: error.as_deref().map(message),
        duration_ms: row.get("duration_ms")?,
        late_ms: started_at.map(|started_at| millis(started_at).saturating_sub(millis(scheduled_for))),
        next_retry: maybe_instant(row, "next_retry")?.map(rfc3339),
        at: rfc3339(at),
    })
}

/// The cue in row `key` as its events show it at `at`.
pub fn cue(read: &ReadTx<'_>, key: i64, at: Timestamp) -> Result<Option<CueEvent>> {
    let found = read.prepare_cached(CUE)?.query_row([key], |row| {
        Ok(CueEvent {
            cue_id: row.get("id")?,
            cue_name: row.get("name")?,
            status: parse_word(row, "status", CueStatus::parse)?.as_str(),
            next_run: maybe_instant(row, "next_run")?.map(rfc3339),
            at: rfc3339(at),
        })
    });
    Ok(found.optional()?)
}

/// The owner of the cue in row `key`.
pub fn user_of_cue(read: &ReadTx<'_>, key: i64) -> Result<Option<i64>> {
    Ok(read.prepare_cached(USER_OF_CUE)?.query_row([key], |row| row.get(0)).optional()?)
}

/// The name of the user's cue with this id.
pub fn cue_name(read: &ReadTx<'_>, user_key: i64, id: &str) -> Result<Option<String>> {
    Ok(read.prepare_cached(NAME)?.query_row(params![user_key, id], |row| row.get(0)).optional()?)
}

/// The last heartbeat of the user's worker; `None` if it is not known.
pub fn last_heartbeat(read: &ReadTx<'_>, user_key: i64, worker_id: &str) -> Result<Option<Timestamp>> {
    let mut find = read.prepare_cached(LAST_HEARTBEAT)?;
    let found = find.query_row(params![user_key, worker_id], |row| instant(row, "last_heartbeat"));
    Ok(found.optional()?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::test_support::plan;

    #[test]
    fn the_data_of_an_event_is_read_by_key() {
        for sql in [EXECUTION, USER_OF_CUE, CUE, NAME, LAST_HEARTBEAT] {
            let plan = plan(sql);
            assert!(plan.iter().all(|step| step.starts_with("SEARCH ")), "{sql}: {plan:?}");
        }
    }
}
