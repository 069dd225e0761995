//! The offers, the prices that the payment provider has for them, and the states of manual billing (contract §8).
//!
//! The effect of a subscription on the plan is in `subscription`.

use jiff::SignedDuration;

use crate::domain::api_error::{ErrorCode, Refusal};
use crate::domain::text::word_enum::word_enum;

/// The plan that every account falls back to.
pub const FREE: &str = "free";

/// The lifetime of a link to a manual billing page.
pub const LINK_LIFE: SignedDuration = SignedDuration::from_hours(24);

word_enum! {
    /// A plan that costs money. Ordered by price.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
    pub enum PaidPlan {
        Pro = "pro",
        Scale = "scale",
    }
}

word_enum! {
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
    pub enum Interval {
        Monthly = "monthly",
        Annual = "annual",
    }
}

/// A plan at a billing interval.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Offer {
    pub plan: PaidPlan,
    pub interval: Interval,
}

impl Offer {
    pub const ALL: [Self; 4] = [
        Self { plan: PaidPlan::Pro, interval: Interval::Monthly },
        Self { plan: PaidPlan::Pro, interval: Interval::Annual },
        Self { plan: PaidPlan::Scale, interval: Interval::Monthly },
        Self { plan: PaidPlan::Scale, interval: Interval::Annual },
    ];

    /// Parses the words of a request.
    pub fn from_request(plan: &str, interval: &str) -> Result<Self, Refusal> {
        let plan = PaidPlan::parse(plan)
            .ok_or_else(|| Refusal::new(ErrorCode::InvalidPlan, "The plan must be pro or scale"))?;
        let interval = Interval::parse(interval).ok_or_else(|| {
            Refusal::new(ErrorCode::InvalidInterval, "The interval must be monthly or annual")
        })?;
        Ok(Self { plan, interval })
    }

    pub fn parse(plan: &str, interval: &str) -> Option<Self> {
        Some(Self { plan: PaidPlan::parse(plan)?, interval: Interval::parse(interval)? })
    }
}

/// The payment provider's price id of every offer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Prices([String; 4]);

impl Prices {
    /// The prices of [`Offer::ALL`], in that order. `None` when two offers share a price, because a subscription
    /// could not be assigned to one of them.
    pub fn new(ids: [String; 4]) -> Option<Self> {
        let distinct = (1..ids.len()).all(|place| !ids[..place].contains(&ids[place]));
        distinct.then_some(Self(ids))
    }

    pub fn price_id(&self, offer: Offer) -> &str {
        let pairs = Offer::ALL.iter().zip(&self.0);
        pairs.filter(|(it, _)| **it == offer).map(|(_, id)| id.as_str()).next().unwrap_or_default()
    }

    pub fn offer(&self, price: &str) -> Option<Offer> {
        Offer::ALL.iter().zip(&self.0).find(|(_, id)| *id == price).map(|(offer, _)| *offer)
    }
}

word_enum! {
    /// A request of manual billing: offered → requested → approved or declined.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum RequestStatus {
        /// The link was created; the user has not confirmed it.
        Offered = "offered",
        /// The user has confirmed; the operator decides.
        Requested = "requested",
        Approved = "approved",
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
            assert_eq!(Offer::from_request(offer.plan.as_str(), offer.interval.as_str()), Ok(offer));
        }
        // The plan is checked first: the contract has that code for any unknown plan.
        for (plan, interval, code) in [
            ("free", "monthly", ErrorCode::InvalidPlan),
            ("", "monthly", ErrorCode::InvalidPlan),
            ("Pro", "monthly", ErrorCode::InvalidPlan),
            ("gold", "never", ErrorCode::InvalidPlan),
            ("pro", "yearly", ErrorCode::InvalidInterval),
            ("pro", "", ErrorCode::InvalidInterval),
            ("pro", "Monthly", ErrorCode::InvalidInterval),
        ] {
            assert_eq!(Offer::from_request(plan, interval).unwrap_err().code, code, "{plan} {interval}");
        }
    }

    #[test]
    fn offers_and_prices_convert_into_each_other_and_two_offers_cannot_have_one_price() {
        let ids = ["pm", "pa", "sm", "sa"];
        let known = prices(ids).unwrap();
        for (offer, price) in Offer::ALL.into_iter().zip(ids) {
            assert_eq!((known.price_id(offer), known.offer(price)), (price, Some(offer)));
        }
        assert_eq!(
            (known.offer("other"), prices(["a", "b", "c", "a"]), prices(["a", "a", "c", "d"])),
            (None, None, None)
        );
    }
}
