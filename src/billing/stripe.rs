//! Stripe's HTTP API: checkout and portal sessions. Its events are parsed in `domain::billing::subscription`.
//!
//! The API key and the webhook secret never appear in the log.

use std::time::Duration;

use serde_json::Value;
use thiserror::Error as ThisError;
use tokio::sync::Semaphore;
use ureq::Agent;
use ureq::http::StatusCode;

use crate::billing::BillingAccount;
use crate::domain::api_error::{ErrorCode, Refusal};
use crate::domain::billing::{Offer, Prices};
use crate::domain::json::{self, JsonError};
use crate::domain::secret::Secret;
use crate::error::Result;
use crate::system::random;

pub const API_BASE: &str = "https://api.stripe.com";
/// Time limit of a whole call. The user waits for the response, and a call occupies a thread.
pub const TIMEOUT: Duration = Duration::from_secs(20);

/// Concurrent calls. Each occupies a thread, for up to [`TIMEOUT`] when Stripe hangs.
const MAX_CALLS: usize = 16;
/// A session object has a few kilobytes; the limit protects memory from a broken or wrong server.
const MAX_RESPONSE_BYTES: u64 = 1 << 20;
/// Length of an error of Stripe in the log: enough for its messages, too short to flood the log.
const MAX_LOGGED_CHARS: usize = 300;

#[derive(Debug, Clone)]
pub struct StripeConfig {
    pub secret_key: Secret,
    pub webhook_secret: Secret,
    pub prices: Prices,
    /// Base URL of the API, without a trailing slash.
    pub api_base: String,
    pub timeout: Duration,
}

#[derive(Debug)]
pub struct Stripe {
    config: StripeConfig,
    agent: Agent,
    calls: Semaphore,
}

/// A failed call. Its text may repeat the secrets of the account: pass it through [`Stripe::redact`].
#[derive(Debug, ThisError)]
enum StripeError {
    #[error(transparent)]
    Transport(#[from] ureq::Error),
    #[error("the response is not JSON: {0}")]
    Json(#[from] JsonError),
    #[error("{status}: {message}")]
    Status { status: StatusCode, message: String },
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
        Self {
            config,
            agent: Agent::new_with_config(agent_config),
            calls: Semaphore::new(MAX_CALLS),
        }
    }

    pub fn webhook_secret(&self) -> &str {
        self.config.webhook_secret.expose()
    }

    pub fn prices(&self) -> &Prices {
        &self.config.prices
    }

    pub fn checkout(
        &self,
        public_url: &str,
        account: &BillingAccount,
        offer: Offer,
    ) -> Result<String> {
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

    pub fn portal(&self, public_url: &str, customer: &str) -> Result<String> {
        let return_url = format!("{public_url}/billing/closed");
        self.create_session(
            "/v1/billing_portal/sessions",
            &[("customer", customer), ("return_url", &return_url)],
        )
    }

    fn create_session(&self, endpoint: &str, form: &[(&str, &str)]) -> Result<String> {
        let key = random::uuid()?;
        let Ok(_permit) = self.calls.try_acquire() else {
            let message =
                "Too many calls to the payment provider are in progress: try again in a second";
            return Err(Refusal::new(ErrorCode::ServerBusy, message).retry_after(1).into());
        };
        self.post(endpoint, form, &key).map_err(|error| {
            tracing::error!(
                endpoint,
                error = self.redact(&error.to_string()),
                "call to Stripe failed"
            );
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
            .header("Authorization", format!("Bearer {}", self.config.secret_key.expose()))
            .header("Idempotency-Key", key)
            .send_form(form.iter().copied())?;
        let (status, config) = (response.status(), response.body_mut().with_config());
        let body = config.limit(MAX_RESPONSE_BYTES).read_to_vec()?;
        let answer = json::read(&body).map(|body| body.get().to_value());
        if !status.is_success() {
            let message = answer
                .ok()
                .and_then(|body| Some(body.pointer("/error/message")?.as_str()?.to_owned()));
            return Err(StripeError::Status {
                status,
                message: message.unwrap_or_else(|| "no error message".to_owned()),
            });
        }
        match answer?.get("url").and_then(Value::as_str) {
            Some(url) if url.starts_with("https://") || url.starts_with("http://") => {
                Ok(url.to_owned())
            }
            _ => Err(StripeError::NoUrl),
        }
    }

    /// Prepares an external text for the log: removes the secrets, which an error message may repeat, and control
    /// characters.
    fn redact(&self, text: &str) -> String {
        let text = text
            .replace(self.config.secret_key.expose(), "…")
            .replace(self.config.webhook_secret.expose(), "…");
        text.chars()
            .map(|char| if char.is_control() { ' ' } else { char })
            .take(MAX_LOGGED_CHARS)
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_and_secrets_are_hidden_and_calls_use_no_proxy_and_have_a_timeout() {
        let stripe = Stripe::new(StripeConfig {
            secret_key: "sk_live_hidden".to_owned().into(),
            webhook_secret: "whsec_hidden".to_owned().into(),
            prices: Prices::new(["a", "b", "c", "d"].map(str::to_owned)).unwrap(),
            api_base: API_BASE.to_owned(),
            timeout: TIMEOUT,
        });
        assert!(!format!("{stripe:?}").contains("hidden"));
        let redacted = stripe.redact("Invalid API Key provided: sk_live_hidden\r\nor whsec_hidden");
        assert_eq!(redacted, "Invalid API Key provided: …  or …");
        assert_eq!(stripe.redact(&"ä".repeat(1_000)).chars().count(), MAX_LOGGED_CHARS);
        let config = stripe.agent.config();
        assert!(config.proxy().is_none());
        assert_eq!((config.max_redirects(), config.timeouts().global), (0, Some(TIMEOUT)));
    }
}
