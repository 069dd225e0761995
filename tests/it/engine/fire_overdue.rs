//! Changes to a cue between a due instant and the pass of the scheduler.

use cued::clock::Clock;
use cued::domain::cue::CueStatus;
use cued::domain::schedule::Schedule;
use cued::engine::scheduler::pass::Scheduler;
use cued::service::plan_limits::pause_above_limit;
use serde_json::{Value, json};

use crate::support::api::{Api, User};
use crate::support::fixture::{BEGIN, Fixture};

/// A server without a scheduler, and a user.
fn behind() -> (Api, User) {
    // A manual system clock, not a test clock: time passed by a test clock is never a gap.
    let api = Api::from_fixture(Fixture::with_clock(Clock::manual(BEGIN.parse().unwrap())));
    let user = api.user("a");
    (api, user)
}

fn create(user: &User, schedule: Value) -> String {
    let cue = json!({"name": "work", "transport": "worker", "schedule": schedule});
    let created = user.post("/v1/cues", &cue);
    assert_eq!(created.status, 201, "{}", created.text());
    format!("/v1/cues/{}", created.json()["id"].as_str().unwrap())
}

/// The instant `seconds` from now, in the format of a cue.
fn in_seconds(api: &Api, seconds: i64) -> String {
    (api.fixture.now() + jiff::SignedDuration::from_secs(seconds)).to_string()
}

fn patched(user: &User, path: &str, change: &Value) -> Value {
    let changed = user.patch(path, change);
    assert_eq!(changed.status, 200, "{}", changed.text());
    changed.json()
}

/// The instants of the executions of a cue, newest first, and the counts and reasons of its missed runs.
fn accounts(user: &User, path: &str) -> (Vec<Value>, Vec<(Value, Value)>) {
    let shown = user.get(path).json();
    let missed = user.get(&format!("{path}/missed")).json();
    let column = |rows: &Value, name: &str| -> Vec<Value> {
        rows.as_array().unwrap().iter().map(|row| row[name].clone()).collect()
    };
    let reasons = column(&missed["missed"], "count").into_iter().zip(column(&missed["missed"], "reason"));
    (column(&shown["executions"], "scheduled_for"), reasons.collect())
}

#[test]
fn a_once_cue_rescheduled_after_its_instant_runs_for_both_instants() {
    let (api, user) = behind();
    let (first, second) = (in_seconds(&api, 10), in_seconds(&api, 600));
    let path = create(&user, json!({"type": "once", "at": first}));
    api.fixture.advance(11);
    let moved = patched(&user, &path, &json!({"schedule": {"at": second}}));
    assert_eq!((&moved["status"], &moved["run_count"]), (&json!("active"), &json!(1)));
    assert_eq!(moved["next_run"], second.replace('Z', "+00:00"));
    assert_eq!(accounts(&user, &path), (vec![json!(first)], vec![]));
    api.fixture.advance(600);
    Scheduler::start(&api.fixture.app).unwrap().run_once(&api.fixture.app).unwrap();
    assert_eq!(accounts(&user, &path), (vec![json!(second), json!(first)], vec![]));
}

#[test]
fn a_cue_paused_after_its_due_instant_has_run() {
    let (api, user) = behind();
    let path = create(&user, json!({"type": "recurring", "cron": "* * * * *"}));
    let due = user.get(&path).json()["next_run"].as_str().unwrap().replace("+00:00", "Z");
    api.fixture.advance(70);
    let paused = patched(&user, &path, &json!({"status": "paused"}));
    assert_eq!((&paused["next_run"], &paused["missed_count"]), (&Value::Null, &json!(0)));
    assert_eq!(accounts(&user, &path), (vec![json!(due)], vec![]));
}

#[test]
fn a_changed_cue_late_by_over_a_minute_catches_up() {
    let (api, user) = behind();
    let path = create(&user, json!({"type": "recurring", "cron": "* * * * *"}));
    api.fixture.advance(5 * 60 + 30);
    let changed = patched(&user, &path, &json!({"schedule": {"cron": "0 0 1 1 *"}}));
    assert_eq!((&changed["run_count"], &changed["missed_count"]), (&json!(1), &json!(4)));
    let (runs, missed) = accounts(&user, &path);
    assert_eq!((runs.len(), missed), (1, vec![(json!(4), json!("clock"))]));
}

#[test]
fn a_patch_without_a_schedule_leaves_the_due_run_to_the_scheduler() {
    let (api, user) = behind();
    let path = create(&user, json!({"type": "once", "at": in_seconds(&api, 10)}));
    api.fixture.advance(11);
    patched(&user, &path, &json!({"name": "renamed"}));
    assert_eq!(accounts(&user, &path), (vec![], vec![]));
    let fired = Scheduler::start(&api.fixture.app).unwrap().run_once(&api.fixture.app).unwrap();
    assert_eq!(fired.executions, 1);
}

#[test]
fn a_patch_fires_nothing_while_the_clock_is_behind_the_file() {
    let (api, user) = behind();
    let path = create(&user, json!({"type": "recurring", "cron": "* * * * *"}));
    api.fixture.app.engine_stats.record_last_seen(api.fixture.now() + jiff::SignedDuration::from_hours(1));
    api.fixture.advance(70);
    let paused = patched(&user, &path, &json!({"status": "paused"}));
    assert_eq!((&paused["run_count"], &paused["missed_count"]), (&json!(0), &json!(1)));
}

#[test]
fn a_due_run_fires_before_on_failure_pauses_its_cue() {
    let (api, user) = behind();
    let cue = json!({
        "name": "work", "transport": "worker", "schedule": {"type": "recurring", "cron": "* * * * *"},
        "on_failure": {"email": false, "pause": true},
    });
    let created = user.post("/v1/cues", &cue).json();
    let path = format!("/v1/cues/{}", created["id"].as_str().unwrap());
    let due = created["next_run"].as_str().unwrap().replace("+00:00", "Z");
    let fired = user.post(&format!("{path}/fire"), &json!({})).json();
    api.fixture.advance(70);
    let outcome = format!("/v1/executions/{}/outcome", fired["id"].as_str().unwrap());
    assert_eq!(user.post(&outcome, &json!({"success": false})).status, 200);
    let paused = user.get(&path).json();
    assert_eq!((&paused["status"], &paused["missed_count"]), (&json!("paused"), &json!(0)));
    let (runs, missed) = accounts(&user, &path);
    assert!(runs.contains(&json!(due)), "{runs:?}");
    assert_eq!(missed, []);
}

#[test]
fn a_once_cue_that_is_due_runs_although_a_smaller_plan_pauses_the_others() {
    let fixture = Fixture::with_clock(Clock::manual(BEGIN.parse().unwrap()));
    let user = fixture.user("u");
    let at = (fixture.now() + jiff::SignedDuration::from_secs(10)).to_string();
    let once = fixture.worker_cue(user, |new| new.schedule = Schedule::once(&at, "UTC").unwrap());
    let recurring = fixture.worker_cue(user, |_| ());
    fixture.advance(11);
    let now = fixture.now();
    let pause = fixture.app.store.write(move |tx| pause_above_limit(tx, user, Some(0), now));
    assert_eq!(pause.wait().unwrap(), 1);
    assert_eq!(fixture.cue(recurring.key).status, CueStatus::Paused);
    let fired = Scheduler::start(&fixture.app).unwrap().run_once(&fixture.app).unwrap();
    assert_eq!((fired.executions, fixture.cue(once.key).run_count), (1, 1));
}
