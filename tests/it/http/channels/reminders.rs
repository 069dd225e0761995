//! Failures of a cue in a row: told once, then by reminders, then as recovered.

use crate::http::channels::{
    CHANNELS, START, every_minute, path, titles, told, webhook, with_mail,
};
use crate::support::*;

const HOURLY: &str = "0 * * * *";

/// A cue that fails at these times.
fn failing_cue(user: &Client, receiver: &Receiver, cron: &str) -> Value {
    every_minute(user, receiver, "backup", json!({"schedule": {"type": "recurring", "cron": cron}}))
}

fn told_at(receiver: &Receiver) -> Vec<String> {
    told(receiver).iter().map(|body| body["created_at"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn failures_in_a_row_are_told_once_then_by_reminders_then_as_recovered() {
    let (_server, user) = Server::with_clock_and_user(START);
    let (failing, phone, all) =
        (Receiver::with(Reaction::Status(500)), Receiver::start(), Receiver::start());
    let channel = webhook(&user, &phone, json!({}));
    assert_has(&channel, json!({"repeat": "first", "remind_after_seconds": 86_400}));
    let every = webhook(&user, &all, json!({"repeat": "every"}));
    assert_has(&user.get(&path(&every)).expect(200), json!({"repeat": "every"}));
    let cue = failing_cue(&user, &failing, HOURLY);
    user.advance_to("2026-01-07T12:30:00Z");
    let reason = "500 from 127.0.0.1";
    assert_eq!(
        titles(&phone),
        [
            format!("backup failed: {reason}"),
            format!("backup is still failing after 1 d: {reason}"),
            format!("backup is still failing after 2 d: {reason}"),
        ]
    );
    assert_eq!(
        told_at(&phone),
        ["2026-01-05T10:00:00Z", "2026-01-06T10:00:00Z", "2026-01-07T10:00:00Z"]
    );
    let reminder = &told(&phone)[1];
    assert_has(
        reminder,
        json!({"event": "execution.failed", "alert_type": "consecutive_failures"}),
    );
    assert_contains(
        reminder["text"].as_str().unwrap(),
        &["runs have failed since Mon 5 Jan 2026, 10:00 UTC."],
    );
    let ids = |receiver: &Receiver| {
        told(receiver).iter().map(|body| body["id"].clone()).collect::<Vec<_>>()
    };
    assert_eq!(ids(&phone).iter().collect::<std::collections::HashSet<_>>().len(), 3);
    assert_eq!(all.count(), 51, "each failed run, and no reminder");
    failing.react(Reaction::Status(200));
    user.advance("PT30M");
    assert_eq!(titles(&phone)[3..], ["backup recovered after 2 d 3 h"]);
    // The next one is news.
    failing.react(Reaction::Status(500));
    user.advance("PT1H");
    assert_eq!(titles(&phone)[4..], [format!("backup failed: {reason}")]);
    user.delete(&format!("/v1/cues/{}", id(&cue))).expect(204);
    user.advance("P2D");
    assert_eq!(phone.count(), 5, "a deleted cue fails no longer");
}

#[test]
fn a_failure_whose_message_is_refused_for_good_is_told_with_the_next_one() {
    let (_server, user) = Server::with_clock_and_user(START);
    let (failing, phone) =
        (Receiver::with(Reaction::Status(500)), Receiver::with(Reaction::Status(413)));
    webhook(&user, &phone, json!({}));
    failing_cue(&user, &failing, HOURLY);
    user.advance_to("2026-01-05T10:30:00Z");
    assert_eq!(phone.count(), 1);
    phone.react(Reaction::Status(200));
    user.advance("PT1H");
    assert_eq!(phone.count(), 2, "nobody has read the first one");
    user.advance("PT2H");
    assert_eq!(phone.count(), 2);
}

#[test]
fn reminders_come_by_the_clock_and_end_with_a_pause() {
    let (_server, user) = Server::with_clock_and_user(START);
    let (failing, phone) = (Receiver::with(Reaction::Status(500)), Receiver::start());
    let channel = webhook(
        &user,
        &phone,
        json!({"remind_after_seconds": 900, "events": ["execution.failed"]}),
    );
    let cue = failing_cue(&user, &failing, "0 0 1 1 *");
    user.fire(&cue);
    user.settle();
    user.advance("PT1H");
    assert_eq!(phone.count(), 5, "the cue does not run meanwhile");
    // A change counts from the last message.
    user.patch(&path(&channel), &json!({"remind_after_seconds": 3_600})).expect(200);
    user.advance("PT59M59S");
    assert_eq!(phone.count(), 5);
    user.advance("PT1S");
    assert_eq!(phone.count(), 6);
    user.patch(&path(&channel), &json!({"remind_after_seconds": 0})).expect(200);
    user.advance("P7D");
    assert_eq!(phone.count(), 6);
    user.patch(&path(&channel), &json!({"remind_after_seconds": 86_400})).expect(200);
    user.advance("PT1S");
    assert_eq!(phone.count(), 7, "it is due since long");
    let set = |status: &str| {
        user.patch(&format!("/v1/cues/{}", id(&cue)), &json!({"status": status})).expect(200);
    };
    set("paused");
    user.advance("P2D");
    assert_eq!(phone.count(), 7);
    set("active");
    user.advance("P2D");
    assert_eq!(phone.count(), 7);
    user.fire(&cue);
    user.settle();
    assert_eq!(phone.count(), 8, "the first failure after the pause is told");
    user.advance("P1D");
    assert_eq!(phone.count(), 9);
}

#[test]
fn a_once_cue_that_has_failed_is_told_once() {
    let (_server, user) = Server::with_clock_and_user(START);
    let (failing, phone) = (Receiver::with(Reaction::Status(500)), Receiver::start());
    webhook(&user, &phone, json!({"remind_after_seconds": 900}));
    let once = json!({"type": "once", "at": "2026-01-05T09:01:00Z"});
    every_minute(&user, &failing, "backup", json!({"schedule": once}));
    user.advance("P3D");
    assert_eq!(phone.count(), 1, "it has ended: nothing can recover");
}

#[test]
fn each_channel_tells_what_it_takes_from_its_first_failure_on() {
    let (_server, user) = Server::with_clock_and_user(START);
    let (failing, first, late, alerts, nas) = (
        Receiver::with(Reaction::Status(500)),
        Receiver::start(),
        Receiver::start(),
        Receiver::start(),
        Receiver::start(),
    );
    webhook(&user, &first, json!({}));
    webhook(&user, &alerts, json!({"events": ["alert.consecutive_failures"]}));
    let tagged = webhook(&user, &nas, json!({"tags": ["nas"]}));
    failing_cue(&user, &failing, HOURLY);
    user.advance_to("2026-01-05T12:30:00Z");
    webhook(&user, &late, json!({}));
    user.patch(&path(&tagged), &json!({"tags": []})).expect(200);
    user.advance_to("2026-01-06T13:30:00Z");
    let of_day = |receiver: &Receiver| {
        told_at(receiver).iter().map(|at| at[8..13].to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(of_day(&first), ["05T10", "06T10"]);
    assert_eq!(of_day(&alerts), ["05T12", "06T12"], "the third failure raises it");
    assert_eq!(of_day(&late), ["05T13", "06T13"]);
    assert_eq!(of_day(&nas), ["05T13", "06T13"]);
}

#[test]
fn a_reminder_survives_a_kill_and_a_downtime_and_comes_once() {
    let (mut server, user) = Server::with_clock_and_user(START);
    let (failing, phone) = (Receiver::with(Reaction::Status(500)), Receiver::start());
    webhook(&user, &phone, json!({"events": ["execution.failed"]}));
    failing_cue(&user, &failing, "0 10 1,5 * *");
    user.advance_to("2026-01-05T10:30:00Z");
    assert_eq!(phone.count(), 1);
    phone.react(Reaction::Hang);
    let advancing = user.clone();
    let advance = std::thread::spawn(move || {
        advancing.try_post("/v1/test/clock", &json!({"advance": "P1D"}))
    });
    phone.wait_hanging(1);
    server.kill();
    drop(advance.join().unwrap());
    phone.react(Reaction::Status(200));
    phone.release();
    server.restart_at("2026-01-06T10:40:00Z");
    let user = user.at(server.addr());
    user.settle();
    user.advance("PT1H");
    let ids: Vec<Value> = told(&phone).iter().map(|body| body["id"].clone()).collect();
    assert_eq!(ids.len(), 3, "{ids:?}");
    assert_eq!(ids[1], ids[2], "the message that the kill cut off");
    server.kill();
    server.restart_at("2026-01-12T09:00:00Z");
    user.at(server.addr()).settle();
    assert_eq!(phone.count(), 4, "one for the days without a server");
}

#[test]
fn failures_in_a_row_are_mailed_once_a_day_and_runs_by_hand_always() {
    let mailbox = Mailbox::open();
    let (_server, user) = with_mail(&mailbox);
    let failing = Receiver::with(Reaction::Status(500));
    let mailed =
        json!({"schedule": {"type": "recurring", "cron": HOURLY}, "on_failure": {"email": true}});
    let cue = every_minute(&user, &failing, "backup", mailed);
    let mails = |count: usize, what: &str| {
        for _ in 0..count {
            assert_eq!(mailbox.next().header("Subject"), Some("Cue backup failed"), "{what}");
        }
        assert!(mailbox.is_empty(), "{what}");
    };
    user.advance_to("2026-01-07T12:30:00Z");
    mails(3, "at 10:00, and 23 hours later again");
    user.fire(&cue);
    user.settle();
    mails(1, "by hand");
    failing.react(Reaction::Status(200));
    user.advance("PT1H");
    failing.react(Reaction::Status(500));
    user.advance("PT1H");
    mails(1, "after a success");
    let nightly = json!({"schedule": {"type": "recurring", "cron": "0 3 * * *"}});
    user.patch(&format!("/v1/cues/{}", id(&cue)), &nightly).expect(200);
    user.advance("P3D");
    mails(2, "every night, but the one within 23 hours");
}

#[test]
fn the_fields_of_repetition_are_checked_kept_and_never_null() {
    let (_server, user) = Server::with_clock_and_user(START);
    let phone = Receiver::start();
    let channel =
        webhook(&user, &phone, json!({"repeat": "every", "remind_after_seconds": 604_800}));
    for wrong in [
        json!({"repeat": "once"}),
        json!({"repeat": null}),
        json!({"remind_after_seconds": 899}),
        json!({"remind_after_seconds": 604_801}),
        json!({"remind_after_seconds": -1}),
        json!({"remind_after_seconds": "1d"}),
        json!({"remind_after_seconds": null}),
    ] {
        let refused = user.patch(&path(&channel), &wrong).expect_error(422, "validation_error");
        let field = wrong.as_object().unwrap().keys().next().unwrap().clone();
        assert_eq!(refused["detail"][0]["loc"], json!(["body", field]), "{refused}");
    }
    let kept = user.patch(&path(&channel), &json!({"name": "phone"})).expect(200);
    assert_has(&kept, json!({"repeat": "every", "remind_after_seconds": 604_800}));
    for built_in in user.get(CHANNELS).expect(200)["channels"].as_array().unwrap() {
        assert!(
            built_in["remind_after_seconds"].is_number() && built_in["repeat"].is_string(),
            "{built_in}"
        );
    }
}
