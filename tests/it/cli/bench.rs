//! `cued bench` in its shortest form.

use std::fs;
use std::path::Path;
use std::process::Stdio;

use tempfile::TempDir;

use crate::faults::disk::Disk;
use crate::support::*;

const SHORT: [&str; 5] = ["bench", "--seconds", "0.1", "--herd", "40"];

#[test]
fn every_figure_is_measured_and_no_file_is_left() {
    let folder = TempDir::new().unwrap();
    let run = cued(&SHORT).arg("--json").arg("--dir").arg(folder.path()).output().unwrap();
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
    assert_eq!(String::from_utf8_lossy(&run.stderr), "", "no progress bar without a terminal");
    let report: Value = serde_json::from_slice(&run.stdout).unwrap();
    assert_eq!(report["version"], env!("CARGO_PKG_VERSION"));
    assert!(report["cpus"].as_u64().is_some_and(|cpus| cpus > 0), "{report}");
    assert_eq!([&report["seconds"], &report["herd"]], [&json!(0.1), &json!(40)]);
    let figures = report["results"].as_array().unwrap();
    let names: Vec<&str> = figures.iter().map(|figure| figure["name"].as_str().unwrap()).collect();
    let calls = |name: &str| [name.to_owned(), format!("{name}_p50"), format!("{name}_p99")];
    let rates = ["sqlite_commits", "creates_1", "creates_16", "gets", "lists"].map(calls).concat();
    let rates = rates.iter().map(String::as_str);
    let deliveries = ["herd", "memory_peak", "lateness_p50", "lateness_p99"];
    assert_eq!(
        names,
        ["memory_start"].into_iter().chain(rates).chain(deliveries).collect::<Vec<_>>()
    );
    for figure in figures {
        assert!(figure["value"].as_f64().unwrap() > 0.0, "{figure}");
    }
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn a_benchmark_that_cannot_run_reports_why() {
    let nowhere = cued(&SHORT).args(["--dir", "/nowhere/at/all"]).output().unwrap();
    assert_eq!(nowhere.status.code(), Some(1));
    let text = String::from_utf8_lossy(&nowhere.stderr).into_owned();
    assert!(text.contains("/nowhere/at/all") && text.contains("--dir"), "{text}");
    for wrong in [["--seconds", "0"], ["--seconds", "soon"], ["--herd", "0"], ["--herd", "-1"]] {
        let run = cued(&["bench"]).args(wrong).output().unwrap();
        assert_eq!(run.status.code(), Some(2), "{wrong:?}");
    }
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
    processes
        .filter_map(|it| fs::read_to_string(it.path().join("cmdline")).ok())
        .any(|it| it.contains(&mark))
}

/// Returns whether the server in this folder serves requests: it opens the files next to the database before.
fn is_measured_in(folder: &Path) -> bool {
    let mut inside = fs::read_dir(folder).unwrap().map(|it| it.unwrap().path());
    server_in(folder) && inside.any(|it| it.join("bare.db").exists())
}

#[test]
fn an_ended_benchmark_leaves_no_process_and_an_interrupted_one_no_file() {
    for (name, code) in
        [("-INT", Some(130)), ("-TERM", Some(143)), ("-HUP", Some(129)), ("-KILL", None)]
    {
        let folder = TempDir::new().unwrap();
        let mut command = cued(&["bench", "--seconds", "60", "--dir"]);
        let command = command.arg(folder.path()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut bench = Process(command.spawn().unwrap());
        until("the benchmark runs", || is_measured_in(folder.path()).then_some(()));
        signal(name, bench.0.id());
        assert_eq!(bench.0.wait().unwrap().code(), code, "{name}");
        let text = std::io::read_to_string(bench.0.stderr.take().unwrap()).unwrap();
        assert_eq!(text, "", "{name}");
        until("the server has ended", || (!server_in(folder.path())).then_some(()));
        if code.is_some() {
            assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0, "{name}");
        }
    }
}
