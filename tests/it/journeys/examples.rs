//! The programs in `examples/`, run as their users run them.

use std::io::{BufRead, BufReader};
use std::process::{ChildStdout, Command, Stdio};

use serde_json::{Value, json};

use super::{id, webhook, worker};
use crate::client::Client;
use crate::recorder::Recorder;
use crate::server::{ALONE, Process, Server, run, signal, until};

/// One of the examples, and what it prints.
pub struct Example {
    child: Process,
    lines: BufReader<ChildStdout>,
}

impl Example {
    pub fn start(file: &str, arguments: &[&str], environment: &[(&str, &str)]) -> Self {
        let child = Command::new("python3")
            .arg("-u")
            .arg(format!("{}/examples/{file}", env!("CARGO_MANIFEST_DIR")))
            .args(arguments)
            .env_remove("WEBHOOK_SECRET")
            .envs(environment.iter().copied())
            .stdout(Stdio::piped())
            .spawn()
            .expect("python3 runs the examples");
        let mut child = Process(child);
        let lines = BufReader::new(child.0.stdout.take().unwrap());
        Self { child, lines }
    }

    /// The next line that it prints.
    pub fn line(&mut self) -> String {
        let mut line = String::new();
        assert_ne!(self.lines.read_line(&mut line).unwrap(), 0, "it has ended: {:?}", self.child.0.wait());
        line.trim_end().to_owned()
    }

    /// Its address, from the line that says that it listens.
    pub fn addr(&mut self) -> std::net::SocketAddr {
        let line = self.line();
        line.strip_prefix("receiver listening on http://").expect(&line).parse().unwrap()
    }
}

fn secret(user: &Client) -> String {
    user.get("/v1/auth/webhook-secret").expect(200)["webhook_secret"].as_str().unwrap().to_owned()
}

#[test]
fn the_receiver_verifies_real_deliveries_and_handles_each_once() {
    let server = Server::start(&[ALONE, &["--test-clock"]].concat());
    let user = server.user();
    let secret = secret(&user);
    let mut example = Example::start("receiver.py", &["0"], &[("WEBHOOK_SECRET", &secret)]);
    let addr = example.addr();
    let payload = json!({"text": "grüße 😀", "number": 1e16, "list": [0.1, null, {}]});
    let cue = user.create(&json!({
        "name": "greet", "schedule": {"type": "recurring", "cron": "* * * * *"},
        "callback": {"url": format!("http://{addr}/")}, "payload": payload,
    }));
    user.advance("PT1M");
    let execution = user.only_execution(id(&cue));
    assert_eq!((&execution["status"], &execution["http_status"]), (&json!("success"), &json!(200)));
    let (printed_id, printed) =
        example.line().split_once(' ').map(|(a, b)| (a.to_owned(), b.to_owned())).unwrap();
    assert_eq!(printed_id, id(&execution));
    assert_eq!(serde_json::from_str::<Value>(&printed).unwrap()["text"], payload["text"]);
}

#[test]
fn the_receiver_rejects_what_is_forged_stale_or_changed_and_ignores_repeats() {
    let server = Server::start(&[ALONE, &["--test-clock"]].concat());
    let (user, recorder) = (server.user(), Recorder::start());
    let secret = secret(&user);
    let mut example = Example::start("receiver.py", &["0", "--secret", &secret], &[]);
    let client = Client::new(example.addr());
    user.post(
        &format!("/v1/cues/{}/fire", id(&user.create(&webhook(&recorder, super::cron("0 9 * * *"))))),
        &json!({}),
    );
    user.settle();
    let sent = recorder.deliveries().remove(0);
    let send = |changed: &[(&str, &str)], body: &[u8]| {
        let mut headers: Vec<(&str, &str)> =
            sent.headers.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        headers.retain(|(name, _)| !["host", "content-length"].contains(&name.to_lowercase().as_str()));
        for (name, value) in changed {
            headers.retain(|(known, _)| !known.eq_ignore_ascii_case(name));
            headers.push((name, value));
        }
        client.call("POST", "/", &headers, body).unwrap().status
    };
    let signature = sent.header("x-cueapi-signature").unwrap();
    let flipped = signature.replace(['0', '1'], "f");
    let timestamp: i64 = sent.header("x-cueapi-timestamp").unwrap().parse().unwrap();
    for (name, value) in [
        ("x-cueapi-signature", flipped.as_str()),
        ("x-cueapi-signature", ""),
        ("x-cueapi-signature", "v1="),
        ("x-cueapi-timestamp", &(timestamp - 1).to_string()),
        ("x-cueapi-timestamp", &(timestamp - 301).to_string()),
        ("x-cueapi-timestamp", "soon"),
        ("x-cueapi-timestamp", ""),
    ] {
        assert_eq!(send(&[(name, value)], &sent.body), 401, "{name}: {value}");
    }
    assert_eq!(send(&[], b"{}"), 401);
    assert_eq!(send(&[], &sent.body), 200);
    assert_eq!(send(&[], &sent.body), 200);
    assert!(example.line().starts_with(&format!("{} {{", sent.execution_id)));
    assert_eq!(example.line(), format!("{} again, ignored", sent.execution_id));
}

#[test]
fn the_receiver_rejects_a_delivery_that_was_recorded_long_ago() {
    let server = Server::on_clock("2026-01-05T00:00:00Z");
    let user = server.user();
    let secret = secret(&user);
    let mut example = Example::start("receiver.py", &["0", "--secret", &secret], &[]);
    let mut cue = super::worker(super::cron("0 9 * * *"));
    cue["transport"] = json!("webhook");
    cue["callback"] = json!({"url": format!("http://{}/", example.addr())});
    let cue = user.create(&cue);
    user.post(&format!("/v1/cues/{}/fire", id(&cue)), &json!({})).expect(200);
    user.settle();
    assert_eq!(user.only_execution(id(&cue))["http_status"], 401);
}

#[test]
fn the_receiver_says_that_it_verifies_nothing_without_a_secret() {
    let mut example = Example::start("receiver.py", &["0"], &[]);
    assert!(example.line().contains("NOT verified"));
    let client = Client::new(example.addr());
    assert_eq!(client.call("POST", "/", &[("X-CueAPI-Execution-Id", "x")], b"{}").unwrap().status, 200);
    assert_eq!(example.line(), "x {}");
}

#[test]
fn the_worker_does_the_work_of_its_tasks_and_reports_it() {
    let mut server = Server::start(ALONE);
    let user = server.user();
    let run = |payload: Value| {
        let mut cue = worker(super::cron("0 9 * * *"));
        cue["payload"] = payload;
        let fired = user.post(&format!("/v1/cues/{}/fire", id(&user.create(&cue))), &json!({})).expect(200);
        fired["execution_id"].as_str().unwrap().to_owned()
    };
    let (good, bad) =
        (run(json!({"task": "count-words", "text": "one two three"})), run(json!({"task": "count-words"})));
    let others = run(json!({"task": "not-mine"}));
    let environment = [("CUED_API_KEY", user.key()), ("CUED_URL", &server.url())];
    let mut example = Example::start("worker.py", &["--id", "worker-1"], &environment);
    assert!(example.line().contains("count-words"));
    let finished = |execution: &str| {
        until("the outcome is reported", || {
            let seen = user.get(&format!("/v1/executions/{execution}")).expect(200);
            seen["outcome"].is_object().then_some(seen)
        })
    };
    let good = finished(&good);
    assert_eq!((&good["status"], &good["outcome"]["result"]), (&json!("success"), &json!("3 words")));
    assert_eq!(good["claimed_by_worker"], "worker-1");
    let bad = finished(&bad);
    assert_eq!((&bad["status"], &bad["outcome"]["error"]), (&json!("failed"), &json!("KeyError: 'text'")));
    assert_eq!(user.get(&format!("/v1/executions/{others}")).expect(200)["status"], "pending");
    let workers = until("the worker is known", || {
        let list = user.get("/v1/workers").expect(200);
        (list["workers"].as_array().map_or(0, Vec::len) > 0).then_some(list)
    });
    assert_eq!(workers["workers"][0]["worker_id"], "worker-1");
    assert_eq!(workers["workers"][0]["handlers"], json!(["count-words", "echo"]));
    signal("-TERM", example.child.0.id());
    assert_eq!(example.child.0.wait().unwrap().code(), Some(0));
    assert_eq!(server.stop(), Some(0));
}

#[test]
fn the_worker_needs_a_key() {
    assert_eq!(run(&["--version"]).status.code(), Some(0), "the program itself runs");
    let mut example = Example::start("worker.py", &[], &[("CUED_API_KEY", "")]);
    assert_eq!(example.child.0.wait().unwrap().code(), Some(2));
}
