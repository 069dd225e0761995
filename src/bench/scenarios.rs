//! The measures, one after the other: each uses what those before it have made.

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use serde_json::json;

use crate::bench::baseline;
use crate::bench::client;
use crate::bench::client::{Client, request};
use crate::bench::harness::{Harness, PATIENCE, cue, number_of, once, open_store, text_of, user};
use crate::bench::report::{BenchReport, Unit, quantile};
use crate::bench::{BenchError, Result};
use crate::domain::execution::RetryPolicy;
use crate::domain::json;
use crate::domain::webhook::callback::{Callback, Method};
use crate::domain::webhook::request::{AttemptRef, DeliverySpec, signed_request};
use crate::engine::webhook_client::WebhookRequest;
use crate::random::ExecutionIdSource;

/// Delivery threads of a server that is started without flags.
const THREADS: usize = 64;
/// Ids that gets go round.
const KNOWN: usize = 1_000;

type Scenario = fn(&mut Harness, &mut BenchReport) -> Result<()>;

/// All measures, in order: what a limit is comes before what is shown beside it.
pub const STEPS: [(&str, Scenario); 10] = [
    ("fsyncs and commits of the disk", disk),
    ("a bare HTTP server", bare_server),
    ("creates of one client", |bench, report| creates(bench, report, 1)),
    ("creates of 16 clients", |bench, report| creates(bench, report, 16)),
    ("creates of 64 clients", |bench, report| creates(bench, report, 64)),
    ("gets and lists", reads),
    ("claims and outcomes", claims),
    ("the bare pool of deliveries", bare_pool),
    ("a herd", herd),
    ("a trickle", trickle),
];

fn disk(bench: &mut Harness, report: &mut BenchReport) -> Result<()> {
    let (clock, each) = (&bench.clock, bench.options.each);
    let rate = baseline::fsyncs(clock, &bench.folder.file("fsync"), each)?;
    report.add("fsyncs", "fsyncs of an overwritten page", rate, Unit::PerSecond);
    let path = bench.folder.file("single.db");
    let (mut cue, payload) = bench.sample.clone();
    let store = open_store(&bench.folder, "single.db")?;
    cue.user_key = user(&store, clock, "bench@example.com")?;
    drop(store);
    let rate = baseline::single_commits(clock, &path, each, &cue, &payload)?;
    report.add("single_commits", "single commits of SQLite", rate, Unit::PerSecond);
    let (cue, payload) = &bench.sample;
    let rate = baseline::group_commits(clock, &bench.store, 64, each, cue, payload)?;
    report.add("group_commits", "rows by group commit, 64 threads", rate, Unit::PerSecond);
    Ok(())
}

fn bare_server(bench: &mut Harness, report: &mut BenchReport) -> Result<()> {
    for (name, what, clients, path) in [
        ("bare_answers", "answers of a bare server, 16 clients", 16, "/"),
        ("bare_reads", "bare server with a read, 16 clients", 16, "/read"),
        ("bare_inserts_16", "bare server with an insert, 16 clients", 16, "/insert"),
        ("bare_inserts_64", "bare server with an insert, 64 clients", 64, "/insert"),
    ] {
        report.add(name, what, bench.bare_rate(clients, path)?, Unit::PerSecond);
    }
    Ok(())
}

fn creates(bench: &mut Harness, report: &mut BenchReport, clients: usize) -> Result<()> {
    let schedule = json!({"type": "recurring", "cron": "0 3 1 1 *"});
    let request = bench.post("/v1/cues", &cue(&bench.receiver.url(), &schedule));
    let before = bench.written_at_rest();
    let who = if clients == 1 { "1 client".to_owned() } else { format!("{clients} clients") };
    let (name, what) = (format!("creates_{clients}"), format!("durable creates, {who}"));
    let limit = match clients {
        1 => "single_commits".to_owned(),
        clients => format!("bare_inserts_{clients}"),
    };
    let began = bench.clock.monotonic();
    let rate = bench.rate(clients, &request)?;
    let made = rate * (bench.clock.monotonic() - began).as_secs_f64();
    report.add_beside(&name, &what, rate, Unit::PerSecond, &limit);
    if let (Some(before), Some(after)) = (before, bench.written_at_rest()) {
        let (name, what) = (format!("create_bytes_{clients}"), format!("written per create, {who}"));
        report.add(&name, &what, (after - before) / made, Unit::Bytes);
    }
    Ok(())
}

fn reads(bench: &mut Harness, report: &mut BenchReport) -> Result<()> {
    let mut client = Client::connect(bench.program.address())?;
    let list = client.call(&bench.get("/v1/cues?limit=100"))?;
    let ids = std::str::from_utf8(list).unwrap_or_default().split("\"id\":\"").skip(1);
    let ids = ids.filter_map(|rest| rest.split_once('"')).map(|(id, _)| id);
    let requests: Vec<Vec<u8>> =
        ids.take(KNOWN).map(|id| bench.get(&format!("/v1/cues/{id}?execution_limit=1"))).collect();
    let next = AtomicUsize::new(0);
    let work = |_, client: &mut Client| {
        let request = &requests[next.fetch_add(1, Ordering::Relaxed) % requests.len().max(1)];
        client.call(request).map(|_| true)
    };
    let rate = client::rate(&bench.clock, bench.program.address(), 16, bench.options.each, work)?;
    report.add_beside("gets", "gets of a cue, 16 clients", rate, Unit::PerSecond, "bare_reads");
    let mut client = Client::connect(bench.program.address())?;
    let path = format!("/v1/cues?limit={}", baseline::PAGE_OF_CUES);
    let total = number_of(client.call(&bench.get(&path))?, "total");
    let total = total.ok_or_else(|| BenchError("a list without its total".to_owned()))?;
    let bare = format!("/list/{}", bench.another_user_with(total)?);
    let rate = bench.bare_rate(16, &bare)?;
    report.add("bare_lists", "bare server with a list of 20, 16 clients", rate, Unit::PerSecond);
    let rate = bench.rate(16, &bench.get(&path))?;
    report.add_beside("lists", "lists of 20 cues, 16 clients", rate, Unit::PerSecond, "bare_lists");
    Ok(())
}

fn claims(bench: &mut Harness, report: &mut BenchReport) -> Result<()> {
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    let count =
        (report.figure("creates_16").unwrap_or(0.0) * bench.options.each.as_secs_f64() * 0.7) as usize;
    let count = count.clamp(100, 30_000);
    let at = bench.after_making(count, report);
    let cue = |at| json!({"name": "Nightly work", "schedule": once(at), "transport": "worker", "payload": {"task": "t"}});
    bench.create(cue, &vec![at; count])?;
    bench.wait_until(at);
    let mut client = Client::connect(bench.program.address())?;
    let waiting = format!("\"pending_worker_claims\":{count}");
    let began = bench.clock.monotonic();
    while !String::from_utf8_lossy(client.call(&request("GET", "/health", None, ""))?).contains(&waiting) {
        if bench.clock.monotonic() - began > PATIENCE {
            return Err(BenchError("the executions to claim were not made in time".to_owned()));
        }
        bench.clock.sleep(Duration::from_millis(20));
    }
    let claim = bench.post("/v1/executions/claim", &json!({"worker_id": "bench"}));
    let work = |_, client: &mut Client| cycle(bench, client, &claim);
    let rate = client::rate(&bench.clock, bench.program.address(), 16, bench.options.each, work)?;
    let two_writes = report.figure("bare_inserts_16").unwrap_or_default() / 2.0;
    report.add("bare_cycles", "two inserts of the bare server, 16 clients", two_writes, Unit::PerSecond);
    report.add_beside("cycles", "claim and outcome, 16 clients", rate, Unit::PerSecond, "bare_cycles");
    Ok(())
}

/// A claim and its report; `false` when there is nothing more to claim.
fn cycle(bench: &Harness, client: &mut Client, claim: &[u8]) -> io::Result<bool> {
    let (status, body) = client.exchange(claim)?;
    let Some(id) = text_of(body, "execution_id").filter(|_| status == 200) else {
        return if status == 409 {
            Ok(false)
        } else {
            Err(io::Error::other(format!("a claim answered {status}")))
        };
    };
    client.call(&bench.post(&format!("/v1/executions/{id}/outcome"), &json!({"success": true})))?;
    Ok(true)
}

fn bare_pool(bench: &mut Harness, report: &mut BenchReport) -> Result<()> {
    let now = bench.clock.now();
    let (cue, payload) = &bench.sample;
    let ticket = AttemptRef {
        key: 1,
        id: ExecutionIdSource::default().next(now)?,
        cue_key: 1,
        lane: 0,
        attempt: 1,
        scheduled_for: now,
        by_schedule: true,
    };
    let callback = Callback { url: bench.receiver.url(), method: Method::Post, headers: Vec::new() };
    let order = DeliverySpec {
        cue_id: cue.id.clone(),
        callback: callback.clone(),
        payload: Some(json::compact(payload)),
        retry: RetryPolicy::default(),
        secret: format!("whsec_{}", "0123456789abcdef".repeat(4)),
        previous_secret: None,
        previous_secret_expires: None,
    };
    let message = signed_request(&ticket, &order, now);
    let parcel = WebhookRequest {
        method: Method::Post,
        url: callback.url,
        headers: message.headers,
        body: message.body,
    };
    let rate = baseline::posts(&bench.clock, THREADS, bench.options.herd, &parcel)?;
    bench.lateness(bench.options.herd)?;
    report.add("bare_posts", "POSTs of the bare pool", rate, Unit::PerSecond);
    Ok(())
}

fn herd(bench: &mut Harness, report: &mut BenchReport) -> Result<()> {
    let count = bench.options.herd;
    let due = bench.after_making(count, report);
    let url = bench.receiver.url();
    bench.create(|at| cue(&url, &once(at)), &vec![due; count])?;
    bench.wait_until(due - SignedDuration::from_millis(200));
    let before = bench.program.written();
    let mut late = bench.lateness(count)?;
    let last = quantile(&mut late, 1.0);
    #[allow(clippy::cast_precision_loss)]
    let cues = count as f64;
    report.add_beside(
        "herd",
        &format!("deliveries of a herd of {count}"),
        cues / last * 1_000.0,
        Unit::PerSecond,
        "bare_posts",
    );
    report.add("herd_p50", "lateness in it, median", quantile(&mut late, 0.5), Unit::Milliseconds);
    report.add("herd_p99", "lateness in it, 99th percentile", quantile(&mut late, 0.99), Unit::Milliseconds);
    report.add("herd_drain", "until the last of it has arrived", last, Unit::Milliseconds);
    if let (Some(before), Some(after)) = (before, bench.written_at_rest()) {
        report.add("herd_bytes", "written per delivery in it", (after - before) / cues, Unit::Bytes);
    }
    for (name, what, bytes) in [
        ("memory_start", "resident memory after start", bench.at_start),
        ("memory_peak", "resident memory, most so far", bench.program.peak()),
    ] {
        bytes.into_iter().for_each(|bytes| report.add(name, what, bytes, Unit::Bytes));
    }
    Ok(())
}

fn trickle(bench: &mut Harness, report: &mut BenchReport) -> Result<()> {
    let count = bench.options.trickle;
    let first = bench.after_making(count, report);
    let step = |number: usize| SignedDuration::from_millis(100) * i32::try_from(number).unwrap_or(i32::MAX);
    let due: Vec<Timestamp> = (0..count).map(|number| first + step(number)).collect();
    let url = bench.receiver.url();
    bench.create(|at| cue(&url, &once(at)), &due)?;
    let before = bench.written_at_rest();
    bench.wait_until(first + step(count));
    let mut late = bench.lateness(count)?;
    for (name, what, share) in [
        ("trickle_p50", "lateness of lone cues, median", 0.5),
        ("trickle_p99", "lateness of lone cues, 99th percentile", 0.99),
        ("trickle_max", "lateness of lone cues, most", 1.0),
    ] {
        report.add(name, what, quantile(&mut late, share), Unit::Milliseconds);
    }
    if let (Some(before), Some(after)) = (before, bench.written_at_rest()) {
        #[allow(clippy::cast_precision_loss)]
        report.add("lone_bytes", "written per lone delivery", (after - before) / count as f64, Unit::Bytes);
    }
    Ok(())
}
