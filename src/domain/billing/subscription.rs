//! What the news of a payment provider's subscriptions makes of an account's plan (contract §8).
//!
//! News arrive in any order: which of them counts is decided here. Reading them is in `payment_event`.

use crate::domain::billing::offer::{Offer, Prices};

/// What is known of one subscription.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Subscription {
    /// The provider's id of it.
    pub id: String,
    /// The provider's id of who pays for it.
    pub customer: String,
    /// What it pays for.
    pub offer: Offer,
    /// Whether it counts.
    pub standing: SubscriptionState,
    /// When the newest news of it were made, in epoch seconds; none where only the purchase is known.
    pub as_of: Option<i64>,
}

/// Whether a subscription gives its plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SubscriptionState {
    /// It does.
    Live,
    /// It does not, but may again.
    Lapsed,
    /// It has ended for good: no news bring it back.
    Over,
}

impl SubscriptionState {
    /// The word for it in a column.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Live => "live",
            Self::Lapsed => "lapsed",
            Self::Over => "over",
        }
    }

    /// The standing that `word` names.
    #[must_use]
    pub fn parse(word: &str) -> Option<Self> {
        [Self::Live, Self::Lapsed, Self::Over].into_iter().find(|it| it.as_str() == word)
    }
}

/// What the provider says of a subscription at one instant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SubscriptionUpdate {
    /// The provider's id of the subscription.
    pub id: String,
    /// The provider's id of who pays for it.
    pub customer: String,
    /// The account's id, as it was given with the purchase.
    pub user_id: Option<String>,
    /// The ids of the prices that it consists of.
    pub prices: Vec<String>,
    /// The provider's word for its state.
    pub status: String,
    /// When this was so, in epoch seconds.
    pub created: i64,
}

/// The subscription after `news`, where they change what is `known` of it. They do not when they are older than what
/// is known, when it is over, or when it was never one of our prices.
#[must_use]
pub fn after(
    known: Option<&Subscription>,
    news: &SubscriptionUpdate,
    prices: &Prices,
) -> Option<Subscription> {
    if known
        .is_some_and(|known| known.standing == SubscriptionState::Over || known.as_of > Some(news.created))
    {
        return None;
    }
    // A price that was taken out of the flags still means what it meant when it was bought.
    let dearest = news.prices.iter().filter_map(|price| prices.offer(price)).max();
    let offer = dearest.or(known.map(|known| known.offer))?;
    Some(Subscription {
        id: news.id.clone(),
        customer: known.map_or(&news.customer, |known| &known.customer).clone(),
        offer,
        standing: standing(&news.status, known.map(|known| known.standing)),
        as_of: Some(news.created),
    })
}

/// What these subscriptions of one account give it; nothing is the free plan. Of several the dearest counts.
#[must_use]
pub fn offer_of(subscriptions: &[Subscription]) -> Option<Offer> {
    let live = subscriptions.iter().filter(|subscription| subscription.standing == SubscriptionState::Live);
    live.map(|subscription| subscription.offer).max()
}

fn standing(status: &str, known: Option<SubscriptionState>) -> SubscriptionState {
    match status {
        "active" | "trialing" => SubscriptionState::Live,
        "canceled" | "incomplete_expired" => SubscriptionState::Over,
        "unpaid" | "paused" => SubscriptionState::Lapsed,
        // A payment is late and tried again. It was live before: that news may still be on its way.
        "past_due" => known.unwrap_or(SubscriptionState::Live),
        // The first payment is under way.
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

    fn news(created: i64, status: &str, price: &str) -> SubscriptionUpdate {
        SubscriptionUpdate {
            id: "sub_1".to_owned(),
            customer: "cus_1".to_owned(),
            user_id: None,
            prices: vec![price.to_owned()],
            status: status.to_owned(),
            created,
        }
    }

    /// What all of the news make of a subscription that was not known.
    fn told(all: &[SubscriptionUpdate]) -> Option<(Offer, SubscriptionState)> {
        let mut known = None;
        for news in all {
            known = after(known.as_ref(), news, &prices()).or(known);
        }
        known.map(|known: Subscription| (known.offer, known.standing))
    }

    #[test]
    fn the_status_decides_whether_the_plan_applies() {
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
            let all: Vec<SubscriptionUpdate> = [before, status]
                .into_iter()
                .filter(|word| !word.is_empty())
                .zip(1..)
                .map(|(word, at)| news(at, word, "pm"))
                .collect();
            assert_eq!(told(&all), Some((PRO, then)), "{before} → {status}");
        }
    }

    #[test]
    fn older_updates_never_override_newer_ones() {
        let (pro, scale) = (news(1, "active", "pm"), news(2, "active", "sa"));
        assert_eq!(told(&[pro.clone(), scale.clone()]), Some((SCALE, SubscriptionState::Live)));
        assert_eq!(told(&[scale, pro]), Some((SCALE, SubscriptionState::Live)));
    }

    #[test]
    fn an_ended_subscription_stays_ended_within_the_same_second() {
        let (active, canceled) = (news(5, "active", "pm"), news(5, "canceled", "pm"));
        assert_eq!(told(&[canceled, active]), Some((PRO, SubscriptionState::Over)));
    }

    #[test]
    fn within_one_second_the_later_arrival_counts() {
        assert_eq!(
            told(&[news(5, "active", "pm"), news(5, "active", "sa")]),
            Some((SCALE, SubscriptionState::Live))
        );
    }

    #[test]
    fn an_unknown_price_is_ignored() {
        assert_eq!(told(&[news(1, "active", "price_of_a_mug")]), None);
    }

    #[test]
    fn a_removed_price_keeps_its_plan_and_can_end() {
        let bought = news(1, "active", "pm");
        assert_eq!(told(&[bought.clone(), news(2, "active", "old")]), Some((PRO, SubscriptionState::Live)));
        assert_eq!(told(&[bought, news(2, "canceled", "old")]), Some((PRO, SubscriptionState::Over)));
    }

    #[test]
    fn any_update_overrides_the_purchase_alone() {
        let purchase = Subscription {
            id: "sub_1".to_owned(),
            customer: "cus_1".to_owned(),
            offer: PRO,
            standing: SubscriptionState::Live,
            as_of: None,
        };
        let then = after(Some(&purchase), &news(1, "active", "sa"), &prices()).unwrap();
        assert_eq!((then.offer, then.as_of), (SCALE, Some(1)));
    }

    #[test]
    fn the_most_expensive_live_subscription_counts() {
        let of = |offer, standing| Subscription {
            id: String::new(),
            customer: String::new(),
            offer,
            standing,
            as_of: None,
        };
        assert_eq!(
            offer_of(&[of(PRO, SubscriptionState::Live), of(SCALE, SubscriptionState::Live)]),
            Some(SCALE)
        );
        assert_eq!(
            offer_of(&[of(PRO, SubscriptionState::Live), of(SCALE, SubscriptionState::Over)]),
            Some(PRO)
        );
        assert_eq!(offer_of(&[of(SCALE, SubscriptionState::Lapsed)]), None);
        assert_eq!(offer_of(&[]), None);
    }
}
