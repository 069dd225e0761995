//! Creates, updates and deletes cues. Runs on request are in `manual_runs`.

use serde_json::Value;

use crate::actions::accounts::disabled;
use crate::actions::idempotency::{IdempotencyRequest, StoredResponse, idempotent};
use crate::app::App;
use crate::domain::account::user::Caller;
use crate::domain::api_error::{ErrorCode, Refusal};
use crate::domain::cue::patch::CuePatch;
use crate::domain::cue::{Cue, CueStatus, NewCue};
use crate::domain::ids::CueId;
use crate::domain::json::compact;
use crate::error::{Error, Result};
use crate::lifecycle::fire::{CueFirer, SchedulerClock};
use crate::lifecycle::pause::record_overdue_as_missed;
use crate::random;
use crate::store::accounts::users;
use crate::store::cues::payloads;
use crate::store::maintenance::cue_deletion;
use crate::store::{Pending, WakeSet, WriteTx, cues};

/// The largest payload, in bytes of compact UTF-8 (contract §4.6).
pub const MAX_PAYLOAD: usize = 1 << 20;

/// A cue and its payload.
#[derive(Debug, Clone)]
pub struct CueWithPayload {
    pub cue: Cue,
    pub payload: Option<Value>,
}

/// Creates a cue. `render` builds the response, which is stored under the `Idempotency-Key` in the same transaction.
///
/// # Errors
/// `cue_limit_exceeded`, `invalid_schedule`, `invalid_payload_size`, `idempotency_conflict`.
pub fn create(
    app: &App,
    caller: &Caller,
    new: NewCue,
    call: Option<IdempotencyRequest>,
    render: fn(&CueWithPayload) -> Result<StoredResponse>,
) -> Result<Pending<StoredResponse>> {
    let (now, user_key) = (app.clock.now(), caller.user_key);
    let limit = app.config.plans.limits(&caller.plan).cues;
    check_size(new.payload.as_ref())?;
    let id = CueId::generate(random::fill)?.to_string();
    Ok(app.store.write(move |tx| {
        idempotent(tx, user_key, call.as_ref(), now, || {
            let (cue, payload) = new.into_cue(id, user_key, now)?;
            check_limit(tx, user_key, limit)?;
            let cue = cues::insert(tx, cue, payload.as_ref())?;
            tx.wake(WakeSet { schedule: cue.next_run, ..WakeSet::default() });
            render(&CueWithPayload { cue, payload })
        })
    }))
}

/// Updates the caller's cue.
///
/// # Errors
/// `cue_not_found`, `cue_limit_exceeded`, `invalid_payload_size` and the errors of [`Cue::apply`].
pub fn update(app: &App, caller: &Caller, id: String, change: CuePatch) -> Result<Pending<CueWithPayload>> {
    let (now, user_key) = (app.clock.now(), caller.user_key);
    let limit = app.config.plans.limits(&caller.plan).cues;
    if let Some(payload) = &change.payload {
        check_size(payload.as_ref())?;
    }
    let (firer, clock) =
        (CueFirer::new(&app.ids, &app.config.plans, app.config.retention, now), scheduler_clock(app));
    Ok(app.store.write(move |tx| {
        let mut before = find(tx, user_key, &id)?;
        let mut cue = before.clone();
        cue.apply(&change, now)?;
        if cue.next_run != before.next_run && firer.fire_overdue(tx, &before, &clock)? {
            before = find(tx, user_key, &id)?;
            cue = before.clone();
            cue.apply(&change, now)?;
        }
        if cue.status == CueStatus::Active && before.status != CueStatus::Active {
            check_limit(tx, user_key, limit)?;
        }
        if cue.next_run != before.next_run {
            cue.missed_count += record_overdue_as_missed(tx, &before, now)?;
        }
        cues::save(tx, &cue)?;
        if let Some(payload) = &change.payload {
            cue.payload_key = payloads::set_payload(tx, cue.key, payload.as_ref())?;
        }
        tx.wake(WakeSet { schedule: cue.next_run, ..WakeSet::default() });
        let payload = payloads::find(tx, cue.payload_key)?;
        Ok(CueWithPayload { cue, payload })
    }))
}

/// Deletes the caller's cue and its executions.
///
/// # Errors
/// `cue_not_found`.
pub fn delete(app: &App, caller: &Caller, id: String) -> Pending<()> {
    let user_key = caller.user_key;
    app.store.write(
        move |tx| if cue_deletion::delete(tx, user_key, &id)? { Ok(()) } else { Err(not_found().into()) },
    )
}

/// Finds the user's cue.
///
/// # Errors
/// `cue_not_found`.
pub(super) fn find(tx: &WriteTx<'_>, user_key: i64, id: &str) -> Result<Cue> {
    cues::find(tx, user_key, id)?.ok_or_else(|| not_found().into())
}

/// The refusal for a cue that does not exist or belongs to another user.
#[must_use]
pub fn not_found() -> Refusal {
    Refusal::new(ErrorCode::CueNotFound, "Cue not found")
}

fn scheduler_clock(app: &App) -> SchedulerClock {
    SchedulerClock {
        outage: app.outage(),
        last_seen: app.engine_stats.last_seen(),
        is_test: app.clock.is_test(),
    }
}

fn check_limit(tx: &WriteTx<'_>, user_key: i64, limit: Option<u32>) -> Result<()> {
    let active = users::active_cues(tx, user_key)?.ok_or_else(disabled)?;
    let Some(limit) = limit.filter(|limit| active >= i64::from(*limit)) else { return Ok(()) };
    let message = format!("The plan allows {limit} active cues: pause or delete one, or upgrade");
    Err(Error::refused(ErrorCode::CueLimitExceeded, message))
}

/// Checks the size of a payload.
///
/// # Errors
/// `invalid_payload_size`.
pub(super) fn check_size(payload: Option<&Value>) -> Result<()> {
    let size = payload.map_or(0, |payload| compact(payload).len());
    if size <= MAX_PAYLOAD {
        return Ok(());
    }
    let message = format!("The payload has {size} bytes as compact JSON; at most {MAX_PAYLOAD} are allowed");
    Err(Error::refused(ErrorCode::InvalidPayloadSize, message))
}
