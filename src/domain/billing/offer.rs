//! What can be bought, at which of the provider's prices, and the requests of manual billing (contract §8).
//!
//! What a payment provider's subscription does to a plan is in `subscription`.

use jiff::SignedDuration;

use crate::domain::api_error::{ErrorCode, Refusal};
use crate::domain::word_enum::word_enum;

/// The plan that every account falls back to.
pub const FREE: &str = "free";

/// How long the link to a page of manual billing can be used.
pub const LINK_LIFE: SignedDuration = SignedDuration::from_hours(24);

word_enum! {
    /// A plan that costs something. A dearer one is greater.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
    pub enum PaidPlan {
        Pro = "pro",
        Scale = "scale",
    }
}

word_enum! {
    /// How often a plan is paid for.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
    pub enum Interval {
        Monthly = "monthly",
        Annual = "annual",
    }
}

/// What is bought: a plan, paid for at an interval.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Offer {
    pub plan: PaidPlan,
    pub interval: Interval,
}

impl Offer {
    /// Everything that can be bought.
    pub const ALL: [Self; 4] = [
        Self { plan: PaidPlan::Pro, interval: Interval::Monthly },
        Self { plan: PaidPlan::Pro, interval: Interval::Annual },
        Self { plan: PaidPlan::Scale, interval: Interval::Monthly },
        Self { plan: PaidPlan::Scale, interval: Interval::Annual },
    ];

    /// The offer in these words of a request.
    ///
    /// # Errors
    /// `invalid_plan`, `invalid_interval`.
    pub fn asked_for(plan: &str, interval: &str) -> Result<Self, Refusal> {
        let plan = PaidPlan::parse(plan)
            .ok_or_else(|| Refusal::new(ErrorCode::InvalidPlan, "The plan must be pro or scale"))?;
        let interval = Interval::parse(interval).ok_or_else(|| {
            Refusal::new(ErrorCode::InvalidInterval, "The interval must be monthly or annual")
        })?;
        Ok(Self { plan, interval })
    }

    /// The offer in these words, if there is one.
    #[must_use]
    pub fn parse(plan: &str, interval: &str) -> Option<Self> {
        Some(Self { plan: PaidPlan::parse(plan)?, interval: Interval::parse(interval)? })
    }
}

/// The payment provider's ids of the prices of all offers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Prices([String; 4]);

impl Prices {
    /// The prices of [`Offer::ALL`], in its order; nothing when two offers have the same: a subscription to it
    /// could not be told from one to the other.
    #[must_use]
    pub fn new(ids: [String; 4]) -> Option<Self> {
        let distinct = (1..ids.len()).all(|place| !ids[..place].contains(&ids[place]));
        distinct.then_some(Self(ids))
    }

    /// The price of an offer.
    #[must_use]
    pub fn price_id(&self, offer: Offer) -> &str {
        let pairs = Offer::ALL.iter().zip(&self.0);
        pairs.filter(|(it, _)| **it == offer).map(|(_, id)| id.as_str()).next().unwrap_or_default()
    }

    /// The offer that has this price.
    #[must_use]
    pub fn offer(&self, price: &str) -> Option<Offer> {
        Offer::ALL.iter().zip(&self.0).find(|(_, id)| *id == price).map(|(offer, _)| *offer)
    }
}

word_enum! {
    /// Where a request of manual billing stands: offered → requested → approved or declined.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum RequestStatus {
        /// Its page was asked for; the user has not confirmed it.
        Offered = "offered",
        /// The user has confirmed it; the operator decides.
        Requested = "requested",
        /// The plan was given.
        Approved = "approved",
        /// It was not.
        Declined = "declined",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prices(ids: [&str; 4]) -> Option<Prices> {
        Prices::new(ids.map(str::to_owned))
    }

    #[test]
    fn only_pro_and_scale_can_be_bought_monthly_or_annually() {
        for offer in Offer::ALL {
            assert_eq!(Offer::asked_for(offer.plan.as_str(), offer.interval.as_str()), Ok(offer));
        }
        for plan in ["free", "gold", "", "Pro", "pro "] {
            assert_eq!(Offer::asked_for(plan, "monthly").unwrap_err().code, ErrorCode::InvalidPlan, "{plan}");
        }
        for interval in ["yearly", "", "Monthly", "month"] {
            let refusal = Offer::asked_for("pro", interval).unwrap_err();
            assert_eq!(refusal.code, ErrorCode::InvalidInterval, "{interval}");
        }
        // The plan is looked at first: the spec names that code for any other plan.
        assert_eq!(Offer::asked_for("gold", "never").unwrap_err().code, ErrorCode::InvalidPlan);
    }

    #[test]
    fn every_offer_has_its_price_and_every_price_its_offer() {
        let prices = prices(["pm", "pa", "sm", "sa"]).unwrap();
        for (offer, price) in Offer::ALL.into_iter().zip(["pm", "pa", "sm", "sa"]) {
            assert_eq!(prices.price_id(offer), price);
            assert_eq!(prices.offer(price), Some(offer));
        }
        assert_eq!(prices.offer("other"), None);
    }

    #[test]
    fn two_offers_cannot_have_one_price() {
        assert_eq!(prices(["a", "b", "c", "a"]), None);
        assert_eq!(prices(["a", "a", "c", "d"]), None);
    }
}
