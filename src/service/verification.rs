//! Verification after a report: a user's verdict, its withdrawal, further evidence (contract §5.6, §5.7).

use jiff::Timestamp;

use crate::app::App;
use crate::domain::execution::evidence::Evidence;
use crate::domain::execution::outcome::Outcome;
use crate::domain::execution::verification::{
    Verdict, VerificationEvent, VerificationMode, after_event, no_outcome,
};
use crate::domain::ids::ExecutionId;
use crate::domain::notification::event::EventType;
use crate::service::events;
use crate::service::executions::find;
use crate::service::outcome::{RecordedOutcome, set_outcome_state};
use crate::service::plan_limits::within_storage;
use crate::store::Pending;
use crate::store::executions::ExecutionDetails;
use crate::store::executions::outcomes;

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

/// Applies `apply` to an outcome and stores the resulting state; stores nothing if the state machine refuses the event.
fn update(
    app: &App,
    user_key: i64,
    id: ExecutionId,
    apply: impl FnOnce(&mut Outcome, VerificationMode, Timestamp) -> VerificationEvent + Send + 'static,
) -> Pending<RecordedOutcome> {
    let (now, plans) = (app.clock.now(), app.config.plans.clone());
    app.store.write_for(user_key, move |tx| {
        let ExecutionDetails { execution, outcome, verification, .. } = find(tx, user_key, id)?;
        let (Some(mut outcome), Some(state)) = (outcome, execution.outcome_state) else {
            return Err(no_outcome().into());
        };
        let event = apply(&mut outcome, verification, now);
        let state = after_event(state, event)?;
        within_storage(tx, &plans, user_key, || outcomes::save(tx, execution.key, &outcome))?;
        let recorded = RecordedOutcome { outcome, state };
        set_outcome_state(tx, &execution, verification, &recorded, now)?;
        events::execution(tx, EventType::ExecutionVerified, user_key, execution.key, now);
        Ok(recorded)
    })
}
