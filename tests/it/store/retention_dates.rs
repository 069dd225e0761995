//! Retention by age under a clock that is, or was, wrong (contract §11).

use std::time::Duration;

use cued::app::App;
use cued::clock::Clock;
use cued::config::Config;
use cued::domain::cue::Cue;
use cued::engine::scheduler::retention_sweeper::{RetentionSweeper, SweepOutcome};
use rusqlite::Connection;
use tempfile::TempDir;

use crate::cli::backups::{insert_history, rows};
use crate::support::fixture::Fixture;

const DAY: Duration = Duration::from_secs(24 * 3_600);

/// A file of which a process with a manual clock begins.
struct Process {
    fixture: Fixture,
    sweeper: RetentionSweeper,
    cue: Cue,
    file: Connection,
    _folder: TempDir,
}

impl Process {
    fn starts(now: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("cued.db");
        let config = Config { retention: "90d".parse().unwrap(), ..Config::new(path.clone()) };
        let fixture = Fixture::from_app(App::open(Clock::manual(now.parse().unwrap()), config).unwrap());
        let cue = fixture.worker_cue(fixture.user("u"), |_| ());
        let file = Connection::open(path).unwrap();
        Self { fixture, sweeper: RetentionSweeper::default(), cue, file, _folder: folder }
    }

    fn ran(&mut self, count: u32, at: &str) {
        insert_history(&mut self.file, &self.cue.id, count, true, at);
    }

    /// Sweeps with the clock at `wall`. Returns how many executions are left.
    fn sweeps_at(&mut self, wall: &str) -> i64 {
        self.fixture.app.clock.set(wall.parse().unwrap());
        self.fixture.app.clock.accept();
        self.sweeps()
    }

    fn sweeps_after(&mut self, span: Duration) -> i64 {
        self.fixture.app.clock.elapse(span);
        self.sweeps()
    }

    fn sweeps(&mut self) -> i64 {
        while self.sweeper.run_once(&self.fixture.app).unwrap() == SweepOutcome::Again {}
        rows(&self.file, "executions")
    }
}

#[test]
fn history_is_deleted_once_the_server_has_run_for_a_day_on_its_clock() {
    let mut process = Process::starts("2026-06-01T00:00:00Z");
    process.ran(3, "2026-01-01T00:00:00Z");
    process.ran(5, "2026-05-30T00:00:00Z");
    assert_eq!(process.sweeps(), 8, "a start");
    assert_eq!(process.sweeps_after(DAY - Duration::from_secs(60)), 8);
    assert_eq!(process.sweeps_at("2099-01-01T00:00:00Z"), 8, "a jump");
    assert_eq!(process.sweeps_after(DAY - Duration::from_secs(60)), 8);
    assert_eq!(process.sweeps_at("1970-01-01T00:00:00Z"), 8, "a clock that was never set");
    assert_eq!(process.sweeps_after(3 * DAY), 8);
    assert_eq!(process.sweeps_at("2026-06-02T00:00:00Z"), 8);
    assert_eq!(process.sweeps_after(DAY), 5);
    // A night of sleep is no jump.
    assert_eq!(process.sweeps_at("2026-06-04T00:00:00Z"), 5);
}

#[test]
fn history_with_wrong_dates_is_as_old_as_what_was_made_before_it() {
    for (dates, left) in [
        // Made by a clock that was never set: kept, unless something before it has a date.
        (&[(300, "1970-01-01T00:00:10Z"), (2, "2026-01-01T00:00:00Z")][..], 300),
        (&[(2, "2026-01-01T00:00:00Z"), (300, "1970-01-01T00:00:10Z")], 0),
        // Made at the date of an image, after an execution of last month.
        (&[(2, "2026-01-01T00:00:00Z"), (2, "2026-05-01T00:00:00Z"), (3, "2024-05-01T00:00:00Z")], 5),
        // Made while the clock was ahead: kept, and no obstacle for what was made later.
        (&[(250, "2026-01-01T00:00:00Z"), (300, "2099-01-01T00:00:00Z"), (250, "2026-01-02T00:00:00Z")], 300),
    ] {
        let mut process = Process::starts("2026-06-01T00:00:00Z");
        for (count, at) in dates {
            process.ran(*count, at);
        }
        process.sweeps();
        assert_eq!(process.sweeps_after(DAY), left, "{dates:?}");
    }
}
