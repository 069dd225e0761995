//! Reads the request of a claimed delivery. The claim itself reads none of it: a payload of megabytes would keep the
//! writer busy.

use jiff::Timestamp;
use rusqlite::{OptionalExtension, Row, params};

use crate::domain::account::user::ACCOUNT_DISABLED;
use crate::domain::execution::{ExecutionStatus, RetryPolicy};
use crate::domain::ids::ExecutionId;
use crate::domain::webhook::request::{AttemptRef, DeliverySpec};
use crate::error::Result;
use crate::store::ReadTx;
use crate::store::db::columns::{
    invalid_column, parse_callback, parse_retry_policy, parse_word, read_instant,
};
use crate::store::executions::delivery_queue::ClaimedDelivery;

/// A claimed attempt with its request.
pub struct LoadedDelivery {
    pub claimed: ClaimedDelivery,
    /// The request and the rules for a failure. An error if there is nothing to send, or if the rows cannot be read: that
    /// execution fails, and the others are sent.
    pub spec: std::result::Result<(DeliverySpec, RetryPolicy), String>,
}

/// The columns of [`read_spec`], after the one that tells whether the account is disabled.
macro_rules! spec_columns {
    () => {
        "disabled_at, cues.id, callback_url, callback_method, callback_headers, max_attempts, backoff_minutes,
         payloads.body, webhook_secret, previous_webhook_secret, previous_webhook_secret_expires_at,
         outcome_from_response"
    };
}

// Outer joins, so that a cue that was deleted since the claim is told from an execution that was.
// Compares the id as well, because SQLite reuses the row key of a deleted execution. `read_spec` reads the columns by
// position, because finding a column by name takes a search in every row.
const FIND: &str = concat!(
    "SELECT ",
    spec_columns!(),
    " FROM executions LEFT JOIN cues ON cues.key = executions.cue_key
           LEFT JOIN users ON users.key = executions.user_key
           LEFT JOIN payloads ON payloads.key = executions.payload_key
     WHERE executions.key = ?1 AND executions.id = ?2 AND attempts = ?3 AND executions.status = 'delivering'"
);

// The kept attempt first: after an attempt that was cut off, the row of the execution has the start of that one, which is
// not counted.
const SHOW: &str = concat!(
    "SELECT ",
    spec_columns!(),
    ", executions.key, executions.cue_key, executions.scheduled_for,
       executions.triggered_by = 'schedule', executions.attempts, executions.status, cues.updated_at,
       coalesce((SELECT started_at FROM attempts
                  WHERE execution_key = executions.key AND attempt = ?3 AND is_counted = 1),
                CASE WHEN ?3 = executions.attempts THEN executions.last_attempt_at END),
       (SELECT 1 FROM attempts
         WHERE execution_key = executions.key AND attempt = ?3 AND is_counted = 0) IS NOT NULL
     FROM executions JOIN cues ON cues.key = executions.cue_key
          JOIN users ON users.key = executions.user_key
          LEFT JOIN payloads ON payloads.key = executions.payload_key
     WHERE executions.id = ?2 AND executions.user_key = ?1 AND executions.transport = 'webhook'"
);

/// Reads the request of `claimed`.
pub fn load(read: &ReadTx<'_>, claimed: ClaimedDelivery) -> Result<LoadedDelivery> {
    let AttemptRef { key, id, attempt, .. } = claimed.attempt_ref;
    let mut find = read.prepare_cached(FIND)?;
    let spec = find
        .query_row(params![key, id.bytes(), attempt], |row| {
            Ok(match row.get::<_, Option<i64>>(0)? {
                None => read_spec(row).map_err(|error| error.to_string()),
                // Disabling an account fails its queued executions. This one was in flight then.
                Some(_) => Err(ACCOUNT_DISABLED.to_owned()),
            })
        })
        .optional()?;
    let spec = spec.unwrap_or_else(|| Err("the execution was deleted".to_owned()));
    Ok(LoadedDelivery { claimed, spec })
}

/// A delivery as its owner sees it.
pub struct ShownDelivery {
    pub attempt_ref: AttemptRef,
    pub spec: DeliverySpec,
    /// The number of attempts so far.
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
        let scheduled_for = read_instant(row.get(14)?)?;
        let started_at = row.get::<_, Option<i64>>(19)?.map(read_instant).transpose()?;
        let attempt_ref = AttemptRef {
            key: row.get(12)?,
            id,
            cue_key: row.get(13)?,
            user_key,
            destination: 0,
            attempt,
            scheduled_for,
            by_schedule: row.get(15)?,
            started_at: started_at.unwrap_or(scheduled_for),
        };
        Ok(ShownDelivery {
            attempt_ref,
            spec: read_spec(row)?.0,
            attempts: row.get(16)?,
            status: parse_word(row, "status", ExecutionStatus::parse)?,
            started_at,
            was_cut: row.get(20)?,
            cue_updated_at: read_instant(row.get(18)?)?,
        })
    });
    Ok(shown.optional()?)
}

fn read_spec(row: &Row<'_>) -> rusqlite::Result<(DeliverySpec, RetryPolicy)> {
    let url: Option<String> = row.get(2)?;
    let url = url.ok_or_else(|| invalid_column("the cue has no callback"))?;
    let expires_at: Option<Timestamp> = row.get::<_, Option<i64>>(10)?.map(read_instant).transpose()?;
    let spec = DeliverySpec {
        cue_id: row.get(1)?,
        callback: parse_callback(url, row.get_ref(3)?.as_str()?, row.get_ref(4)?.as_str()?, row.get(11)?)?,
        payload: row.get(7)?,
        secret: row.get(8)?,
        previous_webhook_secret: row.get(9)?,
        previous_webhook_secret_expires_at: expires_at,
    };
    Ok((spec, parse_retry_policy(row.get(5)?, row.get_ref(6)?.as_str()?)?))
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
