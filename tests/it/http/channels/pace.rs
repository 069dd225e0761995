//! The pace of messages: digests, quiet hours, retries, and what a kill and a failing channel leave.

use crate::http::channels::{
    CHANNELS, REASON, Rig, every_minute, path, subject, titles, told, webhook, with_mail,
};
use crate::support::*;

/// The failures that a message tells.
fn counted(body: &Value) -> usize {
    let first = body.text("title").split(' ').next().unwrap();
    if body["event"] == "digest" { first.parse().unwrap() } else { 1 }
}

fn all_counted(phone: &Receiver) -> usize {
    told(phone).iter().map(counted).sum()
}

/// The ids by which a receiver recognizes repetitions.
fn message_ids(phone: &Receiver) -> Vec<String> {
    phone.deliveries().iter().map(|sent| sent.header("webhook-id").unwrap().to_owned()).collect()
}

#[test]
fn a_few_messages_are_sent_one_by_one() {
    let rig = Rig::new();
    rig.failing_at_once(5);
    for (span, count) in [("PT1M", 1), ("PT4.999S", 1), ("PT0.001S", 5)] {
        rig.advance(span);
        assert_eq!(rig.phone.count(), count, "after {span}");
    }
    assert!(told(&rig.phone).iter().all(|body| body["event"] == "execution.failed"));
}

#[test]
fn a_burst_is_two_messages_and_the_digest_counts_and_names_the_cues() {
    let rig = Rig::new();
    rig.failing_at_once(30);
    rig.advance("PT1M");
    rig.advance("PT2M");
    let told = told(&rig.phone);
    assert!((1..=2).contains(&told.len()), "{told:?}");
    assert_eq!(all_counted(&rig.phone), 30);
    let digest = told.last().unwrap();
    let count = counted(digest);
    assert_has(digest, json!({"event": "digest", "severity": "critical", "execution_id": null}));
    let title = digest.text("title");
    assert!(title.starts_with(&format!("{count} failures: job ")), "{title}");
    assert!(title.ends_with(&format!("and {} more cues", count - 3)), "{title}");
    let text = digest.text("text");
    assert_eq!(text.lines().count(), count.min(21), "{text}");
}

#[test]
fn a_thousand_failures_give_each_channel_two_messages_at_most() {
    let count = if is_full_run() { 1_000 } else { 100 };
    let (server, user) = Server::with_user(DEV_UNLIMITED);
    let rig = Rig::of(server, user, Receiver::start(), json!({"repeat": "every"}));
    let two = Receiver::start();
    webhook(&rig, &two, json!({"repeat": "every", "events": ["execution.failed"]}));
    let cue = rig.failing_at(YEARLY);
    (0..count).for_each(|_| drop(rig.fire(&cue)));
    for phone in [&rig.phone, &two] {
        // 5 s after the last of them, or at the end of the minute.
        until_true("all are told", || all_counted(phone) == count);
        assert!(phone.count() <= 2, "{:?}", titles(phone));
    }
}

#[test]
fn what_falls_in_the_quiet_hours_comes_as_one_message_at_their_end() {
    let (server, user) = Server::with_clock_and_user("2026-01-05T20:59:00Z");
    let quiet = json!({"from": "22:00", "to": "07:00", "timezone": "Europe/Berlin"});
    let change = json!({"quiet": quiet, "repeat": "every"});
    let rig = Rig::of(server, user, Receiver::start(), change);
    rig.failing_at("30 * * * *");
    rig.advance_to("2026-01-05T23:00:00Z");
    assert_eq!(rig.phone.count(), 0);
    rig.assert_channel(json!({"waiting": 2}));
    rig.advance_to("2026-01-06T05:59:59Z");
    assert_eq!(rig.phone.count(), 0);
    rig.advance_to("2026-01-06T06:00:00Z");
    // Nine failed runs, the last of the night at 05:30.
    assert_eq!(titles(&rig.phone), ["9 failures: backup (9)"]);
    rig.advance_to("2026-01-06T06:30:00Z");
    assert_eq!(titles(&rig.phone)[1..], [format!("backup failed: {REASON}")]);
}

#[test]
fn one_event_of_the_quiet_hours_comes_as_itself() {
    let rig = Rig::with(json!({"quiet": {"from": "09:00", "to": "10:00"}}));
    rig.failing_at_once(1);
    rig.advance("PT1H");
    assert_eq!(titles(&rig.phone), [format!("job 0 failed: {REASON}")]);
    assert_eq!(told(&rig.phone)[0]["created_at"], "2026-01-05T09:01:00Z");
}

#[test]
fn a_channel_that_fails_ten_times_is_failing_and_tried_every_hour() {
    let rig = Rig::telling(Receiver::with(Reaction::Status(503)), json!({}));
    rig.failing_at_once(1);
    rig.advance("PT1M");
    let overview = || rig.read("/v1/overview")["channels"].clone();
    // 10 s, 1, 5, 15, then five times 30 min.
    for (span, tries) in
        [("PT10S", 2), ("PT1M", 3), ("PT5M", 4), ("PT15M", 5), ("PT30M", 6), ("PT2H", 10)]
    {
        rig.advance(span);
        assert_eq!(rig.phone.count(), tries, "after {span}");
        // The overview names it from the third failure on.
        assert_eq!(overview().list("failing").len(), usize::from(tries >= 3));
    }
    rig.assert_channel(json!({"status": "failing", "failures": 10, "waiting": 1}));
    let error = rig.read(&path(&rig.channel))["last_error"].clone();
    assert_contains(error.as_str().unwrap(), &["503"]);
    assert_has(&overview(), json!({"count": 1}));
    assert_has(&overview()["failing"][0], json!({"id": rig.channel["id"], "last_error": error}));
    rig.advance("PT59M59S");
    assert_eq!(rig.phone.count(), 10);
    rig.phone.react(Reaction::Status(200));
    rig.advance("PT1S");
    assert_eq!(rig.phone.count(), 11);
    rig.assert_channel(json!({"status": "active", "failures": 0, "waiting": 0}));
    let ids = message_ids(&rig.phone);
    assert!(ids.iter().all(|id| *id == ids[0]), "a receiver recognizes the repetitions");
}

#[test]
fn what_waited_for_a_failing_channel_comes_as_one_message() {
    let change = json!({"events": ["execution.failed"], "repeat": "every"});
    let rig = Rig::telling(Receiver::with(Reaction::Status(503)), change);
    rig.every_minute("backup", json!({}));
    rig.advance("PT20M30S");
    let tries = rig.phone.count();
    rig.phone.react(Reaction::Status(200));
    assert_eq!(rig.test()["status"], "delivered");
    rig.settle();
    // The success of the test lets the oldest message go.
    assert_eq!(titles(&rig.phone)[tries + 1], format!("backup failed: {REASON}"));
    rig.advance("PT5S");
    assert_eq!(titles(&rig.phone)[tries + 2..], ["19 failures: backup (19)"]);
}

#[test]
fn a_refused_message_is_dropped_and_the_next_one_goes() {
    let rig = Rig::with(json!({"repeat": "every"}));
    rig.phone.first([Reaction::Status(400)]);
    rig.every_minute("backup", json!({}));
    rig.advance("PT1M30S");
    rig.assert_channel(json!({"failures": 1, "waiting": 0}));
    rig.advance("PT1M");
    assert_eq!(rig.phone.count(), 2);
    rig.assert_channel(json!({"failures": 0}));
}

#[test]
fn a_service_that_asks_for_a_pause_gets_it() {
    let rig = Rig::new();
    let busy = Reaction::Full(429, vec![("Retry-After", "90".to_owned())], String::new());
    rig.phone.first([busy]);
    rig.failing_at_once(1);
    for (span, count) in [("PT2M29S", 1), ("PT1S", 2)] {
        rig.advance(span);
        assert_eq!(rig.phone.count(), count, "after {span}");
    }
}

#[test]
fn messages_survive_a_kill_and_are_repeated_once_at_most() {
    let mut rig = Rig::new();
    rig.failing_at_once(3);
    // The clock does not arrive while the first message is under way.
    rig.kill_while_telling("PT1M", "2026-01-05T09:01:00Z", |server| {
        server.count("SELECT count(*) FROM executions WHERE status = 'failed'") == 3
    });
    rig.advance("PT1M");
    let ids = message_ids(&rig.phone);
    assert_eq!(ids.len(), 4, "{ids:?}");
    assert_eq!(ids[0], ids[1], "the message that the kill cut off");
    let mut runs = titles(&rig.phone)[1..].to_vec();
    runs.sort();
    assert_eq!(runs, [0, 1, 2].map(|number| format!("job {number} failed: {REASON}")));
}

#[test]
fn a_deleted_or_changed_channel_tells_nothing_old() {
    let rig = Rig::telling(Receiver::with(Reaction::Status(503)), json!({}));
    let (other, deleted) = (Receiver::start(), webhook(&rig, &rig.phone, json!({})));
    rig.failing_at_once(2);
    rig.advance("PT1M5S");
    rig.delete(&path(&deleted)).expect(204);
    let before = rig.phone.count();
    // What waits goes to the new address at once.
    rig.change_channel(&json!({"url": other.url()}));
    rig.advance("PT6S");
    assert_eq!((rig.phone.count(), other.count()), (before, 2));
    let left = rig.server.count("SELECT count(*) FROM notices");
    assert_eq!(left, 0, "what all channels have told is deleted");
    assert_eq!(rig.total(CHANNELS), 2);
}

#[test]
fn an_outage_is_told_once_with_all_its_runs() {
    let mut rig = Rig::new();
    webhook(&rig, &rig.phone, json!({"tags": ["nas"]}));
    rig.failing.react(Reaction::Status(200));
    for number in 0..3 {
        let schedule = json!({"type": "recurring", "cron": "*/10 * * * *", "catch_up": "all"});
        rig.every_minute(&format!("{number}"), json!({"schedule": schedule}));
    }
    assert_eq!(rig.server.stop(), Some(0));
    rig.user = rig.user.at(rig.server.restart_at("2026-01-05T10:01:00Z"));
    rig.settle();
    rig.advance("PT2M");
    let seen = told(&rig.phone);
    assert_eq!(seen.len(), 1, "{seen:?}");
    assert_has(&seen[0], json!({"event": "alert.catch_up", "alert_type": "catch_up"}));
    assert_eq!(seen[0]["metadata"]["runs"], 18);
    assert!(seen[0].text("title").starts_with("18 missed runs caught up"), "{seen:?}");
}

#[test]
fn an_account_gets_ten_mails_an_hour_and_then_a_digest() {
    let mailbox = Mailbox::open();
    let (_server, user) = with_mail(&mailbox);
    let failing = Receiver::with(Reaction::Status(500));
    let body = json!({"type": "email", "to": user.email(), "repeat": "every"});
    let channel = user.post(CHANNELS, &body).expect(201);
    every_minute(&user, &failing, "backup", json!({}));
    user.advance("PT59M30S");
    (0..10).for_each(|_| assert_eq!(subject(&mailbox), format!("backup failed: {REASON}")));
    assert!(mailbox.is_empty());
    let test = format!("{}/test", path(&channel));
    user.post(&test, &json!({})).expect_error(429, "rate_limit_exceeded");
    // An hour after the first.
    user.advance("PT1M30S");
    assert_eq!(subject(&mailbox), "50 failures: backup (50)");
    assert!(mailbox.is_empty());
}

#[test]
fn a_single_message_too_many_for_a_minute_opens_the_next_one() {
    let rig = Rig::new();
    rig.failing_at_once(5);
    rig.advance("PT1M10S");
    assert_eq!(rig.phone.count(), 5);
    rig.fire(&rig.failing_at(YEARLY));
    rig.settle();
    rig.advance("PT49.999S");
    assert_eq!(rig.phone.count(), 5);
    rig.advance("PT0.001S");
    // The message has its own title and link.
    assert_eq!(titles(&rig.phone)[5..], [format!("backup failed: {REASON}")]);
}

#[test]
fn another_attempt_waits_for_the_end_of_the_quiet_hours() {
    let quiet = json!({"quiet": {"from": "09:05", "to": "10:00"}});
    let rig = Rig::telling(Receiver::with(Reaction::Status(503)), quiet);
    rig.failing_at_once(1);
    rig.advance("PT5M");
    let tries = rig.phone.count();
    assert!(tries > 1);
    rig.phone.react(Reaction::Status(200));
    rig.advance("PT54M59.999S");
    assert_eq!(rig.phone.count(), tries);
    rig.assert_channel(json!({"failures": tries, "waiting": 1}));
    rig.advance("PT0.001S");
    assert_eq!(rig.phone.count(), tries + 1);
}

#[test]
fn channels_that_hang_delay_no_other_of_the_account() {
    let (server, user) = Server::with_user(DEV_UNLIMITED);
    let hanging: Vec<Receiver> = (0..19).map(|_| Receiver::with(Reaction::Hang)).collect();
    hanging.iter().for_each(|receiver| drop(webhook(&user, receiver, json!({}))));
    let rig = Rig::of(server, user, Receiver::start(), json!({}));
    rig.fire(&rig.failing_at(YEARLY));
    let all = || hanging.iter().chain([&rig.phone]).all(|receiver| receiver.count() == 1);
    until_true("all are called", all);
    let failures = rig.read(CHANNELS).column("channels", "failures");
    assert!(failures.iter().all(|count| *count == 0), "none has waited for the end of another");
    hanging.iter().for_each(Receiver::release);
}

#[test]
fn a_message_of_a_disabled_account_is_dropped_which_is_no_failure_of_its_channel() {
    let rig = Rig::telling(Receiver::with(Reaction::Status(503)), json!({}));
    let email = rig.email();
    rig.failing_at_once(1);
    rig.advance("PT1M");
    assert_eq!(rig.phone.count(), 1);
    rig.server.administer(&["disable", &email]);
    rig.server.client().advance("PT1H");
    rig.server.administer(&["enable", &email]);
    assert_eq!(rig.phone.count(), 1);
    rig.assert_channel(json!({"failures": 1, "waiting": 0}));
    assert_contains(rig.read(&path(&rig.channel)).text("last_error"), &["503"]);
}
