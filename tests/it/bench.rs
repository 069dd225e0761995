//! `cued bench`, in its shortest form.

use std::fs;

use serde_json::Value;
use tempfile::TempDir;

use crate::server::cued;

const SHORT: [&str; 7] = ["bench", "--seconds", "0.1", "--herd", "40", "--trickle", "3"];

const FIGURES: [&str; 28] = [
    "fsyncs",
    "single_commits",
    "group_commits",
    "bare_answers",
    "bare_reads",
    "bare_inserts_16",
    "bare_inserts_64",
    "creates_1",
    "create_bytes_1",
    "creates_16",
    "create_bytes_16",
    "creates_64",
    "create_bytes_64",
    "gets",
    "lists",
    "cycles",
    "bare_posts",
    "herd",
    "herd_p50",
    "herd_p99",
    "herd_drain",
    "herd_bytes",
    "memory_start",
    "memory_peak",
    "trickle_p50",
    "trickle_p99",
    "trickle_max",
    "lone_bytes",
];

#[test]
fn every_figure_is_measured_beside_the_machines_own_and_nothing_is_left_behind() {
    let folder = TempDir::new().unwrap();
    let run = cued(&SHORT).arg("--json").arg("--dir").arg(folder.path()).output().unwrap();
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
    assert_eq!(String::from_utf8_lossy(&run.stderr), "", "no bar where there is no terminal");
    let report: Value = serde_json::from_slice(&run.stdout).unwrap();
    let figures = report["figures"].as_array().unwrap();
    let names: Vec<&str> = figures.iter().map(|figure| figure["name"].as_str().unwrap()).collect();
    assert_eq!(names, FIGURES);
    for figure in figures {
        assert!(figure["figure"].as_f64().unwrap() >= 0.0, "{figure}");
        let ratio =
            figure["limit"]["figure"].as_f64().map(|limit| figure["figure"].as_f64().unwrap() / limit);
        let close = |ratio: f64| (figure["ratio"].as_f64().unwrap() - ratio).abs() < 0.001;
        assert!(ratio.is_none_or(close), "{figure}");
    }
    let with_limit = figures.iter().filter(|figure| !figure["limit"].is_null()).count();
    assert_eq!(with_limit, 7, "creates, gets, lists, cycles and the herd");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn what_cannot_be_measured_is_said() {
    let nowhere = cued(&SHORT).args(["--dir", "/nowhere/at/all"]).output().unwrap();
    assert_eq!(nowhere.status.code(), Some(1));
    let said = String::from_utf8_lossy(&nowhere.stderr).into_owned();
    assert!(said.contains("/nowhere/at/all") && said.contains("--dir"), "{said}");
    for wrong in [["--seconds", "0"], ["--seconds", "soon"], ["--herd", "0"], ["--trickle", "-1"]] {
        let run = cued(&["bench"]).args(wrong).output().unwrap();
        assert_eq!(run.status.code(), Some(2), "{wrong:?}");
    }
}
