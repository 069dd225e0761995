//! A file that a replica tool keeps a copy of, or has restored: the tables of Litestream, and a start that holds.

use std::fs;
use std::path::Path;
use std::process::Output;

use serde_json::{Value, json};

use super::{BEGIN, backup, contents, fire, hook, work};
use crate::cli::administration::{fails, new_file, ok, stderr};
use crate::http::sessions::{Browser, cookie_of, sign_in};
use crate::support::client::Client;
use crate::support::receiver::Receiver;
use crate::support::server::{DEV_UNLIMITED, Server, cued, run};

/// The tables as Litestream 0.5 creates them, with a row.
const LITESTREAM: &str = "
    CREATE TABLE _litestream_seq (id INTEGER PRIMARY KEY, seq INTEGER);
    CREATE TABLE _litestream_lock (id INTEGER);
    INSERT INTO _litestream_seq VALUES (1, 7);";

#[track_caller]
fn assert_passes_check(file: &Path) {
    let output = run(&["check", file.to_str().unwrap()]);
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        printed.contains("result      ok") && !printed.contains("problem"),
        "{printed}{}",
        stderr(&output)
    );
}

#[test]
fn the_tables_of_litestream_are_passed_over_in_a_file_its_backup_and_a_restored_copy() {
    let mut server = Server::with_test_clock(BEGIN);
    let user = server.user();
    work(&user);
    server.sqlite().execute_batch(LITESTREAM).unwrap();
    assert_passes_check(&server.db());
    let backup = backup(&server, "backup");
    assert_passes_check(&backup);
    assert_eq!(contents(&backup)["_litestream_seq"], contents(&server.db())["_litestream_seq"]);
    server.stop();
    ok(&server.db(), &["restore", backup.to_str().unwrap(), "--replace"]);
    assert_passes_check(&server.db());
    ok(&server.db(), &["promote"]);
    server.restart();
    work(&user.at(server.addr()));
}

#[test]
fn only_the_exact_tables_of_litestream_are_passed_over() {
    let mut server = Server::with_test_clock(BEGIN);
    server.stop();
    let sound = fs::read(server.db()).unwrap();
    for (sql, problem) in [
        ("CREATE TABLE _litestream_seq2 (id)", "unexpected table _litestream_seq2"),
        ("CREATE TABLE litestream_lock (id)", "unexpected table litestream_lock"),
        ("CREATE VIEW _litestream_lock AS SELECT 1", "unexpected view _litestream_lock"),
        (
            "CREATE TABLE _litestream_seq (id); CREATE TRIGGER t AFTER INSERT ON _litestream_seq BEGIN SELECT 1; END",
            "unexpected trigger t",
        ),
    ] {
        server.sqlite().execute_batch(sql).unwrap();
        let output = run(&["check", server.db().to_str().unwrap()]);
        let printed = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(printed.contains(problem) && output.status.code() == Some(1), "{sql}: {printed}");
        fs::write(server.db(), &sound).unwrap();
    }
}

#[test]
fn a_stop_beside_a_reader_without_an_end_leaves_everything_in_the_file_and_its_log() {
    let mut server = Server::with_test_clock(BEGIN);
    let user = server.user();
    work(&user);
    let reader = server.sqlite();
    reader.execute_batch("BEGIN; SELECT * FROM meta").unwrap();
    work(&user);
    assert_eq!(server.stop(), Some(0));
    let log = server.db().with_file_name("cued.db-wal");
    assert!(fs::metadata(log).unwrap().len() > 0, "the reader still needs the log");
    assert_eq!(contents(&backup(&server, "backup"))["cues"].len(), 2);
    drop(reader);
    server.restart();
    assert_eq!(user.at(server.addr()).get("/v1/cues").expect(200)["total"], 2);
}

/// The same file under a server with `--held`, which starts at `at`.
fn restart_held(server: &mut Server, user: &Client, at: &str) -> (Server, Client) {
    server.stop();
    let held = Server::start_on(&server.db(), &[DEV_UNLIMITED, &["--held", "--test-clock", at]].concat());
    let user = user.at(held.addr());
    (held, user)
}

#[test]
fn a_start_with_held_fires_and_sends_nothing_until_promoted() {
    let receiver = Receiver::start();
    let mut server = Server::with_test_clock(BEGIN);
    let user = server.user();
    let (call, job) = (hook(&user, &receiver.url()), work(&user));
    let waiting = fire(&user, &job);
    let (mut first, user) = restart_held(&mut server, &user, "2026-01-01T13:30:00Z");
    let moved = user.advance("PT2H");
    assert_eq!((&moved["fired"], &moved["delivered"]), (&json!(0), &json!(0)));
    user.post(&format!("/v1/executions/{waiting}/claim"), &json!({"worker_id": "w"}))
        .expect_error(503, "held");
    let health = user.get("/health").expect(200);
    assert_eq!((&health["status"], &health["services"]["poller"]), (&json!("degraded"), &json!("held")));
    let since = |health: &Value| health["held_since"].as_str().unwrap().parse::<jiff::Timestamp>().unwrap();
    assert_eq!(since(&health), "2026-01-01T13:30:00Z".parse().unwrap());
    let status = user.get("/status").expect(200);
    assert!(status["reason"].as_str().unwrap().contains("`cued promote`"), "{status}");
    assert!(first.log().contains("remove it after `cued promote`"), "{}", first.log());

    // A restart with the flag changes nothing.
    let (second, user) = restart_held(&mut first, &user, "2026-01-01T16:30:00Z");
    assert_eq!(since(&user.get("/health").expect(200)), "2026-01-01T13:30:00Z".parse().unwrap());
    assert_eq!(receiver.count(), 0);
    let said = ok(&second.db(), &["promote"]);
    assert!(said.contains("on hold since 2026-01-01T13:30:00Z"), "{said}");
    assert_eq!(user.settle()["fired"], 2);
    receiver.wait_for(1);
    assert_eq!(user.executions_of(&call)[0]["scheduled_for"], "2026-01-01T16:00:00Z");
}

#[test]
fn a_start_with_held_ends_the_sessions_of_a_file_that_was_not_on_hold() {
    let mut server = Server::with_test_clock(BEGIN);
    let user = server.user();
    let credential = json!({"api_key": user.key()});
    let original = Browser::new(&server.client(), &sign_in(&server.client(), &credential));
    let (mut held, _) = restart_held(&mut server, &user, BEGIN);
    let sessions = |server: &Server| contents(&server.db())["sessions"].len();
    assert_eq!(sessions(&held), 0);
    let name = |cookie: &str| cookie.split_once('=').unwrap().0.to_owned();
    let fresh = sign_in(&held.client(), &credential);
    assert_ne!(name(&original.cookie), name(&cookie_of(&fresh)));
    let (again, _) = restart_held(&mut held, &user, BEGIN);
    assert_eq!(sessions(&again), 1, "a file on hold stays as it is");
}

#[test]
fn a_start_with_held_needs_a_database() {
    let start = |db: &Path, value: &str| -> Output {
        let db = db.to_str().unwrap();
        cued(&["serve", "--listen", "127.0.0.1:0", "--db", db]).env("CUED_HELD", value).output().unwrap()
    };
    let (_folder, db) = new_file();
    for is_empty in [false, true] {
        let output = start(&db, "true");
        let text = stderr(&output);
        assert_eq!((output.status.code(), output.stdout.as_slice()), (Some(1), &b""[..]), "{text}");
        assert!(text.contains("cued.db does not exist or is empty") && text.contains("CUED_HELD"), "{text}");
        assert_eq!(
            fs::metadata(&db).map(|file| file.len()).ok(),
            is_empty.then_some(0),
            "no database is made"
        );
        fs::write(&db, "").unwrap();
    }
    fs::write(&db, "no database").unwrap();
    assert!(stderr(&start(&db, "1")).contains("not a cued database"));
    assert_eq!(fs::read(&db).unwrap(), b"no database");
    let text = fails(&db, &["serve", "--held", "--ephemeral"], 2);
    assert!(text.contains("--ephemeral"), "{text}");
}
