//! The flags of `cued serve` for the payment provider: all of them, or none.

use clap::Args;

use crate::billing::stripe::{API_BASE, StripeConfig, TIMEOUT};
use crate::cli::CliError;
use crate::domain::billing::offer::Prices;

/// How to reach the account at Stripe. Without any of these, users ask for plans and `cued billing` decides.
#[derive(Args)]
#[command(next_help_heading = "Payment by Stripe (without these: manual billing, see `cued billing`)")]
pub struct StripeFlags {
    /// Secret API key of the Stripe account; better given as CUED_STRIPE_SECRET_KEY than on a command line
    #[arg(long, env = "CUED_STRIPE_SECRET_KEY", value_name = "KEY", hide_env_values = true)]
    stripe_secret_key: Option<String>,

    /// Signing secret of the webhook endpoint that calls PUBLIC-URL/v1/billing/webhook
    #[arg(long, env = "CUED_STRIPE_WEBHOOK_SECRET", value_name = "SECRET", hide_env_values = true)]
    stripe_webhook_secret: Option<String>,

    /// Id of the price of plan pro, paid monthly
    #[arg(long, env = "CUED_STRIPE_PRICE_PRO_MONTHLY", value_name = "PRICE")]
    stripe_price_pro_monthly: Option<String>,

    /// Id of the price of plan pro, paid annually
    #[arg(long, env = "CUED_STRIPE_PRICE_PRO_ANNUAL", value_name = "PRICE")]
    stripe_price_pro_annual: Option<String>,

    /// Id of the price of plan scale, paid monthly
    #[arg(long, env = "CUED_STRIPE_PRICE_SCALE_MONTHLY", value_name = "PRICE")]
    stripe_price_scale_monthly: Option<String>,

    /// Id of the price of plan scale, paid annually
    #[arg(long, env = "CUED_STRIPE_PRICE_SCALE_ANNUAL", value_name = "PRICE")]
    stripe_price_scale_annual: Option<String>,

    /// Where Stripe's API is; for tests
    #[arg(long, env = "CUED_STRIPE_API_BASE", value_name = "URL", default_value = API_BASE)]
    stripe_api_base: String,
}

impl StripeFlags {
    /// The settings in these flags; none where none of them is given.
    ///
    /// # Errors
    /// When some are given and others are missing, and when they cannot be right.
    pub fn config(&self) -> Result<Option<StripeConfig>, CliError> {
        let flags = [
            ("--stripe-secret-key", &self.stripe_secret_key),
            ("--stripe-webhook-secret", &self.stripe_webhook_secret),
            ("--stripe-price-pro-monthly", &self.stripe_price_pro_monthly),
            ("--stripe-price-pro-annual", &self.stripe_price_pro_annual),
            ("--stripe-price-scale-monthly", &self.stripe_price_scale_monthly),
            ("--stripe-price-scale-annual", &self.stripe_price_scale_annual),
        ];
        // An empty environment variable is how some tools write one that is not set.
        let given = flags.map(|(_, value)| value.as_deref().map(str::trim).filter(|text| !text.is_empty()));
        let api_base = self.stripe_api_base.trim_end_matches('/');
        if given.iter().all(Option::is_none) && api_base == API_BASE {
            return Ok(None);
        }
        let [Some(secret_key), Some(webhook_secret), Some(pm), Some(pa), Some(sm), Some(sa)] = given else {
            let flags = flags.iter().zip(given).filter(|(_, given)| given.is_none());
            let missing: Vec<&str> = flags.map(|((name, _), _)| *name).collect();
            return Err(CliError::Usage(format!(
                "payment by Stripe is configured by half: give {} as well, or leave every --stripe flag (and \
                 CUED_STRIPE_* variable) out for manual billing",
                missing.join(", ")
            )));
        };
        if !api_base.starts_with("https://") && !api_base.starts_with("http://") {
            return Err(CliError::Usage(format!("--stripe-api-base {api_base:?} is no http or https URL")));
        }
        let prices = Prices::new([pm, pa, sm, sa].map(str::to_owned)).ok_or_else(|| {
            CliError::Usage(
                "two of the --stripe-price flags have the same id: each plan and interval needs its own"
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

// Neither key nor secret is for eyes.
impl std::fmt::Debug for StripeFlags {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StripeFlags").field("stripe_api_base", &self.stripe_api_base).finish_non_exhaustive()
    }
}
