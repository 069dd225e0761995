//! Reported outcomes: at most one per execution, with the evidence and the verdict that verification adds.

use jiff::Timestamp;
use rusqlite::{Row, params};

use crate::domain::execution::ExecutionStatus;
use crate::domain::execution::evidence::Evidence;
use crate::domain::execution::outcome::{Outcome, OutcomeReport};
use crate::domain::execution::verification::{OutcomeState, Verdict};
use crate::domain::json::JsonText;
use crate::error::Result;
use crate::store::WriteTx;
use crate::store::db::columns::{instant, maybe_instant, maybe_json, millis};
use crate::store::db::counters::QueueName;

/// Inserts the outcome of an execution. Returns `false` if it has one already.
pub fn insert(tx: &WriteTx<'_>, execution_key: i64, outcome: &Outcome) -> Result<bool> {
    let stored = tx
        .prepare_cached(
            "INSERT INTO outcomes (execution_key, success, result, error, metadata, evidence, recorded_at)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)
             ON CONFLICT (execution_key) DO NOTHING",
        )?
        .execute(params![
            execution_key,
            outcome.report.success,
            outcome.report.result,
            outcome.report.error,
            outcome.report.metadata.as_ref().map(JsonText::as_str),
            outcome.report.evidence.fields().map(JsonText::as_str),
            millis(outcome.recorded_at),
        ])?;
    Ok(stored == 1)
}

/// Replaces the outcome of an execution.
pub fn replace(tx: &WriteTx<'_>, execution_key: i64, outcome: &Outcome) -> Result<()> {
    tx.prepare_cached("DELETE FROM outcomes WHERE execution_key = ?1")?.execute([execution_key])?;
    insert(tx, execution_key, outcome).map(|_| ())
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
    let is_queued = tx
        .prepare_cached("SELECT 1 FROM executions WHERE key = ?1 AND queue_name = 'claim'")?
        .exists([execution_key])?;
    tx.counters().add_queued(QueueName::Claim, -i64::from(is_queued));
    tx.prepare_cached(
        "UPDATE executions
            SET status = ?2, queue_name = NULL, due_at = NULL, lease_expires_at = NULL, error_message = ?5,
                delivered_at = iif(?3, ?4, NULL), updated_at = ?4, duration_ms = max(?4 - claimed_at, 0)
          WHERE key = ?1",
    )?
    .execute(params![
        execution_key,
        status.as_str(),
        outcome.report.success,
        millis(outcome.recorded_at),
        outcome.report.error_message(),
    ])?;
    Ok(())
}

/// Sets the state of an outcome on the row of its execution.
pub fn set_state(tx: &WriteTx<'_>, execution_key: i64, state: OutcomeState, now: Timestamp) -> Result<()> {
    tx.prepare_cached("UPDATE executions SET outcome_state = ?2, updated_at = ?3 WHERE key = ?1")?
        .execute(params![execution_key, state.as_str(), millis(now)])?;
    Ok(())
}

/// Updates the parts of an outcome that may be added after its report: evidence and verdict.
pub fn save(tx: &WriteTx<'_>, execution_key: i64, outcome: &Outcome) -> Result<()> {
    let verdict = outcome.verdict.as_ref();
    tx.prepare_cached(
        "UPDATE outcomes SET evidence = ?2, valid = ?3, reason = ?4, verified_at = ?5 WHERE execution_key = ?1",
    )?
    .execute(params![
        execution_key,
        outcome.report.evidence.fields().map(JsonText::as_str),
        verdict.map(|verdict| verdict.valid),
        verdict.and_then(|verdict| verdict.reason.as_deref()),
        verdict.map(|verdict| millis(verdict.verified_at)),
    ])?;
    Ok(())
}

/// Reads an outcome from a row; `None` if `recorded_at` is null.
pub fn read_outcome(row: &Row<'_>) -> rusqlite::Result<Option<Outcome>> {
    if row.get::<_, Option<i64>>("recorded_at")?.is_none() {
        return Ok(None);
    }
    let report = OutcomeReport {
        success: row.get("success")?,
        result: row.get("result")?,
        error: row.get("error")?,
        metadata: maybe_json(row, "metadata")?,
        evidence: maybe_json(row, "evidence")?.map(Evidence::from).unwrap_or_default(),
    };
    Ok(Some(Outcome { report, recorded_at: instant(row, "recorded_at")?, verdict: read_verdict(row)? }))
}

fn read_verdict(row: &Row<'_>) -> rusqlite::Result<Option<Verdict>> {
    let Some(verified_at) = maybe_instant(row, "verified_at")? else { return Ok(None) };
    Ok(Some(Verdict { valid: row.get("valid")?, reason: row.get("reason")?, verified_at }))
}
