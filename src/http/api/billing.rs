//! `/v1/billing`: links to the pages of the payment provider, and the events that it sends. The pages of manual billing
//! are in `pages::manual_billing`.

use serde_json::json;

use crate::domain::billing::offer::Offer;
use crate::error::{Error, Result};
use crate::http::request::Request;
use crate::http::response::Response;
use crate::service;
use crate::service::stripe_events;

/// `POST /v1/billing/checkout {plan, interval}`
pub async fn checkout(request: Request) -> Result<Response> {
    let caller = request.caller()?;
    let mut fields = request.fields()?;
    let plan = fields.required_string("plan", 0..=255);
    let interval = fields.required_string("interval", 0..=255);
    fields.finish()?;
    let offer = Offer::from_request(&plan.unwrap_or_default(), &interval.unwrap_or_default())?;
    let app = request.app;
    let url = run_blocking(move || service::billing::checkout(&app, &caller, offer)).await?;
    Ok(Response::ok(&json!({"checkout_url": url})))
}

pub async fn portal(request: Request) -> Result<Response> {
    let caller = request.caller()?;
    let app = request.app;
    let url = run_blocking(move || service::billing::portal(&app, &caller)).await?;
    Ok(Response::ok(&json!({"portal_url": url})))
}

pub async fn webhook(request: Request) -> Result<Response> {
    stripe_events::receive(&request.app, request.header("stripe-signature"), request.body())?.await?;
    Ok(Response::ok(&json!({"received": true})))
}

/// Runs a job on a thread that may block: a call to the payment provider waits for its response.
async fn run_blocking(job: impl FnOnce() -> Result<String> + Send + 'static) -> Result<String> {
    let done = tokio::task::spawn_blocking(job).await;
    done.map_err(|error| Error::fault_from("the job that calls the payment provider failed", error))?
}
