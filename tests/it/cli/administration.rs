//! `cued user` and `cued key`: the built program, before the first server, next to one and without one.

use std::os::unix::fs::PermissionsExt as _;
use std::process::Output;

use rusqlite::Connection;

use crate::support::*;

/// Runs a command with `--db`.
pub fn on(db: &Path, arguments: &[&str]) -> Output {
    cued(arguments).arg("--db").arg(db).output().unwrap()
}

/// The output of a command that must succeed.
#[track_caller]
pub fn ok(db: &Path, arguments: &[&str]) -> String {
    let output = on(db, arguments);
    assert_eq!(output.status.code(), Some(0), "{arguments:?}: {}", stderr(&output));
    String::from_utf8(output.stdout).unwrap()
}

/// The error message of a command that must exit with `code`.
#[track_caller]
pub fn fails(db: &Path, arguments: &[&str], code: i32) -> String {
    let output = on(db, arguments);
    assert_eq!(output.status.code(), Some(code), "{arguments:?}");
    assert_eq!(output.stdout.as_slice(), &b""[..], "{arguments:?}");
    stderr(&output)
}

pub fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// The value on the line that starts with `name`.
#[track_caller]
fn value<'a>(printed: &'a str, name: &str) -> &'a str {
    printed.lines().find_map(|line| line.strip_prefix(name)).expect(printed).trim()
}

/// The rows of a table without its head, split at white space.
fn rows(printed: &str) -> Vec<Vec<String>> {
    printed
        .lines()
        .skip(1)
        .map(|line| line.split_whitespace().map(str::to_owned).collect())
        .collect()
}

pub fn new_file() -> (TempDir, PathBuf) {
    let folder = TempDir::new().unwrap();
    let db = folder.path().join("cued.db");
    (folder, db)
}

pub fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[test]
fn the_first_user_can_be_added_before_the_first_start() {
    let mut server = Server::start(&["--registration", "closed"]);
    assert_eq!(server.stop(), Some(0));
    fs::remove_file(server.db()).unwrap();
    let printed = ok(&server.db(), &["user", "add", " Ann@Example.com"]);
    assert_eq!((value(&printed, "email"), mode(&server.db())), ("ann@example.com", 0o600));
    server.restart();
    let me = server.client().with_key(value(&printed, "api key")).read("/v1/auth/me");
    assert_has(&me, json!({"id": value(&printed, "user"), "email": "ann@example.com"}));
}

#[test]
fn an_operator_is_appointed_and_dismissed_while_the_server_runs() {
    let server = Server::start(DEV_UNLIMITED);
    let (ann, bob) =
        (server.client().register("ann@example.com"), server.client().register("bob@example.com"));
    let said = ok(&server.db(), &["user", "set-operator", "bob@example.com", "on"]);
    assert_eq!(said, "bob@example.com is now an operator\n");
    bob.read("/v1/admin/users");
    let said = ok(&server.db(), &["user", "set-operator", "ann@example.com", "off"]);
    assert_eq!(said, "ann@example.com is no longer an operator\n");
    ann.get("/v1/admin/users").expect_error(404, "not_found");
    let last = on(&server.db(), &["user", "set-operator", "bob@example.com", "off"]);
    assert_eq!(last.status.code(), Some(0));
    assert!(stderr(&last).contains("set-operator EMAIL on"), "{}", stderr(&last));
    bob.get("/v1/admin/users").expect_error(404, "not_found");
    fails(&server.db(), &["user", "set-operator", "eve@example.com", "on"], 1);
    fails(&server.db(), &["user", "set-operator", "bob@example.com", "yes"], 2);
}

#[test]
fn a_plan_set_while_the_server_runs_applies_at_once() {
    let server = Server::start(&["--dev"]);
    let user = server.client().register("ann@example.com");
    ok(&server.db(), &["user", "set-plan", "ann@example.com", "scale"]);
    let me = user.read("/v1/auth/me");
    assert_eq!((&me["plan"], &me["rate_limit_per_minute"]), (&json!("scale"), &json!(500)));

    let plans = server.db().with_file_name("plans.json");
    let limits = json!({"cues": 1, "executions": 1, "requests_per_minute": 1});
    fs::write(&plans, json!({"free": limits, "gold": limits}).to_string()).unwrap();
    let plans = plans.to_str().unwrap();
    ok(&server.db(), &["user", "set-plan", "ann@example.com", "gold", "--plans", plans]);
    fails(&server.db(), &["user", "set-plan", "ann@example.com", "pro", "--plans", plans], 2);
    assert_eq!(user.read("/v1/auth/me")["plan"], "gold");
}

#[test]
fn a_disabled_user_has_no_keys_and_no_runs_until_it_is_enabled() {
    let server = Server::with_test_clock("2026-01-05T00:00:00Z");
    let (ann, bob) =
        (server.client().register("ann@example.com"), server.client().register("bob@x.com"));
    bob.create(&hourly_cue("work"));
    let cue = ann.create(&hourly_cue("work"));
    let path = cue_path(&cue);
    let text = fails(&server.db(), &["user", "enable", "ann@example.com"], 1);
    assert!(text.contains("ann@example.com is not disabled"), "{text}");
    fails(&server.db(), &["user", "enable", "eve@example.com"], 1);
    fails(&server.db(), &["user", "enable", "ann"], 2);
    ann.advance("PT1H");
    ok(&server.db(), &["user", "disable", "ann@example.com"]);
    ann.get("/v1/auth/me").expect_error(401, "invalid_api_key");
    let again = server.client().post("/v1/auth/register", &json!({"email": "ann@example.com"}));
    again.expect_error(409, "duplicate_email");
    assert_eq!(bob.advance("PT2H")["fired"], 2, "bob's two runs and none of ann's");
    assert!(fails(&server.db(), &["key", "add", "ann@example.com"], 1).contains("disabled"));

    let text = ok(&server.db(), &["user", "enable", "ann@example.com"]);
    assert!(text.contains("keys work again") && text.contains("stay paused"), "{text}");
    ann.read("/v1/auth/me");
    let paused = ann.read(&path);
    assert_eq!((&paused["status"], &paused["next_run"]), (&json!("paused"), &json!(null)));
    let failed = &paused["executions"][0];
    assert_has(failed, json!({"status": "failed", "error_message": "account_disabled"}));
    assert_eq!(ann.advance("PT2H")["fired"], 2, "bob's");
    ann.patch(&path, &json!({"status": "active"})).expect(200);
    assert_eq!(ann.advance("PT1H")["fired"], 2);
    ok(&server.db(), &["key", "add", "ann@example.com"]);
    fails(&server.db(), &["user", "enable", "ann@example.com"], 1);
}

#[test]
fn keys_are_added_listed_and_revoked_while_the_server_runs() {
    let server = Server::start(DEV_UNLIMITED);
    let user = server.client().register("ann@example.com");
    let printed = ok(&server.db(), &["key", "add", "ann@example.com", "--name", "backup"]);
    let (id, key) = (value(&printed, "id"), value(&printed, "api key"));
    let backup = server.client().with_key(key);
    backup.read("/v1/auth/me");
    let listed = ok(&server.db(), &["key", "list", "ann@example.com"]);
    let shown = rows(&listed);
    assert_eq!(shown.iter().map(|row| row[1].as_str()).collect::<Vec<_>>(), ["default", "backup"]);
    assert_eq!((shown[1][0].as_str(), shown[1][2].as_str()), (id, &key[..12]));
    assert!(!listed.contains(key));

    ok(&server.db(), &["key", "revoke", id]);
    backup.get("/v1/auth/me").expect_error(401, "invalid_api_key");
    user.read("/v1/auth/me");
    let said = fails(&server.db(), &["key", "revoke", &shown[0][0]], 1);
    assert!(said.contains("last API key"), "{said}");
    user.read("/v1/auth/me");
}

#[test]
fn user_text_cannot_send_control_characters_to_the_terminal() {
    let server = Server::start(DEV_UNLIMITED);
    let user = server.client().register("ann@example.com");
    user.post("/v1/auth/keys", &json!({"name": "\u{1b}[2J\nfaked\u{9b}"})).expect(201);
    let listed = ok(&server.db(), &["key", "list", "ann@example.com"]);
    assert_eq!(listed.lines().count(), 3, "{listed:?}");
    assert!(
        !listed.chars().any(|char| char.is_control() && !matches!(char, '\n' | '\t')),
        "{listed:?}"
    );
}

#[test]
fn many_commands_at_once_on_a_new_file_all_succeed() {
    for _ in 0..3 {
        let (_folder, db) = new_file();
        thread::scope(|scope| {
            for number in 0..8 {
                let db = &db;
                scope.spawn(move || ok(db, &["user", "add", &format!("u{number}@example.com")]));
            }
        });
        assert_eq!(rows(&ok(&db, &["user", "list"])).len(), 8);
    }
}

#[test]
fn a_full_or_closed_standard_output_does_not_crash() {
    let (_folder, db) = new_file();
    let to = |arguments: &[&str], stdout: Stdio| {
        let child =
            cued(arguments).arg("--db").arg(&db).stdout(stdout).stderr(Stdio::piped()).spawn();
        child.unwrap().wait_with_output().unwrap()
    };
    let (reader, closed) = std::io::pipe().unwrap();
    drop(reader);
    let output = to(&["user", "add", "ann@example.com"], closed.into());
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("cued key add"), "{}", stderr(&output));
    let (reader, closed) = std::io::pipe().unwrap();
    drop(reader);
    let output = to(&["user", "list"], closed.into());
    assert_eq!((output.status.code(), stderr(&output).as_str()), (Some(0), ""));
    let full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let output = to(&["user", "list"], full.into());
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("standard output"), "{}", stderr(&output));
}

#[test]
fn an_unusable_file_is_refused_and_left_unchanged() {
    let (folder, newer) = new_file();
    ok(&newer, &["user", "add", "ann@example.com"]);
    let connection = Connection::open(&newer).unwrap();
    connection.pragma_update(None, "user_version", 1_000).unwrap();
    connection.close().unwrap();
    let foreign = folder.path().join("foreign.db");
    let connection = Connection::open(&foreign).unwrap();
    connection.execute_batch("PRAGMA user_version = 1; CREATE TABLE theirs (x);").unwrap();
    connection.close().unwrap();
    let text = folder.path().join("notes.txt");
    fs::write(&text, "no database, but somebody's notes\n".repeat(100)).unwrap();
    for (file, word) in
        [(&newer, "newer"), (&foreign, "not a cued database"), (&text, "not a cued database")]
    {
        let before = fs::read(file).unwrap();
        let commands =
            ["user add bob@example.com", "user list", "key revoke x", "serve --listen 127.0.0.1:0"];
        for arguments in commands.map(words) {
            let text = fails(file, &arguments, 1);
            assert!(text.contains(word) && text.contains(file.to_str().unwrap()), "{text}");
            assert!(fs::read(file).unwrap() == before, "{} was changed", file.display());
        }
    }
    let checked = cued(&["check"]).arg(&text).output().unwrap();
    let advice =
        "notes.txt is not a cued database: give the database of a server, or a backup of one\n";
    assert!(stderr(&checked).ends_with(advice), "{}", stderr(&checked));
    // No process, not even one of root, can create a file in these folders.
    for db in [
        text.join("cued.db"),
        folder.path().join("no/such/cued.db"),
        PathBuf::from("/proc/cued.db"),
    ] {
        let text = fails(&db, &["user", "add", "bob@example.com"], 1);
        assert!(text.contains("cannot be used") && text.contains("folder"), "{text}");
    }
}
