//! `/v1/test/clock`: exists only with `--test-clock` (`Access::TestClock`).

use jiff::{Span, Timestamp};
use serde_json::json;

use crate::api::instants::instant;
use crate::domain::schedule::parse_instant;
use crate::domain::schedule::time_zone::Zone;
use crate::error::{Error, Result};
use crate::http::request::Request;
use crate::http::response::Response;
use crate::service::test_clock;

/// `GET /v1/test/clock`
pub async fn show(request: Request) -> Result<Response> {
    Ok(Response::ok(&json!({"now": instant(request.now)})))
}

/// `POST /v1/test/clock {advance}` or `{to}`
pub async fn advance(request: Request) -> Result<Response> {
    let mut fields = request.fields()?;
    let (advance, to) = (fields.string("advance", 1..=64), fields.string("to", 1..=64));
    let target = match (&advance, &to) {
        (Some(span), None) => {
            add_duration(request.now, span).map_err(|reason| fields.reject("advance", &reason)).ok()
        }
        (None, Some(to)) => {
            parse_instant(to, &Zone::UTC).map_err(|error| fields.reject("to", &error.to_string())).ok()
        }
        (Some(_), Some(_)) => {
            fields.reject("to", "send either advance or to, not both");
            None
        }
        (None, None) => {
            if fields.any("advance").is_none() && fields.any("to").is_none() {
                fields.add_missing("advance");
            }
            None
        }
    };
    if target.is_some_and(|target| target < request.now) {
        fields.reject(if advance.is_some() { "advance" } else { "to" }, "a test clock can only move forward");
    }
    fields.forbid_unknown();
    fields.finish()?;
    let (app, target, stopping) = (request.app, target.unwrap_or(request.now), request.stopping);
    // Advancing waits for the engine, so it needs a thread that may block.
    let advance =
        tokio::task::spawn_blocking(move || test_clock::advance_to(&app, target, &|| *stopping.borrow()))
            .await;
    let advance = advance.map_err(|error| Error::fault_from("the test clock failed", error))??;
    Ok(Response::ok(
        &json!({"now": instant(advance.now), "fired": advance.fired, "delivered": advance.delivered}),
    ))
}

/// Adds an ISO 8601 duration in UTC: a day has 24 hours, months and years follow the calendar.
fn add_duration(now: Timestamp, span: &str) -> std::result::Result<Timestamp, String> {
    let span: Span =
        span.parse().map_err(|_| "advance should be an ISO 8601 duration such as PT1H or P1D".to_owned())?;
    let target = now.to_zoned(jiff::tz::TimeZone::UTC).checked_add(span);
    target.map(|target| target.timestamp()).map_err(|error| error.to_string())
}
