//! Failures of a cue in a row: told once, then by reminders, then as recovered.

use crate::http::channels::{
    REASON, Rig, every_minute, fields, path, subject, titles, told, webhook, with_mail,
};
use crate::support::*;

const HOURLY: &str = "0 * * * *";

#[test]
fn failures_in_a_row_are_told_once_then_by_reminders_then_as_recovered() {
    let (rig, all) = (Rig::new(), Receiver::start());
    assert_has(&rig.channel, json!({"repeat": "first", "remind_after_seconds": 86_400}));
    let every = webhook(&rig, &all, json!({"repeat": "every"}));
    assert_has(&rig.read(&path(&every)), json!({"repeat": "every"}));
    let cue = rig.failing_at(HOURLY);
    rig.advance_to("2026-01-07T12:30:00Z");
    let still = |days: u32| format!("backup is still failing after {days} d: {REASON}");
    let failed = format!("backup failed: {REASON}");
    assert_eq!(titles(&rig.phone), [failed.clone(), still(1), still(2)]);
    assert_eq!(
        fields(&rig.phone, "created_at"),
        ["2026-01-05T10:00:00Z", "2026-01-06T10:00:00Z", "2026-01-07T10:00:00Z"]
    );
    let reminder = &told(&rig.phone)[1];
    assert_has(
        reminder,
        json!({"event": "execution.failed", "alert_type": "consecutive_failures"}),
    );
    let since = "runs have failed since Mon 5 Jan 2026, 10:00 UTC.";
    assert_contains(reminder.text("text"), &[since]);
    assert_eq!(BTreeSet::from_iter(fields(&rig.phone, "id")).len(), 3);
    assert_eq!(all.count(), 51, "each failed run, and no reminder");
    rig.failing.react(Reaction::Status(200));
    rig.advance("PT30M");
    assert_eq!(titles(&rig.phone)[3..], ["backup recovered after 2 d 3 h"]);
    // The next one is news.
    rig.failing.react(Reaction::Status(500));
    rig.advance("PT1H");
    assert_eq!(titles(&rig.phone)[4..], [failed]);
    rig.delete(&cue_path(&cue)).expect(204);
    rig.advance("P2D");
    assert_eq!(rig.phone.count(), 5, "a deleted cue fails no longer");
}

#[test]
fn a_failure_whose_message_is_refused_for_good_is_told_with_the_next_one() {
    let rig = Rig::telling(Receiver::with(Reaction::Status(413)), json!({}));
    rig.failing_at(HOURLY);
    rig.advance_to("2026-01-05T10:30:00Z");
    assert_eq!(rig.phone.count(), 1);
    rig.phone.react(Reaction::Status(200));
    for span in ["PT1H", "PT2H"] {
        rig.advance(span);
        assert_eq!(rig.phone.count(), 2, "nobody has read the first one");
    }
}

#[test]
fn a_message_that_nobody_gets_is_forgotten_for_its_own_cue_alone() {
    let rig = Rig::new();
    let hourly = |name: &str, minute: u32| {
        let schedule = json!({"type": "recurring", "cron": format!("{minute} * * * *")});
        rig.every_minute(name, json!({"schedule": schedule}))
    };
    hourly("backup", 0);
    rig.advance_to("2026-01-05T10:15:00Z");
    hourly("report", 30);
    rig.phone.react(Reaction::Status(413));
    rig.advance("PT30M");
    assert_eq!(rig.phone.count(), 2, "the failure of `report` is refused for good");
    assert_has(&rig.test(), json!({"status": "failed"}));
    rig.phone.react(Reaction::Status(200));
    rig.advance_to("2026-01-06T09:45:00Z");
    let failed = |name: &str| format!("{name} failed: {REASON}");
    assert_eq!(titles(&rig.phone)[3..], [failed("report")], "`backup` was told");
    rig.advance_to("2026-01-06T10:15:00Z");
    assert_eq!(titles(&rig.phone)[4..], [format!("backup is still failing after 1 d: {REASON}")]);
}

#[test]
fn every_failing_cue_is_told_after_a_channel_was_away_for_days() {
    let rig = Rig::with(json!({"remind_after_seconds": 0}));
    let names = ["backup", "report", "sync"];
    for (name, minute) in names.into_iter().zip([0, 20, 40]) {
        let schedule = json!({"type": "recurring", "cron": format!("{minute} * * * *")});
        rig.every_minute(name, json!({"schedule": schedule}));
    }
    rig.phone.react(Reaction::Status(503));
    rig.advance("PT72H");
    let before = rig.phone.count();
    rig.phone.react(Reaction::Status(200));
    rig.advance("PT30H");
    let told = titles(&rig.phone).split_off(before).join("\n");
    assert_contains(&told, &names);
}

#[test]
fn reminders_come_by_the_clock_and_end_with_a_pause() {
    let rig = Rig::with(json!({"remind_after_seconds": 900, "events": ["execution.failed"]}));
    let cue = rig.failing_at(YEARLY);
    let fire = || {
        rig.fire(&cue);
        rig.settle();
    };
    let after = |span: &str, count: usize, what: &str| {
        rig.advance(span);
        assert_eq!(rig.phone.count(), count, "{what}");
    };
    fire();
    after("PT1H", 5, "the cue does not run meanwhile");
    rig.change_channel(&json!({"remind_after_seconds": 3_600}));
    after("PT59M59S", 5, "a change counts from the last message");
    after("PT1S", 6, "a change counts from the last message");
    rig.change_channel(&json!({"remind_after_seconds": 0}));
    after("P7D", 6, "no reminders");
    rig.change_channel(&json!({"remind_after_seconds": 86_400}));
    after("PT1S", 7, "it is due since long");
    for status in ["paused", "active"] {
        rig.change(&cue, &json!({"status": status}));
        after("P2D", 7, status);
    }
    fire();
    assert_eq!(rig.phone.count(), 8, "the first failure after the pause is told");
    after("P1D", 9, "a reminder");
}

#[test]
fn a_once_cue_that_has_failed_is_told_once() {
    let rig = Rig::with(json!({"remind_after_seconds": 900}));
    rig.failing_at_once(1);
    rig.advance("P3D");
    assert_eq!(rig.phone.count(), 1, "it has ended: nothing can recover");
}

#[test]
fn each_channel_tells_what_it_takes_from_its_first_failure_on() {
    let rig = Rig::new();
    let [late, alerts, nas] = [(); 3].map(|()| Receiver::start());
    webhook(&rig, &alerts, json!({"events": ["alert.consecutive_failures"]}));
    let tagged = webhook(&rig, &nas, json!({"tags": ["nas"]}));
    rig.failing_at(HOURLY);
    rig.advance_to("2026-01-05T12:30:00Z");
    webhook(&rig, &late, json!({}));
    rig.patch(&path(&tagged), &json!({"tags": []})).expect(200);
    rig.advance_to("2026-01-06T13:30:00Z");
    for (receiver, hour, what) in [
        (&rig.phone, "10", "the first failure"),
        (&alerts, "12", "the third failure raises it"),
        (&late, "13", "a new channel"),
        (&nas, "13", "a channel that takes it now"),
    ] {
        let days: Vec<_> =
            fields(receiver, "created_at").iter().map(|at| at[8..13].to_owned()).collect();
        assert_eq!(days, [format!("05T{hour}"), format!("06T{hour}")], "{what}");
    }
}

#[test]
fn a_reminder_survives_a_kill_and_a_downtime_and_comes_once() {
    let mut rig = Rig::with(json!({"events": ["execution.failed"]}));
    rig.failing_at("0 10 1,5 * *");
    rig.advance_to("2026-01-05T10:30:00Z");
    assert_eq!(rig.phone.count(), 1);
    rig.kill_while_telling("P1D", "2026-01-06T10:40:00Z", |_| true);
    rig.settle();
    rig.advance("PT1H");
    let ids = fields(&rig.phone, "id");
    assert_eq!(ids.len(), 3, "{ids:?}");
    assert_eq!(ids[1], ids[2], "the message that the kill cut off");
    rig.restart_after_kill("2026-01-12T09:00:00Z");
    rig.settle();
    assert_eq!(rig.phone.count(), 4, "one for the days without a server");
}

#[test]
fn failures_in_a_row_are_mailed_once_a_day_and_runs_by_hand_always() {
    let mailbox = Mailbox::open();
    let (_server, user) = with_mail(&mailbox);
    let failing = Receiver::with(Reaction::Status(500));
    let at = |cron: &str| json!({"schedule": {"type": "recurring", "cron": cron}});
    let mailed = with(at(HOURLY), json!({"on_failure": {"email": true}}));
    let cue = every_minute(&user, &failing, "backup", mailed);
    let mails = |count: usize, what: &str| {
        (0..count).for_each(|_| assert_eq!(subject(&mailbox), "Cue backup failed", "{what}"));
        assert!(mailbox.is_empty(), "{what}");
    };
    user.advance_to("2026-01-07T12:30:00Z");
    mails(3, "at 10:00, and 23 hours later again");
    user.fire(&cue);
    user.settle();
    mails(1, "by hand");
    for status in [200, 500] {
        failing.react(Reaction::Status(status));
        user.advance("PT1H");
    }
    mails(1, "after a success");
    user.change(&cue, &at("0 3 * * *"));
    user.advance("P3D");
    mails(2, "every night, but the one within 23 hours");
}
