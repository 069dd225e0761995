//! The scheduler: due cues, and executions that are overdue at a start.

use cued::clock::Clock;
use cued::domain::cue::{CueRequest, CueStatus, RequestedStatus, ScheduleSpec};
use cued::domain::row_keys::CueKey;
use cued::domain::schedule::{CatchUp, Schedule};
use cued::engine::scheduler::Scheduler;
use cued::service::cues::update;
use cued::service::deadlines;
use cued::service::finish::pause_above_limit;
use cued::store::ReadTx;
use cued::store::cues::due_cues::{self, MissedRuns};
use cued::store::executions::execution_list;

use crate::support::*;

const NOON: &str = "2026-03-01T12:00:00Z";

fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

/// A fixture with a clock that can jump, and the key of an hourly cue created at `start`.
fn adrift(start: &str, catch_up: CatchUp) -> (Fixture, CueKey) {
    let fixture = Fixture::with_clock(Clock::manual(at(start)));
    let user = fixture.user("u");
    let cue = fixture.worker_cue(user, |new| {
        new.schedule = (&Schedule::recurring("0 * * * *", "UTC", catch_up).unwrap()).into();
    });
    (fixture, cue.key)
}

/// The instants of the executions of a cue, oldest first.
fn runs(fixture: &Fixture, cue_key: CueKey) -> Vec<String> {
    let (page, total) =
        fixture.read(move |read| execution_list::list_by_cue(read, cue_key, 100, 0));
    assert_eq!(usize::try_from(total).unwrap(), page.len());
    page.iter().rev().map(|listed| listed.execution.scheduled_for.to_string()).collect()
}

fn missed(fixture: &Fixture, cue_key: CueKey) -> Vec<MissedRuns> {
    fixture.read(move |read| due_cues::list_missed(read, cue_key, 100, 0)).0
}

#[test]
fn a_late_server_runs_every_instant_in_order() {
    // On a test clock, time passes without a pass and without a jump.
    let fixture = Fixture::new();
    let user = fixture.user("u");
    let cue = fixture.worker_cue(user, |_| ()).key;
    let mut scheduler = Scheduler::start(&fixture.app).unwrap();
    fixture.advance(3 * 3_600);
    let fired = scheduler.run_once(&fixture.app).unwrap();
    assert_eq!(
        runs(&fixture, cue),
        ["2026-01-01T11:00:00Z", "2026-01-01T12:00:00Z", "2026-01-01T13:00:00Z"]
    );
    assert_eq!(fired.executions, 3);
    assert_eq!(missed(&fixture, cue), []);
}

#[test]
fn a_clock_set_back_between_the_start_and_the_first_pass_fires_no_run_before_its_time() {
    let (fixture, cue) = adrift(NOON, CatchUp::Latest);
    // The clock is wrong at the start, and corrected before the first pass.
    fixture.advance(3 * 3_600 + 60);
    let mut scheduler = Scheduler::start(&fixture.app).unwrap();
    fixture.advance(-3_600);
    scheduler.run_once(&fixture.app).unwrap();
    assert_eq!(runs(&fixture, cue), ["2026-03-01T14:00:00Z"]);
    fixture.advance(3_600);
    scheduler.run_once(&fixture.app).unwrap();
    assert_eq!(runs(&fixture, cue), ["2026-03-01T14:00:00Z", "2026-03-01T15:00:00Z"]);
}

#[test]
fn a_forward_jump_fires_the_newest_run_and_records_the_others_as_missed() {
    let (fixture, cue) = adrift(NOON, CatchUp::Latest);
    let mut scheduler = Scheduler::start(&fixture.app).unwrap();
    fixture.advance(12 * 3_600 + 60);
    scheduler.run_once(&fixture.app).unwrap();
    assert_eq!(runs(&fixture, cue), ["2026-03-02T00:00:00Z"]);
    let row = MissedRuns {
        first: at("2026-03-01T13:00:00Z"),
        last: at("2026-03-01T23:00:00Z"),
        count: 11,
        reason: "clock".to_owned(),
    };
    assert_eq!(missed(&fixture, cue), [row]);
    assert_eq!(fixture.cue(cue).missed_count, 11);
}

#[test]
fn nothing_fires_while_the_clock_is_before_the_last_seen_instant() {
    let (fixture, cue) = adrift(NOON, CatchUp::Latest);
    let mut scheduler = Scheduler::start(&fixture.app).unwrap();
    fixture.advance(59);
    scheduler.run_once(&fixture.app).unwrap();
    fixture.app.clock.set(at("2026-03-01T00:00:30Z"));
    scheduler.run_once(&fixture.app).unwrap();
    // A cue created while the clock is wrong is due at 01:00 by that clock, and must wait as well.
    let user = fixture.user("v");
    let early = fixture.worker_cue(user, |_| ());
    assert_eq!(early.next_run, Some(at("2026-03-01T01:00:00Z")));
    fixture.app.clock.set(at("2026-03-01T01:00:00Z"));
    assert_eq!(scheduler.run_once(&fixture.app).unwrap().cues, 0);
    let seen = fixture.app.engine_stats.last_seen();
    let next = fixture.app.store.read_blocking(|read| deadlines::next(read, seen, seen)).unwrap();
    assert_eq!(next, Some(at("2026-03-01T12:00:59Z")));
    assert_eq!(runs(&fixture, cue), [""; 0]);
    fixture.app.clock.set(at("2026-03-01T13:00:00Z"));
    scheduler.run_once(&fixture.app).unwrap();
    assert_eq!(runs(&fixture, cue), ["2026-03-01T13:00:00Z"]);
}

#[test]
fn a_machine_that_boots_in_1970_waits_for_its_clock_and_then_catches_up() {
    let (fixture, cue) = adrift(NOON, CatchUp::None);
    Scheduler::start(&fixture.app).unwrap();
    fixture.app.clock.set(at("1970-01-01T00:00:05Z"));
    let mut scheduler = Scheduler::start(&fixture.app).unwrap();
    assert_eq!(scheduler.run_once(&fixture.app).unwrap().cues, 0);
    fixture.app.clock.set(at("2026-03-01T14:30:00Z"));
    scheduler.run_once(&fixture.app).unwrap();
    assert_eq!(runs(&fixture, cue), [""; 0]);
    assert_eq!(missed(&fixture, cue)[0].count, 2);
}

#[test]
fn a_cue_with_an_unusable_schedule_fails_with_its_reason_and_alone() {
    let (fixture, cue) = adrift(NOON, CatchUp::Latest);
    let user = fixture.user("v");
    let sound = fixture.worker_cue(user, |_| ());
    let spoil = fixture.app.store.write(move |tx| {
        Ok(tx.execute("UPDATE cues SET timezone = 'Mars/Olympus' WHERE key = ?1", [cue])?)
    });
    spoil.wait().unwrap();
    let mut scheduler = Scheduler::start(&fixture.app).unwrap();
    fixture.advance(3_600);
    scheduler.run_once(&fixture.app).unwrap();
    assert_eq!(runs(&fixture, sound.key), ["2026-03-01T13:00:00Z"]);
    let failed = fixture.cue(cue);
    assert_eq!((failed.status, failed.next_run), (CueStatus::Failed, None));
    assert!(failed.warning.unwrap().contains("Mars/Olympus"));
}

#[test]
fn a_changed_schedule_starts_now_in_its_own_zone() {
    let (fixture, key) = adrift(NOON, CatchUp::Latest);
    let mut cue = fixture.cue(key);
    let mut request = CueRequest { fields: cue.fields.clone(), ..CueRequest::default() };
    request.fields.schedule.timezone = "Asia/Kathmandu".to_owned();
    cue.apply(&request, fixture.now()).unwrap();
    // Kathmandu is 5 hours 45 minutes ahead.
    assert_eq!(cue.next_run, Some(at("2026-03-01T12:15:00Z")));
}

#[test]
fn the_only_cue_of_an_account_fires_in_the_first_batch_of_a_crowd_of_another() {
    let fixture = Fixture::new();
    let (many, one) = (fixture.user("many"), fixture.user("one"));
    let mut scheduler = Scheduler::start(&fixture.app).unwrap();
    let crowd: Vec<CueKey> = (0..600).map(|_| fixture.worker_cue(many, |_| ()).key).collect();
    let late = fixture.worker_cue(one, |new| {
        new.schedule = (&Schedule::once(&after_begin(3_601).to_string(), "UTC").unwrap()).into();
    });
    fixture.advance(3_601);
    let fired = scheduler.run_once(&fixture.app).unwrap();
    assert_eq!((fired.cues, fired.executions), (601, 601));
    let order = |read: &ReadTx<'_>| -> Vec<CueKey> {
        let mut all = read.prepare("SELECT cue_key FROM executions ORDER BY key").unwrap();
        all.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect()
    };
    let order = fixture.read(move |read| Ok(order(read)));
    assert!(order[..500].contains(&late.key), "the first batch has none of {}", late.key);
    assert_eq!(order.iter().filter(|key| crowd.contains(key)).count(), 600);
}

#[test]
fn the_queries_of_a_pass_use_an_index_and_never_scan() {
    let (fixture, _) = adrift(NOON, CatchUp::Latest);
    let plan = |sql: &'static str| -> Vec<String> {
        let read = fixture.app.store.read(move |read| {
            let mut statement = read.prepare(&format!("EXPLAIN QUERY PLAN {sql}"))?;
            let mut rows = statement.raw_query();
            let mut steps = Vec::new();
            while let Some(row) = rows.next()? {
                steps.push(row.get(3)?);
            }
            Ok(steps)
        });
        read.wait().unwrap()
    };
    for (sql, index) in [
        (due_cues::LIST, "USING INDEX cues_due"),
        (due_cues::NEXT, "USING COVERING INDEX cues_due"),
        (due_cues::BACKLOG, "USING COVERING INDEX cues_due"),
    ] {
        let steps = plan(sql);
        assert!(steps.iter().any(|step| step.contains(index)), "{sql}: {steps:?}");
        assert!(
            !steps.iter().any(|step| step.starts_with("SCAN") && !step.contains("INDEX")),
            "{sql}: {steps:?}"
        );
        assert!(!steps.iter().any(|step| step.contains("TEMP B-TREE")), "{sql}: {steps:?}");
    }
}

#[test]
fn a_due_run_fires_before_a_patch_applies() {
    let changes: [fn(&mut CueRequest); 3] = [
        |request| request.status = Some(RequestedStatus::Paused),
        |request| {
            request.fields.schedule.when = ScheduleSpec::Recurring("0 9 * * *".to_owned());
        },
        |request| request.fields.name = "another".to_owned(),
    ];
    for change in changes {
        let fixture = Fixture::new();
        let user = fixture.user("u");
        let cue = fixture.worker_cue(user, |_| ());
        let mut scheduler = Scheduler::start(&fixture.app).unwrap();
        fixture.advance(2 * 3_600);
        let caller = fixture.caller(user);
        let mut request = CueRequest { fields: cue.fields.clone(), ..CueRequest::default() };
        change(&mut request);
        let key = cue.key;
        let changed = update(&fixture.app, &caller, cue, request).wait().unwrap().unwrap();
        assert_eq!(changed.cue.missed_count, 0);
        scheduler.run_once(&fixture.app).unwrap();
        assert_eq!((missed(&fixture, key).len(), fixture.cue(key).missed_count), (0, 0));
        assert_eq!(runs(&fixture, key).len(), 2);
    }
}

#[test]
fn runs_due_while_the_clock_was_behind_catch_up_later() {
    let (fixture, _) = adrift(NOON, CatchUp::Latest);
    let mut scheduler = Scheduler::start(&fixture.app).unwrap();
    scheduler.run_once(&fixture.app).unwrap();
    fixture.app.clock.set(at("2026-03-01T09:30:10Z"));
    scheduler.run_once(&fixture.app).unwrap();
    let user = fixture.user("v");
    let cue = fixture.worker_cue(user, |new| {
        new.schedule =
            (&Schedule::recurring("*/10 * * * *", "UTC", CatchUp::Latest).unwrap()).into();
    });
    // Steps of less than a minute, as of a running clock: no jump.
    while fixture.now() < at("2026-03-01T12:00:20Z") {
        fixture.advance(50);
        scheduler.run_once(&fixture.app).unwrap();
    }
    assert_eq!(runs(&fixture, cue.key), ["2026-03-01T12:00:00Z"]);
    let rows = missed(&fixture, cue.key);
    assert_eq!((rows.len(), rows[0].count, rows[0].reason.as_str()), (1, 14, "clock"));
}

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
    format!("/v1/cues/{}", created.json().text("id"))
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
    let reasons =
        column(&missed["missed"], "count").into_iter().zip(column(&missed["missed"], "reason"));
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
    let due = user.get(&path).json().text("next_run").replace("+00:00", "Z");
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
    api.fixture
        .app
        .engine_stats
        .record_last_seen(api.fixture.now() + jiff::SignedDuration::from_hours(1));
    api.fixture.advance(70);
    let paused = patched(&user, &path, &json!({"status": "paused"}));
    assert_eq!((&paused["run_count"], &paused["missed_count"]), (&json!(0), &json!(1)));
}

#[test]
fn a_due_run_fires_before_on_failure_pauses_its_cue() {
    let (api, user) = behind();
    let pausing = json!({"on_failure": {"email": false, "pause": true}});
    let cue = with(worker_cue("work", "* * * * *"), pausing);
    let created = user.post("/v1/cues", &cue).json();
    let path = format!("/v1/cues/{}", id(&created));
    let due = created.text("next_run").replace("+00:00", "Z");
    let fired = user.post(&format!("{path}/fire"), &json!({})).json();
    api.fixture.advance(70);
    let outcome = format!("/v1/executions/{}/outcome", id(&fired));
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
    let once = fixture
        .worker_cue(user, |new| new.schedule = (&Schedule::once(&at, "UTC").unwrap()).into());
    let recurring = fixture.worker_cue(user, |_| ());
    fixture.advance(11);
    let now = fixture.now();
    let pause = fixture.app.store.write(move |tx| pause_above_limit(tx, user, Some(0), now));
    assert_eq!(pause.wait().unwrap(), 1);
    assert_eq!(fixture.cue(recurring.key).status, CueStatus::Paused);
    let fired = Scheduler::start(&fixture.app).unwrap().run_once(&fixture.app).unwrap();
    assert_eq!((fired.executions, fixture.cue(once.key).run_count), (1, 1));
}

#[test]
fn runs_due_in_over_a_minute_of_a_full_disk_were_missed() {
    let (fixture, _) = adrift(NOON, CatchUp::Latest);
    let user = fixture.user("v");
    let cues = [CatchUp::None, CatchUp::Latest].map(|catch_up| {
        let minutely = Schedule::recurring("* * * * *", "UTC", catch_up).unwrap();
        fixture.worker_cue(user, |new| new.schedule = (&minutely).into()).key
    });
    let mut scheduler = Scheduler::start(&fixture.app).unwrap();
    scheduler.run_once(&fixture.app).unwrap();
    let is_full = fixture.refuse_commits();
    for _ in 0..13 {
        fixture.app.clock.elapse(Duration::from_secs(10));
        assert_eq!(
            scheduler.run_once(&fixture.app).is_err(),
            fixture.now() >= at("2026-03-01T12:01:00Z")
        );
    }
    is_full.store(false, Ordering::SeqCst);
    scheduler.run_once(&fixture.app).unwrap();
    assert_eq!(
        cues.map(|cue| runs(&fixture, cue)),
        [vec![], vec!["2026-03-01T12:02:00Z".to_owned()]]
    );
    for (cue, count, last) in
        [(cues[0], 2, "2026-03-01T12:02:00Z"), (cues[1], 1, "2026-03-01T12:01:00Z")]
    {
        let row = MissedRuns {
            first: at("2026-03-01T12:01:00Z"),
            last: at(last),
            count,
            reason: "downtime".to_owned(),
        };
        assert_eq!(missed(&fixture, cue), [row]);
    }
}
