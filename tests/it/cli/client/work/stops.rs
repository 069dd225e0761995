//! The stop of a worker, and its messages to the service manager.

use std::fs;
use std::os::unix::net::UnixDatagram;

use serde_json::json;

use crate::cli::client::work::Workshop;
use crate::support::client_command::ClientHome;
use crate::support::server::{HANG_TIMEOUT, until};

/// A script that touches `begun` and runs until `go` exists.
fn waiting(shop: &Workshop) -> String {
    let (begun, go) = (shop.path("begun"), shop.path("go"));
    format!("touch {}; until [ -e {} ]; do sleep 0.02; done; echo done", begun.display(), go.display())
}

fn begun(shop: &Workshop) {
    until("the command has begun", || shop.path("begun").exists().then_some(()));
}

#[test]
fn a_stop_waits_for_the_running_command_and_claims_nothing_more() {
    for name in ["-TERM", "-INT"] {
        let shop = Workshop::new();
        let cue = shop.cue("t", &json!({}));
        let (running, waits) = (shop.fire(&cue), shop.fire(&cue));
        let mut worker = shop.start("w", &["--task", "t"], &waiting(&shop));
        begun(&shop);
        worker.signal(name);
        worker.says("stopping: nothing more is claimed");
        fs::write(shop.path("go"), "").unwrap();
        assert_eq!(worker.ended(), 0);
        assert_eq!(shop.look(&running)["outcome"]["result"], "done\n");
        assert_eq!(shop.look(&waits)["status"], "pending");
    }
}

#[test]
fn a_command_that_exceeds_the_grace_time_is_ended_and_reported() {
    let shop = Workshop::new();
    let execution = shop.execution("t");
    let mut worker = shop.start("w", &["--task", "t", "--grace", "1s"], &waiting(&shop));
    begun(&shop);
    assert_eq!(worker.stop(), 0);
    let seen = shop.look(&execution);
    let error = seen["outcome"]["error"].as_str().unwrap();
    assert!(seen["status"] == "failed" && error.ends_with("worker stopped"), "{error}");
}

#[test]
fn a_second_signal_ends_the_commands_at_once_and_a_third_kills_them() {
    let shop = Workshop::new();
    let execution = shop.execution("t");
    let terminated = shop.path("terminated");
    let script = format!("trap 'touch {}' TERM; {}", terminated.display(), waiting(&shop));
    let mut worker = shop.start("w", &["--task", "t", "--grace", "10m"], &script);
    begun(&shop);
    worker.signal("-INT");
    worker.says("stopping: nothing more is claimed");
    worker.signal("-INT");
    until("the command is terminated", || terminated.exists().then_some(()));
    worker.signal("-INT");
    assert_eq!(worker.ended(), 0);
    let error = shop.look(&execution)["outcome"]["error"].as_str().unwrap().to_owned();
    // The shell may report the end of its children.
    assert!(error.ends_with("worker stopped"), "{error}");
}

#[test]
fn an_interrupted_wait_for_one_run_exits_with_130() {
    let shop = Workshop::new();
    let mut worker = shop.start("w", &["--task", "t", "--once"], "true");
    worker.says("worker started");
    until("the worker is listed", || {
        (shop.user.get("/v1/workers").expect(200)["workers"] != json!([])).then_some(())
    });
    worker.signal("-INT");
    assert_eq!(worker.ended(), 130);
}

#[test]
fn the_service_manager_learns_of_readiness_life_and_stop() {
    let shop = Workshop::new();
    let path = shop.path("notify");
    let manager = UnixDatagram::bind(&path).unwrap();
    manager.set_read_timeout(Some(HANG_TIMEOUT)).unwrap();
    let hears = || {
        let mut bytes = [0; 512];
        let length = manager.recv(&mut bytes).expect("a message arrives");
        String::from_utf8(bytes[..length].to_vec()).unwrap()
    };
    let home = ClientHome::signed_in(&shop.server, &shop.user)
        .env("NOTIFY_SOCKET", path.as_os_str())
        .env("WATCHDOG_USEC", "20000");
    let mut worker = shop.start_in(&home, "w", &["--task", "t"], "true");
    assert_eq!(hears(), "READY=1\nSTATUS=Waiting for work");
    assert_eq!([hears(), hears()], ["WATCHDOG=1", "WATCHDOG=1"]);
    worker.signal("-TERM");
    let next = std::iter::repeat_with(hears).find(|message| message != "WATCHDOG=1").unwrap();
    assert_eq!(next, "STOPPING=1\nSTATUS=Stopping: waiting for running commands");
    assert_eq!(worker.ended(), 0);
}
