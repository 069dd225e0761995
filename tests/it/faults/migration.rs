//! A migration that fails or is killed, wherever it is: the file keeps all that the earlier version wrote, and the next
//! start migrates it.

use std::collections::BTreeSet;
use std::fs;
use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use rusqlite::Connection;
use tempfile::TempDir;

use super::disk::{assert_sound, refused_start};
use super::mount::Disk;
use crate::cli::backups::contents;
use crate::store::migration::{
    Contents, assert_kept, assert_same, version_1, version_1_bytes, version_of, with_new_names,
};
use crate::support::server::{DEV_UNLIMITED, Process, Server, cued, read_addr, run, until};
use cued::store::db::open::SCHEMA_VERSION;

fn names(folder: &Path) -> BTreeSet<String> {
    fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

/// Executes SQL on the file and leaves nothing in its log.
fn change(db: &Path, sql: &str) {
    Connection::open(db).unwrap().execute_batch(sql).unwrap();
}

/// A server that is not waited for.
fn start(db: &Path) -> Process {
    let mut command = cued(&["serve", "--listen", "127.0.0.1:0", "--db"]);
    Process(command.arg(db).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap())
}

fn kill(mut server: Process) {
    server.0.kill().unwrap();
    server.0.wait().unwrap();
}

/// Starts and stops a server. Afterwards the file has the present version, all rows, and one copy beside it.
#[track_caller]
fn assert_migrates(db: &Path, before: &Contents) {
    let mut server =
        Server::start_on(db, &[DEV_UNLIMITED, &["--test-clock", "2030-02-03T20:09:00Z"]].concat());
    assert_eq!(server.stop(), Some(0));
    assert_eq!(version_of(db), SCHEMA_VERSION);
    assert_sound(&Connection::open(db).unwrap());
    let (mut after, mut expected) = (contents(db), with_new_names(before.clone()));
    // What the server writes first: the delivery that was cut short is queued again.
    for table in ["executions", "backlog", "meta"] {
        assert_eq!(after.remove(table).unwrap().len(), expected.remove(table).unwrap().len(), "{table}");
    }
    assert_kept(&after, &expected);
    let name = db.file_name().unwrap().to_str().unwrap().to_owned();
    let copies: BTreeSet<String> =
        names(db.parent().unwrap()).into_iter().filter(|it| it.starts_with(&name)).collect();
    assert_eq!(copies, BTreeSet::from([name.clone(), format!("{name}.v1")]));
    let copy = PathBuf::from(format!("{}.v1", db.display()));
    assert_same(&contents(&copy), before);
}

fn beside(db: &Path, suffix: &str) -> PathBuf {
    PathBuf::from(format!("{}{suffix}", db.display()))
}

/// Makes a migration write into the log without end, once it has begun to change the file.
const ENDLESS: &str = "CREATE TABLE _noise (x);
    CREATE VIEW _many AS WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 1000000000)
        SELECT i FROM n;
    CREATE TRIGGER _endless AFTER UPDATE ON meta WHEN new.name = 'retained_runs'
    BEGIN INSERT INTO _noise SELECT randomblob(500) FROM _many; END;";

const NO_LONGER_ENDLESS: &str = "DROP TRIGGER _endless; DROP VIEW _many; DROP TABLE _noise";

/// Kills a server while it copies the file. Returns `false` if the copy was complete before the kill.
fn kill_during_copy(db: &Path) -> bool {
    let (partial, pending, copy) =
        (beside(db, ".v1.pending.partial"), beside(db, ".v1.pending"), beside(db, ".v1"));
    // The partial copy of a killed server has another length than one of this server.
    let earlier = fs::metadata(&partial).ok().map(|file| file.len());
    let server = start(db);
    until("the copy starts", || {
        let is_partial = fs::metadata(&partial).is_ok_and(|file| Some(file.len()) != earlier);
        (is_partial || pending.exists() || copy.exists()).then_some(())
    });
    kill(server);
    partial.exists() && !pending.exists() && !copy.exists()
}

/// A file of version 1 with two kills of a server that copied it, and its contents. The kills race with the copies:
/// `None` if one came too late.
fn killed_twice_during_copy() -> Option<(TempDir, PathBuf, Contents)> {
    let (folder, db) = version_1();
    let before = contents(&db);
    // 60 MB, so that the copy takes long enough for the kill.
    let filler = "CREATE TABLE _filler (x); INSERT INTO _filler SELECT randomblob(60000)
                    FROM executions a, executions b LIMIT 1000";
    change(&db, filler);
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
    assert_eq!(version_of(&db), 1);
    change(&db, "DROP TABLE _filler");
    assert_migrates(&db, &before);
}

#[test]
fn a_migration_killed_between_its_copy_and_its_commit_is_repeated() {
    let (_folder, db) = version_1();
    let before = contents(&db);
    for _ in 0..3 {
        let other = Connection::open(&db).unwrap();
        other.execute_batch("BEGIN IMMEDIATE").unwrap();
        let server = start(&db);
        // It now waits for its turn to write.
        until("the copy is complete", || beside(&db, ".v1.pending").exists().then_some(()));
        kill(server);
        other.execute_batch("ROLLBACK").unwrap();
    }
    assert_same(&contents(&db), &before);
    assert_migrates(&db, &before);
}

#[test]
fn a_migration_killed_while_it_changes_the_file_is_repeated() {
    for journal in ["WAL", "DELETE"] {
        let (_folder, db) = version_1();
        let before = contents(&db);
        change(&db, ENDLESS);
        change(&db, &format!("PRAGMA journal_mode = {journal}"));
        let server = start(&db);
        let log = beside(&db, "-wal");
        until("a part of it is in the log", || {
            fs::metadata(&log).is_ok_and(|log| log.len() > 10_000_000).then_some(())
        });
        kill(server);
        assert!(log.exists(), "{journal}");
        // It is what a reader finds, too.
        let checked = run(&["check", db.to_str().unwrap()]);
        let printed = String::from_utf8(checked.stdout).unwrap();
        assert!(printed.contains("schema      version 1") && printed.contains("result      ok"), "{printed}");
        assert_eq!(version_of(&db), 1);
        change(&db, NO_LONGER_ENDLESS);
        assert_same(&contents(&db), &before);
        assert_migrates(&db, &before);
    }
}

#[test]
fn a_migration_killed_right_after_its_commit_keeps_its_copy() {
    let (_folder, db) = version_1();
    let before = contents(&db);
    assert_migrates(&db, &before);
    // As the commit leaves it.
    fs::rename(beside(&db, ".v1"), beside(&db, ".v1.pending")).unwrap();
    assert_migrates(&db, &before);
}

/// A file whose writer was killed while it used a rollback journal, as a restored file has one.
#[test]
fn a_file_with_a_rollback_journal_is_rolled_back_and_migrated() {
    let (folder, db) = version_1();
    let before = contents(&db);
    let writer = Connection::open(&db).unwrap();
    writer.execute_batch("PRAGMA journal_mode = DELETE; PRAGMA cache_size = 2; BEGIN IMMEDIATE").unwrap();
    let noise =
        "CREATE TABLE _noise (x); INSERT INTO _noise SELECT randomblob(500) FROM executions a, executions b;
                 UPDATE executions SET error_message = 'lost'; UPDATE users SET plan = 'lost'";
    writer.execute_batch(noise).unwrap();
    let killed = folder.path().join("killed.db");
    for suffix in ["", "-journal"] {
        fs::copy(beside(&db, suffix), beside(&killed, suffix)).unwrap();
    }
    drop(writer);
    assert_migrates(&killed, &before);
}

#[test]
fn a_file_that_cannot_be_migrated_is_refused_and_left_unchanged() {
    for (change, reason) in [
        ("CREATE VIEW _view AS SELECT nonsense FROM executions", "_view"),
        ("CREATE TABLE device_logins (x)", "device_logins"),
        ("CREATE INDEX executions_finished ON cues (name)", "executions_finished"),
        ("DROP INDEX executions_over", "executions_over"),
        // These would migrate, and be refused by the next start.
        ("DROP INDEX executions_by_cue", "executions_by_cue"),
        ("DROP TABLE alerts; CREATE TABLE alerts (key INTEGER PRIMARY KEY) STRICT", "alerts"),
        (
            "ALTER TABLE logins ADD COLUMN why TEXT NOT NULL DEFAULT ''; ALTER TABLE logins RENAME COLUMN email TO mail",
            "email",
        ),
        ("PRAGMA foreign_keys = OFF; UPDATE api_keys SET user_key = 77", "rows that do not exist"),
    ] {
        let (folder, db) = version_1();
        self::change(&db, change);
        let before = contents(&db);
        let stderr = refused_start(&db);
        assert!(stderr.contains("schema version 1") && stderr.contains(reason), "{change}: {stderr}");
        assert_eq!(names(folder.path()), BTreeSet::from(["cued.db".to_owned()]), "{change}");
        assert_same(&contents(&db), &before);
    }
    // Tables, views, indexes and triggers of other programs go along.
    let (_folder, db) = version_1();
    let more = "CREATE TABLE _notes (x); CREATE VIEW _view AS SELECT lane, queue FROM executions;
                CREATE INDEX _due ON executions (due) WHERE queue IS NULL;
                CREATE TRIGGER _log AFTER UPDATE OF queue ON executions
                WHEN new.queue = 'waiting' BEGIN INSERT INTO _notes VALUES (new.queue); END";
    change(&db, more);
    let before = contents(&db);
    assert_migrates(&db, &before);
    let count = "SELECT count(*) FROM _view WHERE destination_hash IS NOT NULL";
    let count: i64 = Connection::open(&db).unwrap().query_row(count, [], |row| row.get(0)).unwrap();
    assert!(count > 0);
}

#[test]
fn a_disk_that_is_full_at_any_moment_of_a_migration_leaves_the_file_unchanged() {
    let Some(disk) = Disk::mount("4m") else { return };
    let (mut without_copy, mut without_log) = (0, 0);
    let whole = names(disk.path());
    for free in (40..1_000).step_by(20) {
        fs::write(disk.db(), version_1_bytes()).unwrap();
        let before = contents(&disk.db());
        disk.fill_but(free * 1_024);
        let stderr = match try_start(&disk.db()) {
            Ok(()) => {
                disk.free();
                assert_eq!(version_of(&disk.db()), SCHEMA_VERSION);
                assert!(
                    without_copy > 0 && without_log > 0,
                    "{without_copy} without copy, {without_log} without log"
                );
                return;
            }
            Err(stderr) => stderr,
        };
        assert!(stderr.contains("full"), "{free}: {stderr}");
        if stderr.contains("schema migration finished") {
            // There was just room for the migration, and then none for the server.
            disk.free();
            assert_migrates(&disk.db(), &before);
            for name in names(disk.path()).difference(&whole) {
                fs::remove_file(disk.path().join(name)).unwrap();
            }
            continue;
        }
        if stderr.contains("cued.db.v1.pending needs about") {
            without_copy += 1;
        } else {
            without_log += 1;
        }
        disk.free();
        assert_same(&contents(&disk.db()), &before);
        assert!(fs::read(disk.db()).unwrap() == version_1_bytes(), "{free}");
        fs::remove_file(disk.db()).unwrap();
        assert_eq!(names(disk.path()), whole, "{free}: something is left behind");
    }
    panic!("the disk was always too small");
}

/// Starts a server and stops it when it listens, or returns why it does not.
fn try_start(db: &Path) -> Result<(), String> {
    let mut command = cued(&["serve", "--listen", "127.0.0.1:0", "--db"]);
    let child = command.arg(db).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut server = Process(child);
    let mut stdout = BufReader::new(server.0.stdout.take().unwrap());
    if read_addr(&mut stdout).is_some() {
        return Ok(());
    }
    assert_eq!(server.0.wait().unwrap().code(), Some(1));
    Err(std::io::read_to_string(server.0.stderr.take().unwrap()).unwrap())
}

#[test]
fn a_copy_of_an_earlier_migration_is_never_replaced() {
    let (folder, db) = version_1();
    fs::write(beside(&db, ".v1"), "of an earlier migration").unwrap();
    let mut server = Server::start_on(&db, DEV_UNLIMITED);
    assert_eq!(server.stop(), Some(0));
    let expected = ["cued.db", "cued.db.v1", "cued.db.v1-2"].map(str::to_owned);
    assert_eq!(names(folder.path()), BTreeSet::from(expected));
    assert_eq!(fs::read(beside(&db, ".v1")).unwrap(), b"of an earlier migration");
    assert_eq!(version_of(&beside(&db, ".v1-2")), 1);
}
