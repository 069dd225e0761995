//! `/v1/info`: version and public configuration of the server, without secrets.

use serde_json::json;

use crate::domain::text::word_enum::word_enum;
use crate::error::Result;
use crate::http::pages::assets;
use crate::http::request::Request;
use crate::http::response::Response;

word_enum! {
    /// The way in which a plan is changed.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum BillingMode {
        /// By the operator.
        Manual = "manual",
        Stripe = "stripe",
    }
}

/// `GET /v1/info`
pub async fn info(request: Request) -> Result<Response> {
    let (app, config) = (&request.app, &request.app.config);
    let billing = if config.stripe.is_some() { BillingMode::Stripe } else { BillingMode::Manual };
    Ok(Response::ok(&json!({
        "name": "cued",
        "version": env!("CARGO_PKG_VERSION"),
        "build": assets::BUILD,
        "registration": config.registration.as_str(),
        "limits": config.plans.are_limited(),
        "billing": billing.as_str(),
        "mail": config.mail.as_str(),
        "callbacks": config.callbacks.words(),
        "test_clock": app.clock.is_test(),
    })))
}
