//! What people do to have another plan, and what the operator decides. What a provider's events do is in
//! `subscriptions`.

use jiff::Timestamp;

use crate::actions::accounts::change_plan;
use crate::app::App;
use crate::billing::{BillingAccount, BillingContext, Provider};
use crate::domain::account::credentials::sha256;
use crate::domain::account::plan::Plans;
use crate::domain::account::user::{Caller, User};
use crate::domain::api_error::{ErrorCode, Refusal};
use crate::domain::billing::offer::{FREE, Offer, RequestStatus};
use crate::error::{Error, Result};
use crate::store::accounts::users;
use crate::store::billing::requests;
use crate::store::billing::requests::BillingRequest;
use crate::store::billing::subscriptions;
use crate::store::{Pending, ReadTx, Store, WriteTx};

/// What a link to the page of a user's plan shows.
#[derive(Debug, Clone)]
pub struct PlanOverview {
    pub user: User,
    /// The request that waits for the operator.
    pub waiting: Option<BillingRequest>,
}

/// The address of a page where the caller gets an offer. Blocks: it may ask the payment provider.
///
/// # Errors
/// `invalid_plan` where the server has no such plan, `billing_error`.
pub fn checkout(app: &App, caller: &Caller, offer: Offer) -> Result<String> {
    let plan = offer.plan.as_str();
    if app.config.plans.ensure_exists(plan).is_err() {
        return Err(Error::refused(ErrorCode::InvalidPlan, format!("This server has no plan {plan}")));
    }
    let buyer = buyer(app, caller)?;
    app.billing.checkout(seller(app), &buyer, offer)
}

/// The address of a page where the caller sees and ends what it has. Blocks: it may ask the payment provider.
///
/// # Errors
/// `no_billing_customer`, `billing_error`.
pub fn portal(app: &App, caller: &Caller) -> Result<String> {
    let buyer = buyer(app, caller)?;
    app.billing.portal(seller(app), &buyer)
}

/// The request behind the token of a link.
///
/// # Errors
/// `not_found` for a link that leads nowhere (any more).
pub fn look_at_request(app: &App, token: &str) -> Result<Pending<BillingRequest>> {
    let (now, hash) = (app.clock.now(), manual_link(app, token)?);
    Ok(app.store.read(move |read| find_request(read, &hash, now)))
}

/// Confirms the request behind a link, in the place of one that the operator has not decided yet. What was confirmed
/// before is answered as it stands.
///
/// # Errors
/// `not_found` for a link that leads nowhere (any more).
pub fn confirm_request(app: &App, token: &str) -> Result<Pending<BillingRequest>> {
    let (now, hash) = (app.clock.now(), manual_link(app, token)?);
    Ok(app.store.write(move |tx| {
        let request = find_request(tx, &hash, now)?;
        if request.status == RequestStatus::Offered {
            requests::delete_undecided(tx, request.user_key)?;
            requests::confirm(tx, request.key, now)?;
        }
        find_request(tx, &hash, now)
    }))
}

/// What the link to the page of a user's plan shows.
///
/// # Errors
/// `not_found` for a link that leads nowhere (any more).
pub fn look_at_plan(app: &App, token: &str) -> Result<Pending<PlanOverview>> {
    let (now, hash) = (app.clock.now(), manual_link(app, token)?);
    Ok(app.store.read(move |read| find_portal(read, &hash, now)))
}

/// Ends a user's plan and takes back its request; uses up the link. The answer is how many cues that paused.
///
/// # Errors
/// `not_found` for a link that leads nowhere (any more).
pub fn cancel_plan(app: &App, token: &str) -> Result<Pending<usize>> {
    let (now, hash) = (app.clock.now(), manual_link(app, token)?);
    let plans = app.config.plans.clone();
    Ok(app.store.write(move |tx| {
        let user_key = find_portal(tx, &hash, now)?.user.key;
        requests::delete_portal_link(tx, &hash)?;
        requests::delete_undecided(tx, user_key)?;
        grant_plan(tx, &plans, user_key, None, now)
    }))
}

/// Approves a request that waits: its plan is in force from the next request on. The answer is how many cues a lower
/// limit paused.
///
/// # Errors
/// When there is no such request, or it was decided before.
pub fn approve(store: &Store, plans: Plans, id: String, now: Timestamp) -> Pending<(BillingRequest, usize)> {
    store.write(move |tx| {
        let request = decide(tx, &id, RequestStatus::Approved, now)?;
        let plan = request.offer.plan.as_str();
        plans
            .ensure_exists(plan)
            .map_err(|error| Error::refused(ErrorCode::InvalidPlan, error.to_string()))?;
        let paused = grant_plan(tx, &plans, request.user_key, Some(request.offer), now)?;
        Ok((request, paused))
    })
}

/// Declines a request that waits.
///
/// # Errors
/// When there is no such request, or it was decided before.
pub fn decline(store: &Store, id: String, now: Timestamp) -> Pending<BillingRequest> {
    store.write(move |tx| decide(tx, &id, RequestStatus::Declined, now))
}

/// Gives a user what was bought, or the free plan; the answer is how many cues a lower limit paused.
///
/// # Errors
/// When the file cannot be written.
pub(super) fn grant_plan(
    tx: &WriteTx<'_>,
    plans: &Plans,
    user_key: i64,
    offer: Option<Offer>,
    now: Timestamp,
) -> Result<usize> {
    let plan = offer.map_or(FREE, |offer| offer.plan.as_str());
    let paused = change_plan(tx, user_key, plan, plans.limits(plan), now)?;
    users::set_plan_interval(tx, user_key, offer.map(|offer| offer.interval))?;
    Ok(paused)
}

fn seller(app: &App) -> BillingContext<'_> {
    BillingContext { store: &app.store, public_url: &app.config.public_url, now: app.clock.now() }
}

fn buyer(app: &App, caller: &Caller) -> Result<BillingAccount> {
    let user_key = caller.user_key;
    let found = app.store.read(move |read| {
        let user = users::find(read, user_key)?;
        let customer = subscriptions::find_customer(read, user_key)?;
        Ok((user, customer, requests::was_ever_approved(read, user_key)?))
    });
    let (user, customer, was_approved) = found.wait()?;
    let user = user.ok_or_else(|| Error::Fault("the user of a request is gone".to_owned()))?;
    Ok(BillingAccount { user, customer, was_approved })
}

/// What is stored of a link's token. The pages are there only while the operator is the provider: what a payment
/// provider collects, only it can end.
fn manual_link(app: &App, token: &str) -> Result<[u8; 32]> {
    match app.billing {
        Provider::Manual => Ok(sha256(token.as_bytes())),
        Provider::Stripe(_) => Err(dead_link().into()),
    }
}

fn find_request(read: &ReadTx<'_>, hash: &[u8; 32], now: Timestamp) -> Result<BillingRequest> {
    let usable =
        |request: &BillingRequest| request.status != RequestStatus::Offered || request.link_expires_at > now;
    requests::find_by_link(read, hash)?.filter(usable).ok_or_else(|| dead_link().into())
}

fn find_portal(read: &ReadTx<'_>, hash: &[u8; 32], now: Timestamp) -> Result<PlanOverview> {
    let user_key = requests::find_portal_user(read, hash, now)?.ok_or_else(dead_link)?;
    let user = users::find(read, user_key)?.ok_or_else(dead_link)?;
    Ok(PlanOverview { user, waiting: requests::find_undecided(read, user_key)? })
}

fn dead_link() -> Refusal {
    Refusal::new(
        ErrorCode::NotFound,
        "This link is not known, was used before or is too old: ask for a new one",
    )
}

fn decide(tx: &WriteTx<'_>, id: &str, decision: RequestStatus, now: Timestamp) -> Result<BillingRequest> {
    let Some(request) = requests::find(tx, id)? else {
        let message = format!("There is no request {id}: see `cued billing list`");
        return Err(Error::refused(ErrorCode::NotFound, message));
    };
    if !requests::decide(tx, request.key, decision, now)? {
        let message = format!("Request {id} was {} before", request.status.as_str());
        return Err(Error::refused(ErrorCode::InvalidState, message));
    }
    Ok(request)
}
