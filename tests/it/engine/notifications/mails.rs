//! Failure mails: their text, their limit, and the log without a mail server.

use serde_json::{Value, json};

use super::{START, failing, fire, hook, report, work};
use crate::http::device_login::flow::MailingServer;
use crate::support::client::Client;
use crate::support::mailbox::Received;
use crate::support::receiver::Receiver;
use crate::support::server::{DEV_UNLIMITED, Server, until};

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
        format!("Cue:                nightly ({})", cue["id"].as_str().unwrap()),
        format!("Execution:          {execution}"),
        "Failed at:          2030-01-01T00:01:00Z".to_owned(),
        "Attempts:           2".to_owned(),
        "Last HTTP status:   500".to_owned(),
        "Last error:         the callback returned 500".to_owned(),
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
fn a_user_gets_ten_mails_an_hour_and_the_number_withheld() {
    let (mut mailing, receiver) = (MailingServer::open(DEV_UNLIMITED), failing());
    let (user, other) =
        (mailing.client().register("ann@example.com"), mailing.client().register("bob@example.com"));
    mailing.server.sqlite().execute_batch("UPDATE users SET confirmed_at = created_at").unwrap();
    let cue = user.create(&hook(&receiver, Value::Null));
    for number in 1..=9 {
        fire(&user, &cue);
        assert!(!mailing.mailbox.next().message.contains("not mailed"), "mail {number}");
        user.advance("PT1M");
    }
    fire(&user, &cue);
    let tenth = mailing.mailbox.next();
    assert!(
        tenth.message.contains("failures before 2030-01-01T01:00:00Z are not mailed"),
        "{}",
        tenth.message
    );
    (0..3).for_each(|_| drop(fire(&user, &cue)));
    fire(&other, &other.create(&hook(&receiver, Value::Null)));
    assert_eq!(mailing.mailbox.next().to, "TO:<bob@example.com>", "the limit is per user");
    // A restart does not reset the limit of ten.
    assert_eq!(mailing.server.stop(), Some(0));
    mailing.server.restart_at("2030-01-01T00:59:59Z");
    let user = user.at(mailing.server.addr());
    fire(&user, &cue);
    assert!(mailing.mailbox.is_empty());
    user.advance("PT1S");
    fire(&user, &cue);
    let next = mailing.mailbox.next();
    assert!(
        next.message.contains("Failures since the previous mail that were not mailed: 4"),
        "{}",
        next.message
    );
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
            assert!(mail.message.lines().any(|it| it == line), "{line:?} is not in {}", mail.message);
        }
        assert!(secrets.iter().all(|secret| !mail.message.contains(secret)), "{}", mail.message);
    }
    // A key that is made or revoked is not replaced, and an unconfirmed address gets no mail.
    let made = user.post("/v1/auth/keys", &json!({"name": "second"})).expect(201);
    assert_eq!(user.delete(&format!("/v1/auth/keys/{}", made["id"].as_str().unwrap())).status, 204);
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
    let open = ["--registration", "open", "--limits", "off", "--allow-callbacks-to", "loopback"];
    for (flags, printed) in [(DEV_UNLIMITED, true), (&open[..], false)] {
        let (server, receiver) = (Server::start(&[flags, &["--test-clock", START]].concat()), failing());
        let user = server.client().register("ann@example.com");
        let cue = user.create(&hook(&receiver, Value::Null));
        let executions: Vec<String> = (0..12).map(|_| fire(&user, &cue)).collect();
        let link = format!("{}/v1/executions/{}", server.url(), executions[9]);
        until("the tenth is in the log", || server.log().contains(&link).then_some(()));
        let log = server.log();
        assert_eq!(log.matches("no --smtp-url").count(), 10, "{log}");
        assert!(log.contains("to=ann@example.com summary=Cue nightly failed"), "{log}");
        // The log line of a login mail has only its link.
        let line = format!("mail to ann@example.com: Cue nightly failed: {link}");
        assert_eq!(server.stdout().lines().any(|it| it == line), printed, "{}", server.stdout());
    }
}
