//! Executions by request: workers claim them, extend the claim and report the outcome; users verify it, reopen it and add
//! evidence (contract §5.5, §5.6, §7).

use jiff::Timestamp;

use crate::app::App;
use crate::domain::api_error::{ErrorCode, Refusal};
use crate::domain::execution::evidence::Evidence;
use crate::domain::execution::outcome::{Outcome, OutcomeReport};
use crate::domain::execution::verification::{
    Verdict, VerificationEvent, VerificationMode, after_event, no_outcome,
};
use crate::domain::execution::{lease_from, may_claim, may_extend};
use crate::domain::ids::ExecutionId;
use crate::domain::notification::event::EventType;
use crate::error::{Error, Result};
use crate::service::events;
use crate::service::fire::CueFirer;
use crate::service::outcome::{RecordedOutcome, ReportedBy, record_outcome, set_outcome_state};
use crate::service::plan_limits::check_storage_quota;
use crate::store::db::hold;
use crate::store::executions::{self, ExecutionDetails, claims, outcomes};
use crate::store::{Pending, WriteTx};

/// `Retry-After` of claims on a server that is on hold, in seconds. A promotion is rare and takes up to 5 seconds to be
/// noticed; shorter would only add requests.
const HELD_RETRY_AFTER: u32 = 30;

/// An execution as the worker that claimed it receives it.
#[derive(Debug, Clone, PartialEq)]
pub struct ClaimedExecution {
    pub id: ExecutionId,
    pub cue_id: String,
    pub cue_name: String,
    pub scheduled_for: Timestamp,
    /// The number of this attempt, from 1.
    pub attempt: u32,
    pub cue_key: i64,
    /// The row of its payload, whose text is not read in the write.
    pub payload_key: Option<i64>,
}

/// Claims the user's execution `id` for a worker. Refused with `held`, `execution_not_found`, and `already_claimed`
/// unless the execution is waiting for a worker.
pub fn claim(app: &App, user_key: i64, id: ExecutionId, worker_id: String) -> Pending<ClaimedExecution> {
    let now = app.clock.now();
    app.store.write_for(user_key, move |tx| {
        refuse_if_held(tx, "hands out no work")?;
        claim_one(tx, user_key, id, &worker_id, now)
    })
}

/// Claims the user's oldest execution that is waiting for a worker, optionally only those with `task`. Refused with
/// `held`, and with `claim_failed` when there is none.
pub fn claim_next(
    app: &App,
    user_key: i64,
    task: Option<String>,
    worker_id: String,
) -> Pending<ClaimedExecution> {
    let now = app.clock.now();
    app.store.write_for(user_key, move |tx| {
        refuse_if_held(tx, "hands out no work")?;
        match claims::find_next(tx, user_key, task.as_deref())? {
            Some(id) => claim_one(tx, user_key, id, &worker_id, now),
            None => Err(Error::refused(ErrorCode::ClaimFailed, "No execution is waiting for a worker")),
        }
    })
}

/// Extends the claim on the user's execution `id` and returns when the lease expires. Refused with
/// `execution_not_found`, with `execution_not_claiming` unless it is claimed, and with `not_execution_owner` when
/// `worker` is given and is not the worker that claimed it.
pub fn extend(app: &App, user_key: i64, id: ExecutionId, worker: Option<String>) -> Pending<Timestamp> {
    let now = app.clock.now();
    app.store.write_for(user_key, move |tx| {
        let execution = find(tx, user_key, id)?.execution;
        let holder = execution.claimed_by_worker.as_deref();
        may_extend(execution.status, holder, worker.as_deref())?;
        let lease_expires_at = lease_from(now);
        if claims::renew(tx, execution.key, lease_expires_at, now)? {
            Ok(lease_expires_at)
        } else {
            Err(Error::fault(format!("the claimed execution {id} has no lease")))
        }
    })
}

/// Records the outcome of the user's execution `id`, which completes a worker execution. Only the first report counts:
/// a later one is refused, even from the worker that holds the claim. Refused with `metadata_too_large`,
/// `execution_not_found`, `outcome_already_reported` and `storage_limit_exceeded`. A report of success or failure alone
/// is never refused for the storage.
pub fn report(app: &App, user_key: i64, id: ExecutionId, report: OutcomeReport) -> Pending<RecordedOutcome> {
    let now = app.clock.now();
    let firer = CueFirer::new(app, now);
    let outcome = report.record(now);
    app.store.write_for(user_key, move |tx| {
        let outcome = outcome?;
        let details = find(tx, user_key, id)?;
        record_outcome(tx, &details, outcome, ReportedBy::Request, &firer)
    })
}

/// Refuses what a copy that is on hold does not do: the original may be handing out the same work.
pub(in crate::service) fn refuse_if_held(tx: &WriteTx<'_>, refused: &str) -> Result<()> {
    if !hold::is_held(tx)? {
        return Ok(());
    }
    let message = format!(
        "This server runs on a restored copy that is on hold and {refused} until the operator runs `cued promote`"
    );
    Err(Refusal { retry_after: Some(HELD_RETRY_AFTER), ..Refusal::new(ErrorCode::Held, message) }.into())
}

fn claim_one(
    tx: &WriteTx<'_>,
    user_key: i64,
    id: ExecutionId,
    worker_id: &str,
    now: Timestamp,
) -> Result<ClaimedExecution> {
    let ExecutionDetails { execution, cue_id, cue_name, .. } = find(tx, user_key, id)?;
    may_claim(execution.is_worker, execution.status)?;
    if !claims::claim(tx, execution.key, worker_id, lease_from(now), now)? {
        return Err(Error::refused(ErrorCode::AlreadyClaimed, "Execution is not due yet"));
    }
    events::execution(tx, EventType::ExecutionClaimed, user_key, execution.key, now);
    Ok(ClaimedExecution {
        id,
        cue_id,
        cue_name,
        scheduled_for: execution.scheduled_for,
        attempt: execution.attempts + 1,
        cue_key: execution.cue_key,
        payload_key: execution.payload_key,
    })
}

pub(super) fn find(tx: &WriteTx<'_>, user_key: i64, id: ExecutionId) -> Result<ExecutionDetails> {
    executions::find(tx, user_key, id)?.ok_or_else(|| not_found().into())
}

/// The refusal for an execution that does not exist or belongs to another user.
pub fn not_found() -> Refusal {
    Refusal::new(ErrorCode::ExecutionNotFound, "Execution not found")
}

/// Records the user's verdict on the outcome of execution `id`. Refused with `execution_not_found`, and with
/// `invalid_state` before an outcome is reported and after a verdict.
pub fn verify(
    app: &App,
    user_key: i64,
    id: ExecutionId,
    valid: bool,
    reason: Option<String>,
) -> Pending<RecordedOutcome> {
    update_outcome(app, user_key, id, move |outcome, _, now| {
        outcome.verdict = Some(Verdict { valid, reason, verified_at: now });
        VerificationEvent::Verdict { valid }
    })
}

/// Reopens the outcome of the user's execution `id` for a verdict and withdraws an earlier one. Refused with
/// `execution_not_found`, and with `invalid_state` before an outcome is reported.
pub fn reopen(app: &App, user_key: i64, id: ExecutionId) -> Pending<RecordedOutcome> {
    update_outcome(app, user_key, id, |outcome, _, _| {
        outcome.verdict = None;
        VerificationEvent::Reopened
    })
}

/// Appends evidence to the outcome of the user's execution `id` and evaluates it by the verification mode of the cue.
/// Refused with `execution_not_found`, and with `invalid_state` before an outcome is reported.
pub fn append_evidence(
    app: &App,
    user_key: i64,
    id: ExecutionId,
    more: Evidence,
) -> Pending<RecordedOutcome> {
    update_outcome(app, user_key, id, |outcome, mode, _| VerificationEvent::Evidence {
        proves: outcome.append(mode, more),
    })
}

/// Applies `apply` to an outcome and stores the resulting state; stores nothing if the state machine refuses the event.
fn update_outcome(
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
        check_storage_quota(tx, &plans, user_key, || outcomes::save(tx, execution.key, &outcome))?;
        let recorded = RecordedOutcome { outcome, state };
        set_outcome_state(tx, &execution, verification, &recorded, now)?;
        events::execution(tx, EventType::ExecutionVerified, user_key, execution.key, now);
        Ok(recorded)
    })
}
