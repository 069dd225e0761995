//! What is set in several places reaches an address once: a mail, and a POST in each of its forms.

use crate::http::channels::{CHANNELS, REASON, Rig, every_minute, path, told, webhook, with_mail};
use crate::support::*;

/// A user whose cues fail, with a channel that mails.
fn mailed(mailbox: &Mailbox, change: Value) -> (Server, Client, Receiver, Value) {
    let (server, user) = with_mail(mailbox);
    let body = with(json!({"type": "email", "to": user.email()}), change);
    let channel = user.post(CHANNELS, &body).expect(201);
    (server, user, Receiver::with(Reaction::Status(500)), channel)
}

fn mailing(change: Value) -> Value {
    with(json!({"on_failure": {"email": true}}), change)
}

/// The subjects of the mails since the last call.
fn subjects(mailbox: &Mailbox) -> Vec<String> {
    mailbox.all().iter().map(|mail| mail.header("Subject").unwrap().to_owned()).collect()
}

#[test]
fn each_failure_is_mailed_by_the_channel_or_by_the_cue() {
    let (by_channel, by_cue) = (format!("backup failed: {REASON}"), "Cue backup failed");
    for (change, expected) in [
        (json!({}), vec![by_channel.as_str()]),
        (json!({"repeat": "every"}), vec![&by_channel; 3]),
        // The third failure raises the alert, and is in its message.
        (json!({"events": ["alert.consecutive_failures"]}), vec![by_cue, &by_channel]),
        (json!({"tags": ["nas"]}), vec![by_cue]),
    ] {
        let mailbox = Mailbox::open();
        let (_server, user, failing, _) = mailed(&mailbox, change.clone());
        every_minute(&user, &failing, "backup", mailing(json!({})));
        user.advance("PT3M30S");
        assert_eq!(subjects(&mailbox), expected, "{change}");
    }
}

#[test]
fn a_mail_of_the_cue_takes_neither_reminder_nor_recovery_from_a_channel() {
    let mailbox = Mailbox::open();
    let (_server, user, failing, channel) = mailed(&mailbox, json!({}));
    user.delete(&path(&channel)).expect(204);
    let hourly = json!({"schedule": {"type": "recurring", "cron": "0 * * * *"}});
    every_minute(&user, &failing, "backup", mailing(hourly));
    user.advance_to("2026-01-05T10:30:00Z");
    assert_eq!(subjects(&mailbox), ["Cue backup failed"]);
    user.post(CHANNELS, &json!({"type": "email", "to": user.email()})).expect(201);
    user.advance_to("2026-01-06T11:30:00Z");
    let told = [
        format!("backup failed: {REASON}"),
        format!("backup is still failing after 1 d 1 h: {REASON}"),
    ];
    assert_eq!(subjects(&mailbox), told, "a new channel tells the failure that it finds");
    failing.react(Reaction::Status(200));
    user.advance("PT1H");
    assert_eq!(subjects(&mailbox), ["backup recovered after 1 d 2 h"]);
}

#[test]
fn a_missing_outcome_is_mailed_once() {
    let mailbox = Mailbox::open();
    let (_server, user, receiver, _) = mailed(&mailbox, json!({}));
    receiver.react(Reaction::Status(200));
    let change = json!({
        "schedule": {"type": "recurring", "cron": "0 * * * *"}, "outcome_deadline_seconds": 60,
    });
    every_minute(&user, &receiver, "backup", mailing(change));
    user.advance_to("2026-01-05T10:30:00Z");
    let found = subjects(&mailbox);
    assert_eq!(found.len(), 1, "{found:?}");
    assert_contains(&found[0], &["backup", "60 s"]);
}

/// A URL that is set in three places gets what each of them is documented to send, in its own form: the channel alone
/// repeats for a day, names the run in words, and tells reminders and recoveries.
#[test]
fn one_url_of_all_webhooks_gets_each_failure_and_alert_once_in_each_form() {
    let rig = Rig::with(json!({"repeat": "every"}));
    let url = rig.phone.url();
    rig.patch("/v1/auth/me", &json!({"alert_webhook_url": url})).expect(200);
    rig.every_minute("backup", json!({"on_failure": {"email": false, "webhook": url}}));
    rig.advance("PT3M30S");
    let bodies = told(&rig.phone);
    let runs = |event: Value| -> Vec<String> {
        let of_form = bodies.iter().filter(|body| body["event"] == event);
        of_form.map(|body| body.text("execution_id").to_owned()).collect()
    };
    let (by_cue, by_channel) = (runs(json!("cue.failed")), runs(json!("execution.failed")));
    assert_eq!(BTreeSet::from_iter(&by_cue).len(), 3, "{bodies:?}");
    assert_eq!(by_channel, by_cue);
    assert_eq!(runs(Value::Null), by_cue[2..], "the alert");
    assert_eq!(bodies.len(), 7);
    rig.failing.react(Reaction::Status(200));
    rig.advance("PT1M");
    let recovery = told(&rig.phone);
    assert_eq!((recovery.len(), recovery[7].text("event")), (8, "cue.recovered"));
}

#[test]
fn an_alert_reaches_its_webhook_and_a_channel_of_the_same_url_once_each() {
    let rig = Rig::with(json!({"events": ["alert.*"]}));
    let other = Receiver::start();
    webhook(&rig, &other, json!({"events": ["alert.*"]}));
    rig.patch("/v1/auth/me", &json!({"alert_webhook_url": rig.phone.url()})).expect(200);
    rig.every_minute("backup", json!({}));
    rig.advance("PT9M30S");
    let forms: Vec<_> = told(&rig.phone).iter().map(|body| body["event"].clone()).collect();
    assert_eq!(BTreeSet::from_iter(forms.iter().map(Value::to_string)).len(), 2, "{forms:?}");
    assert_eq!((forms.len(), other.count()), (2, 1));
}
