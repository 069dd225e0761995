//! Stripe's webhook events: the plan and interval of an account follow its subscriptions (contract §8.6).

use jiff::Timestamp;

use crate::app::App;
use crate::billing::Provider;
use crate::domain::account::plan::Plans;
use crate::domain::api_error::ErrorCode;
use crate::domain::billing::offer::Prices;
use crate::domain::billing::subscription::{
    CheckoutCompleted, StripeEvent, StripeEventKind, Subscription, SubscriptionState, SubscriptionUpdate,
    after_update, best_offer, read, verify,
};
use crate::error::{Error, Result};
use crate::service::billing::grant_plan;
use crate::service::fire::CueFirer;
use crate::store::accounts::users;
use crate::store::billing::subscriptions;
use crate::store::{Pending, WriteTx};

/// Processes an event once. A repeated or irrelevant event also succeeds, so that Stripe does not send it again.
/// Errors: `invalid_signature`, the errors of a malformed event, and `not_found` with manual billing.
pub fn receive(app: &App, signature: Option<&str>, body: &[u8]) -> Result<Pending<()>> {
    let Provider::Stripe(stripe) = &app.billing else {
        return Err(Error::refused(ErrorCode::NotFound, "Not found: billing with Stripe is off"));
    };
    let now = app.clock.now();
    verify(signature, body, stripe.webhook_secret(), now)?;
    let event = read(body)?;
    let (prices, plans) = (stripe.prices().clone(), app.config.plans.clone());
    let handler = StripeEventHandler { prices, plans, firer: CueFirer::new(app, now), now };
    Ok(app
        .store
        .write(move |tx| if handler.is_new(tx, &event)? { handler.handle(tx, event.kind) } else { Ok(()) }))
}

/// The prices, plans, firer and time that an event is interpreted with.
struct StripeEventHandler {
    prices: Prices,
    plans: Plans,
    firer: CueFirer,
    now: Timestamp,
}

impl StripeEventHandler {
    fn is_new(&self, tx: &WriteTx<'_>, event: &StripeEvent) -> Result<bool> {
        subscriptions::record_event(tx, &event.id, self.now)
    }

    fn handle(&self, tx: &WriteTx<'_>, kind: StripeEventKind) -> Result<()> {
        match kind {
            StripeEventKind::CheckoutCompleted(checkout) => self.on_checkout(tx, checkout),
            StripeEventKind::Subscription(update) => self.on_subscription(tx, &update),
            StripeEventKind::PaymentFailed { customer } => {
                tx.on_commit(move || {
                    tracing::warn!(customer, "payment failed; the plan stays while Stripe retries it");
                });
                Ok(())
            }
            StripeEventKind::Other(event_type) => {
                tx.on_commit(move || tracing::info!(event_type, "ignored an event that changes no plan"));
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
        subscriptions::link_customer(tx, &checkout.customer, user.key, self.now)?;
        if let (Some(id), Some(offer)) = (checkout.subscription, checkout.paid)
            && subscriptions::find(tx, &id)?.is_none()
        {
            let state = SubscriptionState::Live;
            let subscription =
                Subscription { id, customer: checkout.customer, offer, state, last_event_secs: None };
            subscriptions::save(tx, &subscription)?;
        }
        self.apply_plan(tx, user.key)
    }

    fn on_subscription(&self, tx: &WriteTx<'_>, update: &SubscriptionUpdate) -> Result<()> {
        let known = subscriptions::find(tx, &update.id)?;
        let Some(subscription) = after_update(known.as_ref(), update, &self.prices) else {
            let subscription = update.id.clone();
            tx.on_commit(move || {
                tracing::info!(subscription, "ignored a subscription update that changes nothing");
            });
            return Ok(());
        };
        subscriptions::save(tx, &subscription)?;
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

    /// Finds the user of a subscription by its customer, or by the user id in the subscription's metadata.
    fn find_user(&self, tx: &WriteTx<'_>, update: &SubscriptionUpdate) -> Result<Option<i64>> {
        if let Some(user_key) = subscriptions::find_user_key(tx, &update.customer)? {
            return Ok(Some(user_key));
        }
        let Some(id) = &update.user_id else { return Ok(None) };
        let Some(user) = users::find_by_id(tx, id)? else { return Ok(None) };
        subscriptions::link_customer(tx, &update.customer, user.key, self.now)?;
        Ok(Some(user.key))
    }

    /// Sets the plan that the account's subscriptions pay for. Without subscriptions the plan was set by the operator and
    /// stays.
    fn apply_plan(&self, tx: &WriteTx<'_>, user_key: i64) -> Result<()> {
        let subscriptions = subscriptions::list_by_user(tx, user_key)?;
        if !subscriptions.is_empty() {
            grant_plan(tx, &self.plans, user_key, best_offer(&subscriptions), &self.firer)?;
        }
        Ok(())
    }
}
