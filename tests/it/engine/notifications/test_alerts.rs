//! `POST /v1/alerts/test`: a test alert, and the answer to its request.

use std::thread;

use serde_json::{Value, json};

use super::{START, failing, fire, hook, secret, signed};
use crate::support::client::Client;
use crate::support::receiver::{Reaction, Receiver};
use crate::support::server::Server;

const TEST: &str = "/v1/alerts/test";

fn send_alerts_to(user: &Client, receiver: &Receiver) {
    user.patch("/v1/auth/me", &json!({"alert_webhook_url": receiver.url()})).expect(200);
}

fn send_test(user: &Client) -> Value {
    user.post(TEST, &json!({})).expect(200)
}

#[test]
fn a_test_alert_is_signed_marked_and_in_no_list() {
    let (server, notified, others) = (Server::with_test_clock(START), Receiver::start(), Receiver::start());
    let (user, other) = (server.user(), server.user());
    send_alerts_to(&user, &notified);
    send_alerts_to(&other, &others);
    notified.react(Reaction::Status(204));
    let result = send_test(&user);
    let id = result["id"].as_str().unwrap();
    assert_eq!(
        result,
        json!({
            "id": id, "status": "delivered", "http_status": 204, "duration_ms": 0, "error_message": null,
            "next_retry": null,
        })
    );
    let sent = &notified.deliveries()[0];
    assert_eq!(
        sent.json(),
        json!({
            "id": id, "alert_type": "consecutive_failures", "severity": "critical", "cue_id": null,
            "execution_id": null, "message": "This is a test alert, sent by request: nothing has failed",
            "metadata": {"failure_count": 3, "consecutive_failures": 3}, "created_at": START, "test": true,
        })
    );
    signed(sent, &secret(&user, "alert-webhook"), None);
    for (name, value) in
        [("webhook-id", id), ("x-cueapi-alert-id", id), ("x-cueapi-alert-type", "consecutive_failures")]
    {
        assert_eq!(sent.header(name), Some(value), "{name}");
    }
    assert_ne!(send_test(&user)["id"], id, "another one at the same instant");
    assert_eq!((notified.count(), others.count()), (2, 0));
    assert_eq!(user.get("/v1/alerts").expect(200)["total"], 0);
    user.advance("P1D");
    assert_eq!(notified.count(), 2, "each is sent once");
}

#[test]
fn a_real_alert_has_no_mark_and_follows_a_test_at_once() {
    let (server, receiver, notified) = (Server::with_test_clock(START), failing(), Receiver::start());
    let user = server.user();
    send_alerts_to(&user, &notified);
    send_test(&user);
    let cue = user.create(&hook(&receiver, json!({"email": false})));
    (0..3).for_each(|_| drop(fire(&user, &cue)));
    let marks: Vec<Value> = notified.deliveries().iter().map(|it| it.json()["test"].clone()).collect();
    assert_eq!(marks, [json!(true), Value::Null]);
}

#[test]
fn a_test_alert_that_fails_tells_why_and_is_sent_again() {
    let (server, notified) = (Server::with_test_clock(START), Receiver::start());
    let user = server.user();
    send_alerts_to(&user, &notified);
    notified.first([Reaction::Status(500)]);
    let failed = send_test(&user);
    assert_eq!(
        (&failed["status"], &failed["http_status"], &failed["error_message"], &failed["next_retry"]),
        (&json!("failed"), &json!(500), &json!("the callback returned 500"), &json!("2026-01-05T00:01:00Z"))
    );
    user.advance("PT1M");
    let ids: Vec<Value> = notified.deliveries().iter().map(|it| it.json()["id"].clone()).collect();
    assert_eq!(ids, [failed["id"].clone(), failed["id"].clone()]);
    notified.first([Reaction::Status(410)]);
    let gone = send_test(&user);
    assert_eq!((&gone["status"], &gone["next_retry"]), (&json!("failed"), &Value::Null));
    notified.first([Reaction::HangUp]);
    let closed = send_test(&user);
    assert_eq!((&closed["status"], &closed["http_status"]), (&json!("failed"), &Value::Null));
    assert!(closed["error_message"].as_str().unwrap().contains("closed"), "{closed}");
}

#[test]
fn a_test_alert_to_a_blocked_address_fails_in_the_words_of_a_delivery() {
    let flags = ["--registration", "open", "--limits", "off", "--test-clock", START];
    let (server, notified) = (Server::start(&flags), Receiver::start());
    let user = server.user();
    let url = "http://receiver.example.invalid/";
    let cue = json!({
        "name": "hook", "schedule": {"type": "recurring", "cron": "0 0 1 1 *"}, "retry": {"max_attempts": 1},
        "callback": {"url": url}, "on_failure": {"email": false},
    });
    let cue = user.create(&cue);
    // As if the names of stored URLs now resolved to a blocked address.
    let sql = format!(
        "UPDATE cues SET callback_url = '{0}'; UPDATE users SET alert_webhook_url = '{0}'",
        notified.url()
    );
    server.sqlite().execute_batch(&sql).unwrap();
    let execution = fire(&user, &cue);
    let delivery = user.get(&format!("/v1/executions/{execution}")).expect(200)["error_message"].clone();
    let failed = send_test(&user);
    assert_eq!((&failed["status"], &failed["error_message"]), (&json!("failed"), &delivery));
    assert!(delivery.is_string() && notified.count() == 0, "{delivery}");
}

#[test]
fn a_test_alert_needs_a_webhook() {
    let server = Server::with_test_clock(START);
    let user = server.user();
    let refused = user.post(TEST, &json!({})).expect_error(409, "invalid_state");
    assert!(refused.to_string().contains("PATCH /v1/auth/me"), "{refused}");
    let notified = Receiver::start();
    send_alerts_to(&user, &notified);
    assert_eq!(send_test(&user)["status"], "delivered", "a refused test holds no place");
}

#[test]
fn an_account_sends_one_test_alert_at_a_time() {
    let (server, notified, others) = (Server::with_test_clock(START), Receiver::start(), Receiver::start());
    let (user, other) = (server.user(), server.user());
    send_alerts_to(&user, &notified);
    send_alerts_to(&other, &others);
    notified.react(Reaction::Hang);
    let first = user.with_key(user.key());
    let waiting = thread::spawn(move || send_test(&first));
    notified.wait_hanging(1);
    let refused = user.post(TEST, &json!({}));
    assert!(refused.header("retry-after").is_some());
    refused.expect_error(429, "rate_limit_exceeded");
    assert_eq!(send_test(&other)["status"], "delivered", "another account");
    notified.react(Reaction::Status(200));
    notified.release();
    assert_ne!(waiting.join().unwrap()["status"], "waiting");
    assert_eq!(send_test(&user)["status"], "delivered");
}

#[test]
fn a_test_alert_never_takes_the_place_of_an_alert() {
    let (server, notified) = (Server::with_test_clock(START), Receiver::start());
    let user = server.user();
    send_alerts_to(&user, &notified);
    let waiting =
        "INSERT INTO outbox (id, user_key, kind, url, destination_hash, body, attempts, created_at, due_at)
        WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 500)
        SELECT 'w' || i, (SELECT key FROM users WHERE alert_webhook_url IS NOT NULL), 'consecutive_failures',
            'http://127.0.0.1:9/', 1, '{}', 1, 1767571200000, 1767574800000 FROM n";
    server.sqlite().execute_batch(waiting).unwrap();
    let refused = user.post(TEST, &json!({})).expect_error(409, "invalid_state");
    assert!(refused.to_string().contains("500 alerts wait"), "{refused}");
    server.sqlite().execute_batch("DELETE FROM outbox WHERE id = 'w1'").unwrap();
    assert_eq!(send_test(&user)["status"], "delivered");
}

#[test]
fn a_stop_answers_the_request_of_a_test_alert_that_waits() {
    let (mut server, notified) = (Server::with_test_clock(START), Receiver::start());
    let user = server.user();
    send_alerts_to(&user, &notified);
    notified.react(Reaction::Hang);
    let first = user.with_key(user.key());
    let waiting = thread::spawn(move || send_test(&first));
    notified.wait_hanging(1);
    server.terminate();
    let result = waiting.join().unwrap();
    assert_eq!((&result["status"], &result["duration_ms"]), (&json!("waiting"), &Value::Null));
    notified.react(Reaction::Status(200));
    notified.release();
    assert_eq!(server.wait_for_exit(), Some(0));
}

#[test]
fn a_file_that_cannot_be_written_sends_no_test_alert() {
    let (server, notified) = (Server::with_test_clock(START), Receiver::start());
    let user = server.user();
    send_alerts_to(&user, &notified);
    let other = server.sqlite();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    user.post(TEST, &json!({})).expect_error(503, "storage_unavailable");
    other.execute_batch("ROLLBACK").unwrap();
    assert_eq!(notified.count(), 0);
    assert_eq!(send_test(&user)["status"], "delivered");
}

#[test]
fn a_disabled_user_sends_no_test_alert() {
    let (server, notified) = (Server::with_test_clock(START), Receiver::start());
    let user = server.client().register("ann@example.com");
    send_alerts_to(&user, &notified);
    let db = server.db();
    let disable = ["user", "--db", db.to_str().unwrap(), "disable", "ann@example.com"];
    assert!(crate::support::server::run(&disable).status.success());
    user.post(TEST, &json!({})).expect_error(401, "invalid_api_key");
    assert_eq!(notified.count(), 0);
}
