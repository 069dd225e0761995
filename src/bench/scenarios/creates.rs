//! Creates, with a growing number of clients.

use serde_json::json;

use crate::bench::Result;
use crate::bench::baseline;
use crate::bench::client::request;
use crate::bench::harness::{Harness, create_user, cue, open_store};
use crate::bench::report::{BenchReport, Unit};

/// Creates with `clients` clients, after the same with the baselines: the same rows through the same writer (for a single
/// client, SQLite alone), and the strongest bare server.
pub fn run(bench: &mut Harness, report: &mut BenchReport, clients: usize) -> Result<()> {
    let suffix = if clients == 1 { "1 client".to_owned() } else { format!("{clients} clients") };
    let same_rows = if clients == 1 {
        single_commits(bench, report)?;
        "single_commits".to_owned()
    } else {
        let measured = bench.measure_baseline(clients, &bench.get("/insert"))?;
        let name = format!("baseline_inserts_{clients}");
        report.add(&name, &format!("bare HTTP server: inserts, {suffix}"), measured.rate, Unit::PerSecond);
        name
    };
    let body = cue(&bench.receiver.url(), &json!({"type": "recurring", "cron": "0 3 1 1 *"}));
    let mut measured = bench.measure_baseline(clients, &bench.post("/bare/insert", &body))?;
    let (bare, description) =
        (format!("bare_creates_{clients}"), format!("strongest bare inserts, {suffix}"));
    report.add(&bare, &description, measured.rate, Unit::PerSecond);
    report.add_latencies(&bare, &description, &mut measured.latencies, None);

    let (name, description) = (format!("creates_{clients}"), format!("create cue, {suffix}"));
    let create = request("POST", "/v1/cues", Some(&bench.api_key), &body.to_string());
    let before = bench.written.when_idle(&bench.clock);
    let mut measured = bench.measure(clients, &create)?;
    let written = bench.written.when_idle(&bench.clock).since(before);
    report.add_compared(&name, &description, measured.rate, Unit::PerSecond, &[&same_rows, &bare]);
    report.add_latencies(&name, &description, &mut measured.latencies, Some(&bare));
    report.add_written(&format!("create_{clients}"), &format!("create, {suffix}"), written, measured.count);
    Ok(())
}

fn single_commits(bench: &Harness, report: &mut BenchReport) -> Result<()> {
    // A further repetition continues the file of the first.
    let path = bench.folder.file("single.db");
    let (mut cue, payload) = bench.sample.clone();
    let store = open_store(&bench.folder, "single.db")?;
    cue.user_key = create_user(&store, &bench.clock, "bench@example.com")?;
    drop(store);
    let rate = baseline::single_commits(&bench.clock, &path, bench.options.duration, &cue, &payload)?;
    report.add("single_commits", "SQLite alone: single-row commits", rate, Unit::PerSecond);
    Ok(())
}
