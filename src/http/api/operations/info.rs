//! `/v1/info`: version and public configuration of the server, without secrets.

use serde_json::json;

use crate::api::instants::instant;
use crate::domain::account::session::SignInWay;
use crate::domain::text::word_enum::word_enum;
use crate::error::Result;
use crate::http::api::account::sessions::permits_dev;
use crate::http::pages::assets;
use crate::http::request::Request;
use crate::http::response::Response;
use crate::store::accounts::users;

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
    let users = app.store.read_inline_single(users::any_exist).await?;
    let mut sign_in = vec![SignInWay::Key, SignInWay::Mail, SignInWay::Link];
    sign_in.extend(permits_dev(&request).then_some(SignInWay::Dev));
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
        "dev": config.dev,
        "users": users,
        "sign_in": sign_in.into_iter().map(SignInWay::as_str).collect::<Vec<_>>(),
        "public_url": config.public_url,
        "time": instant(request.now),
    })))
}
