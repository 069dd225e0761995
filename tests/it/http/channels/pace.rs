//! The pace of messages: digests, quiet hours, retries, and what a kill and a failing channel leave.

use crate::http::channels::{
    CHANNELS, START, address, every_minute, path, titles, told, webhook, with_mail,
};
use crate::support::*;

/// As many cues that all fail at 09:01.
fn failing_at_once(user: &Client, receiver: &Receiver, count: usize) {
    for number in 0..count {
        let schedule = json!({"type": "once", "at": "2026-01-05T09:01:00Z"});
        every_minute(user, receiver, &format!("job {number}"), json!({"schedule": schedule}));
    }
}

/// The failures that a message tells.
fn counted(body: &Value) -> usize {
    let title = body["title"].as_str().unwrap();
    if body["event"] == "digest" { title.split(' ').next().unwrap().parse().unwrap() } else { 1 }
}

#[test]
fn a_few_messages_are_sent_one_by_one() {
    let (_server, user) = Server::with_clock_and_user(START);
    let (failing, phone) = (Receiver::with(Reaction::Status(500)), Receiver::start());
    webhook(&user, &phone, json!({}));
    failing_at_once(&user, &failing, 5);
    user.advance("PT1M");
    assert_eq!(phone.count(), 1, "the first at once");
    user.advance("PT4.999S");
    assert_eq!(phone.count(), 1);
    user.advance("PT0.001S");
    assert_eq!(phone.count(), 5);
    assert!(told(&phone).iter().all(|body| body["event"] == "execution.failed"));
}

#[test]
fn a_burst_is_two_messages_and_the_digest_counts_and_names_the_cues() {
    let (_server, user) = Server::with_clock_and_user(START);
    let (failing, phone) = (Receiver::with(Reaction::Status(500)), Receiver::start());
    webhook(&user, &phone, json!({}));
    failing_at_once(&user, &failing, 30);
    user.advance("PT1M");
    user.advance("PT2M");
    let told = told(&phone);
    assert!((1..=2).contains(&told.len()), "{told:?}");
    assert_eq!(told.iter().map(counted).sum::<usize>(), 30);
    let digest = told.last().unwrap();
    let count = counted(digest);
    assert_has(digest, json!({"event": "digest", "severity": "critical", "execution_id": null}));
    let title = digest["title"].as_str().unwrap();
    assert!(title.starts_with(&format!("{count} failures: job ")), "{title}");
    assert!(title.ends_with(&format!("and {} more cues", count - 3)), "{title}");
    let text = digest["text"].as_str().unwrap();
    assert_eq!(text.lines().count(), count.min(21), "{text}");
}

#[test]
fn a_thousand_failures_give_each_channel_two_messages_at_most() {
    let count = if is_full_run() { 1_000 } else { 100 };
    let (_server, user) = Server::with_user(DEV_UNLIMITED);
    let (failing, one, two) =
        (Receiver::with(Reaction::Status(500)), Receiver::start(), Receiver::start());
    webhook(&user, &one, json!({"repeat": "every"}));
    webhook(&user, &two, json!({"repeat": "every", "events": ["execution.failed"]}));
    let cue = every_minute(
        &user,
        &failing,
        "backup",
        json!({"schedule": {"type": "recurring", "cron": "0 0 1 1 *"}}),
    );
    for _ in 0..count {
        user.fire(&cue);
    }
    for phone in [&one, &two] {
        // 5 s after the last of them, or at the end of the minute.
        until("all are told", || {
            (told(phone).iter().map(counted).sum::<usize>() == count).then_some(())
        });
        assert!(phone.count() <= 2, "{:?}", titles(phone));
    }
}

#[test]
fn what_falls_in_the_quiet_hours_comes_as_one_message_at_their_end() {
    let (_server, user) = Server::with_clock_and_user("2026-01-05T20:59:00Z");
    let (failing, phone) = (Receiver::with(Reaction::Status(500)), Receiver::start());
    let quiet = json!({"from": "22:00", "to": "07:00", "timezone": "Europe/Berlin"});
    let channel = webhook(&user, &phone, json!({"quiet": quiet, "repeat": "every"}));
    let hourly = json!({"type": "recurring", "cron": "30 * * * *"});
    every_minute(
        &user,
        &failing,
        "backup",
        json!({"schedule": hourly, "on_failure": {"email": false}}),
    );
    user.advance_to("2026-01-05T23:00:00Z");
    assert_eq!(phone.count(), 0);
    assert_eq!(user.get(&path(&channel)).expect(200)["waiting"], 2);
    user.advance_to("2026-01-06T05:59:59Z");
    assert_eq!(phone.count(), 0);
    user.advance_to("2026-01-06T06:00:00Z");
    // Nine failed runs, the last of the night at 05:30.
    assert_eq!(titles(&phone), ["9 failures: backup (9)"]);
    user.advance_to("2026-01-06T06:30:00Z");
    assert_eq!(titles(&phone)[1..], ["backup failed: 500 from 127.0.0.1"]);
}

#[test]
fn one_event_of_the_quiet_hours_comes_as_itself() {
    let (_server, user) = Server::with_clock_and_user(START);
    let (failing, phone) = (Receiver::with(Reaction::Status(500)), Receiver::start());
    webhook(&user, &phone, json!({"quiet": {"from": "09:00", "to": "10:00"}}));
    failing_at_once(&user, &failing, 1);
    user.advance("PT1H");
    assert_eq!(titles(&phone), ["job 0 failed: 500 from 127.0.0.1"]);
    assert_eq!(told(&phone)[0]["created_at"], "2026-01-05T09:01:00Z");
}

#[test]
fn a_channel_that_fails_ten_times_is_failing_and_tried_every_hour() {
    let (_server, user) = Server::with_clock_and_user(START);
    let (failing, phone) =
        (Receiver::with(Reaction::Status(500)), Receiver::with(Reaction::Status(503)));
    let channel = webhook(&user, &phone, json!({}));
    failing_at_once(&user, &failing, 1);
    user.advance("PT1M");
    // 10 s, 1, 5, 15, then five times 30 min.
    for (span, tries) in
        [("PT10S", 2), ("PT1M", 3), ("PT5M", 4), ("PT15M", 5), ("PT30M", 6), ("PT2H", 10)]
    {
        user.advance(span);
        assert_eq!(phone.count(), tries, "after {span}");
        let named =
            user.get("/v1/overview").expect(200)["channels"]["failing"].as_array().unwrap().len();
        // The overview names it from the third failure on.
        assert_eq!(named, usize::from(tries >= 3));
    }
    let shown = user.get(&path(&channel)).expect(200);
    assert_has(&shown, json!({"status": "failing", "failures": 10, "waiting": 1}));
    assert_contains(shown["last_error"].as_str().unwrap(), &["503"]);
    let overview = user.get("/v1/overview").expect(200)["channels"].clone();
    assert_has(&overview, json!({"count": 1}));
    assert_has(
        &overview["failing"][0],
        json!({"id": channel["id"], "last_error": shown["last_error"]}),
    );
    user.advance("PT59M59S");
    assert_eq!(phone.count(), 10);
    phone.react(Reaction::Status(200));
    user.advance("PT1S");
    assert_eq!(phone.count(), 11);
    assert_has(
        &user.get(&path(&channel)).expect(200),
        json!({"status": "active", "failures": 0, "waiting": 0}),
    );
    let ids: Vec<_> = phone
        .deliveries()
        .iter()
        .map(|sent| sent.header("webhook-id").unwrap().to_owned())
        .collect();
    assert!(ids.iter().all(|id| *id == ids[0]), "a receiver recognizes the repetitions");
}

#[test]
fn what_waited_for_a_failing_channel_comes_as_one_message() {
    let (_server, user) = Server::with_clock_and_user(START);
    let (failing, phone) =
        (Receiver::with(Reaction::Status(500)), Receiver::with(Reaction::Status(503)));
    let channel =
        webhook(&user, &phone, json!({"events": ["execution.failed"], "repeat": "every"}));
    every_minute(&user, &failing, "backup", json!({}));
    user.advance("PT20M30S");
    let tries = phone.count();
    phone.react(Reaction::Status(200));
    let tested = user.post(&format!("{}/test", path(&channel)), &json!({})).expect(200);
    assert_eq!(tested["status"], "delivered");
    user.settle();
    let seen = titles(&phone)[tries..].to_vec();
    // The success of the test lets the oldest message go.
    assert_eq!(seen[1], "backup failed: 500 from 127.0.0.1");
    user.advance("PT5S");
    assert_eq!(titles(&phone)[tries + 2..], ["19 failures: backup (19)"]);
}

#[test]
fn a_refused_message_is_dropped_and_the_next_one_goes() {
    let (_server, user) = Server::with_clock_and_user(START);
    let (failing, phone) = (Receiver::with(Reaction::Status(500)), Receiver::start());
    phone.first([Reaction::Status(400)]);
    let channel = webhook(&user, &phone, json!({"repeat": "every"}));
    every_minute(&user, &failing, "backup", json!({}));
    user.advance("PT1M30S");
    assert_has(&user.get(&path(&channel)).expect(200), json!({"failures": 1, "waiting": 0}));
    user.advance("PT1M");
    assert_eq!(phone.count(), 2);
    assert_has(&user.get(&path(&channel)).expect(200), json!({"failures": 0}));
}

#[test]
fn a_service_that_asks_for_a_pause_gets_it() {
    let (_server, user) = Server::with_clock_and_user(START);
    let (failing, phone) = (Receiver::with(Reaction::Status(500)), Receiver::start());
    let busy = Reaction::Full(429, vec![("Retry-After", "90".to_owned())], String::new());
    phone.first([busy]);
    webhook(&user, &phone, json!({}));
    failing_at_once(&user, &failing, 1);
    user.advance("PT2M29S");
    assert_eq!(phone.count(), 1);
    user.advance("PT1S");
    assert_eq!(phone.count(), 2);
}

#[test]
fn messages_survive_a_kill_and_are_repeated_once_at_most() {
    let (mut server, user) = Server::with_clock_and_user(START);
    let (failing, phone) = (Receiver::with(Reaction::Status(500)), Receiver::with(Reaction::Hang));
    webhook(&user, &phone, json!({}));
    failing_at_once(&user, &failing, 3);
    // The clock does not arrive while the first message is under way.
    let advancing = user.clone();
    let advance = std::thread::spawn(move || {
        advancing.try_post("/v1/test/clock", &json!({"advance": "PT1M"}))
    });
    phone.wait_hanging(1);
    until("all runs have failed", || {
        let sql = "SELECT count(*) FROM executions WHERE status = 'failed'";
        let failed: i64 = server.sqlite().query_row(sql, [], |row| row.get(0)).unwrap();
        (failed == 3).then_some(())
    });
    server.kill();
    drop(advance.join().unwrap());
    phone.release();
    server.restart_at("2026-01-05T09:01:00Z");
    let user = user.at(server.addr());
    user.advance("PT1M");
    let ids: Vec<String> = phone
        .deliveries()
        .iter()
        .map(|sent| sent.header("webhook-id").unwrap().to_owned())
        .collect();
    assert_eq!(ids.len(), 4, "{ids:?}");
    assert_eq!(ids[0], ids[1], "the message that the kill cut off");
    let mut runs: Vec<String> = titles(&phone)[1..].to_vec();
    runs.sort();
    assert_eq!(runs, [0, 1, 2].map(|number| format!("job {number} failed: 500 from 127.0.0.1")));
}

#[test]
fn a_deleted_or_changed_channel_tells_nothing_old() {
    let (_server, user) = Server::with_clock_and_user(START);
    let (failing, phone, other) = (
        Receiver::with(Reaction::Status(500)),
        Receiver::with(Reaction::Status(503)),
        Receiver::start(),
    );
    let deleted = webhook(&user, &phone, json!({}));
    let moved = webhook(&user, &phone, json!({}));
    failing_at_once(&user, &failing, 2);
    user.advance("PT1M5S");
    user.delete(&path(&deleted)).expect(204);
    let before = phone.count();
    // What waits goes to the new address at once.
    user.patch(&path(&moved), &json!({"url": other.url()})).expect(200);
    user.advance("PT6S");
    assert_eq!(phone.count(), before);
    assert_eq!(other.count(), 2);
    let left: i64 =
        _server.sqlite().query_row("SELECT count(*) FROM notices", [], |row| row.get(0)).unwrap();
    assert_eq!(left, 0, "what all channels have told is deleted");
    assert_eq!(user.get(CHANNELS).expect(200)["total"], 2);
}

#[test]
fn an_outage_is_told_once_with_all_its_runs() {
    let (mut server, user) = Server::with_clock_and_user(START);
    let (receiver, phone) = (Receiver::start(), Receiver::start());
    webhook(&user, &phone, json!({}));
    webhook(&user, &phone, json!({"tags": ["nas"]}));
    for number in 0..3 {
        let schedule = json!({"type": "recurring", "cron": "*/10 * * * *", "catch_up": "all"});
        every_minute(&user, &receiver, &format!("{number}"), json!({"schedule": schedule}));
    }
    assert_eq!(server.stop(), Some(0));
    server.restart_at("2026-01-05T10:01:00Z");
    let user = user.at(server.addr());
    user.settle();
    user.advance("PT2M");
    let seen = told(&phone);
    assert_eq!(seen.len(), 1, "{seen:?}");
    assert_has(&seen[0], json!({"event": "alert.catch_up", "alert_type": "catch_up"}));
    assert_eq!(seen[0]["metadata"]["runs"], 18);
    assert!(seen[0]["title"].as_str().unwrap().starts_with("18 missed runs caught up"), "{seen:?}");
}

#[test]
fn an_account_gets_ten_mails_an_hour_and_then_a_digest() {
    let mailbox = Mailbox::open();
    let (_server, user) = with_mail(&mailbox);
    let failing = Receiver::with(Reaction::Status(500));
    let body = json!({"type": "email", "to": address(&user), "repeat": "every"});
    let channel = user.post(CHANNELS, &body).expect(201);
    every_minute(&user, &failing, "backup", json!({}));
    user.advance("PT59M30S");
    for _ in 0..10 {
        assert_eq!(mailbox.next().header("Subject"), Some("backup failed: 500 from 127.0.0.1"));
    }
    assert!(mailbox.is_empty());
    user.post(&format!("{}/test", path(&channel)), &json!({}))
        .expect_error(429, "rate_limit_exceeded");
    // An hour after the first.
    user.advance("PT1M30S");
    assert_eq!(mailbox.next().header("Subject"), Some("50 failures: backup (50)"));
    assert!(mailbox.is_empty());
}

#[test]
fn a_single_message_too_many_for_a_minute_opens_the_next_one() {
    let (_server, user) = Server::with_clock_and_user(START);
    let (failing, phone) = (Receiver::with(Reaction::Status(500)), Receiver::start());
    webhook(&user, &phone, json!({}));
    failing_at_once(&user, &failing, 5);
    user.advance("PT1M10S");
    assert_eq!(phone.count(), 5);
    user.fire(&every_minute(
        &user,
        &failing,
        "late",
        json!({"schedule": {"type": "recurring", "cron": "0 0 1 1 *"}}),
    ));
    user.settle();
    user.advance("PT49.999S");
    assert_eq!(phone.count(), 5);
    user.advance("PT0.001S");
    // The message has its own title and link.
    assert_eq!(titles(&phone)[5..], ["late failed: 500 from 127.0.0.1"]);
}

#[test]
fn another_attempt_waits_for_the_end_of_the_quiet_hours() {
    let (_server, user) = Server::with_clock_and_user(START);
    let (failing, phone) =
        (Receiver::with(Reaction::Status(500)), Receiver::with(Reaction::Status(503)));
    let channel = webhook(&user, &phone, json!({"quiet": {"from": "09:05", "to": "10:00"}}));
    failing_at_once(&user, &failing, 1);
    user.advance("PT5M");
    let tries = phone.count();
    assert!(tries > 1);
    phone.react(Reaction::Status(200));
    user.advance("PT54M59.999S");
    assert_eq!(phone.count(), tries);
    assert_has(&user.get(&path(&channel)).expect(200), json!({"failures": tries, "waiting": 1}));
    user.advance("PT0.001S");
    assert_eq!(phone.count(), tries + 1);
}

#[test]
fn channels_that_hang_delay_no_other_of_the_account() {
    let (_server, user) = Server::with_user(DEV_UNLIMITED);
    let (failing, phone) = (Receiver::with(Reaction::Status(500)), Receiver::start());
    let hanging: Vec<Receiver> = (0..19).map(|_| Receiver::with(Reaction::Hang)).collect();
    for receiver in &hanging {
        webhook(&user, receiver, json!({}));
    }
    webhook(&user, &phone, json!({}));
    user.fire(&every_minute(
        &user,
        &failing,
        "backup",
        json!({"schedule": {"type": "recurring", "cron": "0 0 1 1 *"}}),
    ));
    let all = || hanging.iter().chain([&phone]).all(|receiver| receiver.count() == 1);
    until("all are called", || all().then_some(()));
    let listed = user.get(CHANNELS).expect(200);
    let ended =
        listed["channels"].as_array().unwrap().iter().filter(|channel| channel["failures"] != 0);
    assert_eq!(ended.count(), 0, "none has waited for the end of another");
    hanging.iter().for_each(Receiver::release);
}

#[test]
fn a_message_of_a_disabled_account_is_dropped_which_is_no_failure_of_its_channel() {
    let (server, user) = Server::with_clock_and_user(START);
    let (failing, phone) =
        (Receiver::with(Reaction::Status(500)), Receiver::with(Reaction::Status(503)));
    let channel = webhook(&user, &phone, json!({}));
    let email = address(&user);
    failing_at_once(&user, &failing, 1);
    user.advance("PT1M");
    assert_eq!(phone.count(), 1);
    let operate = |action: &str| {
        assert!(
            run(&["user", action, &email, "--db", server.db().to_str().unwrap()]).status.success()
        );
    };
    operate("disable");
    server.client().advance("PT1H");
    operate("enable");
    assert_eq!(phone.count(), 1);
    let shown = user.get(&path(&channel)).expect(200);
    assert_has(&shown, json!({"failures": 1, "waiting": 0}));
    assert_contains(shown["last_error"].as_str().unwrap(), &["503"]);
}
