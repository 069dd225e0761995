//! Leases: extended while a command runs, lost, and left by a worker that was killed.

use std::fs;

use serde_json::json;

use crate::cli::client::work::Workshop;
use crate::support::server::{signal, until};

#[test]
fn a_worker_that_lives_keeps_its_claim_however_long_the_command_takes() {
    let shop = Workshop::new();
    let (execution, go) = (shop.execution("t"), shop.path("go"));
    let script = format!("until [ -e {} ]; do sleep 0.02; done; echo mine", go.display());
    let mut worker = shop.start("w", &["--task", "t"], &script);
    let lease = || shop.look(&execution)["lease_expires_at"].as_str().map(str::to_owned);
    let mut last = until("the execution is claimed", lease);
    for _ in 0..5 {
        shop.user.advance("PT10M");
        last = until("the lease is extended", || lease().filter(|lease| *lease > last));
    }
    fs::write(go, "").unwrap();
    let seen = shop.reported(&execution);
    assert_eq!((&seen["outcome"]["result"], &seen["attempts"]), (&json!("mine\n"), &json!(1)));
    assert_eq!(worker.stop(), 0);
}

#[test]
fn a_lost_claim_ends_the_command_and_its_outcome_is_not_reported() {
    let shop = Workshop::new();
    let execution = shop.execution("t");
    let [begun, terminated, go] = ["begun", "terminated", "go"].map(|name| shop.path(name));
    let script = format!(
        "if [ $CUED_ATTEMPT = 1 ]; then trap 'touch {}; exit 0' TERM; touch {}; while :; do sleep 0.02; done; fi; \
         until [ -e {} ]; do sleep 0.02; done; echo second",
        terminated.display(),
        begun.display(),
        go.display()
    );
    let mut worker = shop.start("w", &["--task", "t"], &script);
    until("the command has begun", || begun.exists().then_some(()));
    // No heartbeat arrives while the worker stands still.
    worker.signal("-STOP");
    shop.user.advance("PT20M");
    assert_eq!(shop.look(&execution)["status"], "pending");
    worker.signal("-CONT");
    until("the command is terminated", || terminated.exists().then_some(()));
    worker.says("run ended: the execution is no longer this worker's");
    fs::write(go, "").unwrap();
    let seen = shop.reported(&execution);
    assert_eq!((&seen["outcome"]["result"], &seen["attempts"]), (&json!("second\n"), &json!(2)));
    assert_eq!(worker.stop(), 0);
}

#[test]
fn the_command_of_a_deleted_cue_is_ended() {
    let shop = Workshop::new();
    let cue = shop.cue("t", &json!({}));
    let execution = shop.fire(&cue);
    let begun = shop.path("begun");
    let script = format!("touch {}; exec sleep 600", begun.display());
    let mut worker = shop.start("w", &["--task", "t"], &script);
    until("the command has begun", || begun.exists().then_some(()));
    shop.user.delete(&format!("/v1/cues/{cue}")).expect(204);
    worker.says("run ended: the execution is no longer this worker's");
    let log = worker.log();
    assert!(log.contains(&execution) && !log.contains("another worker"), "{log}");
    assert_eq!(worker.stop(), 0);
}

#[test]
fn a_worker_that_claims_its_own_lost_execution_again_runs_it_once_at_a_time() {
    let shop = Workshop::new();
    let execution = shop.execution("t");
    let [begun, journal] = ["begun", "journal"].map(|name| shop.path(name));
    let script = format!(
        "echo + >>{0}; if [ $CUED_ATTEMPT = 1 ]; then trap 'sleep 0.2; echo - >>{0}; exit 0' TERM; touch {1}; \
         while :; do sleep 0.02; done; fi; echo - >>{0}",
        journal.display(),
        begun.display()
    );
    // Free slots claim before the heartbeat of the first run fails.
    let mut worker = shop.start("w", &["--task", "t", "--jobs", "4"], &script);
    until("the command has begun", || begun.exists().then_some(()));
    worker.signal("-STOP");
    shop.user.advance("PT20M");
    worker.signal("-CONT");
    // A claim that the server received before the clock moved may be a further attempt, lost at once.
    assert!(shop.reported(&execution)["attempts"].as_u64() >= Some(2));
    let journal = fs::read_to_string(journal).unwrap();
    assert!(
        journal.starts_with("+\n-\n+\n-\n") && journal == "+\n-\n".repeat(journal.len() / 4),
        "{journal}"
    );
    assert_eq!(worker.stop(), 0);
}

#[test]
fn what_a_killed_worker_held_is_run_after_the_lease_even_by_a_successor_of_its_name() {
    let shop = Workshop::new();
    let (execution, pid) = (shop.execution("t"), shop.path("pid"));
    let script = format!("echo $$ >{0}.new; mv {0}.new {0}; exec sleep 600", pid.display());
    let mut first = shop.start("same", &["--task", "t"], &script);
    until("the command has begun", || pid.exists().then_some(()));
    first.kill9();
    signal("-KILL", fs::read_to_string(&pid).unwrap().trim().parse().unwrap());
    let held_by = shop.look(&execution)["claimed_by_worker"].as_str().unwrap().to_owned();
    let mut second = shop.start("same", &["--task", "t"], "echo $CUED_WORKER_ID");
    second.says("worker started");
    shop.user.advance("PT14M");
    assert_eq!(shop.look(&execution)["claimed_by_worker"], held_by.as_str());
    shop.user.advance("PT2M");
    let seen = shop.reported(&execution);
    assert_eq!((&seen["outcome"]["result"], &seen["attempts"]), (&json!("same\n"), &json!(2)));
    assert_ne!(seen["claimed_by_worker"], held_by.as_str());
    assert_eq!(second.stop(), 0);
}
