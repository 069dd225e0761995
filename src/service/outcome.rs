//! Records the outcome of an execution, sets its verification state, and raises an alert when verification fails
//! (contract §5.5, §5.7).

use jiff::Timestamp;

use crate::domain::api_error::{ErrorCode, Refusal};
use crate::domain::execution::outcome::Outcome;
use crate::domain::execution::verification::{OutcomeState, VerificationMode, after_report, failure_reason};
use crate::domain::execution::{Execution, after_outcome};
use crate::domain::notification::alert::NewAlert;
use crate::domain::notification::event::EventType;
use crate::error::Result;
use crate::service::alerts;
use crate::service::events;
use crate::service::finish::{FinishedExecution, on_execution_finished};
use crate::service::fire::CueFirer;
use crate::service::plan_limits::above_storage;
use crate::store::WriteTx;
use crate::store::accounts::{usage, users};
use crate::store::executions::ExecutionDetails;
use crate::store::executions::outcomes;

/// An outcome with its verification state.
#[derive(Debug, Clone, PartialEq)]
pub struct RecordedOutcome {
    /// The report, with evidence and verdict added since.
    pub outcome: Outcome,
    pub state: OutcomeState,
}

/// The way of a report to the server.
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
    if let Some(refusal) = above_storage(tx, firer.plans(), user_key, before)? {
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
