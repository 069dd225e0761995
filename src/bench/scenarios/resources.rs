//! The resources that the server uses by itself: disk writes while idle, memory of the rate limits.

use std::sync::Arc;

use crate::bench::client;
use crate::bench::client::{Client, request};
use crate::bench::harness::Harness;
use crate::bench::report::{BenchReport, Unit};
use crate::bench::server_process::{Limits, ServerProcess};
use crate::bench::written::WriteMeter;
use crate::bench::{BenchError, Result};
use crate::domain::account::credentials::ApiKey;
use crate::random;
use crate::store::Store;
use crate::store::maintenance::bench::insert_users;

/// The duration of a measurement of idleness, in those of others.
const IDLE_DURATIONS: u32 = 4;

/// The users of the rate limiter, and the requests of each.
const USERS: usize = 10_000;
const REQUESTS: usize = 100;

/// Requests with an unknown key, which fill every cache but that of the rate limiter.
const WARM_UP: usize = 20_000;

/// A server of its own: nothing is due in it, and nothing is left to do.
pub fn idle(bench: &mut Harness, report: &mut BenchReport) -> Result<()> {
    let path = bench.folder.file("idle.db");
    let server = ServerProcess::start(&path, Limits::Off, bench.folder.cleanup())?;
    let meter = WriteMeter::start(&path)?;
    let (before, of_process) = (meter.when_idle(&bench.clock), server.written_bytes());
    let duration = bench.options.duration * IDLE_DURATIONS;
    bench.wait_until(bench.clock.now() + duration);
    let written = meter.now().since(before);
    let seconds = duration.as_secs_f64();
    let to_disk = server.written_bytes().zip(of_process).map(|(now, before)| now - before);
    for (name, description, bytes) in [
        ("idle_log", "idle: written to the log", written.log_bytes),
        ("idle_writes", "idle: written by the process", to_disk),
        ("idle_memory", "idle: memory (RSS)", server.resident_bytes()),
    ] {
        let description = format!("{description}, in {seconds:.1} s");
        bytes.into_iter().for_each(|bytes| report.add(name, &description, bytes, Unit::Bytes));
    }
    Ok(())
}

/// The memory of the windows of the rate limiter, after a million requests of ten thousand users.
pub fn limiter(bench: &mut Harness, report: &mut BenchReport) -> Result<()> {
    let path = bench.folder.file("limiter.db");
    let keys = (0..USERS)
        .map(|_| Ok(ApiKey::from_random(random::bytes()?)))
        .collect::<crate::error::Result<Vec<_>>>()?;
    let hashes: Vec<_> = keys.iter().map(ApiKey::hash).collect();
    let store = Store::open(&path, Arc::new(|_| ()))?;
    store.write(move |tx| insert_users(tx, "scale", &hashes)).wait()?;
    drop(store);
    let server = ServerProcess::start(&path, Limits::On, bench.folder.cleanup())?;
    let mut client = Client::connect(server.address())?;
    let unknown = request("GET", "/v1/workers", Some("cue_sk_00000000000000000000000000000000"), "");
    for _ in 0..WARM_UP {
        client.exchange(&unknown)?;
    }
    let before = server.resident_bytes();
    let requests: Vec<Vec<u8>> =
        keys.iter().map(|key| request("GET", "/v1/workers", Some(key.reveal()), "")).collect();
    let next = std::sync::atomic::AtomicUsize::new(0);
    let work = |_, client: &mut Client| {
        let number = next.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        if number >= USERS * REQUESTS {
            return Ok(false);
        }
        client.call(&requests[number % USERS]).map(|_| true)
    };
    let measured = client::measure(&bench.clock, server.address(), 4, crate::bench::harness::TIMEOUT, work)?;
    report.add("limiter_requests", "requests of 10,000 users, 4 clients", measured.rate, Unit::PerSecond);
    let (Some(before), Some(after)) = (before, server.resident_bytes()) else {
        return Err(BenchError::Failed("the memory of a process cannot be read here".to_owned()));
    };
    let description = "memory for a million requests of 10,000 users";
    report.add("limiter_memory", description, (after - before).max(0.0), Unit::Bytes);
    Ok(())
}
