//! `/v1/test/clock`: there only under `--test-clock`.

use jiff::{Span, Timestamp};
use serde_json::json;

use crate::actions::test_clock;
use crate::domain::api_error::{ErrorCode, Refusal};
use crate::domain::schedule::parse_instant;
use crate::domain::schedule::time_zone::Zone;
use crate::error::{Error, Result};
use crate::http::request::Request;
use crate::http::response::{Response, instant};

/// `GET /v1/test/clock`
pub async fn show(request: Request) -> Result<Response> {
    on_a_test_clock(&request)?;
    Ok(Response::ok(&json!({"now": instant(request.now)})))
}

/// `POST /v1/test/clock {advance}` or `{to}`
pub async fn advance(request: Request) -> Result<Response> {
    on_a_test_clock(&request)?;
    let mut fields = request.fields()?;
    let (advance, to) = (fields.string("advance", 1..=64), fields.string("to", 1..=64));
    let target = match (&advance, &to) {
        (Some(span), None) => {
            later(request.now, span).map_err(|reason| fields.refuse("advance", &reason)).ok()
        }
        (None, Some(to)) => {
            parse_instant(to, &Zone::UTC).map_err(|error| fields.refuse("to", &error.to_string())).ok()
        }
        (Some(_), Some(_)) => {
            fields.refuse("to", "give either advance or to, not both");
            None
        }
        (None, None) => {
            if fields.any("advance").is_none() && fields.any("to").is_none() {
                fields.missing("advance");
            }
            None
        }
    };
    if target.is_some_and(|target| target < request.now) {
        fields.refuse(if advance.is_some() { "advance" } else { "to" }, "a test clock only moves forward");
    }
    fields.forbid_rest();
    fields.finish()?;
    let (app, target, stopping) = (request.app, target.unwrap_or(request.now), request.stopping);
    // A move waits for the engine, and so needs a thread of its own.
    let moved =
        tokio::task::spawn_blocking(move || test_clock::advance_to(&app, target, &|| *stopping.borrow()))
            .await;
    let moved = moved.map_err(|error| Error::fault_from("the clock was not moved", error))??;
    Ok(Response::ok(&json!({"now": instant(moved.now), "fired": moved.fired, "delivered": moved.delivered})))
}

fn on_a_test_clock(request: &Request) -> Result<()> {
    if request.app.clock.is_test() {
        return Ok(());
    }
    Err(Refusal::new(ErrorCode::NotFound, "There is nothing at this path").into())
}

/// The instant that lies an ISO 8601 duration after `now`; days are 24 hours, months and years those of UTC.
fn later(now: Timestamp, span: &str) -> std::result::Result<Timestamp, String> {
    let span: Span = span.parse().map_err(|_| "give an ISO 8601 duration, such as PT1H or P1D".to_owned())?;
    let later = now.to_zoned(jiff::tz::TimeZone::UTC).checked_add(span);
    later.map(|later| later.timestamp()).map_err(|error| error.to_string())
}
