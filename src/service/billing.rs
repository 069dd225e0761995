//! Changes of plan: checkout and portal for users, decisions of the operator. Stripe's events are in `stripe_events`.

use jiff::Timestamp;

use crate::app::App;
use crate::billing::{BillingAccount, BillingContext, Provider};
use crate::domain::account::credentials::sha256;
use crate::domain::account::plan::Plans;
use crate::domain::account::user::{Caller, User};
use crate::domain::api_error::{ErrorCode, Refusal};
use crate::domain::billing::offer::{FREE, Offer, RequestStatus};
use crate::error::{Error, Result};
use crate::service::accounts::change_plan;
use crate::service::fire::CueFirer;
use crate::store::accounts::sessions::{self, LinkKind};
use crate::store::accounts::users;
use crate::store::billing::requests::{self, BillingRequest};
use crate::store::billing::subscriptions;
use crate::store::{Pending, ReadTx, Store, WriteTx};

/// The plan of a user and the request that may change it.
#[derive(Debug, Clone)]
pub struct PlanOverview {
    pub user: User,
    /// The request that the operator has not decided yet.
    pub pending_request: Option<BillingRequest>,
}

/// Returns the URL of a page where the caller buys or requests a plan. Blocks: it may call the payment provider.
/// Errors: `invalid_plan` when the server has no such plan, `billing_error`.
pub fn checkout(app: &App, caller: &Caller, offer: Offer) -> Result<String> {
    let plan = offer.plan.as_str();
    if app.config.plans.ensure_exists(plan).is_err() {
        return Err(Error::refused(ErrorCode::InvalidPlan, format!("This server has no plan {plan}")));
    }
    let account = billing_account(app, caller)?;
    app.billing.checkout(billing_context(app), &account, offer)
}

/// Returns the URL of a page where the caller sees and cancels its plan. Blocks: it may call the payment provider.
/// Errors: `no_billing_customer`, `billing_error`.
pub fn portal(app: &App, caller: &Caller) -> Result<String> {
    let account = billing_account(app, caller)?;
    app.billing.portal(billing_context(app), &account)
}

/// Finds the request that belongs to a link's token. Errors: `not_found` for an unknown or expired link.
pub fn find_request_by_link(app: &App, token: &str) -> Result<Pending<BillingRequest>> {
    let (now, hash) = (app.clock.now(), link_hash(app, token)?);
    Ok(app.store.read(move |read| find_request(read, &hash, now)))
}

/// Confirms the request that belongs to a link and deletes an earlier undecided request of the same user. A request
/// that was already confirmed is returned unchanged. Errors: `not_found` for an unknown or expired link.
pub fn confirm_request(app: &App, token: &str) -> Result<Pending<BillingRequest>> {
    let (now, hash) = (app.clock.now(), link_hash(app, token)?);
    Ok(app.store.write(move |tx| {
        let request = find_request(tx, &hash, now)?;
        if request.status == RequestStatus::Offered {
            requests::delete_undecided(tx, request.user_key)?;
            requests::confirm(tx, request.key, now)?;
        }
        find_request(tx, &hash, now)
    }))
}

/// Finds the plan that a link to the portal page shows. Errors: `not_found` for an unknown or expired link.
pub fn find_plan_by_link(app: &App, token: &str) -> Result<Pending<PlanOverview>> {
    let (now, hash) = (app.clock.now(), link_hash(app, token)?);
    Ok(app.store.read(move |read| find_portal(read, &hash, now)))
}

/// Cancels a user's plan and its undecided request, and invalidates the link. Returns the number of cues that this
/// paused. Errors: `not_found` for an unknown or expired link.
pub fn cancel_plan(app: &App, token: &str) -> Result<Pending<usize>> {
    let (now, hash) = (app.clock.now(), link_hash(app, token)?);
    let plans = app.config.plans.clone();
    let firer = CueFirer::new(app, now);
    Ok(app.store.write(move |tx| {
        let user_key = find_portal(tx, &hash, now)?.user.key;
        sessions::delete_link(tx, &hash)?;
        requests::delete_undecided(tx, user_key)?;
        grant_plan(tx, &plans, user_key, None, &firer)
    }))
}

/// Approves a confirmed request. The plan applies from the user's next request on. Returns the request and the number of
/// cues that a lower limit paused.
/// Errors: `not_found`, `invalid_plan`, and `invalid_state` when the request is already decided.
pub fn approve(store: &Store, plans: Plans, id: String, now: Timestamp) -> Pending<(BillingRequest, usize)> {
    store.write(move |tx| {
        let request = decide(tx, &id, RequestStatus::Approved, now)?;
        let plan = request.offer.plan.as_str();
        plans
            .ensure_exists(plan)
            .map_err(|error| Error::refused(ErrorCode::InvalidPlan, error.to_string()))?;
        let firer = CueFirer::of_command(tx, &plans, now)?;
        let paused = grant_plan(tx, &plans, request.user_key, Some(request.offer), &firer)?;
        Ok((request, paused))
    })
}

/// Declines a confirmed request. Errors: `not_found`, and `invalid_state` when the request is already decided.
pub fn decline(store: &Store, id: String, now: Timestamp) -> Pending<BillingRequest> {
    store.write(move |tx| decide(tx, &id, RequestStatus::Declined, now))
}

/// Sets the plan of an offer, or the free plan. Returns the number of cues that a lower limit paused.
pub(super) fn grant_plan(
    tx: &WriteTx<'_>,
    plans: &Plans,
    user_key: i64,
    offer: Option<Offer>,
    firer: &CueFirer,
) -> Result<usize> {
    let plan = offer.map_or(FREE, |offer| offer.plan.as_str());
    let paused = change_plan(tx, user_key, plan, plans.limits(plan), firer)?;
    users::set_plan_interval(tx, user_key, offer.map(|offer| offer.interval))?;
    Ok(paused)
}

fn billing_context(app: &App) -> BillingContext<'_> {
    BillingContext { store: &app.store, public_url: &app.config.public_url, now: app.clock.now() }
}

fn billing_account(app: &App, caller: &Caller) -> Result<BillingAccount> {
    let user_key = caller.user_key;
    let found = app.store.read(move |read| {
        let user = users::find(read, user_key)?;
        let customer = subscriptions::find_customer(read, user_key)?;
        Ok((user, customer, requests::was_ever_approved(read, user_key)?))
    });
    let (user, customer, was_approved) = found.wait()?;
    let user = user.ok_or_else(|| Error::fault("the authenticated user does not exist any more"))?;
    Ok(BillingAccount { user, customer, was_approved })
}

/// Returns the stored hash of a link's token. The pages exist only with manual billing: a subscription at Stripe can only
/// be cancelled at Stripe.
fn link_hash(app: &App, token: &str) -> Result<[u8; 32]> {
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
    let user_key = sessions::find_link_user(read, LinkKind::Plan, hash, now)?.ok_or_else(dead_link)?;
    let user = users::find(read, user_key)?.ok_or_else(dead_link)?;
    Ok(PlanOverview { user, pending_request: requests::find_undecided(read, user_key)? })
}

fn dead_link() -> Refusal {
    Refusal::new(ErrorCode::NotFound, "This link is unknown, already used or expired: ask for a new one")
}

fn decide(tx: &WriteTx<'_>, id: &str, decision: RequestStatus, now: Timestamp) -> Result<BillingRequest> {
    let Some(request) = requests::find(tx, id)? else {
        let message = format!("There is no request {id}: list the requests with `cued billing list`");
        return Err(Error::refused(ErrorCode::NotFound, message));
    };
    if !requests::decide(tx, request.key, decision, now)? {
        let message = format!("Request {id} is already {}", request.status.as_str());
        return Err(Error::refused(ErrorCode::InvalidState, message));
    }
    Ok(request)
}
