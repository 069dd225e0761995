//! `/health` for people and `/status` for load balancers.

use std::time::Duration;

use hyper::StatusCode;
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::app::App;
use crate::domain::execution::unclaimed::UNCLAIMED_AFTER;
use crate::error::Result;
use crate::http::request::Request;
use crate::http::response::{Response, instant, instant_without_zone};
use crate::metrics::engine::{DOWN_AFTER, SchedulerPass};
use crate::store::db::hold;
use crate::store::maintenance::queue_stats;
use crate::store::maintenance::queue_stats::QueueStats;

/// Returned from the first read that meets the damage until the next start, which checks the file again.
const DAMAGED: &str = "the database file is damaged: stop cued, then run `cued check`";

/// `GET /health`: always 200.
pub async fn health(request: Request) -> Result<Response> {
    let (app, now) = (&request.app, request.now);
    let found =
        app.store.read(move |read| Ok((queue_stats::queue(read, now)?, hold::held_since(read)?))).await;
    if let Err(error) = &found {
        tracing::error!(request_id = request.id, error = %error, "cannot read the database");
    }
    let pass = app.engine_stats.last_pass();
    let database = database_status(app, found.is_ok());
    let (queue, held_since) = found.map_or((None, None), |(queue, held_since)| (Some(queue), held_since));
    let poller = poller_status(app, &pass, held_since.is_some());
    // On hold nothing can be claimed, whatever the workers do.
    let is_unclaimed = held_since.is_none()
        && queue.and_then(|queue| queue.oldest_claim(now)).is_some_and(|waited| waited >= UNCLAIMED_AFTER);
    let worker = if is_unclaimed { "waiting" } else { worker_status(queue.as_ref()) };
    let mut body = json!({
        "status": if database == "ok" && poller == "ok" { "healthy" } else { "degraded" },
        "version": env!("CARGO_PKG_VERSION"),
        "timestamp": instant_without_zone(now),
        "services": {"database": database, "cache": "ok", "poller": poller, "worker": worker},
        "poller": render_pass(&pass, now),
        "workers": {"active_count": queue.map_or(0, |queue| queue.active_workers)},
        "queue": queue.map(|queue| render_queue(queue, now)),
    });
    if let Some(since) = held_since {
        body["held_since"] = instant(since).into();
    }
    if app.store.is_corrupt() {
        body["reason"] = DAMAGED.into();
    }
    Ok(Response::ok(&body))
}

/// `GET /status`: 503 only if the database cannot be read.
pub async fn status(request: Request) -> Result<Response> {
    let app = &request.app;
    let is_held = match app.store.read_inline_single(hold::is_held).await {
        Ok(is_held) => is_held,
        Err(error) => {
            tracing::error!(request_id = request.id, error = %error, "cannot read the database");
            let reason = if app.store.is_corrupt() { DAMAGED } else { "the database cannot be read" };
            let body = json!({"status": "down", "reason": reason});
            return Ok(Response::json(StatusCode::SERVICE_UNAVAILABLE, body.to_string()));
        }
    };
    let is_healthy = database_status(app, true) == "ok"
        && poller_status(app, &app.engine_stats.last_pass(), is_held) == "ok";
    let mut body = json!({"status": if is_healthy { "healthy" } else { "degraded" }});
    if app.store.is_corrupt() {
        body["reason"] = DAMAGED.into();
    } else if is_held {
        body["reason"] = json!("held: a restored copy fires no cue until you run `cued promote`");
    }
    Ok(Response::ok(&body))
}

fn database_status(app: &App, is_readable: bool) -> &'static str {
    match (is_readable, app.store.is_writable()) {
        (true, _) if app.store.is_corrupt() => "damaged",
        (true, true) => "ok",
        (true, false) => "not writable",
        (false, _) => "down",
    }
}

fn poller_status(app: &App, pass: &SchedulerPass, is_held: bool) -> &'static str {
    if is_held {
        // Not `ok`: monitoring should notice that due cues do not fire.
        return "held";
    }
    scheduler_status(app.clock.monotonic().saturating_sub(pass.ended))
}

fn scheduler_status(since_last_pass: Duration) -> &'static str {
    if since_last_pass > DOWN_AFTER { "down" } else { "ok" }
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
        assert_eq!(scheduler_status(Duration::from_secs(30)), "ok");
        assert_eq!(scheduler_status(Duration::from_millis(30_001)), "down");
    }
}
