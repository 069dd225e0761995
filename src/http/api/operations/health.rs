//! `/health` and `/status`: how the service is, for people and for load balancers.

use std::time::Duration;

use hyper::StatusCode;
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::app::App;
use crate::error::Result;
use crate::http::request::Request;
use crate::http::response::{Response, instant, instant_without_zone};
use crate::metrics::engine::{DOWN_AFTER, SchedulerPass};
use crate::store::db::hold;
use crate::store::maintenance::queue_stats;
use crate::store::maintenance::queue_stats::QueueStats;

/// What is said from the first answer on that damage spoilt until the next start, which looks at the file anew.
const DAMAGED: &str = "the database file is damaged: stop cued, run cued check";

/// `GET /health`: 200 whatever it finds.
pub async fn health(request: Request) -> Result<Response> {
    let (app, now) = (&request.app, request.now);
    let look =
        app.store.read(move |read| Ok((queue_stats::queue(read, now)?, hold::held_since(read)?))).await;
    if let Err(error) = &look {
        tracing::error!(request_id = request.id, "health cannot read the database: {error}");
    }
    let cycle = app.engine_stats.cycle();
    let database = database_word(app, look.is_ok());
    let (queue, held_since) = look.map_or((None, None), |(queue, held_since)| (Some(queue), held_since));
    let poller = poller_word(app, &cycle, held_since.is_some());
    let mut body = json!({
        "status": if database == "ok" && poller == "ok" { "healthy" } else { "degraded" },
        "version": env!("CARGO_PKG_VERSION"),
        "timestamp": instant_without_zone(now),
        "services": {"database": database, "cache": "ok", "poller": poller, "worker": worker_word(queue.as_ref())},
        "poller": render_cycle(&cycle, now),
        "workers": {"active_count": queue.map_or(0, |queue| queue.active_workers)},
        "queue": queue.map(render_queue),
    });
    if let Some(since) = held_since {
        body["held_since"] = instant(since).into();
    }
    if app.store.is_corrupt() {
        body["reason"] = DAMAGED.into();
    }
    Ok(Response::ok(&body))
}

/// `GET /status`: 503 only when the service cannot do its job.
pub async fn status(request: Request) -> Result<Response> {
    let app = &request.app;
    let is_held = match app.store.read_inline_single(hold::is_held).await {
        Ok(is_held) => is_held,
        Err(error) => {
            tracing::error!(request_id = request.id, "the database cannot be read: {error}");
            let reason = if app.store.is_corrupt() { DAMAGED } else { "the database cannot be read" };
            let body = json!({"status": "down", "reason": reason});
            return Ok(Response::json(StatusCode::SERVICE_UNAVAILABLE, body.to_string()));
        }
    };
    let well =
        database_word(app, true) == "ok" && poller_word(app, &app.engine_stats.cycle(), is_held) == "ok";
    let mut body = json!({"status": if well { "healthy" } else { "degraded" }});
    if app.store.is_corrupt() {
        body["reason"] = DAMAGED.into();
    } else if is_held {
        body["reason"] = json!("held: a restored copy fires nothing until `cued promote`");
    }
    Ok(Response::ok(&body))
}

fn database_word(app: &App, readable: bool) -> &'static str {
    match (readable, app.store.is_writable()) {
        (true, _) if app.store.is_corrupt() => "damaged",
        (true, true) => "ok",
        (true, false) => "not writable",
        (false, _) => "down",
    }
}

fn poller_word(app: &App, cycle: &SchedulerPass, is_held: bool) -> &'static str {
    if is_held {
        // Its monitor is to say so: what should fire does not.
        return "held";
    }
    word_after(app.clock.monotonic().saturating_sub(cycle.turned))
}

/// What is said of a scheduler whose last pass ended so long ago.
fn word_after(standing: Duration) -> &'static str {
    if standing > DOWN_AFTER { "down" } else { "ok" }
}

fn worker_word(queue: Option<&QueueStats>) -> &'static str {
    match queue {
        Some(queue) if queue.active_workers > 0 => "ok",
        Some(queue) if queue.any_workers => "stale",
        _ => "none",
    }
}

fn render_cycle(cycle: &SchedulerPass, now: Timestamp) -> Value {
    json!({
        "last_run": cycle.last_run.map(instant),
        "seconds_ago": cycle.last_run.map(|last| now.duration_since(last).as_secs().max(0)),
        "cues_last_cycle": cycle.cues,
        "cycle_duration_ms": u64::try_from(cycle.took.as_millis()).unwrap_or(u64::MAX),
    })
}

fn render_queue(queue: QueueStats) -> Value {
    json!({
        "pending_outbox": queue.pending_outbox,
        "stale_executions": queue.stale_executions,
        "pending_retries": queue.pending_retries,
        "pending_worker_claims": queue.pending_worker_claims,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_poller_is_down_after_thirty_seconds_without_a_pass() {
        assert_eq!(word_after(Duration::from_secs(30)), "ok");
        assert_eq!(word_after(Duration::from_millis(30_001)), "down");
    }
}
