//! The verification state of an outcome, and the alert when verification fails (contract §5).

use jiff::Timestamp;

use crate::domain::execution::Execution;
use crate::domain::execution::outcome::Outcome;
use crate::domain::execution::verification::{OutcomeState, VerificationMode, failure_reason};
use crate::domain::notification::alert::NewAlert;
use crate::error::Result;
use crate::lifecycle::alerts;
use crate::store::WriteTx;
use crate::store::executions::outcomes;

/// An outcome as it is recorded now.
#[derive(Debug, Clone, PartialEq)]
pub struct RecordedOutcome {
    /// What was reported, and what has been added since.
    pub outcome: Outcome,
    /// Its verification state.
    pub state: OutcomeState,
}

/// Stores the verification state of the outcome of `execution`, which is given as it was before. Every report and every
/// later change to one passes here, so a verification that fails raises its alert in one place.
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
