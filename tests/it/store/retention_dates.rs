//! Retention by age of executions with wrong dates: they are as old as their place in the order of creation says.

use cued::app::App;
use cued::clock::Clock;
use cued::config::Config;
use cued::domain::cue::Cue;
use cued::engine::scheduler::retention_sweeper::{RetentionSweeper, SweepOutcome};
use jiff::Timestamp;
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
