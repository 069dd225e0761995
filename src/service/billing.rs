//! Changes of plan by users, the operator and Stripe's events (contract §8.6).

use jiff::Timestamp;

use crate::app::App;
use crate::billing::{BillingAccount, BillingContext, Provider};
use crate::domain::account::credentials::sha256;
use crate::domain::account::plan::Plans;
use crate::domain::account::user::{Caller, User};
use crate::domain::api_error::{ErrorCode, Refusal};
use crate::domain::billing::{
    CheckoutCompleted, FREE, Offer, Prices, RequestStatus, StripeEventKind, Subscription,
    SubscriptionState, SubscriptionUpdate, after_update, best_offer, read, verify,
};
use crate::domain::row_keys::UserKey;
use crate::error::{Error, Result};
use crate::service::accounts::change_plan;
use crate::service::fire::CueFirer;
use crate::store::accounts::sessions::{self, LinkKind};
use crate::store::accounts::users;
use crate::store::billing::{self, BillingRequest};
use crate::store::{Pending, ReadTx, Store, WriteTx};

#[derive(Debug, Clone)]
pub struct PlanOverview {
    pub user: User,
    pub pending_request: Option<BillingRequest>,
}

/// Blocks: it may call the payment provider. Errors: `invalid_plan`, `billing_error`.
pub fn checkout(app: &App, caller: &Caller, offer: Offer) -> Result<String> {
    let plan = offer.plan.as_str();
    if app.config.plans.ensure_exists(plan).is_err() {
        return Err(Error::refused(
            ErrorCode::InvalidPlan,
            format!("This server has no plan {plan}"),
        ));
    }
    let account = billing_account(app, caller)?;
    app.billing.checkout(billing_context(app), &account, offer)
}

/// Blocks: it may call the payment provider. Errors: `no_billing_customer`, `billing_error`.
pub fn portal(app: &App, caller: &Caller) -> Result<String> {
    let account = billing_account(app, caller)?;
    app.billing.portal(billing_context(app), &account)
}

/// Finds the request that belongs to a link's token. Errors: `not_found` for an unknown or expired link.
pub fn find_request_by_link(app: &App, token: &str) -> Result<Pending<BillingRequest>> {
    let (now, hash) = (app.clock.now(), link_hash(app, token)?);
    Ok(app.store.read(move |read| find_request(read, &hash, now)))
}

/// Returns a confirmed request unchanged. Errors: `not_found` for an unknown or expired link.
pub fn confirm_request(app: &App, token: &str) -> Result<Pending<BillingRequest>> {
    let (now, hash) = (app.clock.now(), link_hash(app, token)?);
    Ok(app.store.write(move |tx| {
        let request = find_request(tx, &hash, now)?;
        if request.status == RequestStatus::Offered {
            billing::delete_undecided(tx, request.user_key)?;
            billing::confirm_request(tx, request.key, now)?;
        }
        find_request(tx, &hash, now)
    }))
}

/// Finds the plan that a link to the portal page shows. Errors: `not_found` for an unknown or expired link.
pub fn find_plan_by_link(app: &App, token: &str) -> Result<Pending<PlanOverview>> {
    let (now, hash) = (app.clock.now(), link_hash(app, token)?);
    Ok(app.store.read(move |read| find_portal(read, &hash, now)))
}

/// Returns the number of cues that this paused. Errors: `not_found` for an unknown or expired link.
pub fn cancel_plan(app: &App, token: &str) -> Result<Pending<usize>> {
    let (now, hash) = (app.clock.now(), link_hash(app, token)?);
    let firer = CueFirer::new(app, now);
    Ok(app.store.write(move |tx| {
        let user_key = find_portal(tx, &hash, now)?.user.key;
        sessions::delete_link(tx, &hash)?;
        billing::delete_undecided(tx, user_key)?;
        grant_plan(tx, user_key, None, &firer)
    }))
}

/// Returns the request and the number of paused cues. Errors: `plan_request_not_found`, `invalid_plan`, `invalid_state` if decided.
pub fn approve(
    store: &Store,
    plans: Plans,
    id: String,
    now: Timestamp,
) -> Pending<(BillingRequest, usize)> {
    store.write(move |tx| {
        let request = decide(tx, &id, RequestStatus::Approved, now)?;
        let plan = request.offer.plan.as_str();
        plans
            .ensure_exists(plan)
            .map_err(|error| Error::refused(ErrorCode::InvalidPlan, error.to_string()))?;
        let firer = CueFirer::for_command(tx, &plans, now)?;
        let paused = grant_plan(tx, request.user_key, Some(request.offer), &firer)?;
        Ok((request, paused))
    })
}

/// Declines a confirmed request. Errors: `plan_request_not_found`, and `invalid_state` when the request is already decided.
pub fn decline(store: &Store, id: String, now: Timestamp) -> Pending<BillingRequest> {
    store.write(move |tx| decide(tx, &id, RequestStatus::Declined, now))
}

fn grant_plan(
    tx: &WriteTx<'_>,
    user_key: UserKey,
    offer: Option<Offer>,
    firer: &CueFirer,
) -> Result<usize> {
    let plan = offer.map_or(FREE, |offer| offer.plan.as_str());
    let paused = change_plan(tx, user_key, plan, firer.plans().limits(plan), firer)?;
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
        let customer = billing::find_customer(read, user_key)?;
        Ok((user, customer, billing::was_ever_approved(read, user_key)?))
    });
    let (user, customer, was_approved) = found.wait()?;
    let user =
        user.ok_or_else(|| Error::fault("the authenticated user does not exist any more"))?;
    Ok(BillingAccount { user, customer, was_approved })
}

/// The pages exist only with manual billing: a subscription at Stripe can only be cancelled at Stripe.
fn link_hash(app: &App, token: &str) -> Result<[u8; 32]> {
    match app.billing {
        Provider::Manual => Ok(sha256(token.as_bytes())),
        Provider::Stripe(_) => Err(dead_link().into()),
    }
}

fn find_request(read: &ReadTx<'_>, hash: &[u8; 32], now: Timestamp) -> Result<BillingRequest> {
    let usable = |request: &BillingRequest| {
        request.status != RequestStatus::Offered || request.link_expires_at > now
    };
    billing::find_by_link(read, hash)?.filter(usable).ok_or_else(|| dead_link().into())
}

fn find_portal(read: &ReadTx<'_>, hash: &[u8; 32], now: Timestamp) -> Result<PlanOverview> {
    let user_key =
        sessions::find_link_user(read, LinkKind::Plan, hash, now)?.ok_or_else(dead_link)?;
    let user = users::find(read, user_key)?.ok_or_else(dead_link)?;
    Ok(PlanOverview { user, pending_request: billing::find_undecided(read, user_key)? })
}

fn dead_link() -> Refusal {
    Refusal::new(
        ErrorCode::NotFound,
        "This link is unknown, already used or expired: ask for a new one",
    )
}

fn decide(
    tx: &WriteTx<'_>,
    id: &str,
    decision: RequestStatus,
    now: Timestamp,
) -> Result<BillingRequest> {
    let Some(request) = billing::find_request(tx, id)? else {
        let message =
            format!("There is no request {id}: list the requests with `cued billing list`");
        return Err(Error::refused(ErrorCode::PlanRequestNotFound, message));
    };
    if !billing::decide(tx, request.key, decision, now)? {
        let message = format!("Request {id} is already {}", request.status.as_str());
        return Err(Error::refused(ErrorCode::InvalidState, message));
    }
    Ok(request)
}

/// A repeated or irrelevant event succeeds too, so that Stripe does not send it again. Errors: `invalid_signature`,
/// those of a malformed event, `not_found` with manual billing.
pub fn receive_stripe_event(
    app: &App,
    signature: Option<&str>,
    body: &[u8],
) -> Result<Pending<()>> {
    let Provider::Stripe(stripe) = &app.billing else {
        return Err(Error::refused(ErrorCode::NotFound, "Not found: billing with Stripe is off"));
    };
    let now = app.clock.now();
    verify(signature, body, stripe.webhook_secret(), now)?;
    let event = read(body)?;
    let handler =
        StripeEventHandler { prices: stripe.prices().clone(), firer: CueFirer::new(app, now) };
    Ok(app.store.write(move |tx| {
        // Stripe sends some events more than once.
        if billing::record_event(tx, &event.id, now)? {
            handler.handle(tx, event.kind)
        } else {
            Ok(())
        }
    }))
}

struct StripeEventHandler {
    prices: Prices,
    firer: CueFirer,
}

impl StripeEventHandler {
    fn handle(&self, tx: &WriteTx<'_>, kind: StripeEventKind) -> Result<()> {
        match kind {
            StripeEventKind::CheckoutCompleted(checkout) => self.on_checkout(tx, checkout),
            StripeEventKind::Subscription(update) => self.on_subscription(tx, &update),
            StripeEventKind::PaymentFailed { customer } => {
                tx.on_commit(move || {
                    tracing::warn!(
                        customer,
                        "payment failed; the plan stays while Stripe retries it"
                    );
                });
                Ok(())
            }
            StripeEventKind::Other(event_type) => {
                tx.on_commit(move || {
                    tracing::info!(event_type, "ignored an event that changes no plan")
                });
                Ok(())
            }
        }
    }

    fn on_checkout(&self, tx: &WriteTx<'_>, checkout: CheckoutCompleted) -> Result<()> {
        let Some(user) = users::find_by_id(tx, &checkout.user_id)? else {
            let user_id = checkout.user_id;
            tx.on_commit(move || tracing::warn!(user_id, "ignored a checkout of an unknown user"));
            return Ok(());
        };
        billing::link_customer(tx, &checkout.customer, user.key, self.firer.now())?;
        if let (Some(id), Some(offer)) = (checkout.subscription, checkout.paid)
            && billing::find_subscription(tx, &id)?.is_none()
        {
            let state = SubscriptionState::Live;
            let subscription = Subscription {
                id,
                customer: checkout.customer,
                offer,
                state,
                last_event_secs: None,
            };
            billing::save_subscription(tx, &subscription)?;
        }
        self.apply_plan(tx, user.key)
    }

    fn on_subscription(&self, tx: &WriteTx<'_>, update: &SubscriptionUpdate) -> Result<()> {
        let known = billing::find_subscription(tx, &update.id)?;
        let Some(subscription) = after_update(known.as_ref(), update, &self.prices) else {
            let subscription = update.id.clone();
            tx.on_commit(move || {
                tracing::info!(subscription, "ignored a subscription update that changes nothing");
            });
            return Ok(());
        };
        billing::save_subscription(tx, &subscription)?;
        match self.find_user(tx, update)? {
            Some(user_key) => self.apply_plan(tx, user_key),
            None => {
                let customer = update.customer.clone();
                tx.on_commit(move || {
                    tracing::info!(
                        customer,
                        "stored a subscription of a customer that is not linked to a user yet"
                    );
                });
                Ok(())
            }
        }
    }

    fn find_user(&self, tx: &WriteTx<'_>, update: &SubscriptionUpdate) -> Result<Option<UserKey>> {
        if let Some(user_key) = billing::find_customer_user(tx, &update.customer)? {
            return Ok(Some(user_key));
        }
        let Some(id) = &update.user_id else { return Ok(None) };
        let Some(user) = users::find_by_id(tx, id)? else { return Ok(None) };
        billing::link_customer(tx, &update.customer, user.key, self.firer.now())?;
        Ok(Some(user.key))
    }

    /// Without subscriptions the operator has set the plan, and it stays.
    fn apply_plan(&self, tx: &WriteTx<'_>, user_key: UserKey) -> Result<()> {
        let subscriptions = billing::list_subscriptions(tx, user_key)?;
        if !subscriptions.is_empty() {
            grant_plan(tx, user_key, best_offer(&subscriptions), &self.firer)?;
        }
        Ok(())
    }
}
