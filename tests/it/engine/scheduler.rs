//! Passes of the scheduler on a manual clock: gaps, jumps, unusable rows, and the query plans.

use cued::app::App;
use cued::clock::Clock;
use cued::config::Config;
use cued::domain::account::plan::PlanLimits;
use cued::domain::account::user::{Caller, Credential};
use cued::domain::cue::CueStatus;
use cued::domain::cue::patch::{CuePatch, RequestedStatus, SchedulePatch};
use cued::domain::schedule::{CatchUp, Schedule};
use cued::engine::scheduler::pass::Scheduler;
use cued::service::cues::update;
use cued::store::ReadTx;
use cued::store::cues::due_cues;
use cued::store::cues::due_cues::MissedRuns;
use cued::store::executions::execution_list;
use jiff::Timestamp;

use crate::support::fixture::{Fixture, after_begin};

const NOON: &str = "2026-03-01T12:00:00Z";

fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

/// A fixture with a clock that can jump, and the key of an hourly cue created at `start`.
fn adrift(start: &str, catch_up: CatchUp) -> (Fixture, i64) {
    let fixture = Fixture::with_clock(Clock::manual(at(start)));
    let user = fixture.user("u");
    let cue = fixture.worker_cue(user, |new| {
        new.schedule = Schedule::recurring("0 * * * *", "UTC", catch_up).unwrap();
    });
    (fixture, cue.key)
}

/// The instants of the executions of a cue, oldest first.
fn runs(fixture: &Fixture, cue_key: i64) -> Vec<String> {
    let (page, total) = fixture
        .app
        .store
        .read(move |read| execution_list::list_by_cue(read, cue_key, 100, 0))
        .wait()
        .unwrap();
    assert_eq!(usize::try_from(total).unwrap(), page.len());
    page.iter().rev().map(|listed| listed.execution.scheduled_for.to_string()).collect()
}

fn missed(fixture: &Fixture, cue_key: i64) -> Vec<MissedRuns> {
    fixture.app.store.read(move |read| due_cues::list_missed(read, cue_key, 100, 0)).wait().unwrap().0
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
    assert_eq!(runs(&fixture, cue), ["2026-01-01T11:00:00Z", "2026-01-01T12:00:00Z", "2026-01-01T13:00:00Z"]);
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
    assert_eq!(scheduler.deadline(&fixture.app).unwrap(), Some(at("2026-03-01T12:00:59Z")));
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
    let spoil = fixture
        .app
        .store
        .write(move |tx| Ok(tx.execute("UPDATE cues SET timezone = 'Mars/Olympus' WHERE key = ?1", [cue])?));
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
fn fired_executions_count_in_the_month_of_the_user() {
    let (fixture, _) = adrift(NOON, CatchUp::Latest);
    let mut scheduler = Scheduler::start(&fixture.app).unwrap();
    fixture.advance(3_600);
    scheduler.run_once(&fixture.app).unwrap();
    let executions: i64 = fixture
        .app
        .store
        .read(|read| Ok(read.query_row("SELECT executions FROM monthly_usage", [], |row| row.get(0))?))
        .wait()
        .unwrap();
    assert_eq!(executions, 1);
}

#[test]
fn an_idle_pass_writes_nothing() {
    let (fixture, _) = adrift(NOON, CatchUp::Latest);
    let mut scheduler = Scheduler::start(&fixture.app).unwrap();
    let changes = || {
        let count =
            fixture.app.store.write(|tx| Ok(tx.query_row("SELECT total_changes()", [], |row| row.get(0))?));
        count.wait().unwrap()
    };
    let before: i64 = changes();
    fixture.advance(30);
    scheduler.run_once(&fixture.app).unwrap();
    assert_eq!(changes(), before);
}

#[test]
fn a_changed_schedule_starts_now_in_its_own_zone() {
    let (fixture, key) = adrift(NOON, CatchUp::Latest);
    let mut cue = fixture.cue(key);
    let schedule = SchedulePatch { timezone: Some("Asia/Kathmandu".to_owned()), ..SchedulePatch::default() };
    cue.apply(&CuePatch { schedule, ..CuePatch::default() }, fixture.now()).unwrap();
    // Kathmandu is 5 hours 45 minutes ahead.
    assert_eq!(cue.next_run, Some(at("2026-03-01T12:15:00Z")));
}

#[test]
fn the_only_cue_of_an_account_fires_in_the_first_batch_of_a_crowd_of_another() {
    let fixture = Fixture::new();
    let (many, one) = (fixture.user("many"), fixture.user("one"));
    let mut scheduler = Scheduler::start(&fixture.app).unwrap();
    let crowd: Vec<i64> = (0..600).map(|_| fixture.worker_cue(many, |_| ()).key).collect();
    let late = fixture.worker_cue(one, |new| {
        new.schedule = Schedule::once(&after_begin(3_601).to_string(), "UTC").unwrap();
    });
    fixture.advance(3_601);
    let fired = scheduler.run_once(&fixture.app).unwrap();
    assert_eq!((fired.cues, fired.executions), (601, 601));
    let order = |read: &ReadTx<'_>| -> Vec<i64> {
        let mut all = read.prepare("SELECT cue_key FROM executions ORDER BY key").unwrap();
        all.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect()
    };
    let order = fixture.app.store.read(move |read| Ok(order(read))).wait().unwrap();
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
fn a_restart_fires_due_runs_and_records_why_others_were_missed() {
    let folder = tempfile::tempdir().unwrap();
    let open =
        |now: &str| App::open(Clock::manual(at(now)), Config::new(folder.path().join("cued.db"))).unwrap();
    let key = {
        let fixture = Fixture::from_app(open(NOON));
        let user = fixture.user("u");
        fixture.worker_cue(user, |_| ()).key
    };
    let fixture = Fixture::from_app(open("2026-03-01T15:30:00Z"));
    Scheduler::start(&fixture.app).unwrap().run_once(&fixture.app).unwrap();
    assert_eq!(runs(&fixture, key), ["2026-03-01T15:00:00Z"]);
    let rows = missed(&fixture, key);
    assert_eq!((rows.len(), rows[0].count, rows[0].reason.as_str()), (1, 2, "downtime"));
    assert_eq!(fixture.cue(key).next_run, Some(at("2026-03-01T16:00:00Z")));
    assert_eq!(fixture.cue(key).last_run, Some(fixture.now()));
}

#[test]
fn a_due_run_fires_before_a_patch_applies() {
    let at_nine = SchedulePatch { cron: Some("0 9 * * *".to_owned()), ..SchedulePatch::default() };
    let paused = CuePatch { status: Some(RequestedStatus::Paused), ..CuePatch::default() };
    let moved = CuePatch { schedule: at_nine, ..CuePatch::default() };
    let named = CuePatch { name: Some("another".to_owned()), ..CuePatch::default() };
    for change in [paused, moved, named] {
        let fixture = Fixture::new();
        let user = fixture.user("u");
        let cue = fixture.worker_cue(user, |_| ());
        let mut scheduler = Scheduler::start(&fixture.app).unwrap();
        fixture.advance(2 * 3_600);
        let caller = Caller {
            user_key: user,
            user_id: "u".to_owned(),
            credential: Credential::ApiKey { key: 1, hash: [0; 32] },
            plan: "free".to_owned(),
            limits: PlanLimits::NONE,
            executions: 0,
        };
        let changed = update(&fixture.app, &caller, cue.id, change).wait().unwrap();
        assert_eq!(changed.cue.missed_count, 0);
        scheduler.run_once(&fixture.app).unwrap();
        assert_eq!((missed(&fixture, cue.key).len(), fixture.cue(cue.key).missed_count), (0, 0));
        assert_eq!(runs(&fixture, cue.key).len(), 2);
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
        new.schedule = Schedule::recurring("*/10 * * * *", "UTC", CatchUp::Latest).unwrap();
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
