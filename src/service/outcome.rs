//! Records what an execution reports: a delivery attempt that has ended (contract §6.4), the outcome of its response or
//! of a worker (§5.5, §6.10), its verification state, and an alert when verification fails (§5.7).

use jiff::Timestamp;

use crate::domain::api_error::{ErrorCode, Refusal};
use crate::domain::execution::outcome::Outcome;
use crate::domain::execution::verification::{OutcomeState, VerificationMode, after_report, failure_reason};
use crate::domain::execution::{Execution, NextStep, after_outcome};
use crate::domain::notification::alert::NewAlert;
use crate::domain::notification::event::EventType;
use crate::domain::webhook::request::AttemptRef;
use crate::error::Result;
use crate::service::finish::{AttemptTiming, FinishedExecution, count_retry, on_execution_finished};
use crate::service::fire::CueFirer;
use crate::service::plan_limits::storage_refusal;
use crate::service::{alerts, events};
use crate::store::WriteTx;
use crate::store::accounts::{usage, users};
use crate::store::executions::delivery_queue::{self, AttemptRecord};
use crate::store::executions::{self, ExecutionDetails, outcomes};

#[derive(Debug, Clone, PartialEq)]
pub struct RecordedOutcome {
    /// The report, with evidence and verdict added since.
    pub outcome: Outcome,
    pub state: OutcomeState,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReportedBy {
    /// A request of its own. It is refused if its texts exceed the storage of the plan.
    Request,
    /// The response to a delivery, which cannot be refused any more: without room for its texts, success or failure alone
    /// is recorded.
    Response,
}

/// Records the outcome of an execution, which completes a worker execution. Only the first report counts.
/// Errors: `outcome_already_reported`, and `storage_limit_exceeded` for a request.
pub fn record_outcome(
    tx: &WriteTx<'_>,
    details: &ExecutionDetails,
    mut outcome: Outcome,
    by: ReportedBy,
    firer: &CueFirer,
) -> Result<RecordedOutcome> {
    let ExecutionDetails { execution, verification, .. } = details;
    let (key, user_key, now) = (execution.key, execution.user_key, firer.now());
    let (before, ..) = users::stored_bytes(tx, user_key)?;
    if !outcomes::insert(tx, key, &outcome)? {
        let message = "An outcome has already been reported";
        return Err(Refusal::new(ErrorCode::OutcomeAlreadyReported, message).into());
    }
    if let Some(refusal) = storage_refusal(tx, firer.plans(), user_key, before)? {
        match by {
            ReportedBy::Request => return Err(refusal.into()),
            ReportedBy::Response => {
                outcome.report = outcome.report.without_texts();
                outcomes::replace(tx, key, &outcome)?;
            }
        }
    }
    let success = outcome.report.success;
    usage::record_outcome(tx, user_key, success, now)?;
    let status = after_outcome(execution.is_worker, execution.status, success);
    if execution.is_worker {
        outcomes::complete_execution(tx, key, status, &outcome)?;
    }
    // A report after the claim expired for good must not count as a second failure.
    if status != execution.status {
        on_execution_finished(tx, &FinishedExecution::new(execution, success, now), firer)?;
    }
    let state = after_report(*verification, success, &outcome.report.evidence);
    let recorded = RecordedOutcome { outcome, state };
    set_outcome_state(tx, execution, *verification, &recorded, now)?;
    events::execution(tx, EventType::ExecutionOutcome, user_key, key, now);
    Ok(recorded)
}

/// Sets the verification state of the outcome of `execution`, which holds the state before this change. Every report
/// and every later change to one goes through this function, so the alert is raised in one place.
pub fn set_outcome_state(
    tx: &WriteTx<'_>,
    execution: &Execution,
    mode: VerificationMode,
    recorded: &RecordedOutcome,
    now: Timestamp,
) -> Result<()> {
    outcomes::set_state(tx, execution.key, recorded.state, now)?;
    let failed = OutcomeState::VerificationFailed;
    if recorded.state == failed && execution.outcome_state != Some(failed) {
        let reason = failure_reason(mode, recorded.outcome.verdict.as_ref());
        alerts::raise(tx, execution.key, &NewAlert::VerificationFailed { reason }, now)?;
    }
    Ok(())
}

/// Records a delivery attempt and, if it was the last one, applies the consequences. Returns `false` and changes
/// nothing if the execution was deleted or is no longer in this attempt.
pub fn record_attempt(tx: &WriteTx<'_>, attempt: &AttemptRecord, firer: &CueFirer) -> Result<bool> {
    if !delivery_queue::record(tx, attempt, firer.now())? {
        return Ok(false);
    }
    if let NextStep::RetryAt(_) = attempt.next {
        let AttemptRef { user_key, key, .. } = attempt.attempt_ref;
        count_retry(tx, user_key, firer.now());
        events::execution(tx, EventType::ExecutionRetrying, user_key, key, firer.now());
        return Ok(true);
    }
    let attempt_ref = &attempt.attempt_ref;
    let timing = AttemptTiming { started_at: attempt_ref.started_at, took: attempt.duration };
    let finished = FinishedExecution {
        key: attempt_ref.key,
        user_key: attempt_ref.user_key,
        cue_key: attempt_ref.cue_key,
        scheduled_for: attempt_ref.scheduled_for,
        by_schedule: attempt_ref.by_schedule,
        success: attempt.next == NextStep::Success,
        timing: Some(timing),
        failed_before: None,
    };
    on_execution_finished(tx, &finished, firer)?;
    if let Some(outcome) = &attempt.outcome {
        take_outcome(tx, attempt_ref, outcome, firer)?;
    }
    Ok(true)
}

/// Records the outcome that a response reports, unless one was reported during the delivery.
fn take_outcome(
    tx: &WriteTx<'_>,
    attempt_ref: &AttemptRef,
    outcome: &Outcome,
    firer: &CueFirer,
) -> Result<()> {
    let details = executions::find(tx, attempt_ref.user_key, attempt_ref.id)?;
    if let Some(details) = details.filter(|details| details.outcome.is_none()) {
        let outcome = Outcome { recorded_at: firer.now(), ..outcome.clone() };
        record_outcome(tx, &details, outcome, ReportedBy::Response, firer)?;
    }
    Ok(())
}
