//! `cued check`: the contents and integrity of a file, without any change to it.

use std::fs;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use rusqlite::Connection;
use serde_json::json;

use super::{BEGIN, fire, insert_history, report, work};
use crate::cli::administration::{mode, new_file, ok, stderr};
use crate::support::server::{DEV_UNLIMITED, Server, cued, run};

/// Output, error message and exit code of `cued check`.
fn check(file: &Path) -> (String, String, Option<i32>) {
    let output = run(&["check", file.to_str().unwrap()]);
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    (printed, stderr(&output), output.status.code())
}

/// Every file next to the database, with its bytes.
fn folder(db: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let all = fs::read_dir(db.parent().unwrap()).unwrap().map(|it| it.unwrap().path());
    let mut all: Vec<(PathBuf, Vec<u8>)> = all.map(|path| (path.clone(), fs::read(path).unwrap())).collect();
    // Readers record their position in the index of the log.
    all.retain(|(path, _)| !path.to_string_lossy().ends_with("-shm"));
    all.sort();
    all
}

#[test]
fn check_reads_the_file_of_a_running_stopped_or_killed_server_without_changes() {
    let mut server = Server::start(DEV_UNLIMITED);
    let user = server.user();
    let cue = work(&user);
    let paused = work(&user);
    user.patch(&format!("/v1/cues/{paused}"), &json!({"status": "paused"})).expect(200);
    report(&user, &fire(&user, &cue));
    fire(&user, &cue);
    let looks_sound = |server: &Server| {
        let before = folder(&server.db());
        let (printed, stderr, code) = check(&server.db());
        assert_eq!((stderr.as_str(), code), ("", Some(0)), "{printed}");
        for line in [
            "schema      version 1",
            "users       1 (0 disabled)",
            "cues        1 active, 1 paused",
            "executions  1 pending, 1 success",
            "overdue     0 cues, 1 execution to send or hand to workers",
            "last seen   2",
            "result      ok",
        ] {
            assert!(printed.contains(line), "{line:?} is not in\n{printed}");
        }
        assert!(!printed.contains("on hold"), "{printed}");
        assert!(folder(&server.db()) == before, "something was changed");
    };
    looks_sound(&server);
    server.kill();
    looks_sound(&server);
    server.restart();
    assert_eq!(server.stop(), Some(0));
    looks_sound(&server);
    assert_eq!(mode(&server.db()), 0o600);
    let by_variable = cued(&["check"]).env("CUED_DB", server.db()).output().unwrap();
    assert_eq!(by_variable.status.code(), Some(0), "{}", stderr(&by_variable));
}

#[test]
fn check_reports_overdue_work_and_a_wrong_clock() {
    let mut server = Server::with_test_clock("2040-01-01T00:00:00Z");
    let user = server.user();
    work(&user);
    user.advance("PT1H");
    server.stop();
    let (printed, _, code) = check(&server.db());
    assert_eq!(code, Some(0), "{printed}");
    assert!(printed.contains("last seen   2040-01-01T01:00:00Z: ahead of the clock"), "{printed}");
    assert!(printed.contains("next due    2040-01-01T02:00:00Z"), "{printed}");
    let mut server = Server::with_test_clock("2020-01-01T00:00:00Z");
    work(&server.user());
    server.stop();
    let (printed, _, _) = check(&server.db());
    assert!(printed.contains("overdue     1 cue, 0 executions"), "{printed}");
}

#[test]
fn check_distinguishes_a_foreign_file_from_a_damaged_one() {
    let mut server = Server::with_test_clock(BEGIN);
    let user = server.user();
    let cue = work(&user);
    insert_history(&mut server.sqlite(), &cue, 2_000, true, BEGIN);
    server.stop();
    let sound = fs::read(server.db()).unwrap();
    let (_folder, path) = new_file();
    let verdict = |bytes: &[u8], word: &str| {
        fs::write(&path, bytes).unwrap();
        let (printed, stderr, code) = check(&path);
        assert!(stderr.contains(word) && code == Some(1), "{word}: {printed}{stderr}");
        assert!(fs::read(&path).unwrap() == bytes, "{word}");
        printed
    };
    verdict(b"", "not a cued database");
    verdict(&b"somebody's notes\n".repeat(500), "not a cued database");
    verdict(&sound[..sound.len() / 2 / 4_096 * 4_096], "");
    verdict(&sound[..50], "");
    let mut torn = sound.clone();
    let pages = sound.len() / 4_096;
    for page in (pages / 2..pages).step_by(7) {
        torn[page * 4_096 + 8..page * 4_096 + 600].fill(0x5a);
    }
    let printed = verdict(&torn, "failed the check");
    assert!(!printed.contains("stop cued"), "it may be a backup, which no server has: {printed}");
    assert!(!printed.contains("up to date"), "no server mends it: {printed}");
    assert!(printed.contains("problem  ") && printed.contains("and ") && printed.len() < 20_000, "{printed}");
    let (printed, stderr, code) = check(&path.with_file_name("no-such-file"));
    assert_eq!((printed.as_str(), code), ("", Some(1)));
    assert!(stderr.contains("no-such-file does not exist"), "{stderr}");
    assert!(!path.with_file_name("no-such-file").exists());
}

#[test]
fn check_identifies_foreign_and_newer_files() {
    let (folder, newer) = new_file();
    ok(&newer, &["user", "add", "ann@example.com"]);
    Connection::open(&newer).unwrap().pragma_update(None, "user_version", 1_000).unwrap();
    let (_, stderr, code) = check(&newer);
    assert!(stderr.contains("version 1000") && stderr.contains("newer") && code == Some(1), "{stderr}");
    let foreign = folder.path().join("foreign.db");
    Connection::open(&foreign).unwrap().execute_batch("CREATE TABLE theirs (x)").unwrap();
    let (_, stderr, code) = check(&foreign);
    assert!(stderr.contains("not a cued database") && code == Some(1), "{stderr}");
}

#[test]
fn check_names_inconsistencies() {
    let mut server = Server::with_test_clock(BEGIN);
    let user = server.user();
    let cue = work(&user);
    fire(&user, &cue);
    server.stop();
    let sound = fs::read(server.db()).unwrap();
    for (spoil, word) in [
        ("UPDATE backlog SET count = 7 WHERE name = 'claim'", "backlog claim is 7 but should be 1"),
        ("UPDATE users SET active_cues = 3", " is 3 but should be 1"),
        ("DELETE FROM cues", "refers to cue 1, which does not exist"),
        ("UPDATE cues SET payload_key = 77", "refers to payload 77, which does not exist"),
        ("DROP INDEX executions_by_cue", "missing index executions_by_cue"),
        ("CREATE TABLE theirs (x)", "unexpected table theirs"),
        ("PRAGMA foreign_keys = OFF; DELETE FROM users", "refers to a row of users"),
    ] {
        server.sqlite().execute_batch(spoil).unwrap();
        let (printed, stderr, code) = check(&server.db());
        assert!(printed.contains(word) && code == Some(1), "{word}: {printed}{stderr}");
        let problems = printed.matches("problem     ").count();
        let count = if problems == 1 { "1 problem".to_owned() } else { format!("{problems} problems") };
        assert!(stderr.trim_end().ends_with(&format!("failed the check: {count}")), "{stderr}");
        fs::write(server.db(), &sound).unwrap();
    }
    // No check finds a changed byte in the text of a row, but it does find a page of one table in another.
    let root = |table: &str| -> u32 {
        let sql = "SELECT (rootpage - 1) * 1024 FROM sqlite_schema WHERE name = ?1";
        server.sqlite().query_row(sql, [table], |row| row.get(0)).unwrap()
    };
    let (cues, users) = (root("cues"), root("users"));
    let file = fs::File::options().write(true).open(server.db()).unwrap();
    let page = cues as usize..cues as usize + 1_024;
    file.write_all_at(&sound[page], users.into()).unwrap();
    assert_eq!(check(&server.db()).2, Some(1));
    fs::write(server.db(), &sound).unwrap();
    assert_eq!(check(&server.db()).2, Some(0));
}
