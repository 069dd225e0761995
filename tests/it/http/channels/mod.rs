//! Channels: failures, recoveries and alerts reach people where they are (contract §12).

mod bad_input;
mod pace;
mod reminders;
mod services;

use crate::support::*;

/// Monday.
const START: &str = "2026-01-05T09:00:00Z";

const CHANNELS: &str = "/v1/channels";

/// A server with a test clock that sends its mails to the mailbox.
fn with_mail(mailbox: &Mailbox) -> (Server, Client) {
    let mail =
        ["--smtp-url", &mailbox.url(), "--mail-from", "cued@example.com", "--test-clock", START];
    Server::with_user(&[&mail[..], &["--allow-callbacks-to", "127.0.0.0/8"]].concat())
}

fn path(channel: &Value) -> String {
    format!("{CHANNELS}/{}", id(channel))
}

fn address(user: &Client) -> String {
    user.get("/v1/auth/me").expect(200)["email"].as_str().unwrap().to_owned()
}

/// A channel of type `webhook` that POSTs to the receiver.
fn webhook(user: &Client, receiver: &Receiver, change: Value) -> Value {
    let mut body = json!({"type": "webhook", "url": receiver.url()});
    body.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
    user.post(CHANNELS, &body).expect(201)
}

/// A cue that calls the receiver at 09:01, 09:02, … with one attempt each.
fn every_minute(user: &Client, receiver: &Receiver, name: &str, change: Value) -> Value {
    let mut cue = json!({
        "name": name,
        "schedule": {"type": "recurring", "cron": "* * * * *"},
        "callback": {"url": receiver.url()},
        "retry": {"max_attempts": 1},
        "on_failure": {"email": false},
    });
    cue.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
    user.create(&cue)
}

/// The bodies that arrived.
fn told(receiver: &Receiver) -> Vec<Value> {
    receiver.deliveries().iter().map(Delivery::json).collect()
}

fn titles(receiver: &Receiver) -> Vec<String> {
    told(receiver).iter().map(|body| body["title"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn a_failure_and_the_recovery_are_told_with_what_and_why() {
    let (_server, user) = Server::with_clock_and_user(START);
    let (failing, phone) = (Receiver::with(Reaction::Status(503)), Receiver::start());
    let channel = webhook(&user, &phone, json!({}));
    assert_has(
        &channel,
        json!({
            "type": "webhook", "url": phone.url(), "events": ["execution.failed", "cue.recovered", "alert.*"], "tags": [],
            "quiet": null, "status": "active", "failures": 0, "waiting": 0, "last_sent_at": null, "built_in": false,
            "created_at": START,
        }),
    );
    let retry = json!({"max_attempts": 3, "backoff_seconds": [10]});
    let cue = every_minute(
        &user,
        &failing,
        "backup",
        json!({"schedule": {"type": "recurring", "cron": "1 * * * *"}, "retry": retry}),
    );
    user.advance("PT1M19.999S");
    assert_eq!(phone.count(), 0, "two attempts are left");
    user.advance("PT0.001S");
    let execution = user.executions_of(id(&cue))[0].clone();
    let failed = &told(&phone)[0];
    assert_has(
        failed,
        json!({
            "event": "execution.failed", "title": "backup failed 3 times: 503 from 127.0.0.1", "cue_id": cue["id"],
            "cue_name": "backup", "execution_id": execution["id"], "severity": "critical", "alert_type": null, "link": null,
            "created_at": "2026-01-05T09:01:20Z",
        }),
    );
    failing.react(Reaction::Status(200));
    user.advance("PT2H");
    let seen = titles(&phone);
    assert_eq!(seen[1..], ["backup recovered after 59 min 40 s"]);
    let channel = user.get(&path(&channel)).expect(200);
    assert_has(
        &channel,
        json!({"last_sent_at": "2026-01-05T10:01:00Z", "waiting": 0, "last_error": null}),
    );
}

#[test]
fn an_earlier_reason_is_named_beside_the_last() {
    let (_server, user) = Server::with_clock_and_user(START);
    let (failing, phone) = (Receiver::start(), Receiver::start());
    failing.first([Reaction::Status(500), Reaction::Status(503)]);
    webhook(&user, &phone, json!({}));
    let retry = json!({"max_attempts": 2, "backoff_seconds": [1]});
    every_minute(&user, &failing, "backup", json!({"retry": retry}));
    user.advance("PT1M1S");
    assert_eq!(titles(&phone), ["backup failed 2 times: 503 from 127.0.0.1 (500 before)"]);
}

#[test]
fn a_failure_and_the_alert_that_it_raises_are_one_message() {
    let (_server, user) = Server::with_clock_and_user(START);
    let (failing, phone, alerts) =
        (Receiver::with(Reaction::Status(500)), Receiver::start(), Receiver::start());
    webhook(&user, &phone, json!({"repeat": "every"}));
    webhook(&user, &alerts, json!({"events": ["alert.consecutive_failures"]}));
    every_minute(&user, &failing, "backup", json!({}));
    user.advance("PT3M10S");
    assert_eq!(phone.count(), 3);
    let third = &told(&phone)[2];
    assert_has(third, json!({"event": "execution.failed", "alert_type": "consecutive_failures"}));
    assert_contains(third["message"].as_str().unwrap(), &["3 times in a row"]);
    assert_eq!(
        told(&alerts).iter().map(|body| body["execution_id"].clone()).collect::<Vec<_>>(),
        [third["execution_id"].clone()]
    );
}

#[test]
fn events_and_tags_select_what_a_channel_tells() {
    let (_server, user) = Server::with_clock_and_user(START);
    let (failing, recoveries, nas, pauses) = (
        Receiver::with(Reaction::Status(500)),
        Receiver::start(),
        Receiver::start(),
        Receiver::start(),
    );
    webhook(&user, &recoveries, json!({"events": ["cue.recovered"]}));
    webhook(&user, &nas, json!({"tags": ["nas", "disk"], "events": ["execution.failed"]}));
    webhook(&user, &pauses, json!({"events": ["cue.paused"]}));
    let tagged = every_minute(&user, &failing, "tagged", json!({"tags": ["daily", "nas"]}));
    let pausing = json!({"email": false, "pause": true});
    every_minute(&user, &failing, "other", json!({"on_failure": pausing}));
    user.advance("PT1M30S");
    assert_eq!(titles(&nas), ["tagged failed: 500 from 127.0.0.1"]);
    assert_eq!(titles(&pauses), ["other was paused because a run failed"]);
    assert_eq!(recoveries.count(), 0);
    failing.react(Reaction::Status(200));
    user.advance("PT1M");
    // No channel that was told of the failure of `other` would hear of its end: it is paused.
    assert_eq!(titles(&recoveries), ["tagged recovered after 1 min"]);
    user.patch(&format!("/v1/cues/{}", id(&tagged)), &json!({"status": "paused"})).expect(200);
    user.advance("PT1M");
    assert_eq!(titles(&pauses)[1..], ["tagged was paused by request"]);
}

#[test]
fn a_recovery_after_failures_that_no_channel_told_is_not_told() {
    let (_server, user) = Server::with_clock_and_user(START);
    let (failing, phone) = (Receiver::with(Reaction::Status(500)), Receiver::start());
    every_minute(&user, &failing, "backup", json!({}));
    user.advance("PT1M");
    webhook(&user, &phone, json!({}));
    failing.react(Reaction::Status(200));
    user.advance("PT5M");
    assert_eq!(phone.count(), 0);
}

#[test]
fn a_channel_is_read_changed_and_deleted() {
    let (server, user) = Server::with_clock_and_user(START);
    let receiver = Receiver::start();
    let body = json!({"type": "ntfy", "url": receiver.url_of("/backups"), "token": "tk_AgQdq7mVBoFD37zQVN29RhuMzNIz2", "priority": 4});
    let channel = user.post(CHANNELS, &body).expect(201);
    assert_has(
        &channel,
        json!({"name": "ntfy backups", "token": "…NIz2", "priority": 4, "url": receiver.url_of("/backups")}),
    );
    // A client sends back what it has read.
    let mut back = channel.clone();
    for name in [
        "id",
        "status",
        "failures",
        "waiting",
        "last_sent_at",
        "last_failed_at",
        "last_error",
        "built_in",
        "created_at",
        "updated_at",
    ] {
        back.as_object_mut().unwrap().remove(name);
    }
    let quiet = json!({"from": "22:00", "to": "07:00", "timezone": "europe/berlin"});
    back["quiet"] = quiet;
    back["priority"] = Value::Null;
    let changed = user.patch(&path(&channel), &back).expect(200);
    let quiet = json!({"from": "22:00", "to": "07:00", "timezone": "Europe/Berlin"});
    assert_has(
        &changed,
        json!({"token": "…NIz2", "priority": null, "quiet": quiet, "name": "ntfy backups"}),
    );
    let stored: String =
        server.sqlite().query_row("SELECT settings FROM channels", [], |row| row.get(0)).unwrap();
    assert!(stored.contains("tk_AgQdq7mVBoFD37zQVN29RhuMzNIz2"), "{stored}");
    let changed = user
        .patch(&path(&channel), &json!({"quiet": null, "token": null, "name": "phone"}))
        .expect(200);
    assert_has(&changed, json!({"token": null, "quiet": null, "name": "phone"}));
    let other = user.register("bob@example.com");
    for response in [
        other.get(&path(&channel)),
        other.delete(&path(&channel)),
        other.patch(&path(&channel), &json!({})),
    ] {
        response.expect_error(404, "channel_not_found");
    }
    assert_eq!(other.get(CHANNELS).expect(200)["total"], 1, "the failure mails");
    user.delete(&path(&channel)).expect(204);
    user.get(&path(&channel)).expect_error(404, "channel_not_found");
    user.post(&format!("{}/test", path(&channel)), &json!({}))
        .expect_error(404, "channel_not_found");
}

#[test]
fn failure_mails_and_the_alert_webhook_are_shown_as_channels() {
    let (_server, user) = Server::with_clock_and_user(START);
    let receiver = Receiver::start();
    user.patch("/v1/auth/me", &json!({"alert_webhook_url": receiver.url()})).expect(200);
    let listed = user.get(CHANNELS).expect(200);
    assert_has(&listed, json!({"total": 2, "has_more": false}));
    assert_has(
        &listed["channels"][0],
        json!({
            "id": "email", "type": "email", "to": address(&user), "built_in": true, "status": "active",
            "events": ["execution.failed"],
        }),
    );
    assert_has(
        &listed["channels"][1],
        json!({"id": "alert_webhook", "type": "webhook", "url": receiver.url(), "events": ["alert.*"]}),
    );
    for built_in in ["email", "alert_webhook"] {
        let path = format!("{CHANNELS}/{built_in}");
        user.get(&path).expect(200);
        user.patch(&path, &json!({"name": "x"})).expect_error(409, "invalid_state");
        user.delete(&path).expect_error(409, "invalid_state");
    }
    let tested = user.post("/v1/channels/alert_webhook/test", &json!({})).expect(200);
    assert_has(&tested, json!({"status": "delivered", "http_status": 200}));
    assert_eq!(told(&receiver)[0]["test"], true);
    let overview = || user.get("/v1/overview").expect(200)["channels"].clone();
    assert_eq!(overview(), json!({"count": 1, "failing": []}));
    user.post(CHANNELS, &json!({"type": "email", "to": address(&user), "events": ["alert.*"]}))
        .expect(201);
    assert_eq!(overview(), json!({"count": 1, "failing": []}), "no mail is sent here");
}

#[test]
fn an_email_channel_replaces_the_failure_mail_and_adds_alerts_and_recoveries() {
    let mailbox = Mailbox::open();
    let (_server, user) = with_mail(&mailbox);
    let failing = Receiver::with(Reaction::Status(500));
    let name = format!("email {}", address(&user));
    let channel = user.post(CHANNELS, &json!({"type": "email", "to": address(&user)})).expect(201);
    assert_eq!(channel["name"], name);
    every_minute(&user, &failing, "backup", json!({"on_failure": {"email": true}}));
    user.advance("PT1M");
    let mail = mailbox.next();
    assert_eq!(mail.header("Subject"), Some("backup failed: 500 from 127.0.0.1"));
    user.advance("PT10S");
    assert!(mailbox.is_empty(), "it is mailed once");
    failing.react(Reaction::Status(200));
    user.advance("PT1M");
    assert_eq!(mailbox.next().header("Subject"), Some("backup recovered after 1 min"));
    let test = || user.post(&format!("{}/test", path(&channel)), &json!({}));
    assert_has(
        &test().expect(200),
        json!({"status": "delivered", "http_status": null, "error_message": null}),
    );
    let mail = mailbox.next();
    assert_eq!(mail.header("Subject"), Some(format!("Test of the channel \"{name}\"").as_str()));
    assert_contains(&mail.message, &["`cued channel list` shows your channels."]);
    // Without the channel the cue mails its failures again.
    user.delete(&path(&channel)).expect(204);
    failing.react(Reaction::Status(500));
    user.advance("PT1M");
    assert_eq!(mailbox.next().header("Subject"), Some("Cue backup failed"));
}

#[test]
fn a_mail_that_only_the_log_of_the_server_gets_is_not_delivered() {
    let (_server, user) = Server::with_clock_and_user(START);
    let failing = Receiver::with(Reaction::Status(500));
    let channel = user.post(CHANNELS, &json!({"type": "email", "to": address(&user)})).expect(201);
    let why = "this server sends no mail (--smtp-url): the message went to its log";
    for id in ["email", id(&channel)] {
        let tested = user.post(&format!("{CHANNELS}/{id}/test"), &json!({})).expect(200);
        assert_has(&tested, json!({"status": "failed", "error_message": why}));
    }
    every_minute(&user, &failing, "backup", json!({}));
    user.advance("PT1M");
    let shown = user.get(&path(&channel)).expect(200);
    assert_has(
        &shown,
        json!({"failures": 2, "waiting": 0, "last_sent_at": null, "last_error": why}),
    );
}

#[test]
fn a_link_leads_to_the_run_if_the_server_has_a_public_url() {
    let (_server, user) = Server::with_user(&[
        "--test-clock",
        START,
        "--public-url",
        "https://cued.example.com/x",
        "--allow-callbacks-to",
        "127.0.0.0/8",
    ]);
    let (failing, phone) = (Receiver::with(Reaction::Status(500)), Receiver::start());
    webhook(&user, &phone, json!({}));
    let cue = every_minute(&user, &failing, "backup", json!({}));
    user.advance("PT1M");
    let execution = user.executions_of(id(&cue))[0].clone();
    assert_eq!(
        told(&phone)[0]["link"],
        format!("https://cued.example.com/x/#/runs/{}", id(&execution))
    );
}

#[test]
fn a_webhook_channel_is_signed_as_the_alert_webhook() {
    let (_server, user) = Server::with_clock_and_user(START);
    let (failing, phone) = (Receiver::with(Reaction::Status(500)), Receiver::start());
    webhook(&user, &phone, json!({}));
    every_minute(&user, &failing, "backup", json!({}));
    user.advance("PT1M");
    let secret = user.get("/v1/auth/alert-webhook-secret").expect(200);
    let sent = &phone.deliveries()[0];
    crate::engine::notifications::signed(
        sent,
        secret["alert_webhook_secret"].as_str().unwrap(),
        None,
    );
    assert_eq!(sent.header("webhook-id"), told(&phone)[0]["id"].as_str());
}

#[test]
fn a_test_says_what_came_back_and_is_not_repeated() {
    let (_server, user) = Server::with_clock_and_user(START);
    let receiver = Receiver::with(Reaction::Status(403));
    let channel = webhook(&user, &receiver, json!({}));
    let test = format!("{}/test", path(&channel));
    let answer = user.post(&test, &json!({})).expect(200);
    assert_has(&answer, json!({"status": "failed", "http_status": 403}));
    assert_contains(answer["error_message"].as_str().unwrap(), &["403"]);
    user.settle();
    assert_has(&user.get(&path(&channel)).expect(200), json!({"failures": 1, "waiting": 0}));
    user.advance("PT2H");
    assert_eq!(receiver.count(), 1);
    receiver.react(Reaction::Status(200));
    assert_has(
        &user.post(&test, &json!({})).expect(200),
        json!({"status": "delivered", "http_status": 200}),
    );
    user.settle();
    let shown = user.get(&path(&channel)).expect(200);
    assert_has(
        &shown,
        json!({"failures": 0, "last_error": null, "last_sent_at": "2026-01-05T11:00:00Z"}),
    );
    let body = &told(&receiver)[1];
    assert_has(body, json!({"event": "test", "cue_id": null}));
}

#[test]
fn neither_a_test_nor_an_error_shows_a_secret_that_the_service_repeats() {
    let (_server, user) = Server::with_clock_and_user(START);
    let receiver = Receiver::start();
    let (token, bot_token) = ("AWSF2n2Tb.4hXyz", "123456789:AAHdqTcvCH1vGWJxfSeofSAs0K5PALDsaw");
    let hook = receiver.url_of("/services/T0/B0/x7QzMc21");
    for (body, said) in [
        (
            json!({"type": "gotify", "url": receiver.url_of(""), "token": token}),
            format!(r#"{{"error":"Unauthorized","errorDescription":"bad token {token}"}}"#),
        ),
        (
            json!({"type": "telegram", "bot_token": bot_token, "chat_id": 5, "api_url": receiver.url_of("")}),
            format!(
                r#"{{"ok":false,"description":"bad token: no route /bot{bot_token}/sendMessage"}}"#
            ),
        ),
        (
            json!({"type": "slack", "url": hook}),
            format!("bad token: no route {hook}, /services/T0/B0/x7QzMc21"),
        ),
    ] {
        let channel = user.post(CHANNELS, &body).expect(201);
        receiver.react(Reaction::Full(401, Vec::new(), said));
        let tested = user.post(&format!("{}/test", path(&channel)), &json!({})).expect(200);
        user.settle();
        let shown = user.get(&path(&channel)).expect(200);
        for text in [&tested["response"], &tested["error_message"], &shown["last_error"]] {
            let text = text.as_str().unwrap();
            assert_contains(text, &["bad token"]);
            for secret in [token, "AAHdqTcv", "x7QzMc21"] {
                assert!(!text.contains(secret), "{text}");
            }
        }
    }
}
