//! Creates, updates and deletes cues. Runs on request are in `manual_runs`.

use jiff::Timestamp;

use crate::app::App;
use crate::domain::account::plan::Plans;
use crate::domain::account::user::Caller;
use crate::domain::api_error::{ErrorCode, Refusal};
use crate::domain::cue::{Cue, CuePatch, CueStatus, NewCue, Payload};
use crate::domain::execution::policies::{Overlap, Policies};
use crate::domain::ids::CueId;
use crate::domain::notification::event::EventType;
use crate::domain::webhook::callback::Callback;
use crate::domain::webhook::flow::Flow;
use crate::error::{Error, Result};
use crate::random;
use crate::service::accounts::disabled;
use crate::service::finish::record_overdue_as_missed;
use crate::service::fire::CueFirer;
use crate::service::{channels, events, overlap};
use crate::store::accounts::idempotency::{
    IdempotencyRequest, StoredResponse, find_response, store_response,
};
use crate::store::accounts::users::{self, CueCounts};
use crate::store::cues::flows;
use crate::store::executions::policies;
use crate::store::maintenance::retention;
use crate::store::{Pending, WakeSet, WriteTx, cues};

/// The response to a create, and the payload of its request: the response shows it, but does not store it.
#[derive(Debug)]
pub struct CreatedCue {
    pub response: StoredResponse,
    pub payload: Option<Payload>,
}

#[derive(Debug)]
pub struct UpdatedCue {
    pub cue: Cue,
    pub payload: Option<Option<Payload>>,
}

/// `hint` is shown with the warning of the cue and not stored: it is about this moment. Refused with
/// `cue_limit_exceeded`, `storage_limit_exceeded`, `invalid_schedule`, `idempotency_conflict`.
pub fn create(
    app: &App,
    caller: &Caller,
    mut new: NewCue,
    hint: Option<&str>,
    call: Option<IdempotencyRequest>,
    render: fn(&Cue) -> Result<StoredResponse>,
) -> Result<Pending<CreatedCue>> {
    let (now, user_key) = (app.clock.now(), caller.user_key);
    let plans = app.config.plans.clone();
    let limits = CueLimits::new(&plans, caller);
    let id = CueId::generate(now, random::fill)?.to_string();
    let payload = new.payload.take();
    let prepared = new.into_cue(id, user_key, now).map_err(Error::from);
    let prepared = prepared.and_then(|(mut cue, _)| {
        let stored = cue.warning.clone();
        cue.warning = joined(stored.as_deref(), hint);
        let response = render(&cue)?;
        cue.warning = stored;
        Ok((response, cue))
    });
    Ok(app.store.write_for(user_key, move |tx| {
        users::check_storage_quota(tx, &plans, user_key, || {
            if let Some(response) = find_response(tx, user_key, call.as_ref(), now)? {
                return Ok(CreatedCue { response, payload });
            }
            let (response, cue) = prepared?;
            limits.check_new(tx, user_key)?;
            let cue = cues::insert(tx, cue, payload.as_ref())?;
            events::cue(tx, EventType::CueCreated, user_key, cue.key, now);
            tx.wake(WakeSet { schedule: cue.next_run, ..WakeSet::default() });
            store_response(tx, user_key, call.as_ref(), &response, now)?;
            Ok(CreatedCue { response, payload })
        })
    }))
}

fn joined(warning: Option<&str>, hint: Option<&str>) -> Option<String> {
    let texts: Vec<&str> = warning.into_iter().chain(hint).collect();
    (!texts.is_empty()).then(|| texts.join(". "))
}

pub(super) struct ChangeContext {
    user_key: i64,
    limits: CueLimits,
    firer: CueFirer,
}

impl ChangeContext {
    pub(super) fn new(app: &App, caller: &Caller, now: Timestamp) -> Self {
        let limits = CueLimits::new(&app.config.plans, caller);
        Self { user_key: caller.user_key, limits, firer: CueFirer::new(app, now) }
    }

    /// Returns the cue without its new payload, and the number of overdue runs that fired before the change.
    pub(super) fn change(&self, tx: &WriteTx<'_>, id: &str, change: &CuePatch) -> Result<(Cue, usize)> {
        let (user_key, now) = (self.user_key, self.firer.now());
        let mut before = find(tx, user_key, id)?;
        let mut cue = before.clone();
        cue.apply(change, now)?;
        let mut fired = 0;
        if cue.next_run != before.next_run {
            fired = self.firer.fire_overdue(tx, &before)?;
        }
        if fired > 0 {
            before = find(tx, user_key, id)?;
            cue = before.clone();
            cue.apply(change, now)?;
        }
        if cue.status == CueStatus::Active && before.status != CueStatus::Active {
            self.limits.check_active(tx, user_key)?;
        }
        if cue.next_run != before.next_run {
            cue.missed_count += record_overdue_as_missed(tx, &before, now)?;
        }
        if destination(&cue) != destination(&before) {
            flows::leave(tx, cue.key)?;
        }
        cues::save(tx, &cue)?;
        events::cue_changed(tx, (before.status, cue.status), user_key, cue.key, now);
        if cue.status == CueStatus::Paused && before.status != CueStatus::Paused {
            channels::announce_pause(tx, (user_key, cue.key), "by request", now)?;
        }
        if holds_for_waiting(&cue) != holds_for_waiting(&before) {
            if cue.policies.overlap == Overlap::Allow {
                overlap::start_waiting(tx, cue.key, now)?;
            }
            policies::follow_change(tx, cue.key)?;
            tx.wake(WakeSet { schedule: Some(Timestamp::MIN), send: true, ..WakeSet::default() });
        }
        tx.wake(WakeSet { schedule: cue.next_run, ..WakeSet::default() });
        Ok((cue, fired))
    }
}

/// What holds for the executions that wait as soon as it changes.
fn holds_for_waiting(cue: &Cue) -> (Option<u32>, Policies, Option<i64>, Option<&Flow>) {
    let flow = cue.callback.as_ref().and_then(|it| it.flow.as_ref());
    (cue.claim_within_minutes, cue.policies, destination(cue), flow)
}

fn destination(cue: &Cue) -> Option<i64> {
    cue.callback.as_ref().map(Callback::destination_hash)
}

/// Refused with `cue_not_found`, `cue_limit_exceeded`, `storage_limit_exceeded` and the refusals of [`Cue::apply`].
pub fn update(app: &App, caller: &Caller, id: String, change: CuePatch) -> Pending<UpdatedCue> {
    let user_key = caller.user_key;
    let (plans, context) = (app.config.plans.clone(), ChangeContext::new(app, caller, app.clock.now()));
    app.store.write_for(user_key, move |tx| {
        users::check_storage_quota(tx, &plans, user_key, || {
            let (mut cue, _) = context.change(tx, &id, &change)?;
            if let Some(payload) = &change.payload {
                cue.payload_key = cues::set_payload(tx, cue.key, payload.as_ref())?;
            }
            Ok(UpdatedCue { cue, payload: change.payload })
        })
    })
}

/// Deletes the caller's cue and its executions. Errors: `cue_not_found`.
pub fn delete(app: &App, caller: &Caller, id: String) -> Pending<()> {
    let (now, user_key) = (app.clock.now(), caller.user_key);
    app.store.write_for(user_key, move |tx| {
        events::cue_deleted(tx, user_key, &id, now);
        if retention::delete_cue(tx, user_key, &id)? { Ok(()) } else { Err(not_found().into()) }
    })
}

/// Finds the user's cue. Errors: `cue_not_found`.
pub(super) fn find(tx: &WriteTx<'_>, user_key: i64, id: &str) -> Result<Cue> {
    cues::find(tx, user_key, id)?.ok_or_else(|| not_found().into())
}

pub fn not_found() -> Refusal {
    Refusal::new(ErrorCode::CueNotFound, "Cue not found")
}

#[derive(Debug, Clone, Copy)]
struct CueLimits {
    active: Option<u32>,
    all: Option<i64>,
}

impl CueLimits {
    fn new(plans: &Plans, caller: &Caller) -> Self {
        Self { active: plans.limits(&caller.plan).cues, all: plans.storage_bounds(&caller.plan, true).cues }
    }

    fn check_active(self, tx: &WriteTx<'_>, user_key: i64) -> Result<()> {
        self.check(users::cue_counts(tx, user_key)?.ok_or_else(disabled)?)
    }

    fn check_new(self, tx: &WriteTx<'_>, user_key: i64) -> Result<()> {
        let counts = users::cue_counts(tx, user_key)?.ok_or_else(disabled)?;
        self.check(counts)?;
        let Some(limit) = self.all.filter(|limit| counts.all >= *limit) else { return Ok(()) };
        let message = format!(
            "The account has {} cues in all states; the plan allows {limit}: delete some that are paused or finished, or \
             upgrade",
            counts.all
        );
        Err(Error::refused(ErrorCode::CueLimitExceeded, message))
    }

    fn check(self, counts: CueCounts) -> Result<()> {
        let Some(limit) = self.active.filter(|limit| counts.active >= i64::from(*limit)) else {
            return Ok(());
        };
        let message = format!("The plan allows {limit} active cues: pause or delete one, or upgrade");
        Err(Error::refused(ErrorCode::CueLimitExceeded, message))
    }
}
