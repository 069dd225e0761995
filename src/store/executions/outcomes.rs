//! Reported outcomes: at most one per execution, with the evidence and the verdict that verification adds.

use jiff::Timestamp;
use rusqlite::params;

use crate::domain::execution::ExecutionStatus;
use crate::domain::execution::evidence::Evidence;
use crate::domain::execution::outcome::{Outcome, OutcomeReport};
use crate::domain::execution::verification::{OutcomeState, Verdict};
use crate::domain::json::JsonText;
use crate::error::Result;
use crate::store::WriteTx;
use crate::store::db::columns::{FromRow, RowReader, millis};
use crate::store::db::counters::QueueName;

/// Inserts the outcome of an execution. Returns `false` if it has one already.
pub fn insert(tx: &WriteTx<'_>, execution_key: i64, outcome: &Outcome) -> Result<bool> {
    tx.changes(
        "INSERT INTO outcomes (execution_key, success, result, error, metadata, evidence, recorded_at)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)
             ON CONFLICT (execution_key) DO NOTHING",
        params![
            execution_key,
            outcome.report.success,
            outcome.report.result,
            outcome.report.error,
            outcome.report.metadata.as_ref().map(JsonText::as_str),
            outcome.report.evidence.fields().map(JsonText::as_str),
            millis(outcome.recorded_at),
        ],
    )
}

pub fn replace(tx: &WriteTx<'_>, execution_key: i64, outcome: &Outcome) -> Result<()> {
    tx.run("DELETE FROM outcomes WHERE execution_key = ?1", [execution_key])?;
    insert(tx, execution_key, outcome).map(drop)
}

/// Completes a worker execution with its outcome, in any state: removes it from the queue and ends its lease. A success
/// also sets `delivered_at`.
pub fn complete_execution(
    tx: &WriteTx<'_>,
    execution_key: i64,
    status: ExecutionStatus,
    outcome: &Outcome,
) -> Result<()> {
    // A worker whose claim has expired may still report, while the execution waits for another worker.
    let sql = "SELECT 1 FROM executions WHERE key = ?1 AND queue_name = 'claim'";
    let is_queued = tx.any(sql, [execution_key])?;
    tx.counters().add_queued(QueueName::Claim, -i64::from(is_queued));
    tx.run(
        "UPDATE executions
            SET status = ?2, queue_name = NULL, due_at = NULL, lease_expires_at = NULL, error_message = ?5,
                delivered_at = iif(?3, ?4, NULL), updated_at = ?4, duration_ms = max(?4 - claimed_at, 0)
          WHERE key = ?1",
        params![
            execution_key,
            status.as_str(),
            outcome.report.success,
            millis(outcome.recorded_at),
            outcome.report.error_message(),
        ],
    )
}

pub fn set_state(tx: &WriteTx<'_>, execution_key: i64, state: OutcomeState, now: Timestamp) -> Result<()> {
    tx.run(
        "UPDATE executions SET outcome_state = ?2, updated_at = ?3 WHERE key = ?1",
        params![execution_key, state.as_str(), millis(now)],
    )
}

/// Updates the parts of an outcome that may be added after its report: evidence and verdict.
pub fn save(tx: &WriteTx<'_>, execution_key: i64, outcome: &Outcome) -> Result<()> {
    let verdict = outcome.verdict.as_ref();
    tx.run("UPDATE outcomes SET evidence = ?2, valid = ?3, reason = ?4, verified_at = ?5 WHERE execution_key = ?1", params![
        execution_key,
        outcome.report.evidence.fields().map(JsonText::as_str),
        verdict.map(|verdict| verdict.valid),
        verdict.and_then(|verdict| verdict.reason.as_deref()),
        verdict.map(|verdict| millis(verdict.verified_at)),
    ])
}

impl FromRow for Outcome {
    const WIDTH: usize = 9;

    fn read(columns: &mut RowReader<'_, '_>) -> rusqlite::Result<Self> {
        let recorded_at = columns.get()?;
        let report = OutcomeReport {
            success: columns.get()?,
            result: columns.get()?,
            error: columns.get()?,
            metadata: columns.get()?,
            evidence: columns.get::<Option<JsonText>>()?.map(Evidence::from).unwrap_or_default(),
        };
        let verdict = match columns.get()? {
            Some(verified_at) => Some(Verdict { valid: columns.get()?, reason: columns.get()?, verified_at }),
            None => None,
        };
        Ok(Self { report, recorded_at, verdict })
    }
}
