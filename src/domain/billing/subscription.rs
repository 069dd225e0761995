//! The effect of a payment provider's subscriptions on an account's plan (contract §8).
//!
//! Updates arrive in any order; this module decides which one counts. They are parsed in `stripe_event`.

use crate::domain::billing::offer::{Offer, Prices};
use crate::domain::text::word_enum::word_enum;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Subscription {
    pub id: String,
    /// The provider's id of the customer.
    pub customer: String,
    pub offer: Offer,
    pub state: SubscriptionState,
    /// The time of the newest update, in epoch seconds; `None` when only the checkout is known.
    pub last_event_secs: Option<i64>,
}

word_enum! {
    /// The effect of a subscription.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum SubscriptionState {
        Live = "live",
        /// It does not grant its plan, but may become live again.
        Lapsed = "lapsed",
        /// It has ended for good: no update revives it.
        Over = "over",
    }
}

/// The provider's state of a subscription at one instant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SubscriptionUpdate {
    pub id: String,
    /// The provider's id of the customer.
    pub customer: String,
    /// The user's id, as passed to the checkout.
    pub user_id: Option<String>,
    /// The ids of its prices.
    pub prices: Vec<String>,
    pub status: String,
    /// The time of this state, in epoch seconds.
    pub created: i64,
}

/// The subscription after `update`, or `None` if the update changes nothing: it is older than the known state, the
/// subscription is over, or it was never for one of our prices.
pub fn after_update(
    known: Option<&Subscription>,
    update: &SubscriptionUpdate,
    prices: &Prices,
) -> Option<Subscription> {
    if known.is_some_and(|known| {
        known.state == SubscriptionState::Over || known.last_event_secs > Some(update.created)
    }) {
        return None;
    }
    // A price that was removed from the flags keeps the offer that it was sold as.
    let best = update.prices.iter().filter_map(|price| prices.offer(price)).max();
    let offer = best.or(known.map(|known| known.offer))?;
    Some(Subscription {
        id: update.id.clone(),
        customer: known.map_or(&update.customer, |known| &known.customer).clone(),
        offer,
        state: state_after(&update.status, known.map(|known| known.state)),
        last_event_secs: Some(update.created),
    })
}

/// The offer that the subscriptions of one account grant, the most expensive of several; `None` is the free plan.
pub fn best_offer(subscriptions: &[Subscription]) -> Option<Offer> {
    let live = subscriptions.iter().filter(|subscription| subscription.state == SubscriptionState::Live);
    live.map(|subscription| subscription.offer).max()
}

fn state_after(status: &str, known: Option<SubscriptionState>) -> SubscriptionState {
    match status {
        "active" | "trialing" => SubscriptionState::Live,
        "canceled" | "incomplete_expired" => SubscriptionState::Over,
        "unpaid" | "paused" => SubscriptionState::Lapsed,
        // A payment is late and is retried. Unknown means live: the update that says so may not have arrived yet.
        "past_due" => known.unwrap_or(SubscriptionState::Live),
        // The first payment is in progress.
        _ => known.unwrap_or(SubscriptionState::Lapsed),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::billing::offer::{Interval, PaidPlan};

    const PRO: Offer = Offer { plan: PaidPlan::Pro, interval: Interval::Monthly };
    const SCALE: Offer = Offer { plan: PaidPlan::Scale, interval: Interval::Annual };

    fn prices() -> Prices {
        Prices::new(["pm", "pa", "sm", "sa"].map(str::to_owned)).unwrap()
    }

    fn update(created: i64, status: &str, price: &str) -> SubscriptionUpdate {
        SubscriptionUpdate {
            id: "sub_1".to_owned(),
            customer: "cus_1".to_owned(),
            user_id: None,
            prices: vec![price.to_owned()],
            status: status.to_owned(),
            created,
        }
    }

    /// The result of applying all updates to an unknown subscription.
    fn after_all(all: &[SubscriptionUpdate]) -> Option<(Offer, SubscriptionState)> {
        let mut known = None;
        for update in all {
            known = after_update(known.as_ref(), update, &prices()).or(known);
        }
        known.map(|known: Subscription| (known.offer, known.state))
    }

    #[test]
    fn the_status_decides_whether_the_plan_is_granted() {
        use SubscriptionState as S;
        for (before, status, then) in [
            ("", "active", S::Live),
            ("", "trialing", S::Live),
            ("", "past_due", S::Live),
            ("", "incomplete", S::Lapsed),
            ("", "some_new_word", S::Lapsed),
            ("active", "past_due", S::Live),
            ("active", "some_new_word", S::Live),
            ("unpaid", "past_due", S::Lapsed),
            ("active", "unpaid", S::Lapsed),
            ("active", "paused", S::Lapsed),
            ("unpaid", "active", S::Live),
            ("active", "canceled", S::Over),
            ("incomplete", "incomplete_expired", S::Over),
        ] {
            let mut all = vec![update(2, status, "pm")];
            if !before.is_empty() {
                all.insert(0, update(1, before, "pm"));
            }
            assert_eq!(after_all(&all), Some((PRO, then)), "{before} → {status}");
        }
    }

    #[test]
    fn the_newest_update_counts_and_an_end_is_final() {
        use SubscriptionState as S;
        for (first, second, then) in [
            ((1, "active", "pm"), (2, "active", "sa"), Some((SCALE, S::Live))),
            // Out of order, and in one second.
            ((2, "active", "sa"), (1, "active", "pm"), Some((SCALE, S::Live))),
            ((5, "active", "pm"), (5, "active", "sa"), Some((SCALE, S::Live))),
            ((5, "canceled", "pm"), (5, "active", "pm"), Some((PRO, S::Over))),
            ((1, "active", "price_of_a_mug"), (2, "active", "price_of_a_mug"), None),
            // A removed price keeps its plan, and can end.
            ((1, "active", "pm"), (2, "active", "old"), Some((PRO, S::Live))),
            ((1, "active", "pm"), (2, "canceled", "old"), Some((PRO, S::Over))),
        ] {
            let updates = [first, second].map(|(created, status, price)| update(created, status, price));
            assert_eq!(after_all(&updates), then, "{first:?}, {second:?}");
        }
        let checkout = Subscription {
            id: "sub_1".to_owned(),
            customer: "cus_1".to_owned(),
            offer: PRO,
            state: SubscriptionState::Live,
            last_event_secs: None,
        };
        let then = after_update(Some(&checkout), &update(1, "active", "sa"), &prices()).unwrap();
        assert_eq!((then.offer, then.last_event_secs), (SCALE, Some(1)), "any update overrides the checkout");
    }
}
