//! The flags of `cued serve` for billing with Stripe. Either all of them are given or none.

use clap::Args;

use crate::billing::stripe::{API_BASE, StripeConfig, TIMEOUT};
use crate::cli::error::CliError;
use crate::domain::billing::offer::Prices;

/// Stripe account. Without these flags, users request plans and the operator decides with `cued billing`.
#[derive(Args)]
#[command(next_help_heading = "Billing with Stripe (set all or none; without it see `cued billing`)")]
pub struct StripeFlags {
    /// Secret API key of the Stripe account; prefer the environment variable, which `ps` does not show
    #[arg(long, env = "CUED_STRIPE_SECRET_KEY", value_name = "KEY", hide_env_values = true)]
    stripe_secret_key: Option<String>,

    /// Signing secret of the webhook endpoint PUBLIC-URL/v1/billing/webhook
    #[arg(long, env = "CUED_STRIPE_WEBHOOK_SECRET", value_name = "SECRET", hide_env_values = true)]
    stripe_webhook_secret: Option<String>,

    /// Price id of plan pro, billed monthly
    #[arg(long, env = "CUED_STRIPE_PRICE_PRO_MONTHLY", value_name = "PRICE_ID")]
    stripe_price_pro_monthly: Option<String>,

    /// Price id of plan pro, billed annually
    #[arg(long, env = "CUED_STRIPE_PRICE_PRO_ANNUAL", value_name = "PRICE_ID")]
    stripe_price_pro_annual: Option<String>,

    /// Price id of plan scale, billed monthly
    #[arg(long, env = "CUED_STRIPE_PRICE_SCALE_MONTHLY", value_name = "PRICE_ID")]
    stripe_price_scale_monthly: Option<String>,

    /// Price id of plan scale, billed annually
    #[arg(long, env = "CUED_STRIPE_PRICE_SCALE_ANNUAL", value_name = "PRICE_ID")]
    stripe_price_scale_annual: Option<String>,

    /// Base URL of Stripe's API, to use a test double
    #[arg(long, env = "CUED_STRIPE_API_BASE", value_name = "URL", default_value = API_BASE)]
    stripe_api_base: String,
}

impl StripeFlags {
    /// Returns the configuration, or `None` if no flag is given.
    /// Errors: if some flags are missing, the base URL is invalid or two prices are the same.
    pub fn config(&self) -> Result<Option<StripeConfig>, CliError> {
        let flags = [
            ("--stripe-secret-key", &self.stripe_secret_key),
            ("--stripe-webhook-secret", &self.stripe_webhook_secret),
            ("--stripe-price-pro-monthly", &self.stripe_price_pro_monthly),
            ("--stripe-price-pro-annual", &self.stripe_price_pro_annual),
            ("--stripe-price-scale-monthly", &self.stripe_price_scale_monthly),
            ("--stripe-price-scale-annual", &self.stripe_price_scale_annual),
        ];
        // Some tools, such as Docker Compose, pass an unset variable as an empty one.
        let given = flags.map(|(_, value)| value.as_deref().map(str::trim).filter(|text| !text.is_empty()));
        let api_base = self.stripe_api_base.trim_end_matches('/');
        if given.iter().all(Option::is_none) && api_base == API_BASE {
            return Ok(None);
        }
        let [Some(secret_key), Some(webhook_secret), Some(pm), Some(pa), Some(sm), Some(sa)] = given else {
            let flags = flags.iter().zip(given).filter(|(_, given)| given.is_none());
            let missing: Vec<&str> = flags.map(|((name, _), _)| *name).collect();
            return Err(CliError::Usage(format!(
                "the configuration of Stripe is incomplete: add {}, or remove all --stripe-* flags and CUED_STRIPE_* \
                 variables to use manual billing",
                missing.join(", ")
            )));
        };
        if !api_base.starts_with("https://") && !api_base.starts_with("http://") {
            return Err(CliError::Usage(format!(
                "--stripe-api-base {api_base:?} is not an http or https URL"
            )));
        }
        let prices = Prices::new([pm, pa, sm, sa].map(str::to_owned)).ok_or_else(|| {
            CliError::Usage(
                "two --stripe-price-* flags have the same id: each plan and interval needs its own price"
                    .to_owned(),
            )
        })?;
        Ok(Some(StripeConfig {
            secret_key: secret_key.to_owned(),
            webhook_secret: webhook_secret.to_owned(),
            prices,
            api_base: api_base.to_owned(),
            timeout: TIMEOUT,
        }))
    }
}

// Hand-written: the key and the secret must not be printed.
impl std::fmt::Debug for StripeFlags {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StripeFlags").field("stripe_api_base", &self.stripe_api_base).finish_non_exhaustive()
    }
}
