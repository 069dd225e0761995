//! Deletion: cues, and the retention of executions.

use std::fs;
use std::time::Duration;

use cued::app::App;
use cued::clock::Clock;
use cued::config::Config;
use cued::domain::cue::Cue;
use cued::domain::row_keys::UserKey;
use cued::engine::NextPass;
use cued::engine::scheduler::reaper::release_expired_claims;
use cued::engine::scheduler::retention_sweeper::RetentionSweeper;
use cued::error::Error;
use cued::service::executions::{claim, claim_next};
use cued::store::cues;
use cued::store::db::counters;
use cued::store::executions::{self, claims, execution_list};
use cued::store::maintenance::retention;
use rusqlite::Connection;
use tempfile::TempDir;

use crate::cli::backups::{BEGIN, fire, hook, insert_history, report, rows, until_rows, work};
use crate::support::{delivery_fixture, *};

fn keeping(retain: &str) -> Server {
    Server::start(&[DEV_UNLIMITED, &["--test-clock", BEGIN, "--retain", retain]].concat())
}

fn keeping_for_user(retain: &str) -> (Server, Client) {
    let server = keeping(retain);
    let user = server.user();
    (server, user)
}

fn ids(executions: &[Value]) -> Vec<&str> {
    executions.iter().map(|it| it.text("id")).collect()
}

/// Fires a worker cue and reports; returns the execution.
fn run(user: &Client, cue: &str) -> String {
    let execution = fire(user, cue);
    report(user, &execution);
    execution
}

#[test]
fn the_oldest_finished_executions_are_deleted_above_the_number() {
    let (server, user) = keeping_for_user("5");
    let (cue, other) = (work(&user), work(&user));
    let over: Vec<String> = (0..8).map(|_| run(&user, &cue)).collect();
    run(&user, &other);
    fire(&user, &cue); // the last pass: no finished execution above the number remains
    user.settle();
    let kept = user.executions_of(&cue);
    let mut expected: Vec<&str> = over[4..].iter().map(String::as_str).collect();
    expected.reverse();
    assert_eq!(ids(&kept)[1..], expected, "the newest five: one pending and four finished");
    user.get(&format!("/v1/executions/{}", over[0])).expect_error(404, "execution_not_found");
    assert_eq!(user.executions_of(&other).len(), 1);
    let usage = user.read("/v1/usage");
    assert_eq!(usage["executions"]["used"], 10);
    assert_eq!(usage["outcomes"]["succeeded"], 9);
    let file = server.sqlite();
    assert_eq!((rows(&file, "executions"), rows(&file, "outcomes")), (6, 5));
}

#[test]
fn unfinished_executions_are_never_deleted() {
    let (_server, user) = keeping_for_user("1d,3");
    let cue = work(&user);
    let waiting: Vec<String> = (0..6).map(|_| fire(&user, &cue)).collect();
    let later = json!({"send_at": "2026-06-01T00:00:00Z"});
    user.post(&format!("/v1/cues/{cue}/fire"), &later).expect(200);
    user.patch(&format!("/v1/cues/{cue}"), &json!({"status": "paused"})).expect(200);
    user.post("/v1/worker/heartbeat", &json!({"worker_id": "w", "handlers": []})).expect(200);
    user.post(&format!("/v1/executions/{}/claim", waiting[0]), &json!({"worker_id": "w"}))
        .expect(200);
    user.advance("PT14M");
    assert_eq!(user.executions_of(&cue).len(), 7);
    user.advance("P3D"); // the claim expires and its execution is pending again
    assert_eq!(user.executions_of(&cue).len(), 7);
    // Age counts from the end: a late end keeps an execution for a day, through a round of the sweeper.
    user.advance("PT2H");
    report(&user, &waiting[5]);
    user.advance("PT23H");
    user.execution(&waiting[5]);
    user.advance("P2D");
    user.get(&format!("/v1/executions/{}", waiting[5])).expect_error(404, "execution_not_found");
    assert_eq!(user.executions_of(&cue).len(), 6);
}

#[test]
fn old_executions_are_deleted_and_missed_runs_stay() {
    let (mut server, user) = keeping_for_user("10d");
    let cue = work(&user);
    run(&user, &cue);
    server.stop();
    let user = user.at(server.restart_at("2026-01-03T10:30:00Z"));
    user.settle();
    user.patch(&format!("/v1/cues/{cue}"), &json!({"status": "paused"})).expect(200);
    let caught_up = user.executions_of(&cue)[0].text("id").to_owned();
    report(&user, &caught_up);
    let accounted = user.read(&format!("/v1/cues/{cue}/missed"));
    assert_eq!(accounted["total"], 1, "{accounted}");
    user.advance_to("2026-01-11T10:29:59Z");
    assert_eq!(user.executions_of(&cue).len(), 2);
    user.advance_to("2026-01-11T10:30:00Z");
    assert_eq!(ids(&user.executions_of(&cue)), [caught_up.as_str()]);
    user.advance("P30D");
    assert!(user.executions_of(&cue).is_empty());
    assert_eq!(user.read(&format!("/v1/cues/{cue}/missed")), accounted);
    let run_count = &user.read(&format!("/v1/cues/{cue}"))["run_count"];
    assert_eq!(run_count, 2);
}

#[test]
fn a_payload_is_deleted_with_its_last_execution() {
    let (server, user) = keeping_for_user("3");
    let cue = work(&user);
    let path = format!("/v1/cues/{cue}");
    let file = server.sqlite();
    let bodies = || {
        let mut all = file.prepare("SELECT body FROM payloads ORDER BY key").unwrap();
        let all = all
            .query_map([], |row| row.get(0))
            .unwrap()
            .map(Result::unwrap)
            .collect::<Vec<String>>();
        all.join(" ")
    };
    user.patch(&path, &json!({"payload": {"v": 1}})).expect(200);
    let first = run(&user, &cue);
    user.patch(&path, &json!({"payload": {"v": 2}})).expect(200);
    user.settle();
    assert_eq!(bodies(), r#"{"v": 1} {"v": 2}"#);
    let own =
        user.post(&format!("{path}/fire"), &json!({"payload_override": {"own": 1}})).expect(200);
    report(&user, own.text("execution_id"));
    // A replay has the payload of its original, in a copy of its own if the cue has another payload by now.
    let again = user.post(&format!("/v1/executions/{first}/replay"), &json!({})).expect(200);
    let again = again.text("execution_id").to_owned();
    assert_eq!(bodies(), r#"{"v": 1} {"v": 2} {"own": 1, "v": 2} {"v": 1}"#);
    run(&user, &cue);
    run(&user, &cue); // the first execution is deleted, and the one with its own payload
    user.settle();
    assert_eq!(bodies(), r#"{"v": 2} {"v": 1}"#);
    let claimed = user.post(&format!("/v1/executions/{again}/claim"), &json!({})).expect(200);
    assert_eq!(claimed["payload"], json!({"v": 1}));
    report(&user, &again);
    (0..3).for_each(|_| drop(run(&user, &cue)));
    fire(&user, &cue);
    user.settle();
    assert_eq!(bodies(), r#"{"v": 2}"#);
    for version in 3..6 {
        user.patch(&path, &json!({"payload": {"v": version}})).expect(200);
    }
    user.settle();
    assert_eq!(bodies(), r#"{"v": 2} {"v": 5}"#, "the two in between never existed");
}

#[test]
fn a_smaller_retention_applies_from_the_next_start_and_off_keeps_everything() {
    let (mut server, user) = keeping_for_user("off");
    let cue = work(&user);
    insert_history(&mut server.sqlite(), &cue, 3_000, true, "2020-01-01T00:00:00Z");
    server.sqlite().execute("UPDATE cues SET run_count = 3000", []).unwrap();
    run(&user, &cue);
    user.settle();
    assert_eq!(rows(&server.sqlite(), "executions"), 3_001);
    server.stop();
    server.restart_with("--retain", "2000");
    until_rows(&server.sqlite(), "executions", 2_000);
    server.stop();
    server.restart_with("--retain", "100d,2000");
    until_rows(&server.sqlite(), "executions", 1);
}

#[test]
fn short_histories_of_many_cues_are_deleted_in_one_batch() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("cued.db");
    let config = Config { retention: "1".parse().unwrap(), ..Config::new(path.clone()) };
    let fixture =
        Fixture::from_app(App::open(Clock::test(Some(BEGIN.parse().unwrap())), config).unwrap());
    let (user, mut file) = (fixture.user("u"), Connection::open(path).unwrap());
    for _ in 0..150 {
        insert_history(
            &mut file,
            &fixture.worker_cue(user, |_| ()).id,
            3,
            true,
            "2020-01-01T00:00:00Z",
        );
    }
    file.execute("UPDATE cues SET run_count = 3", []).unwrap();
    let (mut sweeper, mut passes) = (RetentionSweeper::default(), 0);
    while sweeper.run_once(&fixture.app).unwrap() == NextPass::Again {
        passes += 1;
    }
    assert_eq!((rows(&file, "executions"), rows(&file, "retention_queue")), (150, 0));
    // One pass marks them, and each of the others deletes some two hundred executions of several cues.
    assert!(passes <= 5, "{passes} passes");
}

#[test]
fn executions_that_nobody_claims_are_read_once_a_round() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("cued.db");
    let config = Config { retention: "10".parse().unwrap(), ..Config::new(path.clone()) };
    let fixture =
        Fixture::from_app(App::open(Clock::test(Some(BEGIN.parse().unwrap())), config).unwrap())
            .without_counter_check();
    let cue = fixture.worker_cue(fixture.user("u"), |_| ());
    let mut file = Connection::open(path).unwrap();
    insert_history(&mut file, &cue.id, 3_000, false, BEGIN);
    let mut sweeper = RetentionSweeper::default();
    let mut passes = || {
        fixture.write(move |tx| cues::queue_for_retention(tx, cue.key)).unwrap();
        let again = || sweeper.run_once(&fixture.app).unwrap() == NextPass::Again;
        std::iter::repeat_with(again).take_while(|again| *again).count()
    };
    let (first, second) = (passes(), passes());
    assert!(first >= 15 && second <= 2, "{first} batches, then {second}");
    // One of them finishes: it is above the number, and deleted in the next round.
    fixture.sql(
        "UPDATE executions SET status = 'success', queue_name = NULL, due_at = NULL WHERE key = 1",
    );
    assert!(passes() <= 2);
    assert_eq!(rows(&file, "executions"), 3_000);
    fixture.advance(24 * 3_600);
    assert!(passes() >= 15);
    assert_eq!(rows(&file, "executions"), 2_999);
}

#[test]
fn an_idle_server_writes_nothing() {
    let (server, user) = keeping_for_user("1d,5");
    let cue = work(&user);
    (0..9).for_each(|_| drop(run(&user, &cue)));
    fire(&user, &cue);
    user.patch(&format!("/v1/cues/{cue}"), &json!({"status": "paused"})).expect(200);
    // The last run is not claimed, and an alert says so.
    user.advance("PT15M");
    let file = server.sqlite();
    let version = || file.query_row("PRAGMA data_version", [], |row| row.get::<_, i64>(0)).unwrap();
    let before = version();
    (0..20).for_each(|_| drop(user.advance("PT1H")));
    assert_eq!(version(), before, "every advance of the clock is a pass of the engine");
    user.advance("P3D");
    assert_ne!(version(), before);
}

#[test]
fn freed_space_returns_to_the_file_system_gradually() {
    let (mut server, user) = keeping_for_user("off");
    let cue = work(&user);
    insert_history(&mut server.sqlite(), &cue, 40_000, true, "2020-01-01T00:00:00Z");
    server.stop();
    let length = |server: &Server| fs::metadata(server.db()).unwrap().len();
    let full = length(&server);
    server.restart_with("--retain", "90d");
    until_rows(&server.sqlite(), "executions", 0);
    // While the server runs: a checkpoint shrinks the file. The next one comes only after more writes.
    let user = user.at(server.addr());
    let payload = json!({"payload": {"text": "x".repeat(500_000)}});
    until("the file is smaller", || {
        user.patch(&format!("/v1/cues/{cue}"), &payload).expect(200);
        (length(&server) < full / 2).then_some(())
    });
    user.settle();
    server.stop();
    assert!(length(&server) < 12 << 20, "{} of {full} bytes are left", length(&server));
    assert!(length(&server) > 2 << 20, "some free pages are kept");
}

#[test]
fn a_kill_during_retention_loses_nothing_else() {
    let mut random = Random::seeded("retention");
    let (mut server, user) = keeping_for_user("off");
    let (cue, other) = (work(&user), hook(&user, "http://127.0.0.1:9/"));
    insert_history(&mut server.sqlite(), &cue, 6_000, true, "2020-01-01T00:00:00Z");
    insert_history(&mut server.sqlite(), &cue, 300, false, "2020-01-01T00:00:00Z");
    insert_history(&mut server.sqlite(), &other, 6_000, true, BEGIN);
    server.kill();
    server.restart_with("--retain", "90d");
    for _ in 0..4 {
        let file = server.sqlite();
        let left = 6_300 + i64::try_from(random.below(6_000)).unwrap();
        until("some rows are gone", || (rows(&file, "executions") <= left).then_some(()));
        server.kill();
        server.restart();
    }
    until_rows(&server.sqlite(), "executions", 6_300);
    let file = server.sqlite();
    let count = |cue: &str| {
        let sql =
            "SELECT count(*) FROM executions JOIN cues ON cues.key = cue_key WHERE cues.id = ?1";
        file.query_row(sql, [cue], |row| row.get::<_, i64>(0)).unwrap()
    };
    assert_eq!((count(&cue), count(&other), rows(&file, "outcomes")), (300, 6_000, 6_000));
    let integrity: String = file.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
    assert_eq!(integrity, "ok");
}

const DAY: Duration = Duration::from_secs(24 * 3_600);

/// A process with a manual clock, and its file.
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
        let fixture =
            Fixture::from_app(App::open(Clock::manual(now.parse().unwrap()), config).unwrap());
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
        while self.sweeper.run_once(&self.fixture.app).unwrap() == NextPass::Again {}
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
        (
            &[
                (2, "2026-01-01T00:00:00Z"),
                (2, "2026-05-01T00:00:00Z"),
                (3, "2024-05-01T00:00:00Z"),
            ],
            5,
        ),
        // Made while the clock was ahead: kept, and no obstacle for what was made later.
        (
            &[
                (250, "2026-01-01T00:00:00Z"),
                (300, "2099-01-01T00:00:00Z"),
                (250, "2026-01-02T00:00:00Z"),
            ],
            300,
        ),
    ] {
        let mut process = Process::starts("2026-06-01T00:00:00Z");
        for (count, at) in dates {
            process.ran(*count, at);
        }
        process.sweeps();
        assert_eq!(process.sweeps_after(DAY), left, "{dates:?}");
    }
}

/// More than one transaction deletes together with the cue.
const MANY: u32 = 5_000;

#[test]
fn the_rows_of_a_deleted_cue_are_invisible_before_their_deletion() {
    let fixture = Fixture::new();
    let user = fixture.user("u");
    let (other, doomed) = (fixture.worker_cue(user, |_| ()), fixture.worker_cue(user, |_| ()));
    let left = fixture.runs(&doomed, (0..500).map(|n| json!({"task": "t", "n": n})));
    let kept = fixture.run(&other, json!({"task": "t"}));
    let id = doomed.id.clone();
    assert!(
        fixture.app.store.write(move |tx| retention::delete_cue(tx, user, &id)).wait().unwrap()
    );

    // The row of the deleted cue was the last: a new cue must not reuse its key and inherit the remaining rows.
    let next = fixture.worker_cue(user, |_| ()).key;
    let look = fixture.app.store.read(move |read| {
        assert_eq!(execution_list::list_by_cue(read, next, 100, 0)?.1, 0);
        let count: i64 = read.query_row("SELECT count(*) FROM executions", [], |row| row.get(0))?;
        assert!(count > 200, "{count} rows are left");
        assert!(executions::find(read, user, left[0])?.is_none());
        let (page, total) =
            execution_list::list(read, user, &execution_list::ExecutionFilter::default(), 100, 0)?;
        assert_eq!((page.len(), total), (1, 1));
        assert_eq!(page[0].execution.id, kept);
        let task = claims::ClaimFilter { task: Some("t".to_owned()), agent: None };
        for filter in [claims::ClaimFilter::default(), task] {
            let claimable = claims::list(read, user, &filter, 100)?;
            assert_eq!(claimable.executions.iter().map(|it| it.id).collect::<Vec<_>>(), [kept]);
        }
        assert_eq!(claims::find_next(read, user, Some("t"))?, Some(kept));
        Ok(left[0])
    });
    let gone = look.wait().unwrap();
    let refused = claim(&fixture.app, user, gone, "w".to_owned()).wait();
    assert!(matches!(refused, Err(Error::Refused(_))), "{refused:?}");
    assert_eq!(claim_next(&fixture.app, user, None, "w".to_owned()).wait().unwrap().id, kept);

    let mut sweeper = RetentionSweeper::default();
    while sweeper.run_once(&fixture.app).unwrap() == NextPass::Again {}
    let left: (i64, i64) = fixture.read(|read| {
        let count =
            |table| read.query_row(&format!("SELECT count(*) FROM {table}"), [], |row| row.get(0));
        Ok((count("executions")?, count("deleted_cues")?))
    });
    assert_eq!(left, (1, 0));
}

#[test]
fn a_lease_of_a_deleted_cue_is_ignored() {
    let fixture = Fixture::new();
    let user = fixture.user("u");
    let doomed = fixture.worker_cue(user, |_| ());
    let held = fixture.run(&doomed, json!({}));
    claim(&fixture.app, user, held, "w".to_owned()).wait().unwrap();
    fixture.runs(&doomed, (0..500).map(|_| json!({})));
    let id = doomed.id.clone();
    fixture.app.store.write(move |tx| retention::delete_cue(tx, user, &id)).wait().unwrap();
    fixture.advance(900);
    assert_eq!(release_expired_claims(&fixture.app, fixture.now()).unwrap().released, 0);
    // It is looked at once.
    assert_eq!(fixture.read(claims::next_end), None);
    let mut sweeper = RetentionSweeper::default();
    while sweeper.run_once(&fixture.app).unwrap() == NextPass::Again {}
}

#[test]
fn a_cue_with_a_long_history_is_deleted_at_once_with_correct_counters() {
    let (server, user) = Server::with_clock_and_user(BEGIN);
    let (doomed, other) = (work(&user), work(&user));
    fire(&user, &other);
    let mut file = server.sqlite();
    insert_history(&mut file, &doomed, MANY, true, BEGIN);
    insert_history(&mut file, &doomed, MANY, false, BEGIN);
    let path = format!("/v1/cues/{doomed}");
    assert_eq!(user.delete(&path).status, 204);
    user.get(&path).expect_error(404, "cue_not_found");
    assert_eq!(user.read("/v1/executions")["total"], 1);
    assert_eq!(user.read("/v1/usage")["cues"]["active"], 1);
    user.settle();
    assert_eq!(
        (rows(&file, "executions"), rows(&file, "outcomes"), rows(&file, "deleted_cues")),
        (1, 0, 0)
    );
    assert_eq!(user.read("/health")["queue"]["pending_worker_claims"], 1);
}

#[test]
fn queued_deliveries_of_a_deleted_cue_are_not_sent() {
    let fixture = delivery_fixture::DeliveryFixture::new(8);
    let cue = fixture.webhook_cue("https://example.com/");
    fixture.sql("UPDATE users SET active_cues = 1");
    fixture.due_times(cue, 300);
    assert!(
        fixture.write(|tx| retention::delete_cue(tx, UserKey::new(1), "cue_100000000000").unwrap())
    );
    let webhook_client = delivery_fixture::RecordingClient::default();
    assert!(fixture.deliver(&webhook_client) > 0, "some rows are left");
    assert_eq!(webhook_client.requests(), []);
    let mut sweeper = RetentionSweeper::default();
    while sweeper.run_once(&fixture.app).unwrap() == NextPass::Again {}
    let wrong = fixture.read(|read| counters::discrepancies(read));
    assert_eq!(wrong, Vec::<String>::new());
}

#[test]
fn an_interrupted_deletion_continues_after_the_restart() {
    let mut random = Random::seeded("removal");
    let (mut server, mut user) = Server::with_clock_and_user(BEGIN);
    let kept = work(&user);
    fire(&user, &kept);
    for _ in 0..4 {
        let doomed = work(&user);
        insert_history(&mut server.sqlite(), &doomed, MANY, true, BEGIN);
        insert_history(&mut server.sqlite(), &doomed, 500, false, BEGIN);
        assert_eq!(user.delete(&format!("/v1/cues/{doomed}")).status, 204);
        let (file, left) = (server.sqlite(), i64::try_from(random.below(5_000)).unwrap());
        until("some rows are gone", || (rows(&file, "executions") <= left.max(1)).then_some(()));
        server.kill();
        user = user.at(server.restart());
        user.get(&format!("/v1/cues/{doomed}")).expect_error(404, "cue_not_found");
        assert_eq!(user.read("/v1/executions")["total"], 1);
    }
    user.settle();
    let file = server.sqlite();
    assert_eq!(
        (rows(&file, "executions"), rows(&file, "outcomes"), rows(&file, "deleted_cues")),
        (1, 0, 0)
    );
    assert_eq!(user.executions_of(&kept).len(), 1);
}
