//! What a payment provider's events do: plan and interval follow the subscriptions of an account (contract §8).

use jiff::Timestamp;

use crate::actions::billing::grant_plan;
use crate::app::App;
use crate::billing::Provider;
use crate::domain::account::plan::Plans;
use crate::domain::api_error::ErrorCode;
use crate::domain::billing::offer::Prices;
use crate::domain::billing::stripe_event::{CheckoutCompleted, StripeEvent, StripeEventKind, read, verify};
use crate::domain::billing::subscription::{
    Subscription, SubscriptionState, SubscriptionUpdate, after_update, best_offer,
};
use crate::error::{Error, Result};
use crate::store::accounts::users;
use crate::store::billing::subscriptions;
use crate::store::{Pending, WriteTx};

/// Takes a genuine event, once. One that says nothing new is taken as well: the provider need not send it again.
///
/// # Errors
/// `invalid_signature`, what is no event, and `not_found` where the operator takes the money.
pub fn receive(app: &App, signature: Option<&str>, body: &[u8]) -> Result<Pending<()>> {
    let Provider::Stripe(stripe) = &app.billing else {
        return Err(Error::refused(ErrorCode::NotFound, "There is nothing at this path"));
    };
    let now = app.clock.now();
    verify(signature, body, stripe.webhook_secret(), now)?;
    let event = read(body)?;
    let terms = StripeEventHandler { prices: stripe.prices().clone(), plans: app.config.plans.clone(), now };
    Ok(app.store.write(move |tx| if terms.is_new(tx, &event)? { terms.take(tx, event.kind) } else { Ok(()) }))
}

/// What decides about an event beside itself.
struct StripeEventHandler {
    prices: Prices,
    plans: Plans,
    now: Timestamp,
}

impl StripeEventHandler {
    fn is_new(&self, tx: &WriteTx<'_>, event: &StripeEvent) -> Result<bool> {
        subscriptions::take_event(tx, &event.id, self.now)
    }

    fn take(&self, tx: &WriteTx<'_>, what: StripeEventKind) -> Result<()> {
        match what {
            StripeEventKind::CheckoutCompleted(purchase) => self.bought(tx, purchase),
            StripeEventKind::Subscription(news) => self.told(tx, &news),
            StripeEventKind::PaymentFailed { customer } => {
                tracing::warn!(
                    customer,
                    "a payment for a plan has failed; the plan stays while it is tried again"
                );
                Ok(())
            }
            StripeEventKind::Other(kind) => {
                tracing::info!(kind, "a payment event was taken that changes no plan");
                Ok(())
            }
        }
    }

    fn bought(&self, tx: &WriteTx<'_>, purchase: CheckoutCompleted) -> Result<()> {
        let Some(user) = users::find_by_id(tx, &purchase.user_id)? else {
            tracing::warn!(user = purchase.user_id, "a plan was bought for a user who is not known here");
            return Ok(());
        };
        subscriptions::link_customer(tx, &purchase.customer, user.key, self.now)?;
        if let (Some(id), Some(offer)) = (purchase.subscription, purchase.paid)
            && subscriptions::find(tx, &id)?.is_none()
        {
            let standing = SubscriptionState::Live;
            let bought = Subscription { id, customer: purchase.customer, offer, standing, as_of: None };
            subscriptions::save(tx, &bought)?;
        }
        self.follow(tx, user.key)
    }

    fn told(&self, tx: &WriteTx<'_>, news: &SubscriptionUpdate) -> Result<()> {
        let known = subscriptions::find(tx, &news.id)?;
        let Some(subscription) = after_update(known.as_ref(), news, &self.prices) else {
            tracing::info!(subscription = news.id, "news of a subscription came that change nothing");
            return Ok(());
        };
        subscriptions::save(tx, &subscription)?;
        match self.payer(tx, news)? {
            Some(user_key) => self.follow(tx, user_key),
            None => {
                tracing::info!(customer = news.customer, "a subscription's customer is not known yet");
                Ok(())
            }
        }
    }

    /// The account behind a subscription: whose customer it is, or whom the subscription itself names.
    fn payer(&self, tx: &WriteTx<'_>, news: &SubscriptionUpdate) -> Result<Option<i64>> {
        if let Some(user_key) = subscriptions::user_of(tx, &news.customer)? {
            return Ok(Some(user_key));
        }
        let Some(id) = &news.user_id else { return Ok(None) };
        let Some(user) = users::find_by_id(tx, id)? else { return Ok(None) };
        subscriptions::link_customer(tx, &news.customer, user.key, self.now)?;
        Ok(Some(user.key))
    }

    /// Gives the account what its subscriptions pay for. Where there are none, its plan was given by the operator.
    fn follow(&self, tx: &WriteTx<'_>, user_key: i64) -> Result<()> {
        let subscriptions = subscriptions::list_of(tx, user_key)?;
        if !subscriptions.is_empty() {
            grant_plan(tx, &self.plans, user_key, best_offer(&subscriptions), self.now)?;
        }
        Ok(())
    }
}
