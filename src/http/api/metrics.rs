//! `GET /metrics`, for Prometheus (contract §1.9). It has a separate listener, because it covers all users and requires
//! no key.

use hyper::StatusCode;
use jiff::Timestamp;

use crate::app::App;
use crate::domain::execution::Trigger;
use crate::domain::schedule::catch_up::MissReason;
use crate::domain::schedule::wall_clock::ClockFault;
use crate::error::Result;
use crate::http::message::{Request, Response};
use crate::metrics::{CONTENT_TYPE, TextEncoder, process};
use crate::store::db::counters::{WriteEvent, WriteStats};
use crate::store::db::open::Sizes;
use crate::store::db::{meta, open};
use crate::store::stats::{self, QueueStats};

/// Handles `GET /metrics`. If the database cannot be read, the metrics that are read from it are left out.
pub async fn metrics(request: Request) -> Result<Response> {
    let (app, now, db) = (&request.app, request.now, request.app.config.db.clone());
    let sizes = open::sizes(&db);
    let read = app
        .store
        .read(move |read| Ok((stats::queue_stats(read, now)?, meta::is_held(read)?)))
        .await;
    if let Err(error) = &read {
        tracing::error!(request_id = request.id, %error, "cannot read the database");
    }
    let encoder = encode(app, read.ok(), &sizes, app.store.write_stats(), now);
    Ok(Response::text(StatusCode::OK, CONTENT_TYPE, encoder.into_text()))
}

fn encode(
    app: &App,
    read: Option<(QueueStats, bool)>,
    sizes: &Sizes,
    write_stats: &WriteStats,
    now: Timestamp,
) -> TextEncoder {
    let mut page = TextEncoder::default();
    encode_process(&mut page, app);
    encode_deliveries(&mut page, app);
    encode_executions(&mut page, write_stats);
    encode_queue(&mut page, read.map(|(queue, _)| queue), now);
    encode_scheduler(&mut page, app);
    page.gauge(
        "cued_database_on_hold",
        "1 while the database is on hold: a restored copy fires nothing until it is promoted.",
        read.map(|(_, is_held)| u8::from(is_held)),
    );
    page.gauge(
        "cued_clock_behind_seconds",
        "How far the clock is behind the newest instant of the database, before which no cue fires by schedule; else 0.",
        Some(match app.clock_fault() {
            Some(ClockFault::Behind { now, newest }) => newest.duration_since(now).as_secs(),
            _ => 0,
        }),
    );
    encode_database(&mut page, app, read.is_some(), sizes, write_stats);
    page.gauge("cued_event_streams", "Open event streams.", Some(app.events.streams()));
    page.counter(
        "cued_events_total",
        "Live events of users with an open stream; without one, none is created.",
        app.events.recorded(),
    );
    page.histograms(
        "cued_http_request_duration_seconds",
        "Duration of HTTP requests, including the wait of a long poll.",
        ["method", "route", "status"],
        app.requests.all(),
    );
    page
}

fn encode_process(page: &mut TextEncoder, app: &App) {
    let version = [([env!("CARGO_PKG_VERSION")], 1)];
    page.family("gauge", "cued_build_info", "The running version; always 1.", ["version"], version);
    // The names that Prometheus client libraries use, for which dashboards exist.
    page.gauge(
        "process_start_time_seconds",
        "Start time of the process, in seconds since 1970.",
        Some(seconds(app.clock.started_at())),
    );
    page.gauge(
        "process_resident_memory_bytes",
        "Resident memory of the process.",
        process::resident_bytes(),
    );
}

fn encode_deliveries(page: &mut TextEncoder, app: &App) {
    let stats = &app.engine_stats;
    page.histogram(
        "cued_delivery_lateness_seconds",
        "Time from the scheduled instant of a webhook run to the start of its first attempt.",
        &stats.lateness,
    );
    page.histogram(
        "cued_delivery_duration_seconds",
        "Duration of delivery attempts.",
        &stats.attempt_durations,
    );
    page.family(
        "counter",
        "cued_deliveries_total",
        "Finished delivery attempts, by the resulting state of the execution and the cause of a failure.",
        ["result", "cause"],
        stats.attempts.all(),
    );
    page.family(
        "counter",
        "cued_notifications_total",
        "Attempts to send failure notifications by mail or webhook, by result.",
        ["result"],
        stats.notifications.all(),
    );
}

fn encode_executions(page: &mut TextEncoder, write_stats: &WriteStats) {
    let created = [Trigger::Schedule, Trigger::ManualFire, Trigger::Replay]
        .map(|trigger| ([trigger.as_str()], write_stats.count(WriteEvent::Created(trigger))));
    page.family(
        "counter",
        "cued_executions_created_total",
        "Created executions.",
        ["triggered_by"],
        created,
    );
    page.counter(
        "cued_executions_over_quota_total",
        "Executions recorded as failed without an attempt, because the quota of the plan was used up.",
        write_stats.count(WriteEvent::OverQuota),
    );
    let missed = MissReason::ALL
        .map(|reason| ([reason.as_str()], write_stats.count(WriteEvent::Missed(reason))));
    let help = "Missed runs, which created no execution.";
    page.family("counter", "cued_missed_runs_total", help, ["reason"], missed);
    page.counter(
        "cued_claims_total",
        "Executions claimed by workers.",
        write_stats.count(WriteEvent::Claimed),
    );
    page.counter(
        "cued_claims_expired_total",
        "Claims that expired because the worker stopped sending heartbeats.",
        write_stats.count(WriteEvent::ClaimExpired),
    );
}

fn encode_queue(page: &mut TextEncoder, queue: Option<QueueStats>, now: Timestamp) {
    let Some(queue) = queue else { return };
    let depths = [
        (["send"], queue.pending_outbox),
        (["claim"], queue.pending_worker_claims),
        (["retry"], queue.pending_retries),
    ];
    page.family(
        "gauge",
        "cued_queue_depth",
        "Pending executions: to be sent, to be claimed by a worker, to be retried.",
        ["queue"],
        depths,
    );
    page.gauge(
        "cued_oldest_pending_claim_seconds",
        "How long the execution that waits longest for the claim of a worker has waited; 0 without one.",
        Some(queue.oldest_claim(now).map_or(0, |waited| waited.as_secs())),
    );
    page.gauge(
        "cued_stale_executions",
        "Executions in delivery for more than 300 seconds.",
        Some(queue.stale_executions),
    );
    page.gauge(
        "cued_active_workers",
        "Workers with a recent heartbeat.",
        Some(queue.active_workers),
    );
}

fn encode_scheduler(page: &mut TextEncoder, app: &App) {
    let pass = app.engine_stats.last_pass();
    page.counter(
        "cued_scheduler_passes_total",
        "Passes of the scheduler.",
        app.engine_stats.passes.get(),
    );
    page.gauge(
        "cued_scheduler_last_pass_timestamp_seconds",
        "Start of the last pass of the scheduler, in seconds since 1970.",
        pass.started_at.map(seconds),
    );
    page.gauge(
        "cued_scheduler_last_pass_duration_seconds",
        "Duration of the last pass of the scheduler.",
        Some(pass.duration.as_secs_f64()),
    );
}

fn encode_database(
    page: &mut TextEncoder,
    app: &App,
    is_readable: bool,
    sizes: &Sizes,
    write_stats: &WriteStats,
) {
    page.histogram("cued_commit_batch_size", "Number of writes in a commit.", &write_stats.batches);
    page.histogram(
        "cued_commit_duration_seconds",
        "Duration of commits, including their writes.",
        &write_stats.commits,
    );
    page.counter(
        "cued_commit_failures_total",
        "Commits that failed and were rolled back.",
        write_stats.failed_commits.get(),
    );
    page.gauge(
        "cued_database_readable",
        "1 if the database could be read for this scrape.",
        Some(u8::from(is_readable)),
    );
    page.gauge(
        "cued_database_writable",
        "1 if the last write to the database succeeded.",
        Some(u8::from(app.store.is_writable())),
    );
    page.gauge(
        "cued_database_corrupt",
        "1 if corruption was found in the database file since the start.",
        Some(u8::from(app.store.is_corrupt())),
    );
    page.gauge("cued_database_file_bytes", "Size of the database file.", sizes.file);
    page.gauge(
        "cued_database_wal_bytes",
        "Size of the write-ahead log of the database.",
        sizes.wal,
    );
}

#[allow(clippy::cast_precision_loss)] // a double holds milliseconds for 285,000 years
fn seconds(at: Timestamp) -> f64 {
    at.as_millisecond() as f64 / 1_000.0
}
