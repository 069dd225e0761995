//! Flags of `cued serve`, and starts that fail.

use std::io::{self, BufRead, BufReader};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Output};

use crate::cli::administration::{fails, new_file, ok, stderr};
use crate::journeys::monitoring::metrics::scrape;
use crate::support::*;

/// A server with the given flags and environment, in a temporary folder.
struct ServeProcess {
    child: Child,
    line: String,
    _folder: TempDir,
}

impl ServeProcess {
    fn new(flags: &[&str], environment: &[(&str, &str)]) -> Self {
        let folder = TempDir::new().unwrap();
        let mut command = cued(&[&["serve"], flags].concat());
        command.current_dir(folder.path()).envs(environment.iter().copied());
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        Self { child, line, _folder: folder }
    }

    #[track_caller]
    fn addr(&self) -> SocketAddr {
        self.line
            .trim_end()
            .strip_prefix("cued listening on http://")
            .expect("a start")
            .parse()
            .unwrap()
    }

    /// What a start logs until its address is printed.
    fn log(mut self) -> String {
        self.addr();
        self.child.kill().unwrap();
        io::read_to_string(self.child.stderr.take().unwrap()).unwrap()
    }

    fn client(&self) -> Client {
        Client::new(self.addr())
    }

    /// The status of the second registration: 201 only with open registration.
    fn second_registration(&self) -> u16 {
        let client = self.client();
        client.register("first@example.com");
        client.post("/v1/auth/register", &json!({"email": "second@example.com"})).status
    }
}

impl Drop for ServeProcess {
    fn drop(&mut self) {
        // The process may have ended already.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

const FREE_PORT: [&str; 2] = ["--listen", "127.0.0.1:0"];

#[test]
fn environment_switches_accept_the_usual_spellings() {
    for (value, second) in
        [("1", 201), ("true", 201), ("yes", 201), ("0", 403), ("false", 403), ("off", 403)]
    {
        let server = ServeProcess::new(&FREE_PORT, &[("CUED_DEV", value)]);
        assert_eq!(server.second_registration(), second, "CUED_DEV={value}");
    }
    // A switch that is off conflicts with no flag.
    let flags = ["--listen", "localhost:0", "--db", "mine.db"];
    let server = ServeProcess::new(&flags, &[("CUED_EPHEMERAL", "false")]);
    assert!(server.addr().ip().is_loopback());
    assert_eq!(server.second_registration(), 403);
}

#[test]
fn an_ephemeral_server_uses_an_explicit_listen_address() {
    let mut server = ServeProcess::new(&["--ephemeral", "--listen", "127.0.0.1:8000"], &[]);
    if server.line.is_empty() {
        // Another program uses the port: the error shows that the server tried to bind it.
        assert_eq!(server.child.wait().unwrap().code(), Some(1));
        let stderr = std::io::read_to_string(server.child.stderr.take().unwrap()).unwrap();
        assert!(stderr.contains("127.0.0.1:8000"), "{stderr}");
    } else {
        assert_eq!(server.addr().port(), 8000);
    }
}

#[test]
fn explicit_flags_override_dev() {
    let hook = webhook_cue("hook", YEARLY, "http://127.0.0.1:9/");
    let open = ServeProcess::new(&["--ephemeral"], &[]);
    open.client().register("a@example.com").post("/v1/cues", &hook).expect(201);
    let public = ServeProcess::new(&["--ephemeral", "--allow-callbacks-to", "public"], &[]);
    let user = public.client().register("a@example.com");
    for (host, text) in [
        (
            "127.0.0.1:9",
            "a loopback address, which callbacks may not reach; the operator can allow it: `cued serve --allow-callbacks-to public,loopback` or CUED_ALLOW_CALLBACKS_TO",
        ),
        ("10.1.2.3", "`cued serve --allow-callbacks-to public,private` or"),
        ("0.0.0.0", "an unspecified address, which"),
    ] {
        let mut hook = hook.clone();
        hook["callback"]["url"] = json!(format!("http://{host}/"));
        let refused = user.post("/v1/cues", &hook).expect_error(400, "invalid_callback_url");
        assert!(refused.to_string().contains(text), "{refused}");
    }
    let closed = ServeProcess::new(&["--ephemeral", "--registration", "closed"], &[]);
    let response = closed.client().post("/v1/auth/register", &json!({"email": "a@example.com"}));
    response.expect_error(403, "registration_disabled");
}

#[test]
fn a_file_with_a_later_last_seen_time_logs_a_warning() {
    let mut server = Server::with_test_clock("2030-01-01T00:00:00Z");
    let cue = json!({"name": "n", "transport": "worker", "schedule": {"type": "recurring", "cron": "* * * * *"}});
    let user = server.user();
    user.create(&cue);
    user.advance("PT1M");
    assert_eq!(server.stop(), Some(0));
    assert!(!server.log().contains("behind the database"), "{}", server.log());
    server.restart_at("2029-01-01T00:00:00Z");
    assert_contains(&server.log(), &["behind the database", "last_seen=2030-01-01T00:01:00Z"]);
}

#[test]
fn the_server_has_the_memory_and_the_hosts_of_its_flags() {
    let flags = ["--max-buffered", "48", "--limits", "off"];
    let server = ServeProcess::new(
        &[&FREE_PORT[..], &flags].concat(),
        &[("CUED_ALLOW_HOST", "cue.test,b.test")],
    );
    let user = server.client().register("ada@example.com");
    for (host, status) in [("cue.test", 200), ("b.test:1", 200), ("c.test", 403)] {
        let request = format!("GET /status HTTP/1.1\r\nHost: {host}\r\n\r\n");
        assert_eq!(server.client().send(request.as_bytes()).unwrap().status, status, "{host}");
    }
    // A quarter of 48 MiB: seven bodies of 1.9 MB are more.
    let head = format!(
        "POST /v1/cues HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {}\r\nContent-Length: 2000000\r\n\r\n",
        user.key()
    );
    let bodies = (0..7).map(|_| {
        let mut connection = Connection::open(server.addr()).unwrap();
        connection.send(&[head.as_str(), &" ".repeat(1_900_000)].concat());
        connection
    });
    let mut bodies: Vec<_> = bodies.collect();
    // Which of them gets the error depends on their speed.
    let refused = until("a body is refused", || bodies.iter().position(Connection::has_data));
    bodies[refused].response().expect_error(503, "server_busy");
}

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
    assert_eq!(output.status.code(), Some(code), "{}", stderr(output));
    assert_eq!(output.stdout.as_slice(), &b""[..], "{}", stderr(output));
    stderr(output)
}

#[test]
fn a_port_in_use_is_named_with_the_way_out() {
    let server = Server::start(DEV_UNLIMITED);
    let (_folder, db) = new_file();
    let listen = server.addr().to_string();
    let text =
        refused(&cued(&["serve", "--listen", &listen, "--db"]).arg(&db).output().unwrap(), 1);
    assert!(text.contains(&format!("cannot listen on {listen}")), "{text}");
    assert_contains(&text, &["another cued, has this port: stop it, or give another --listen"]);
    assert!(!db.exists());
    let text = refused(
        &cued(&["serve", "--listen", "192.0.2.1:8000", "--db"]).arg(&db).output().unwrap(),
        1,
    );
    assert_contains(&text, &["this machine has no such address", "0.0.0.0"]);
}

#[test]
fn a_volume_of_another_user_is_named_with_the_user_that_needs_it() {
    let (folder, db) = new_file();
    let mut command = serve(&db);
    let user = if rustix::process::geteuid().is_root() {
        // A file that another user can run, wherever the build is.
        let program = folder.path().join("cued");
        fs::copy(env!("CARGO_BIN_EXE_cued"), &program).unwrap();
        fs::set_permissions(folder.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755))
            .unwrap();
        command = Command::new(program);
        command.args(["serve", "--listen", "127.0.0.1:0", "--db"]).arg(&db).uid(NOBODY).gid(NOBODY);
        NOBODY
    } else {
        fs::set_permissions(folder.path(), std::os::unix::fs::PermissionsExt::from_mode(0o555))
            .unwrap();
        rustix::process::geteuid().as_raw()
    };
    // A process that another test starts has the copy open for writing, between its fork and its program.
    let is_busy = |error: &io::Error| error.kind() == io::ErrorKind::ExecutableFileBusy;
    let output = until("the copy can be run", || {
        Some(command.output()).filter(|it| !it.as_ref().is_err_and(is_busy))
    });
    match output {
        Err(error) => skip(&format!("the program cannot be run as another user: {error}")),
        Ok(output) => {
            let text = refused(&output, 1);
            assert_contains(&text, &["Permission denied", &format!("chown -R {user}")]);
            assert!(!db.exists());
        }
    }
}

#[test]
fn a_mistyped_variable_is_warned_of_with_the_name_that_was_meant() {
    let environment =
        [("CUED_LISTN", "0.0.0.0:80"), ("CUED_SERVICE_HOST", "10.0.0.1"), ("CUED_URL", "http://x")];
    let log = ServeProcess::new(&["--ephemeral"], &environment).log();
    let warnings: Vec<&str> =
        log.lines().filter(|line| line.contains("unknown environment variable")).collect();
    assert_eq!(warnings.len(), 1, "{log}");
    assert!(warnings[0].contains("CUED_LISTN") && warnings[0].contains("CUED_LISTEN"), "{log}");
    assert!(warnings[0].contains("WARN"), "{log}");
}

#[test]
fn a_missing_folder_for_backups_is_logged_at_the_start() {
    let folder = TempDir::new().unwrap();
    for (path, warnings) in [(folder.path().to_owned(), 0), (folder.path().join("none"), 1)] {
        let flags = ["--ephemeral", "--backup-dir", path.to_str().unwrap()];
        let log = ServeProcess::new(&flags, &[]).log();
        assert_eq!(log.matches("backups will fail until it exists").count(), warnings, "{log}");
        assert_eq!(log.contains(path.to_str().unwrap()), warnings > 0, "{log}");
    }
}

#[test]
fn a_downgrade_is_refused_with_the_way_back() {
    let (_folder, db) = new_file();
    ok(&db, &["user", "add", "ann@example.com"]);
    let file = rusqlite::Connection::open(&db).unwrap();
    let version: i64 = file.query_row("PRAGMA user_version", [], |row| row.get(0)).unwrap();
    file.pragma_update(None, "user_version", version + 1).unwrap();
    file.close().unwrap();
    let before = fs::read(&db).unwrap();
    let text = refused(&serve(&db).output().unwrap(), 1);
    assert_contains(&text, &["written by a newer cued", "use that newer cued again"]);
    let copy = format!("{}.v{version}", db.display());
    assert_contains(&text, &[&format!("`cued restore {copy} --db {} --replace`", db.display())]);
    assert!(fs::read(&db).unwrap() == before);

    // The way that the sentence names.
    let (_other, old) = new_file();
    ok(&old, &["user", "add", "ann@example.com"]);
    fs::rename(&old, &copy).unwrap();
    ok(&db, &["restore", &copy, "--replace"]);
    assert!(ok(&db, &["user", "list"]).contains("ann@example.com"));
}

#[test]
fn a_server_whose_file_has_seen_the_future_is_degraded_until_its_clock_is_accepted() {
    let mut ahead = Server::with_test_clock("2060-01-01T00:00:00Z");
    let user = ahead.user();
    let cue = cue_path(&user.create(&worker_cue("n", "* * * * *")));
    user.advance("PT2M");
    ahead.stop();
    let server = Server::start_on(
        &ahead.db(),
        &[DEV_UNLIMITED, &["--metrics-listen", "127.0.0.1:0"]].concat(),
    );
    let user = user.at(server.addr());
    let home = ClientHome::new().env("CUED_URL", server.url());
    let run = home.run(&["health"]);
    assert!(run.code == 1 && run.stdout.contains("scheduler     clock_behind\n"), "{run:?}");
    assert!(run.stdout.contains("behind until  2060-01-01"), "{run:?}");
    assert_contains(&run.stderr, &["2060-01-01T00:02:00Z", "`cued clock accept`"]);
    let listen = server.addr().to_string();
    let run = home.run(&["health", "--local", "--listen", &listen]);
    assert!(run.code == 1 && run.stderr.contains("`cued clock accept`"), "{run:?}");
    assert!(scrape(&server).value("cued_clock_behind_seconds", &[]) > 1e8);

    let said = ok(&server.db(), &["clock", "accept"]);
    assert_contains(&said, &["from 2060-01-01T00:02:00Z to ", "1 cue recomputed"]);
    until("the server goes on", || (user.read("/health")["status"] == "healthy").then_some(()));
    assert_eq!(home.ok(&["health", "--local", "--listen", &listen]), "healthy\n");
    assert!(scrape(&server).value("cued_clock_behind_seconds", &[]) == 0.0);
    let next = user.read(&cue).text("next_run").to_owned();
    assert!(next.starts_with("20") && !next.starts_with("2060"), "{next}");
    let said = ok(&server.db(), &["clock", "accept"]);
    assert!(said.contains("nothing to set back"), "{said}");
    let missing = fails(&server.db().with_file_name("no-such.db"), &["clock", "accept"], 1);
    assert!(missing.contains("does not exist"), "{missing}");
}

#[test]
fn the_first_line_is_the_address_although_mails_wait() {
    // No program listens on port 9 of loopback.
    let mail = ["--smtp-url", "smtp://127.0.0.1:9", "--mail-from", "cued@example.com"];
    let clock = ["--test-clock", "2030-01-01T00:00:00Z"];
    let (mut server, user) = Server::with_user(&[DEV_UNLIMITED, &clock, &mail].concat());
    let cue = user.create(&worker_cue("n", YEARLY));
    (0..5).for_each(|_| drop(user.report(&user.fire(&cue), &json!({"success": false}))));
    user.settle();
    assert_eq!(server.stop(), Some(0));
    // Each start prints the mails, for there is no mail server. Where they come first, it is in one of three or so.
    for _ in 0..10 {
        let (_folder, copy) = new_file();
        fs::copy(server.db(), &copy).unwrap();
        let later = ["--test-clock", "2030-01-01T12:00:00Z"];
        let server = Server::start_on(&copy, &[DEV_UNLIMITED, &later].concat());
        until("a mail is printed", || server.stdout().contains("mail to ").then_some(()));
    }
}
