//! Retention by age of executions with wrong dates: they are as old as their place in the order of creation says.

use cued::app::App;
use cued::clock::Clock;
use cued::config::Config;
use cued::domain::cue::Cue;
use cued::engine::scheduler::retention_sweeper::{RetentionSweeper, SweepOutcome};
use cued::store::maintenance::cue_deletion;
use jiff::{SignedDuration, Timestamp};
use rusqlite::Connection;
use tempfile::TempDir;

use crate::cli::backups::{insert_history, rows};
use crate::support::fixture::Fixture;

const NOW: &str = "2026-06-01T00:00:00Z";

/// A file on which the clock shows [`NOW`] and is trusted.
fn file() -> (TempDir, Fixture, Cue, Connection) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("cued.db");
    let config = Config { retention: "90d".parse().unwrap(), ..Config::new(path.clone()) };
    let now: Timestamp = NOW.parse().unwrap();
    let fixture = Fixture::from_app(App::open(Clock::manual(now), config).unwrap());
    fixture.sql(&format!("INSERT INTO meta (name, value) VALUES ('trusted_at', {})", now.as_millisecond()));
    let cue = fixture.worker_cue(fixture.user("u"), |_| ());
    (folder, fixture, cue, Connection::open(path).unwrap())
}

fn sweep(fixture: &Fixture) {
    let mut sweeper = RetentionSweeper::default();
    while sweeper.run_once(&fixture.app).unwrap() == SweepOutcome::Again {}
}

#[test]
fn executions_with_wrong_dates_stay_until_a_later_one_expires() {
    let (_folder, fixture, cue, mut file) = file();
    for at in ["1970-01-01T00:00:10Z", "2099-01-01T00:00:00Z"] {
        insert_history(&mut file, &cue.id, 300, true, at);
    }
    insert_history(&mut file, &cue.id, 1, true, "2026-05-01T00:00:00Z");
    sweep(&fixture);
    assert_eq!(rows(&file, "executions"), 601, "the later one is a month old");
    fixture
        .sql("UPDATE executions SET created_at = 1767225600000, updated_at = 1767225600000 WHERE key = 601");
    sweep(&fixture);
    assert_eq!(rows(&file, "executions"), 0, "the later one was of January");
}

#[test]
fn executions_after_those_with_wrong_dates_expire_as_well() {
    let (_folder, fixture, cue, mut file) = file();
    for (count, at) in
        [(250, "2026-01-01T00:00:00Z"), (300, "2099-01-01T00:00:00Z"), (250, "2026-01-02T00:00:00Z")]
    {
        insert_history(&mut file, &cue.id, count, true, at);
    }
    insert_history(&mut file, &cue.id, 10, true, "1970-01-01T00:00:00Z");
    insert_history(&mut file, &cue.id, 10, true, "2026-05-01T00:00:00Z");
    sweep(&fixture);
    assert_eq!(rows(&file, "executions"), 20);
}

#[test]
fn the_trusted_time_survives_a_restart() {
    let (_folder, fixture, _cue, file) = file();
    sweep(&fixture);
    let config = fixture.app.config.clone();
    drop(fixture);
    let stored = || {
        file.query_row("SELECT value FROM meta WHERE name = 'trusted_at'", [], |row| row.get::<_, i64>(0))
            .unwrap()
    };
    let before = stored();
    let clock = Clock::manual("2099-01-01T00:00:00Z".parse().unwrap());
    let fixture = Fixture::from_app(App::open(clock, config).unwrap());
    sweep(&fixture);
    assert!(stored() - before < 3_600_000, "a start in 2099 is not trusted");
}

/// The sweeps of another process, whose clock shows `wall`.
fn sweep_at(fixture: &Fixture, wall: &str) {
    fixture.app.clock.set(wall.parse().unwrap());
    fixture.app.clock.accept();
    sweep(fixture);
}

/// The same after the clock has been right until `wall`.
fn sweep_trusting(fixture: &Fixture, wall: &str) {
    let trusted = wall.parse::<Timestamp>().unwrap().as_millisecond() - 3_600_000;
    fixture.sql(&format!("UPDATE meta SET value = {trusted} WHERE name = 'trusted_at'"));
    sweep_at(fixture, wall);
}

const IMAGE_DATE: &str = "2024-05-01T00:00:00Z";

#[test]
fn history_made_while_the_clock_was_behind_ages_from_the_next_trusted_instant() {
    let (_folder, fixture, cue, mut file) = file();
    insert_history(&mut file, &cue.id, 2, true, NOW);
    sweep_at(&fixture, "2026-06-01T01:00:00Z");
    insert_history(&mut file, &cue.id, 3, true, IMAGE_DATE);
    sweep_at(&fixture, IMAGE_DATE);
    insert_history(&mut file, &cue.id, 3, true, IMAGE_DATE);
    sweep_at(&fixture, "2025-05-01T00:00:00Z");
    sweep_at(&fixture, "2026-06-01T02:10:00Z");
    assert_eq!(rows(&file, "executions"), 8);
    // Ninety days later the end of those with a right date is that long ago. That of the others is not known.
    sweep_trusting(&fixture, "2026-09-01T00:00:00Z");
    assert_eq!(rows(&file, "executions"), 6);
    sweep_trusting(&fixture, "2026-12-01T00:00:00Z");
    assert_eq!(rows(&file, "executions"), 0);
}

#[test]
fn a_cue_whose_predecessor_was_deleted_keeps_the_history_made_while_the_clock_was_behind() {
    let (_folder, fixture, old, mut file) = file();
    insert_history(&mut file, &old.id, 5, true, NOW);
    sweep_at(&fixture, "2026-06-01T01:00:00Z");
    let cue = fixture.worker_cue(fixture.user("other"), |_| ());
    // Its executions were the newest: their keys are used again.
    fixture.write(move |tx| assert!(cue_deletion::delete(tx, old.user_key, old.id.as_str()).unwrap()));
    insert_history(&mut file, &cue.id, 3, true, IMAGE_DATE);
    sweep_at(&fixture, "2026-06-01T02:00:00Z");
    assert_eq!((rows(&file, "executions"), rows(&file, "trusted_instants")), (3, 2));
}

#[test]
fn trusted_instants_are_forgotten_with_the_history_that_they_date() {
    let (_folder, fixture, cue, mut file) = file();
    let mut now: Timestamp = NOW.parse().unwrap();
    for _ in 0..300 {
        now += SignedDuration::from_hours(24);
        insert_history(&mut file, &cue.id, 1, true, &now.to_string());
        sweep_trusting(&fixture, &now.to_string());
    }
    assert_eq!((rows(&file, "executions"), rows(&file, "trusted_instants")), (90, 181));
}
