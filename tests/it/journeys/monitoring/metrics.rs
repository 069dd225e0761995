//! Metrics as a collector reads them, on their own listener.

use std::collections::BTreeSet;
use std::net::TcpListener;

use cued::domain::execution::attempt::FailureCause;
use serde_json::{Value, json};

use super::exposition::Exposition;
use crate::support::client::Client;
use crate::support::receiver::{Reaction, Receiver};
use crate::support::server::{DEV_UNLIMITED, Server, run, until};

const BEGIN: &str = "2030-01-01T00:00:00Z";
const LISTEN: [&str; 2] = ["--metrics-listen", "127.0.0.1:0"];

fn watched(flags: &[&str]) -> Server {
    Server::start(&[DEV_UNLIMITED, &LISTEN, flags].concat())
}

/// The client of the metrics address printed at the last start of the server.
pub fn collector(server: &Server) -> Client {
    Client::of_metrics(server.metrics_addr().expect("a server with --metrics-listen"))
}

#[track_caller]
pub fn scrape(server: &Server) -> Exposition {
    let response = collector(server).get("/metrics");
    assert_eq!(response.status, 200);
    assert_eq!(response.header("content-type"), Some("text/plain; version=0.0.4; charset=utf-8"));
    Exposition::read(&response.text())
}

fn hook(receiver: &Receiver, cron: &str) -> Value {
    json!({
        "name": "hook",
        "schedule": {"type": "recurring", "cron": cron},
        "callback": {"url": receiver.url()},
        "retry": {"max_attempts": 2, "backoff_minutes": [1]},
    })
}

fn deliveries(page: &Exposition, result: &str, cause: &str) -> f64 {
    page.value("cued_deliveries_total", &[("result", result), ("cause", cause)])
}

#[test]
fn a_new_server_exposes_every_metric_in_the_prometheus_format() {
    let server = watched(&[]);
    let passed = || Some(scrape(&server)).filter(|page| page.value("cued_scheduler_passes_total", &[]) > 0.0);
    let page = until("the scheduler has passed", passed);
    let names: Vec<String> = page.names().map(|(name, kind)| format!("{kind} {name}")).collect();
    let expected = [
        "gauge cued_active_workers",
        "gauge cued_build_info",
        "counter cued_claims_expired_total",
        "counter cued_claims_total",
        "gauge cued_clock_behind_seconds",
        "histogram cued_commit_batch_size",
        "histogram cued_commit_duration_seconds",
        "counter cued_commit_failures_total",
        "gauge cued_database_corrupt",
        "gauge cued_database_file_bytes",
        "gauge cued_database_on_hold",
        "gauge cued_database_readable",
        "gauge cued_database_wal_bytes",
        "gauge cued_database_writable",
        "counter cued_deliveries_total",
        "histogram cued_delivery_duration_seconds",
        "histogram cued_delivery_lateness_seconds",
        "gauge cued_event_streams",
        "counter cued_events_total",
        "counter cued_executions_created_total",
        "counter cued_executions_over_quota_total",
        "histogram cued_http_request_duration_seconds",
        "counter cued_missed_runs_total",
        "counter cued_notifications_total",
        "gauge cued_oldest_pending_claim_seconds",
        "gauge cued_queue_depth",
        "gauge cued_scheduler_last_pass_duration_seconds",
        "gauge cued_scheduler_last_pass_timestamp_seconds",
        "counter cued_scheduler_passes_total",
        "gauge cued_stale_executions",
        "gauge process_resident_memory_bytes",
        "gauge process_start_time_seconds",
    ];
    assert_eq!(names, expected);
    let counted =
        |label: &str| page.values_of("cued_deliveries_total", label).into_iter().collect::<Vec<_>>();
    assert_eq!(counted("result"), ["failed", "retrying", "success"], "counted from 0 on");
    let causes: BTreeSet<&str> = FailureCause::WORDS.into_iter().chain(["none"]).collect();
    assert_eq!(counted("cause"), causes.into_iter().collect::<Vec<_>>());
    assert_eq!(page.value("cued_build_info", &[("version", env!("CARGO_PKG_VERSION"))]), 1.0);
    assert_eq!(page.value("cued_database_readable", &[]), 1.0);
    assert_eq!(page.value("cued_database_writable", &[]), 1.0);
    let megabyte = 1_048_576.0;
    let memory = page.value("process_resident_memory_bytes", &[]);
    assert!((megabyte..1_000.0 * megabyte).contains(&memory), "{memory}");
    let started = page.value("process_start_time_seconds", &[]);
    let now = jiff::Timestamp::now().as_second() as f64;
    assert!((now - 120.0..=now + 1.0).contains(&started), "{started}");
    assert!(page.value("cued_database_wal_bytes", &[]) > 0.0, "the schema was just written");
}

#[test]
fn deliveries_are_counted_by_result_and_cause() {
    let (server, receiver) = (watched(&["--test-clock", BEGIN]), Receiver::start());
    let user = server.user();
    user.create(&hook(&receiver, "@hourly"));
    receiver.first([Reaction::Status(200), Reaction::Status(503), Reaction::HangUp, Reaction::Status(302)]);
    user.advance("PT1H"); // 200
    user.advance("PT1H"); // 503, to be tried again in a minute
    let page = scrape(&server);
    assert_eq!(page.value("cued_queue_depth", &[("queue", "retry")]), 1.0);
    user.advance("PT1M"); // no response
    user.advance("PT59M"); // 302
    let page = scrape(&server);
    assert_eq!(deliveries(&page, "success", "none"), 1.0);
    assert_eq!(deliveries(&page, "retrying", "status_5xx"), 1.0);
    assert_eq!(deliveries(&page, "failed", "connection"), 1.0);
    assert_eq!(page.value("cued_notifications_total", &[("result", "success")]), 1.0, "a mail to its owner");
    assert_eq!(deliveries(&page, "retrying", "status_3xx"), 1.0);
    assert_eq!(page.value("cued_delivery_duration_seconds_count", &[]), 4.0);
    assert_eq!(page.value("cued_executions_created_total", &[("triggered_by", "schedule")]), 3.0);
    // Second attempts are late by design.
    assert_eq!(page.value("cued_delivery_lateness_seconds_count", &[]), 3.0);
    assert_eq!(page.value("cued_delivery_lateness_seconds_bucket", &[("le", "0.001")]), 3.0);
    assert_eq!(page.value("cued_queue_depth", &[("queue", "send")]), 0.0);
}

#[test]
fn late_runs_count_as_late_in_the_metrics() {
    let mut server = watched(&["--test-clock", BEGIN]);
    let receiver = Receiver::start();
    let user = server.user();
    user.create(&hook(&receiver, "@hourly"));
    server.kill();
    // The run of 02:00 fires ten minutes late; the one of 01:00 was missed.
    server.restart_at("2030-01-01T02:10:00Z");
    user.at(server.addr()).settle();
    let page = scrape(&server);
    assert_eq!(page.value("cued_missed_runs_total", &[("reason", "downtime")]), 1.0);
    assert_eq!(page.value("cued_delivery_lateness_seconds_bucket", &[("le", "300")]), 0.0);
    assert_eq!(page.value("cued_delivery_lateness_seconds_bucket", &[("le", "3600")]), 1.0);
    assert_eq!(page.value("cued_delivery_lateness_seconds_sum", &[]), 600.0);
}

#[test]
fn claims_and_expired_claims_are_counted() {
    let server = watched(&["--test-clock", BEGIN]);
    let user = server.user();
    let work =
        json!({"name": "work", "transport": "worker", "schedule": {"type": "recurring", "cron": "@daily"}});
    let cue = user.create(&work);
    for _ in 0..2 {
        user.post(&format!("/v1/cues/{}/fire", cue["id"].as_str().unwrap()), &json!({})).expect(200);
    }
    assert_eq!(scrape(&server).value("cued_queue_depth", &[("queue", "claim")]), 2.0);
    for _ in 0..2 {
        user.post("/v1/executions/claim", &json!({"worker_id": "w"})).expect(200);
    }
    user.post("/v1/executions/claim", &json!({"worker_id": "w"})).expect_error(409, "claim_failed");
    user.advance("PT16M");
    let page = scrape(&server);
    assert_eq!(page.value("cued_claims_total", &[]), 2.0);
    assert_eq!(page.value("cued_claims_expired_total", &[]), 2.0);
    assert_eq!(page.value("cued_executions_created_total", &[("triggered_by", "manual_fire")]), 2.0);
    assert_eq!(page.value("cued_queue_depth", &[("queue", "claim")]), 2.0);
}

#[test]
fn metrics_show_a_held_file() {
    let server = watched(&[]);
    let held = || scrape(&server).value("cued_database_on_hold", &[]);
    assert_eq!(held(), 0.0);
    server.sqlite().execute("INSERT INTO meta (name, value) VALUES ('held_since', 0)", []).unwrap();
    assert_eq!(held(), 1.0);
}

#[test]
fn a_rolled_back_write_is_not_counted() {
    let server = watched(&["--test-clock", BEGIN]);
    let user = server.user();
    let with_key = |name: &str| {
        let daily = json!({"type": "recurring", "cron": "@daily"});
        let cue = json!({"name": name, "transport": "worker", "schedule": daily}).to_string();
        user.call("POST", "/v1/cues", &[("Idempotency-Key", "k")], cue.as_bytes()).unwrap()
    };
    with_key("work").expect(201);
    let commits = |page: &Exposition| page.value("cued_commit_batch_size_count", &[]);
    let before = commits(&scrape(&server));
    with_key("other work").expect_error(409, "idempotency_conflict");
    user.post("/v1/executions/claim", &json!({})).expect_error(409, "claim_failed");
    let page = scrape(&server);
    assert_eq!(commits(&page), before, "nothing has reached the disk");
    assert_eq!(page.value("cued_commit_failures_total", &[]), 0.0, "nothing was waiting either");
}

#[test]
fn requests_are_labelled_by_route_and_never_by_their_path() {
    let server = watched(&[]);
    let user = server.user();
    for number in 0..3 {
        user.get(&format!("/v1/cues/cue_{number:012}")).expect_error(404, "cue_not_found");
        user.get(&format!("/made-up-{number}")).expect_error(404, "not_found");
    }
    user.call("BREW", "/v1/cues", &[], b"").unwrap().expect_error(405, "method_not_allowed");
    user.call("HEAD", "/health", &[], b"").ok();
    let page = scrape(&server);
    let name = "cued_http_request_duration_seconds_count";
    let count =
        |method, route, status| page.value(name, &[("method", method), ("route", route), ("status", status)]);
    assert_eq!(count("GET", "/v1/cues/{cue_id}", "4xx"), 3.0);
    assert_eq!(count("none", "none", "4xx"), 4.0);
    assert_eq!(count("GET", "/health", "2xx"), 1.0);
    assert_eq!(count("POST", "/v1/auth/register", "2xx"), 1.0);
    let routes = page.values_of(name, "route");
    assert!(routes.iter().all(|route| !route.contains("made-up") && !route.contains("cue_0")), "{routes:?}");
}

#[test]
fn metrics_are_off_by_default_and_never_on_the_port_of_the_api() {
    let server = Server::start(DEV_UNLIMITED);
    assert_eq!((server.log().as_str(), server.stdout().as_str()), ("", ""), "nothing listens for metrics");
    server.client().get("/metrics").expect_error(404, "not_found");
    let server = watched(&[]);
    server.user().get("/metrics").expect_error(404, "not_found");
    for path in ["/health", "/v1/cues", "/"] {
        collector(&server).get(path).expect_error(404, "not_found");
    }
}

#[test]
fn metrics_are_not_rate_limited() {
    let server = Server::start(&[&["--dev"], &LISTEN[..]].concat());
    let collector = collector(&server);
    for _ in 0..100 {
        assert_eq!(collector.get("/metrics").status, 200);
    }
}

#[test]
fn metrics_remain_available_until_all_deliveries_end() {
    let (mut server, receiver) = (watched(&[]), Receiver::start());
    let user = server.user();
    receiver.react(Reaction::Hang);
    let cue = user.create(&hook(&receiver, "@daily"));
    user.post(&format!("/v1/cues/{}/fire", cue["id"].as_str().unwrap()), &json!({})).expect(200);
    receiver.wait_hanging(1);
    server.terminate();
    until("the port of the API is closed", || std::net::TcpStream::connect(server.addr()).err());
    // The API has no running request: the next lines show that its listener has ended all the same.
    for _ in 0..50 {
        assert_eq!(deliveries(&scrape(&server), "success", "none"), 0.0);
    }
    receiver.release();
    assert_eq!(server.wait_for_exit(), Some(0));
    assert!(std::net::TcpStream::connect(server.metrics_addr().unwrap()).is_err());
}

#[test]
fn an_occupied_metrics_address_is_reported() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap().to_string();
    let output = run(&["serve", "--ephemeral", "--metrics-listen", &addr]);
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(stderr.contains(&addr) && stderr.contains("--metrics-listen"), "{stderr}");
}
