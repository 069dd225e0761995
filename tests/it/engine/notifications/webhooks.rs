//! Notifications by webhook and by mail.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::engine::notifications::{
    START, failing, failing_scene, fire, hook, report, secret, signed, work,
};
use crate::http::device_login::MailingServer;
use crate::support::*;

#[test]
fn the_failure_notification_is_signed_and_sent_before_the_clock_returns() {
    let (_server, user, receiver, notified) = failing_scene();
    let mut cue =
        hook(&receiver, json!({"email": false, "webhook": notified.url(), "pause": true}));
    cue["retry"] = json!({"max_attempts": 3, "backoff_minutes": [10]});
    let cue = user.create(&cue);
    let execution = fire(&user, &cue);
    assert_eq!(user.advance("PT10M")["delivered"], 1);
    assert_eq!(notified.count(), 0, "an attempt before a retry causes no notification");
    // A notification is not counted as a delivery.
    assert_eq!(user.advance("PT10M")["delivered"], 1);
    let sent = notified.deliveries();
    assert_eq!(sent.len(), 1);
    assert_eq!(
        sent[0].json(),
        json!({
            "event": "cue.failed", "cue_id": cue["id"], "cue_name": "nightly", "execution_id": execution,
            "attempts": 3, "last_http_status": 500, "last_error": "the URL returned 500",
            "failed_at": "2026-01-05T00:20:00Z",
        })
    );
    signed(&sent[0], &secret(&user, "webhook"), None);
    // Its id differs from that of the delivery.
    assert_ne!(sent[0].header("webhook-id"), Some(execution.as_str()));
    assert_eq!(sent[0].header("user-agent"), Some(concat!("cued/", env!("CARGO_PKG_VERSION"))));
    let cue = user.get(&format!("/v1/cues/{}", id(&cue))).expect(200);
    assert_eq!((&cue["status"], &cue["next_run"]), (&json!("paused"), &Value::Null));
}

#[test]
fn a_delivery_without_a_response_has_no_status() {
    let (_server, user, receiver, notified) = failing_scene();
    receiver.react(Reaction::HangUp);
    fire(&user, &user.create(&hook(&receiver, json!({"webhook": notified.url()}))));
    let sent = notified.deliveries()[0].json();
    assert_eq!(sent["last_http_status"], Value::Null);
    assert!(sent["last_error"].as_str().unwrap().contains("closed"), "{sent}");
}

#[test]
fn notifications_have_the_error_of_the_worker_or_of_the_expired_claim() {
    let ((_server, user), notified) = (Server::with_clock_and_user(START), Receiver::start());
    let cue = user.create(&work(json!({"webhook": notified.url()})));
    report(&user, &cue, &json!({"success": false, "error": "no\npaper"}));
    report(&user, &cue, &json!({"success": false}));
    report(&user, &cue, &json!({"success": true}));
    let lost = fire(&user, &cue);
    user.post(&format!("/v1/executions/{lost}/claim"), &json!({"worker_id": "w1"})).expect(200);
    user.advance("PT15M");
    let errors: Vec<Value> =
        notified.deliveries().iter().map(|it| it.json()["last_error"].clone()).collect();
    assert_eq!((errors.len(), &errors[0], &errors[1]), (3, &json!("no\npaper"), &Value::Null));
    assert!(
        errors[2].as_str().unwrap().starts_with("the claim of worker w1 expired"),
        "{errors:?}"
    );
    // The notification is sent once, whatever the worker reports later.
    user.report(&lost, &json!({"success": false}));
    user.settle();
    assert_eq!(notified.count(), 3);
    // A reported outcome is separate from the delivery (contract §5.2, §6.8).
    let hook = user.create(&hook(&notified, json!({"webhook": notified.url()})));
    report(&user, &hook, &json!({"success": false}));
    assert_eq!(notified.count(), 4, "only its delivery");
}

#[test]
fn failures_of_manual_runs_and_replays_are_notified() {
    let (_server, user, receiver, notified) = failing_scene();
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
    let (_server, user, receiver, notified) = failing_scene();
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
    let (_server, user, receiver, notified) = failing_scene();
    notified.first([Reaction::Status(503), Reaction::HangUp]);
    fire(&user, &user.create(&hook(&receiver, json!({"webhook": notified.url()}))));
    for (span, count) in [("PT59S", 1), ("PT1S", 2), ("PT4M59S", 2), ("PT1S", 3), ("P1D", 3)] {
        user.advance(span);
        assert_eq!(notified.count(), count, "{span}");
    }
    let ids: BTreeSet<String> = notified
        .deliveries()
        .iter()
        .map(|it| it.header("webhook-id").unwrap().to_owned())
        .collect();
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
    assert_eq!(server.count("SELECT count(*) FROM outbox"), 0);
}

#[test]
fn a_hanging_notification_receiver_delays_no_delivery() {
    let (server, receiver, notified) = (Server::start(DEV_UNLIMITED), failing(), Receiver::start());
    let user = server.user();
    notified.react(Reaction::Hang);
    let cue = user.create(&hook(&receiver, json!({"email": false, "webhook": notified.url()})));
    (0..100).for_each(|_| drop(user.fire(&cue)));
    receiver.wait_for(100);
    notified.wait_hanging(1);
    // Notifications to another receiver are not delayed either.
    let other = Receiver::start();
    let cue = user.create(&hook(&receiver, json!({"email": false, "webhook": other.url()})));
    user.fire(&cue);
    other.wait_for(1);
    notified.release();
    notified.wait_for(100);
    assert_eq!(receiver.count(), 101);
}

fn all_have_failed(user: &Client) {
    until_true("all five have failed", || user.total("/v1/executions?status=failed") == 5);
}

#[test]
fn a_notification_interrupted_by_a_crash_is_sent_again() {
    let (mut server, receiver, notified) =
        (Server::start(DEV_UNLIMITED), failing(), Receiver::start());
    let user = server.user();
    notified.react(Reaction::Hang);
    let cue = user.create(&hook(&receiver, json!({"email": false, "webhook": notified.url()})));
    let ids: BTreeSet<String> = (0..5).map(|_| user.fire(&cue)).collect();
    all_have_failed(&user);
    notified.wait_hanging(1);
    server.kill();
    notified.release();
    let before = notified.count();
    server.restart();
    until("each failure is notified", || {
        let after = notified.deliveries().split_off(before);
        let after: BTreeSet<String> =
            after.iter().map(|it| it.json().text("execution_id").to_owned()).collect();
        (after == ids).then_some(())
    });
    assert_eq!(receiver.count(), 5, "the executions have ended");
}

#[test]
fn a_stop_waits_for_the_running_notification_and_keeps_the_others() {
    let (mut server, receiver, notified) =
        (Server::start(DEV_UNLIMITED), failing(), Receiver::start());
    let user = server.user();
    notified.react(Reaction::Hang);
    let cue = user.create(&hook(&receiver, json!({"email": false, "webhook": notified.url()})));
    (0..5).for_each(|_| drop(user.fire(&cue)));
    all_have_failed(&user);
    notified.wait_hanging(1);
    server.terminate();
    until("it stops", || server.log().contains("stopping").then_some(()));
    notified.release();
    assert_eq!(server.wait_for_exit(), Some(0));
    let told_so_far = notified.count();
    server.restart();
    notified.wait_for(5);
    let ids: BTreeSet<String> = notified
        .deliveries()
        .iter()
        .map(|it| it.header("webhook-id").unwrap().to_owned())
        .collect();
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
    let url = notified.url();
    server.sql(&format!("UPDATE cues SET on_failure = json_set(on_failure, '$.webhook', '{url}')"));
    fire(&user, &cue);
    user.advance("PT1H");
    until("it is given up", || server.log().contains("reason=\"attempt 3").then_some(()));
    assert_eq!(notified.count(), 0);
}

#[test]
fn disabled_users_and_runs_over_quota_cause_no_notification() {
    let (server, receiver, notified) =
        (Server::with_test_clock(START), failing(), Receiver::start());
    let user = server.client().register("ann@example.com");
    let cue = user.create(&hook(&receiver, json!({"webhook": notified.url()})));
    receiver.react(Reaction::Hang);
    user.fire(&cue);
    receiver.wait_hanging(1);
    server.administer(&["disable", "ann@example.com"]);
    receiver.release();
    receiver.react(Reaction::Status(500));
    server.client().advance("P1D");
    assert_eq!(notified.count(), 0);

    let plans = Plans::free(&json!({"cues": 10, "executions": 0, "requests_per_minute": null}));
    let (_server, user) = plans.with_user(&["--dev", "--test-clock", START]);
    let mut cue = hook(&receiver, json!({"webhook": notified.url()}));
    cue["schedule"] = json!({"type": "recurring", "cron": "0 * * * *"});
    let cue = user.create(&cue);
    user.advance("PT25H30M");
    let deliveries = notified.count();
    user.advance("PT10H");
    let refused = user.executions_of(id(&cue));
    assert_eq!(refused[0]["error_message"], "execution_limit_exceeded");
    assert_eq!(notified.count(), deliveries, "only attempted executions are notified");
}

#[test]
fn a_backlog_of_failures_drops_no_alert_and_is_logged_once() {
    let (server, user, receiver, notified) = failing_scene();
    let me = user.patch("/v1/auth/me", &json!({"alert_webhook_url": notified.url()})).expect(200);
    let cue = user.create(&hook(&receiver, json!({"email": false, "webhook": notified.url()})));
    // A receiver that was away for a long time: a thousand notifications wait for a retry.
    let fill = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 1000)
        INSERT INTO outbox (id, user_key, kind, url, destination_hash, body, attempts, due_at, created_at)
        SELECT i, (SELECT key FROM users), 'failure', 'http://127.0.0.1:9/', 7, '{}', 1, 4102444800000, 1767571200000
        FROM n";
    let backlog = |sql: &str| assert!(server.sqlite().execute(sql, []).unwrap() > 0);
    let fires = |times: usize| (0..times).for_each(|_| drop(fire(&user, &cue)));
    let events = || -> Vec<Value> {
        notified.deliveries().iter().map(|it| it.json()["event"].clone()).collect()
    };
    backlog(fill);
    fires(4);
    assert_eq!(events(), [Value::Null], "only the alert");
    assert_eq!(notified.deliveries()[0].json()["alert_type"], "consecutive_failures");
    backlog("DELETE FROM outbox WHERE key IN (SELECT key FROM outbox LIMIT 1)");
    fires(3);
    assert_eq!(events()[1..], ["cue.failed"; 3], "each is sent before the next is stored");
    backlog(
        "INSERT INTO outbox SELECT NULL, id, user_key, kind, url, destination_hash, body, attempts, due_at, created_at, NULL
        FROM outbox LIMIT 1",
    );
    fires(2);
    let id = id(&me);
    let about = |line: &&str, text: &str| {
        line.contains(text) && line.contains(id) && line.contains("kind=\"failure\"")
    };
    let dropping =
        |log: &str| log.lines().filter(|line| about(line, "notifications dropped")).count();
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

fn subject(mail: &Received) -> &str {
    mail.header("Subject").unwrap()
}

#[test]
fn the_failure_mail_has_the_commands_to_read_and_replay_the_execution() {
    let (mailing, receiver) = (MailingServer::open(DEV_UNLIMITED), failing());
    let user = mailing.client().register("ann@example.com");
    let mut cue = hook(&receiver, Value::Null);
    cue["retry"] = json!({"max_attempts": 2, "backoff_minutes": [1]});
    let cue = user.create(&cue);
    let execution = fire(&user, &cue);
    assert!(mailing.mailbox.is_empty(), "no mail before the last attempt");
    user.advance("PT1M");
    let mail = mailing.mailbox.next();
    assert_eq!((mail.to.as_str(), subject(&mail)), ("TO:<ann@example.com>", "Cue nightly failed"));
    assert_eq!(mail.header("Date"), Some("Tue, 01 Jan 2030 00:01:00 +0000"));
    assert_eq!(mail.header("Auto-Submitted"), Some("auto-generated"));
    let link = format!("{}/v1/executions/{execution}", mailing.server.url());
    for line in [
        format!("Cue:                nightly ({})", id(&cue)),
        format!("Execution:          {execution}"),
        "Failed at:          2030-01-01T00:01:00Z".to_owned(),
        "Attempts:           2".to_owned(),
        "Last HTTP status:   500".to_owned(),
        "Last error:         the URL returned 500".to_owned(),
        format!("    curl -H \"Authorization: Bearer $KEY\" {link}"),
        format!("    curl -X POST -H \"Authorization: Bearer $KEY\" {link}/replay"),
    ] {
        assert!(mail.message.lines().any(|it| it == line), "{line:?} is not in {}", mail.message);
    }
    let secret = super::secret(&user, "webhook");
    assert!(!mail.message.contains(user.key()) && !mail.message.contains(&secret));
    assert!(!mailing.server.log().contains("ann@example.com"), "{}", mailing.server.log());
    // The command in the mail works as printed.
    assert_eq!(user.post(&format!("/v1/executions/{execution}/replay"), &json!({})).status, 200);
}

#[test]
fn only_failures_and_expired_claims_are_mailed() {
    let (mailing, receiver) = (MailingServer::open(DEV_UNLIMITED), Receiver::start());
    let user = mailing.client().register("ann@example.com");
    fire(&user, &user.create(&hook(&receiver, json!({"email": true}))));
    let cue = user.create(&work(Value::Null));
    report(&user, &cue, &json!({"success": true}));
    report(&user, &user.create(&work(json!({"email": false}))), &json!({"success": false}));
    assert!(mailing.mailbox.is_empty());
    let words = format!("no paper\r\nBcc: x@example.com\n{}", "x".repeat(2_000));
    report(&user, &cue, &json!({"success": false, "error": words}));
    let mail = mailing.mailbox.next();
    assert!(
        mail.header("Bcc").is_none() && mail.message.lines().all(|line| line.len() < 998),
        "{}",
        mail.message
    );
    let lost = fire(&user, &cue);
    user.post(&format!("/v1/executions/{lost}/claim"), &json!({})).expect(200);
    user.advance("PT1H");
    assert!(mailing.mailbox.next().message.contains("its lease ended without a report"));
    assert!(mailing.mailbox.is_empty());
}

#[test]
fn a_cue_name_cannot_inject_mail_headers() {
    let (mailing, receiver) = (MailingServer::open(DEV_UNLIMITED), failing());
    let user = mailing.client().register("ann@example.com");
    let mut cue = hook(&receiver, Value::Null);
    cue["name"] = json!("evil\r\nBcc: x@example.com\r\n\r\ntext");
    fire(&user, &user.create(&cue));
    let mail = mailing.mailbox.next();
    assert_eq!(mail.header("Bcc"), None);
    assert_eq!(subject(&mail), "Cue evil Bcc: x@example.com text failed");
    cue["name"] = json!("Grüße");
    fire(&user, &user.create(&cue));
    assert!(subject(&mailing.mailbox.next()).contains("=?utf-8?"));
}

#[test]
fn a_cue_name_shows_in_mails_as_what_it_is() {
    let (mailing, receiver) = (MailingServer::open(DEV_UNLIMITED), failing());
    let user = mailing.client().register("ann@example.com");
    let mut cue = hook(&receiver, Value::Null);
    cue["name"] = json!("back\u{202e}up =?UTF-8?Q?paid?= \u{2066}ü");
    fire(&user, &user.create(&cue));
    let mail = mailing.mailbox.next();
    let (headers, _) = mail.message.split_once("\n\n").unwrap();
    let (_, subject) = headers.split_once("\nSubject: ").unwrap();
    let lines: Vec<&str> = subject.lines().collect();
    let more = lines[1..].iter().take_while(|line| line.starts_with(' '));
    let decoded = |word: &str| {
        let base64 = word.trim().strip_prefix("=?utf-8?b?").unwrap().strip_suffix("?=").unwrap();
        STANDARD.decode(base64).unwrap()
    };
    let decoded: Vec<u8> =
        [&lines[0]].into_iter().chain(more).flat_map(|word| decoded(word)).collect();
    assert_eq!(String::from_utf8(decoded).unwrap(), "Cue backup =?UTF-8?Q?paid?= ü failed");
    assert!(!mail.message.contains(['\u{202e}', '\u{2066}']), "{}", mail.message);
    cue["name"] = json!("back\u{202e}up");
    fire(&user, &user.create(&cue));
    let mail = mailing.mailbox.next();
    assert_eq!(self::subject(&mail), "Cue backup failed");
    assert_contains(&mail.message, &["backup (cue_"]);
}

#[test]
fn a_user_gets_ten_mails_an_hour_and_the_number_withheld() {
    let (mut mailing, receiver) = (MailingServer::open(DEV_UNLIMITED), failing());
    let (user, other) = (
        mailing.client().register("ann@example.com"),
        mailing.client().register("bob@example.com"),
    );
    mailing.server.sqlite().execute_batch("UPDATE users SET confirmed_at = created_at").unwrap();
    let cue = user.create(&hook(&receiver, Value::Null));
    for number in 1..=9 {
        fire(&user, &cue);
        assert!(!mailing.mailbox.next().message.contains("not mailed"), "mail {number}");
        user.advance("PT1M");
    }
    fire(&user, &cue);
    let tenth = mailing.mailbox.next();
    assert_contains(&tenth.message, &["failures before 2030-01-01T01:00:00Z are not mailed"]);
    (0..3).for_each(|_| drop(fire(&user, &cue)));
    fire(&other, &other.create(&hook(&receiver, Value::Null)));
    assert_eq!(mailing.mailbox.next().to, "TO:<bob@example.com>", "the limit is per user");
    // A restart does not reset the limit of ten.
    assert_eq!(mailing.server.stop(), Some(0));
    let user = user.at(mailing.server.restart_at("2030-01-01T00:59:59Z"));
    fire(&user, &cue);
    assert!(mailing.mailbox.is_empty());
    user.advance("PT1S");
    fire(&user, &cue);
    let next = mailing.mailbox.next();
    assert_contains(&next.message, &["Failures since the previous mail that were not mailed: 4"]);
    let log = mailing.server.log();
    assert_eq!(log.matches("failure mails suppressed").count(), 1, "{log}");
    let kept: i64 = mailing
        .server
        .sqlite()
        .query_row("SELECT count(*) FROM failure_mails", [], |row| row.get(0))
        .unwrap();
    assert_eq!(kept, 11, "ten of the last hour and one of bob");
}

#[test]
fn a_replaced_key_or_secret_is_mailed_without_the_secret() {
    let (mailing, receiver) = (MailingServer::open(DEV_UNLIMITED), failing());
    let user = mailing.client().register("ann@example.com");
    let mut secrets = vec![user.key().to_owned()];
    let mut replace = |user: &Client, path: &str, field: &str| {
        let made = user.post(path, &json!({})).expect(200)[field].as_str().unwrap().to_owned();
        secrets.push(made.clone());
        made
    };
    let key = replace(&user, "/v1/auth/key/regenerate", "api_key");
    let user = user.with_key(&key);
    replace(&user, "/v1/auth/webhook-secret/regenerate", "webhook_secret");
    replace(&user, "/v1/auth/alert-webhook-secret/regenerate", "alert_webhook_secret");
    let mut expected = vec![
        "Your API key was replaced",
        "Your alert webhook secret was replaced",
        "Your webhook secret was replaced",
    ];
    for _ in 0..3 {
        let mail = mailing.mailbox.next();
        assert_eq!(mail.to, "TO:<ann@example.com>");
        assert!(expected.contains(&subject(&mail)), "{}", subject(&mail));
        expected.retain(|it| *it != subject(&mail));
        let page = format!("    {}/auth/device", mailing.server.url());
        for line in ["Time:      2030-01-01T00:00:00Z", &page] {
            assert!(
                mail.message.lines().any(|it| it == line),
                "{line:?} is not in {}",
                mail.message
            );
        }
        assert!(secrets.iter().all(|secret| !mail.message.contains(secret)), "{}", mail.message);
    }
    // A key that is made or revoked is not replaced, and an unconfirmed address gets no mail.
    let made = user.post("/v1/auth/keys", &json!({"name": "second"})).expect(201);
    assert_eq!(user.delete(&format!("/v1/auth/keys/{}", id(&made))).status, 204);
    let other = mailing.client().register("bob@example.com");
    other.post("/v1/auth/webhook-secret/regenerate", &json!({})).expect(200);
    // Failing cues cannot suppress the mail of a replacement; these are limited as well, to fifteen with the failures.
    let cue = user.create(&hook(&receiver, Value::Null));
    (0..9).for_each(|_| drop(fire(&user, &cue)));
    for _ in 0..7 {
        assert_eq!(subject(&mailing.mailbox.next()), "Cue nightly failed");
    }
    for _ in 0..9 {
        user.post("/v1/auth/webhook-secret/regenerate", &json!({})).expect(200);
    }
    for _ in 0..5 {
        assert_eq!(subject(&mailing.mailbox.next()), "Your webhook secret was replaced");
    }
    user.settle();
    assert!(mailing.mailbox.is_empty());
    user.advance("PT1H");
    fire(&user, &cue);
    let next = mailing.mailbox.next();
    assert!(next.message.contains("that were not mailed: 2"), "{}", next.message);
}

#[test]
fn without_a_mail_server_failures_are_logged_ten_times_an_hour() {
    let open = [
        "--registration",
        "open",
        "--limits",
        "off",
        "--allow-callbacks-to",
        "loopback",
        "--page",
        "off",
    ];
    for (flags, printed, place) in
        [(DEV_UNLIMITED, true, "#/runs"), (&open[..], false, "v1/executions")]
    {
        let (server, receiver) =
            (Server::start(&[flags, &["--test-clock", START]].concat()), failing());
        let user = server.client().register("ann@example.com");
        let cue = user.create(&hook(&receiver, Value::Null));
        let executions: Vec<String> = (0..12).map(|_| fire(&user, &cue)).collect();
        let link = format!("{}/{place}/{}", server.url(), executions[9]);
        until("the tenth is in the log", || server.log().contains(&link).then_some(()));
        let log = server.log();
        assert_eq!(log.matches("no --smtp-url").count(), 10, "{log}");
        assert!(log.contains("to=ann@example.com summary=Cue nightly failed"), "{log}");
        // The log line of a login mail has only its link.
        let line = format!("mail to ann@example.com: Cue nightly failed: {link}");
        assert_eq!(server.stdout().lines().any(|it| it == line), printed, "{}", server.stdout());
    }
}
