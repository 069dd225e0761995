//! Runs on request (`fire`, `replay`), and what a user may do with a waiting run (`retry`, `cancel`).

use jiff::Timestamp;

use crate::app::{App, CallLimiter};
use crate::domain::account::plan::{MAX_UNCONFIRMED_CALLS, Plans};
use crate::domain::account::user::{CONFIRM, Caller, month_bounds};
use crate::domain::api_error::{ErrorCode, Refusal, SchedulePart};
use crate::domain::cue::{Cue, Payload, Transport};
use crate::domain::execution::{ExecutionStatus, NewExecution, Trigger, may_cancel, may_retry};
use crate::domain::ids::ExecutionId;
use crate::domain::row_keys::UserKey;
use crate::domain::schedule::{ScheduleError, Zone, parse_instant};
use crate::domain::webhook::callback::Callback;
use crate::error::{Error, Result};
use crate::service::accounts::disabled;
use crate::service::cues::find;
use crate::service::events;
use crate::service::executions::find as find_execution;
use crate::service::finish::cancel_queued;
use crate::service::fire::{CueFirer, enqueue};
use crate::store::accounts::idempotency::{
    IdempotencyRequest, StoredResponse, find_response, store_response,
};
use crate::store::accounts::users;
use crate::store::executions::{ExecutionDetails, delivery_queue};
use crate::store::{Pending, WriteTx, cues};

#[derive(Debug, Clone)]
pub struct ManualRun {
    pub execution_id: ExecutionId,
    pub cue_id: String,
    pub scheduled_for: Timestamp,
    pub triggered_by: Trigger,
}

#[derive(Debug)]
pub struct FireRequest {
    /// When to run; now if absent or in the past. Without an offset it is local time in the zone of the schedule.
    pub send_at: Option<String>,
    pub payload: FirePayload,
}

/// The payload of the execution that `fire` creates. A refused one is reported unless the request is a repetition.
#[derive(Debug)]
pub enum FirePayload {
    OfCue,
    Replaced(std::result::Result<Payload, Refusal>),
}

/// Refused with `cue_not_found`, `invalid_schedule`, `invalid_payload_size`, `execution_limit_exceeded`,
/// `storage_limit_exceeded`, `idempotency_conflict`.
pub fn fire(
    app: &App,
    caller: &Caller,
    id: String,
    request: FireRequest,
    call: Option<IdempotencyRequest>,
    render: fn(&ManualRun) -> StoredResponse,
) -> Pending<StoredResponse> {
    let (now, user_key) = (app.clock.now(), caller.user_key);
    let context = RunContext::new(app, user_key, now);
    app.store.write_for(user_key, move |tx| {
        users::check_storage_quota(tx, context.plans(), user_key, || {
            if let Some(response) = find_response(tx, user_key, call.as_ref(), now)? {
                return Ok(response);
            }
            let response = render(&context.fire(tx, &id, request)?);
            store_response(tx, user_key, call.as_ref(), &response, now)?;
            Ok(response)
        })
    })
}

/// Refused with `execution_not_found`, `execution_in_flight` until it has finished, `execution_limit_exceeded` and
/// `storage_limit_exceeded`.
pub fn replay(app: &App, user_key: UserKey, id: ExecutionId) -> Pending<ManualRun> {
    let context = RunContext::new(app, user_key, app.clock.now());
    app.store.write_for(user_key, move |tx| Ok(context.replay(tx, id)?.0))
}

/// Keeps the rest of the retry policy. Returns the run and its status. Refused with `execution_not_found`,
/// `execution_in_flight` during an attempt, `invalid_state` unless it waits.
pub fn retry(
    app: &App,
    user_key: UserKey,
    id: ExecutionId,
) -> Pending<(ManualRun, ExecutionStatus)> {
    let now = app.clock.now();
    app.store.write_for(user_key, move |tx| {
        let ExecutionDetails { execution, cue_id, .. } = find_execution(tx, user_key, id)?;
        let is_waiting = delivery_queue::release(tx, execution.key, now)?;
        may_retry(execution.status, is_waiting)?;
        let is_early = execution.status == ExecutionStatus::Pending;
        let scheduled_for = if is_early { now } else { execution.scheduled_for };
        let triggered_by = execution.triggered_by;
        Ok((ManualRun { execution_id: id, cue_id, scheduled_for, triggered_by }, execution.status))
    })
}

/// Cancels a waiting execution. Stored as failed; no alert, mail or streak follows. Refused with `execution_not_found`,
/// `execution_in_flight` during an attempt or a claim, `invalid_state` after its end.
pub fn cancel(app: &App, user_key: UserKey, id: ExecutionId) -> Pending<ExecutionDetails> {
    let now = app.clock.now();
    app.store.write_for(user_key, move |tx| {
        let execution = find_execution(tx, user_key, id)?.execution;
        may_cancel(execution.status)?;
        cancel_queued(tx, &execution, now)?;
        find_execution(tx, user_key, id)
    })
}

pub(super) struct RunContext {
    user_key: UserKey,
    firer: CueFirer,
    calls: Option<CallLimiter>,
}

impl RunContext {
    pub(super) fn new(app: &App, user_key: UserKey, now: Timestamp) -> Self {
        let (firer, calls) = (CueFirer::new(app, now), app.unconfirmed_calls.clone());
        Self { user_key, firer, calls }
    }

    pub(super) fn plans(&self) -> &Plans {
        self.firer.plans()
    }

    pub(super) fn fire(
        &self,
        tx: &WriteTx<'_>,
        id: &str,
        request: FireRequest,
    ) -> Result<ManualRun> {
        let (user_key, now) = (self.user_key, self.firer.now());
        let cue = find(tx, user_key, id)?;
        self.check_calls(&cue)?;
        consume_quota(tx, self.plans(), user_key, now)?;
        let run = new_run(tx, &cue, request, self.firer.next_id()?, now)?;
        cues::record_run(tx, cue.key, now)?;
        self.firer.queue_retention_if_due(tx, cue.key, cue.run_count, 1)?;
        insert_run(tx, &cue, &run)
    }

    pub(super) fn replay(&self, tx: &WriteTx<'_>, id: ExecutionId) -> Result<(ManualRun, usize)> {
        let (user_key, now) = (self.user_key, self.firer.now());
        let ExecutionDetails { execution: old, cue_id, .. } = find_execution(tx, user_key, id)?;
        if !old.status.is_over() {
            let message = "The execution has not finished: wait for it before you replay it";
            return Err(Error::refused(ErrorCode::ExecutionInFlight, message));
        }
        let cue = find(tx, user_key, &cue_id)?;
        self.check_calls(&cue)?;
        consume_quota(tx, self.plans(), user_key, now)?;
        // A replay does not count as a run of the cue, so the run count cannot trigger the history limit.
        cues::queue_for_retention(tx, cue.key)?;
        let copy = || cues::reuse_or_copy_payload(tx, old.payload_key, cue.payload_key);
        let (payload_key, copied) = users::check_storage_quota(tx, self.plans(), user_key, copy)?;
        let run = NewExecution {
            payload_key,
            task: old.task,
            agent: old.agent,
            replayed_from: Some(old.id),
            ..run_of(&cue, self.firer.next_id()?, Trigger::Replay, now)
        };
        Ok((insert_run(tx, &cue, &run)?, copied))
    }

    /// Refuses another call of an account with an unconfirmed address that has used up its calls (contract §3.10).
    fn check_calls(&self, cue: &Cue) -> Result<()> {
        let calls = self.calls.as_ref().filter(|_| cue.fields.transport == Transport::Webhook);
        let refused_for =
            calls.and_then(|calls| calls.lock().refused_for(self.user_key, self.firer.now()));
        let Some(seconds) = refused_for else { return Ok(()) };
        let message = format!(
            "The runs of an account with an unconfirmed address call at most {MAX_UNCONFIRMED_CALLS} times an hour: wait \
             {seconds} s, or {CONFIRM}"
        );
        Err(Error::refused(ErrorCode::ExecutionLimitExceeded, message))
    }
}

/// Counts one execution against the user's quota (contract §8.2).
fn consume_quota(tx: &WriteTx<'_>, plans: &Plans, user_key: UserKey, now: Timestamp) -> Result<()> {
    let mut quota = users::quota(tx, plans, user_key, now)?.ok_or_else(disabled)?;
    if !quota.try_use(now) {
        let (limit, (_, end)) = (quota.limit.unwrap_or_default(), month_bounds(now));
        let message = format!(
            "The plan allows {limit} runs a month, and this month has {}: no more are sent until {} (UTC). To send them \
             now, {}",
            quota.used,
            end.strftime("%Y-%m-%d"),
            users::limit_remedy(tx, user_key)?
        );
        return Err(Error::refused(ErrorCode::ExecutionLimitExceeded, message));
    }
    events::quota(tx, user_key, &quota, now)?;
    users::save_quota(tx, user_key, &quota, now)
}

fn new_run(
    tx: &WriteTx<'_>,
    cue: &Cue,
    request: FireRequest,
    id: ExecutionId,
    now: Timestamp,
) -> Result<NewExecution> {
    let send_at = request.send_at.map(|text| parse_send_at(&text, cue)).transpose()?;
    let (payload_key, filters) = match request.payload {
        FirePayload::Replaced(payload) => {
            let payload = payload?;
            let key = cues::insert_single_use_payload(tx, cue.key, &payload)?;
            (Some(key), (payload.task, payload.agent))
        }
        FirePayload::OfCue => {
            let filters = cue.payload_key.map(|key| cues::find_filters(tx, key));
            (cue.payload_key, filters.transpose()?.unwrap_or_default())
        }
    };
    // Only claims filter by task and agent.
    let (task, agent) =
        if cue.fields.transport == Transport::Worker { filters } else { (None, None) };
    Ok(NewExecution {
        task,
        agent,
        payload_key,
        scheduled_for: send_at.unwrap_or(now).max(now),
        ..run_of(cue, id, Trigger::ManualFire, now)
    })
}

fn parse_send_at(text: &str, cue: &Cue) -> std::result::Result<Timestamp, Refusal> {
    let zone = Zone::find(&cue.fields.schedule.timezone).map_err(ScheduleError::from)?;
    parse_instant(text, &zone).map_err(|error| Refusal {
        schedule_part: SchedulePart::of("send_at"),
        ..Refusal::new(ErrorCode::InvalidSchedule, format!("send_at: {error}"))
    })
}

fn run_of(cue: &Cue, id: ExecutionId, triggered_by: Trigger, now: Timestamp) -> NewExecution {
    NewExecution {
        id,
        cue_key: cue.key,
        user_key: cue.user_key,
        is_worker: cue.fields.transport == Transport::Worker,
        destination: cue.fields.callback.as_ref().map(Callback::destination_hash),
        task: None,
        agent: None,
        scheduled_for: now,
        triggered_by,
        payload_key: None,
        replayed_from: None,
        is_catch_up: false,
        is_buffered: false,
        policies: cue.fields.policies,
        now,
    }
}

fn insert_run(tx: &WriteTx<'_>, cue: &Cue, run: &NewExecution) -> Result<ManualRun> {
    enqueue(tx, run)?;
    Ok(ManualRun {
        execution_id: run.id,
        cue_id: cue.id.clone(),
        scheduled_for: run.scheduled_for,
        triggered_by: run.triggered_by,
    })
}
