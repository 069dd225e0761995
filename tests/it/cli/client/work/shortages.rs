//! The limit of open files.

use std::fs::File;
use std::process::Stdio;

use serde_json::json;

use crate::cli::client::work::{Background, Workshop};
use crate::support::server::{Process, cued};

/// A worker in a shell with these commands before it, such as `ulimit -Sn 64`.
fn limited(shop: &Workshop, before: &str, arguments: &str) -> Background {
    let log = shop.path("w.log");
    let program = cued(&[]).get_program().to_owned();
    let script =
        format!("{before}; exec {} work --beat-millis 50 --id w --task t {arguments}", program.display());
    let mut command = shop.home.shell(&script);
    command.stdout(Stdio::null()).stderr(File::create(&log).unwrap());
    Background { process: Process(command.spawn().unwrap()), log }
}

#[test]
fn the_soft_limit_of_open_files_is_raised_as_far_as_the_jobs_need() {
    let shop = Workshop::new();
    let cue = shop.cue("t", &json!({}));
    let executions: Vec<String> = (0..30).map(|_| shop.fire(&cue)).collect();
    let go = shop.path("go");
    let command = format!(
        "--jobs 30 -- sh -c 'echo >>{0}; until [ $(wc -l <{0}) -ge 30 ]; do sleep 0.05; done; ulimit -Sn'",
        go.display()
    );
    let mut worker = limited(&shop, "ulimit -Sn 100", &command);
    for execution in &executions {
        let seen = shop.reported(execution);
        assert_eq!((&seen["status"], &seen["outcome"]["result"]), (&json!("success"), &json!("544\n")));
    }
    assert_eq!(worker.stop(), 0);
    assert!(!worker.log().contains("WARN"), "{}", worker.log());
}

#[test]
fn a_limit_of_open_files_that_is_too_low_for_the_jobs_is_refused_at_the_start() {
    let shop = Workshop::new();
    let execution = shop.execution("t");
    let mut worker = limited(&shop, "ulimit -n 60", "--jobs 24 -- true");
    assert_eq!(worker.ended(), 1);
    assert!(worker.log().contains("24 jobs need 448 open files, and 60 are permitted"), "{}", worker.log());
    assert_eq!(shop.look(&execution)["status"], "pending");
}
