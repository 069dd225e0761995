//! Executions by request: claims, outcomes, verification (contract §5.5, §5.6, §7).

use jiff::Timestamp;

use crate::app::App;
use crate::domain::api_error::{ErrorCode, Refusal};
use crate::domain::execution::outcome::{
    Evidence, Outcome, OutcomeReport, Verdict, VerificationEvent, VerificationMode, after_event,
    no_outcome,
};
use crate::domain::execution::{lease_from, may_claim, may_extend};
use crate::domain::ids::ExecutionId;
use crate::domain::notification::event::EventType;
use crate::domain::row_keys::{CueKey, UserKey};
use crate::error::{Error, Result};
use crate::service::deadlines::fail_expired;
use crate::service::events;
use crate::service::finish::{RecordedOutcome, ReportedBy, record_outcome, set_outcome_state};
use crate::service::fire::CueFirer;
use crate::store::accounts::users;
use crate::store::db::meta;
use crate::store::executions::{self, ExecutionDetails, claims};
use crate::store::{Pending, WriteTx};

#[derive(Debug, Clone, PartialEq)]
pub struct ClaimedExecution {
    pub id: ExecutionId,
    pub cue_id: String,
    pub cue_name: String,
    pub scheduled_for: Timestamp,
    pub attempt: u32,
    pub cue_key: CueKey,
    pub payload_key: Option<i64>,
}

/// Refused with `held`, `execution_not_found`, and `already_claimed` unless it is waiting for a worker.
pub fn claim(
    app: &App,
    user_key: UserKey,
    id: ExecutionId,
    worker_id: String,
) -> Pending<ClaimedExecution> {
    let now = app.clock.now();
    let firer = CueFirer::new(app, now);
    app.store.write_for(user_key, move |tx| {
        meta::refuse_if_held(tx, "hands out no work")?;
        fail_expired(tx, &firer)?;
        claim_one(tx, user_key, id, &worker_id, now)
    })
}

/// Refused with `held`, and with `claim_failed` when there is none.
pub fn claim_next(
    app: &App,
    user_key: UserKey,
    task: Option<String>,
    worker_id: String,
) -> Pending<ClaimedExecution> {
    let now = app.clock.now();
    let firer = CueFirer::new(app, now);
    app.store.write_for(user_key, move |tx| {
        meta::refuse_if_held(tx, "hands out no work")?;
        fail_expired(tx, &firer)?;
        match claims::find_next(tx, user_key, task.as_deref())? {
            Some(id) => claim_one(tx, user_key, id, &worker_id, now),
            None => {
                Err(Error::refused(ErrorCode::ClaimFailed, "No execution is waiting for a worker"))
            }
        }
    })
}

/// Refused with `execution_not_found`, `execution_not_claiming` unless claimed, and `not_execution_owner` if another
/// worker than `worker` has claimed it.
pub fn extend(
    app: &App,
    user_key: UserKey,
    id: ExecutionId,
    worker: Option<String>,
) -> Pending<Timestamp> {
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

/// Only the first report counts. Refused with `metadata_too_large`, `execution_not_found`, `outcome_already_reported`
/// and `storage_limit_exceeded`; a report without texts never for the storage.
pub fn report(
    app: &App,
    user_key: UserKey,
    id: ExecutionId,
    report: OutcomeReport,
) -> Pending<RecordedOutcome> {
    let now = app.clock.now();
    let firer = CueFirer::new(app, now);
    let outcome = report.record(now);
    app.store.write_for(user_key, move |tx| {
        let outcome = outcome?;
        let details = find(tx, user_key, id)?;
        record_outcome(tx, &details, outcome, ReportedBy::Request, &firer)
    })
}

fn claim_one(
    tx: &WriteTx<'_>,
    user_key: UserKey,
    id: ExecutionId,
    worker_id: &str,
    now: Timestamp,
) -> Result<ClaimedExecution> {
    let ExecutionDetails { execution, cue_id, cue_name, .. } = find(tx, user_key, id)?;
    may_claim(execution.is_worker, execution.status)?;
    if execution.expires_at.is_some_and(|expires_at| expires_at <= now) {
        return Err(Error::refused(
            ErrorCode::AlreadyClaimed,
            "The execution has reached its max_age_seconds",
        ));
    }
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

pub(super) fn find(
    tx: &WriteTx<'_>,
    user_key: UserKey,
    id: ExecutionId,
) -> Result<ExecutionDetails> {
    executions::find(tx, user_key, id)?.ok_or_else(|| not_found().into())
}

pub fn not_found() -> Refusal {
    Refusal::new(ErrorCode::ExecutionNotFound, "Execution not found")
}

/// Refused with `execution_not_found`, and with `invalid_state` before an outcome is reported and after a verdict.
pub fn verify(
    app: &App,
    user_key: UserKey,
    id: ExecutionId,
    valid: bool,
    reason: Option<String>,
) -> Pending<RecordedOutcome> {
    update_outcome(app, user_key, id, move |outcome, _, now| {
        outcome.verdict = Some(Verdict { valid, reason, verified_at: now });
        VerificationEvent::Verdict { valid }
    })
}

/// Withdraws an earlier verdict. Refused with `execution_not_found`, and with `invalid_state` before a report.
pub fn reopen(app: &App, user_key: UserKey, id: ExecutionId) -> Pending<RecordedOutcome> {
    update_outcome(app, user_key, id, |outcome, _, _| {
        outcome.verdict = None;
        VerificationEvent::Reopened
    })
}

/// Refused with `execution_not_found`, and with `invalid_state` before an outcome is reported.
pub fn append_evidence(
    app: &App,
    user_key: UserKey,
    id: ExecutionId,
    more: Evidence,
) -> Pending<RecordedOutcome> {
    update_outcome(app, user_key, id, |outcome, mode, _| VerificationEvent::Evidence {
        proves: outcome.append(mode, more),
    })
}

fn update_outcome(
    app: &App,
    user_key: UserKey,
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
        users::check_storage_quota(tx, &plans, user_key, || {
            executions::save_outcome(tx, execution.key, &outcome)
        })?;
        let recorded = RecordedOutcome { outcome, state };
        set_outcome_state(tx, &execution, verification, &recorded, now)?;
        events::execution(tx, EventType::ExecutionVerified, user_key, execution.key, now);
        Ok(recorded)
    })
}
