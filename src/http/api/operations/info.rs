//! `/v1/info`: which program this is and how it was set up, for whoever is about to use it. No secrets.

use serde_json::json;

use crate::error::Result;
use crate::http::request::Request;
use crate::http::response::Response;

/// `GET /v1/info`
pub async fn info(request: Request) -> Result<Response> {
    let (app, settings) = (&request.app, &request.app.settings);
    Ok(Response::ok(&json!({
        "name": "cued",
        "version": env!("CARGO_PKG_VERSION"),
        "registration": settings.registration.as_str(),
        "limits": settings.plans.are_limited(),
        "billing": if settings.stripe.is_some() { "stripe" } else { "manual" },
        "mail": settings.mail.as_str(),
        "callbacks": settings.callbacks.words(),
        "test_clock": app.clock.is_test(),
    })))
}
