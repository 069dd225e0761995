//! Stripe's HTTP API: checkout and portal sessions. Its events are read in `domain::payment_event`.
//!
//! Neither key nor secret shows in `Debug` or in the log.

use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::Value;
use ureq::Agent;
use ureq::http::Response;

use crate::billing::BillingAccount;
use crate::domain::api_error::{ErrorCode, Refusal};
use crate::domain::billing::offer::{Offer, Prices};
use crate::domain::json;
use crate::error::Result;
use crate::random;

/// Where the API is.
pub const API_BASE: &str = "https://api.stripe.com";
/// The time for a whole call.
pub const TIMEOUT: Duration = Duration::from_secs(20);

/// Calls at a time: each holds a thread, for as long as [`TIMEOUT`] when the provider hangs.
const MAX_CALLS: usize = 16;
const MAX_RESPONSE_BYTES: u64 = 1 << 20;
const SHOWN_CHARS: usize = 300;

/// How to reach the account at the provider.
#[derive(Clone)]
pub struct StripeConfig {
    /// What calls show.
    pub secret_key: String,
    /// What events are signed with.
    pub webhook_secret: String,
    /// What the offers cost.
    pub prices: Prices,
    /// Where the API is, without a slash at its end.
    pub api_base: String,
    /// The time for a whole call.
    pub timeout: Duration,
}

impl fmt::Debug for StripeConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { prices, api_base, timeout, .. } = self;
        f.debug_struct("StripeSettings")
            .field("prices", prices)
            .field("api_base", api_base)
            .field("timeout", timeout)
            .finish_non_exhaustive()
    }
}

/// The account at the provider.
#[derive(Debug)]
pub struct Stripe {
    config: StripeConfig,
    agent: Agent,
    calls: AtomicUsize,
}

/// Why a call brought nothing: for the operator.
struct StripeError(String);

impl Stripe {
    /// An account that nothing was asked of yet.
    #[must_use]
    pub fn new(config: StripeConfig) -> Self {
        let agent_config = Agent::config_builder()
            // The flags say where calls go, nothing else does.
            .proxy(None)
            .max_redirects(0)
            .http_status_as_error(false)
            .timeout_global(Some(config.timeout))
            .user_agent(concat!("cued/", env!("CARGO_PKG_VERSION")))
            .build();
        Self { config, agent: Agent::new_with_config(agent_config), calls: AtomicUsize::new(0) }
    }

    /// What events are signed with.
    #[must_use]
    pub fn webhook_secret(&self) -> &str {
        &self.config.webhook_secret
    }

    /// What the offers cost.
    #[must_use]
    pub fn prices(&self) -> &Prices {
        &self.config.prices
    }

    /// The address of a checkout session in which the buyer subscribes to an offer.
    ///
    /// # Errors
    /// `billing_error`, `server_busy`.
    pub fn checkout(&self, public_url: &str, buyer: &BillingAccount, offer: Offer) -> Result<String> {
        let user = &buyer.user;
        let who = match &buyer.customer {
            Some(customer) => ("customer", customer.as_str()),
            None => ("customer_email", user.email.as_str()),
        };
        let (success_url, cancel_url) =
            (format!("{public_url}/billing/thanks"), format!("{public_url}/billing/closed"));
        let form = [
            ("mode", "subscription"),
            ("line_items[0][price]", self.config.prices.price_id(offer)),
            ("line_items[0][quantity]", "1"),
            who,
            ("success_url", &success_url),
            ("cancel_url", &cancel_url),
            ("client_reference_id", &user.id),
            ("metadata[user_id]", &user.id),
            ("metadata[plan]", offer.plan.as_str()),
            ("metadata[interval]", offer.interval.as_str()),
            // News of the subscription may come before the purchase: they name the account themselves.
            ("subscription_data[metadata][user_id]", &user.id),
        ];
        self.session("/v1/checkout/sessions", &form)
    }

    /// The address of a portal session of a customer.
    ///
    /// # Errors
    /// `billing_error`, `server_busy`.
    pub fn portal(&self, public_url: &str, customer: &str) -> Result<String> {
        let return_url = format!("{public_url}/billing/closed");
        self.session("/v1/billing_portal/sessions", &[("customer", customer), ("return_url", &return_url)])
    }

    fn session(&self, path: &str, form: &[(&str, &str)]) -> Result<String> {
        let key = uuid::Builder::from_random_bytes(random::bytes()?).into_uuid().to_string();
        let Some(_turn) = CallPermit::take(&self.calls) else {
            let message = "Too many calls to the payment provider are under way; try again";
            return Err(
                Refusal { retry_after: Some(1), ..Refusal::new(ErrorCode::ServerBusy, message) }.into()
            );
        };
        self.post(path, form, &key).map_err(|StripeError(what)| {
            tracing::error!(path, "the payment provider gave no session: {}", self.without_secrets(&what));
            let message = "The payment provider does not answer as it should; try again later";
            Refusal::new(ErrorCode::BillingError, message).into()
        })
    }

    fn post(&self, path: &str, form: &[(&str, &str)], key: &str) -> std::result::Result<String, StripeError> {
        let mut response = self
            .agent
            .post(format!("{}{path}", self.config.api_base))
            .header("Authorization", format!("Bearer {}", self.config.secret_key))
            .header("Idempotency-Key", key)
            .send_form(form.iter().copied())
            .map_err(|error| StripeError(error.to_string()))?;
        let body = response.body_mut().with_config().limit(MAX_RESPONSE_BYTES).read_to_vec();
        let body = body.map_err(|error| StripeError(error.to_string()))?;
        if !response.status().is_success() {
            return Err(refused(&response, &body));
        }
        let answer =
            json::read(&body).map_err(|error| StripeError(format!("the answer is no JSON: {error}")))?;
        match answer.get("url").and_then(Value::as_str) {
            Some(url) if url.starts_with("https://") || url.starts_with("http://") => Ok(url.to_owned()),
            _ => Err(StripeError("the session in the answer has no url".to_owned())),
        }
    }

    /// A text from outside as the log may have it: what the provider says may repeat what it was sent.
    fn without_secrets(&self, text: &str) -> String {
        let text = text.replace(&self.config.secret_key, "…").replace(&self.config.webhook_secret, "…");
        text.chars().map(|char| if char.is_control() { ' ' } else { char }).take(SHOWN_CHARS).collect()
    }
}

fn refused<B>(response: &Response<B>, body: &[u8]) -> StripeError {
    let said =
        json::read(body).ok().and_then(|answer| Some(answer.pointer("/error/message")?.as_str()?.to_owned()));
    StripeError(format!("{}: {}", response.status(), said.unwrap_or_else(|| "without a reason".to_owned())))
}

/// One of the calls that may be under way.
struct CallPermit<'a>(&'a AtomicUsize);

impl<'a> CallPermit<'a> {
    fn take(calls: &'a AtomicUsize) -> Option<Self> {
        let more = |calls| (calls < MAX_CALLS).then_some(calls + 1);
        calls.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).ok().map(|_| Self(calls))
    }
}

impl Drop for CallPermit<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stripe() -> Stripe {
        Stripe::new(StripeConfig {
            secret_key: "sk_live_hidden".to_owned(),
            webhook_secret: "whsec_hidden".to_owned(),
            prices: Prices::new(["a", "b", "c", "d"].map(str::to_owned)).unwrap(),
            api_base: API_BASE.to_owned(),
            timeout: TIMEOUT,
        })
    }

    #[test]
    fn keys_and_secrets_are_hidden_in_debug_and_error_output() {
        let stripe = stripe();
        assert!(!format!("{stripe:?}").contains("hidden"));
        let told = stripe.without_secrets("Invalid API Key provided: sk_live_hidden\r\nor whsec_hidden");
        assert_eq!(told, "Invalid API Key provided: …  or …");
        assert_eq!(stripe.without_secrets(&"ä".repeat(1_000)).chars().count(), SHOWN_CHARS);
    }

    #[test]
    fn concurrent_calls_are_limited_and_permits_return() {
        let calls = AtomicUsize::new(0);
        let mut turns: Vec<_> = (0..MAX_CALLS).filter_map(|_| CallPermit::take(&calls)).collect();
        assert_eq!(turns.len(), MAX_CALLS);
        assert!(CallPermit::take(&calls).is_none());
        turns.pop();
        assert!(CallPermit::take(&calls).is_some());
    }

    #[test]
    fn calls_use_no_proxy_and_have_a_timeout() {
        let config = stripe().agent.config().clone();
        assert!(config.proxy().is_none());
        assert_eq!((config.max_redirects(), config.timeouts().global), (0, Some(TIMEOUT)));
    }
}
