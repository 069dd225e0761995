//! Stripe's HTTP API: checkout and portal sessions. Its events are parsed in `domain::billing::subscription`.
//!
//! The API key and the webhook secret never appear in `Debug` output or in the log.

use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::Value;
use thiserror::Error as ThisError;
use ureq::Agent;
use ureq::http::Response;

use crate::billing::BillingAccount;
use crate::domain::api_error::{ErrorCode, Refusal};
use crate::domain::billing::offer::{Offer, Prices};
use crate::domain::json::{self, JsonError};
use crate::error::Result;
use crate::random;

pub const API_BASE: &str = "https://api.stripe.com";
/// Time limit of a whole call. The user waits for the response, and a call occupies a thread.
pub const TIMEOUT: Duration = Duration::from_secs(20);

/// Concurrent calls. Each occupies a thread, for up to [`TIMEOUT`] when Stripe hangs.
const MAX_CALLS: usize = 16;
/// A session object has a few kilobytes; the limit protects memory from a broken or wrong server.
const MAX_RESPONSE_BYTES: u64 = 1 << 20;
/// Length of an error of Stripe in the log: enough for its messages, too short to flood the log.
const MAX_LOGGED_CHARS: usize = 300;

/// The Stripe account and its prices.
#[derive(Clone)]
pub struct StripeConfig {
    pub secret_key: String,
    pub webhook_secret: String,
    pub prices: Prices,
    /// Base URL of the API, without a trailing slash.
    pub api_base: String,
    pub timeout: Duration,
}

impl fmt::Debug for StripeConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { prices, api_base, timeout, .. } = self;
        f.debug_struct("StripeConfig")
            .field("prices", prices)
            .field("api_base", api_base)
            .field("timeout", timeout)
            .finish_non_exhaustive()
    }
}

#[derive(Debug)]
pub struct Stripe {
    config: StripeConfig,
    agent: Agent,
    calls: AtomicUsize,
}

/// A failed call. Its text may repeat the secrets of the account: pass it through [`Stripe::redact`].
#[derive(Debug, ThisError)]
enum StripeError {
    #[error(transparent)]
    Transport(#[from] ureq::Error),
    #[error("the response is not JSON: {0}")]
    Json(#[from] JsonError),
    #[error("{status}: {message}")]
    Status { status: ureq::http::StatusCode, message: String },
    #[error("the session in the response has no url")]
    NoUrl,
}

impl Stripe {
    pub fn new(config: StripeConfig) -> Self {
        let agent_config = Agent::config_builder()
            // Calls go to the configured URL only: proxy variables of the environment are ignored.
            .proxy(None)
            .max_redirects(0)
            .http_status_as_error(false)
            .timeout_global(Some(config.timeout))
            .user_agent(concat!("cued/", env!("CARGO_PKG_VERSION")))
            .build();
        Self { config, agent: Agent::new_with_config(agent_config), calls: AtomicUsize::new(0) }
    }

    pub fn webhook_secret(&self) -> &str {
        &self.config.webhook_secret
    }

    pub fn prices(&self) -> &Prices {
        &self.config.prices
    }

    /// Creates a checkout session for an offer and returns its URL.
    pub fn checkout(&self, public_url: &str, account: &BillingAccount, offer: Offer) -> Result<String> {
        let user = &account.user;
        let customer = match &account.customer {
            Some(id) => ("customer", id.as_str()),
            None => ("customer_email", user.email.as_str()),
        };
        let (success_url, cancel_url) =
            (format!("{public_url}/billing/thanks"), format!("{public_url}/billing/closed"));
        let form = [
            ("mode", "subscription"),
            ("line_items[0][price]", self.config.prices.price_id(offer)),
            ("line_items[0][quantity]", "1"),
            customer,
            ("success_url", &success_url),
            ("cancel_url", &cancel_url),
            ("client_reference_id", &user.id),
            ("metadata[user_id]", &user.id),
            ("metadata[plan]", offer.plan.as_str()),
            ("metadata[interval]", offer.interval.as_str()),
            // Events of the subscription may arrive before the checkout event, so they carry the user id as well.
            ("subscription_data[metadata][user_id]", &user.id),
        ];
        self.create_session("/v1/checkout/sessions", &form)
    }

    /// Creates a portal session for a customer and returns its URL.
    pub fn portal(&self, public_url: &str, customer: &str) -> Result<String> {
        let return_url = format!("{public_url}/billing/closed");
        self.create_session(
            "/v1/billing_portal/sessions",
            &[("customer", customer), ("return_url", &return_url)],
        )
    }

    fn create_session(&self, endpoint: &str, form: &[(&str, &str)]) -> Result<String> {
        let key = uuid::Builder::from_random_bytes(random::bytes()?).into_uuid().to_string();
        let Some(_permit) = CallPermit::acquire(&self.calls) else {
            let message = "Too many calls to the payment provider are in progress: try again in a second";
            return Err(Refusal::new(ErrorCode::ServerBusy, message).retry_after(1).into());
        };
        self.post(endpoint, form, &key).map_err(|error| {
            tracing::error!(endpoint, error = self.redact(&error.to_string()), "call to Stripe failed");
            let message = "The payment provider failed: try again later";
            Refusal::new(ErrorCode::BillingError, message).into()
        })
    }

    fn post(
        &self,
        endpoint: &str,
        form: &[(&str, &str)],
        key: &str,
    ) -> std::result::Result<String, StripeError> {
        let mut response = self
            .agent
            .post(format!("{}{endpoint}", self.config.api_base))
            .header("Authorization", format!("Bearer {}", self.config.secret_key))
            .header("Idempotency-Key", key)
            .send_form(form.iter().copied())?;
        let body = response.body_mut().with_config().limit(MAX_RESPONSE_BYTES).read_to_vec()?;
        if !response.status().is_success() {
            return Err(error_response(&response, &body));
        }
        let session = json::read(&body)?.get().to_value();
        match session.get("url").and_then(Value::as_str) {
            Some(url) if url.starts_with("https://") || url.starts_with("http://") => Ok(url.to_owned()),
            _ => Err(StripeError::NoUrl),
        }
    }

    /// Prepares an external text for the log: removes the secrets, which an error message may repeat, and control
    /// characters.
    fn redact(&self, text: &str) -> String {
        let text = text.replace(&self.config.secret_key, "…").replace(&self.config.webhook_secret, "…");
        text.chars().map(|char| if char.is_control() { ' ' } else { char }).take(MAX_LOGGED_CHARS).collect()
    }
}

fn error_response<B>(response: &Response<B>, body: &[u8]) -> StripeError {
    let message = json::read(body)
        .ok()
        .and_then(|error| Some(error.get().to_value().pointer("/error/message")?.as_str()?.to_owned()));
    StripeError::Status {
        status: response.status(),
        message: message.unwrap_or_else(|| "no error message".to_owned()),
    }
}

/// Permission for one of [`MAX_CALLS`] concurrent calls.
struct CallPermit<'a>(&'a AtomicUsize);

impl<'a> CallPermit<'a> {
    fn acquire(calls: &'a AtomicUsize) -> Option<Self> {
        let increment = |calls| (calls < MAX_CALLS).then_some(calls + 1);
        calls.fetch_update(Ordering::Relaxed, Ordering::Relaxed, increment).ok().map(|_| Self(calls))
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
        let redacted = stripe.redact("Invalid API Key provided: sk_live_hidden\r\nor whsec_hidden");
        assert_eq!(redacted, "Invalid API Key provided: …  or …");
        assert_eq!(stripe.redact(&"ä".repeat(1_000)).chars().count(), MAX_LOGGED_CHARS);
    }

    #[test]
    fn concurrent_calls_are_limited_and_permits_return() {
        let calls = AtomicUsize::new(0);
        let mut permits: Vec<_> = (0..MAX_CALLS).filter_map(|_| CallPermit::acquire(&calls)).collect();
        assert_eq!(permits.len(), MAX_CALLS);
        assert!(CallPermit::acquire(&calls).is_none());
        permits.pop();
        assert!(CallPermit::acquire(&calls).is_some());
    }

    #[test]
    fn calls_use_no_proxy_and_have_a_timeout() {
        let config = stripe().agent.config().clone();
        assert!(config.proxy().is_none());
        assert_eq!((config.max_redirects(), config.timeouts().global), (0, Some(TIMEOUT)));
    }
}
