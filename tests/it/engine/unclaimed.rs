//! Executions that no worker claims: alerts about them, and their end after the time of their cue.

use cued::clock::Clock;
use cued::domain::cue::{Cue, CueStatus};
use cued::domain::execution::ExecutionStatus;
use cued::domain::execution::worker::workers_return_by;
use cued::domain::ids::ExecutionId;
use cued::domain::notification::alert::{Alert, AlertType};
use cued::domain::row_keys::{CueKey, UserKey};
use cued::domain::schedule::Schedule;
use cued::engine::scheduler::Scheduler;
use cued::engine::scheduler::reaper::{follow_changes, look_for_unclaimed, release_expired_claims};
use cued::service::deadlines::next_check;
use cued::store::cues;
use cued::store::executions::{claims, policies};

use crate::support::*;

/// Looks at everything that is due; returns the number of batches.
fn look(fixture: &Fixture) -> usize {
    let mut batches = 1;
    while look_for_unclaimed(&fixture.app, fixture.now()).unwrap() {
        batches += 1;
    }
    batches
}

fn next_look(fixture: &Fixture) -> Option<Timestamp> {
    let from = workers_return_by(fixture.app.outage());
    fixture.app.store.read_blocking(|read| next_check(read, from)).unwrap()
}

fn look_after(fixture: &Fixture, seconds: i64) {
    fixture.app.clock.set(after_begin(seconds));
    look(fixture);
}

/// The alerts of the user about unclaimed executions, newest first.
fn unclaimed_alerts(fixture: &Fixture, user: UserKey) -> Vec<Alert> {
    let is_one = |alert: &Alert| alert.alert_type == AlertType::Unclaimed;
    fixture.alerts(user).into_iter().filter(is_one).collect()
}

fn raised(fixture: &Fixture, user: UserKey) -> Vec<Timestamp> {
    fixture.alerts(user).iter().rev().map(|alert| alert.created_at).collect()
}

fn state(fixture: &Fixture, user: UserKey, id: ExecutionId) -> (ExecutionStatus, Option<String>) {
    let execution = fixture.execution(user, id).execution;
    (execution.status, execution.error_message)
}

const FAILED: ExecutionStatus = ExecutionStatus::Failed;

fn not_in_time() -> (ExecutionStatus, Option<String>) {
    (FAILED, Some("not claimed in time".to_owned()))
}

fn within(fixture: &Fixture, user: UserKey, minutes: u32) -> Cue {
    fixture.worker_cue(user, |new| new.policies.claim_within_minutes = Some(minutes))
}

#[test]
fn a_failure_for_want_of_a_claim_has_the_consequences_of_any_other() {
    let fixture = Fixture::new();
    let user = fixture.user("ada");
    let once = fixture.worker_cue(user, |new| {
        new.schedule = (&Schedule::once("2026-01-01T10:00:01Z", "UTC").unwrap()).into();
        new.policies.claim_within_minutes = Some(15);
    });
    let pausing = fixture.worker_cue(user, |new| {
        new.policies.claim_within_minutes = Some(15);
        new.on_failure.pause = true;
        new.schedule =
            (&Schedule::recurring("0 0 1 1 *", "UTC", Default::default()).unwrap()).into();
    });
    fixture.runs(&pausing, (0..3).map(|_| json!({})));
    fixture.app.clock.set(after_begin(1));
    Scheduler::start(&fixture.app).unwrap().run_once(&fixture.app).unwrap();
    look_after(&fixture, 901);
    assert_eq!(fixture.cue(once.key).status, CueStatus::Failed);
    assert_eq!(fixture.cue(pausing.key).status, CueStatus::Paused);
    let kinds: Vec<_> = fixture.alerts(user).iter().map(|it| it.alert_type.as_str()).collect();
    // Three in a row, and none about the wait that has ended.
    assert_eq!(kinds, ["consecutive_failures"]);
}

#[test]
fn a_claim_ends_the_wait_and_a_lost_claim_begins_another() {
    let fixture = Fixture::new();
    let user = fixture.user("ada");
    let cue = within(&fixture, user, 20);
    let id = fixture.run(&cue, json!({}));
    fixture.advance(600);
    fixture.claim(user, id, "w1");
    assert_eq!(next_look(&fixture), None);
    look_after(&fixture, 1_200);
    assert_eq!(fixture.alerts(user), []);
    fixture.app.clock.set(after_begin(1_500));
    assert_eq!(release_expired_claims(&fixture.app, fixture.now()).unwrap().released, 1);
    assert_eq!(next_look(&fixture), Some(after_begin(2_400)));
    look_after(&fixture, 2_699);
    let kinds: Vec<_> = fixture.alerts(user).iter().map(|it| it.alert_type.as_str()).collect();
    assert_eq!(kinds, ["unclaimed", "claim_lost"]);
    assert_eq!(state(&fixture, user, id).0, ExecutionStatus::Pending);
    look_after(&fixture, 2_700);
    assert_eq!(state(&fixture, user, id), not_in_time());
}

#[test]
fn a_cue_gets_one_alert_an_hour_about_later_executions() {
    let fixture = Fixture::new();
    let user = fixture.user("ada");
    let (cue, other) = (fixture.worker_cue(user, |_| ()), fixture.worker_cue(user, |_| ()));
    for minute in 0..180 {
        fixture.app.clock.set(after_begin(minute * 60));
        look(&fixture);
        fixture.run(&cue, json!({}));
    }
    let at = |minutes: i64| after_begin(minutes * 60);
    assert_eq!(raised(&fixture, user), [at(15), at(75), at(135)]);
    assert!(
        fixture.alerts(user)[2].message.ends_with("; 15 are waiting"),
        "{:?}",
        fixture.alerts(user)[2]
    );
    assert!(fixture.alerts(user)[0].message.ends_with("; 100 or more are waiting"));
    fixture.run(&other, json!({}));
    look_after(&fixture, 194 * 60);
    assert_eq!(raised(&fixture, user).last(), Some(&at(194)), "of another cue");
    look_after(&fixture, 1_000 * 60);
    assert_eq!(raised(&fixture, user)[4..], [at(1_000)], "those that came after the third");
}

#[test]
fn hourly_executions_get_an_alert_each_whatever_the_delay_of_the_scheduler() {
    let fixture = Fixture::new();
    let user = fixture.user("ada");
    let cue = fixture.worker_cue(user, |_| ());
    let late =
        |hour: i64, millis: i64| after_begin(hour * 3_600) + SignedDuration::from_millis(millis);
    for (hour, millis) in [(0, 40), (1, 5), (2, 60), (3, 0)] {
        fixture.app.clock.set(late(hour, millis));
        fixture.run(&cue, json!({}));
        while let Some(next) = next_look(&fixture) {
            fixture.app.clock.set(next);
            look(&fixture);
        }
    }
    assert_eq!(fixture.alerts(user).len(), 4);
}

#[test]
fn ten_thousand_unclaimed_executions_are_handled_in_bounded_batches() {
    let fixture = Fixture::new();
    let user = fixture.user("ada");
    let (cue, failing) = (fixture.worker_cue(user, |_| ()), within(&fixture, user, 15));
    for cue in [&cue, &failing] {
        fixture.runs(cue, (0..5_000).map(|_| json!({})));
    }
    fixture.app.clock.set(after_begin(900));
    assert_eq!(look(&fixture), 51, "200 in a write");
    let unclaimed =
        fixture.alerts(user).iter().filter(|it| it.alert_type.as_str() == "unclaimed").count();
    assert_eq!(unclaimed, 1, "for the cue that lets its executions wait");
    let waiting = fixture.app.store.read(move |read| claims::count_waiting(read, cue.key, 10_000));
    let left = fixture.app.store.read(move |read| claims::count_waiting(read, failing.key, 10_000));
    assert_eq!((waiting.wait().unwrap(), left.wait().unwrap()), (5_000, 0));
    assert_eq!(next_look(&fixture), None);
}

/// Changes the time of a cue as a request does.
fn change_time(fixture: &Fixture, cue: &Cue, minutes: Option<u32>) {
    let mut changed = fixture.cue(cue.key);
    changed.fields.policies.claim_within_minutes = minutes;
    let saved = fixture.app.store.write(move |tx| {
        cues::save(tx, &changed)?;
        policies::follow_change(tx, changed.key)
    });
    saved.wait().unwrap();
}

#[test]
fn a_changed_time_for_claims_applies_in_parts_that_outlast_a_restart() {
    let fixture = Fixture::new();
    let user = fixture.user("ada");
    let (cue, other) = (fixture.worker_cue(user, |_| ()), fixture.worker_cue(user, |_| ()));
    for _ in 0..5 {
        fixture.runs(&cue, (0..500).map(|_| json!({})));
        fixture.run(&other, json!({}));
    }
    look_after(&fixture, 1_800);
    assert_eq!(next_look(&fixture), None);
    change_time(&fixture, &cue, Some(30));
    let waiting = |fixture: &Fixture, key: CueKey| {
        let count = fixture.app.store.read(move |read| claims::count_waiting(read, key, 10_000));
        count.wait().unwrap()
    };
    // The newest 1,000 are due, 200 in a write.
    (0..3).for_each(|_| assert!(look_for_unclaimed(&fixture.app, fixture.now()).unwrap()));
    assert_eq!(waiting(&fixture, cue.key), 2_500 - 600);
    let fixture = fixture.restart();
    fixture.app.clock.set(after_begin(1_900));
    assert_eq!(look(&fixture), 3, "the rest of the first part");
    for has_more in [true, true, false] {
        assert_eq!(follow_changes(&fixture.app).unwrap(), has_more);
    }
    look(&fixture);
    assert_eq!((waiting(&fixture, cue.key), waiting(&fixture, other.key)), (0, 5));
    assert_eq!(next_look(&fixture), None);
}

#[test]
fn workers_have_a_minute_to_come_back_after_an_outage() {
    let fixture = Fixture::with_clock(Clock::manual(BEGIN.parse().unwrap()));
    let user = fixture.user("ada");
    let (cue, failing) = (fixture.worker_cue(user, |_| ()), within(&fixture, user, 5));
    let (alerted, failed) = (fixture.run(&cue, json!({})), fixture.run(&failing, json!({})));
    // The process was away for two days.
    fixture.app.clock.set(after_begin(200_000));
    fixture.app.clock.accept();
    Scheduler::start(&fixture.app).unwrap().run_once(&fixture.app).unwrap();
    let from = next_look(&fixture).unwrap();
    assert_eq!(from, after_begin(200_060) - SignedDuration::from_millis(1));
    look_after(&fixture, 200_059);
    assert_eq!(
        (unclaimed_alerts(&fixture, user).len(), state(&fixture, user, failed).0),
        (0, ExecutionStatus::Pending)
    );
    look_after(&fixture, 200_060);
    let about: Vec<_> = unclaimed_alerts(&fixture, user).iter().map(|it| it.execution_id).collect();
    assert_eq!((about, state(&fixture, user, failed)), (vec![Some(alerted)], not_in_time()));
}

#[test]
fn an_account_with_a_thousand_alerts_within_the_hour_gets_no_further_ones() {
    let fixture = Fixture::new();
    let user = fixture.user("ada");
    for _ in 0..1_005 {
        fixture.run(&fixture.worker_cue(user, |_| ()), json!({}));
    }
    let raised = || -> i64 {
        let count = "SELECT count(*) FROM alerts";
        fixture.read(move |read| Ok(read.query_row(count, [], |row| row.get(0))?))
    };
    look_after(&fixture, 900);
    // Older ones are deleted, and with them the memory of when their cues had one.
    assert_eq!(raised(), 1_000);
    look_after(&fixture, 4_499);
    assert_eq!(fixture.alerts(user)[0].created_at, after_begin(900));
    look_after(&fixture, 4_500);
    let newest = fixture.alerts(user);
    assert_eq!(newest.iter().filter(|it| it.created_at == after_begin(4_500)).count(), 5);
}

#[test]
fn executions_of_a_deleted_cue_and_of_a_disabled_account_are_left_alone() {
    let fixture = Fixture::new();
    let (ada, bob) = (fixture.user("ada"), fixture.user("bob"));
    let gone = within(&fixture, ada, 5);
    fixture.run(&gone, json!({}));
    fixture.run(&fixture.worker_cue(bob, |_| ()), json!({}));
    fixture.sql("UPDATE users SET disabled_at = 1 WHERE id = 'bob'");
    let key = gone.key;
    fixture.sql(&format!(
        "INSERT INTO deleted_cues SELECT key, user_key FROM cues WHERE key = {key}; DELETE FROM cues WHERE key = {key}"
    ));
    look_after(&fixture, 900);
    assert_eq!((fixture.alerts(ada).len(), fixture.alerts(bob).len()), (0, 0));
    assert_eq!(next_look(&fixture), None);
}
