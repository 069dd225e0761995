//! A server that is killed, that refuses, or that is not there.

use std::fs;

use serde_json::json;

use crate::cli::client::work::Workshop;
use crate::support::server::until;

#[test]
fn a_report_is_repeated_until_a_killed_server_is_back() {
    let mut shop = Workshop::new();
    let execution = shop.execution("t");
    let [begun, go] = ["begun", "go"].map(|name| shop.path(name));
    let script =
        format!("touch {}; until [ -e {} ]; do sleep 0.02; done; echo kept", begun.display(), go.display());
    let mut worker = shop.start("w", &["--task", "t"], &script);
    until("the command has begun", || begun.exists().then_some(()));
    shop.server.kill();
    fs::write(go, "").unwrap();
    worker.says("the report was not accepted; trying again");
    shop.server.restart_in_place();
    shop.user = shop.user.at(shop.server.addr());
    let seen = shop.reported(&execution);
    assert_eq!((&seen["outcome"]["result"], &seen["attempts"]), (&json!("kept\n"), &json!(1)));
    // It takes work again.
    let next = shop.execution("t");
    assert_eq!(shop.reported(&next)["status"], "success");
    assert_eq!(worker.stop(), 0);
}

#[test]
fn a_report_that_no_server_takes_is_in_the_log() {
    let mut shop = Workshop::new();
    let execution = shop.execution("t");
    let [begun, go] = ["begun", "go"].map(|name| shop.path(name));
    let script =
        format!("touch {}; until [ -e {} ]; do sleep 0.02; done; echo kept", begun.display(), go.display());
    let mut worker = shop.start("w", &["--task", "t"], &script);
    until("the command has begun", || begun.exists().then_some(()));
    shop.server.kill();
    fs::write(go, "").unwrap();
    worker.says("the report was not accepted; trying again");
    // Each further signal waits for less; the log says when one has arrived.
    worker.signal("-TERM");
    worker.says("stopping: nothing more is claimed");
    worker.signal("-TERM");
    worker.says("stopping now");
    worker.signal("-TERM");
    assert_eq!(worker.ended(), 1);
    let log = worker.log();
    let line = log.lines().find(|line| line.contains("the report was not recorded")).expect(&log);
    assert!(line.contains(&execution) && line.contains("kept"), "{line}");
    shop.server.restart();
}

#[test]
fn a_revoked_key_ends_the_worker() {
    let shop = Workshop::new();
    let mut worker = shop.start("w", &["--task", "t"], "true");
    until("the worker is listed", || {
        (shop.user.get("/v1/workers").expect(200)["workers"] != json!([])).then_some(())
    });
    shop.user.post("/v1/auth/key/regenerate", &json!({})).expect(200);
    assert_eq!(worker.ended(), 4);
    assert!(worker.log().contains("API key"), "{}", worker.log());
}
