//! Records a delivery attempt that has ended, with the outcome that its response reports (contract §6.4, §6.10).

use crate::domain::execution::NextStep;
use crate::domain::execution::outcome::Outcome;
use crate::domain::notification::event::EventType;
use crate::domain::webhook::request::AttemptRef;
use crate::error::Result;
use crate::service::events;
use crate::service::finish::{AttemptTiming, Finish, FinishedExecution, count_retry, on_execution_finished};
use crate::service::fire::CueFirer;
use crate::service::outcome::{ReportedBy, record_outcome};
use crate::store::WriteTx;
use crate::store::executions::delivery_queue::AttemptRecord;
use crate::store::executions::{self, delivery_queue};

/// Records a delivery attempt and, if it was the last one, applies the consequences. Returns `false` and changes
/// nothing if the execution was deleted or is no longer in this attempt.
pub fn record_attempt(tx: &WriteTx<'_>, attempt: &AttemptRecord, firer: &CueFirer) -> Result<bool> {
    if !delivery_queue::record(tx, attempt, firer.now())? {
        return Ok(false);
    }
    let finish = match attempt.next {
        NextStep::Success => Finish::Succeeded,
        NextStep::Failed => Finish::Failed,
        NextStep::RetryAt(_) => {
            let AttemptRef { user_key, key, .. } = attempt.attempt_ref;
            count_retry(tx, user_key, firer.now());
            events::execution(tx, EventType::ExecutionRetrying, user_key, key, firer.now());
            return Ok(true);
        }
    };
    let attempt_ref = &attempt.attempt_ref;
    let timing = AttemptTiming { started_at: attempt_ref.started_at, took: attempt.duration };
    let finished = FinishedExecution {
        key: attempt_ref.key,
        user_key: attempt_ref.user_key,
        cue_key: attempt_ref.cue_key,
        scheduled_for: attempt_ref.scheduled_for,
        by_schedule: attempt_ref.by_schedule,
        finish,
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
