//! What comes after a report: a person's verdict, its withdrawal, further evidence (contract §5).

use jiff::Timestamp;

use crate::actions::executions::find;
use crate::app::App;
use crate::domain::execution::Execution;
use crate::domain::execution::evidence::Evidence;
use crate::domain::execution::outcome::Outcome;
use crate::domain::execution::verification::{
    OutcomeState, Verdict, VerificationEvent, VerificationMode, after_event, failure_reason, no_outcome,
};
use crate::domain::ids::ExecutionId;
use crate::domain::notification::alert::NewAlert;
use crate::error::Result;
use crate::store::executions::ExecutionDetails;
use crate::store::executions::outcomes;
use crate::store::notifications::alerts;
use crate::store::{Pending, WriteTx};

/// An outcome as it is recorded now.
#[derive(Debug, Clone, PartialEq)]
pub struct RecordedOutcome {
    /// What was reported, and what has been added since.
    pub outcome: Outcome,
    /// Where it stands.
    pub state: OutcomeState,
}

/// Records a person's verdict on the outcome of the user's execution `id`.
///
/// Refused with `execution_not_found`, and with `invalid_state` before there is an outcome and once there is a
/// decision.
pub fn verify(
    app: &App,
    user_key: i64,
    id: ExecutionId,
    valid: bool,
    reason: Option<String>,
) -> Pending<RecordedOutcome> {
    change(app, user_key, id, move |outcome, _, now| {
        outcome.verdict = Some(Verdict { valid, reason, verified_at: now });
        VerificationEvent::Verdict { valid }
    })
}

/// Opens the outcome of the user's execution `id` for a verdict; one that was given is withdrawn.
///
/// Refused with `execution_not_found`, and with `invalid_state` before there is an outcome.
pub fn make_pending(app: &App, user_key: i64, id: ExecutionId) -> Pending<RecordedOutcome> {
    change(app, user_key, id, |outcome, _, _| {
        outcome.verdict = None;
        VerificationEvent::Reopened
    })
}

/// Appends evidence to the outcome of the user's execution `id`, and lets the cue's mode weigh it.
///
/// Refused with `execution_not_found`, and with `invalid_state` before there is an outcome.
pub fn append_evidence(
    app: &App,
    user_key: i64,
    id: ExecutionId,
    more: Evidence,
) -> Pending<RecordedOutcome> {
    change(app, user_key, id, |outcome, mode, _| VerificationEvent::Evidence {
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
        let reason = failure_reason(mode, recorded.outcome.verdict.as_ref());
        alerts::raise(tx, execution.key, &NewAlert::VerificationFailed { reason }, now)?;
    }
    Ok(())
}

/// Lets `what` change an outcome, and stores what the event leads to; nothing when it is refused.
fn change(
    app: &App,
    user_key: i64,
    id: ExecutionId,
    what: impl FnOnce(&mut Outcome, VerificationMode, Timestamp) -> VerificationEvent + Send + 'static,
) -> Pending<RecordedOutcome> {
    let now = app.clock.now();
    app.store.write(move |tx| {
        let ExecutionDetails { execution, outcome, verification, .. } = find(tx, user_key, id)?;
        let (Some(mut outcome), Some(state)) = (outcome, execution.outcome_state) else {
            return Err(no_outcome().into());
        };
        let event = what(&mut outcome, verification, now);
        let state = after_event(state, event)?;
        outcomes::save(tx, execution.key, &outcome)?;
        let recorded = RecordedOutcome { outcome, state };
        set_outcome_state(tx, &execution, verification, &recorded, now)?;
        Ok(recorded)
    })
}
