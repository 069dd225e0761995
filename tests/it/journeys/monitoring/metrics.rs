//! Metrics and their format.

use cued::domain::execution::attempt::FailureCause;

use crate::support::*;

const BEGIN: &str = "2030-01-01T00:00:00Z";
const LISTEN: [&str; 2] = ["--metrics-listen", "127.0.0.1:0"];

fn watched(flags: &[&str]) -> Server {
    Server::start(&[DEV_UNLIMITED, &LISTEN, flags].concat())
}

/// The client of the metrics address printed at the last start of the server.
pub fn collector(server: &Server) -> Client {
    Client::for_metrics(server.metrics_addr().expect("a server with --metrics-listen"))
}

#[track_caller]
pub fn scrape(server: &Server) -> Exposition {
    let response = collector(server).get("/metrics");
    assert_eq!(response.status, 200);
    assert_eq!(response.header("content-type"), Some("text/plain; version=0.0.4; charset=utf-8"));
    Exposition::read(&response.text())
}

fn hook(receiver: &Receiver, cron: &str) -> Value {
    let retry = json!({"retry": {"max_attempts": 2, "backoff_minutes": [1]}});
    with(webhook_cue("hook", cron, &receiver.url()), retry)
}

fn deliveries(page: &Exposition, result: &str, cause: &str) -> f64 {
    page.value("cued_deliveries_total", &[("result", result), ("cause", cause)])
}

#[test]
fn a_new_server_exposes_every_metric_in_the_prometheus_format() {
    let server = watched(&[]);
    let passed = || {
        Some(scrape(&server)).filter(|page| page.value("cued_scheduler_passes_total", &[]) > 0.0)
    };
    let page = until("the scheduler has passed", passed);
    let names: Vec<String> = page.names().map(|(name, kind)| format!("{kind} {name}")).collect();
    let expected = "gauge cued_active_workers | gauge cued_build_info | counter cued_claims_expired_total | \
        counter cued_claims_total | gauge cued_clock_behind_seconds | histogram cued_commit_batch_size | \
        histogram cued_commit_duration_seconds | counter cued_commit_failures_total | \
        gauge cued_database_corrupt | gauge cued_database_file_bytes | gauge cued_database_on_hold | \
        gauge cued_database_readable | gauge cued_database_wal_bytes | gauge cued_database_writable | \
        counter cued_deliveries_total | histogram cued_delivery_duration_seconds | \
        histogram cued_delivery_lateness_seconds | gauge cued_event_streams | counter cued_events_total | \
        counter cued_executions_created_total | counter cued_executions_over_quota_total | \
        histogram cued_http_request_duration_seconds | counter cued_missed_runs_total | \
        counter cued_notifications_total | gauge cued_oldest_pending_claim_seconds | \
        gauge cued_queue_depth | gauge cued_scheduler_last_pass_duration_seconds | \
        gauge cued_scheduler_last_pass_timestamp_seconds | counter cued_scheduler_passes_total | \
        gauge cued_stale_executions | gauge process_resident_memory_bytes | \
        gauge process_start_time_seconds"
        .split(" | ");
    assert_eq!(names, expected.collect::<Vec<_>>());
    let counted = |label: &str| {
        page.values_of("cued_deliveries_total", label).into_iter().collect::<Vec<_>>()
    };
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
    // The schema and the first user are in the file itself.
    server.user().create(&worker_cue("work", "@daily"));
    assert!(scrape(&server).value("cued_database_wal_bytes", &[]) > 0.0, "a cue was just written");
}

#[test]
fn deliveries_are_counted_by_result_and_cause() {
    let (server, receiver) = (watched(&["--test-clock", BEGIN]), Receiver::start());
    let user = server.user();
    user.create(&hook(&receiver, "@hourly"));
    receiver.first([
        Reaction::Status(200),
        Reaction::Status(503),
        Reaction::HangUp,
        Reaction::Status(302),
    ]);
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
    // A mail to its owner.
    assert_eq!(page.value("cued_notifications_total", &[("result", "success")]), 1.0);
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
    let cue = user.create(&worker_cue("work", "@daily"));
    (0..2).for_each(|_| drop(user.fire(&cue)));
    assert_eq!(scrape(&server).value("cued_queue_depth", &[("queue", "claim")]), 2.0);
    (0..2).for_each(|_| drop(user.claim("w")));
    user.post("/v1/executions/claim", &json!({"worker_id": "w"})).expect_error(409, "claim_failed");
    user.advance("PT16M");
    let page = scrape(&server);
    assert_eq!(page.value("cued_claims_total", &[]), 2.0);
    assert_eq!(page.value("cued_claims_expired_total", &[]), 2.0);
    assert_eq!(
        page.value("cued_executions_created_total", &[("triggered_by", "manual_fire")]),
        2.0
    );
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
    let count = |method, route, status| {
        page.value(name, &[("method", method), ("route", route), ("status", status)])
    };
    assert_eq!(count("GET", "/v1/cues/{cue_id}", "4xx"), 3.0);
    assert_eq!(count("none", "none", "4xx"), 4.0);
    assert_eq!(count("GET", "/health", "2xx"), 1.0);
    assert_eq!(count("POST", "/v1/auth/register", "2xx"), 1.0);
    let routes = page.values_of(name, "route");
    assert!(
        routes.iter().all(|route| !route.contains("made-up") && !route.contains("cue_0")),
        "{routes:?}"
    );
}

#[test]
fn metrics_are_off_by_default_and_never_on_the_port_of_the_api() {
    let server = Server::start(DEV_UNLIMITED);
    assert_eq!(server.log().as_str(), "", "nothing listens for metrics");
    assert_eq!(server.stdout().as_str(), "", "nothing listens for metrics");
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
    (0..100).for_each(|_| assert_eq!(collector.get("/metrics").status, 200));
}

#[test]
fn metrics_remain_available_until_all_deliveries_end() {
    let (mut server, receiver) = (watched(&[]), Receiver::start());
    let user = server.user();
    receiver.react(Reaction::Hang);
    let cue = user.create(&hook(&receiver, "@daily"));
    user.fire(&cue);
    receiver.wait_hanging(1);
    server.terminate();
    until("the port of the API is closed", || std::net::TcpStream::connect(server.addr()).err());
    // The API has no running request: the next lines show that its listener has ended all the same.
    (0..50).for_each(|_| assert_eq!(deliveries(&scrape(&server), "success", "none"), 0.0));
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

/// A valid page of metrics.
pub struct Exposition {
    families: BTreeMap<String, String>,
    samples: Vec<Sample>,
}

struct Sample {
    name: String,
    labels: BTreeMap<String, String>,
    value: f64,
}

impl Exposition {
    #[track_caller]
    pub fn read(text: &str) -> Self {
        assert!(text.ends_with('\n'), "the last line ends with a line feed");
        let mut page = Self { families: BTreeMap::new(), samples: Vec::new() };
        let mut lines = text.lines().peekable();
        while let Some(line) = lines.next() {
            let (name, help) =
                line.strip_prefix("# HELP ").and_then(|it| it.split_once(' ')).expect("HELP first");
            assert!(help.ends_with('.') && !help.contains("  "), "{line}");
            let kind = lines
                .next()
                .and_then(|it| it.strip_prefix(&format!("# TYPE {name} ")))
                .expect(name);
            check_name(name, kind);
            let first = page.samples.len();
            while let Some(line) = lines.next_if(|line| !line.starts_with('#')) {
                page.samples.push(sample(line));
            }
            check_samples(name, kind, &page.samples[first..]);
            let before = page.families.insert(name.to_owned(), kind.to_owned());
            assert_eq!(before, None, "{name} appears in two places");
        }
        let mut known = BTreeSet::new();
        for Sample { name, labels, .. } in &page.samples {
            assert!(known.insert((name, labels)), "{name} {labels:?} appears twice");
        }
        page
    }

    /// The names and types of all metrics.
    pub fn names(&self) -> impl Iterator<Item = (&str, &str)> {
        self.families.iter().map(|(name, kind)| (name.as_str(), kind.as_str()))
    }

    /// The value of the sample with exactly these labels, or 0.
    pub fn value(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        let family = ["_bucket", "_sum", "_count"].iter().find_map(|end| name.strip_suffix(end));
        let is_there = |name: &str| self.families.contains_key(name);
        assert!(is_there(name) || family.is_some_and(is_there), "{name} is not a metric");
        let labels: BTreeMap<String, String> = labels
            .iter()
            .map(|(label, value)| ((*label).to_owned(), (*value).to_owned()))
            .collect();
        let found = self.samples.iter().find(|it| it.name == name && it.labels == labels);
        found.map_or(0.0, |sample| sample.value)
    }

    /// The values of a label.
    pub fn values_of(&self, name: &str, label: &str) -> BTreeSet<String> {
        let of = self.samples.iter().filter(|sample| sample.name == name);
        of.filter_map(|sample| sample.labels.get(label).cloned()).collect()
    }
}

fn is_word(text: &str) -> bool {
    !text.starts_with(|first: char| first.is_ascii_digit())
        && !text.is_empty()
        && text
            .bytes()
            .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_')
}

fn check_name(name: &str, kind: &str) {
    assert!(["counter", "gauge", "histogram"].contains(&kind), "{name} is a {kind}");
    assert!(is_word(name) && (name.starts_with("cued_") || name.starts_with("process_")), "{name}");
    assert_eq!(name.ends_with("_total"), kind == "counter", "{name}");
    for reserved in ["_count", "_sum", "_bucket"] {
        assert!(!name.ends_with(reserved), "{name}");
    }
    // Base units only.
    let parts: Vec<&str> = name.split('_').collect();
    for unit in ["ms", "milliseconds", "microseconds", "minutes", "kilobytes", "mb", "percent"] {
        assert!(!parts.contains(&unit), "{name}");
    }
    for what in ["duration", "lateness", "time", "timestamp", "memory", "file", "wal"] {
        assert!(
            !parts.contains(&what) || parts.contains(&"seconds") || parts.contains(&"bytes"),
            "{name}"
        );
    }
}

fn check_samples(name: &str, kind: &str, samples: &[Sample]) {
    for sample in samples {
        for label in sample.labels.keys() {
            assert!(is_word(label) && !label.starts_with("__"), "{name} {label}");
            assert!(
                kind == "histogram" || !["le", "quantile"].contains(&label.as_str()),
                "{name} {label}"
            );
        }
        assert!(kind != "counter" || sample.value >= 0.0, "{name}");
    }
    if kind != "histogram" {
        assert!(!samples.is_empty(), "{name} has no sample");
        assert!(samples.iter().all(|sample| sample.name == name), "{name}");
        return;
    }
    let mut left = samples;
    while !left.is_empty() {
        left = check_histogram(name, left);
    }
}

/// Checks the buckets of one combination of labels, then its sum and count; returns the rest.
fn check_histogram<'a>(name: &str, samples: &'a [Sample]) -> &'a [Sample] {
    let bucket = format!("{name}_bucket");
    let buckets = samples.iter().take_while(|sample| sample.name == bucket);
    let mut bounds = Vec::new();
    let mut labels = None;
    for sample in buckets {
        let mut others = sample.labels.clone();
        let bound = others.remove("le").expect("a bucket has a bound");
        assert_eq!(labels.get_or_insert_with(|| others.clone()), &others, "{name}");
        bounds.push((
            if bound == "+Inf" { f64::INFINITY } else { bound.parse().unwrap() },
            sample.value,
        ));
        if bound == "+Inf" {
            break;
        }
    }
    let ascends = |pair: &[(f64, f64)]| pair[0].0 < pair[1].0 && pair[0].1 <= pair[1].1;
    assert!(bounds.len() > 1 && bounds.windows(2).all(ascends), "{name}: {bounds:?}");
    let last = *bounds.last().unwrap();
    let [sum, count, rest @ ..] = &samples[bounds.len()..] else { panic!("{name} ends early") };
    assert_eq!(sum.name.as_str(), &*format!("{name}_sum"));
    assert_eq!(count.name.as_str(), &*format!("{name}_count"));
    assert_eq!(last, (f64::INFINITY, count.value), "{name}");
    assert_eq!(
        (Some(&sum.labels), Some(&count.labels)),
        (labels.as_ref(), labels.as_ref()),
        "{name}"
    );
    rest
}

fn sample(line: &str) -> Sample {
    let (series, value) = line.rsplit_once(' ').expect(line);
    let value = value.parse().expect(line);
    let Some((name, labels)) = series.split_once('{') else {
        return Sample { name: series.to_owned(), labels: BTreeMap::new(), value };
    };
    let mut left = labels.strip_suffix('}').expect(line);
    let mut labels = BTreeMap::new();
    while !left.is_empty() {
        let (label, rest) = left.split_once("=\"").expect(line);
        // No label value contains a quote.
        let (text, rest) = rest.split_once('"').expect(line);
        assert_eq!(labels.insert(label.to_owned(), text.to_owned()), None, "{line}");
        left = rest.strip_prefix(',').unwrap_or(rest);
    }
    Sample { name: name.to_owned(), labels, value }
}
