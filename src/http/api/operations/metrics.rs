//! `/metrics`, for Prometheus. It has a listener of its own: the figures of all users are nobody else's to read.

use hyper::StatusCode;
use jiff::Timestamp;

use crate::app::App;
use crate::domain::execution::Trigger;
use crate::domain::schedule::catch_up::MissReason;
use crate::error::{Error, Result};
use crate::http::request::Request;
use crate::http::response::Response;
use crate::metrics::process;
use crate::metrics::prometheus::{CONTENT_TYPE, TextEncoder};
use crate::store::db::hold;
use crate::store::db::open;
use crate::store::db::open::Sizes;
use crate::store::db::write_stats::{WriteEvent, WriteStats};
use crate::store::maintenance::queue_stats;
use crate::store::maintenance::queue_stats::QueueStats;

/// `GET /metrics`: what there is, if the database cannot be read too.
pub async fn metrics(request: Request) -> Result<Response> {
    let (app, now, db) = (&request.app, request.now, request.app.config.db.clone());
    let sizes = open::sizes(&db);
    let look = app.store.read(move |read| Ok((queue_stats::queue(read, now)?, hold::is_held(read)?))).await;
    if let Err(error) = &look {
        tracing::error!(request_id = request.id, "metrics cannot read the database: {error}");
    }
    let closed = || Error::storage("the store has been closed");
    let page = page(app, look.ok(), &sizes, app.store.write_stats().ok_or_else(closed)?);
    Ok(Response::text(StatusCode::OK, CONTENT_TYPE, page.into_text()))
}

fn page(app: &App, look: Option<(QueueStats, bool)>, sizes: &Sizes, write_stats: &WriteStats) -> TextEncoder {
    let mut page = TextEncoder::default();
    about_the_process(&mut page, app);
    about_deliveries(&mut page, app);
    about_executions(&mut page, write_stats);
    about_the_queue(&mut page, look.map(|(queue, _)| queue));
    about_the_scheduler(&mut page, app);
    page.gauge(
        "cued_held",
        "Whether the file is a restored copy, of which nothing is fired until it is promoted.",
        look.map(|(_, is_held)| u8::from(is_held)),
    );
    about_the_database(&mut page, app, look.is_some(), sizes, write_stats);
    page.histogram_family(
        "cued_http_request_duration_seconds",
        "How long requests took, a long poll's wait included.",
        ["method", "route", "status"],
        &app.requests,
    );
    page
}

fn about_the_process(page: &mut TextEncoder, app: &App) {
    let version = [(env!("CARGO_PKG_VERSION"), 1)];
    page.gauges("cued_build_info", "The version that runs; always 1.", "version", &version);
    // The names of Prometheus' own client libraries, for which there are dashboards.
    page.gauge(
        "process_start_time_seconds",
        "When the process started, in seconds since 1970.",
        Some(seconds(app.clock.started_at())),
    );
    page.gauge("process_resident_memory_bytes", "Memory that the process holds.", process::resident_bytes());
}

fn about_deliveries(page: &mut TextEncoder, app: &App) {
    let deliveries = &app.engine_stats.deliveries;
    page.histogram(
        "cued_delivery_lateness_seconds",
        "From the instant that a webhook run was scheduled for to the start of its first attempt.",
        &deliveries.lateness,
    );
    page.histogram(
        "cued_delivery_duration_seconds",
        "How long attempts at delivery took.",
        &deliveries.durations,
    );
    page.counter_family(
        "cued_deliveries_total",
        "Attempts at delivery that have ended, by what became of the execution and by the cause of a failure.",
        ["result", "cause"],
        &deliveries.attempts,
    );
    page.counter_family(
        "cued_notices_total",
        "Attempts to tell of failures, by mail or POST, by what became of the notice.",
        ["result"],
        &app.engine_stats.notifications,
    );
}

fn about_executions(page: &mut TextEncoder, write_stats: &WriteStats) {
    let made = [Trigger::Schedule, Trigger::ManualFire, Trigger::Replay]
        .map(|trigger| (trigger.as_str(), write_stats.count(WriteEvent::Made(trigger))));
    page.counters("cued_executions_made_total", "Executions made.", "triggered_by", &made);
    page.counter(
        "cued_executions_over_quota_total",
        "Executions recorded as failed and not sent, since the plan's quota was used up.",
        write_stats.count(WriteEvent::OverQuota),
    );
    let missed = [MissReason::Downtime, MissReason::Clock]
        .map(|reason| (reason.as_str(), write_stats.count(WriteEvent::Missed(reason))));
    page.counters("cued_missed_runs_total", "Runs that made no execution.", "reason", &missed);
    page.counter(
        "cued_claims_total",
        "Executions that workers claimed.",
        write_stats.count(WriteEvent::Claimed),
    );
    page.counter(
        "cued_lost_claims_total",
        "Executions taken back from workers that lost them.",
        write_stats.count(WriteEvent::LostClaim),
    );
}

fn about_the_queue(page: &mut TextEncoder, queue: Option<QueueStats>) {
    let Some(queue) = queue else { return };
    let depths = [
        ("send", queue.pending_outbox),
        ("claim", queue.pending_worker_claims),
        ("retry", queue.pending_retries),
    ];
    page.gauges(
        "cued_queue_depth",
        "Executions that wait: to be sent, for a worker, for another attempt.",
        "queue",
        &depths,
    );
    page.gauge(
        "cued_stale_executions",
        "Executions under way for over 300 seconds.",
        Some(queue.stale_executions),
    );
    page.gauge("cued_active_workers", "Workers whose last heartbeat is recent.", Some(queue.active_workers));
}

fn about_the_scheduler(page: &mut TextEncoder, app: &App) {
    let cycle = app.engine_stats.cycle();
    page.counter("cued_scheduler_turns_total", "Passes of the scheduler.", app.engine_stats.turns());
    page.gauge(
        "cued_scheduler_last_turn_timestamp_seconds",
        "When the scheduler's last pass began, in seconds since 1970.",
        cycle.last_run.map(seconds),
    );
    page.gauge(
        "cued_scheduler_last_turn_duration_seconds",
        "How long the scheduler's last pass took.",
        Some(cycle.took.as_secs_f64()),
    );
}

fn about_the_database(
    page: &mut TextEncoder,
    app: &App,
    is_readable: bool,
    sizes: &Sizes,
    write_stats: &WriteStats,
) {
    page.histogram("cued_commit_writes", "Writes that share a commit.", &write_stats.batches);
    page.histogram(
        "cued_commit_duration_seconds",
        "How long commits took, the writes themselves included.",
        &write_stats.commits,
    );
    page.counter(
        "cued_commit_failures_total",
        "Commits of which nothing is on the disk.",
        write_stats.failed_commits.get(),
    );
    page.gauge(
        "cued_database_readable",
        "Whether the database could be read for this page.",
        Some(u8::from(is_readable)),
    );
    page.gauge(
        "cued_database_writable",
        "Whether the newest write to the database succeeded.",
        Some(u8::from(app.store.is_writable())),
    );
    page.gauge(
        "cued_database_damaged",
        "Whether damage was met in the database file since the start.",
        Some(u8::from(app.store.is_corrupt())),
    );
    page.gauge("cued_database_file_bytes", "Size of the database file.", sizes.file);
    page.gauge("cued_database_wal_bytes", "Size of the write-ahead log beside it.", sizes.wal);
}

#[allow(clippy::cast_precision_loss)] // a double holds milliseconds for 285,000 years
fn seconds(at: Timestamp) -> f64 {
    at.as_millisecond() as f64 / 1_000.0
}
