//! The flags of `cued serve` and their environment variables.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::process::{Child, Stdio};

use serde_json::json;
use tempfile::TempDir;

use crate::support::client::{Client, Connection};
use crate::support::server::{Server, cued, run, until};

/// A server with the given flags and environment, in a temporary folder.
struct Started {
    child: Child,
    line: String,
    _folder: TempDir,
}

impl Started {
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
        self.line.trim_end().strip_prefix("cued listening on http://").expect("a start").parse().unwrap()
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

impl Drop for Started {
    fn drop(&mut self) {
        // The process may have ended already.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

const FREE_PORT: [&str; 2] = ["--listen", "127.0.0.1:0"];

#[test]
fn environment_switches_accept_the_usual_spellings() {
    for (value, second) in [("1", 201), ("true", 201), ("yes", 201), ("0", 403), ("false", 403), ("off", 403)]
    {
        let server = Started::new(&FREE_PORT, &[("CUED_DEV", value)]);
        assert_eq!(server.second_registration(), second, "CUED_DEV={value}");
    }
}

#[test]
fn a_switch_turned_off_conflicts_with_no_flag() {
    let server =
        Started::new(&[&FREE_PORT[..], &["--db", "mine.db"]].concat(), &[("CUED_EPHEMERAL", "false")]);
    assert_eq!(server.second_registration(), 403);
}

#[test]
fn an_ephemeral_server_uses_an_explicit_listen_address() {
    let mut server = Started::new(&["--ephemeral", "--listen", "127.0.0.1:8000"], &[]);
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
fn localhost_is_a_valid_listen_address() {
    assert!(Started::new(&["--listen", "localhost:0"], &[]).addr().ip().is_loopback());
}

#[test]
fn explicit_flags_override_dev() {
    let hook = json!({
        "name": "hook",
        "schedule": {"type": "recurring", "cron": "0 9 * * *"},
        "callback": {"url": "http://127.0.0.1:9/"},
    });
    let open = Started::new(&["--ephemeral"], &[]);
    open.client().register("a@example.com").post("/v1/cues", &hook).expect(201);
    let public = Started::new(&["--ephemeral", "--allow-callbacks-to", "public"], &[]);
    public
        .client()
        .register("a@example.com")
        .post("/v1/cues", &hook)
        .expect_error(400, "invalid_callback_url");
    let closed = Started::new(&["--ephemeral", "--registration", "closed"], &[]);
    let response = closed.client().post("/v1/auth/register", &json!({"email": "a@example.com"}));
    response.expect_error(403, "registration_disabled");
}

#[test]
fn a_file_with_a_later_last_seen_time_logs_a_warning() {
    let mut server = Server::with_test_clock("2030-01-01T00:00:00Z");
    let cue =
        json!({"name": "n", "transport": "worker", "schedule": {"type": "recurring", "cron": "* * * * *"}});
    let user = server.user();
    user.create(&cue);
    user.advance("PT1M");
    assert_eq!(server.stop(), Some(0));
    assert!(!server.log().contains("behind the database"), "{}", server.log());
    server.restart_at("2029-01-01T00:00:00Z");
    assert!(
        server.log().contains("behind the database")
            && server.log().contains("last_seen=2030-01-01T00:01:00Z"),
        "{}",
        server.log()
    );
}

#[test]
fn impossible_flags_are_wrong_usage_with_a_remedy() {
    for (flags, hint) in [
        (["--listen", "127.0.0.1"], "127.0.0.1:8000"),
        (["--listen", "cue.example.com:80"], "127.0.0.1:8000"),
        (["--public-url", "cue.example.com"], "https://cue.example.com"),
        (["--public-url", "ftp://cue.example.com"], "https://cue.example.com"),
        (["--public-url", "https://cue.example.com/?a=b"], "https://cue.example.com"),
        (["--public-url", "https://cue.example.com/#a"], "https://cue.example.com"),
        (["--public-url", "https://me@cue.example.com"], "https://cue.example.com"),
        (["--public-url", "https://cue.example.com:99999"], "https://cue.example.com"),
        (["--public-url", ""], "--public-url"),
        (["--allow-host", "http://cue.test"], "cue.example.com"),
        (["--allow-host", "cue.test:80"], "cue.example.com"),
        (["--allow-host", "[fd00::5"], "[fd00::5]"),
        (["--max-buffered", "47"], "48..=65536"),
        (["--ephemeral", "--db=mine.db"], "mine.db"),
        (["--dev", "--listen=0.0.0.0:0"], "--listen 127.0.0.1:8000"),
        (["--dev", "--metrics-listen=0.0.0.0:0"], "--metrics-listen 127.0.0.1:9464"),
        (["--ephemeral", "--metrics-listen=[::]:0"], "--metrics-listen 127.0.0.1:9464"),
    ] {
        let output = run(&[&["serve"], &flags[..]].concat());
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{flags:?}: {stderr}");
        assert!(stderr.contains(hint), "{flags:?}: {stderr}");
    }
}

#[test]
fn the_server_has_the_memory_and_the_hosts_of_its_flags() {
    let flags = ["--max-buffered", "48", "--limits", "off"];
    let server = Started::new(&[&FREE_PORT[..], &flags].concat(), &[("CUED_ALLOW_HOST", "cue.test,b.test")]);
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
