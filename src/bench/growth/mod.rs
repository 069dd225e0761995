//! `--growth`: the same few rates on files with more and more cues, and with more and more executions.
//!
//! Each file is made once by direct inserts. Each round measures all sizes, each on a fresh copy: what a measurement adds
//! would make a small file large, and what else happens on the machine in a round affects all sizes alike.

mod tables;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use jiff::SignedDuration;
use serde_json::json;

use crate::bench::cleanup::Folder;
use crate::bench::client;
use crate::bench::client::{Client, request};
use crate::bench::harness::{TIMEOUT, create_cues, cue, once, sample, string_field};
use crate::bench::receiver::Receiver;
use crate::bench::report::{BenchReport, Unit, quantile};
use crate::bench::scenarios::claim_and_report;
use crate::bench::server_process::{Limits, ServerProcess};
use crate::bench::{BenchError, BenchOptions, Result};
use crate::clock::Clock;
use crate::domain::account::credentials::ApiKey;
use crate::random;
use crate::store::maintenance::bench::{copy_first_cue, insert_history, insert_users};
use crate::store::{Store, cues};

pub use crate::bench::growth::tables::Tables;

/// The numbers of cues, and of executions.
const SIZES: [u32; 4] = [1_000, 10_000, 100_000, 1_000_000];

/// The cues of a file that grows by executions.
const CUES_WITH_HISTORY: u32 = 1_000;

/// A history is this long, whatever its size: nothing in it is old enough to be deleted.
const HISTORY: SignedDuration = SignedDuration::from_hours(20 * 24);

const ROUNDS: u32 = 3;

/// Rows in one transaction of a build.
const BATCH: u32 = 20_000;

/// The executions that are fired to be claimed, at most: a second of claims.
const CLAIMS: usize = 3_000;

/// Rows in a page of a list of executions.
const PAGE: u32 = 50;

/// The rows of which a file has more and more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Axis {
    Cues,
    Executions,
}

impl Axis {
    pub const ALL: [Self; 2] = [Self::Cues, Self::Executions];

    pub fn name(self) -> &'static str {
        match self {
            Self::Cues => "cues",
            Self::Executions => "executions",
        }
    }
}

/// The sizes to measure: those up to the largest, at least the smallest.
pub fn sizes(largest: u32) -> impl Iterator<Item = u32> {
    SIZES.into_iter().filter(move |size| *size <= largest.max(SIZES[0]))
}

/// The name of a result.
fn name(axis: Axis, size: u32, what: &str) -> String {
    format!("growth_{}_{size}_{what}", axis.name())
}

/// The state that all measurements share.
struct Growth<'a> {
    options: &'a BenchOptions,
    clock: &'a Clock,
    folder: &'a Folder,
    receiver: Receiver,
    api_key: ApiKey,
}

/// Measures all sizes.
pub fn measure(
    options: &BenchOptions,
    clock: &Clock,
    folder: &Folder,
    report: &mut BenchReport,
    progress: &dyn Fn(&str, usize, usize),
) -> Result<()> {
    let api_key = ApiKey::from_random(random::bytes()?);
    let growth = Growth { options, clock, folder, receiver: Receiver::start()?, api_key };
    let files: Vec<(Axis, u32)> =
        Axis::ALL.iter().flat_map(|axis| sizes(options.largest).map(|size| (*axis, size))).collect();
    let all = files.len() * (ROUNDS as usize + 1);
    let mut done = 0;
    for (axis, size) in &files {
        progress(&format!("file of {size} {}", axis.name()), done, all);
        growth.build(*axis, *size)?;
        done += 1;
    }
    for _ in 0..ROUNDS {
        for (axis, size) in &files {
            progress(&format!("{size} {}", axis.name()), done, all);
            growth.measure_copy(*axis, *size, report)?;
            done += 1;
        }
    }
    progress("done", all, all);
    Ok(())
}

impl Growth<'_> {
    fn file(&self, axis: Axis, size: u32) -> PathBuf {
        self.folder.file(&format!("{}-{size}.db", axis.name()))
    }

    /// Makes a file with one account.
    fn build(&self, axis: Axis, size: u32) -> Result<()> {
        let store = Store::open(&self.file(axis, size), Arc::new(|_| ()))?;
        let hash = self.api_key.hash();
        store.write(move |tx| insert_users(tx, "free", &[hash])).wait()?;
        let (mut cue, payload) = sample(self.clock, &self.receiver.url())?;
        cue.user_key = 1;
        cue.id = "cue_first".to_owned();
        store.write(move |tx| cues::insert(tx, cue, Some(&payload))).wait()?;
        let (copies, executions) = match axis {
            Axis::Cues => (size - 1, 0),
            Axis::Executions => (CUES_WITH_HISTORY - 1, size),
        };
        let now = self.clock.now();
        let batches =
            |count: u32| (0..count).step_by(BATCH as usize).map(move |from| (from, BATCH.min(count - from)));
        for (from, count) in batches(copies) {
            // The key of the first cue is 1.
            store.write(move |tx| copy_first_cue(tx, from + 2, count)).wait()?;
        }
        for (from, count) in batches(executions) {
            let step = HISTORY / i32::try_from(executions).unwrap_or(i32::MAX);
            let end = now - step * i32::try_from(executions - from - count).unwrap_or(i32::MAX);
            store.write(move |tx| insert_history(tx, 1, count, end, step)).wait()?;
        }
        Ok(())
    }

    fn measure_copy(&self, axis: Axis, size: u32, report: &mut BenchReport) -> Result<()> {
        let copy = self.folder.file("copy.db");
        fs::copy(self.file(axis, size), &copy)?;
        // Otherwise the system writes the copy while the server is measured.
        fs::File::open(&copy)?.sync_all()?;
        let measured = self.measure_file(&copy, &mut |what, value, unit| {
            let description = format!("{size} {}: {what}", axis.name());
            report.add(&name(axis, size, what), &description, value, unit);
        });
        for suffix in ["", "-wal", "-shm"] {
            let mut path = copy.clone().into_os_string();
            path.push(suffix);
            drop(fs::remove_file(path));
        }
        measured
    }

    fn measure_file(&self, db: &Path, add: &mut dyn FnMut(&str, f64, Unit)) -> Result<()> {
        let began = self.clock.monotonic();
        let server = ServerProcess::start(db, Limits::Off, self.folder.cleanup())?;
        let mut client = Client::connect(server.address())?;
        client.call(&request("GET", "/health", None, ""))?;
        add("start", (self.clock.monotonic() - began).as_secs_f64() * 1_000.0, Unit::Milliseconds);
        server.resident_bytes().into_iter().for_each(|bytes| add("memory", bytes, Unit::Bytes));
        add("list", self.rate(&server, &self.request("GET", "/v1/cues?limit=20", ""))?, Unit::PerSecond);
        let list = client.call(&self.request("GET", "/v1/cues?limit=100&offset=500", ""))?.to_vec();
        let ids = String::from_utf8_lossy(&list).into_owned();
        let ids = ids.split("\"id\":\"").skip(1).filter_map(|rest| rest.split_once('"'));
        let gets: Vec<_> = ids.map(|(id, _)| self.request("GET", &format!("/v1/cues/{id}"), "")).collect();
        add("get", self.rate_of(&server, &gets)?, Unit::PerSecond);
        self.pages(&mut client, add)?;
        add("claim", self.claims(&server, &mut client)?, Unit::PerSecond);
        add("herd", self.herd(&server)?, Unit::PerSecond);
        let body = cue(&self.receiver.url(), &json!({"type": "recurring", "cron": "0 3 1 1 *"})).to_string();
        add("create", self.rate(&server, &self.request("POST", "/v1/cues", &body))?, Unit::PerSecond);
        server.peak_resident_bytes().into_iter().for_each(|bytes| add("memory_peak", bytes, Unit::Bytes));
        Ok(())
    }

    fn request(&self, method: &str, path: &str, body: &str) -> Vec<u8> {
        request(method, path, Some(self.api_key.reveal()), body)
    }

    fn duration(&self) -> Duration {
        self.options.duration / 2
    }

    fn rate(&self, server: &ServerProcess, request: &[u8]) -> Result<f64> {
        self.rate_of(server, &[request.to_vec()])
    }

    /// Calls per second of 16 clients that send the requests in turn.
    fn rate_of(&self, server: &ServerProcess, requests: &[Vec<u8>]) -> Result<f64> {
        let next = AtomicUsize::new(0);
        let work = |_, client: &mut Client| {
            let request = &requests[next.fetch_add(1, Ordering::Relaxed) % requests.len().max(1)];
            client.call(request).map(|_| true)
        };
        Ok(client::measure(self.clock, server.address(), 16, self.duration(), work)?.rate)
    }

    /// The first and the last page of the list of executions.
    fn pages(&self, client: &mut Client, add: &mut dyn FnMut(&str, f64, Unit)) -> Result<()> {
        let page = |offset: u32| format!("/v1/executions?limit={PAGE}&offset={offset}");
        let first = self.request("GET", &page(0), "");
        let total = crate::bench::harness::integer_field(client.call(&first)?, "total").unwrap_or_default();
        let last = u32::try_from(total).unwrap_or(u32::MAX).saturating_sub(PAGE);
        for (what, request) in [("first_page", first), ("last_page", self.request("GET", &page(last), ""))] {
            let began = self.clock.monotonic();
            client.call(&request)?;
            add(what, (self.clock.monotonic() - began).as_secs_f64() * 1_000.0, Unit::Milliseconds);
        }
        Ok(())
    }

    fn claims(&self, server: &ServerProcess, client: &mut Client) -> Result<f64> {
        let schedule = json!({"type": "recurring", "cron": "0 3 1 1 *"});
        let worker = json!({"name": "Work", "schedule": schedule, "transport": "worker", "payload": {"task": "growth"}});
        let id = string_field(client.call(&self.request("POST", "/v1/cues", &worker.to_string()))?, "id")
            .ok_or_else(|| BenchError::Failed("the server created a cue without an id".to_owned()))?;
        let fire = self.request("POST", &format!("/v1/cues/{id}/fire"), "{}");
        let count = self.options.herd.min(CLAIMS);
        let fired = AtomicUsize::new(0);
        let work = |_, client: &mut Client| {
            let is_left = fired.fetch_add(1, Ordering::Relaxed) < count;
            if is_left { client.call(&fire).map(|_| true) } else { Ok(false) }
        };
        client::measure(self.clock, server.address(), 16, TIMEOUT, work)?;
        let claim = self.request("POST", "/v1/executions/claim", r#"{"worker_id": "bench"}"#);
        let work = |_, client: &mut Client| claim_and_report(self.api_key.reveal(), client, &claim);
        Ok(client::measure(self.clock, server.address(), 16, self.duration(), work)?.rate)
    }

    fn herd(&self, server: &ServerProcess) -> Result<f64> {
        let (count, url) = (self.options.herd, self.receiver.url());
        // Created within the time that even a slow disk takes.
        let lead = SignedDuration::from_millis(i64::try_from(count).unwrap_or(i64::MAX) + 1_000);
        let due = self.clock.now() + lead;
        let due = jiff::Timestamp::from_second(due.as_second() + 1).unwrap_or(due);
        create_cues(
            self.clock,
            server.address(),
            self.api_key.reveal(),
            |at| cue(&url, &once(at)),
            &vec![due; count],
        )?;
        let mut late = self.receiver.take(count, TIMEOUT);
        if late.len() < count {
            return Err(BenchError::Failed(format!("only {} of {count} deliveries arrived", late.len())));
        }
        #[allow(clippy::cast_precision_loss)]
        Ok(count as f64 / quantile(&mut late, 1.0) * 1_000.0)
    }
}
