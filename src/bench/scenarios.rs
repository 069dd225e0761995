//! The scenarios, in order: later ones use the cues that earlier ones created.

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use crate::bench::baseline;
use crate::bench::baseline::with_new_id;
use crate::bench::client;
use crate::bench::client::{Client, request};
use crate::bench::harness::{
    Harness, TIMEOUT, create_user, cue, integer_field, once, open_store, register, string_field,
};
use crate::bench::report::{BenchReport, Unit, quantile};
use crate::bench::{BenchError, Result};
use crate::domain::webhook::callback::{Callback, Method};
use crate::domain::webhook::request::{AttemptRef, DeliverySpec, signed_request};
use crate::engine::webhook_client::{MAX_KEPT_BODY, WebhookRequest};
use crate::random::ExecutionIdSource;
use crate::store::accounts::users;
use crate::store::maintenance::bench::insert_history;
use crate::store::{Store, WriteTx, cues};

/// The executions in a list, and the entries of a payload of about 10 KiB: an order, a report, a page of records.
const CLAIMABLE: usize = 20;
const PAYLOAD_ITEMS: u32 = 100;

/// The cues and the ended executions of the account whose overview is read: a household or a small company after months.
const OVERVIEW_CUES: usize = 1_000;
const OVERVIEW_EXECUTIONS: u32 = 100_000;

/// The default of `--delivery-threads`.
const DELIVERY_THREADS: usize = 64;

type Scenario = fn(&mut Harness, &mut BenchReport) -> Result<()>;

/// All scenarios; a baseline comes before the results that refer to it.
pub const SCENARIOS: [(&str, Scenario); 13] = [
    ("disk and SQLite", disk),
    ("baseline HTTP server", baseline_server),
    ("creates, 1 client", |bench, report| creates(bench, report, 1)),
    ("creates, 16 clients", |bench, report| creates(bench, report, 16)),
    ("creates, 64 clients", |bench, report| creates(bench, report, 64)),
    ("gets and lists", reads),
    ("changes", patches),
    ("claims and outcomes", claims),
    ("claimable executions", claimable),
    ("baseline webhook client", baseline_posts),
    ("herd of deliveries", herd),
    ("trickle of deliveries", trickle),
    ("overview", overview),
];

fn disk(bench: &mut Harness, report: &mut BenchReport) -> Result<()> {
    let (clock, duration) = (&bench.clock, bench.options.duration);
    let rate = baseline::fsyncs(clock, &bench.folder.file("fsync"), duration)?;
    report.add("fsyncs", "disk: fsync of an overwritten 4 KiB page", rate, Unit::PerSecond);
    let path = bench.folder.file("single.db");
    let (mut cue, payload) = bench.sample.clone();
    let store = open_store(&bench.folder, "single.db")?;
    cue.user_key = create_user(&store, clock, "bench@example.com")?;
    drop(store);
    let rate = baseline::single_commits(clock, &path, duration, &cue, &payload)?;
    report.add("single_commits", "SQLite alone: single-row commits", rate, Unit::PerSecond);
    let (cue, payload) = &bench.sample;
    let rate = baseline::group_commits(clock, &bench.store, 64, duration, cue, payload)?;
    report.add("group_commits", "store without HTTP: inserts, 64 threads", rate, Unit::PerSecond);
    Ok(())
}

fn baseline_server(bench: &mut Harness, report: &mut BenchReport) -> Result<()> {
    for (name, description, clients, path) in [
        ("baseline_responses", "bare HTTP server: responses, 16 clients", 16, "/"),
        ("baseline_reads", "bare HTTP server: reads, 16 clients", 16, "/read"),
        ("baseline_inserts_16", "bare HTTP server: inserts, 16 clients", 16, "/insert"),
        ("baseline_inserts_64", "bare HTTP server: inserts, 64 clients", 64, "/insert"),
    ] {
        report.add(name, description, bench.baseline_rate(clients, path)?, Unit::PerSecond);
    }
    Ok(())
}

fn creates(bench: &mut Harness, report: &mut BenchReport, clients: usize) -> Result<()> {
    let schedule = json!({"type": "recurring", "cron": "0 3 1 1 *"});
    let request = bench.post("/v1/cues", &cue(&bench.receiver.url(), &schedule));
    let before = bench.written_bytes_when_idle();
    let suffix = if clients == 1 { "1 client".to_owned() } else { format!("{clients} clients") };
    let (name, description) = (format!("creates_{clients}"), format!("create cue, {suffix}"));
    let baseline = match clients {
        1 => "single_commits".to_owned(),
        clients => format!("baseline_inserts_{clients}"),
    };
    let began = bench.clock.monotonic();
    let rate = bench.request_rate(clients, &request)?;
    let created = rate * (bench.clock.monotonic() - began).as_secs_f64();
    report.add_with_baseline(&name, &description, rate, Unit::PerSecond, &baseline);
    if let (Some(before), Some(after)) = (before, bench.written_bytes_when_idle()) {
        let (name, description) =
            (format!("create_bytes_{clients}"), format!("disk writes per create, {suffix}"));
        report.add(&name, &description, (after - before) / created, Unit::Bytes);
    }
    Ok(())
}

fn reads(bench: &mut Harness, report: &mut BenchReport) -> Result<()> {
    let mut client = Client::connect(bench.server.address())?;
    let list = client.call(&bench.get("/v1/cues?limit=100"))?;
    let ids = std::str::from_utf8(list).unwrap_or_default().split("\"id\":\"").skip(1);
    let ids = ids.filter_map(|rest| rest.split_once('"')).map(|(id, _)| id);
    let requests: Vec<Vec<u8>> =
        ids.map(|id| bench.get(&format!("/v1/cues/{id}?execution_limit=1"))).collect();
    let next = AtomicUsize::new(0);
    let work = |_, client: &mut Client| {
        let request = &requests[next.fetch_add(1, Ordering::Relaxed) % requests.len().max(1)];
        client.call(request).map(|_| true)
    };
    let rate = client::measure_rate(&bench.clock, bench.server.address(), 16, bench.options.duration, work)?;
    report.add_with_baseline("gets", "get cue, 16 clients", rate, Unit::PerSecond, "baseline_reads");
    let mut client = Client::connect(bench.server.address())?;
    let path = format!("/v1/cues?limit={}", baseline::LIST_LIMIT);
    let total = integer_field(client.call(&bench.get(&path))?, "total");
    let total = total.ok_or_else(|| BenchError::Failed("the list of cues has no total".to_owned()))?;
    let baseline_path = format!("/list/{}", bench.create_baseline_user(total)?);
    let rate = bench.baseline_rate(16, &baseline_path)?;
    report.add("baseline_lists", "bare HTTP server: lists of 20, 16 clients", rate, Unit::PerSecond);
    let rate = bench.request_rate(16, &bench.get(&path))?;
    report.add_with_baseline("lists", "list 20 cues, 16 clients", rate, Unit::PerSecond, "baseline_lists");
    Ok(())
}

/// A payload of about 10 KiB.
fn payload(task: &str) -> Value {
    let note = "leave it at the back door if nobody is in";
    let item = |number| json!({"article": format!("A-{number:05}"), "quantity": number, "cents": 1_999, "note": note});
    json!({"task": task, "items": (0..PAYLOAD_ITEMS).map(item).collect::<Vec<_>>()})
}

/// Creates a worker cue with a payload of about 10 KiB and returns its id.
fn worker_cue(bench: &Harness, client: &mut Client, task: &str) -> Result<String> {
    let schedule = json!({"type": "recurring", "cron": "0 3 1 1 *"});
    let cue = json!({"name": "Order", "schedule": schedule, "transport": "worker", "payload": payload(task)});
    string_field(client.call(&bench.post("/v1/cues", &cue))?, "id")
        .ok_or_else(|| BenchError::Failed("the server created a cue without an id".to_owned()))
}

fn patches(bench: &mut Harness, report: &mut BenchReport) -> Result<()> {
    let mut client = Client::connect(bench.server.address())?;
    let ids = (0..16).map(|_| worker_cue(bench, &mut client, "change")).collect::<Result<Vec<_>>>()?;
    let body = json!({"name": "Renamed"}).to_string();
    let requests: Vec<Vec<u8>> = ids
        .iter()
        .map(|id| request("PATCH", &format!("/v1/cues/{id}"), Some(&bench.api_key), &body))
        .collect();
    let work = |number: usize, client: &mut Client| client.call(&requests[number]).map(|_| true);
    let rate = client::measure_rate(&bench.clock, bench.server.address(), 16, bench.options.duration, work)?;
    let description = "rename cue with 10 KiB payload, 16 clients";
    report.add_with_baseline("patches", description, rate, Unit::PerSecond, "baseline_inserts_16");
    Ok(())
}

fn claimable(bench: &mut Harness, report: &mut BenchReport) -> Result<()> {
    let mut client = Client::connect(bench.server.address())?;
    let id = worker_cue(bench, &mut client, "order")?;
    for _ in 0..CLAIMABLE {
        client.call(&bench.post(&format!("/v1/cues/{id}/fire"), &json!({})))?;
    }
    let list = bench.get(&format!("/v1/executions/claimable?task=order&limit={CLAIMABLE}"));
    let rate = bench.request_rate(16, &list)?;
    let description = "list 20 claimable of 10 KiB, 16 clients";
    report.add_with_baseline("claimable", description, rate, Unit::PerSecond, "baseline_lists");
    Ok(())
}

fn claims(bench: &mut Harness, report: &mut BenchReport) -> Result<()> {
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    let count =
        (report.value("creates_16").unwrap_or(0.0) * bench.options.duration.as_secs_f64() * 0.7) as usize;
    let count = count.clamp(100, 30_000);
    let at = bench.due_after_creating(count, report);
    let cue = |at| json!({"name": "Nightly work", "schedule": once(at), "transport": "worker", "payload": {"task": "t"}});
    bench.create_cues(cue, &vec![at; count])?;
    bench.wait_until(at);
    let mut client = Client::connect(bench.server.address())?;
    let expected = format!("\"pending_worker_claims\":{count}");
    let began = bench.clock.monotonic();
    while !String::from_utf8_lossy(client.call(&request("GET", "/health", None, ""))?).contains(&expected) {
        if bench.clock.monotonic() - began > TIMEOUT {
            return Err(BenchError::Failed("the executions to claim were not created in time".to_owned()));
        }
        bench.clock.sleep(Duration::from_millis(20));
    }
    let claim = bench.post("/v1/executions/claim", &json!({"worker_id": "bench"}));
    let work = |_, client: &mut Client| claim_and_report(bench, client, &claim);
    let rate = client::measure_rate(&bench.clock, bench.server.address(), 16, bench.options.duration, work)?;
    let two_writes = report.value("baseline_inserts_16").unwrap_or_default() / 2.0;
    report.add("baseline_claims", "bare HTTP server: two inserts, 16 clients", two_writes, Unit::PerSecond);
    report.add_with_baseline(
        "claims",
        "claim and report outcome, 16 clients",
        rate,
        Unit::PerSecond,
        "baseline_claims",
    );
    Ok(())
}

/// Claims an execution and reports its outcome. Returns `false` if there is nothing left to claim.
fn claim_and_report(bench: &Harness, client: &mut Client, claim: &[u8]) -> io::Result<bool> {
    let (status, body) = client.exchange(claim)?;
    let Some(id) = string_field(body, "execution_id").filter(|_| status == 200) else {
        return if status == 409 {
            Ok(false)
        } else {
            Err(io::Error::other(format!("a claim returned status {status}")))
        };
    };
    client.call(&bench.post(&format!("/v1/executions/{id}/outcome"), &json!({"success": true})))?;
    Ok(true)
}

fn baseline_posts(bench: &mut Harness, report: &mut BenchReport) -> Result<()> {
    let now = bench.clock.now();
    let (cue, payload) = &bench.sample;
    let attempt = AttemptRef {
        key: 1,
        id: ExecutionIdSource::default().next(now)?,
        cue_key: 1,
        user_key: 1,
        destination: 0,
        attempt: 1,
        scheduled_for: now,
        by_schedule: true,
        started_at: now,
    };
    let callback = Callback {
        url: bench.receiver.url(),
        method: Method::Post,
        headers: Vec::new(),
        outcome_from_response: false,
    };
    let spec = DeliverySpec {
        cue_id: cue.id.clone(),
        callback: callback.clone(),
        payload: Some(payload.body.clone()),
        secret: format!("whsec_{}", "0123456789abcdef".repeat(4)),
        previous_webhook_secret: None,
        previous_webhook_secret_expires_at: None,
    };
    let message = signed_request(&attempt, spec, now);
    let request = WebhookRequest {
        method: Method::Post,
        url: callback.url,
        headers: message.headers,
        body: message.body,
        max_response: MAX_KEPT_BODY,
    };
    let rate = baseline::posts(&bench.clock, DELIVERY_THREADS, bench.options.herd, &request)?;
    bench.lateness(bench.options.herd)?;
    report.add("baseline_posts", "webhook client alone: POSTs, 64 threads", rate, Unit::PerSecond);
    Ok(())
}

fn herd(bench: &mut Harness, report: &mut BenchReport) -> Result<()> {
    let count = bench.options.herd;
    let due = bench.due_after_creating(count, report);
    let url = bench.receiver.url();
    bench.create_cues(|at| cue(&url, &once(at)), &vec![due; count])?;
    bench.wait_until(due - SignedDuration::from_millis(200));
    let before = bench.server.written_bytes();
    let mut late = bench.lateness(count)?;
    let last = quantile(&mut late, 1.0);
    #[allow(clippy::cast_precision_loss)]
    let cues = count as f64;
    report.add_with_baseline(
        "herd_deliveries",
        &format!("deliveries of {count} cues due at once"),
        cues / last * 1_000.0,
        Unit::PerSecond,
        "baseline_posts",
    );
    report.add("herd_lateness_p50", "herd: lateness, median", quantile(&mut late, 0.5), Unit::Milliseconds);
    report.add(
        "herd_lateness_p99",
        "herd: lateness, 99th percentile",
        quantile(&mut late, 0.99),
        Unit::Milliseconds,
    );
    report.add("herd_duration", "herd: time until the last delivery", last, Unit::Milliseconds);
    if let (Some(before), Some(after)) = (before, bench.written_bytes_when_idle()) {
        report.add("herd_bytes", "herd: disk writes per delivery", (after - before) / cues, Unit::Bytes);
    }
    for (name, description, bytes) in [
        ("memory_start", "memory (RSS) after start", bench.memory_at_start),
        ("memory_peak", "memory (RSS), peak", bench.server.peak_resident_bytes()),
    ] {
        bytes.into_iter().for_each(|bytes| report.add(name, description, bytes, Unit::Bytes));
    }
    Ok(())
}

fn trickle(bench: &mut Harness, report: &mut BenchReport) -> Result<()> {
    let count = bench.options.trickle;
    let first = bench.due_after_creating(count, report);
    let step = |number: usize| SignedDuration::from_millis(100) * i32::try_from(number).unwrap_or(i32::MAX);
    let due: Vec<Timestamp> = (0..count).map(|number| first + step(number)).collect();
    let url = bench.receiver.url();
    bench.create_cues(|at| cue(&url, &once(at)), &due)?;
    let before = bench.written_bytes_when_idle();
    bench.wait_until(first + step(count));
    let mut late = bench.lateness(count)?;
    for (name, description, share) in [
        ("trickle_lateness_p50", "trickle: lateness, median", 0.5),
        ("trickle_lateness_p99", "trickle: lateness, 99th percentile", 0.99),
        ("trickle_lateness_max", "trickle: lateness, maximum", 1.0),
    ] {
        report.add(name, description, quantile(&mut late, share), Unit::Milliseconds);
    }
    if let (Some(before), Some(after)) = (before, bench.written_bytes_when_idle()) {
        #[allow(clippy::cast_precision_loss)]
        report.add(
            "trickle_bytes",
            "trickle: disk writes per delivery",
            (after - before) / count as f64,
            Unit::Bytes,
        );
    }
    Ok(())
}

/// The history is inserted beside the server, as an administration command would.
fn overview(bench: &mut Harness, report: &mut BenchReport) -> Result<()> {
    let email = "overview@example.com";
    let api_key = register(&bench.server, email)?;
    let store = Store::open_shared(&bench.folder.file("cued.db"))?;
    let ((mut cue, payload), now) = (bench.sample.clone(), bench.clock.now());
    let user = store.read(move |read| users::find_by_email(read, email)).wait()?;
    cue.user_key = user.map(|user| user.key).unwrap_or_default();
    let insert = move |tx: &WriteTx<'_>| {
        for _ in 0..OVERVIEW_CUES {
            cues::insert(tx, with_new_id(&cue)?, Some(&payload))?;
        }
        insert_history(tx, cue.user_key, OVERVIEW_EXECUTIONS, now)
    };
    store.write(insert).wait()?;
    drop(store);
    let get = request("GET", "/v1/overview", Some(&api_key), "");
    let rate = bench.request_rate(1, &get)?;
    let description = "overview, 1,000 cues, 100,000 executions";
    report.add("overview", description, 1_000.0 / rate, Unit::Milliseconds);
    Ok(())
}
