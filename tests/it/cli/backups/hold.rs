//! A restored copy: it is readable but starts no work until it is promoted; then the usual rules apply.

use std::path::PathBuf;

use cued::store::db::meta;
use cued::store::executions::delivery_queue;
use cued::store::fair_queue::{Grant, Rotation};
use tempfile::TempDir;

use crate::cli::administration::{fails, ok};
use crate::cli::backups::{BEGIN, backup, fire, hook, report, work};
use crate::support::{delivery_fixture, *};

/// A copy of the file of a server, under the same name in a folder of its own.
fn copy_of(server: &Server) -> (TempDir, PathBuf) {
    let folder = TempDir::new().unwrap();
    let db = folder.path().join("cued.db");
    ok(&db, &["restore", backup(server, "backup").to_str().unwrap()]);
    (folder, db)
}

/// Replaces the file of a server by a restored copy of it, three hours later. Returns the user.
fn held(server: &mut Server, user: &Client, at: &str) -> Client {
    let (_folder, db) = copy_of(server);
    server.stop();
    std::fs::copy(db, server.db()).unwrap();
    server.restart_at(at);
    user.at(server.addr())
}

fn instants(executions: &[Value]) -> Vec<&str> {
    executions.iter().map(|it| it.text("scheduled_for")).collect()
}

#[test]
fn a_held_server_serves_reads_but_fires_sends_and_assigns_nothing() {
    let receiver = Receiver::start();
    let (mut server, user) = Server::with_clock_and_user(BEGIN);
    let (call, job) = (hook(&user, &receiver.url()), work(&user));
    let waiting = fire(&user, &job);
    let user = held(&mut server, &user, "2026-01-01T13:30:00Z");
    assert_contains(&server.log(), &["on hold", "`cued promote`"]);
    let moved = user.advance("PT2H");
    assert_eq!((&moved["fired"], &moved["delivered"]), (&json!(0), &json!(0)));
    let fired = fire(&user, &call); // is stored and waits
    user.settle();
    assert_eq!(user.read("/v1/cues")["total"], 2);
    assert_eq!(user.execution(&waiting)["status"], "pending");
    assert_eq!(user.read("/v1/executions/claimable?wait=1")["executions"], json!([]));
    for path in ["/v1/executions/claim".to_owned(), format!("/v1/executions/{waiting}/claim")] {
        let response = user.post(&path, &json!({"worker_id": "w"}));
        let refused = response.expect_error(503, "held");
        assert_contains(refused["error"].text("message"), &["cued promote"]);
        assert!(response.header("retry-after").is_some());
    }
    let health = user.read("/health");
    assert_eq!(health["status"], "degraded");
    assert_eq!(health["services"]["poller"], "held");
    assert!(health["held_since"].as_str().is_some_and(|since| since.ends_with('Z')), "{health}");
    assert_has(&health["queue"], json!({"pending_outbox": 1, "pending_worker_claims": 1}));
    let status = user.read("/status");
    assert!(status["status"] == "degraded" && status.text("reason").contains("held"), "{status}");
    // A report starts nothing, so a held server accepts it.
    report(&user, &waiting);
    let printed = run(&["check", server.db().to_str().unwrap()]);
    assert!(String::from_utf8_lossy(&printed.stdout).contains("on hold     since"));
    assert_eq!(receiver.count(), 0);
    assert_eq!(user.executions_of(&call)[0]["id"], fired.as_str());
    assert_eq!(user.executions_of(&call).len(), 1, "no scheduled run");
}

#[test]
fn a_write_that_finds_the_file_held_claims_no_delivery() {
    let fixture = delivery_fixture::DeliveryFixture::new(8);
    fixture.sql("UPDATE users SET active_cues = 1");
    fixture.due(fixture.webhook_cue("https://example.com/"));
    let take = || {
        fixture.write(|tx| {
            let (epoch, mut rotation) = (jiff::Timestamp::UNIX_EPOCH, Rotation::default());
            delivery_queue::claim_batch(tx, epoch, &mut rotation, |_, _| Ok(Grant::Granted))
                .unwrap()
                .len()
        })
    };
    fixture.sql("INSERT INTO meta (name, value) VALUES ('held_since', 0)");
    assert_eq!(take(), 0);
    assert!(fixture.write(|tx| meta::promote(tx).unwrap().is_some()));
    assert_eq!(take(), 1);
}

#[test]
fn a_promoted_server_resumes_without_a_restart_and_records_missed_runs() {
    let receiver = Receiver::start();
    let (mut server, user) = Server::with_clock_and_user(BEGIN);
    let (call, job) = (hook(&user, &receiver.url()), work(&user));
    fire(&user, &job);
    let user = held(&mut server, &user, "2026-01-01T13:30:00Z");
    user.advance("PT2H");
    fire(&user, &call);
    // Counted by the system clock: the copy is of a past year.
    let said = ok(&server.db(), &["promote"]);
    assert_contains(&said, &["promoted ", "2 cues overdue,", "2 runs to send"]);
    let again = ok(&server.db(), &["promote"]);
    assert!(again.contains("is not on hold"), "{again}");
    let moved = user.settle();
    assert_eq!((&moved["fired"], &moved["delivered"]), (&json!(2), &json!(2)));
    // Due at 11, 12, 13, 14 and 15 o'clock: the newest run fires, the others are recorded as missed.
    assert_eq!(instants(&user.executions_of(&call))[0], "2026-01-01T15:00:00Z");
    for cue in [&call, &job] {
        let missed = user.read(&format!("/v1/cues/{cue}/missed"));
        let row = &missed["missed"][0];
        assert_eq!(missed["total"], 1);
        assert_eq!(row["count"], 4);
        assert_eq!(row["reason"], "downtime");
        assert_eq!(row["first"], "2026-01-01T11:00:00Z");
    }
    assert_eq!(receiver.count(), 2);
    user.post("/v1/executions/claim", &json!({})).expect(200);
    assert_eq!(user.read("/health")["status"], "healthy");
    assert_eq!(user.read("/status"), json!({"status": "healthy"}));
    assert_eq!(user.advance("PT1H")["fired"], 2);
    assert!(server.log().contains("promoted"), "{}", server.log());
}

#[test]
fn a_running_server_on_the_system_clock_notices_a_promotion() {
    let receiver = Receiver::start();
    let (mut server, user) = Server::with_user(DEV_UNLIMITED);
    let call = hook(&user, &receiver.url());
    let (_folder, db) = copy_of(&server);
    server.stop();
    std::fs::copy(db, server.db()).unwrap();
    let user = user.at(server.restart());
    fire(&user, &call);
    until("the server is held", || (user.read("/status")["status"] == "degraded").then_some(()));
    assert_eq!(receiver.count(), 0);
    ok(&server.db(), &["promote"]);
    receiver.wait_for(1);
    until("health recovers", || (user.read("/status")["status"] == "healthy").then_some(()));
}

#[test]
fn a_stopped_copy_can_be_promoted_and_catches_up_at_its_next_start() {
    let (mut server, user) = Server::with_clock_and_user(BEGIN);
    let job = work(&user);
    let (_folder, db) = copy_of(&server);
    server.stop();
    std::fs::copy(&db, server.db()).unwrap();
    ok(&server.db(), &["promote"]);
    let user = user.at(server.restart_at("2026-01-01T12:30:00Z"));
    user.settle();
    assert_eq!(instants(&user.executions_of(&job)), ["2026-01-01T12:00:00Z"]);
    let text = fails(&db.with_file_name("no-such.db"), &["promote"], 1);
    assert!(text.contains("does not exist"), "{text}");
}

#[test]
fn leases_that_expired_during_a_hold_are_released_after_the_promotion() {
    let (mut server, user) = Server::with_clock_and_user(BEGIN);
    let job = work(&user);
    let claimed = fire(&user, &job);
    user.post(&format!("/v1/executions/{claimed}/claim"), &json!({"worker_id": "w"})).expect(200);
    let user = held(&mut server, &user, "2026-01-01T10:35:00Z");
    let status = || user.execution(&claimed)["status"].clone();
    user.advance("PT20M");
    assert_eq!(status(), "delivering");
    ok(&server.db(), &["promote"]);
    user.settle();
    assert_eq!(status(), "pending");
}

#[test]
fn nobody_is_told_of_unclaimed_executions_during_a_hold() {
    let (mut server, user) = Server::with_clock_and_user(BEGIN);
    let job = work(&user);
    user.patch(&format!("/v1/cues/{job}"), &json!({"claim_within_minutes": 20})).expect(200);
    let waiting = fire(&user, &job);
    let user = held(&mut server, &user, "2026-01-01T10:35:00Z");
    let state = || {
        let execution = user.execution(&waiting);
        (user.read("/v1/alerts")["total"].clone(), execution["status"].clone())
    };
    user.advance("PT20M");
    assert_eq!(state(), (json!(0), json!("pending")));
    let health = user.read("/health");
    assert_has(&health["services"], json!({"worker": "none", "poller": "held"}));
    ok(&server.db(), &["promote"]);
    user.advance("PT59S");
    assert_eq!(state(), (json!(0), json!("pending")), "workers have a minute to come back");
    user.advance("PT1S");
    assert_eq!(state(), (json!(0), json!("failed")));
}

#[test]
fn a_held_server_sends_no_test_alert() {
    let ((mut server, user), notified) = (Server::with_clock_and_user(BEGIN), Receiver::start());
    user.patch("/v1/auth/me", &json!({"alert_webhook_url": notified.url()})).expect(200);
    let user = held(&mut server, &user, BEGIN);
    let refused = user.post("/v1/alerts/test", &json!({}));
    assert!(refused.header("retry-after").is_some());
    refused.expect_error(503, "held");
    ok(&server.db(), &["promote"]);
    assert_eq!(user.post("/v1/alerts/test", &json!({})).expect(200)["status"], "delivered");
    assert_eq!(notified.count(), 1);
}

#[test]
fn a_held_server_makes_no_test_call() {
    let ((mut server, user), receiver) = (Server::with_clock_and_user(BEGIN), Receiver::start());
    let user = held(&mut server, &user, BEGIN);
    let call = json!({"callback": {"url": receiver.url()}});
    let refused = user.post("/v1/callbacks/test", &call);
    assert!(refused.header("retry-after").is_some());
    refused.expect_error(503, "held");
    assert_eq!(receiver.count(), 0);
    ok(&server.db(), &["promote"]);
    assert_eq!(user.post("/v1/callbacks/test", &call).expect(200)["result"], "success");
}

#[test]
fn a_held_server_logs_mails_and_sends_none() {
    let mailbox = Mailbox::open();
    let url = mailbox.url();
    let flags =
        ["--test-clock", BEGIN, "--smtp-url", &url, "--mail-from", "cued <cued@example.com>"];
    let mut server = Server::start(&[DEV_UNLIMITED, &flags].concat());
    let user = server.client().register("ann@example.com");
    let user = held(&mut server, &user, BEGIN);
    let ask = || {
        let code = user.post("/v1/auth/device-code", &json!({})).expect(201)["user_code"].clone();
        let body = json!({"device_code": code, "email": "ann@example.com"});
        user.post("/v1/auth/device-code/submit-email", &body).expect(200);
        format!("user_code={}", code.as_str().unwrap())
    };
    let held = ask();
    until("the log has the link", || server.log().contains(&held).then_some(()));
    assert_contains(&server.log(), &["mail not sent reason=\"the database is on hold\""]);
    ok(&server.db(), &["promote"]);
    let promoted = ask();
    assert!(mailbox.next().link().contains(&promoted));
    assert!(mailbox.is_empty());
    assert!(!server.log().contains(&promoted), "{}", server.log());
}
