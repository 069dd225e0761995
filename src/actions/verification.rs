//! Verification after a report: a user's verdict, its withdrawal, further evidence (contract §5).

use jiff::Timestamp;

use crate::actions::executions::find;
use crate::app::App;
use crate::domain::execution::Execution;
use crate::domain::execution::evidence::Evidence;
use crate::domain::execution::outcome::Outcome;
use crate::domain::execution::verification::{
    OutcomeState, Verdict, VerificationEvent, VerificationMode, after, unreported, why_failed,
};
use crate::domain::ids::ExecutionId;
use crate::domain::notification::alert::NewAlert;
use crate::error::Result;
use crate::store::executions::ExecutionDetails;
use crate::store::executions::outcomes;
use crate::store::notifications::alerts;
use crate::store::{Pending, WriteTx};

/// A stored outcome and its verification state.
#[derive(Debug, Clone, PartialEq)]
pub struct RecordedOutcome {
    /// The report, with evidence added later.
    pub outcome: Outcome,
    pub state: OutcomeState,
}

/// Records the user's verdict on the outcome of execution `id`.
///
/// Refused with `execution_not_found`, and with `invalid_state` before an outcome is reported and after a verdict.
pub fn verify(
    app: &App,
    user_key: i64,
    id: ExecutionId,
    valid: bool,
    reason: Option<String>,
) -> Pending<RecordedOutcome> {
    update(app, user_key, id, move |outcome, _, now| {
        outcome.verdict = Some(Verdict { valid, reason, verified_at: now });
        VerificationEvent::Verdict { valid }
    })
}

/// Reopens the outcome of the user's execution `id` for a verdict and withdraws an earlier one.
///
/// Refused with `execution_not_found`, and with `invalid_state` before an outcome is reported.
pub fn reopen(app: &App, user_key: i64, id: ExecutionId) -> Pending<RecordedOutcome> {
    update(app, user_key, id, |outcome, _, _| {
        outcome.verdict = None;
        VerificationEvent::Reopened
    })
}

/// Appends evidence to the outcome of the user's execution `id` and evaluates it by the verification mode of the cue.
///
/// Refused with `execution_not_found`, and with `invalid_state` before an outcome is reported.
pub fn append_evidence(
    app: &App,
    user_key: i64,
    id: ExecutionId,
    more: Evidence,
) -> Pending<RecordedOutcome> {
    update(app, user_key, id, |outcome, mode, _| VerificationEvent::Evidence {
        proves: outcome.append(mode, more),
    })
}

/// Puts the outcome of `execution`, which is given as it was before, into `state`. Every report and all that comes
/// after one passes here, so that what follows a verification that fails has one place to be set off at.
pub(super) fn set_outcome_state(
    tx: &WriteTx<'_>,
    execution: &Execution,
    mode: VerificationMode,
    recorded: &RecordedOutcome,
    now: Timestamp,
) -> Result<()> {
    outcomes::set_state(tx, execution.key, recorded.state, now)?;
    let failed = OutcomeState::VerificationFailed;
    if recorded.state == failed && execution.outcome_state != Some(failed) {
        let reason = why_failed(mode, recorded.outcome.verdict.as_ref());
        alerts::raise(tx, execution.key, &NewAlert::VerificationFailed { reason }, now)?;
    }
    Ok(())
}

/// Applies `apply` to an outcome and stores the resulting state; stores nothing if the state machine refuses the event.
fn update(
    app: &App,
    user_key: i64,
    id: ExecutionId,
    apply: impl FnOnce(&mut Outcome, VerificationMode, Timestamp) -> VerificationEvent + Send + 'static,
) -> Pending<RecordedOutcome> {
    let now = app.clock.now();
    app.store.write(move |tx| {
        let ExecutionDetails { execution, outcome, verification, .. } = find(tx, user_key, id)?;
        let (Some(mut outcome), Some(state)) = (outcome, execution.outcome_state) else {
            return Err(unreported().into());
        };
        let event = apply(&mut outcome, verification, now);
        let state = after(state, event)?;
        outcomes::save(tx, execution.key, &outcome)?;
        let recorded = RecordedOutcome { outcome, state };
        set_outcome_state(tx, &execution, verification, &recorded, now)?;
        Ok(recorded)
    })
}
