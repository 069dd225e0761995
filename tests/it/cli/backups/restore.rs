//! `cued check`, restores and replicas.

use std::os::unix::fs::FileExt as _;
use std::process::Output;

use rusqlite::Connection;

use crate::cli::administration::{fails, mode, new_file, ok, stderr};
use crate::cli::backups::{BEGIN, backup, contents, fire, insert_history, report, work};
use crate::http::sessions::{Browser, cookie_of, sign_in};
use crate::support::*;

fn beside(path: &Path, suffix: &str) -> PathBuf {
    PathBuf::from(format!("{}{suffix}", path.display()))
}

/// A server with a cue, its user, and a backup of it.
fn backed_up() -> (Server, Client, String) {
    let (server, user) = Server::with_clock_and_user(BEGIN);
    work(&user);
    let backup = backup(&server, "backup").to_str().unwrap().to_owned();
    (server, user, backup)
}

#[test]
fn restore_keeps_an_existing_file_and_moves_it_aside_with_replace() {
    let (mut server, user, backup) = backed_up();
    work(&user);
    server.stop();
    let later = contents(&server.db());
    let text = fails(&server.db(), &["restore", &backup], 1);
    assert_contains(&text, &["exists already", "--replace"]);
    assert!(contents(&server.db()) == later);
    let text = ok(&server.db(), &["restore", &backup, "--replace"]);
    assert_contains(&text, &["cued.db.replaced", "cued promote"]);
    assert!(contents(&server.db()) == contents(Path::new(&backup)));
    assert_eq!(mode(&server.db()), 0o600);
    assert!(contents(&beside(&server.db(), ".replaced")) == later);
    ok(&server.db(), &["restore", &backup, "--replace"]);
    assert!(beside(&server.db(), ".replaced-2").exists(), "no moved file is lost");
}

#[test]
fn a_file_in_use_by_a_server_is_not_replaced() {
    let (server, user, backup) = backed_up();
    work(&user);
    for flags in [&["restore", &backup][..], &["restore", &backup, "--replace"]] {
        let text = fails(&server.db(), flags, 1);
        assert_contains(&text, &["in use by another cued", &server.pid().to_string()]);
    }
    work(&user);
    assert_eq!(user.total("/v1/cues"), 3);
    let text = fails(Path::new(&backup), &["restore", &backup, "--replace"], 1);
    assert!(text.contains("from itself"), "{text}");
}

#[test]
fn the_wal_of_a_killed_server_does_not_enter_the_restored_file() {
    let (mut server, user, backup) = backed_up();
    (0..50).for_each(|_| drop(work(&user)));
    server.kill();
    assert!(fs::metadata(beside(&server.db(), "-wal")).unwrap().len() > 0);
    ok(&server.db(), &["restore", &backup, "--replace"]);
    assert!(contents(&server.db()) == contents(Path::new(&backup)));
    let aside = contents(&beside(&server.db(), ".replaced"));
    assert_eq!(aside["cues"].len(), 51, "the log moved with its file");
}

#[test]
fn a_wal_is_kept_and_restored_with_its_moved_database() {
    let (mut server, user, backup) = backed_up();
    work(&user);
    server.kill();
    let (db, moved) = (server.db(), beside(&server.db(), ".broken"));
    fs::rename(&db, &moved).unwrap();
    // A foreign file under the first name that restore would choose.
    fs::write(beside(&db, ".replaced-wal"), "another one's").unwrap();
    let said = ok(&db, &["restore", &backup]);
    assert_contains(&said, &["cued.db-wal as", "cued.db.replaced-2-wal", "no longer exists"]);
    assert!(contents(&db) == contents(Path::new(&backup)));
    assert_eq!(fs::read(beside(&db, ".replaced-wal")).unwrap(), b"another one's");
    fs::rename(beside(&db, ".replaced-2-wal"), beside(&moved, "-wal")).unwrap();
    assert_eq!(contents(&moved)["cues"].len(), 2, "what was acknowledged");
}

#[test]
fn a_damaged_or_missing_backup_is_not_restored() {
    let (mut server, _, backup) = backed_up();
    server.stop();
    let before = contents(&server.db());
    let wrong = "UPDATE users SET active_cues = 9";
    Connection::open(&backup).unwrap().execute_batch(wrong).unwrap();
    let said = fails(&server.db(), &["restore", &backup, "--replace"], 1);
    assert_contains(&said, &["is 9 but must be 1", "failed the check"]);
    fs::write(&backup, "no backup").unwrap();
    let text = fails(&server.db(), &["restore", &backup, "--replace"], 1);
    assert!(text.contains("not a cued database"), "{text}");
    let text = fails(&server.db(), &["restore", "no-such-file", "--replace"], 1);
    assert!(text.contains("no-such-file does not exist"), "{text}");
    assert!(contents(&server.db()) == before);
    let (_folder, nowhere) = new_file();
    fails(&nowhere, &["restore", &backup], 1);
    assert!(!nowhere.exists() && !beside(&nowhere, ".partial").exists());
    fails(&nowhere, &["restore"], 2);
}

#[test]
fn a_restored_copy_has_no_sessions_and_a_cookie_of_its_own() {
    let (mut server, user) = Server::with_clock_and_user(BEGIN);
    let credential = serde_json::json!({"api_key": user.key()});
    let original = Browser::new(&server.client(), &sign_in(&server.client(), &credential));
    user.post("/v1/auth/session-link", &serde_json::json!({})).expect(201);
    let backup = backup(&server, "backup");
    server.stop();
    ok(&server.db(), &["restore", backup.to_str().unwrap(), "--replace"]);
    let file = Connection::open(server.db()).unwrap();
    let left = "SELECT (SELECT count(*) FROM sessions) + (SELECT count(*) FROM links)";
    assert_eq!(file.query_row(left, [], |row| row.get::<_, i64>(0)).unwrap(), 0);
    drop(file);
    server.restart();
    let restored = sign_in(&server.client(), &credential);
    let name = |cookie: &str| cookie.split_once('=').unwrap().0.to_owned();
    assert_ne!(name(&original.cookie), name(&cookie_of(&restored)));
}

/// Output, error message and exit code of `cued check`.
fn check(file: &Path) -> (String, String, Option<i32>) {
    let output = run(&["check", file.to_str().unwrap()]);
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    (printed, stderr(&output), output.status.code())
}

/// Every file next to the database, with its bytes.
fn folder(db: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let all = fs::read_dir(db.parent().unwrap()).unwrap().map(|it| it.unwrap().path());
    let mut all: Vec<(PathBuf, Vec<u8>)> =
        all.map(|path| (path.clone(), fs::read(path).unwrap())).collect();
    // Readers record their position in the index of the log.
    all.retain(|(path, _)| !path.to_string_lossy().ends_with("-shm"));
    all.sort();
    all
}

#[test]
fn check_reads_the_file_of_a_running_stopped_or_killed_server_without_changes() {
    let (mut server, user) = Server::with_user(DEV_UNLIMITED);
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
            "runs        1 pending, 1 success",
            "overdue     0 cues, 1 run to send or hand to workers",
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
    let (mut server, user) = Server::with_clock_and_user("2040-01-01T00:00:00Z");
    work(&user);
    user.advance("PT1H");
    server.stop();
    let (printed, _, code) = check(&server.db());
    assert_eq!(code, Some(0), "{printed}");
    assert_contains(
        &printed,
        &[
            "last seen   2040-01-01T01:00:00Z: ahead of the clock",
            "next due    2040-01-01T02:00:00Z",
        ],
    );
    let mut server = Server::with_test_clock("2020-01-01T00:00:00Z");
    work(&server.user());
    server.stop();
    let (printed, _, _) = check(&server.db());
    assert!(printed.contains("overdue     1 cue, 0 runs"), "{printed}");
}

#[test]
fn check_distinguishes_a_foreign_file_from_a_damaged_one() {
    let (mut server, user) = Server::with_clock_and_user(BEGIN);
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
    let mut newer = sound.clone();
    newer[60..64].copy_from_slice(&1_000_u32.to_be_bytes());
    verdict(&newer, "version 1000");
    let mut torn = sound.clone();
    let pages = sound.len() / 4_096;
    for page in (pages / 2..pages).step_by(7) {
        torn[page * 4_096 + 8..page * 4_096 + 600].fill(0x5a);
    }
    let printed = verdict(&torn, "failed the check");
    assert!(!printed.contains("stop cued"), "it may be a backup, which no server has: {printed}");
    assert!(!printed.contains("up to date"), "no server mends it: {printed}");
    assert!(
        printed.contains("problem  ") && printed.contains("and ") && printed.len() < 20_000,
        "{printed}"
    );
    let (printed, stderr, code) = check(&path.with_file_name("no-such-file"));
    assert_eq!((printed.as_str(), code), ("", Some(1)));
    assert!(stderr.contains("no-such-file does not exist"), "{stderr}");
    assert!(!path.with_file_name("no-such-file").exists());
}

#[test]
fn check_names_inconsistencies() {
    let (mut server, user) = Server::with_clock_and_user(BEGIN);
    let cue = work(&user);
    fire(&user, &cue);
    server.stop();
    let sound = fs::read(server.db()).unwrap();
    for (spoil, word) in [
        ("UPDATE backlog SET count = 7 WHERE name = 'claim'", "backlog claim is 7 but must be 1"),
        ("UPDATE users SET active_cues = 3", " is 3 but must be 1"),
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
        let count =
            if problems == 1 { "1 problem".to_owned() } else { format!("{problems} problems") };
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

/// The tables as Litestream 0.5 creates them, with a row.
const LITESTREAM: &str = "
    CREATE TABLE _litestream_seq (id INTEGER PRIMARY KEY, seq INTEGER);
    CREATE TABLE _litestream_lock (id INTEGER);
    INSERT INTO _litestream_seq VALUES (1, 7);";

#[track_caller]
fn assert_passes_check(file: &Path) {
    let (printed, stderr, _) = check(file);
    assert!(
        printed.contains("result      ok") && !printed.contains("problem"),
        "{printed}{stderr}"
    );
}

#[test]
fn the_tables_of_litestream_are_passed_over_in_a_file_its_backup_and_a_restored_copy() {
    let (mut server, user) = Server::with_clock_and_user(BEGIN);
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
        server.sql(sql);
        let (printed, _, code) = check(&server.db());
        assert!(printed.contains(problem) && code == Some(1), "{sql}: {printed}");
        fs::write(server.db(), &sound).unwrap();
    }
}

#[test]
fn a_stop_beside_a_reader_without_an_end_leaves_everything_in_the_file_and_its_log() {
    let (mut server, user) = Server::with_clock_and_user(BEGIN);
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
    assert_eq!(user.at(server.addr()).read("/v1/cues")["total"], 2);
}

/// The same file under a server with `--held`, which starts at `at`.
fn restart_held(server: &mut Server, user: &Client, at: &str) -> (Server, Client) {
    server.stop();
    let held =
        Server::start_on(&server.db(), &[DEV_UNLIMITED, &["--held", "--test-clock", at]].concat());
    let user = user.at(held.addr());
    (held, user)
}

#[test]
fn a_start_with_held_fires_and_sends_nothing_until_promoted() {
    let (mut server, user) = Server::with_clock_and_user(BEGIN);
    let job = work(&user);
    let (mut first, user) = restart_held(&mut server, &user, "2026-01-01T13:30:00Z");
    assert_eq!(user.advance("PT2H")["fired"], 0);
    user.post("/v1/executions/claim", &json!({"worker_id": "w"})).expect_error(503, "held");
    let held_since = |user: &Client| user.read("/health").text("held_since").to_owned();
    assert!(held_since(&user).starts_with("2026-01-01T13:30:00"), "{}", held_since(&user));
    assert!(first.log().contains("remove it after `cued promote`"), "{}", first.log());

    // A restart with the flag changes nothing.
    let (second, user) = restart_held(&mut first, &user, "2026-01-01T16:30:00Z");
    assert!(held_since(&user).starts_with("2026-01-01T13:30:00"), "{}", held_since(&user));
    let said = ok(&second.db(), &["promote"]);
    assert!(said.contains("on hold since 2026-01-01T13:30:00Z"), "{said}");
    assert_eq!(user.settle()["fired"], 1);
    assert_eq!(user.executions_of(&job)[0]["scheduled_for"], "2026-01-01T16:00:00Z");
}

#[test]
fn a_start_with_held_ends_the_sessions_of_a_file_that_was_not_on_hold() {
    let (mut server, user) = Server::with_clock_and_user(BEGIN);
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
        cued(&["serve", "--listen", "127.0.0.1:0", "--db", db])
            .env("CUED_HELD", value)
            .output()
            .unwrap()
    };
    let (_folder, db) = new_file();
    for is_empty in [false, true] {
        let output = start(&db, "true");
        let text = stderr(&output);
        assert_eq!((output.status.code(), output.stdout.as_slice()), (Some(1), &b""[..]), "{text}");
        assert_contains(&text, &["cued.db does not exist or is empty", "CUED_HELD"]);
        // No database is made.
        assert_eq!(fs::metadata(&db).map(|file| file.len()).ok(), is_empty.then_some(0));
        fs::write(&db, "").unwrap();
    }
    fs::write(&db, "no database").unwrap();
    assert!(stderr(&start(&db, "1")).contains("not a cued database"));
    assert_eq!(fs::read(&db).unwrap(), b"no database");
    let text = fails(&db, &["serve", "--held", "--ephemeral"], 2);
    assert!(text.contains("--ephemeral"), "{text}");
}

#[test]
fn whatever_the_schema_has_not_is_named_and_not_restored() {
    let mut server = Server::with_test_clock(BEGIN);
    assert_eq!(server.stop(), Some(0));
    let backup = backup(&server, "backup");
    let foreign = "CREATE TRIGGER sqlitex AFTER INSERT ON cues BEGIN DELETE FROM api_keys; END;
                   CREATE TABLE SQLite1 (x); CREATE INDEX sqlite2 ON cues (name); CREATE VIEW sqlite3 AS SELECT 1;";
    Connection::open(&backup).unwrap().execute_batch(foreign).unwrap();
    let checked = run(&["check", backup.to_str().unwrap()]);
    assert_eq!(checked.status.code(), Some(1));
    let restored = server.db().with_file_name("restored.db");
    let refused = fails(&restored, &["restore", backup.to_str().unwrap()], 1);
    for text in [String::from_utf8(checked.stdout).unwrap(), refused] {
        let parts = ["trigger sqlitex", "table SQLite1", "index sqlite2", "view sqlite3"];
        assert_contains(
            &text,
            &parts.map(|part| format!("unexpected {part}")).each_ref().map(String::as_str),
        );
    }
    assert!(!restored.exists());
}
