//! Starts of `cued serve` that cannot succeed or have a mistyped setting: each is answered by a sentence that says what to
//! do, and nothing is half done.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use rusqlite::Connection;
use tempfile::TempDir;

use crate::cli::administration::{new_file, ok, stderr};
use crate::support::server::{DEV_UNLIMITED, Process, Server, cued, skip};

/// A user that owns nothing.
const NOBODY: u32 = 65_532;

fn serve(db: &Path) -> Command {
    let mut command = cued(&["serve", "--listen", "127.0.0.1:0", "--db"]);
    command.arg(db);
    command
}

/// The message of a start that must fail.
#[track_caller]
fn refused(output: &Output, code: i32) -> String {
    assert_eq!(
        (output.status.code(), output.stdout.as_slice()),
        (Some(code), &b""[..]),
        "{}",
        stderr(output)
    );
    stderr(output)
}

#[test]
fn a_port_in_use_is_named_with_the_way_out() {
    let server = Server::start(DEV_UNLIMITED);
    let (_folder, db) = new_file();
    let listen = server.addr().to_string();
    let text = refused(&cued(&["serve", "--listen", &listen, "--db"]).arg(&db).output().unwrap(), 1);
    assert!(text.contains(&format!("cannot listen on {listen}")), "{text}");
    assert!(text.contains("another cued, has this port: stop it, or give another --listen"), "{text}");
    assert!(!db.exists());
    let text = refused(&cued(&["serve", "--listen", "192.0.2.1:8000", "--db"]).arg(&db).output().unwrap(), 1);
    assert!(text.contains("this machine has no such address") && text.contains("0.0.0.0"), "{text}");
}

#[test]
fn a_place_that_cannot_have_a_database_is_named_with_the_way_out() {
    let folder = TempDir::new().unwrap();
    let text = refused(&serve(&folder.path().join("missing/cued.db")).output().unwrap(), 1);
    assert!(text.contains("missing/cued.db cannot be used") && text.contains("create it"), "{text}");
    assert!(!folder.path().join("missing").exists());
    let text = refused(&serve(folder.path()).output().unwrap(), 1);
    assert!(text.contains("Give --db the path of a file in it"), "{text}");
}

#[test]
fn a_volume_of_another_user_is_named_with_the_user_that_needs_it() {
    let (folder, db) = new_file();
    let mut command = serve(&db);
    let user = if rustix::process::geteuid().is_root() {
        // A file that another user can run, wherever the build is.
        let program = folder.path().join("cued");
        fs::copy(env!("CARGO_BIN_EXE_cued"), &program).unwrap();
        fs::set_permissions(folder.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        command = Command::new(program);
        command.args(["serve", "--listen", "127.0.0.1:0", "--db"]).arg(&db).uid(NOBODY).gid(NOBODY);
        NOBODY
    } else {
        fs::set_permissions(folder.path(), std::os::unix::fs::PermissionsExt::from_mode(0o555)).unwrap();
        rustix::process::geteuid().as_raw()
    };
    match command.output() {
        Err(error) => skip(&format!("the program cannot be run as another user: {error}")),
        Ok(output) => {
            let text = refused(&output, 1);
            assert!(
                text.contains("Permission denied") && text.contains(&format!("chown -R {user}")),
                "{text}"
            );
            assert!(!db.exists());
        }
    }
}

#[test]
fn a_mistyped_variable_is_warned_of_with_the_name_that_was_meant() {
    let mut command = cued(&["serve", "--ephemeral"]);
    command.env("CUED_LISTN", "0.0.0.0:80").env("CUED_SERVICE_HOST", "10.0.0.1").env("CUED_URL", "http://x");
    let mut child = Process(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap());
    let mut line = String::new();
    BufReader::new(child.0.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert!(line.starts_with("cued listening on http://127.0.0.1:"), "{line}");
    child.0.kill().unwrap();
    let log = std::io::read_to_string(child.0.stderr.take().unwrap()).unwrap();
    let warnings: Vec<&str> =
        log.lines().filter(|line| line.contains("unknown environment variable")).collect();
    assert_eq!(warnings.len(), 1, "{log}");
    assert!(warnings[0].contains("CUED_LISTN") && warnings[0].contains("CUED_LISTEN"), "{log}");
    assert!(warnings[0].contains("WARN"), "{log}");
}

#[test]
fn a_wrong_value_of_a_variable_is_said_to_come_from_it() {
    let from = "The value is that of the environment variable CUED_";
    for (name, value, hint) in [
        ("CUED_LISTEN", "abc", "127.0.0.1:8000"),
        ("CUED_MAX_STREAMS", "many", "many"),
        ("CUED_LOG_LEVEL", "loud", "possible values"),
        ("CUED_TRUST_PROXY", "10.0.0.1,proxy", "10.0.0.0/8"),
    ] {
        let text = refused(&cued(&["serve"]).env(name, value).output().unwrap(), 2);
        assert!(
            text.contains(hint) && text.contains(&format!("environment variable {name}.")),
            "{name}: {text}"
        );
    }
    let typed = cued(&["serve", "--listen", "abc"]).env("CUED_LISTEN", "abc").output().unwrap();
    assert!(!refused(&typed, 2).contains(from));
    let other = cued(&["serve", "--listen=abc"]).env("CUED_MAX_STREAMS", "12").output().unwrap();
    assert!(!refused(&other, 2).contains(from));
}

#[test]
fn a_downgrade_is_refused_with_the_way_back() {
    let (_folder, db) = new_file();
    ok(&db, &["user", "add", "ann@example.com"]);
    let file = Connection::open(&db).unwrap();
    let version: i64 = file.query_row("PRAGMA user_version", [], |row| row.get(0)).unwrap();
    file.pragma_update(None, "user_version", version + 1).unwrap();
    file.close().unwrap();
    let before = fs::read(&db).unwrap();
    let text = refused(&serve(&db).output().unwrap(), 1);
    assert!(text.contains("written by a newer cued") && text.contains("use that newer cued again"), "{text}");
    let copy = format!("{}.v{version}", db.display());
    assert!(text.contains(&format!("`cued restore {copy} --db {} --replace`", db.display())), "{text}");
    assert!(fs::read(&db).unwrap() == before);

    // The way that the sentence names.
    let (_other, old) = new_file();
    ok(&old, &["user", "add", "ann@example.com"]);
    fs::rename(&old, &copy).unwrap();
    ok(&db, &["restore", &copy, "--replace"]);
    assert!(ok(&db, &["user", "list"]).contains("ann@example.com"));
}
