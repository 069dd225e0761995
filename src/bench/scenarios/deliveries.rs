//! Deliveries: many at once, one after another, and beside a host that hangs.

use std::io;
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use jiff::{SignedDuration, Timestamp};

use crate::bench::Result;
use crate::bench::baseline;
use crate::bench::harness::{Harness, cue, once};
use crate::bench::report::{BenchReport, Unit, quantile};
use crate::domain::webhook::callback::{Callback, Method};
use crate::domain::webhook::request::{AttemptRef, DeliverySpec, signed_request};
use crate::engine::webhook_client::{MAX_KEPT_BODY, WebhookRequest};
use crate::random::ExecutionIdSource;

/// The default of `--delivery-threads`.
const DELIVERY_THREADS: usize = 64;

/// Cues of the host that hangs, and of the other one.
const HANGING: usize = 500;
const BESIDE_HANGING: usize = 100;

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

pub fn herd(bench: &mut Harness, report: &mut BenchReport) -> Result<()> {
    baseline_posts(bench, report)?;
    let count = bench.options.herd;
    let due = bench.due_after_creating(count, report);
    let url = bench.receiver.url();
    bench.create_cues(|at| cue(&url, &once(at)), &vec![due; count])?;
    bench.wait_until(due - SignedDuration::from_millis(200));
    let before = bench.written.now();
    let mut late = bench.lateness(count)?;
    let last = quantile(&mut late, 1.0);
    #[allow(clippy::cast_precision_loss)]
    let cues = count as f64;
    let description = format!("deliveries of {count} cues due at once");
    let rate = cues / last * 1_000.0;
    report.add_compared("herd_deliveries", &description, rate, Unit::PerSecond, &["baseline_posts"]);
    for (name, description, share) in [
        ("herd_lateness_p50", "herd: lateness, median", 0.5),
        ("herd_lateness_p99", "herd: lateness, 99th percentile", 0.99),
        ("herd_duration", "herd: time until the last delivery", 1.0),
    ] {
        report.add(name, description, quantile(&mut late, share), Unit::Milliseconds);
    }
    let written = bench.written.when_idle(&bench.clock).since(before);
    report.add_written("herd", "delivery of a herd", written, cues);
    for (name, description, bytes) in [
        ("memory_start", "memory (RSS) after start", bench.memory_at_start),
        ("memory_peak", "memory (RSS), peak up to a herd", bench.server.peak_resident_bytes()),
    ] {
        bytes.into_iter().for_each(|bytes| report.add(name, description, bytes, Unit::Bytes));
    }
    Ok(())
}

pub fn trickle(bench: &mut Harness, report: &mut BenchReport) -> Result<()> {
    let count = bench.options.trickle;
    let first = bench.due_after_creating(count, report);
    let step = |number: usize| SignedDuration::from_millis(100) * i32::try_from(number).unwrap_or(i32::MAX);
    let due: Vec<Timestamp> = (0..count).map(|number| first + step(number)).collect();
    let url = bench.receiver.url();
    bench.create_cues(|at| cue(&url, &once(at)), &due)?;
    let before = bench.written.when_idle(&bench.clock);
    bench.wait_until(first + step(count));
    let mut late = bench.lateness(count)?;
    for (name, description, share) in [
        ("trickle_lateness_p50", "trickle: lateness, median", 0.5),
        ("trickle_lateness_p99", "trickle: lateness, 99th percentile", 0.99),
        ("trickle_lateness_max", "trickle: lateness, maximum", 1.0),
    ] {
        report.add(name, description, quantile(&mut late, share), Unit::Milliseconds);
    }
    let written = bench.written.when_idle(&bench.clock).since(before);
    #[allow(clippy::cast_precision_loss)]
    report.add_written("trickle", "lone delivery", written, count as f64);
    Ok(())
}

/// A host that accepts connections and never answers.
struct HangingHost {
    url: String,
    connections: Arc<AtomicUsize>,
}

impl HangingHost {
    fn start() -> io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let url = format!("http://{}/hook", listener.local_addr()?);
        let connections = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&connections);
        thread::Builder::new().name("hanging-host".to_owned()).spawn(move || {
            let mut held = Vec::new();
            for stream in listener.incoming().flatten() {
                held.push(stream);
                count.store(held.len(), Ordering::Relaxed);
            }
        })?;
        Ok(Self { url, connections })
    }
}

/// Of one account: a host that hangs must not hold the deliveries to another one.
pub fn hang(bench: &mut Harness, report: &mut BenchReport) -> Result<()> {
    let host = HangingHost::start()?;
    let due = bench.due_after_creating(HANGING + BESIDE_HANGING, report);
    bench.create_cues(|at| cue(&host.url, &once(at)), &[due; HANGING])?;
    let url = bench.receiver.url();
    bench.create_cues(|at| cue(&url, &once(at)), &[due; BESIDE_HANGING])?;
    bench.wait_until(due);
    let mut late = bench.lateness(BESIDE_HANGING)?;
    let description = "100 deliveries beside 500 that hang, slowest";
    report.add("hang_lateness_max", description, quantile(&mut late, 1.0), Unit::Milliseconds);
    #[allow(clippy::cast_precision_loss)]
    let connections = host.connections.load(Ordering::Relaxed) as f64;
    report.add("hang_connections", "connections to the host that hangs", connections, Unit::Count);
    Ok(())
}
