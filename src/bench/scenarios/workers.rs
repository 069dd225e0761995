//! Workers: changes of their cues, lists of what they may claim, claims and outcomes, heartbeats.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};

use crate::bench::client;
use crate::bench::client::{Client, request};
use crate::bench::harness::{Harness, TIMEOUT, cue, integer_field, once, string_field};
use crate::bench::report::{BenchReport, Unit};
use crate::bench::{BenchError, Result};

/// The executions in a list, and the entries of a payload of about 10 KiB: an order, a report, a page of records.
const CLAIMABLE: usize = 20;
const PAYLOAD_ITEMS: u32 = 100;

/// The executions that workers claim beside a herd, at most.
const CLAIMS_BESIDE_HERD: usize = 5_000;

/// The workers beside a herd.
const WORKERS: usize = 2;

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

pub fn patches(bench: &mut Harness, report: &mut BenchReport) -> Result<()> {
    let mut client = Client::connect(bench.server.address())?;
    let ids = (0..16).map(|_| worker_cue(bench, &mut client, "change")).collect::<Result<Vec<_>>>()?;
    let body = json!({"name": "Renamed"}).to_string();
    let requests: Vec<Vec<u8>> = ids
        .iter()
        .map(|id| request("PATCH", &format!("/v1/cues/{id}"), Some(&bench.api_key), &body))
        .collect();
    let work = |number: usize, client: &mut Client| client.call(&requests[number]).map(|_| true);
    let rate = client::measure(&bench.clock, bench.server.address(), 16, bench.options.duration, work)?.rate;
    let description = "rename cue with 10 KiB payload, 16 clients";
    report.add_compared("patches", description, rate, Unit::PerSecond, &["baseline_inserts_16"]);
    Ok(())
}

pub fn claimable(bench: &mut Harness, report: &mut BenchReport) -> Result<()> {
    let mut client = Client::connect(bench.server.address())?;
    let id = worker_cue(bench, &mut client, "order")?;
    for _ in 0..CLAIMABLE {
        client.call(&bench.post(&format!("/v1/cues/{id}/fire"), &json!({})))?;
    }
    let list = bench.get(&format!("/v1/executions/claimable?task=order&limit={CLAIMABLE}"));
    let rate = bench.measure(16, &list)?.rate;
    let description = "list 20 claimable of 10 KiB, 16 clients";
    report.add_compared("claimable", description, rate, Unit::PerSecond, &["baseline_lists"]);
    Ok(())
}

pub fn claims(bench: &mut Harness, report: &mut BenchReport) -> Result<()> {
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    let count =
        (report.value("creates_16").unwrap_or(0.0) * bench.options.duration.as_secs_f64() * 0.7) as usize;
    let count = count.clamp(100, 30_000);
    let at = bench.due_after_creating(count, report);
    let cue = |at| json!({"name": "Nightly work", "schedule": once(at), "transport": "worker", "payload": {"task": "t"}});
    bench.create_cues(cue, &vec![at; count])?;
    bench.wait_until(at);
    let mut client = Client::connect(bench.server.address())?;
    let began = bench.clock.monotonic();
    while claimable_count(&mut client)? < count {
        if bench.clock.monotonic() - began > TIMEOUT {
            return Err(BenchError::Failed("the executions to claim were not created in time".to_owned()));
        }
        bench.clock.sleep(Duration::from_millis(20));
    }
    let claim = bench.post("/v1/executions/claim", &json!({"worker_id": "bench"}));
    let work = |_, client: &mut Client| claim_and_report(&bench.api_key, client, &claim);
    let rate = client::measure(&bench.clock, bench.server.address(), 16, bench.options.duration, work)?.rate;
    if let Some(inserts) = report.value("baseline_inserts_16") {
        let two_writes = inserts / 2.0;
        report.add(
            "baseline_claims",
            "bare HTTP server: two inserts, 16 clients",
            two_writes,
            Unit::PerSecond,
        );
    }
    report.add_compared(
        "claims",
        "claim and report outcome, 16 clients",
        rate,
        Unit::PerSecond,
        &["baseline_claims"],
    );
    Ok(())
}

/// Claims an execution and reports its outcome. Returns `false` if there is nothing left to claim.
pub fn claim_and_report(api_key: &str, client: &mut Client, claim: &[u8]) -> io::Result<bool> {
    let (status, body) = client.exchange(claim)?;
    let Some(id) = string_field(body, "execution_id").filter(|_| status == 200) else {
        return if status == 409 {
            Ok(false)
        } else {
            Err(io::Error::other(format!("a claim returned status {status}")))
        };
    };
    let path = format!("/v1/executions/{id}/outcome");
    client.call(&request("POST", &path, Some(api_key), r#"{"success":true}"#))?;
    Ok(true)
}

/// The executions that wait to be claimed by now.
fn claimable_count(client: &mut Client) -> Result<usize> {
    let health = String::from_utf8_lossy(client.call(&request("GET", "/health", None, ""))?).into_owned();
    integer_field(health.as_bytes(), "pending_worker_claims")
        .ok_or_else(|| BenchError::Failed("the health has no pending_worker_claims".to_owned()))
}

/// Workers send heartbeats, claim and report while a herd is delivered: their latency, not their rate.
pub fn beside_herd(bench: &mut Harness, report: &mut BenchReport) -> Result<()> {
    let mut client = Client::connect(bench.server.address())?;
    let schedule = json!({"type": "recurring", "cron": "0 3 1 1 *"});
    let worker =
        json!({"name": "Work", "schedule": schedule, "transport": "worker", "payload": {"task": "beside"}});
    let id = string_field(client.call(&bench.post("/v1/cues", &worker))?, "id")
        .ok_or_else(|| BenchError::Failed("the server created a cue without an id".to_owned()))?;
    let fire = bench.post(&format!("/v1/cues/{id}/fire"), &json!({}));
    let (left, count) = (AtomicUsize::new(0), bench.options.herd.clamp(WORKERS, CLAIMS_BESIDE_HERD));
    let work = |_, client: &mut Client| {
        let is_left = left.fetch_add(1, Ordering::Relaxed) < count;
        if is_left { client.call(&fire).map(|_| true) } else { Ok(false) }
    };
    client::measure(&bench.clock, bench.server.address(), 16, TIMEOUT, work)?;
    let herd = bench.options.herd;
    let due = bench.due_after_creating(herd, report);
    let url = bench.receiver.url();
    bench.create_cues(|at| cue(&url, &once(at)), &vec![due; herd])?;
    bench.wait_until(due);
    let is_over = AtomicBool::new(false);
    let (delivered, mut calls) = thread::scope(|scope| {
        let start = |number| {
            let (bench, is_over) = (&*bench, &is_over);
            scope.spawn(move || work_until(bench, is_over, &format!("worker-{number}")))
        };
        let workers: Vec<_> = (0..WORKERS).map(start).collect();
        let delivered = bench.lateness(herd);
        is_over.store(true, Ordering::Relaxed);
        let panicked = || Err(io::Error::other("a worker thread panicked"));
        let calls = workers.into_iter().map(|it| it.join().unwrap_or_else(|_| panicked()));
        (delivered, calls.collect::<io::Result<Vec<Calls>>>())
    });
    delivered?;
    let calls = calls.as_mut().map_err(|error| io::Error::other(error.to_string()))?;
    for (name, description, pick) in [
        (
            "herd_heartbeat",
            "heartbeat beside a herd",
            (|it: &mut Calls| &mut it.heartbeats) as fn(&mut Calls) -> &mut Vec<f64>,
        ),
        ("herd_claim", "claim beside a herd", |it| &mut it.claims),
        ("herd_outcome", "outcome beside a herd", |it| &mut it.outcomes),
    ] {
        let mut latencies: Vec<f64> = calls.iter_mut().flat_map(|it| std::mem::take(pick(it))).collect();
        report.add_latencies(name, description, &mut latencies, None);
    }
    Ok(())
}

/// The durations of a worker's calls in milliseconds.
#[derive(Default)]
struct Calls {
    heartbeats: Vec<f64>,
    claims: Vec<f64>,
    outcomes: Vec<f64>,
}

/// Claims and reports at least once, then until the herd is over or nothing is left to claim.
fn work_until(bench: &Harness, is_over: &AtomicBool, worker: &str) -> io::Result<Calls> {
    let (mut client, mut calls) = (Client::connect(bench.server.address())?, Calls::default());
    let heartbeat = bench.post("/v1/worker/heartbeat", &json!({"worker_id": worker, "handlers": ["beside"]}));
    let claim = bench.post("/v1/executions/claim", &json!({"worker_id": worker, "task": "beside"}));
    let mut timed = |latencies: &mut Vec<f64>, request: &[u8]| {
        let sent = bench.clock.monotonic();
        let (status, body) = client.exchange(request)?;
        let answer = (status, string_field(body, "execution_id"));
        latencies.push((bench.clock.monotonic() - sent).as_secs_f64() * 1_000.0);
        io::Result::Ok(answer)
    };
    loop {
        timed(&mut calls.heartbeats, &heartbeat)?;
        let (status, id) = timed(&mut calls.claims, &claim)?;
        match id.filter(|_| status == 200) {
            Some(id) => {
                let outcome = bench.post(&format!("/v1/executions/{id}/outcome"), &json!({"success": true}));
                timed(&mut calls.outcomes, &outcome)?;
            }
            // Nothing is left to claim: heartbeats go on.
            None if status == 409 => {}
            None => return Err(io::Error::other(format!("a claim returned status {status}"))),
        }
        if is_over.load(Ordering::Relaxed) {
            return Ok(calls);
        }
    }
}
