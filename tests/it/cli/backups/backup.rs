//! `cued backup`: a backup contains every write acknowledged before it started, whatever the server does meanwhile.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use rusqlite::Connection;

use super::{BEGIN, backup, contents, fire, insert_history, report, work};
use crate::cli::administration::{fails, mode, ok, on, stderr};
use crate::support::client::Client;
use crate::support::server::{DEV_UNLIMITED, Server, run, until};

fn files(server: &Server) -> Vec<String> {
    let names = fs::read_dir(server.db().parent().unwrap()).unwrap();
    let mut names: Vec<String> = names.map(|it| it.unwrap().file_name().into_string().unwrap()).collect();
    names.retain(|name| !["cued.log", "cued.out"].contains(&name.as_str()));
    names.sort();
    names
}

fn cue_ids(path: &Path) -> BTreeSet<String> {
    let file = Connection::open(path).unwrap();
    let mut ids = file.prepare("SELECT id FROM cues").unwrap();
    ids.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect()
}

/// Creates and fires cues until it is stopped.
fn create(client: &Client, acknowledged: &Mutex<BTreeSet<String>>, is_over: &AtomicBool) {
    while !is_over.load(Ordering::Relaxed) {
        let cue = work(client);
        acknowledged.lock().unwrap().insert(cue.clone());
        report(client, &fire(client, &cue));
    }
}

#[test]
fn a_backup_under_load_has_every_earlier_acknowledged_write() {
    let server = Server::start(DEV_UNLIMITED);
    let user = server.user();
    let long = work(&user);
    insert_history(&mut server.sqlite(), &long, 20_000, true, BEGIN);
    let (acknowledged, is_over) = (Mutex::default(), AtomicBool::new(false));
    let backups: Vec<(BTreeSet<String>, PathBuf)> = thread::scope(|scope| {
        for _ in 0..4 {
            let client = user.clone();
            scope.spawn(|| {
                let client = client;
                create(&client, &acknowledged, &is_over);
            });
        }
        let backups = (1..=3).map(|number| {
            until("the load is running", || (acknowledged.lock().unwrap().len() > 20 * number).then_some(()));
            let before = acknowledged.lock().unwrap().clone();
            (before, backup(&server, &format!("backup-{number}.db")))
        });
        let backups = backups.collect();
        is_over.store(true, Ordering::Relaxed);
        backups
    });
    assert!(backups[0].0.len() < backups[2].0.len());
    for (before, path) in &backups {
        let there = cue_ids(path);
        assert!(before.is_subset(&there), "{:?} are missing", before.difference(&there));
        let checked = run(&["check", path.to_str().unwrap()]);
        assert_eq!(checked.status.code(), Some(0), "{}", stderr(&checked));
        let restored = path.with_extension("restored");
        ok(&restored, &["restore", path.to_str().unwrap()]);
        assert!(contents(&restored) == contents(path), "every row of every table");
    }
    user.get("/v1/auth/me").expect(200);
}

#[test]
fn a_backup_is_one_private_file_and_leaves_no_other() {
    let mut server = Server::with_test_clock(BEGIN);
    let user = server.user();
    work(&user);
    let beside = files(&server);
    let out = backup(&server, "a.backup");
    assert_eq!(mode(&out), 0o600);
    assert_eq!(files(&server), [&["a.backup".to_owned()], &beside[..]].concat());
    server.stop();
    let (stopped, before) = (backup(&server, "b.backup"), fs::read(server.db()).unwrap());
    assert_eq!(files(&server), ["a.backup", "b.backup", "cued.db"], "also of a stopped server");
    assert!(contents(&stopped) == contents(&server.db()));
    assert!(contents(&out) == contents(&stopped), "no change in between");
    assert!(fs::read(server.db()).unwrap() == before);
}

#[test]
fn a_backup_contains_the_wal_left_by_a_crash() {
    let mut server = Server::with_test_clock(BEGIN);
    let user = server.user();
    server.kill();
    let log = PathBuf::from(format!("{}-wal", server.db().display()));
    let before = (fs::read(server.db()).unwrap(), fs::read(&log).unwrap());
    assert!(!before.1.is_empty());
    let out = backup(&server, "a.backup");
    assert_eq!(fs::read(server.db()).unwrap(), before.0);
    assert!(fs::read(&log).unwrap() == before.1, "whose it is to put it back");
    server.restart();
    user.at(server.addr()).get("/v1/auth/me").expect(200);
    assert_eq!(contents(&out)["users"].len(), 1);
}

#[test]
fn a_failed_backup_reports_why_and_keeps_existing_files() {
    let server = Server::with_test_clock(BEGIN);
    let db = server.db();
    let existing = db.with_file_name("existing");
    fs::write(&existing, "somebody's").unwrap();
    let text = fails(&db, &["backup", existing.to_str().unwrap()], 1);
    assert!(text.contains("existing exists already") && text.contains("another name"), "{text}");
    assert_eq!(fs::read(&existing).unwrap(), b"somebody's");
    let nowhere = db.with_file_name("no").join("such");
    let text = fails(&db, &["backup", nowhere.to_str().unwrap()], 1);
    assert!(text.contains("no/such") && text.contains("cannot be written"), "{text}");
    let missing = db.with_file_name("missing.db");
    let text = fails(&missing, &["backup", db.with_file_name("out").to_str().unwrap()], 1);
    assert!(text.contains("missing.db does not exist"), "{text}");
    let text = fails(&existing, &["backup", db.with_file_name("out").to_str().unwrap()], 1);
    assert!(text.contains("existing is not a cued database"), "{text}");
    fails(&db, &["backup"], 2);
    assert_eq!(files(&server), ["cued.db", "cued.db-shm", "cued.db-wal", "cued.db.lock", "existing"]);
}

#[test]
fn a_foreign_file_named_like_a_partial_backup_is_kept() {
    let server = Server::with_test_clock(BEGIN);
    let partial = server.db().with_file_name("out.partial");
    fs::write(&partial, "somebody's").unwrap();
    let out = backup(&server, "out");
    assert_eq!(fs::read(&partial).unwrap(), b"somebody's");
    let left = files(&server).into_iter().filter(|name| name.starts_with("out"));
    assert_eq!(left.collect::<Vec<_>>(), ["out", "out.partial"]);
    let checked = run(&["check", out.to_str().unwrap()]);
    assert_eq!(checked.status.code(), Some(0), "{}", stderr(&checked));
}

#[test]
fn a_stale_wal_does_not_enter_a_backup_of_that_name() {
    let mut dead = Server::with_test_clock(BEGIN);
    work(&dead.user());
    dead.kill();
    let server = Server::with_test_clock(BEGIN);
    let out = server.db().with_file_name("out");
    for suffix in ["-wal", "-shm", "-journal"] {
        let left = server.db().with_file_name(format!("out{suffix}"));
        fs::copy(format!("{}-wal", dead.db().display()), &left).unwrap();
        let before = fs::read(&left).unwrap();
        let said = fails(&server.db(), &["backup", out.to_str().unwrap()], 1);
        assert!(said.contains(&format!("out{suffix} is left over")), "{said}");
        assert!(said.contains("Move it away, or give the backup another name"), "{said}");
        assert!(!out.exists() && fs::read(&left).unwrap() == before);
        fs::remove_file(left).unwrap();
    }
    backup(&server, "out");
}

#[test]
fn a_backup_of_a_backup_is_held_since_the_first_backup() {
    let server = Server::with_test_clock(BEGIN);
    let first = backup(&server, "first");
    let held = |path: &Path| {
        let sql = "SELECT value FROM meta WHERE name = 'held_since'";
        Connection::open(path).unwrap().query_row(sql, [], |row| row.get::<_, i64>(0)).unwrap()
    };
    let second = server.db().with_file_name("second");
    let output = on(&first, &["backup", second.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert_eq!(held(&second), held(&first));
    let file = server.sqlite();
    assert!(!file.prepare("SELECT 1 FROM meta WHERE name = 'held_since'").unwrap().exists([]).unwrap());
}

#[test]
fn a_backup_can_shrink_like_its_original() {
    let server = Server::start(&[DEV_UNLIMITED, &["--test-clock", BEGIN, "--retain", "off"]].concat());
    let copy = Connection::open(backup(&server, "out")).unwrap();
    assert_eq!(copy.query_row("PRAGMA auto_vacuum", [], |row| row.get::<_, i64>(0)).unwrap(), 2);
}
