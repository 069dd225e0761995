//! The log: quiet on a healthy server, one line for each request and attempt at `debug`, as text or JSON, and never a
//! secret.

use std::collections::BTreeSet;
use std::io::BufReader;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::http::device_login::flow::post_form;
use crate::support::client::Client;
use crate::support::mailbox::Mailbox;
use crate::support::receiver::{Reaction, Receiver};
use crate::support::server::{DEV_UNLIMITED, Process, Server, cued, read_addr, signal, until};

const BEGIN: &str = "2030-01-01T00:00:00Z";

/// The lines of the log, each of which must be a JSON object.
fn lines(server: &Server) -> Vec<Value> {
    let log = server.log();
    log.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|_| panic!("{line}"))).collect()
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
        |user: &Client, path: &str, name: &str| user.get(path).expect(200)[name].as_str().unwrap().to_owned();
    let mut secrets = vec![user.key().to_owned(), get(&user, "/v1/auth/webhook-secret", "webhook_secret")];
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
    let made = client.post("/v1/auth/device-code", &json!({"device_code": "SECRET-device-code"})).expect(201);
    let code = made["device_code"].as_str().unwrap();
    let submitted = json!({"device_code": code, "email": "secret-reader@example.com"});
    client.post("/v1/auth/device-code/submit-email", &submitted).expect(200);
    // The mails about replaced secrets come first.
    let mail = mailbox.next_with_link();
    assert_eq!(client.get(&mail.link()).status, 200);
    let confirmed = post_form(client, "/v1/auth/verify", &[("token", &mail.token()), ("device_code", code)]);
    assert_eq!(confirmed.status, 200);
    let polled = client.post("/v1/auth/device-code/poll", &json!({ "device_code": code })).expect(200);
    secrets.extend([mail.token(), polled["api_key"].as_str().unwrap().to_owned()]);
}

fn deliver(user: &Client, receiver: &Receiver) {
    let response =
        Reaction::Full(500, vec![("x-secret", "SECRET-header".to_owned())], "SECRET-answer".to_owned());
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
        user.post(&format!("/v1/cues/{}/fire", cue["id"].as_str().unwrap()), &json!({})).expect(200);
    }
    user.settle();
}

fn report(user: &Client) {
    let daily = json!({"type": "recurring", "cron": "@daily"});
    let work =
        json!({"name": "w", "transport": "worker", "schedule": daily, "payload": {"task": "SECRET-task"}});
    let cue = user.create(&work);
    user.post(&format!("/v1/cues/{}/fire", cue["id"].as_str().unwrap()), &json!({})).expect(200);
    let claimed = user.post("/v1/executions/claim", &json!({"worker_id": "SECRET-worker"})).expect(200);
    let outcome = json!({"success": false, "error": "SECRET-error", "metadata": {"a": "SECRET-metadata"}});
    user.post(&format!("/v1/executions/{}/outcome", claimed["execution_id"].as_str().unwrap()), &outcome)
        .expect(200);
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
    assert_eq!(call("POST", "/v1/billing/webhook", &[("Stripe-Signature", "SECRET-signature")], "{}"), 404);
    assert_eq!(call("GET", "/v1/auth/verify?token=SECRET-token&device_code=SECRET-code", &[], ""), 404);
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
        assert!(!logged.to_lowercase().contains("secret-") && !logged.contains("SECRET"), "{logged}");
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
    let server = Server::start(&[DEV_UNLIMITED, &["--log-level", "debug", "--log-format", "json"]].concat());
    let user = server.user();
    let me = user.get("/v1/auth/me").expect(200);
    user.call("GET", "/v1/cues/cue_000000000000", &[("X-Request-Id", "mine-1")], b"").unwrap();
    let answered = || Some(with_message(&server, "request completed")).filter(|lines| lines.len() == 3);
    let requests = until("three requests are logged", answered);
    let common = ["timestamp", "level", "message", "request_id", "route", "status", "duration_ms"];
    let with = |more: &[&'static str]| -> BTreeSet<&str> { common.iter().chain(more).copied().collect() };
    assert_eq!(names(&requests[0]), with(&["method"]), "no user before registration");
    assert_eq!(names(&requests[2]), with(&["method", "user_id"]));
    let found = &requests[2];
    assert_eq!((&found["level"], &found["request_id"]), (&json!("DEBUG"), &json!("mine-1")));
    assert_eq!((&found["method"], &found["route"]), (&json!("GET"), &json!("/v1/cues/{cue_id}")));
    assert_eq!((&found["status"], &found["user_id"]), (&json!(404), &me["id"]));
    assert!(found["duration_ms"].as_f64().is_some_and(|time| time > 0.0), "{found}");
    assert!(found["timestamp"].as_str().unwrap().parse::<jiff::Timestamp>().is_ok(), "{found}");
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
    let execution = user.only_execution(cue["id"].as_str().unwrap());
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
    server.client().get("/health").expect(200);
    let line = until("the request is logged", || server.log().lines().next().map(str::to_owned));
    for part in ["DEBUG request completed request_id=", "method=\"GET\"", "route=\"/health\"", "status=200"] {
        assert!(line.contains(part), "{part} in {line}");
    }
}

#[test]
fn the_address_of_a_blocked_name_is_logged_and_not_shown() {
    let allow = ["--allow-callbacks-to", "loopback", "--log-level", "debug", "--test-clock", BEGIN];
    let mut server = Server::start(&[DEV_UNLIMITED, &allow].concat());
    let user = server.user();
    // A name is checked when it is stored; this one is blocked only from the restart on.
    let cue = user.create(&json!({
        "name": "hook", "schedule": {"type": "once", "at": "2030-01-01T01:00:00Z"}, "retry": {"max_attempts": 1},
        "callback": {"url": "http://localhost:9/"},
    }));
    assert_eq!(server.stop(), Some(0));
    server.restart_with("--allow-callbacks-to", "public");
    let user = server.client().with_key(user.key());
    user.advance("PT2H");
    let message = user.only_execution(cue["id"].as_str().unwrap())["error_message"].to_string();
    assert!(message.contains("the name localhost has no address"), "{message}");
    assert!(!message.contains("127.") && !message.contains("::1"), "{message}");
    let log = server.log();
    assert!(log.contains("cause=\"blocked_address\" reason=\"resolved to "), "{log}");
}
