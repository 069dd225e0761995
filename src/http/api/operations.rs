//! Endpoints for operators: `/v1/info`, the version and public configuration of the server without secrets;
//! `/openapi.json`, the description of the API; `/v1/test/…`, only with `--test-clock` (`Access::TestClock`).
//! `/health` for people and `/status` for load balancers.

use std::borrow::Cow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock};

use hyper::body::Bytes;
use hyper::header::HeaderValue;
use hyper::{StatusCode, header};
use jiff::{Span, Timestamp};
use serde_json::{Value, json};

use crate::app::App;
use crate::domain::account::credentials::sha256;
use crate::domain::account::session::SignInMethod;
use crate::domain::execution::worker::UNCLAIMED_AFTER;
use crate::domain::schedule::wall_clock::ClockFault;
use crate::domain::schedule::{Zone, parse_instant};
use crate::domain::time::{instant, instant_without_zone};
use crate::error::Result;
use crate::http::api::sessions::permits_dev;
use crate::http::assets::{self, CompressedText, inflate};
use crate::http::message::{Request, Response, run_blocking};
use crate::metrics::Histogram;
use crate::metrics::engine::{DOWN_AFTER, SchedulerPass};
use crate::service::test_clock::{self, ClockTarget};
use crate::store::ReadTx;
use crate::store::accounts::users;
use crate::store::db::{meta, open};
use crate::store::stats::{self, QueueStats};

/// In development mode: enough to see that an address is a new one.
const MAX_SHOWN_ACCOUNTS: u32 = 100;

pub async fn info(request: Request) -> Result<Response> {
    let (app, config) = (&request.app, &request.app.config);
    let fixed = config.registration;
    let read =
        move |read: &ReadTx<'_>| Ok((users::any_exist(read)?, meta::registration(read, fixed)?));
    let (users, registration) = app.store.read_inline(read).await?;
    let mut sign_in = vec![SignInMethod::Key, SignInMethod::Mail, SignInMethod::Link];
    sign_in.extend(permits_dev(&request).then_some(SignInMethod::Dev));
    let accounts = if permits_dev(&request) {
        Some(app.store.read(|read| users::first_emails(read, MAX_SHOWN_ACCOUNTS)).await?)
    } else {
        None
    };
    let billing = if config.stripe.is_some() { "stripe" } else { "manual" };
    let mut info = json!({
        "name": "cued",
        "version": env!("CARGO_PKG_VERSION"),
        "build": assets::BUILD,
        "registration": registration.as_str(),
        "limits": config.plans.are_limited(),
        "billing": billing,
        "mail": config.mail.as_str(),
        "callbacks": config.callbacks.words(),
        "test_clock": app.clock.is_test(),
        "dev": config.dev,
        "users": users,
        "sign_in": sign_in.into_iter().map(SignInMethod::as_str).collect::<Vec<_>>(),
        "public_url": config.public_url,
        "time": instant(request.now),
    });
    if let Some(accounts) = accounts {
        info["accounts"] = json!(accounts);
    }
    Ok(Response::ok(&info))
}

/// `src/http/openapi.json` without the blanks between its tokens, as the gzip file that `src/build.rs` makes of it.
static COMPRESSED: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/openapi.json.gz"));

/// The document for clients that do not accept gzip; `None` if it cannot be decompressed. All responses share it, so
/// that slow clients take no memory for copies of it.
static DOCUMENT: LazyLock<Option<Bytes>> = LazyLock::new(|| inflate(COMPRESSED));

/// The version of the document. 64 bits distinguish the documents of all releases.
static VERSION: LazyLock<String> =
    LazyLock::new(|| sha256(COMPRESSED).iter().take(8).map(|byte| format!("{byte:02x}")).collect());

/// The description of the API as JSON; `None` if it is damaged.
pub fn document() -> Option<Bytes> {
    DOCUMENT.clone()
}

/// `GET /openapi.json`. A page of any site may read it: it is the same for everybody.
pub async fn openapi(request: Request) -> Result<Response> {
    let text =
        CompressedText { content_type: "application/json", gzip: COMPRESSED, version: &VERSION };
    let response = text.respond_with(&request.headers, document)?;
    Ok(response
        .with(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"))
        .with(header::ACCESS_CONTROL_ALLOW_ORIGIN, HeaderValue::from_static("*")))
}

pub async fn show_test_clock(request: Request) -> Result<Response> {
    Ok(Response::ok(&json!({"now": instant(request.now)})))
}

/// `POST /v1/test/clock {advance}`, `{to}` or `{until: "next"}`
pub async fn advance_test_clock(request: Request) -> Result<Response> {
    let target = clock_target(&request)?;
    let advance =
        on_test_clock(request, move |app, stopping| test_clock::advance(app, target, stopping))
            .await?;
    let mut moved = json!({"now": instant(advance.now), "fired": advance.fired, "delivered": advance.delivered});
    if target == ClockTarget::Next {
        moved["next"] = advance.next.map(instant).into();
    }
    Ok(Response::ok(&moved))
}

/// `POST /v1/test/reset`
pub async fn reset_test_server(request: Request) -> Result<Response> {
    on_test_clock(request, test_clock::reset).await?;
    Ok(Response::no_content())
}

/// Runs what waits for the engine on a thread that may block. It stops when the client goes away: the clock belongs to
/// all clients, and the next one waits for it.
async fn on_test_clock<T: Send + 'static>(
    request: Request,
    job: impl FnOnce(&App, &dyn Fn() -> bool) -> Result<T> + Send + 'static,
) -> Result<T> {
    let (app, stopping) = (request.app, request.stopping);
    let gone = ClientGuard { is_gone: Arc::default(), app: Arc::clone(&app) };
    let is_gone = Arc::clone(&gone.is_gone);
    let is_over = move || is_gone.load(Ordering::SeqCst) || *stopping.borrow();
    run_blocking(move || job(&app, &is_over)).await
}

/// Dropped with the request, also when its client goes away during it.
struct ClientGuard {
    is_gone: Arc<AtomicBool>,
    app: Arc<App>,
}

impl Drop for ClientGuard {
    fn drop(&mut self) {
        self.is_gone.store(true, Ordering::SeqCst);
        self.app.notifiers.progress.notify();
    }
}

fn clock_target(request: &Request) -> Result<ClockTarget> {
    let now = request.now;
    let mut fields = request.fields()?;
    let (advance, to) = (fields.string("advance", 1..=64), fields.string("to", 1..=64));
    let until = fields.one_of("until", &["next"]);
    let given: Vec<&str> =
        ["advance", "to", "until"].into_iter().filter(|name| fields.any(name).is_some()).collect();
    match given[..] {
        [] => fields.add_missing("advance"),
        [_] => {}
        [first, other, ..] => fields.reject(first, &format!("must be left out beside {other}")),
    }
    let instant = match (&advance, &to) {
        (Some(span), _) => {
            add_duration(now, span).map_err(|reason| fields.reject("advance", &reason)).ok()
        }
        (None, Some(to)) => parse_instant(to, &Zone::UTC)
            .map_err(|error| fields.reject("to", &error.to_string()))
            .ok(),
        (None, None) => None,
    };
    if instant.is_some_and(|instant| instant < now) {
        fields.reject(
            if advance.is_some() { "advance" } else { "to" },
            "a test clock can only move forward",
        );
    }
    fields.forbid_unknown();
    fields.finish()?;
    Ok(match until {
        Some(_) => ClockTarget::Next,
        None => ClockTarget::To(instant.unwrap_or(now)),
    })
}

/// Adds an ISO 8601 duration in UTC: a day has 24 hours, months and years follow the calendar.
fn add_duration(now: Timestamp, span: &str) -> std::result::Result<Timestamp, String> {
    let span: Span =
        span.parse().map_err(|_| "must be an ISO 8601 duration such as PT1H or P1D".to_owned())?;
    let target = now.to_zoned(jiff::tz::TimeZone::UTC).checked_add(span);
    target.map(|target| target.timestamp()).map_err(|error| error.to_string())
}

/// Returned from the first read that meets the damage until the next start, which checks the file again.
const DAMAGED: &str = "the database file is damaged: stop cued, then run `cued check`";

/// `GET /health`: always 200.
pub async fn health(request: Request) -> Result<Response> {
    let (app, now) = (&request.app, request.now);
    let db = app.config.db.clone();
    // The files are looked at by the thread that reads the database: a slow disk holds up no other request.
    let read = move |read: &ReadTx<'_>| {
        Ok((
            stats::queue_stats(read, now)?,
            meta::held_since(read)?,
            (open::sizes(&db), open::free_bytes(&db)),
        ))
    };
    let found = app.store.read(read).await;
    if let Err(error) = &found {
        tracing::error!(request_id = request.id, error = %error, "cannot read the database");
    }
    let pass = app.engine_stats.last_pass();
    let database = database_status(app, found.is_ok());
    let (queue, held_since, disk) = match found {
        Ok((queue, held_since, disk)) => (Some(queue), held_since, Some(disk)),
        Err(_) => (None, None, None),
    };
    let poller = poller_status(app, &pass, held_since.is_some());
    // On hold nothing can be claimed, whatever the workers do.
    let oldest_claim = queue.and_then(|queue| queue.oldest_claim(now));
    let is_unclaimed =
        held_since.is_none() && oldest_claim.is_some_and(|waited| waited >= UNCLAIMED_AFTER);
    let worker = if is_unclaimed { "waiting" } else { worker_status(queue.as_ref()) };
    let mut body = json!({
        "status": overall(database, poller),
        "version": env!("CARGO_PKG_VERSION"),
        "timestamp": instant_without_zone(now),
        "services": {
            "database": database,
            "cache": "ok",
            "poller": poller,
            "worker": worker,
        },
        "poller": {
            "last_run": pass.started_at.map(instant),
            "seconds_ago": pass.started_at.map(|last| now.duration_since(last).as_secs().max(0)),
            "cues_last_cycle": pass.cues,
            "cycle_duration_ms": u64::try_from(pass.duration.as_millis()).unwrap_or(u64::MAX),
        },
        "workers": {"active_count": queue.map_or(0, |queue| queue.active_workers)},
        "queue": queue.map(|queue| json!({
            "pending_outbox": queue.pending_outbox,
            "stale_executions": queue.stale_executions,
            "pending_retries": queue.pending_retries,
            "pending_worker_claims": queue.pending_worker_claims,
            "oldest_pending_claim_seconds": oldest_claim.map_or(0, |waited| waited.as_secs()),
        })),
        "lateness": render_lateness(&app.engine_stats.lateness),
        "uptime_seconds": uptime_seconds(app),
        "database": disk.map(|(sizes, free)| {
            json!({"bytes": sizes.file, "wal_bytes": sizes.wal, "free_disk_bytes": free})
        }),
    });
    if let Some(since) = held_since {
        body["held_since"] = instant(since).into();
    }
    if let Some(ClockFault::Behind { newest, .. }) = app.clock_fault() {
        body["clock_behind_until"] = instant(newest).into();
    }
    if app.store.is_corrupt() {
        body["reason"] = DAMAGED.into();
    } else if let Some(fault) = app.clock_fault() {
        body["reason"] = fault.reason().into();
    }
    Ok(Response::ok(&body))
}

/// `GET /status`: 503 only if the database cannot be read.
pub async fn status(request: Request) -> Result<Response> {
    let app = &request.app;
    let is_held = match app.store.read_inline(meta::is_held).await {
        Ok(is_held) => is_held,
        Err(error) => {
            tracing::error!(request_id = request.id, error = %error, "cannot read the database");
            let reason =
                if app.store.is_corrupt() { DAMAGED } else { "the database cannot be read" };
            let body = json!({"status": "down", "reason": reason});
            return Ok(Response::json(StatusCode::SERVICE_UNAVAILABLE, body.to_string()));
        }
    };
    let (status, reason) = server_state(app, is_held);
    let mut body = json!({"status": status});
    if let Some(reason) = reason {
        body["reason"] = reason.into();
    }
    Ok(Response::ok(&body))
}

/// The status of a server whose database can be read, with the reason where there is one.
pub fn server_state(app: &App, is_held: bool) -> (&'static str, Option<Cow<'static, str>>) {
    let poller = poller_status(app, &app.engine_stats.last_pass(), is_held);
    let reason = if app.store.is_corrupt() {
        Some(DAMAGED.into())
    } else if is_held {
        Some("held: a restored copy fires no cue until you run `cued promote`".into())
    } else {
        app.clock_fault().map(|fault| fault.reason().into())
    };
    (overall(database_status(app, true), poller), reason)
}

fn overall(database: &str, poller: &str) -> &'static str {
    if database == "ok" && poller == "ok" { "healthy" } else { "degraded" }
}

/// The time since the start of the process, by a clock that is never set.
pub fn uptime_seconds(app: &App) -> u64 {
    app.clock.monotonic().as_secs()
}

fn database_status(app: &App, is_readable: bool) -> &'static str {
    match (is_readable, app.store.is_writable()) {
        (true, _) if app.store.is_corrupt() => "damaged",
        (true, true) => "ok",
        (true, false) => "not writable",
        (false, _) => "down",
    }
}

/// Not `ok` on hold or with a wrong clock: monitoring should notice that due cues do not fire.
fn poller_status(app: &App, pass: &SchedulerPass, is_held: bool) -> &'static str {
    match app.clock_fault() {
        _ if is_held => "held",
        _ if app.clock.monotonic().saturating_sub(pass.ended) > DOWN_AFTER => "down",
        // The clock of the system has jumped far ahead and is not believed.
        Some(ClockFault::Ahead { .. }) => "clock_ahead",
        Some(ClockFault::Behind { .. }) => "clock_behind",
        None => "ok",
    }
}

fn worker_status(queue: Option<&QueueStats>) -> &'static str {
    match queue {
        Some(queue) if queue.active_workers > 0 => "ok",
        Some(queue) if queue.any_workers => "stale",
        _ => "none",
    }
}

fn render_lateness(lateness: &Histogram) -> Value {
    let summary = lateness.summary([0.5, 0.99]);
    let ms = |seconds: f64| (seconds * 10_000.0).round() / 10.0;
    let [p50, p99] = summary.quantiles.map(|quantile| quantile.map(ms));
    json!({"count": summary.count, "p50_ms": p50, "p99_ms": p99, "max_ms": summary.max.map(ms)})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_embedded_document_is_the_file() {
        let document = DOCUMENT.clone().unwrap();
        let embedded: serde_json::Value = serde_json::from_slice(&document).unwrap();
        let file: serde_json::Value =
            serde_json::from_str(include_str!("../openapi.json")).unwrap();
        assert_eq!(embedded, file);
        assert!(COMPRESSED.len() <= 58 << 10, "{} bytes of the binary", COMPRESSED.len());
    }
}
