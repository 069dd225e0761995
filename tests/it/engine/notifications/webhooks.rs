//! The POST to a cue's `on_failure.webhook`.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::{START, failing, fire, hook, report, secret, signed, work};
use crate::support::receiver::{Reaction, Receiver};
use crate::support::server::{DEV_UNLIMITED, Server, until};

#[test]
fn the_failure_notification_is_signed_and_sent_before_the_clock_returns() {
    let (server, receiver, notified) = (Server::with_test_clock(START), failing(), Receiver::start());
    let user = server.user();
    let mut cue = hook(&receiver, json!({"email": false, "webhook": notified.url(), "pause": true}));
    cue["retry"] = json!({"max_attempts": 3, "backoff_minutes": [10]});
    let cue = user.create(&cue);
    let execution = fire(&user, &cue);
    assert_eq!(user.advance("PT10M")["delivered"], 1);
    assert_eq!(notified.count(), 0, "an attempt before a retry causes no notification");
    assert_eq!(user.advance("PT10M")["delivered"], 1, "a notification is not counted as a delivery");
    let sent = notified.deliveries();
    assert_eq!(sent.len(), 1);
    assert_eq!(
        sent[0].json(),
        json!({
            "event": "cue.failed", "cue_id": cue["id"], "cue_name": "nightly", "execution_id": execution,
            "attempts": 3, "last_http_status": 500, "last_error": "the callback returned 500",
            "failed_at": "2026-01-05T00:20:00Z",
        })
    );
    signed(&sent[0], &secret(&user, "webhook"), None);
    assert_ne!(
        sent[0].header("webhook-id"),
        Some(execution.as_str()),
        "its id differs from that of the delivery"
    );
    assert_eq!(sent[0].header("user-agent"), Some(concat!("cued/", env!("CARGO_PKG_VERSION"))));
    let cue = user.get(&format!("/v1/cues/{}", cue["id"].as_str().unwrap())).expect(200);
    assert_eq!((&cue["status"], &cue["next_run"]), (&json!("paused"), &Value::Null));
}

#[test]
fn a_delivery_without_a_response_has_no_status() {
    let (server, receiver, notified) = (Server::with_test_clock(START), failing(), Receiver::start());
    let user = server.user();
    receiver.react(Reaction::HangUp);
    fire(&user, &user.create(&hook(&receiver, json!({"webhook": notified.url()}))));
    let sent = notified.deliveries()[0].json();
    assert_eq!(sent["last_http_status"], Value::Null);
    assert!(sent["last_error"].as_str().unwrap().contains("closed"), "{sent}");
}

#[test]
fn notifications_have_the_error_of_the_worker_or_of_the_expired_claim() {
    let (server, notified) = (Server::with_test_clock(START), Receiver::start());
    let user = server.user();
    let cue = user.create(&work(json!({"webhook": notified.url()})));
    report(&user, &cue, &json!({"success": false, "error": "no\npaper"}));
    report(&user, &cue, &json!({"success": false}));
    report(&user, &cue, &json!({"success": true}));
    let lost = fire(&user, &cue);
    user.post(&format!("/v1/executions/{lost}/claim"), &json!({"worker_id": "w1"})).expect(200);
    user.advance("PT15M");
    let errors: Vec<Value> = notified.deliveries().iter().map(|it| it.json()["last_error"].clone()).collect();
    assert_eq!((errors.len(), &errors[0], &errors[1]), (3, &json!("no\npaper"), &Value::Null));
    assert!(errors[2].as_str().unwrap().starts_with("the claim of worker w1 expired"), "{errors:?}");
    // The notification is sent once, whatever the worker reports later.
    user.post(&format!("/v1/executions/{lost}/outcome"), &json!({"success": false})).expect(200);
    user.settle();
    assert_eq!(notified.count(), 3);
    // A reported outcome is separate from the delivery (contract §5.2, §6.8).
    let hook = user.create(&hook(&notified, json!({"webhook": notified.url()})));
    report(&user, &hook, &json!({"success": false}));
    assert_eq!(notified.count(), 4, "only its delivery");
}

#[test]
fn failures_of_manual_runs_and_replays_are_notified() {
    let (server, receiver, notified) = (Server::with_test_clock(START), failing(), Receiver::start());
    let user = server.user();
    let cue = user.create(&hook(&receiver, json!({"webhook": notified.url()})));
    let first = fire(&user, &cue);
    let replay = user.post(&format!("/v1/executions/{first}/replay"), &json!({})).expect(200);
    user.settle();
    let sent = notified.deliveries();
    let ids: Vec<Value> = sent.iter().map(|it| it.json()["execution_id"].clone()).collect();
    assert_eq!(ids, [json!(first), replay["execution_id"].clone()]);
    assert_ne!(sent[0].header("webhook-id"), sent[1].header("webhook-id"));
}

#[test]
fn both_secrets_sign_notifications_for_a_day_after_a_rotation() {
    let (server, receiver, notified) = (Server::with_test_clock(START), failing(), Receiver::start());
    let user = server.user();
    let cue = user.create(&hook(&receiver, json!({"webhook": notified.url()})));
    let old = secret(&user, "webhook");
    user.post("/v1/auth/webhook-secret/regenerate", &json!({})).expect(200);
    let new = secret(&user, "webhook");
    fire(&user, &cue);
    user.advance("PT24H");
    fire(&user, &cue);
    let sent = notified.deliveries();
    signed(&sent[0], &new, Some(&old));
    signed(&sent[1], &new, None);
}

#[test]
fn a_notification_is_retried_with_one_id_until_it_is_accepted() {
    let (server, receiver, notified) = (Server::with_test_clock(START), failing(), Receiver::start());
    let user = server.user();
    notified.first([Reaction::Status(503), Reaction::HangUp]);
    fire(&user, &user.create(&hook(&receiver, json!({"webhook": notified.url()}))));
    for (span, count) in [("PT59S", 1), ("PT1S", 2), ("PT4M59S", 2), ("PT1S", 3), ("P1D", 3)] {
        user.advance(span);
        assert_eq!(notified.count(), count, "{span}");
    }
    let ids: BTreeSet<String> =
        notified.deliveries().iter().map(|it| it.header("webhook-id").unwrap().to_owned()).collect();
    assert_eq!(ids.len(), 1, "{ids:?}");
    signed(&notified.deliveries()[2], &secret(&user, "webhook"), None);
}

#[test]
fn a_rejected_notification_is_dropped_and_logged_without_its_path() {
    let (server, receiver, notified) = (Server::with_test_clock(START), failing(), failing());
    let user = server.user();
    let cue = user.create(&hook(&receiver, json!({"email": false, "webhook": notified.url()})));
    fire(&user, &cue);
    user.advance("P2D");
    assert_eq!(notified.count(), 3);
    let log = server.log();
    let line = log.lines().find(|line| line.contains("notification given up")).unwrap();
    assert!(line.contains("it returned 500") && line.contains("127.0.0.1:"), "{line}");
    assert!(!log.contains("/hook"), "{log}");
    let left: i64 = server.sqlite().query_row("SELECT count(*) FROM outbox", [], |row| row.get(0)).unwrap();
    assert_eq!(left, 0);
}

#[test]
fn a_hanging_notification_receiver_delays_no_delivery() {
    let (server, receiver, notified) = (Server::start(DEV_UNLIMITED), failing(), Receiver::start());
    let user = server.user();
    notified.react(Reaction::Hang);
    let cue = user.create(&hook(&receiver, json!({"email": false, "webhook": notified.url()})));
    let path = format!("/v1/cues/{}/fire", cue["id"].as_str().unwrap());
    for _ in 0..100 {
        user.post(&path, &json!({})).expect(200);
    }
    receiver.wait_for(100);
    notified.wait_hanging(1);
    // Notifications to another receiver are not delayed either.
    let other = Receiver::start();
    let cue = user.create(&hook(&receiver, json!({"email": false, "webhook": other.url()})));
    user.post(&format!("/v1/cues/{}/fire", cue["id"].as_str().unwrap()), &json!({})).expect(200);
    other.wait_for(1);
    notified.release();
    notified.wait_for(100);
    assert_eq!(receiver.count(), 101);
}

#[test]
fn a_notification_interrupted_by_a_crash_is_sent_again() {
    let (mut server, receiver, notified) = (Server::start(DEV_UNLIMITED), failing(), Receiver::start());
    let user = server.user();
    notified.react(Reaction::Hang);
    let cue = user.create(&hook(&receiver, json!({"email": false, "webhook": notified.url()})));
    let path = format!("/v1/cues/{}/fire", cue["id"].as_str().unwrap());
    let ids: BTreeSet<String> =
        (0..5).map(|_| user.post(&path, &json!({})).expect(200)["execution_id"].to_string()).collect();
    until("all executions have failed", || {
        let failed = user.get("/v1/executions?status=failed").expect(200);
        (failed["total"] == 5).then_some(())
    });
    notified.wait_hanging(1);
    server.kill();
    notified.release();
    let before = notified.count();
    server.restart();
    until("each failure is notified", || {
        let after = notified.deliveries().split_off(before);
        let after: BTreeSet<String> = after.iter().map(|it| it.json()["execution_id"].to_string()).collect();
        (after == ids).then_some(())
    });
    assert_eq!(receiver.count(), 5, "the executions have ended");
}

#[test]
fn a_stop_waits_for_the_running_notification_and_keeps_the_others() {
    let (mut server, receiver, notified) = (Server::start(DEV_UNLIMITED), failing(), Receiver::start());
    let user = server.user();
    notified.react(Reaction::Hang);
    let cue = user.create(&hook(&receiver, json!({"email": false, "webhook": notified.url()})));
    for _ in 0..5 {
        user.post(&format!("/v1/cues/{}/fire", cue["id"].as_str().unwrap()), &json!({})).expect(200);
    }
    until("all executions have failed", || {
        let failed = user.get("/v1/executions?status=failed").expect(200);
        (failed["total"] == 5).then_some(())
    });
    notified.wait_hanging(1);
    server.terminate();
    until("it stops", || server.log().contains("stopping").then_some(()));
    notified.release();
    assert_eq!(server.wait_for_exit(), Some(0));
    let told_so_far = notified.count();
    server.restart();
    notified.wait_for(5);
    let ids: BTreeSet<String> =
        notified.deliveries().iter().map(|it| it.header("webhook-id").unwrap().to_owned()).collect();
    assert_eq!((ids.len(), notified.count()), (5, 5), "each once; {told_so_far} before the stop");
}

#[test]
fn a_notification_url_at_a_blocked_address_is_never_reached() {
    let (server, notified) = (
        Server::start(&["--registration", "open", "--limits", "off", "--test-clock", START]),
        Receiver::start(),
    );
    let user = server.user();
    let cue = json!({
        "name": "hook", "schedule": {"type": "recurring", "cron": "0 0 1 1 *"}, "retry": {"max_attempts": 1},
        "callback": {"url": "http://192.0.2.1.example.invalid/"}, "on_failure": {"email": false},
    });
    let cue = user.create(&cue);
    // As if the name of a stored URL now resolved to a blocked address.
    let sql = format!("UPDATE cues SET on_failure = json_set(on_failure, '$.webhook', '{}')", notified.url());
    server.sqlite().execute_batch(&sql).unwrap();
    fire(&user, &cue);
    user.advance("PT1H");
    until("it is given up", || server.log().contains("reason=\"attempt 3").then_some(()));
    assert_eq!(notified.count(), 0);
}

#[test]
fn disabled_users_and_runs_over_quota_cause_no_notification() {
    let (server, receiver, notified) = (Server::with_test_clock(START), failing(), Receiver::start());
    let user = server.client().register("ann@example.com");
    let cue = user.create(&hook(&receiver, json!({"webhook": notified.url()})));
    receiver.react(Reaction::Hang);
    let path = format!("/v1/cues/{}/fire", cue["id"].as_str().unwrap());
    user.post(&path, &json!({})).expect(200);
    receiver.wait_hanging(1);
    let db = server.db();
    let disabled =
        crate::support::server::run(&["user", "--db", db.to_str().unwrap(), "disable", "ann@example.com"]);
    assert!(disabled.status.success());
    receiver.release();
    receiver.react(Reaction::Status(500));
    server.client().advance("P1D");
    assert_eq!(notified.count(), 0);

    let plans = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(plans.path(), r#"{"free": {"cues": 10, "executions": 0, "requests_per_minute": null}}"#)
        .unwrap();
    let flags = ["--dev", "--test-clock", START, "--plans", plans.path().to_str().unwrap()];
    let server = Server::start(&flags);
    let user = server.user();
    let mut cue = hook(&receiver, json!({"webhook": notified.url()}));
    cue["schedule"] = json!({"type": "recurring", "cron": "0 * * * *"});
    let cue = user.create(&cue);
    user.advance("PT25H30M");
    let deliveries = notified.count();
    user.advance("PT10H");
    let refused = user.executions_of(cue["id"].as_str().unwrap());
    assert_eq!(refused[0]["error_message"], "execution_limit_exceeded");
    assert_eq!(notified.count(), deliveries, "only attempted executions are notified");
}

#[test]
fn a_backlog_of_failures_drops_no_alert_and_is_logged_once() {
    let (server, receiver, notified) = (Server::with_test_clock(START), failing(), Receiver::start());
    let user = server.user();
    let me = user.patch("/v1/auth/me", &json!({"alert_webhook_url": notified.url()})).expect(200);
    let cue = user.create(&hook(&receiver, json!({"email": false, "webhook": notified.url()})));
    // A receiver that was away for a long time: a thousand notifications wait for a retry.
    let fill = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 1000)
        INSERT INTO outbox (id, user_key, kind, url, destination_hash, body, attempts, due_at, created_at)
        SELECT i, (SELECT key FROM users), 'failure', 'http://127.0.0.1:9/', 7, '{}', 1, 4102444800000, 1767571200000
        FROM n";
    let backlog = |sql: &str| assert!(server.sqlite().execute(sql, []).unwrap() > 0);
    let fires = |times: usize| (0..times).for_each(|_| drop(fire(&user, &cue)));
    let events =
        || -> Vec<Value> { notified.deliveries().iter().map(|it| it.json()["event"].clone()).collect() };
    backlog(fill);
    fires(4);
    assert_eq!(events(), [Value::Null], "only the alert");
    assert_eq!(notified.deliveries()[0].json()["alert_type"], "consecutive_failures");
    backlog("DELETE FROM outbox WHERE key IN (SELECT key FROM outbox LIMIT 1)");
    fires(3);
    assert_eq!(events()[1..], ["cue.failed"; 3], "each is sent before the next is stored");
    backlog(
        "INSERT INTO outbox SELECT NULL, id, user_key, kind, url, destination_hash, body, attempts, due_at, created_at
        FROM outbox LIMIT 1",
    );
    fires(2);
    let id = me["id"].as_str().unwrap();
    let about = |line: &&str, text: &str| {
        line.contains(text) && line.contains(id) && line.contains("kind=\"failure\"")
    };
    let dropping = |log: &str| log.lines().filter(|line| about(line, "notifications dropped")).count();
    assert_eq!(dropping(&server.log()), 1, "it is one backlog: {}", server.log());
    backlog("DELETE FROM outbox WHERE key IN (SELECT key FROM outbox LIMIT 500)");
    fires(1);
    assert!(
        server
            .log()
            .lines()
            .any(|line| about(&line, "notifications accepted again") && line.contains("count=6")),
        "{}",
        server.log()
    );
    backlog("DELETE FROM outbox");
    backlog(fill);
    fires(1);
    assert_eq!(dropping(&server.log()), 2, "a second backlog");
}
