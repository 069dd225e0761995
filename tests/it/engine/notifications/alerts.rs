//! Alerts and test alerts.

use crate::engine::notifications::{
    START, failing, failing_scene, fire, hook, report, secret, signed, work,
};
use crate::support::*;

const ME: &str = "/v1/auth/me";
const QUIET: &str = r#"{"email": false}"#;

fn quiet() -> Value {
    serde_json::from_str(QUIET).unwrap()
}

fn listed(user: &Client, query: &str) -> Vec<Value> {
    user.get(&format!("/v1/alerts?{query}")).expect(200)["alerts"].as_array().unwrap().clone()
}

fn count(user: &Client, alert_type: &str) -> usize {
    listed(user, &format!("alert_type={alert_type}")).len()
}

#[test]
fn the_third_consecutive_failure_raises_an_alert() {
    let (_server, user, receiver, notified) = failing_scene();
    user.patch(ME, &json!({"alert_webhook_url": notified.url()})).expect(200);
    let cue = user.create(&hook(&receiver, quiet()));
    fire(&user, &cue);
    fire(&user, &cue);
    assert_eq!(user.get("/v1/alerts").expect(200)["total"], 0);
    let third = fire(&user, &cue);
    let alerts = user.get("/v1/alerts").expect(200);
    let id = alerts["alerts"][0]["id"].as_str().unwrap();
    let alert = json!({
        "id": id, "alert_type": "consecutive_failures", "severity": "critical", "cue_id": cue["id"],
        "execution_id": third, "message": "nightly has failed 3 times in a row",
        "metadata": {"failure_count": 3, "consecutive_failures": 3}, "created_at": START,
    });
    assert_eq!(
        alerts,
        json!({"alerts": [alert], "total": 1, "limit": 50, "offset": 0, "has_more": false})
    );
    let sent = notified.deliveries();
    assert_eq!((sent.len(), &sent[0].json()), (1, &alert));
    signed(&sent[0], &secret(&user, "alert-webhook"), None);
    for (name, value) in [
        ("webhook-id", id),
        ("x-cueapi-alert-id", id),
        ("x-cueapi-alert-type", "consecutive_failures"),
        ("x-cueapi-timestamp", "1767571200"),
    ] {
        assert_eq!(sent[0].header(name), Some(value), "{name}");
    }
}

#[test]
fn failures_in_a_row_are_one_alert_that_counts_them_and_is_posted_once_a_day() {
    let (_server, user, receiver, notified) = failing_scene();
    user.patch(ME, &json!({"alert_webhook_url": notified.url()})).expect(200);
    let mut hourly = hook(&receiver, quiet());
    hourly["schedule"] = json!({"type": "recurring", "cron": "0 * * * *"});
    let (cue, other) = (user.create(&hourly), user.create(&hook(&receiver, quiet())));
    user.advance("P2DT30M");
    let last = user.executions_of(id(&cue))[0].clone();
    let alert = json!({
        "metadata": {"failure_count": 48, "consecutive_failures": 48}, "created_at": "2026-01-05T03:00:00Z",
        "message": "nightly has failed 48 times in a row", "execution_id": last["id"],
    });
    let found = listed(&user, "");
    assert_eq!(found.len(), 1, "{found:?}");
    assert_has(&found[0], alert);
    let posted: Vec<Value> = notified.deliveries().iter().map(Delivery::json).collect();
    let counts: Vec<&Value> =
        posted.iter().map(|alert| &alert["metadata"]["failure_count"]).collect();
    assert_eq!(counts, [3, 26], "the third, and the first one 23 hours later");
    assert_ne!(posted[0]["id"], posted[1]["id"]);
    (0..3).for_each(|_| drop(fire(&user, &other)));
    assert_eq!(count(&user, "consecutive_failures"), 2, "another cue has its own alert");
    receiver.react(Reaction::Status(200));
    user.advance("PT1H");
    receiver.react(Reaction::Status(500));
    user.advance("PT3H");
    assert_eq!(count(&user, "consecutive_failures"), 3, "a success ends it");
}

#[test]
fn an_alert_that_a_full_queue_drops_is_sent_with_the_next_failure() {
    let (server, user, receiver, notified) = failing_scene();
    user.patch(ME, &json!({"alert_webhook_url": notified.url()})).expect(200);
    let cue = user.create(&hook(&receiver, quiet()));
    let sql = |sql: &str| server.sqlite().execute_batch(sql).unwrap();
    sql("WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 1000)
        INSERT INTO outbox (id, user_key, kind, url, destination_hash, body, attempts, due_at, created_at)
        SELECT 'w' || i, (SELECT key FROM users), 'consecutive_failures', 'http://127.0.0.1:9/', 7, '{}', 1,
            4102444800000, 1767571200000 FROM n");
    (0..4).for_each(|_| drop(fire(&user, &cue)));
    assert_eq!((count(&user, "consecutive_failures"), notified.count()), (1, 0), "raised, dropped");
    sql("DELETE FROM outbox");
    (0..2).for_each(|_| drop(fire(&user, &cue)));
    let posted: Vec<Value> = notified.deliveries().iter().map(Delivery::json).collect();
    let counts: Vec<&Value> =
        posted.iter().map(|alert| &alert["metadata"]["failure_count"]).collect();
    assert_eq!(counts, [5], "told once");
}

#[test]
fn an_alert_of_failures_soon_after_others_is_none() {
    let (_server, user, receiver, notified) = failing_scene();
    user.patch(ME, &json!({"alert_webhook_url": notified.url()})).expect(200);
    let cue = user.create(&hook(&receiver, quiet()));
    let fail = || (0..3).for_each(|_| drop(fire(&user, &cue)));
    let succeed = || {
        receiver.react(Reaction::Status(200));
        fire(&user, &cue);
        receiver.react(Reaction::Status(500));
    };
    fail();
    succeed();
    user.advance("PT4M59.999S");
    fail();
    assert_eq!((count(&user, "consecutive_failures"), notified.count()), (1, 1));
    succeed();
    user.advance("PT0.001S");
    fail();
    assert_eq!((count(&user, "consecutive_failures"), notified.count()), (2, 2));
}

#[test]
fn a_failure_streak_ends_with_a_success_and_counts_executions() {
    let ((_server, user), receiver) = (Server::with_clock_and_user(START), failing());
    let mut cue = hook(&receiver, quiet());
    cue["retry"] = json!({"max_attempts": 5, "backoff_minutes": [1]});
    let cue = user.create(&cue);
    let first = fire(&user, &cue);
    user.advance("PT10M");
    assert_eq!(count(&user, "consecutive_failures"), 0, "five attempts are one execution");
    user.post(&format!("/v1/executions/{first}/replay"), &json!({})).expect(200);
    user.advance("PT10M");
    receiver.first([Reaction::Status(500), Reaction::Status(200)]);
    fire(&user, &cue);
    user.advance("PT10M");
    for _ in 0..2 {
        fire(&user, &cue);
        user.advance("PT10M");
        assert_eq!(count(&user, "consecutive_failures"), 0, "the success ended the streak");
    }
    user.post(&format!("/v1/executions/{first}/replay"), &json!({})).expect(200);
    user.advance("PT10M");
    assert_eq!(count(&user, "consecutive_failures"), 1, "a replay counts like any execution");
}

#[test]
fn overlapping_executions_count_in_the_order_of_their_ends() {
    let (_server, user) = Server::with_clock_and_user(START);
    let cue = user.create(&work(quiet()));
    let made: Vec<String> = (0..5).map(|_| fire(&user, &cue)).collect();
    let ends = |index: usize, success: bool| {
        user.report(&made[index], &json!({"success": success}));
        count(&user, "consecutive_failures")
    };
    // By creation, the successes would be at the ends of three failures in a row.
    assert_eq!(
        [ends(1, false), ends(2, false), ends(4, true), ends(3, false), ends(0, true)],
        [0; 5]
    );
}

#[test]
fn a_late_success_removes_the_failure_of_an_expired_claim_from_the_streak() {
    let (_server, user) = Server::with_clock_and_user(START);
    let cue = user.create(&work(quiet()));
    for _ in 0..2 {
        report(&user, &cue, &json!({"success": false}));
    }
    let lost = fire(&user, &cue);
    user.post(&format!("/v1/executions/{lost}/claim"), &json!({"worker_id": "w1"})).expect(200);
    user.advance("PT20M");
    assert_eq!((count(&user, "consecutive_failures"), count(&user, "claim_lost")), (1, 1));
    user.report(&lost, &json!({"success": true}));
    for _ in 0..2 {
        report(&user, &cue, &json!({"success": false}));
        assert_eq!(count(&user, "consecutive_failures"), 1);
    }
}

#[test]
fn an_expired_claim_raises_an_alert_even_with_attempts_left() {
    let (_server, user) = Server::with_clock_and_user(START);
    let mut cue = work(quiet());
    cue["retry"] = json!({"max_attempts": 2});
    let cue = user.create(&cue);
    let executions = [fire(&user, &cue), fire(&user, &cue)];
    for execution in &executions {
        user.post(&format!("/v1/executions/{execution}/claim"), &json!({"worker_id": "w1"}))
            .expect(200);
    }
    user.advance("PT15M");
    let alerts = listed(&user, "alert_type=claim_lost");
    assert_eq!(alerts.len(), 1, "both are one alert of the cue");
    assert!(executions.contains(&alerts[0]["execution_id"].as_str().unwrap().to_owned()));
    assert_has(
        &alerts[0],
        json!({"severity": "warning", "metadata": {"worker_id": "w1", "attempt": 1}}),
    );
    // Neither counts as failed.
    assert_eq!(user.get("/v1/executions?status=pending").expect(200)["total"], 2);
}

#[test]
fn a_verification_failure_alert_names_the_missing_evidence() {
    let (_server, user) = Server::with_clock_and_user(START);
    let mut cue = work(quiet());
    cue["verification"] = json!({"mode": "require_external_id"});
    let cue = user.create(&cue);
    let reasons = || -> Vec<Value> {
        let alerts = listed(&user, "alert_type=verification_failed");
        assert!(
            alerts.iter().all(|alert| alert["metadata"]["outcome_state"] == "verification_failed")
        );
        alerts.iter().map(|alert| alert["metadata"]["reason"].clone()).collect()
    };
    let report = |body: &Value| {
        let run = format!("/v1/executions/{}", fire(&user, &cue));
        user.post(&format!("{run}/outcome"), body).expect(200);
        run
    };
    report(&json!({"success": true, "external_id": "ch_1"}));
    report(&json!({"success": false}));
    assert_eq!(reasons(), [] as [Value; 0]);
    let run = report(&json!({"success": true}));
    assert_eq!(reasons(), ["its evidence has no external_id"]);
    user.advance("PT10M");
    user.post(&format!("{run}/verification-pending"), &json!({})).expect(200);
    user.post(&format!("{run}/verify"), &json!({"valid": false, "reason": "an empty page"}))
        .expect(200);
    assert_eq!(reasons(), ["an empty page", "its evidence has no external_id"]);
}

#[test]
fn the_alert_list_is_newest_first_and_filtered() {
    let (server, receiver) = (Server::with_test_clock(START), failing());
    let (user, other) = (server.user(), server.user());
    let cues: Vec<Value> = (0..2).map(|_| user.create(&hook(&receiver, quiet()))).collect();
    for cue in &cues {
        (0..3).for_each(|_| drop(fire(&user, cue)));
        user.advance("PT10M");
    }
    let worker = user.create(&work(quiet()));
    let lost = fire(&user, &worker);
    user.post(&format!("/v1/executions/{lost}/claim"), &json!({})).expect(200);
    user.advance("PT15M");
    let cue_ids = |query: &str| -> Vec<Value> {
        listed(&user, query).iter().map(|it| it["cue_id"].clone()).collect()
    };
    let id = |cue: &Value| cue["id"].clone();
    let all = [id(&worker), id(&cues[1]), id(&cues[0])];
    assert_eq!(cue_ids(""), all);
    assert_eq!(cue_ids("since=2026-01-05T00:10:00Z"), all[..2]);
    assert_eq!(cue_ids("since=2026-01-05T02:10:00%2B02:00"), all[..2]);
    assert_eq!(cue_ids("since=2026-01-05T00:10:00.001Z"), all[..1]);
    assert_eq!(cue_ids("alert_type=consecutive_failures"), all[1..]);
    assert_eq!(cue_ids(&format!("cue_id={}", all[2].as_str().unwrap())), all[2..]);
    assert_eq!(cue_ids("alert_type=verification_failed"), [] as [Value; 0]);
    let page = user.get("/v1/alerts?limit=1&offset=1").expect(200);
    assert_eq!(page["alerts"][0]["cue_id"], all[1]);
    assert_eq!(page["total"], 3);
    assert_eq!(page["has_more"], true);
    assert_eq!(other.get("/v1/alerts").expect(200)["total"], 0);
    assert_eq!(
        other.get(&format!("/v1/alerts?cue_id={}", all[2].as_str().unwrap())).expect(200)["total"],
        0
    );
    user.delete(&format!("/v1/cues/{}", all[1].as_str().unwrap()));
    assert_eq!(cue_ids(""), [all[0].clone(), all[2].clone()], "they are deleted with their cue");
}

#[test]
fn the_alert_webhook_can_be_set_shown_and_removed() {
    let (_server, user, receiver, notified) = failing_scene();
    assert_eq!(user.get(ME).expect(200)["alert_webhook_url"], Value::Null);
    let set = user.patch(ME, &json!({"alert_webhook_url": notified.url()})).expect(200);
    assert_eq!(set, user.get(ME).expect(200));
    assert_eq!(set["alert_webhook_url"], notified.url());
    // An absent field keeps its value.
    assert_eq!(user.patch(ME, &json!({})).expect(200)["alert_webhook_url"], notified.url());
    let cue = user.create(&hook(&receiver, quiet()));
    (0..3).for_each(|_| drop(fire(&user, &cue)));
    assert_eq!(notified.count(), 1);
    assert_eq!(
        user.patch(ME, &json!({"alert_webhook_url": null})).expect(200)["alert_webhook_url"],
        Value::Null
    );
    user.advance("P1D");
    fire(&user, &cue);
    // The alert is changed and not sent again.
    assert_eq!((count(&user, "consecutive_failures"), notified.count()), (1, 1));
    // An empty text removes it too.
    user.patch(ME, &json!({"alert_webhook_url": notified.url()})).expect(200);
    assert_eq!(
        user.patch(ME, &json!({"alert_webhook_url": ""})).expect(200)["alert_webhook_url"],
        Value::Null
    );
}

#[test]
fn the_alert_secret_is_separate_and_a_new_one_signs_at_once() {
    let (server, user, receiver, notified) = failing_scene();
    let old = secret(&user, "alert-webhook");
    assert_eq!(secret(&user, "alert-webhook"), old, "it stays");
    assert_ne!(old, secret(&user, "webhook"));
    assert_ne!(old, secret(&server.user(), "alert-webhook"));
    assert!(old.strip_prefix("whsec_").is_some_and(|hex| hex.len() == 64), "{old}");
    let rotated = user.post("/v1/auth/alert-webhook-secret/regenerate", &json!({})).expect(200);
    let new = secret(&user, "alert-webhook");
    assert_eq!(rotated, json!({"alert_webhook_secret": new, "previous_secret_revoked": true}));
    assert_ne!(new, old);
    user.patch(ME, &json!({"alert_webhook_url": notified.url()})).expect(200);
    let cue = user.create(&hook(&receiver, quiet()));
    (0..3).for_each(|_| drop(fire(&user, &cue)));
    signed(&notified.deliveries()[0], &new, None);
}

const TEST: &str = "/v1/alerts/test";

fn send_alerts_to(user: &Client, receiver: &Receiver) {
    user.patch("/v1/auth/me", &json!({"alert_webhook_url": receiver.url()})).expect(200);
}

fn send_test(user: &Client) -> Value {
    user.post(TEST, &json!({})).expect(200)
}

#[test]
fn a_test_alert_is_signed_marked_and_in_no_list() {
    let (server, notified, others) =
        (Server::with_test_clock(START), Receiver::start(), Receiver::start());
    let (user, other) = (server.user(), server.user());
    send_alerts_to(&user, &notified);
    send_alerts_to(&other, &others);
    notified.react(Reaction::Status(204));
    let result = send_test(&user);
    let id = id(&result);
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
    for (name, value) in [
        ("webhook-id", id),
        ("x-cueapi-alert-id", id),
        ("x-cueapi-alert-type", "consecutive_failures"),
    ] {
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
    let (_server, user, receiver, notified) = failing_scene();
    send_alerts_to(&user, &notified);
    send_test(&user);
    let cue = user.create(&hook(&receiver, json!({"email": false})));
    (0..3).for_each(|_| drop(fire(&user, &cue)));
    let marks: Vec<Value> =
        notified.deliveries().iter().map(|it| it.json()["test"].clone()).collect();
    assert_eq!(marks, [json!(true), Value::Null]);
}

#[test]
fn a_test_alert_that_fails_tells_why_and_is_sent_again() {
    let ((_server, user), notified) = (Server::with_clock_and_user(START), Receiver::start());
    send_alerts_to(&user, &notified);
    notified.first([Reaction::Status(500)]);
    let failed = send_test(&user);
    assert_eq!(failed["status"], "failed");
    assert_eq!(failed["http_status"], 500);
    assert_eq!(failed["error_message"], "the URL returned 500");
    assert_eq!(failed["next_retry"], "2026-01-05T00:01:00Z");
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
    let ((server, user), notified) = (Server::with_user(&flags), Receiver::start());
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
    let delivery = user.execution(&execution)["error_message"].clone();
    let failed = send_test(&user);
    assert_eq!((&failed["status"], &failed["error_message"]), (&json!("failed"), &delivery));
    assert!(delivery.is_string() && notified.count() == 0, "{delivery}");
}

#[test]
fn a_test_alert_needs_a_webhook() {
    let (_server, user) = Server::with_clock_and_user(START);
    let refused = user.post(TEST, &json!({})).expect_error(409, "invalid_state");
    assert!(refused.to_string().contains("alert_webhook_url"), "{refused}");
    let notified = Receiver::start();
    send_alerts_to(&user, &notified);
    assert_eq!(send_test(&user)["status"], "delivered", "a refused test holds no place");
}

#[test]
fn an_account_sends_one_test_alert_at_a_time() {
    let (server, notified, others) =
        (Server::with_test_clock(START), Receiver::start(), Receiver::start());
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
    let ((server, user), notified) = (Server::with_clock_and_user(START), Receiver::start());
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
    let ((mut server, user), notified) = (Server::with_clock_and_user(START), Receiver::start());
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
    let ((server, user), notified) = (Server::with_clock_and_user(START), Receiver::start());
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
    assert!(run(&disable).status.success());
    user.post(TEST, &json!({})).expect_error(401, "invalid_api_key");
    assert_eq!(notified.count(), 0);
}
