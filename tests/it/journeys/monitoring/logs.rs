//! The log, and systemd.

use std::io::{BufRead as _, BufReader};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::mpsc::channel;

use cued::server::liveness;
use cued::system::systemd::{NotifySocket, Watchdog};

use crate::http::device_login::post_form;
use crate::support::*;

const BEGIN: &str = "2030-01-01T00:00:00Z";

/// The lines of the log. Each must be a JSON object.
fn lines(server: &Server) -> Vec<Value> {
    let log = server.log();
    log.lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|_| panic!("{line}")))
        .collect()
}

fn with_message(server: &Server, message: &str) -> Vec<Value> {
    lines(server).into_iter().filter(|line| line["message"] == message).collect()
}

fn names(line: &Value) -> BTreeSet<&str> {
    line.as_object().unwrap().keys().map(String::as_str).collect()
}

/// Does everything that involves a secret once; returns the secrets.
fn whole_life(server: &Server, mailbox: &Mailbox, receiver: &Receiver) -> Vec<String> {
    let user = server.user();
    let get =
        |user: &Client, path: &str, name: &str| user.read(path)[name].as_str().unwrap().to_owned();
    let mut secrets =
        vec![user.key().to_owned(), get(&user, "/v1/auth/webhook-secret", "webhook_secret")];
    secrets.push(get(&user, "/v1/auth/alert-webhook-secret", "alert_webhook_secret"));
    let responses = [
        ("/v1/auth/webhook-secret/regenerate", json!({}), "webhook_secret"),
        ("/v1/auth/keys", json!({"name": "laptop"}), "api_key"),
        ("/v1/auth/key/regenerate", json!({}), "api_key"),
        ("/v1/billing/checkout", json!({"plan": "pro", "interval": "monthly"}), "checkout_url"),
    ];
    let mut user = user;
    for (path, body, name) in responses {
        let response = user.post(path, &body);
        assert!(response.status < 300, "{path}: {}", response.text());
        let secret = response.json()[name].as_str().unwrap().to_owned();
        if path.ends_with("key/regenerate") {
            user = user.with_key(&secret);
        }
        secrets.push(secret.rsplit(['=', '/']).next().unwrap().to_owned());
    }
    log_in(&server.client(), mailbox, &mut secrets);
    deliver(&user, receiver);
    report(&user);
    odd_requests(&user);
    user.post("/v1/test/clock", &json!({"advance": "PT2M"})).expect(200);
    secrets
}

fn log_in(client: &Client, mailbox: &Mailbox, secrets: &mut Vec<String>) {
    let made = client
        .post("/v1/auth/device-code", &json!({"device_code": "SECRET-device-code"}))
        .expect(201);
    let code = made.text("device_code");
    let submitted = json!({"device_code": code, "email": "secret-reader@example.com"});
    client.post("/v1/auth/device-code/submit-email", &submitted).expect(200);
    // The mails about replaced secrets come first.
    let mail = mailbox.next_with_link();
    assert_eq!(client.get(&mail.link()).status, 200);
    let confirmed =
        post_form(client, "/v1/auth/verify", &[("token", &mail.token()), ("device_code", code)]);
    assert_eq!(confirmed.status, 200);
    let polled =
        client.post("/v1/auth/device-code/poll", &json!({ "device_code": code })).expect(200);
    secrets.extend([mail.token(), polled.text("api_key").to_owned()]);
}

fn deliver(user: &Client, receiver: &Receiver) {
    let response = Reaction::Full(
        500,
        vec![("x-secret", "SECRET-header".to_owned())],
        "SECRET-answer".to_owned(),
    );
    receiver.first([response]);
    let urls = [
        receiver.url(),
        "http://127.0.0.1:1/SECRET-path".to_owned(),
        "http://SECRET-name.invalid/".to_owned(),
    ];
    for url in urls {
        let cue = user.create(&json!({
            "name": "SECRET-cue",
            "schedule": {"type": "recurring", "cron": "@daily"},
            "callback": {"url": format!("{url}?token=SECRET-query"), "headers": {"Authorization": "SECRET-bearer"}},
            "payload": {"card": "SECRET-payload"},
            "retry": {"max_attempts": 1},
            "on_failure": {"webhook": "http://127.0.0.1:1/SECRET-hook?token=SECRET-query"},
        }));
        user.fire(&cue);
    }
    user.settle();
}

fn report(user: &Client) {
    let daily = json!({"type": "recurring", "cron": "@daily"});
    let work = json!({"name": "w", "transport": "worker", "schedule": daily, "payload": {"task": "SECRET-task"}});
    let cue = user.create(&work);
    user.fire(&cue);
    let claimed =
        user.post("/v1/executions/claim", &json!({"worker_id": "SECRET-worker"})).expect(200);
    let outcome =
        json!({"success": false, "error": "SECRET-error", "metadata": {"a": "SECRET-metadata"}});
    user.report(claimed.text("execution_id"), &outcome);
}

/// Mistakes of users: a secret in the wrong place.
fn odd_requests(user: &Client) {
    let call = |method: &str, path: &str, headers: &[(&str, &str)], body: &str| {
        user.call(method, path, headers, body.as_bytes()).unwrap().status
    };
    assert_eq!(call("GET", "/v1/cues?api_key=SECRET-parameter", &[], ""), 200);
    assert_eq!(call("GET", "/v1/cues/SECRET-segment", &[], ""), 404);
    assert_eq!(call("GET", "/SECRET-segment", &[], ""), 404);
    assert_eq!(call("SECRETMETHOD", "/v1/cues", &[], ""), 405);
    assert_eq!(call("GET", "/v1/cues", &[("Authorization", "Bearer cue_sk_SECRET")], ""), 401);
    assert_eq!(call("GET", "/v1/cues", &[("X-Request-Id", "not sane: SECRET-id")], ""), 200);
    assert_eq!(call("POST", "/v1/cues", &[("Idempotency-Key", "SECRET-key")], "SECRET-json"), 400);
    assert_eq!(call("POST", "/v1/cues", &[], r#"{"SECRET-field": 1}"#), 422);
    assert_eq!(
        call("POST", "/v1/billing/webhook", &[("Stripe-Signature", "SECRET-signature")], "{}"),
        404
    );
    assert_eq!(
        call("GET", "/v1/auth/verify?token=SECRET-token&device_code=SECRET-code", &[], ""),
        404
    );
}

#[test]
fn secrets_never_reach_the_log_at_any_level_or_format() {
    for format in ["text", "json"] {
        let (mailbox, receiver) = (Mailbox::open(), Receiver::start());
        let url = mailbox.url_for("post:SECRET-password");
        let mail = ["--smtp-url", &url, "--mail-from", "cued@example.com"];
        let log = ["--log-level", "trace", "--log-format", format, "--test-clock", BEGIN];
        let mut server = Server::start(&[DEV_UNLIMITED, &mail, &log].concat());
        let secrets = whole_life(&server, &mailbox, &receiver);
        assert_eq!(server.stop(), Some(0));
        let logged = server.log();
        for shown in ["request completed", "attempt ended", "mail sent", "unknown_name"] {
            assert!(logged.contains(shown), "{shown} is not in the log at level trace: {logged}");
        }
        assert!(
            !logged.to_lowercase().contains("secret-") && !logged.contains("SECRET"),
            "{logged}"
        );
        for secret in secrets {
            assert!(secret.len() > 15 && !logged.contains(&secret), "{secret} in {logged}");
        }
    }
}

#[test]
fn at_info_a_healthy_server_logs_only_its_shutdown() {
    let (mailbox, receiver) = (Mailbox::open(), Receiver::start());
    let url = mailbox.url();
    let flags = ["--smtp-url", &url, "--mail-from", "cued@example.com", "--test-clock", BEGIN];
    let metrics = ["--metrics-listen", "127.0.0.1:0"];
    let mut server = Server::start(&[DEV_UNLIMITED, &flags, &metrics].concat());
    whole_life(&server, &mailbox, &receiver);
    assert_eq!(server.log(), "");
    assert_eq!(server.stop(), Some(0));
    let log = server.log();
    assert!(log.lines().count() == 1 && log.contains("INFO stopping"), "{log}");
}

#[test]
fn a_low_open_file_limit_is_not_logged_at_info() {
    // The usual limit of a login shell.
    let few = "ulimit -n 1024 && exec \"$0\" \"$@\"";
    let mut shell = Command::new("sh");
    let program = cued(&["serve", "--ephemeral"]);
    shell.args(["-c", few]).arg(program.get_program()).args(program.get_args());
    let mut server = Process(shell.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap());
    read_addr(&mut BufReader::new(server.0.stdout.take().unwrap())).unwrap();
    signal("-TERM", server.0.id());
    let log = std::io::read_to_string(server.0.stderr.take().unwrap()).unwrap();
    assert!(log.lines().count() == 1 && log.contains("INFO stopping"), "{log}");
}

#[test]
fn a_request_logs_one_json_line_with_fixed_field_names() {
    let (server, user) = Server::with_user(
        &[DEV_UNLIMITED, &["--log-level", "debug", "--log-format", "json"]].concat(),
    );
    let me = user.read("/v1/auth/me");
    user.call("GET", "/v1/cues/cue_000000000000", &[("X-Request-Id", "mine-1")], b"").unwrap();
    let answered =
        || Some(with_message(&server, "request completed")).filter(|lines| lines.len() == 3);
    let requests = until("three requests are logged", answered);
    let common = ["timestamp", "level", "message", "request_id", "route", "status", "duration_ms"];
    let with =
        |more: &[&'static str]| -> BTreeSet<&str> { common.iter().chain(more).copied().collect() };
    assert_eq!(names(&requests[0]), with(&["method"]), "no user before registration");
    assert_eq!(names(&requests[2]), with(&["method", "user_id"]));
    let found = &requests[2];
    assert_eq!((&found["level"], &found["request_id"]), (&json!("DEBUG"), &json!("mine-1")));
    assert_eq!((&found["method"], &found["route"]), (&json!("GET"), &json!("/v1/cues/{cue_id}")));
    assert_eq!((&found["status"], &found["user_id"]), (&json!(404), &me["id"]));
    assert!(found["duration_ms"].as_f64().is_some_and(|time| time > 0.0), "{found}");
    assert!(found.text("timestamp").parse::<jiff::Timestamp>().is_ok(), "{found}");
}

#[test]
fn an_attempt_logs_one_json_line_with_its_result() {
    let flags = ["--log-level", "debug", "--log-format", "json", "--test-clock", BEGIN];
    let (server, receiver) = (Server::start(&[DEV_UNLIMITED, &flags].concat()), Receiver::start());
    let user = server.user();
    let cue = user.create(&json!({
        "name": "hook",
        "schedule": {"type": "once", "at": "2030-01-01T01:00:00Z"},
        "callback": {"url": receiver.url()},
        "retry": {"max_attempts": 3, "backoff_minutes": [1]},
    }));
    receiver.first([Reaction::Status(503), Reaction::HangUp]);
    user.advance("PT2H");
    let execution = user.only_execution(id(&cue));
    let attempts = with_message(&server, "attempt ended");
    let logged: Vec<Value> = attempts
        .iter()
        .map(|line| json!([line["attempt"], line["result"], line["cause"], line["http_status"]]))
        .collect();
    let expected = [
        json!([1, "retrying", "status_5xx", 503]),
        json!([2, "retrying", "connection", null]),
        json!([3, "success", "none", 200]),
    ];
    assert_eq!(logged, expected);
    for line in &attempts {
        assert_eq!((&line["execution_id"], &line["cue_id"]), (&execution["id"], &cue["id"]));
        assert!(line["duration_ms"].as_f64().is_some(), "{line}");
    }
}

#[test]
fn the_text_format_has_the_same_names_and_values() {
    let server = Server::start(&[DEV_UNLIMITED, &["--log-level", "debug"]].concat());
    server.client().read("/health");
    let line = until("the request is logged", || server.log().lines().next().map(str::to_owned));
    for part in
        ["DEBUG request completed request_id=", "method=\"GET\"", "route=\"/health\"", "status=200"]
    {
        assert!(line.contains(part), "{part} in {line}");
    }
}

#[test]
fn the_address_of_a_blocked_name_is_logged_and_not_shown() {
    let allow = ["--allow-callbacks-to", "loopback", "--log-level", "debug", "--test-clock", BEGIN];
    let (mut server, user) = Server::with_user(&[DEV_UNLIMITED, &allow].concat());
    // A name is checked when it is stored; this one is blocked only from the restart on.
    let cue = user.create(&json!({
        "name": "hook", "schedule": {"type": "once", "at": "2030-01-01T01:00:00Z"}, "retry": {"max_attempts": 1},
        "callback": {"url": "http://localhost:9/"},
    }));
    assert_eq!(server.stop(), Some(0));
    server.restart_with("--allow-callbacks-to", "public");
    let user = server.client().with_key(user.key());
    user.advance("PT2H");
    let message = user.only_execution(id(&cue))["error_message"].to_string();
    assert_contains(&message, &["the host localhost was not found, or callbacks may not reach"]);
    assert!(!message.contains("127.") && !message.contains("::1"), "{message}");
    let log = server.log();
    assert!(log.contains("cause=\"unknown_name\" reason=\"resolved to "), "{log}");
}

/// A double of systemd.
struct Boss {
    socket: UnixDatagram,
}

impl Boss {
    fn at(folder: &TempDir) -> (Self, String) {
        let path = folder.path().join("notify");
        (Self::with(UnixDatagram::bind(&path).unwrap()), path.to_str().unwrap().to_owned())
    }

    fn with(socket: UnixDatagram) -> Self {
        socket.set_read_timeout(Some(HANG_TIMEOUT)).unwrap();
        Self { socket }
    }

    /// The next message.
    fn hears(&self) -> String {
        let mut bytes = [0; 512];
        let length = self.socket.recv(&mut bytes).expect("a message arrives");
        String::from_utf8(bytes[..length].to_vec()).unwrap()
    }

    /// The next message that is not a watchdog notification.
    fn hears_beside_life(&self) -> String {
        std::iter::repeat_with(|| self.hears()).find(|news| news != "WATCHDOG=1").unwrap()
    }

    /// Returns whether no message arrives within this time.
    fn hears_nothing_for(&self, time: Duration) -> bool {
        self.socket.set_read_timeout(Some(time)).unwrap();
        let silent = self.socket.recv(&mut [0; 512]).is_err();
        self.socket.set_read_timeout(Some(HANG_TIMEOUT)).unwrap();
        silent
    }
}

/// A server started as by systemd, and its address.
fn started(environment: &[(&str, &str)]) -> (Process, std::net::SocketAddr) {
    let mut command = cued(&["serve", "--ephemeral"]);
    command.env_remove("WATCHDOG_PID").envs(environment.iter().copied());
    let mut server = Process(command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap());
    let addr = read_addr(&mut BufReader::new(server.0.stdout.take().unwrap())).unwrap();
    (server, addr)
}

#[test]
fn readiness_and_stopping_are_reported_with_the_state_of_the_socket() {
    let folder = TempDir::new().unwrap();
    let (manager, path) = Boss::at(&folder);
    let (mut server, addr) = started(&[("NOTIFY_SOCKET", &path)]);
    assert_eq!(manager.hears(), format!("READY=1\nSTATUS=Serving on http://{addr}"));
    TcpStream::connect(addr).unwrap();
    signal("-TERM", server.0.id());
    assert_eq!(
        manager.hears(),
        "STOPPING=1\nSTATUS=Stopping: waiting for running requests and deliveries"
    );
    assert_eq!(server.0.wait().unwrap().code(), Some(0));
    // No unrequested watchdog notification.
    assert!(manager.hears_nothing_for(Duration::from_millis(1)));
}

#[test]
fn an_abstract_notify_socket_gets_the_same_messages() {
    let name = format!("cued-test-{}", std::process::id());
    let address = SocketAddr::from_abstract_name(&name).unwrap();
    let manager = Boss::with(UnixDatagram::bind_addr(&address).unwrap());
    let (_server, addr) = started(&[("NOTIFY_SOCKET", &format!("@{name}"))]);
    assert_eq!(manager.hears(), format!("READY=1\nSTATUS=Serving on http://{addr}"));
}

#[test]
fn an_unreachable_notify_socket_does_not_stop_the_server() {
    let folder = TempDir::new().unwrap();
    let nobody = folder.path().join("nobody");
    for name in [nobody.to_str().unwrap(), "vsock:2:1234", ""] {
        let (mut server, addr) = started(&[("NOTIFY_SOCKET", name), ("WATCHDOG_USEC", "10000")]);
        TcpStream::connect(addr).unwrap();
        signal("-TERM", server.0.id());
        assert_eq!(server.0.wait().unwrap().code(), Some(0), "{name}");
    }
}

#[test]
fn the_watchdog_is_notified_while_running_and_while_stopping() {
    let folder = TempDir::new().unwrap();
    let (manager, path) = Boss::at(&folder);
    let (mut server, addr) = started(&[("NOTIFY_SOCKET", &path), ("WATCHDOG_USEC", "20000")]);
    assert_eq!(manager.hears(), format!("READY=1\nSTATUS=Serving on http://{addr}"));
    (0..3).for_each(|_| assert_eq!(manager.hears(), "WATCHDOG=1"));
    // A running request keeps the port open. The server asks for its body once it runs.
    let mut waiting = TcpStream::connect(addr).unwrap();
    let head = b"POST /v1/auth/register HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\
        Content-Type: application/json\r\nExpect: 100-continue\r\n\r\n";
    std::io::Write::write_all(&mut waiting, head).unwrap();
    let mut line = String::new();
    BufReader::new(&waiting).read_line(&mut line).unwrap();
    assert_eq!(line, "HTTP/1.1 100 Continue\r\n");
    std::thread::scope(|scope| {
        scope.spawn(|| signal("-TERM", server.0.id()));
        assert!(manager.hears_beside_life().starts_with("STOPPING=1"));
    });
    (0..3).for_each(|_| assert_eq!(manager.hears(), "WATCHDOG=1"));
    drop(waiting);
    assert_eq!(server.0.wait().unwrap().code(), Some(0));
}

#[test]
fn only_the_watched_process_notifies_the_watchdog() {
    let folder = TempDir::new().unwrap();
    let (manager, path) = Boss::at(&folder);
    let other = std::process::id().to_string();
    let (server, _) =
        started(&[("NOTIFY_SOCKET", &path), ("WATCHDOG_USEC", "20000"), ("WATCHDOG_PID", &other)]);
    assert!(manager.hears().starts_with("READY=1"));
    signal("-TERM", server.0.id());
    assert!(manager.hears().starts_with("STOPPING=1"));
}

/// A program without an engine: each call of `live` acts as its scheduler.
fn watched(fixture: &Fixture, manager: &str) -> Watchdog {
    fixture.app.engine_stats.heartbeat(fixture.app.clock.monotonic());
    let manager = Arc::new(NotifySocket::at(manager.as_ref()).unwrap());
    Watchdog::start(liveness(&fixture.app), manager, Duration::from_millis(20)).unwrap()
}

#[test]
fn a_hanging_writer_stops_the_watchdog_notifications() {
    let (folder, fixture) = (TempDir::new().unwrap(), Fixture::new());
    let (manager, path) = Boss::at(&folder);
    let watchdog = watched(&fixture, &path);
    assert_eq!(manager.hears(), "WATCHDOG=1");
    let (go_on, held) = channel::<()>();
    let (hangs, begun) = channel();
    let stuck = fixture.app.store.write(move |_| {
        hangs.send(()).unwrap();
        held.recv().unwrap();
        Ok(())
    });
    begun.recv().unwrap();
    // A message may have been in transit.
    while !manager.hears_nothing_for(Duration::from_millis(200)) {}
    go_on.send(()).unwrap();
    stuck.wait().unwrap();
    assert_eq!(manager.hears(), "WATCHDOG=1");
    watchdog.stop();
}

#[test]
fn a_failing_disk_does_not_stop_the_watchdog_notifications() {
    let (folder, fixture) = (TempDir::new().unwrap(), Fixture::new());
    let (manager, path) = Boss::at(&folder);
    // No commit gets past this lock.
    drop(fixture.app.store.write(|tx| Ok(tx.commit_hook(Some(|| true))?)).wait());
    let watchdog = watched(&fixture, &path);
    (0..3).for_each(|_| assert_eq!(manager.hears(), "WATCHDOG=1"));
    watchdog.stop();
}

#[test]
fn the_example_units_are_valid_for_systemd() {
    assert_valid_unit(
        "cued.service",
        "serve",
        &["TimeoutStartSec=infinity", "StateDirectory=cued"],
    );
    let worker = ["KillMode=mixed", "RestartPreventExitStatus=2 4", "StateDirectory=cued-work"];
    assert_valid_unit("cued-work.service", "work", &worker);
}

fn assert_valid_unit(name: &str, subcommand: &str, own: &[&str]) {
    let unit =
        fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("examples").join(name))
            .unwrap();
    let common = ["Type=notify", "WatchdogSec=", "DynamicUser=yes", "ProtectSystem=strict"];
    for line in common.iter().chain(own) {
        assert!(unit.lines().any(|it| it.starts_with(line)), "{line}");
    }
    let start =
        unit.lines().find_map(|line| line.strip_prefix("ExecStart=/usr/local/bin/cued ")).unwrap();
    assert_eq!(start.split(' ').next(), Some(subcommand));
    // The flags are valid: the help is not the cause of a failure.
    let flags = start.split(" -- ").next().unwrap();
    let with_help: Vec<&str> = flags.split(' ').chain(["--help"]).collect();
    assert_eq!(run(&with_help).status.code(), Some(0), "{with_help:?}");

    let folder = TempDir::new().unwrap();
    let copy = folder.path().join(name);
    fs::write(
        &copy,
        unit.replace("/usr/local/bin/cued", env!("CARGO_BIN_EXE_cued"))
            .replace("/usr/local/lib/cued/report.sh", "true"),
    )
    .unwrap();
    let Ok(output) =
        Command::new("systemd-analyze").args(["verify", "--man=no"]).arg(&copy).output()
    else {
        eprintln!("systemd-analyze is not here: the unit was not verified");
        return;
    };
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success() && !text.contains(name), "{text}");
}
