//! Billing (contract §8): the offers and their prices, the events of the payment provider, and the effect of its
//! subscriptions on an account's plan. Updates arrive in any order; this module decides which one counts.

use jiff::{SignedDuration, Timestamp};
use ring::hmac;
use serde_json::Value;

use crate::domain::api_error::{ErrorCode, Refusal};
use crate::domain::json;
use crate::domain::text::{hex, word_enum};

pub const FREE: &str = "free";

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
        Offered = "offered",
        Requested = "requested",
        Approved = "approved",
        Declined = "declined",
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Subscription {
    pub id: String,
    pub customer: String,
    pub offer: Offer,
    pub state: SubscriptionState,
    /// The time of the newest update, in epoch seconds; `None` when only the checkout is known.
    pub last_event_secs: Option<i64>,
}

word_enum! {
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum SubscriptionState {
        Live = "live",
        /// It does not grant its plan, but may become live again.
        Lapsed = "lapsed",
        /// It has ended for good: no update revives it.
        Over = "over",
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SubscriptionUpdate {
    pub id: String,
    pub customer: String,
    pub user_id: Option<String>,
    pub prices: Vec<String>,
    pub status: String,
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
    let live =
        subscriptions.iter().filter(|subscription| subscription.state == SubscriptionState::Live);
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

const TOLERANCE_SECS: i64 = 300;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StripeEvent {
    /// The provider's id. The same event may be sent several times.
    pub id: String,
    pub kind: StripeEventKind,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StripeEventKind {
    CheckoutCompleted(CheckoutCompleted),
    Subscription(SubscriptionUpdate),
    /// A payment failed. Its effect on the subscription arrives as an event of its own.
    PaymentFailed {
        customer: String,
    },
    Other(String),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckoutCompleted {
    pub user_id: String,
    pub customer: String,
    pub subscription: Option<String>,
    pub paid: Option<Offer>,
}

pub fn verify(
    header: Option<&str>,
    body: &[u8],
    secret: &str,
    now: Timestamp,
) -> Result<(), Refusal> {
    let refusal = |why| Err(Refusal::new(ErrorCode::InvalidSignature, why));
    let Some(header) = header else { return refusal("The Stripe-Signature header is missing") };
    let values = |name: &'static str| {
        let fields = header.split(',').filter_map(|field| field.trim().split_once('='));
        fields.filter(move |(known, _)| *known == name).map(|(_, value)| value)
    };
    let (Some(time), 1) = (values("t").next(), values("t").count()) else {
        return refusal("The signature must have exactly one time");
    };
    let Ok(seconds) = time.parse::<i64>() else {
        return refusal("The signature's time is not a number");
    };
    let key = hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes());
    let message = [time.as_bytes(), b".", body].concat();
    // `hmac::verify` compares in constant time.
    let genuine =
        values("v1").filter_map(hex::decode).any(|tag| hmac::verify(&key, &message, &tag).is_ok());
    if !genuine {
        return refusal("The signature does not match the body");
    }
    if now.as_second().saturating_sub(seconds).saturating_abs() > TOLERANCE_SECS {
        return refusal("The signature's time is too far from the current time");
    }
    Ok(())
}

/// Parses a verified body.
/// Errors: `invalid_json`, or `bad_request` for JSON that is not an event.
pub fn read(body: &[u8]) -> Result<StripeEvent, Refusal> {
    let event = json::read(body)?.get().to_value();
    let lacks =
        |what: &str| Refusal::new(ErrorCode::BadRequest, format!("The event has no {what}"));
    let id = text(&event, "/id").ok_or_else(|| lacks("id"))?;
    let word = text(&event, "/type").ok_or_else(|| lacks("type"))?;
    let kind = match word.as_str() {
        "checkout.session.completed" | "checkout.session.async_payment_succeeded" => {
            checkout(&event).map(StripeEventKind::CheckoutCompleted)
        }
        "customer.subscription.created" | "customer.subscription.updated" => {
            update(&event, None).map(StripeEventKind::Subscription)
        }
        "customer.subscription.deleted" => {
            update(&event, Some("canceled")).map(StripeEventKind::Subscription)
        }
        "invoice.payment_failed" => text(&event, "/data/object/customer")
            .map(|customer| StripeEventKind::PaymentFailed { customer }),
        _ => None,
    };
    // An event of a known type without the required fields does not concern us: a payment without a subscription, for
    // example.
    Ok(StripeEvent { id, kind: kind.unwrap_or(StripeEventKind::Other(word)) })
}

fn checkout(event: &Value) -> Option<CheckoutCompleted> {
    let at = |path: &str| text(event, &format!("/data/object{path}"));
    let word = |path: &str| at(path).unwrap_or_default();
    let offer = Offer::parse(&word("/metadata/plan"), &word("/metadata/interval"));
    Some(CheckoutCompleted {
        user_id: at("/client_reference_id")?,
        customer: at("/customer")?,
        subscription: at("/subscription"),
        paid: offer.filter(|_| word("/payment_status") != "unpaid"),
    })
}

fn update(event: &Value, status: Option<&str>) -> Option<SubscriptionUpdate> {
    let at = |path: &str| text(event, &format!("/data/object{path}"));
    let items = event.pointer("/data/object/items/data").and_then(Value::as_array);
    let prices = items.into_iter().flatten().filter_map(|item| text(item, "/price/id")).collect();
    Some(SubscriptionUpdate {
        id: at("/id")?,
        customer: at("/customer")?,
        user_id: at("/metadata/user_id"),
        prices,
        status: status.map_or_else(|| at("/status"), |status| Some(status.to_owned()))?,
        created: event.get("created")?.as_i64()?,
    })
}

fn text(value: &Value, pointer: &str) -> Option<String> {
    value.pointer(pointer)?.as_str().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offers_and_prices_convert_into_each_other_and_two_offers_cannot_have_one_price() {
        let known = prices();
        for (offer, price) in Offer::ALL.into_iter().zip(["pm", "pa", "sm", "sa"]) {
            assert_eq!((known.price_id(offer), known.offer(price)), (price, Some(offer)));
        }
        let shared = Prices::new(["a", "b", "c", "a"].map(str::to_owned));
        assert_eq!((known.offer("other"), shared), (None, None));
    }

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
            let updates =
                [first, second].map(|(created, status, price)| update(created, status, price));
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
        assert_eq!(
            (then.offer, then.last_event_secs),
            (SCALE, Some(1)),
            "any update overrides the checkout"
        );
    }

    const SECRET: &str = "whsec_test";
    const BODY: &[u8] = br#"{"id": "evt_1"}"#;
    const AT: i64 = 1_767_225_600;
    // Computed with Python: hmac.new(b"whsec_test", b"1767225600." + body, "sha256").hexdigest()
    const TAG: &str = "cadaa7d3969bfb3d2eb29334f30dba6a9887b21221ab72200cff0ad25e8a7bc0";

    fn check(header: &str, body: &[u8], now: i64) -> bool {
        verify(Some(header), body, SECRET, Timestamp::from_second(now).unwrap()).is_ok()
    }

    #[test]
    fn only_a_signature_of_the_same_secret_time_and_body_is_valid_for_five_minutes_either_way() {
        let (header, zeros) = (format!("t={AT},v1={TAG}"), "0".repeat(64));
        for valid in [
            &header,
            &format!("t={AT},v1={zeros},v1={TAG},v0={zeros}"),
            &format!("t={AT}, v1={TAG}"),
        ] {
            assert!(check(valid, BODY, AT), "{valid}");
        }
        for (now, passes) in
            [(AT + 300, true), (AT + 301, false), (AT - 300, true), (AT - 301, false)]
        {
            assert_eq!(check(&header, BODY, now), passes, "{now}");
        }
        assert!(!check(&header, br#"{"id": "evt_2"}"#, AT));
        let changed =
            [header.replace("v1=", "v0="), format!("{header}0"), format!("t={},v1={TAG}", AT + 1)];
        let incomplete = [format!("v1={TAG}"), format!("t=1,{header}"), format!("t=x,v1={TAG}")];
        let odd = changed.iter().chain(&incomplete).map(String::as_str);
        for odd in odd.chain(["", "t=", "v1=", &header[..header.len() - 2]]) {
            assert!(!check(odd, BODY, AT), "{odd}");
        }
        let now = Timestamp::from_second(AT).unwrap();
        assert!(verify(None, BODY, SECRET, now).is_err());
        assert!(verify(Some(&header), BODY, "whsec_other", now).is_err());
    }
}
