//! The upgrade of a file of an earlier schema version, by a step made for these tests: there is no earlier version yet.
//! A migration that fails or is killed, wherever it is, leaves the file as it was, and the next start repeats it.

use std::env;

use cued::store::db::open::SCHEMA_VERSION;
use cued::store::maintenance::migrations::{self, Migration};
use rusqlite::Connection;
use rusqlite::types::Value;

use crate::cli::administration::{fails, ok};
use crate::cli::backups::contents;
use crate::faults::disk::Disk;
use crate::faults::disk::{assert_sound, refused_start};
use crate::support::*;

/// The version after the step.
const NEXT: i64 = SCHEMA_VERSION + 1;

const STEP: &str = "CREATE TABLE _tags (name TEXT PRIMARY KEY) STRICT;
    WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 200)
    INSERT INTO _tags SELECT hex(randomblob(500)) FROM n;
    UPDATE meta SET value = value WHERE name = 'instance'";

/// The path of the file that a child process migrates.
const FILE: &str = "CUED_TEST_MIGRATE";

type Contents = BTreeMap<String, Vec<Vec<Value>>>;

/// A closed file of this version with an account, two cues and their executions.
fn old_file() -> (TempDir, PathBuf, Contents) {
    let folder = TempDir::new().unwrap();
    let db = folder.path().join("cued.db");
    let mut server =
        Server::start_on(&db, &[DEV_UNLIMITED, &["--test-clock", "2030-02-03T20:09:00Z"]].concat());
    let user = server.user();
    let schedule = json!({"type": "recurring", "cron": "0 * * * *"});
    user.create(&json!({"name": "work", "schedule": schedule, "transport": "worker"}));
    user.create(
        &json!({"name": "hook", "schedule": schedule, "callback": {"url": "http://127.0.0.1:9/"}}),
    );
    user.advance("PT2H");
    assert_eq!(server.stop(), Some(0));
    let rows = contents(&db);
    (folder, db, rows)
}

fn migrate(db: &Path) -> Result<(), String> {
    let step = [Migration { to: NEXT, sql: STEP }];
    migrations::run(db, &step, NEXT).map_err(|error| error.to_string())
}

/// Not a test: the process that the tests below kill while it migrates a file.
#[test]
#[ignore = "runs as a child process of other tests"]
fn migrates_a_file_for_a_parent_process() {
    if let Some(db) = env::var_os(FILE) {
        migrate(Path::new(&db)).unwrap();
    }
}

fn start_migration(db: &Path) -> Process {
    let name = "store::migration::migrates_a_file_for_a_parent_process";
    let mut command = Command::new(env::current_exe().unwrap());
    command
        .args(["--ignored", "--exact", name])
        .env(FILE, db)
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    Process(command.spawn().unwrap())
}

fn kill(mut migration: Process) {
    migration.0.kill().unwrap();
    migration.0.wait().unwrap();
}

fn version_of(db: &Path) -> i64 {
    Connection::open(db).unwrap().query_row("PRAGMA user_version", [], |row| row.get(0)).unwrap()
}

/// Executes SQL on the file and leaves nothing in its log.
fn change(db: &Path, sql: &str) {
    Connection::open(db).unwrap().execute_batch(sql).unwrap();
}

fn beside(db: &Path, suffix: &str) -> PathBuf {
    PathBuf::from(format!("{}{suffix}", db.display()))
}

fn names(folder: &Path) -> BTreeSet<String> {
    fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect()
}

/// Migrates the file. Afterwards it has the next version and all rows, and one copy with the old version beside it.
#[track_caller]
fn assert_migrates(db: &Path, before: &Contents) {
    migrate(db).unwrap();
    assert_eq!(version_of(db), NEXT);
    assert_sound(&Connection::open(db).unwrap());
    let mut after = contents(db);
    assert_eq!(after.remove("_tags").map(|rows| rows.len()), Some(200));
    assert_eq!(&after, before);
    let copy = beside(db, &format!(".v{SCHEMA_VERSION}"));
    assert_eq!((&contents(&copy), version_of(&copy)), (before, SCHEMA_VERSION));
    let held = "SELECT count(*) FROM meta WHERE name = 'held_since'";
    let held: i64 = Connection::open(&copy).unwrap().query_row(held, [], |row| row.get(0)).unwrap();
    assert_eq!(held, 1, "a server on the copy would repeat deliveries");
    let left = names(db.parent().unwrap()).into_iter().filter(|name| name.starts_with("cued.db"));
    assert_eq!(
        left.collect::<Vec<_>>(),
        ["cued.db".to_owned(), format!("cued.db.v{SCHEMA_VERSION}")]
    );
}

#[test]
fn every_row_of_every_table_is_kept_and_a_copy_stays() {
    let (_folder, db, before) = old_file();
    assert_migrates(&db, &before);
}

#[test]
fn a_file_of_a_later_version_is_refused_by_name() {
    let (folder, db, before) = old_file();
    assert_migrates(&db, &before);
    let expected = format!("{} has schema version {NEXT}, written by a newer cued", db.display());
    let stderr = refused_start(&db);
    assert!(stderr.contains(&expected) && stderr.contains("`cued restore"), "{stderr}");
    assert!(fails(&db, &["user", "list"], 1).contains(&expected));
    let restored = folder.path().join("restored.db");
    let copy = beside(&db, &format!(".v{SCHEMA_VERSION}"));
    ok(&restored, &["restore", copy.to_str().unwrap()]);
    assert_eq!(contents(&restored), before);
}

/// The files of development versions had another application id.
#[test]
fn a_file_of_a_development_version_is_refused_by_name() {
    for version in 1..6 {
        let (_folder, db, _) = old_file();
        change(
            &db,
            &format!("PRAGMA application_id = {}; PRAGMA user_version = {version}", 0x6375_6564),
        );
        let before = fs::read(&db).unwrap();
        for stderr in [
            refused_start(&db),
            fails(&db, &["user", "list"], 1),
            String::from_utf8(run(&["check", db.to_str().unwrap()]).stderr).unwrap(),
        ] {
            assert_contains(&stderr, &["development version", "a new file"]);
        }
        assert!(fs::read(&db).unwrap() == before, "the file is unchanged");
    }
}

/// Kills a process while it copies the file. Returns `false` if the copy was complete before the kill.
fn kill_during_copy(db: &Path) -> bool {
    let copies = [".v1.pending.partial", ".v1.pending", ".v1"].map(|suffix| beside(db, suffix));
    // The partial copy of a killed process has another length than one of this process.
    let earlier = fs::metadata(&copies[0]).ok().map(|file| file.len());
    let migration = start_migration(db);
    until("the copy starts", || {
        let is_partial = fs::metadata(&copies[0]).is_ok_and(|file| Some(file.len()) != earlier);
        (is_partial || copies[1].exists() || copies[2].exists()).then_some(())
    });
    kill(migration);
    copies.map(|copy| copy.exists()) == [true, false, false]
}

/// A file with two kills of a process that copied it. The kills race with the copies: `None` if one came too late.
fn killed_twice_during_copy() -> Option<(TempDir, PathBuf, Contents)> {
    let (folder, db, before) = old_file();
    // 60 MB, so that the copy takes long enough for the kill.
    let number = "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 1000)";
    change(
        &db,
        &format!(
            "CREATE TABLE _filler (x); INSERT INTO _filler {number} SELECT randomblob(60000) FROM n"
        ),
    );
    if !kill_during_copy(&db) {
        return None;
    }
    fs::write(beside(&db, ".v1.pending.partial"), "of the first kill").unwrap();
    kill_during_copy(&db).then_some((folder, db, before))
}

#[test]
fn a_migration_killed_while_it_copies_the_file_is_repeated() {
    let killed = (0..20).find_map(|_| killed_twice_during_copy());
    let (_folder, db, before) = killed.expect("two kills during the copy, in one of 20 tries");
    assert_eq!(version_of(&db), SCHEMA_VERSION);
    change(&db, "DROP TABLE _filler");
    assert_migrates(&db, &before);
}

#[test]
fn a_migration_killed_between_its_copy_and_its_commit_is_repeated() {
    let (_folder, db, before) = old_file();
    for _ in 0..3 {
        let other = Connection::open(&db).unwrap();
        other.execute_batch("BEGIN IMMEDIATE").unwrap();
        let migration = start_migration(&db);
        // It now waits for its turn to write.
        until("the copy is complete", || beside(&db, ".v1.pending").exists().then_some(()));
        kill(migration);
        other.execute_batch("ROLLBACK").unwrap();
    }
    assert_eq!(contents(&db), before);
    assert_migrates(&db, &before);
}

/// Makes the step write into the log without end, once it has begun to change the file.
const ENDLESS: &str = "CREATE TABLE _noise (x);
    CREATE VIEW _many AS WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 1000000000)
        SELECT i FROM n;
    CREATE TRIGGER _endless AFTER UPDATE ON meta WHEN new.name = 'instance'
    BEGIN INSERT INTO _noise SELECT randomblob(500) FROM _many; END;";

#[test]
fn a_migration_killed_while_it_changes_the_file_is_repeated() {
    for journal in ["WAL", "DELETE"] {
        let (_folder, db, before) = old_file();
        change(&db, ENDLESS);
        change(&db, &format!("PRAGMA journal_mode = {journal}"));
        let migration = start_migration(&db);
        let log = beside(&db, "-wal");
        until_true("a part of it is in the log", || {
            fs::metadata(&log).is_ok_and(|log| log.len() > 10_000_000)
        });
        kill(migration);
        assert!(log.exists(), "{journal}");
        // It is what a reader finds, too.
        let checked = run(&["check", db.to_str().unwrap()]);
        let printed = String::from_utf8(checked.stdout).unwrap();
        assert!(printed.contains("schema      version 1"), "{printed}");
        change(&db, "DROP TRIGGER _endless; DROP VIEW _many; DROP TABLE _noise");
        assert_eq!((contents(&db), version_of(&db)), (before.clone(), SCHEMA_VERSION));
        assert_migrates(&db, &before);
    }
}

#[test]
fn a_migration_killed_right_after_its_commit_keeps_its_copy() {
    let (_folder, db, before) = old_file();
    assert_migrates(&db, &before);
    // As the commit leaves it.
    fs::rename(beside(&db, ".v1"), beside(&db, ".v1.pending")).unwrap();
    migrate(&db).unwrap();
    assert_eq!(contents(&beside(&db, ".v1")), before);
}

/// A file whose writer was killed while it used a rollback journal, as a restored file has one.
#[test]
fn a_file_with_a_rollback_journal_is_rolled_back_and_migrated() {
    let (folder, db, before) = old_file();
    let writer = Connection::open(&db).unwrap();
    writer
        .execute_batch("PRAGMA journal_mode = DELETE; PRAGMA cache_size = 2; BEGIN IMMEDIATE")
        .unwrap();
    let noise = "CREATE TABLE _noise (x);
         WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 1000)
         INSERT INTO _noise SELECT randomblob(500) FROM n; UPDATE users SET plan = 'lost'";
    writer.execute_batch(noise).unwrap();
    let killed = folder.path().join("killed");
    fs::create_dir(&killed).unwrap();
    for name in ["cued.db", "cued.db-journal"] {
        fs::copy(folder.path().join(name), killed.join(name)).unwrap();
    }
    drop(writer);
    assert_migrates(&killed.join("cued.db"), &before);
}

#[test]
fn a_file_that_cannot_be_migrated_is_refused_and_left_unchanged() {
    for (sql, reason) in [
        ("CREATE VIEW _tags AS SELECT 1", "_tags"),
        // This one would migrate, and be refused by the next start.
        ("DROP INDEX executions_by_cue", "executions_by_cue"),
        ("PRAGMA foreign_keys = OFF; UPDATE api_keys SET user_key = 77", "rows that do not exist"),
    ] {
        let (folder, db, _) = old_file();
        change(&db, sql);
        let before = contents(&db);
        let refused = migrate(&db).unwrap_err();
        assert!(
            refused.contains("schema version 1") && refused.contains(reason),
            "{sql}: {refused}"
        );
        assert_eq!(names(folder.path()), BTreeSet::from(["cued.db".to_owned()]), "{sql}");
        assert_eq!((contents(&db), version_of(&db)), (before, SCHEMA_VERSION));
    }
}

#[test]
fn a_disk_that_is_full_at_any_moment_of_a_migration_leaves_the_file_unchanged() {
    let Some(disk) = Disk::mount("4m") else { return };
    let (_folder, old, before) = old_file();
    let (mut without_copy, mut without_log) = (0, 0);
    let empty = names(disk.path());
    for free in (40..1_000).step_by(20) {
        fs::copy(&old, disk.db()).unwrap();
        disk.fill_but(free * 1_024);
        let migrated = migrate(&disk.db());
        disk.free();
        let Err(reason) = migrated else {
            assert_eq!(version_of(&disk.db()), NEXT);
            let failures = format!("{without_copy} without copy, {without_log} without log");
            assert!(without_copy > 0 && without_log > 0, "{failures}");
            return;
        };
        assert!(reason.contains("full"), "{free}: {reason}");
        let is_copy = reason.contains("cued.db.v1.pending needs about");
        (without_copy, without_log) =
            (without_copy + i32::from(is_copy), without_log + i32::from(!is_copy));
        assert_eq!(contents(&disk.db()), before);
        assert!(fs::read(disk.db()).unwrap() == fs::read(&old).unwrap(), "{free}");
        fs::remove_file(disk.db()).unwrap();
        assert_eq!(names(disk.path()), empty, "{free}: something is left behind");
    }
    panic!("the disk was always too small");
}

#[test]
fn a_copy_of_an_earlier_migration_is_never_replaced() {
    let (folder, db, before) = old_file();
    fs::write(beside(&db, ".v1"), "of an earlier migration").unwrap();
    migrate(&db).unwrap();
    let expected = ["cued.db", "cued.db.v1", "cued.db.v1-2"].map(str::to_owned);
    assert_eq!(names(folder.path()), BTreeSet::from(expected));
    assert_eq!(fs::read(beside(&db, ".v1")).unwrap(), b"of an earlier migration");
    assert_eq!(contents(&beside(&db, ".v1-2")), before);
}
