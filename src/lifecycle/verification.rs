//! Sets the verification state of an outcome, and raises an alert when verification fails (contract §5.7).

use jiff::Timestamp;

use crate::domain::execution::Execution;
use crate::domain::execution::outcome::Outcome;
use crate::domain::execution::verification::{OutcomeState, VerificationMode, failure_reason};
use crate::domain::notification::alert::NewAlert;
use crate::error::Result;
use crate::lifecycle::alerts;
use crate::store::WriteTx;
use crate::store::executions::outcomes;

/// An outcome with its verification state.
#[derive(Debug, Clone, PartialEq)]
pub struct RecordedOutcome {
    /// The report, with evidence and verdict added since.
    pub outcome: Outcome,
    pub state: OutcomeState,
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
