//! `/v1/info`: version and public configuration of the server, without secrets.

use serde_json::json;

use crate::error::Result;
use crate::http::request::Request;
use crate::http::response::Response;

/// `GET /v1/info`
pub async fn info(request: Request) -> Result<Response> {
    let (app, config) = (&request.app, &request.app.config);
    Ok(Response::ok(&json!({
        "name": "cued",
        "version": env!("CARGO_PKG_VERSION"),
        "registration": config.registration.as_str(),
        "limits": config.plans.are_limited(),
        "billing": if config.stripe.is_some() { "stripe" } else { "manual" },
        "mail": config.mail.as_str(),
        "callbacks": config.callbacks.words(),
        "test_clock": app.clock.is_test(),
    })))
}
