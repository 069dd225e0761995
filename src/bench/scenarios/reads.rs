//! Reads: single cues, lists, the overview.

use std::sync::atomic::{AtomicUsize, Ordering};

use jiff::SignedDuration;
use serde_json::json;

use crate::bench::baseline::{LIST_LIMIT, with_new_id};
use crate::bench::client;
use crate::bench::client::{Client, Measured, request};
use crate::bench::harness::{Harness, LIST_CUES, cue, integer_field, register};
use crate::bench::report::{BenchReport, Unit};
use crate::bench::{BenchError, Result};
use crate::store::accounts::users;
use crate::store::maintenance::bench::insert_history;
use crate::store::{Store, WriteTx, cues};

/// The cues that are read in turn.
const READ_CUES: usize = 100;

/// The cues and the ended executions of the account whose overview is read: a household or a small company after months.
const OVERVIEW_CUES: usize = 1_000;
const OVERVIEW_EXECUTIONS: u32 = 100_000;

pub fn gets(bench: &mut Harness, report: &mut BenchReport) -> Result<()> {
    let rate = bench.measure_baseline(16, &bench.get("/read"))?.rate;
    report.add("baseline_reads", "bare HTTP server: reads, 16 clients", rate, Unit::PerSecond);
    let keys: Vec<Vec<u8>> =
        (1..=READ_CUES).map(|key| request("GET", &format!("/bare/get/{key}"), None, "")).collect();
    let mut measured = in_turn(bench, bench.baseline.address, &keys)?;
    let description = "bare reads on the thread, 16 clients";
    report.add("bare_gets", description, measured.rate, Unit::PerSecond);
    report.add_latencies("bare_gets", description, &mut measured.latencies, None);

    let schedule = json!({"type": "recurring", "cron": "0 3 1 1 *"});
    let create = bench.post("/v1/cues", &cue(&bench.receiver.url(), &schedule));
    let mut client = Client::connect(bench.server.address())?;
    for _ in 0..READ_CUES {
        client.call(&create)?;
    }
    let list = client.call(&bench.get(&format!("/v1/cues?limit={READ_CUES}")))?;
    let ids = std::str::from_utf8(list).unwrap_or_default().split("\"id\":\"").skip(1);
    let ids = ids.filter_map(|rest| rest.split_once('"')).map(|(id, _)| id);
    let requests: Vec<Vec<u8>> =
        ids.map(|id| bench.get(&format!("/v1/cues/{id}?execution_limit=1"))).collect();
    let mut measured = in_turn(bench, bench.server.address(), &requests)?;
    let (description, baselines) = ("get cue, 16 clients", ["baseline_reads", "bare_gets"]);
    report.add_compared("gets", description, measured.rate, Unit::PerSecond, &baselines);
    report.add_latencies("gets", description, &mut measured.latencies, Some("bare_gets"));
    Ok(())
}

/// Measures 16 clients that send the requests in turn.
fn in_turn(bench: &Harness, to: std::net::SocketAddr, requests: &[Vec<u8>]) -> Result<Measured> {
    let next = AtomicUsize::new(0);
    let work = |_, client: &mut Client| {
        let request = &requests[next.fetch_add(1, Ordering::Relaxed) % requests.len().max(1)];
        client.call(request).map(|_| true)
    };
    client::measure(&bench.clock, to, 16, bench.options.duration, work)
}

pub fn lists(bench: &mut Harness, report: &mut BenchReport) -> Result<()> {
    let user_key = bench.user_with_cues(&bench.store)?;
    let rate = bench.measure_baseline(16, &bench.get(&format!("/list/{user_key}")))?.rate;
    report.add("baseline_lists", "bare HTTP server: lists of 20, 16 clients", rate, Unit::PerSecond);
    let mut measured = bench.measure_baseline(16, &bench.get("/bare/list"))?;
    let description = "bare lists of 20 on the thread, 16 clients";
    report.add("bare_lists", description, measured.rate, Unit::PerSecond);
    report.add_latencies("bare_lists", description, &mut measured.latencies, None);

    // Beside the server, as an administration command would.
    bench.user_with_cues(&Store::open_shared(&bench.folder.file("cued.db"))?)?;
    let list = request("GET", &format!("/v1/cues?limit={LIST_LIMIT}"), Some(&bench.list_key), "");
    let mut client = Client::connect(bench.server.address())?;
    let total = integer_field(client.call(&list)?, "total");
    if total != usize::try_from(LIST_CUES).ok() {
        return Err(BenchError::Failed(format!("the list has {total:?} cues in place of {LIST_CUES}")));
    }
    let mut measured = bench.measure(16, &list)?;
    let (description, baselines) = ("list 20 of 6,000 cues, 16 clients", ["baseline_lists", "bare_lists"]);
    report.add_compared("lists", description, measured.rate, Unit::PerSecond, &baselines);
    report.add_latencies("lists", description, &mut measured.latencies, Some("bare_lists"));
    Ok(())
}

/// The history is inserted beside the server, as an administration command would.
pub fn overview(bench: &mut Harness, report: &mut BenchReport) -> Result<()> {
    // Each repetition has an account of its own.
    let email = format!("overview-{}@example.com", bench.clock.now().as_millisecond());
    let api_key = register(&bench.server, &email)?;
    let store = Store::open_shared(&bench.folder.file("cued.db"))?;
    let ((mut cue, payload), now) = (bench.sample.clone(), bench.clock.now());
    let user = store.read(move |read| users::find_by_email(read, &email)).wait()?;
    cue.user_key = user.map(|user| user.key).unwrap_or_default();
    let insert = move |tx: &WriteTx<'_>| {
        for _ in 0..OVERVIEW_CUES {
            cues::insert(tx, with_new_id(&cue)?, Some(&payload))?;
        }
        insert_history(tx, cue.user_key, OVERVIEW_EXECUTIONS, now, SignedDuration::from_mins(1))
    };
    store.write(insert).wait()?;
    drop(store);
    let get = request("GET", "/v1/overview", Some(&api_key), "");
    let rate = bench.measure(1, &get)?.rate;
    let description = "overview, 1,000 cues, 100,000 executions";
    report.add("overview", description, 1_000.0 / rate, Unit::Milliseconds);
    Ok(())
}
