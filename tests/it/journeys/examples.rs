//! The examples of the documentation, run as they are.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::ChildStdout;

use crate::support::*;

const RECEIVERS: [&str; 3] = ["receiver.py", "receiver.js", "receiver.sh"];

/// A running example and its output.
pub struct Example {
    child: Process,
    lines: BufReader<ChildStdout>,
    _temporary: TempDir,
}

impl Example {
    pub fn start(file: &str, arguments: &[&str], environment: &[(&str, &str)]) -> Self {
        let temporary = TempDir::new().unwrap();
        let child = interpreter(file)
            .arg(format!("{}/examples/{file}", env!("CARGO_MANIFEST_DIR")))
            .args(arguments)
            .env_remove("WEBHOOK_SECRET")
            .env("TMPDIR", temporary.path())
            .envs(environment.iter().copied())
            .stdout(Stdio::piped())
            .spawn()
            .expect(file);
        let mut child = Process(child);
        let lines = BufReader::new(child.0.stdout.take().unwrap());
        Self { child, lines, _temporary: temporary }
    }

    /// The next line of output.
    pub fn line(&mut self) -> String {
        let mut line = String::new();
        assert_ne!(
            self.lines.read_line(&mut line).unwrap(),
            0,
            "it has ended: {:?}",
            self.child.0.wait()
        );
        line.trim_end().to_owned()
    }

    /// Its address, from its first line.
    pub fn addr(&mut self) -> std::net::SocketAddr {
        let line = self.line();
        line.strip_prefix("receiver listening on http://").expect(&line).parse().unwrap()
    }

    /// Terminates it; returns the exit code.
    fn stop(&mut self) -> Option<i32> {
        signal("-TERM", self.child.0.id());
        self.child.0.wait().unwrap().code()
    }
}

fn interpreter(file: &str) -> Command {
    let (_, extension) = file.rsplit_once('.').unwrap();
    match extension {
        "py" => {
            let mut python = Command::new("python3");
            python.arg("-u");
            python
        }
        "js" => Command::new("node"),
        _ => Command::new("sh"),
    }
}

/// The examples whose tools this machine has; prints why the others are skipped.
fn that_run<'a>(files: &'a [&'a str]) -> impl Iterator<Item = &'a str> {
    let is_there = |program: &&str| {
        let found = Command::new(program)
            .arg("--version")
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status();
        found.is_ok()
    };
    files.iter().copied().filter(move |file| {
        let needed: &[&str] = match *file {
            "receiver.sh" => &["sh", "openssl", "perl"],
            "worker.sh" => &["sh", "curl", "iconv", "awk"],
            file if file.ends_with(".js") => &["node"],
            _ => &["python3"],
        };
        let missing = needed.iter().find(|program| !is_there(program));
        if let Some(program) = missing {
            assert!(!is_full_run(), "examples/{file} cannot be tried: there is no {program}");
            eprintln!("examples/{file} is not tried: there is no {program}");
        }
        missing.is_none()
    })
}

fn secret(user: &Client) -> String {
    user.read("/v1/auth/webhook-secret").text("webhook_secret").to_owned()
}

/// A receiver with the secret of the account.
fn verifying(file: &str, secret: &str) -> Example {
    Example::start(file, &["0"], &[("WEBHOOK_SECRET", secret)])
}

/// Headers of a recorded delivery that the receiver must reject under its scheme.
fn forgeries(file: &str, sent: &Delivery) -> Vec<(&'static str, String)> {
    let timestamp: i64 = sent.header("x-cueapi-timestamp").unwrap().parse().unwrap();
    let (signature, stamp) = match file {
        "receiver.js" => ("webhook-signature", "webhook-timestamp"),
        _ => ("x-cueapi-signature", "x-cueapi-timestamp"),
    };
    let real = sent.header(signature).unwrap();
    let version = &real[..3];
    let mut forged = vec![("webhook-id", "another".to_owned())];
    // The signature of the other scheme has no id.
    forged.retain(|_| file == "receiver.js");
    for value in [
        real.replace(['0', '1'], "f"),
        String::new(),
        version.to_owned(),
        real.replacen("v1", "v2", 1),
        real[..40].to_owned(),
    ] {
        forged.push((signature, value));
    }
    for value in [timestamp - 1, timestamp + 1, timestamp - 301, timestamp + 10_000, 0, -1] {
        forged.push((stamp, value.to_string()));
    }
    let huge = "9".repeat(400);
    for value in
        ["soon", "", "0x10", "0900", "99999999999999999999999999", "1e9", "1_000", "+5", &huge]
    {
        forged.push((stamp, value.to_owned()));
    }
    forged
}

#[test]
fn the_receivers_verify_real_deliveries() {
    for file in that_run(&RECEIVERS) {
        let (_server, user) = Server::with_user(&[DEV_UNLIMITED, &["--test-clock"]].concat());
        let mut example = verifying(file, &secret(&user));
        let addr = example.addr();
        let payload = json!({"text": "grüße 😀", "number": 1e16, "list": [0.1, null, {}]});
        let cue = webhook_cue("greet", "* * * * *", &format!("http://{addr}/"));
        let cue = user.create(&with(cue, json!({ "payload": payload })));
        user.advance("PT1M");
        let execution = user.only_execution(id(&cue));
        assert_has(&execution, json!({"status": "success", "http_status": 200}));
        let line = example.line();
        let (printed_id, printed) = line.split_once(' ').unwrap();
        assert_eq!(printed_id, id(&execution), "{file}");
        assert_has(&serde_json::from_str(printed).unwrap(), json!({"text": payload["text"]}));
    }
}

#[test]
fn the_receivers_reject_forged_stale_or_changed_deliveries_and_ignore_repeats() {
    let (_server, user) = Server::with_user(&[DEV_UNLIMITED, &["--test-clock"]].concat());
    let recorder = Receiver::start();
    let cue = webhook_cue("hook", YEARLY, &recorder.url());
    user.fire(&user.create(&with(cue, json!({"payload": {"task": "greet"}}))));
    user.settle();
    let sent = recorder.deliveries().remove(0);
    for file in that_run(&RECEIVERS) {
        let mut example = verifying(file, &secret(&user));
        let client = Client::new(example.addr());
        let send = |changed: &[(&str, String)], body: &[u8]| {
            let mut headers: Vec<(&str, &str)> =
                sent.headers.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
            headers.retain(|(name, _)| {
                !["host", "content-length"].contains(&name.to_lowercase().as_str())
            });
            for (name, value) in changed {
                headers.retain(|(known, _)| !known.eq_ignore_ascii_case(name));
                headers.push((name, value));
            }
            client.call("POST", "/", &headers, body).unwrap().status
        };
        for forged in forgeries(file, &sent) {
            assert_eq!(send(std::slice::from_ref(&forged), &sent.body), 401, "{file} {forged:?}");
        }
        assert_eq!(send(&[], b"{}"), 401, "{file}");
        assert_eq!(send(&[], &[&sent.body[..], b"\n"].concat()), 401, "{file}");
        // Its scheme does not sign the headers of the other one.
        let other = ("X-CueAPI-Execution-Id", "another".to_owned());
        let again = if file == "receiver.js" { vec![other] } else { vec![] };
        assert_eq!((send(&[], &sent.body), send(&again, &sent.body)), (200, 200), "{file}");
        assert!(example.line().starts_with(&format!("{} {{", sent.execution_id)), "{file}");
        assert_eq!(example.line(), format!("{} again, ignored", sent.execution_id));
    }
}

/// A cue that calls the receiver.
fn hook(user: &Client, receiver: &mut Example) -> Value {
    user.create(&webhook_cue("hook", YEARLY, &format!("http://{}/", receiver.addr())))
}

#[test]
fn the_receivers_reject_an_old_recorded_delivery() {
    for file in that_run(&RECEIVERS) {
        let (_server, user) = Server::with_clock_and_user("2026-01-05T00:00:00Z");
        let mut example = verifying(file, &secret(&user));
        let cue = hook(&user, &mut example);
        user.fire(&cue);
        user.settle();
        assert_eq!(user.only_execution(id(&cue))["http_status"], 401, "{file}");
    }
}

#[test]
fn a_standard_webhooks_receiver_accepts_the_old_secret_for_a_day() {
    for file in that_run(&["receiver.js"]) {
        let (_server, user) = Server::with_user(&[DEV_UNLIMITED, &["--test-clock"]].concat());
        let mut example = verifying(file, &secret(&user));
        let cue = hook(&user, &mut example);
        user.post("/v1/auth/webhook-secret/regenerate", &json!({})).expect(200);
        user.fire(&cue);
        user.settle();
        assert_eq!(user.only_execution(id(&cue))["http_status"], 200);
    }
}

#[test]
fn the_receivers_warn_when_they_run_without_a_secret() {
    for file in that_run(&RECEIVERS) {
        let mut example = Example::start(file, &["0"], &[]);
        assert!(example.line().contains("NOT verified"), "{file}");
        let client = Client::new(example.addr());
        let id = [("X-CueAPI-Execution-Id", "x"), ("webhook-id", "x")];
        let response = client.call("POST", "/", &id, b"{}").unwrap();
        assert_eq!(response.status, 200, "{file}");
        assert_eq!(example.line(), "x {}", "{file}");
    }
}

/// An execution for workers with this payload.
fn work(user: &Client, payload: &Value) -> String {
    user.fire(&user.create(&with(worker_cue("work", YEARLY), json!({ "payload": payload }))))
}

/// An execution with its outcome.
fn finished(user: &Client, execution: &str) -> Value {
    until("the outcome is reported", || {
        let seen = user.execution(execution);
        seen["outcome"].is_object().then_some(seen)
    })
}

/// The only worker, after its first heartbeat.
fn announced(user: &Client) -> Value {
    until("the worker is listed", || {
        let list = user.read("/v1/workers");
        list["workers"].as_array().and_then(|workers| workers.first().cloned())
    })
}

#[test]
fn the_workers_process_their_tasks_and_report_outcomes() {
    let cases = [
        ("worker.py", "KeyError: 'text'"),
        ("worker.js", "TypeError: Cannot read properties of undefined"),
    ];
    for file in that_run(&cases.map(|(file, _)| file)) {
        let error = cases.iter().find(|(known, _)| *known == file).unwrap().1;
        let (mut server, user) = Server::with_user(DEV_UNLIMITED);
        let good = work(&user, &json!({"task": "count-words", "text": "one two three"}));
        let bad = work(&user, &json!({"task": "count-words"}));
        let others = work(&user, &json!({"task": "not-mine"}));
        let environment = [("CUED_API_KEY", user.key()), ("CUED_URL", &server.url())];
        let arguments: &[&str] =
            if file == "worker.py" { &["--id", "worker-1"] } else { &[&server.url(), "worker-1"] };
        let mut example = Example::start(file, arguments, &environment);
        assert!(example.line().contains("count-words"), "{file}");
        let good = finished(&user, &good);
        assert_eq!(good["status"], "success", "{file}");
        assert_eq!(good["outcome"]["result"], "3 words", "{file}");
        assert_eq!(good["claimed_by_worker"], "worker-1");
        let bad = finished(&user, &bad);
        assert_eq!(bad["status"], "failed", "{file}");
        assert!(bad["outcome"].text("error").starts_with(error), "{file}: {bad}");
        assert_eq!(user.execution(&others)["status"], "pending");
        let known = announced(&user);
        assert_has(
            &known,
            json!({"worker_id": "worker-1", "handlers": ["count-words", "echo", "wait"]}),
        );
        assert_eq!(example.stop(), Some(0), "{file}");
        assert_eq!(server.stop(), Some(0));
    }
}

#[test]
fn the_shell_worker_runs_a_command_for_each_execution_of_its_task() {
    for file in that_run(&["worker.sh"]) {
        let (server, user) = Server::with_user(DEV_UNLIMITED);
        // A payload that resembles the response around it, with bytes that need escapes in JSON strings.
        let payload = json!({
            "task": "copy", "text": "grüße \\ \" \n", "execution_id": "no", "payload": {"a": 1}, "scheduled_for": "x",
        });
        // One that resembles a response without an execution.
        let empty = json!({"task": "copy", "executions": [], "more": {"executions": []}});
        let others = work(&user, &json!({"task": "not-mine"}));
        let environment =
            [("CUED_API_KEY", user.key()), ("CUED_URL", &server.url()), ("WORKER_ID", "worker-1")];
        let command = r#"cat; printf '\n\ttab \\ " \001\377'; grep -q bad "$0" && exit 3; exit 0"#;
        let flag = tempfile::NamedTempFile::new().unwrap();
        let arguments = ["copy", "sh", "-c", command, flag.path().to_str().unwrap()];
        let mut example = Example::start(file, &arguments, &environment);
        assert_eq!(example.line(), "worker worker-1 waits for: copy");
        for payload in [payload, empty] {
            let good = finished(&user, &work(&user, &payload));
            let (copied, rest) = good["outcome"].text("result").split_once('\n').unwrap();
            assert_eq!(serde_json::from_str::<Value>(copied).unwrap(), payload);
            assert_eq!((rest, good.text("claimed_by_worker")), ("\ttab \\ \" ", "worker-1"));
        }
        std::fs::write(flag.path(), "bad").unwrap();
        let bad = finished(&user, &work(&user, &json!({"task": "copy"})));
        assert_eq!(bad["status"], "failed");
        let error = bad["outcome"].text("error");
        assert!(
            error.starts_with(r#"{"task": "copy"}"#) && error.ends_with("exit code 3"),
            "{error}"
        );
        assert_eq!(user.execution(&others)["status"], "pending");
        let known = announced(&user);
        assert_has(&known, json!({"worker_id": "worker-1", "handlers": ["copy"]}));
        assert_eq!(example.stop(), Some(0));
    }
}

#[test]
fn the_workers_extend_their_lease_during_long_work() {
    // A server double with constant responses and a lease of three seconds: a real lease would take five minutes.
    let server = Receiver::start();
    let id = "01890a5d-ac96-774b-bcce-b302099a8057";
    let response = json!({
        "execution_id": id, "executions": [{"id": id}], "lease_seconds": 3,
        "payload": {"seconds": 1.5, "task": "wait", "text": ""}, "scheduled_for": "",
    });
    server.react(Reaction::Full(200, Vec::new(), response.to_string()));
    let url = server.url();
    for file in that_run(&["worker.py", "worker.js", "worker.sh"]) {
        let arguments: &[&str] = if file == "worker.sh" { &["wait", "sleep", "1.5"] } else { &[] };
        let begun = server.count();
        let _example =
            Example::start(file, arguments, &[("CUED_API_KEY", "cue_sk_"), ("CUED_URL", &url)]);
        let kept = until(file, || {
            let path = format!("/hook/v1/executions/{id}/heartbeat");
            server.deliveries().into_iter().skip(begun).find(|request| request.path == path)
        });
        assert_eq!(kept.method, "POST", "{file}");
        assert!(!kept.header("x-worker-id").unwrap().is_empty(), "{file}");
    }
}

#[test]
fn the_workers_require_a_key() {
    assert_eq!(run(&["--version"]).status.code(), Some(0), "the program itself runs");
    for file in that_run(&["worker.py", "worker.js", "worker.sh"]) {
        let arguments: &[&str] = if file == "worker.sh" { &["task", "true"] } else { &[] };
        let mut example = Example::start(file, arguments, &[("CUED_API_KEY", "")]);
        assert_eq!(example.child.0.wait().unwrap().code(), Some(2), "{file}");
    }
}

#[test]
fn the_receivers_refuse_a_body_without_a_valid_length_at_once() {
    for file in that_run(&RECEIVERS) {
        let mut example = verifying(file, "whsec_00");
        let addr = example.addr();
        for length in ["-1", "+5", "1e3", "0x10", "five", "99999999999999999999999"] {
            let mut stream = TcpStream::connect(addr).unwrap();
            stream.set_read_timeout(Some(HANG_TIMEOUT)).unwrap();
            write!(stream, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: {length}\r\n\r\n")
                .unwrap();
            let mut first = [0; 12];
            stream.read_exact(&mut first).unwrap();
            assert!(first.starts_with(b"HTTP/1.1 4"), "{file} {length}: {first:?}");
        }
    }
}

#[test]
fn the_workers_read_a_bounded_part_of_an_endless_response() {
    // The bound of 8 MiB, and what the buffers of the two sockets hold.
    const MOST: usize = 32 << 20;
    for file in that_run(&["worker.py", "worker.js", "worker.sh"]) {
        let (poured, cut) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let (pouring, cutting) = (Arc::clone(&poured), Arc::clone(&cut));
        let server = Receiver::with(Reaction::script(move |stream| {
            drop(stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n"));
            let mut total = 0;
            while total < 2 * MOST && stream.write_all(&[b' '; 65_536]).is_ok() {
                total += 65_536;
            }
            pouring.fetch_max(total, Ordering::SeqCst);
            cutting.fetch_add(1, Ordering::SeqCst);
        }));
        let arguments: &[&str] = if file == "worker.sh" { &["wait", "true"] } else { &[] };
        let environment = [("CUED_API_KEY", "cue_sk_"), ("CUED_URL", &server.url())];
        let _example = Example::start(file, arguments, &environment);
        // The heartbeat, a poll, and a poll after the error.
        until(file, || (cut.load(Ordering::SeqCst) >= 3).then_some(()));
        let most = poured.load(Ordering::SeqCst);
        assert!(most < MOST, "{file} took {most} bytes");
    }
}
