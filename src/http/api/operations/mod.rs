//! Endpoints for operators: `/v1/info`, the version and public configuration of the server without secrets;
//! `/openapi.json`, the description of the API; `/v1/test/clock`, only with `--test-clock` (`Access::TestClock`).
//! `health` has the state of the server, `metrics` the metrics.

pub mod health;
pub mod metrics;

use std::sync::LazyLock;

use hyper::body::Bytes;
use hyper::header::{self, HeaderValue};
use jiff::{Span, Timestamp};
use serde_json::json;

use crate::api::instants::instant;
use crate::domain::account::credentials::sha256;
use crate::domain::account::session::SignInWay;
use crate::domain::schedule::parse_instant;
use crate::domain::schedule::time_zone::Zone;
use crate::error::{Error, Result};
use crate::http::api::account::sessions::permits_dev;
use crate::http::pages::assets;
use crate::http::request::Request;
use crate::http::response::{CompressedText, Response, inflate};
use crate::service::test_clock;
use crate::store::accounts::users;

pub async fn info(request: Request) -> Result<Response> {
    let (app, config) = (&request.app, &request.app.config);
    let users = app.store.read_inline(users::any_exist).await?;
    let mut sign_in = vec![SignInWay::Key, SignInWay::Mail, SignInWay::Link];
    sign_in.extend(permits_dev(&request).then_some(SignInWay::Dev));
    let billing = if config.stripe.is_some() { "stripe" } else { "manual" };
    Ok(Response::ok(&json!({
        "name": "cued",
        "version": env!("CARGO_PKG_VERSION"),
        "build": assets::BUILD,
        "registration": config.registration.as_str(),
        "limits": config.plans.are_limited(),
        "billing": billing,
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

/// `src/http/openapi.json` without the blanks between its tokens, as the gzip file that `src/build.rs` makes of it.
static COMPRESSED: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/openapi.json.gz"));

/// The document for clients that do not accept gzip; `None` if it cannot be decompressed. All responses share it, so that
/// slow clients take no memory for copies of it.
static DOCUMENT: LazyLock<Option<Bytes>> = LazyLock::new(|| inflate(COMPRESSED));

/// The version of the document. 64 bits tell the documents of all releases apart.
static VERSION: LazyLock<String> =
    LazyLock::new(|| sha256(COMPRESSED).iter().take(8).map(|byte| format!("{byte:02x}")).collect());

/// `GET /openapi.json`. A page of any site may read it: it is the same for everybody.
pub async fn openapi(request: Request) -> Result<Response> {
    let text = CompressedText { content_type: "application/json", gzip: COMPRESSED, version: &VERSION };
    let response = text.respond(&request.headers, || DOCUMENT.clone())?;
    Ok(response
        .with(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"))
        .with(header::ACCESS_CONTROL_ALLOW_ORIGIN, HeaderValue::from_static("*")))
}

pub async fn show_test_clock(request: Request) -> Result<Response> {
    Ok(Response::ok(&json!({"now": instant(request.now)})))
}

/// `POST /v1/test/clock {advance}` or `{to}`
pub async fn advance_test_clock(request: Request) -> Result<Response> {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_embedded_document_is_the_file() {
        let document = DOCUMENT.clone().unwrap();
        let embedded: serde_json::Value = serde_json::from_slice(&document).unwrap();
        let file: serde_json::Value = serde_json::from_str(include_str!("../../openapi.json")).unwrap();
        assert_eq!(embedded, file);
        assert!(COMPRESSED.len() <= 40 << 10, "{} bytes of the binary", COMPRESSED.len());
    }
}
