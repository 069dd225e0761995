//! Reads the request of a claimed delivery. The claim itself reads none of it: a payload of megabytes would keep the
//! writer busy.

use jiff::Timestamp;
use rusqlite::{OptionalExtension, params};

use crate::domain::account::user::ACCOUNT_DISABLED;
use crate::domain::execution::{ExecutionStatus, RetryPolicy};
use crate::domain::ids::ExecutionId;
use crate::domain::webhook::request::{AttemptRef, DeliverySpec};
use crate::error::Result;
use crate::store::ReadTx;
use crate::store::db::columns::{RowReader, row};
use crate::store::executions::delivery_queue::ClaimedDelivery;

pub struct LoadedDelivery {
    pub claimed: ClaimedDelivery,
    /// The request and the rules for a failure. An error if there is nothing to send, or if the rows cannot be read: that
    /// execution fails, and the others are sent.
    pub spec: std::result::Result<(DeliverySpec, RetryPolicy), String>,
}

row!(spec_columns, "", DeliverySpec {
    callback = "callback_url, callback_method, callback_headers, outcome_from_response, cues.destination_hash",
    cue_id = "cues.id",
    payload = "payloads.body",
    secret = "webhook_secret",
    previous_webhook_secret,
    previous_webhook_secret_expires_at,
});

// Outer joins, so that a cue that was deleted since the claim is told from an execution that was.
// Compares the id as well, because SQLite reuses the row key of a deleted execution.
const FIND: &str = concat!(
    "SELECT disabled_at, ",
    spec_columns!(),
    ", max_attempts, backoff_minutes
      FROM executions LEFT JOIN cues ON cues.key = executions.cue_key
           LEFT JOIN users ON users.key = executions.user_key
           LEFT JOIN payloads ON payloads.key = executions.payload_key
     WHERE executions.key = ?1 AND executions.id = ?2 AND attempts = ?3 AND executions.status = 'delivering'"
);

// The kept attempt first: after an attempt that was cut off, the row of the execution has the start of that one, which is
// not counted.
const SHOW: &str = concat!(
    "SELECT ",
    spec_columns!(),
    ", executions.key, executions.cue_key, executions.scheduled_for, executions.triggered_by = 'schedule',
       executions.attempts, executions.status,
       coalesce((SELECT started_at FROM attempts
                  WHERE execution_key = executions.key AND attempt = ?3 AND is_counted = 1),
                CASE WHEN ?3 = executions.attempts THEN executions.last_attempt_at END),
       (SELECT 1 FROM attempts
         WHERE execution_key = executions.key AND attempt = ?3 AND is_counted = 0) IS NOT NULL, cues.updated_at
     FROM executions JOIN cues ON cues.key = executions.cue_key
          JOIN users ON users.key = executions.user_key
          LEFT JOIN payloads ON payloads.key = executions.payload_key
     WHERE executions.id = ?2 AND executions.user_key = ?1 AND executions.transport = 'webhook'"
);

pub fn load(read: &ReadTx<'_>, claimed: ClaimedDelivery) -> Result<LoadedDelivery> {
    let AttemptRef { key, id, attempt, .. } = claimed.attempt_ref;
    let mut find = read.prepare_cached(FIND)?;
    let spec = find.query_row(params![key, id.bytes(), attempt], |row| {
        let mut columns = RowReader::new(row);
        let disabled_at: Option<i64> = columns.get()?;
        Ok(match disabled_at {
            None => columns.get().map_err(|error| error.to_string()),
            // Disabling an account fails its queued executions. This one was in flight then.
            Some(_) => Err(ACCOUNT_DISABLED.to_owned()),
        })
    });
    let spec = spec.optional()?.unwrap_or_else(|| Err("the execution was deleted".to_owned()));
    Ok(LoadedDelivery { claimed, spec })
}

/// A delivery as its owner sees it.
pub struct ShownDelivery {
    pub attempt_ref: AttemptRef,
    pub spec: DeliverySpec,
    pub attempts: u32,
    pub status: ExecutionStatus,
    /// When the attempt began; `None` if it has not, or if that is not known.
    pub started_at: Option<Timestamp>,
    /// The end of the program cut a delivery of this attempt off.
    pub was_cut: bool,
    /// The latest change of the cue, or pause, or run on request.
    pub cue_updated_at: Timestamp,
}

/// Reads the request of attempt number `attempt` of the user's execution `id`, made or not. `None` if there is no such
/// execution, or if it is for workers.
pub fn show(
    read: &ReadTx<'_>,
    user_key: i64,
    id: ExecutionId,
    attempt: u32,
) -> Result<Option<ShownDelivery>> {
    let mut show = read.prepare_cached(SHOW)?;
    let shown = show.query_row(params![user_key, id.bytes(), attempt], |row| {
        let mut columns = RowReader::new(row);
        let spec = columns.get()?;
        let (key, cue_key, scheduled_for, by_schedule) = columns.get()?;
        let (attempts, status, started_at, was_cut, cue_updated_at): (_, _, Option<Timestamp>, _, _) =
            columns.get()?;
        let attempt_ref = AttemptRef {
            key,
            id,
            cue_key,
            user_key,
            destination: 0,
            attempt,
            scheduled_for,
            by_schedule,
            started_at: started_at.unwrap_or(scheduled_for),
        };
        Ok(ShownDelivery { attempt_ref, spec, attempts, status, started_at, was_cut, cue_updated_at })
    });
    Ok(shown.optional()?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::test_support::plan;

    #[test]
    fn a_request_is_read_by_keys_alone() {
        for step in plan(FIND) {
            assert!(step.starts_with("SEARCH") && step.contains("INTEGER PRIMARY KEY"), "{step}");
        }
        for step in plan(SHOW) {
            let by_key =
                step.contains("INTEGER PRIMARY KEY") || step.contains("(id=?)") || step.contains("attempts");
            assert!((step.starts_with("SEARCH") && by_key) || step.contains("SUBQUERY"), "{step}");
        }
    }
}
