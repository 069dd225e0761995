//! `cued bench` in its shortest forms.

use std::fs;
use std::path::Path;
use std::process::Stdio;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::faults::mount::Disk;
use crate::support::server::{Process, cued, signal, until};

const SHORT: [&str; 7] = ["bench", "--seconds", "0.1", "--herd", "40", "--trickle", "3"];

/// The results of a full run, but those that need a block device.
fn figures() -> Vec<String> {
    let mut names = vec!["fsyncs", "group_commits", "baseline_responses"];
    let latencies = |name: &str| ["p50", "p99", "p999", "max"].map(|suffix| format!("{name}_{suffix}"));
    let mut all: Vec<String> = names.drain(..).map(str::to_owned).collect();
    for (clients, baseline) in [
        (1, "single_commits"),
        (2, "baseline_inserts_2"),
        (16, "baseline_inserts_16"),
        (64, "baseline_inserts_64"),
    ] {
        all.push(baseline.to_owned());
        for name in [format!("bare_creates_{clients}"), format!("creates_{clients}")] {
            all.push(name.clone());
            all.extend(latencies(&name));
        }
        all.extend([format!("create_{clients}_log_bytes"), format!("create_{clients}_commits")]);
    }
    for name in ["gets", "lists"] {
        all.push(format!("baseline_{}", if name == "gets" { "reads" } else { name }));
        for name in [format!("bare_{name}"), name.to_owned()] {
            all.push(name.clone());
            all.extend(latencies(&name));
        }
    }
    all.extend(["patches", "baseline_claims", "claims", "claimable", "baseline_posts"].map(str::to_owned));
    all.extend(
        ["deliveries", "lateness_p50", "lateness_p99", "duration", "log_bytes", "commits"]
            .map(|it| format!("herd_{it}")),
    );
    all.extend(["memory_start", "memory_peak"].map(str::to_owned));
    all.extend(["herd_heartbeat", "herd_claim", "herd_outcome"].iter().flat_map(|name| latencies(name)));
    all.extend(
        ["lateness_p50", "lateness_p99", "lateness_max", "log_bytes", "commits"]
            .map(|it| format!("trickle_{it}")),
    );
    let rest =
        ["hang_lateness_max", "hang_connections", "overview", "idle_log", "idle_writes", "idle_memory"];
    all.extend(rest.map(str::to_owned));
    all
}

#[test]
fn every_result_has_a_baseline_and_no_file_is_left() {
    let folder = TempDir::new().unwrap();
    let run = cued(&SHORT).arg("--json").arg("--dir").arg(folder.path()).output().unwrap();
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
    assert_eq!(String::from_utf8_lossy(&run.stderr), "", "no progress bar without a terminal");
    let report: Value = serde_json::from_slice(&run.stdout).unwrap();
    assert_eq!(report["version"], env!("CARGO_PKG_VERSION"));
    assert!(report["cpus"].as_u64().is_some_and(|cpus| cpus > 0), "{report}");
    let conditions = [&report["seconds"], &report["herd"], &report["trickle"]];
    assert_eq!(conditions, [&json!(0.1), &json!(40), &json!(3)]);
    let figures = report["results"].as_array().unwrap();
    let names = figures.iter().map(|figure| figure["name"].as_str().unwrap().to_owned());
    // A file system in memory has no block device.
    let names: Vec<String> = names.filter(|name| !name.ends_with("_disk_bytes")).collect();
    assert_eq!(names, self::figures());
    for figure in figures {
        assert!(figure["value"].as_f64().unwrap() >= 0.0, "{figure}");
        let is_rate_of_service = figure["unit"] == "per_second"
            && ["creates_", "gets", "lists", "patches", "claims", "claimable", "herd"]
                .iter()
                .any(|it| figure["name"].as_str().unwrap().starts_with(it));
        let is_rate = figure["unit"] == "per_second";
        assert!(!is_rate || is_rate_of_service != figure["baseline"].is_null(), "{figure}");
        let ratio =
            figure["baseline"]["value"].as_f64().map(|limit| figure["value"].as_f64().unwrap() / limit);
        // The values are rounded.
        let close = |ratio: f64| (figure["ratio"].as_f64().unwrap() - ratio).abs() < 0.001 + 0.01 * ratio;
        assert!(ratio.is_none_or(close), "{figure}");
    }
    let limit = |name: &str| {
        let figure = figures.iter().find(|figure| figure["name"] == name).unwrap();
        figure["baseline"]["description"].as_str().unwrap()
    };
    assert!(limit("lists").contains("lists of 20"), "{}", limit("lists"));
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn a_benchmark_that_cannot_run_reports_why() {
    let nowhere = cued(&SHORT).args(["--dir", "/nowhere/at/all"]).output().unwrap();
    assert_eq!(nowhere.status.code(), Some(1));
    let text = String::from_utf8_lossy(&nowhere.stderr).into_owned();
    assert!(text.contains("/nowhere/at/all") && text.contains("--dir"), "{text}");
    let unknown = cued(&SHORT).args(["--only", "creates,gest"]).output().unwrap();
    let text = String::from_utf8_lossy(&unknown.stderr).into_owned();
    assert_eq!(unknown.status.code(), Some(1), "{text}");
    assert!(text.contains("\"gest\"") && text.contains("creates, gets, lists"), "{text}");
    for (flag, file, reason) in [
        ("--compare", "/nowhere/runs", "cannot compare with /nowhere/runs"),
        ("--compare", concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml"), "no run of `cued bench`"),
        ("--history", "/nowhere/runs", "cannot write the history /nowhere/runs"),
    ] {
        let run = cued(&SHORT).args([flag, file]).output().unwrap();
        let text = String::from_utf8_lossy(&run.stderr).into_owned();
        assert_eq!(run.status.code(), Some(1), "{text}");
        assert!(text.contains(reason) && text.contains(flag), "{text}");
    }
    let slow =
        [["--fsync-delay", "10"], ["--fsync-delay", "2s"], ["--repeat", "0"], ["--growth=5", "--json"]];
    for wrong in slow {
        let run = cued(&["bench"]).args(wrong).output().unwrap();
        assert_eq!(run.status.code(), Some(2), "{wrong:?}");
    }
    for wrong in [["--seconds", "0"], ["--seconds", "soon"], ["--herd", "0"], ["--trickle", "-1"]] {
        let run = cued(&["bench"]).args(wrong).output().unwrap();
        assert_eq!(run.status.code(), Some(2), "{wrong:?}");
    }
}

/// Runs the benchmark with these arguments and returns its JSON.
fn report_of(folder: &Path, arguments: &[&str]) -> Value {
    let run = cued(&SHORT).args(arguments).arg("--json").arg("--dir").arg(folder).output().unwrap();
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
    serde_json::from_slice(&run.stdout).unwrap()
}

/// The value of a result.
fn value(report: &Value, name: &str) -> f64 {
    let figures = report["results"].as_array().unwrap();
    figures.iter().find(|figure| figure["name"] == name).unwrap()["value"].as_f64().unwrap()
}

#[test]
fn a_run_is_appended_to_the_history_and_compared_with_the_last_one() {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("runs.jsonl");
    let history = ["--only", "responses", "--repeat", "2", "--history", file.to_str().unwrap()];
    let first = report_of(folder.path(), &[&history[..], &["--label", "first"]].concat());
    assert_eq!((&first["label"], &first["repeat"]), (&json!("first"), &json!(2)));
    let second = report_of(folder.path(), &[&history[..], &["--compare", file.to_str().unwrap()]].concat());
    let change = &second["comparison"][0];
    assert_eq!(change["name"], "baseline_responses");
    assert_eq!(change["old"], value(&first, "baseline_responses"));
    assert_eq!(change["new"], value(&second, "baseline_responses"));
    assert!(change["is_beyond_noise"].is_boolean(), "{change}");
    let lines = fs::read_to_string(&file).unwrap();
    let runs: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(runs, [first, without(second, "comparison")]);
    let mut text = cued(&SHORT);
    text.args(["--only", "responses", "--compare", file.to_str().unwrap(), "--dir"]).arg(folder.path());
    let text = String::from_utf8(text.output().unwrap().stdout).unwrap();
    assert!(text.contains("of 1 results differ beyond noise"), "{text}");
}

fn without(mut object: Value, field: &str) -> Value {
    object.as_object_mut().unwrap().remove(field);
    object
}

#[test]
fn growth_is_measured_for_each_size() {
    let folder = TempDir::new().unwrap();
    let report = report_of(folder.path(), &["--growth=1000"]);
    for axis in ["cues", "executions"] {
        for what in ["start", "memory", "list", "get", "first_page", "last_page", "claim", "herd", "create"] {
            assert!(value(&report, &format!("growth_{axis}_1000_{what}")) > 0.0, "{report}");
        }
    }
    assert_eq!(report["results"][0]["min"].as_f64().map(|min| min > 0.0), Some(true), "{report}");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
}

/// The delay is a lower limit: a slow machine cannot make the test fail.
#[test]
#[cfg(all(target_os = "linux", target_env = "gnu"))]
fn a_slow_disk_delays_the_baselines_and_the_server() {
    let folder = TempDir::new().unwrap();
    let report = report_of(folder.path(), &["--fsync-delay", "50ms", "--only", "disk,creates"]);
    assert_eq!(report["fsync_delay_ms"], 50.0);
    for name in ["fsyncs", "single_commits", "bare_creates_1", "creates_1"] {
        assert!(value(&report, name) <= 20.0, "{name}: {report}");
    }
    assert!(value(&report, "creates_1_p50") >= 50.0, "{report}");
}

#[test]
fn a_full_disk_error_names_the_folder_and_the_flag_to_change_it() {
    let Some(disk) = Disk::mount("2m") else { return };
    let run = cued(&SHORT).arg("--dir").arg(disk.path()).output().unwrap();
    let text = String::from_utf8_lossy(&run.stderr).into_owned();
    assert_eq!(run.status.code(), Some(1), "{text}");
    assert!(text.contains(disk.path().to_str().unwrap()) && text.contains("--dir"), "{text}");
    assert_eq!(fs::read_dir(disk.path()).unwrap().count(), 0);
}

/// Returns whether a server runs on a benchmark file in this folder.
fn server_in(folder: &Path) -> bool {
    let mark = format!("{}/cued-bench-", folder.display());
    let processes = fs::read_dir("/proc").unwrap().filter_map(Result::ok);
    // A process that has just ended has no readable entry.
    processes.filter_map(|it| fs::read_to_string(it.path().join("cmdline")).ok()).any(|it| it.contains(&mark))
}

/// Returns whether the server in this folder serves requests: it opens the files next to the database before.
fn is_measured_in(folder: &Path) -> bool {
    let mut inside = fs::read_dir(folder).unwrap().map(|it| it.unwrap().path());
    server_in(folder) && inside.any(|it| it.join("baseline.db").exists())
}

#[test]
fn an_interrupted_benchmark_leaves_no_process_and_no_file() {
    for (name, code) in [("-INT", 130), ("-TERM", 143), ("-HUP", 129)] {
        let folder = TempDir::new().unwrap();
        let mut command = cued(&["bench", "--seconds", "60", "--dir"]);
        let command = command.arg(folder.path()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut bench = Process(command.spawn().unwrap());
        until("the benchmark runs", || is_measured_in(folder.path()).then_some(()));
        signal(name, bench.0.id());
        assert_eq!(bench.0.wait().unwrap().code(), Some(code), "{name}");
        let text = std::io::read_to_string(bench.0.stderr.take().unwrap()).unwrap();
        assert_eq!(text, "", "{name}");
        assert!(!server_in(folder.path()), "{name}");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0, "{name}");
    }
}

#[test]
fn the_measured_server_ends_with_the_benchmark() {
    let folder = TempDir::new().unwrap();
    let mut command = cued(&["bench", "--seconds", "60", "--dir"]);
    let mut bench = Process(command.arg(folder.path()).stderr(Stdio::null()).spawn().unwrap());
    until("the benchmark runs", || is_measured_in(folder.path()).then_some(()));
    bench.0.kill().unwrap();
    bench.0.wait().unwrap();
    until("the server has ended", || (!server_in(folder.path())).then_some(()));
}
