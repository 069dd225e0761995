//! `cued health`: the state of the server; fails if it is not healthy.

use clap::Args;
use serde_json::Value;

use crate::cli::client::command::ClientAction;
use crate::cli::client::context::Context;
use crate::cli::error::CliError;
use crate::cli::output::cells::{status, text_of};
use crate::cli::output::table::Cell;
use crate::cli::output::times::duration;
use crate::cli::progress::size;
use crate::client::request::ApiRequest;

#[derive(Debug, Args)]
pub struct Health {}

impl ClientAction for Health {
    fn run(self, context: &Context) -> Result<(), CliError> {
        let answer = context.send(&ApiRequest::get("/health").anonymous())?;
        let health = answer.value()?;
        context.output.object(&answer, "status", |health| {
            let mut lines = services(context, health);
            lines.extend(figures(health));
            lines
        })?;
        if health["status"] == "healthy" {
            return Ok(());
        }
        let reason = ["reason", "status"].map(|field| text_of(&health, field));
        let reason = reason.into_iter().find(|reason| !reason.is_empty()).unwrap_or_default();
        let held = if health["held_since"].is_string() { ", and held: `cued promote`" } else { "" };
        Err(CliError::Failed(format!("the server is not healthy: {reason}{held}")))
    }
}

fn services(context: &Context, health: &Value) -> Vec<(&'static str, Cell)> {
    let service = |name: &str| status(&text_of(health, name));
    vec![
        ("server", context.target.url.as_str().into()),
        ("version", text_of(health, "version").into()),
        ("status", service("status")),
        ("database", service("services.database")),
        ("cache", service("services.cache")),
        ("poller", service("services.poller")),
        ("worker", service("services.worker")),
        ("held since", context.output.times.instant(&text_of(health, "held_since")).into()),
    ]
}

fn figures(health: &Value) -> Vec<(&'static str, Cell)> {
    let number = |field: &str| text_of(health, field);
    let with = |field: &str, unit: fn(i64) -> String| number(field).parse().map(unit).unwrap_or_default();
    let bytes = |bytes: i64| size(bytes.unsigned_abs());
    let seconds = |seconds: i64| duration(seconds.saturating_mul(1_000));
    let waiting = match (number("queue.pending_worker_claims"), number("queue.oldest_pending_claim_seconds"))
    {
        (count, oldest) if oldest.is_empty() => count,
        (count, _) => {
            format!("{count}, the first for {}", with("queue.oldest_pending_claim_seconds", seconds))
        }
    };
    let late = |field: &str| number(field).parse::<f64>().map(|ms| format!("{ms} ms")).unwrap_or_default();
    let lateness = match (late("lateness.p50_ms"), late("lateness.p99_ms")) {
        (p50, p99) if !p50.is_empty() => format!("{p50} (median), {p99} (99 of 100)"),
        _ => String::new(),
    };
    vec![
        ("up for", with("uptime_seconds", seconds).into()),
        ("workers", number("workers.active_count").into()),
        ("to deliver", number("queue.pending_outbox").into()),
        ("to retry", number("queue.pending_retries").into()),
        ("to claim", waiting.into()),
        ("stuck", number("queue.stale_executions").into()),
        ("lateness", lateness.into()),
        ("file", with("database.bytes", bytes).into()),
        ("free disk", with("database.free_disk_bytes", bytes).into()),
    ]
}
