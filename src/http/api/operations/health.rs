//! `/health` for people and `/status` for load balancers.

use std::borrow::Cow;
use std::time::Duration;

use hyper::StatusCode;
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::api::instants::{instant, instant_without_zone};
use crate::app::App;
use crate::domain::execution::worker::UNCLAIMED_AFTER;
use crate::domain::schedule::wall_clock::ClockFault;
use crate::error::Result;
use crate::http::request::Request;
use crate::http::response::Response;
use crate::metrics::Histogram;
use crate::metrics::engine::{DOWN_AFTER, SchedulerPass};
use crate::store::ReadTx;
use crate::store::db::open::Sizes;
use crate::store::db::{hold, open};
use crate::store::maintenance::queue_stats;
use crate::store::maintenance::queue_stats::QueueStats;

/// Returned from the first read that meets the damage until the next start, which checks the file again.
const DAMAGED: &str = "the database file is damaged: stop cued, then run `cued check`";

/// `GET /health`: always 200.
pub async fn health(request: Request) -> Result<Response> {
    let (app, now) = (&request.app, request.now);
    let db = app.config.db.clone();
    // The files are looked at by the thread that reads the database: a slow disk holds up no other request.
    let read = move |read: &ReadTx<'_>| {
        Ok((
            queue_stats::queue(read, now)?,
            hold::held_since(read)?,
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
    let is_unclaimed = held_since.is_none()
        && queue.and_then(|queue| queue.oldest_claim(now)).is_some_and(|waited| waited >= UNCLAIMED_AFTER);
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
        "poller": render_pass(&pass, now),
        "workers": {"active_count": queue.map_or(0, |queue| queue.active_workers)},
        "queue": queue.map(|queue| render_queue(queue, now)),
        "lateness": render_lateness(&app.engine_stats.deliveries.lateness),
        "uptime_seconds": uptime_seconds(app),
        "database": disk.map(render_disk),
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
    let is_held = match app.store.read_inline(hold::is_held).await {
        Ok(is_held) => is_held,
        Err(error) => {
            tracing::error!(request_id = request.id, error = %error, "cannot read the database");
            let reason = if app.store.is_corrupt() { DAMAGED } else { "the database cannot be read" };
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
    let reason = match is_held {
        _ if app.store.is_corrupt() => Some(DAMAGED.into()),
        true => Some("held: a restored copy fires no cue until you run `cued promote`".into()),
        false => app.clock_fault().map(|fault| fault.reason().into()),
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
        _ if is_down(app.clock.monotonic().saturating_sub(pass.ended)) => "down",
        // The clock of the system has jumped far ahead and is not believed.
        Some(ClockFault::Ahead { .. }) => "clock_ahead",
        Some(ClockFault::Behind { .. }) => "clock_behind",
        None => "ok",
    }
}

fn is_down(since_last_pass: Duration) -> bool {
    since_last_pass > DOWN_AFTER
}

fn worker_status(queue: Option<&QueueStats>) -> &'static str {
    match queue {
        Some(queue) if queue.active_workers > 0 => "ok",
        Some(queue) if queue.any_workers => "stale",
        _ => "none",
    }
}

fn render_pass(pass: &SchedulerPass, now: Timestamp) -> Value {
    json!({
        "last_run": pass.started_at.map(instant),
        "seconds_ago": pass.started_at.map(|last| now.duration_since(last).as_secs().max(0)),
        "cues_last_cycle": pass.cues,
        "cycle_duration_ms": u64::try_from(pass.duration.as_millis()).unwrap_or(u64::MAX),
    })
}

fn render_lateness(lateness: &Histogram) -> Value {
    let summary = lateness.summary([0.5, 0.99]);
    let ms = |seconds: f64| (seconds * 10_000.0).round() / 10.0;
    let [p50, p99] = summary.quantiles.map(|quantile| quantile.map(ms));
    json!({"count": summary.count, "p50_ms": p50, "p99_ms": p99, "max_ms": summary.max.map(ms)})
}

fn render_disk((sizes, free): (Sizes, Option<u64>)) -> Value {
    json!({"bytes": sizes.file, "wal_bytes": sizes.wal, "free_disk_bytes": free})
}

fn render_queue(queue: QueueStats, now: Timestamp) -> Value {
    json!({
        "pending_outbox": queue.pending_outbox,
        "stale_executions": queue.stale_executions,
        "pending_retries": queue.pending_retries,
        "pending_worker_claims": queue.pending_worker_claims,
        "oldest_pending_claim_seconds": queue.oldest_claim(now).map(|waited| waited.as_secs()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_poller_is_down_after_more_than_thirty_seconds_without_a_pass() {
        assert!(!is_down(Duration::from_secs(30)) && is_down(Duration::from_millis(30_001)));
    }
}
