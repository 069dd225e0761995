//! Creates, updates, puts and deletes cues. Runs on request are in `manual_runs`.

use std::borrow::Cow;
use std::sync::Arc;

use jiff::Timestamp;

use crate::app::App;
use crate::domain::account::plan::Plans;
use crate::domain::account::user::Caller;
use crate::domain::api_error::{ErrorCode, Refusal};
use crate::domain::cue::{Cue, CueRequest, CueStatus, FileOrigin, Payload};
use crate::domain::cue_fields::{Overlap, Policies};
use crate::domain::ids::CueId;
use crate::domain::notification::event::EventType;
use crate::domain::row_keys::UserKey;
use crate::domain::webhook::callback::Callback;
use crate::domain::webhook::flow::Flow;
use crate::error::{Error, Result};
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
use crate::store::{Pending, ReadTx, WakeSet, WriteTx, cues};
use crate::system::random;

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
    mut new: CueRequest,
    hint: Option<&str>,
    call: Option<IdempotencyRequest>,
    render: fn(&Cue) -> Result<StoredResponse>,
) -> Result<Pending<CreatedCue>> {
    let (now, user_key) = (app.clock.now(), caller.user_key);
    let plans = app.config.plans.clone();
    let limits = CueLimits::new(&plans, caller);
    let id = CueId::generate(now, random::fill)?.to_string();
    let payload = new.payload.take().flatten();
    let prepared = new.into_cue(id, user_key, now).map_err(Error::from);
    let prepared = prepared.and_then(|mut cue| {
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
            limits.insert(tx, cue, payload.as_ref(), now)?;
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
    pub user_key: UserKey,
    limits: CueLimits,
    pub firer: CueFirer,
}

impl ChangeContext {
    pub(super) fn new(app: &App, caller: &Caller, now: Timestamp) -> Self {
        let limits = CueLimits::new(&app.config.plans, caller);
        Self { user_key: caller.user_key, limits, firer: CueFirer::new(app, now) }
    }

    /// Changes the caller's cue `before` as `request` says. As [`Self::save`].
    pub(super) fn change(
        &self,
        tx: &WriteTx<'_>,
        before: Cue,
        request: &CueRequest,
    ) -> Result<(Cue, usize)> {
        let mut cue = before.clone();
        cue.apply(request, self.firer.now())?;
        self.save(tx, &before, cue, request)
    }

    /// Saves `cue`, which `request` has made of `before`. Returns it without its new payload, and the number of overdue
    /// runs that fired before the change.
    fn save(
        &self,
        tx: &WriteTx<'_>,
        before: &Cue,
        mut cue: Cue,
        request: &CueRequest,
    ) -> Result<(Cue, usize)> {
        let (user_key, now) = (self.user_key, self.firer.now());
        let mut fired = 0;
        if cue.next_run != before.next_run {
            fired = self.firer.fire_overdue(tx, before)?;
        }
        let mut before = Cow::Borrowed(before);
        if fired > 0 {
            before = Cow::Owned(find(tx, user_key, &before.id)?);
            cue = before.clone().into_owned();
            cue.apply(request, now)?;
        }
        if cue.fields.slug != before.fields.slug {
            check_slug(tx, &cue)?;
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
        events::cue_changed(tx, before.status, cue.status, user_key, cue.key, now);
        if cue.status == CueStatus::Paused && before.status != CueStatus::Paused {
            channels::announce_pause(tx, user_key, cue.key, "by request", now)?;
        }
        if holds_for_waiting(&cue) != holds_for_waiting(&before) {
            if cue.fields.policies.overlap == Overlap::Allow {
                overlap::start_waiting(tx, cue.key, now)?;
            }
            policies::follow_change(tx, cue.key)?;
            tx.wake(WakeSet { schedule: Some(Timestamp::MIN), send: true, ..WakeSet::default() });
        }
        tx.wake(WakeSet { schedule: cue.next_run, ..WakeSet::default() });
        Ok((cue, fired))
    }

    /// Creates `cue`, which [`new_cue`] has made.
    pub(super) fn insert(&self, tx: &WriteTx<'_>, cue: Cue, put: &CueRequest) -> Result<PutResult> {
        let cue = self.limits.insert(tx, cue, put.new_payload(), self.firer.now())?;
        if let Some(origin) = &put.origin {
            cues::set_source(tx, cue.key, &origin.namespace)?;
        }
        Ok(PutResult::created(cue))
    }

    /// Changes the cue that was found to the one that is put.
    pub(super) fn replace(
        &self,
        tx: &WriteTx<'_>,
        found: &FoundCue,
        put: &CueRequest,
    ) -> Result<PutResult> {
        let mut result = put_onto(tx, found, put, self.firer.now())?;
        let is_updated = result.action == PutAction::Updated;
        // Otherwise it is that of the cue, or there is no change.
        if let Some(origin) = put.origin.as_ref().filter(|it| it.adopts) {
            cues::set_source(tx, found.cue.key, &origin.namespace)?;
        }
        if is_updated {
            (result.cue, result.fired) = self.save(tx, &found.cue, result.cue, put)?;
        }
        if result.changed.contains(&PAYLOAD) {
            result.cue.payload_key = cues::set_payload(tx, result.cue.key, put.new_payload())?;
        }
        Ok(result)
    }
}

const PAYLOAD: &str = "payload";

/// What holds for the executions that wait as soon as it changes.
fn holds_for_waiting(cue: &Cue) -> (Policies, Option<i64>, Option<&Flow>) {
    let flow = cue.fields.callback.as_ref().and_then(|it| it.flow.as_ref());
    (cue.fields.policies, destination(cue), flow)
}

fn destination(cue: &Cue) -> Option<i64> {
    cue.fields.callback.as_ref().map(Callback::destination_hash)
}

/// Makes of the cue `base` what the request says. Gives the request back if the fields have changed since they were read: it
/// was read onto others. Refused with `cue_not_found`, `cue_limit_exceeded`, `storage_limit_exceeded` and the refusals of
/// [`Cue::apply`].
pub fn update(
    app: &App,
    caller: &Caller,
    base: Cue,
    request: CueRequest,
) -> Pending<std::result::Result<UpdatedCue, CueRequest>> {
    let user_key = caller.user_key;
    let (plans, context) =
        (app.config.plans.clone(), ChangeContext::new(app, caller, app.clock.now()));
    app.store.write_for(user_key, move |tx| {
        users::check_storage_quota(tx, &plans, user_key, || {
            let before = find(tx, user_key, &base.id)?;
            if before.fields != base.fields {
                return Ok(Err(request));
            }
            let (mut cue, _) = context.change(tx, before, &request)?;
            if let Some(payload) = &request.payload {
                cue.payload_key = cues::set_payload(tx, cue.key, payload.as_ref())?;
            }
            Ok(Ok(UpdatedCue { cue, payload: request.payload }))
        })
    })
}

/// Errors: `slug_taken`, if another cue of the account has the slug.
fn check_slug(tx: &WriteTx<'_>, cue: &Cue) -> Result<()> {
    let Some(slug) = &cue.fields.slug else { return Ok(()) };
    match cues::find_id_of_slug(tx, cue.user_key, slug)? {
        Some(id) if id != cue.id => {
            let message = format!(
                "The cue {id} has the slug {slug}: give one of the two another slug, or change that cue"
            );
            Err(Error::refused(ErrorCode::SlugTaken, message))
        }
        _ => Ok(()),
    }
}

/// Errors: `slug_taken`, if the file would change a cue that is not its own.
fn check_origin(read: &ReadTx<'_>, origin: &FileOrigin, cue: &Cue) -> Result<()> {
    if origin.adopts || cues::find_source(read, cue.key)?.as_ref() == Some(&origin.namespace) {
        return Ok(());
    }
    let message = format!(
        "The cue {} was made by hand, or from a file with another namespace: use another slug, or adopt it",
        cue.id
    );
    Err(Error::refused(ErrorCode::SlugTaken, message))
}

/// The cue that a PUT changes.
#[derive(Debug)]
pub struct FoundCue {
    pub cue: Cue,
    /// The PUT gives it another payload.
    pub has_other_payload: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PutAction {
    Created,
    Updated,
    Unchanged,
}

/// The cue after a PUT, or as a dry run would leave it.
#[derive(Debug)]
pub struct PutResult {
    pub action: PutAction,
    pub cue: Cue,
    /// The names of the fields that differ from those before.
    pub changed: Vec<&'static str>,
    pub next_run_before: Option<Timestamp>,
    /// Overdue runs that fired before the change.
    pub fired: usize,
}

/// What a PUT would do. The limits of the plan are not checked: they are about all cues that are written.
/// Refused as [`put`].
pub fn dry_run(
    read: &ReadTx<'_>,
    caller: &Caller,
    put: &CueRequest,
    now: Timestamp,
) -> Result<PutResult> {
    match find_put(read, caller.user_key, put)? {
        Some(found) => put_onto(read, &found, put, now),
        None => Ok(PutResult::created(new_cue(put, CueId::NONE, caller.user_key, now)?)),
    }
}

/// The cue that a PUT creates, without its payload.
pub(super) fn new_cue(
    put: &CueRequest,
    id: &str,
    user_key: UserKey,
    now: Timestamp,
) -> Result<Cue> {
    let CueRequest { fields, status, schedule, .. } = put;
    let (fields, schedule) = (fields.clone(), schedule.clone());
    let request = CueRequest { fields, status: *status, schedule, ..CueRequest::default() };
    Ok(request.into_cue(id.to_owned(), user_key, now)?)
}

/// What a PUT makes of the cue that was found.
/// Errors: `slug_taken`, if it would change a cue that is not its own.
fn put_onto(
    read: &ReadTx<'_>,
    found: &FoundCue,
    put: &CueRequest,
    now: Timestamp,
) -> Result<PutResult> {
    let (before, mut cue) = (&found.cue, found.cue.clone());
    let mut changed = cue.apply(put, now)?;
    changed.extend(found.has_other_payload.then_some(PAYLOAD));
    let mut action = PutAction::Updated;
    if changed.is_empty() {
        (cue, action) = (before.clone(), PutAction::Unchanged);
    } else if let Some(origin) = &put.origin {
        check_origin(read, origin, before)?;
    }
    Ok(PutResult { action, cue, changed, next_run_before: before.next_run, fired: 0 })
}

/// Finds the cue with the slug of a PUT.
fn find_put(read: &ReadTx<'_>, user_key: UserKey, put: &CueRequest) -> Result<Option<FoundCue>> {
    let slug = put.fields.slug.as_ref();
    let found = slug.map_or(Ok(None), |slug| cues::find_by_slug(read, user_key, slug))?;
    let Some(cue) = found else { return Ok(None) };
    let payload = cue.payload_key.map(|key| cues::find_payload(read, cue.key, key)).transpose()?;
    let has_other_payload = put.new_payload().map(|it| &it.body) != payload.flatten().as_ref();
    Ok(Some(FoundCue { cue, has_other_payload }))
}

impl PutResult {
    fn created(cue: Cue) -> Self {
        let (action, changed) = (PutAction::Created, Vec::new());
        Self { action, cue, changed, next_run_before: None, fired: 0 }
    }
}

/// Writes nothing if the cue is already as described. Refused with `cue_limit_exceeded`, `storage_limit_exceeded`,
/// `slug_taken`, `invalid_schedule`, and as a validation error if the transport is another one.
pub fn put(app: &App, caller: &Caller, put: Arc<CueRequest>) -> Result<Pending<PutResult>> {
    let (now, user_key) = (app.clock.now(), caller.user_key);
    let (plans, context) = (app.config.plans.clone(), ChangeContext::new(app, caller, now));
    let id = CueId::generate(now, random::fill)?.to_string();
    Ok(app.store.write_for(user_key, move |tx| {
        users::check_storage_quota(tx, &plans, user_key, || match find_put(tx, user_key, &put)? {
            Some(found) => context.replace(tx, &found, &put),
            None => context.insert(tx, new_cue(&put, &id, user_key, now)?, &put),
        })
    }))
}

/// Deletes the caller's cue and its executions. Errors: `cue_not_found`.
pub fn delete(app: &App, caller: &Caller, id: String) -> Pending<()> {
    let (now, user_key) = (app.clock.now(), caller.user_key);
    app.store.write_for(user_key, move |tx| {
        events::cue_deleted(tx, user_key, &id, now);
        if retention::delete_cue(tx, user_key, &id)? { Ok(()) } else { Err(not_found().into()) }
    })
}

/// Deletes one of many cues of a write. Its executions follow in the background. Errors: `cue_not_found`.
pub(super) fn delete_later(
    tx: &WriteTx<'_>,
    user_key: UserKey,
    id: &str,
    now: Timestamp,
) -> Result<()> {
    events::cue_deleted(tx, user_key, id, now);
    if retention::delete_cue_later(tx, user_key, id)? { Ok(()) } else { Err(not_found().into()) }
}

/// Finds the user's cue. Errors: `cue_not_found`.
pub(super) fn find(tx: &WriteTx<'_>, user_key: UserKey, id: &str) -> Result<Cue> {
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
        Self {
            active: plans.limits(&caller.plan).cues,
            all: plans.storage_bounds(&caller.plan, true).cues,
        }
    }

    /// Inserts a new cue, and wakes the scheduler for it.
    fn insert(
        self,
        tx: &WriteTx<'_>,
        cue: Cue,
        payload: Option<&Payload>,
        now: Timestamp,
    ) -> Result<Cue> {
        self.check_added(tx, &cue)?;
        check_slug(tx, &cue)?;
        let cue = cues::insert(tx, cue, payload)?;
        events::cue(tx, EventType::CueCreated, cue.user_key, cue.key, now);
        tx.wake(WakeSet { schedule: cue.next_run, ..WakeSet::default() });
        Ok(cue)
    }

    fn check_active(self, tx: &WriteTx<'_>, user_key: UserKey) -> Result<()> {
        self.check(tx, user_key, users::cue_counts(tx, user_key)?.ok_or_else(disabled)?)
    }

    fn check_added(self, tx: &WriteTx<'_>, cue: &Cue) -> Result<()> {
        let user_key = cue.user_key;
        let counts = users::cue_counts(tx, user_key)?.ok_or_else(disabled)?;
        if cue.status == CueStatus::Active {
            self.check(tx, user_key, counts)?;
        }
        let Some(limit) = self.all.filter(|limit| counts.all >= *limit) else { return Ok(()) };
        let message = format!(
            "The account has {} cues in all states; the plan allows {limit}: delete some that are paused or finished, or {}",
            counts.all,
            users::limit_remedy(tx, user_key)?
        );
        Err(Error::refused(ErrorCode::CueLimitExceeded, message))
    }

    fn check(self, tx: &WriteTx<'_>, user_key: UserKey, counts: CueCounts) -> Result<()> {
        let Some(limit) = self.active.filter(|limit| counts.active >= i64::from(*limit)) else {
            return Ok(());
        };
        let remedy = users::limit_remedy(tx, user_key)?;
        let message =
            format!("The plan allows {limit} active cues: pause or delete one, or {remedy}");
        Err(Error::refused(ErrorCode::CueLimitExceeded, message))
    }
}
