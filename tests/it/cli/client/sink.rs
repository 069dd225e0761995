//! `cued sink` and `cued tail`.

use std::io::{BufRead as _, BufReader, Read, Write};
use std::net::Shutdown;

use cued::domain::webhook::signature::{SigningSecrets, signature_headers};

use crate::cli::client::Desk;
use crate::support::*;

const SECRET: &str = "whsec_0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
const ID: &str = "0190a5c0-0000-7000-8000-000000000001";

/// The headers of a delivery that is signed `age` seconds ago.
fn signed(secret: &str, age: i64, body: &str) -> Vec<(&'static str, String)> {
    let at = Timestamp::now().as_second() - age;
    let secrets = SigningSecrets { current: secret, previous: None };
    let mut headers = signature_headers(secrets, ID, at, body.as_bytes()).to_vec();
    headers
        .extend([("X-CueAPI-Execution-Id", ID.to_owned()), ("X-CueAPI-Attempt", "2".to_owned())]);
    headers
}

fn with_secret() -> ClientHome {
    ClientHome::new().env("CUED_WEBHOOK_SECRET", SECRET)
}

#[test]
fn a_delivery_is_a_line_and_its_body() {
    let mut sink = Sink::start(&with_secret(), &[]);
    assert_eq!(sink.note(), "Signatures are checked with the secret of CUED_WEBHOOK_SECRET");
    let body = "{\"a\":\n \"\u{1b}[2J\u{202e}\"}";
    assert_eq!(sink.post(&signed(SECRET, 0, body), body).status, 200);
    let line = sink.line();
    let (_, line) = line.split_once("  ").unwrap();
    assert_eq!(line, format!("POST /hook  {ID}  attempt 2  {} B  verified  → 200", body.len()));
    assert_eq!([sink.line(), sink.line()], ["  {\"a\":", "   \"\u{fffd}[2J\u{fffd}\"}"]);
    sink.post(&[], &"é".repeat(5_000));
    assert!(sink.line().contains("  10000 B  "));
    assert_eq!([sink.line().chars().count(), 2 + 2_048], [2_050; 2]);
    assert_eq!(sink.line(), "  … 5904 bytes more");
}

#[test]
fn an_unverified_delivery_has_its_reason() {
    let mut sink = Sink::start(&with_secret(), &["--no-body"]);
    let mut reason = |headers: &[(&str, String)]| {
        assert_eq!(sink.post(headers, "{}").status, 200);
        let line = sink.line();
        line.split("  ").find(|part| part.contains("verified")).expect(&line).to_owned()
    };
    assert_eq!(reason(&[]), "not verified: no signature header");
    assert_eq!(reason(&signed(SECRET, 0, "{}")), "verified");
    assert_eq!(reason(&signed(SECRET, 0, "{ }")), "not verified: wrong X-CueAPI-Signature");
    assert_eq!(reason(&signed("whsec_AAAA", 0, "{}")), "not verified: wrong X-CueAPI-Signature");
    let standard: Vec<_> = signed("whsec_AAAA", 0, "{}")
        .into_iter()
        .filter(|(name, _)| name.starts_with("webhook-"))
        .collect();
    assert_eq!(reason(&standard), "not verified: wrong webhook-signature");
    let old = reason(&signed(SECRET, 400, "{}"));
    assert!(old.starts_with("not verified: timestamp too old, 40"), "{old}");
    let mut broken = signed(SECRET, 0, "{}");
    broken[0].1 = "soon".to_owned();
    assert_eq!(reason(&broken), "not verified: X-CueAPI-Timestamp is no time");
    let mut none = Sink::alone(&["--no-body"]);
    assert!(none.note().starts_with("Signatures are checked once you run"));
    none.post(&signed(SECRET, 0, "{}"), "{}");
    assert!(none.line().contains("  not verified: no secret given  "));
}

#[test]
fn a_test_call_is_no_attempt_and_the_status_is_never_cut_off() {
    let line = |columns: &str| {
        let home = with_secret().env("CUED_COLUMNS", columns);
        let mut sink = Sink::start(&home, &["--no-body", "--script", "500"]);
        let mut headers = signed("whsec_AAAA", 0, "{}");
        sink.post(&headers, "{}");
        let run = sink.line();
        headers.push(("X-CueAPI-Test", "true".to_owned()));
        sink.post(&headers, "{}");
        (run, sink.line())
    };
    let (run, test) = line("120");
    assert!(
        run.ends_with("  attempt 2  2 B  not verified: wrong X-CueAPI-Signature  → 500"),
        "{run}"
    );
    assert!(test.contains("  test  2 B  not verified"), "{test}");
    assert!(line("80").0.ends_with("  attempt 2  2 B  wrong signature  → 500"), "80 columns");
    assert!(line("60").0.ends_with("  wrong signature  → 500"), "60 columns");
}

#[test]
fn a_secret_can_come_from_a_file() {
    let home = ClientHome::new();
    let file = home.folder().join("secret");
    fs::write(&file, format!("{SECRET}\n")).unwrap();
    let mut sink = Sink::start(&home, &["--secret", &format!("@{}", file.display()), "--no-body"]);
    assert_eq!(sink.note(), "Signatures are checked with the secret of --secret");
    sink.post(&signed(SECRET, 0, "{}"), "{}");
    assert!(sink.line().contains("  verified  "));
}

#[test]
fn the_answers_follow_the_script_and_its_last_step_repeats() {
    let mut sink = Sink::alone(&["--script", "500,429:5,204", "--no-body", "--exit-after", "4"]);
    let answers = [0; 4].map(|_| sink.post(&[], "{}"));
    assert_eq!(answers.each_ref().map(|it| it.status), [500, 429, 204, 204]);
    let waits = answers.each_ref().map(|it| it.header("retry-after"));
    assert_eq!(waits, [None, Some("5"), None, None]);
    let lines = [0; 3].map(|_| sink.line());
    assert!(
        lines[0].ends_with("→ 500") && lines[1].ends_with("→ 429, Retry-After 5 s"),
        "{lines:?}"
    );
    let (code, rest, notes) = sink.end();
    assert_eq!((code, rest.lines().count()), (Some(0), 1));
    assert!(notes.ends_with("4 deliveries, 0 verified\n"), "{notes}");
}

#[test]
fn a_timeout_lasts_until_the_sender_gives_up() {
    let mut sink = Sink::alone(&["--script", "timeout,200", "--no-body", "--exit-after", "22"]);
    let mut waiting = sink.send(&[], "{}");
    assert!(sink.line().ends_with("→ no response"));
    // Others are answered in the meantime, and the sink does not end: one of its deliveries has not.
    for _ in 1..22 {
        assert_eq!(sink.post(&[], "{}").status, 200);
    }
    assert!(!waiting.has_response() && sink.child.0.try_wait().unwrap().is_none());
    waiting.stream().shutdown(Shutdown::Both).unwrap();
    assert_eq!(sink.end().0, Some(0));
}

#[test]
fn a_connection_stays_open_for_the_next_delivery() {
    let sink = Sink::alone(&["--reply", "{\"success\": true}", "--script", "200,500"]);
    let mut connection = sink.send(&[], "{}");
    let first = connection.plain_response();
    assert_eq!((first.status, first.text().as_str()), (200, "{\"success\": true}"));
    assert_eq!(first.header("content-type"), Some("application/json"));
    connection.stream().write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
    let second = connection.plain_response();
    assert_eq!((second.status, second.text().as_str()), (500, ""));
}

#[test]
fn connections_have_a_bound_and_others_wait() {
    let sink = Sink::alone(&["--no-body"]);
    let sockets = || {
        let files = fs::read_dir(format!("/proc/{}/fd", sink.child.0.id())).unwrap();
        let links = files.filter_map(|file| fs::read_link(file.ok()?.path()).ok());
        links.filter(|link| link.to_string_lossy().starts_with("socket:")).count()
    };
    let mut first = sink.send(&[], "{}");
    assert_eq!(first.plain_response().status, 200);
    let before = sockets();
    let others: Vec<TcpStream> = (0..200).map(|_| TcpStream::connect(sink.addr).unwrap()).collect();
    until("all that may be are open", || (sockets() >= before + 127).then_some(()));
    first.stream().write_all(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n").unwrap();
    assert_eq!(first.plain_response().status, 200);
    assert_eq!(sockets(), before + 127);
    drop(others);
    assert_eq!(sink.post(&[], "{}").status, 200);
}

#[test]
fn a_request_with_too_large_a_body_or_head_is_refused_and_takes_no_step() {
    let mut sink = Sink::alone(&["--json", "--no-body", "--exit-after", "1"]);
    sink.note();
    let mut connection = Connection::open(sink.addr).unwrap();
    connection
        .stream()
        .write_all(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 8388609\r\n\r\n")
        .unwrap();
    assert_eq!(connection.plain_response().status, 413);
    assert!(sink.note().contains("413 Payload Too Large: its body has more than 8 MiB"));
    let mut connection = Connection::open(sink.addr).unwrap();
    let chunk = format!("100000\r\n{}\r\n", "a".repeat(1 << 20));
    connection
        .stream()
        .write_all(b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n")
        .unwrap();
    connection.stream().write_all(chunk.repeat(8).as_bytes()).unwrap();
    connection.stream().write_all(b"1\r\n").unwrap();
    connection.stream().write_all(b"a\r\n").unwrap();
    assert_eq!(connection.plain_response().status, 413);
    let mut connection = Connection::open(sink.addr).unwrap();
    let head = format!("POST / HTTP/1.1\r\nHost: a\r\na: {}", "a".repeat(192 << 10));
    // It may be refused before all of it is sent.
    drop(connection.stream().write_all(head.as_bytes()));
    assert_eq!(connection.plain_response().status, 431);
    let large = format!("\"{}\"", "a".repeat(3 << 20));
    assert_eq!(sink.post(&[], &large).status, 200);
    let (code, stdout, _) = sink.end();
    let delivery: Value = serde_json::from_str(&stdout).unwrap();
    assert_eq!((code, &delivery["size"]), (Some(0), &json!(large.len())));
}

#[test]
fn the_output_for_programs_has_nothing_but_deliveries() {
    let mut sink = Sink::start(&with_secret(), &["--json"]);
    sink.post(&signed(SECRET, 0, "{\"a\": 1}"), "{\"a\": 1}");
    let delivery: Value = serde_json::from_str(&sink.line()).unwrap();
    assert_eq!((&delivery["execution_id"], &delivery["attempt"]), (&json!(ID), &json!(2)));
    assert_eq!((&delivery["verified"], &delivery["reason"]), (&json!(true), &Value::Null));
    assert_eq!((&delivery["body"], &delivery["path"]), (&json!({"a": 1}), &json!("/hook")));
    assert_eq!(delivery["answer"], json!({"status": 200, "retry_after": null}));
    assert_eq!(delivery["headers"]["x-cueapi-attempt"], json!("2"));
    signal("-INT", sink.child.0.id());
    let (code, stdout, notes) = sink.end();
    assert_eq!((code, stdout.as_str()), (Some(0), ""));
    assert!(notes.ends_with("1 delivery, 1 verified\n"), "{notes}");
    let mut ids = Sink::start(&with_secret(), &["-q"]);
    ids.post(&signed(SECRET, 0, "{}"), "{}");
    assert_eq!(ids.line(), ID);
    let mut yaml = Sink::start(&with_secret(), &["-o", "yaml"]);
    yaml.post(&signed(SECRET, 0, "{}"), "{}");
    assert_eq!(yaml.line(), "---");
}

#[test]
fn a_signal_ends_a_sink_whose_reader_does_not_read() {
    let mut sink = Sink::alone(&["--json"]);
    let large = format!("\"{}\"", "a".repeat(3 << 20));
    let _waiting = sink.send(&[], &large);
    // It prints now, and cannot go on.
    sink.stdout.read_exact(&mut [0]).unwrap();
    signal("-TERM", sink.child.0.id());
    assert_eq!(sink.end().0, Some(0));
}

#[test]
fn the_end_of_the_reader_ends_the_sink() {
    let Sink { mut child, stdout, stderr, .. } = Sink::alone(&[]);
    drop(stdout);
    let code = bounded("the sink ends", move || child.0.wait().unwrap().code());
    assert_eq!(code, Some(0));
    drop(stderr);
}

#[test]
fn a_delivery_is_answered_if_its_line_was_read() {
    let mut sink = Sink::alone(&["--no-body"]);
    let mut connection = sink.send(&[], "{}");
    sink.line();
    let Sink { mut child, stdout, stderr, .. } = sink;
    drop(stdout);
    assert_eq!(connection.plain_response().status, 200);
    let code = bounded("the sink ends", move || child.0.wait().unwrap().code());
    assert_eq!(code, Some(0));
    drop(stderr);
    let mut sink = Sink::alone(&["--json"]);
    let mut connection = sink.send(&[], &format!("\"{}\"", "a".repeat(3 << 20)));
    // It prints now, and cannot go on.
    sink.stdout.read_exact(&mut [0]).unwrap();
    drop(sink.stdout);
    let mut answer = Vec::new();
    connection.stream().read_to_end(&mut answer).unwrap();
    assert_eq!(String::from_utf8_lossy(&answer), "");
}

#[test]
fn the_secret_of_the_account_is_found_also_after_the_start() {
    let (server, user) = Server::with_user(DEV_UNLIMITED);
    let home = ClientHome::new();
    let mut early = Sink::start(&home, &["--no-body"]);
    assert!(early.note().contains("once you run `cued login`"));
    let profile = json!({"url": server.url(), "api_key": user.key()});
    home.store(&json!({"current": "default", "profiles": {"default": profile}}));
    let mut signed_in = Sink::start(&ClientHome::signed_in(&server, &user), &["--no-body"]);
    let origin =
        format!("Signatures are checked with the secrets of your account at {}", server.url());
    assert_eq!(signed_in.note(), origin);
    for sink in [&mut early, &mut signed_in] {
        let cue = webhook_cue("hook", YEARLY, &sink.url());
        let run = user.fire(&user.create(&with(cue, json!({"payload": {"hello": "world"}}))));
        let (line, end) =
            (sink.line(), format!("POST /hook  {run}  attempt 1  18 B  verified  → 200"));
        assert!(line.ends_with(&end), "{line}");
    }
    assert_eq!(early.note(), origin);
}

#[test]
fn a_server_that_cannot_be_reached_does_not_keep_a_sink_from_starting() {
    let mut sink = Sink::start(&ClientHome::without_server(), &["--no-body"]);
    let note = sink.note();
    assert!(note.contains("not checked: cannot reach") && !note.contains("cue_sk_none"), "{note}");
    sink.post(&[], "{}");
    assert!(sink.line().contains("no signature header"));
    let shown = ClientHome::without_server().ok(&["sink", "--curl"]);
    assert!(shown.starts_with("curl http://127.0.0.1:1/v1/auth/webhook-secret "), "{shown}");
}

/// A cue that fires only by request, with attempts a minute apart.
pub fn cue(user: &Client, name: &str, receiver: &Receiver, attempts: u32) -> Value {
    let retry = json!({"retry": {"max_attempts": attempts, "backoff_minutes": [1]}});
    user.create(&with(webhook_cue(name, YEARLY, &receiver.url()), retry))
}

/// An account on a test clock, a receiver, and cues that call it, each by request and with two attempts.
fn calling<const N: usize>(names: [&str; N]) -> (Desk, Receiver, [Value; N]) {
    let (desk, receiver) = (Desk::new(), Receiver::start());
    let cues = names.map(|name| cue(&desk.user, name, &receiver, 2));
    (desk, receiver, cues)
}

#[test]
fn each_result_is_a_line_with_the_id_of_its_run() {
    let (Desk { server: _server, user, home }, receiver, [good, bad]) =
        calling(["nightly-backup", "sync\u{1b}[2J"]);
    let mut tail = LiveCommand::following(&home, &["tail"]);
    let run = user.fire(&good);
    user.settle();
    let line = tail.line();
    assert!(
        line.starts_with("2030-01-01 00:00:00+00:00  ●  nightly-backup  success  200  "),
        "{line}"
    );
    assert!(line.ends_with(&format!("  {run}  +0 ms")), "{line}");
    receiver.react(Reaction::Status(503));
    let run = user.fire(&bad);
    user.settle();
    let line = tail.line();
    assert_contains(
        &line,
        &[
            "  ↻  sync\u{fffd}[2J  attempt 1/2  503  ",
            &format!("  {run}  next in 60 s  \"the URL returned 503\""),
        ],
    );
    user.advance("PT1M");
    let line = tail.line();
    assert!(
        line.starts_with("2030-01-01 00:01:00+00:00  ✕  ") && line.contains("failed 2/2  503"),
        "{line}"
    );
    assert!(line.contains(&run), "{line}");
}

#[test]
fn other_forms_are_json_or_ids_and_nothing_else() {
    let (Desk { server: _server, user, home }, _receiver, [cue]) = calling(["a"]);
    let forms = [["tail", "--json"], ["tail", "-q"], ["tail", "--output=yaml"]];
    let [mut json, mut ids, mut yaml] = forms.map(|form| LiveCommand::following(&home, &form));
    let run = user.fire(&cue);
    let event: Value = serde_json::from_str(&json.line()).unwrap();
    assert_eq!(event["event"], "execution.succeeded");
    assert_eq!(event["data"]["execution_id"], json!(run));
    assert!(id(&event).contains('-'));
    assert_eq!(ids.line(), run);
    assert_eq!(yaml.line(), "---");
    until("the type", || Some(yaml.line()).filter(|line| line == "event: execution.succeeded"));
}

#[test]
fn failures_alone_with_the_bodies_of_their_responses() {
    let (Desk { server: _server, user, home }, receiver, [first, second]) =
        calling(["first", "second"]);
    for cue in [&first, &second] {
        user.change(cue, &json!({"retry": {"max_attempts": 1}}));
    }
    let mut all = LiveCommand::following(&home, &["tail", "--failed", "--body", "--json"]);
    let mut one = home.command(&["tail", "--failed", "--body", "--cue", "second", "--verbose"]);
    one.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut one = LiveCommand::new(one.spawn().unwrap());
    one.wait_for_note("/v1/events");
    user.fire(&first);
    user.settle();
    receiver.react(Reaction::Full(500, vec![], "no \u{1b}[2Jspace\nleft\n".to_owned()));
    user.fire(&first);
    user.fire(&second);
    let event: Value = serde_json::from_str(&all.line()).unwrap();
    assert_eq!(event["event"], "execution.failed", "the success is no failure");
    assert_eq!(event["response_body"], "no \u{1b}[2Jspace\nleft\n");
    let line = one.line();
    assert!(line.contains("  ✕  second  failed 1/1  500  "), "{line}");
    assert_eq!(one.lines(2), ["  no \u{fffd}[2Jspace", "  left"]);
}

#[test]
fn only_what_concerns_cues_with_all_of_the_tags() {
    let (Desk { server: _server, user, home }, _receiver, [plain, tagged]) =
        calling(["plain", "tagged"]);
    user.change(&tagged, &json!({"tags": ["a", "b"]}));
    user.change(&plain, &json!({"tags": ["a"]}));
    let both = || {
        user.fire(&plain);
        let run = user.fire(&tagged);
        user.settle();
        run
    };
    let past = both();
    let mut tail =
        LiveCommand::following(&home, &["tail", "--tag", "a", "--tag", "b", "--since", "10m"]);
    let line = tail.line();
    assert!(line.contains("  tagged  ") && line.contains(&past), "{line}");
    let next = both();
    let line = tail.line();
    assert!(line.contains("  tagged  ") && line.contains(&next), "{line}");
}

#[test]
fn the_past_comes_first_in_its_order() {
    let (Desk { server: _server, user, home }, receiver, [cue]) = calling(["a"]);
    user.fire(&cue);
    user.advance("PT1H");
    receiver.react(Reaction::Status(500));
    let failed = user.fire(&cue);
    user.advance("PT30S");
    receiver.react(Reaction::Status(200));
    let good = user.fire(&cue);
    user.advance("PT30S");
    user.settle();
    // Later than the retry: events of one millisecond have no order in a list.
    user.advance("PT1S");
    let mut tail = LiveCommand::following(&home, &["tail", "--since", "10m"]);
    let next = user.fire(&cue);
    let lines = tail.lines(2);
    for (line, (begin, run)) in lines.iter().zip([("01:00:30", &good), ("01:01:00", &failed)]) {
        assert!(
            line.contains(begin) && line.contains("success") && line.contains(run),
            "{lines:?}"
        );
    }
    // The list or the stream has the end of the next run, or both.
    let line = tail.line();
    assert!(line.contains("success") && line.contains(&next), "{line}");
}

/// An address of a server whose connections can be cut.
struct Relay {
    addr: SocketAddr,
    open: Arc<Mutex<Vec<TcpStream>>>,
}

impl Relay {
    fn to(server: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (addr, open) = (listener.local_addr().unwrap(), Arc::new(Mutex::new(Vec::new())));
        let all = Arc::clone(&open);
        thread::spawn(move || {
            for near in listener.incoming().map_while(Result::ok) {
                // Without a server the connection closes.
                let Ok(far) = TcpStream::connect(server) else { continue };
                let copy = |stream: &TcpStream| stream.try_clone().unwrap();
                for (mut from, mut into) in [(copy(&near), copy(&far)), (copy(&far), copy(&near))] {
                    thread::spawn(move || {
                        drop(std::io::copy(&mut from, &mut into));
                        drop(into.shutdown(Shutdown::Both));
                    });
                }
                all.lock().unwrap().extend([near, far]);
            }
        });
        Self { addr, open }
    }

    fn cut(&self) {
        self.open
            .lock()
            .unwrap()
            .drain(..)
            .for_each(|stream| drop(stream.shutdown(Shutdown::Both)));
    }
}

#[test]
fn a_lost_connection_misses_nothing_and_a_restart_shows_as_a_gap() {
    let ((mut server, mut user), receiver) = (Server::with_user(DEV_UNLIMITED), Receiver::start());
    let cue = cue(&user, "a", &receiver, 1);
    let relay = Relay::to(server.addr());
    let home = ClientHome::new()
        .env("CUED_URL", format!("http://{}", relay.addr))
        .env("CUED_API_KEY", user.key());
    let mut ids = LiveCommand::following(&home, &["tail", "-q"]);
    let mut events = LiveCommand::following(&home, &["tail", "--json"]);
    for _ in 0..2 {
        let mut runs = BTreeSet::from([user.fire(&cue)]);
        relay.cut();
        // They end before the command is back, most likely.
        runs.extend([user.fire(&cue), user.fire(&cue)]);
        let shown = ids.lines(3);
        assert_eq!(shown.into_iter().collect::<BTreeSet<_>>(), runs, "each is shown once");
        assert_eq!(
            events.lines(3).iter().filter(|line| line.contains("execution.succeeded")).count(),
            3
        );
        ids.wait_for_note("reconnected");
    }
    server.kill();
    server.restart_in_place();
    // A client that has no connection to the old process.
    user = user.at(server.addr());
    ids.wait_for_note("gap: some events were missed (restart)");
    let gap =
        until("the gap", || Some(events.line()).filter(|line| !line.contains("server.state")));
    let gap: Value = serde_json::from_str(&gap).unwrap();
    assert_eq!((&gap["event"], &gap["data"]["reason"]), (&json!("reset"), &json!("restart")));
    let run = user.fire(&cue);
    assert_eq!(ids.line(), run);
    ids.signal("-INT");
    assert_eq!(ids.end(), (Some(130), vec![]), "nothing is shown twice");
}

#[test]
fn it_ends_by_a_signal_between_two_lines_and_when_nobody_reads() {
    let ((server, user), receiver) = (Server::with_user(DEV_UNLIMITED), Receiver::start());
    let cue = cue(&user, "a", &receiver, 1);
    let home = ClientHome::signed_in(&server, &user);
    for (name, code) in [("-INT", 130), ("-TERM", 143)] {
        let mut tail = LiveCommand::following(&home, &["tail", "--types", "execution"]);
        user.fire(&cue);
        tail.line();
        tail.signal(name);
        let (ended, rest) = tail.end();
        assert_eq!(ended, Some(code));
        assert!(rest.iter().all(|line| !line.starts_with("broken")), "{rest:?}");
    }
    let mut command = home.command(&["tail", "--verbose"]);
    let mut child = Process(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap());
    let mut notes = BufReader::new(child.0.stderr.take().unwrap()).lines();
    assert!(notes.any(|note| note.unwrap().contains("/v1/events")));
    let stdout = child.0.stdout.take().unwrap();
    drop(stdout);
    // The end comes without a further event.
    assert_eq!(until("tail ends", || child.0.try_wait().unwrap()).code(), Some(0));
}

#[test]
fn what_prevents_the_first_connection_is_told_at_once() {
    let (server, user) = Server::with_user(DEV_UNLIMITED);
    let home = ClientHome::signed_in(&server, &user);
    assert_eq!(ClientHome::without_server().json_error(&["tail"], 1)["code"], "unreachable");
    let stranger = ClientHome::new().env("CUED_URL", server.url());
    assert_eq!(stranger.json_error(&["tail"], 4)["code"], "not_signed_in");
    let stranger = stranger.env("CUED_API_KEY", "cue_sk_unknown");
    assert_eq!(stranger.json_error(&["tail"], 4)["code"], "invalid_api_key");
    let open: Vec<LiveCommand> = (0..5).map(|_| LiveCommand::following(&home, &["tail"])).collect();
    assert_eq!(home.json_error(&["tail"], 6)["code"], "too_many_streams");
    drop(open);
}

#[test]
fn a_revoked_key_ends_it() {
    let ((mut server, user), receiver) = (Server::with_user(DEV_UNLIMITED), Receiver::start());
    let cue = cue(&user, "a", &receiver, 1);
    let mut tail = LiveCommand::following(&ClientHome::signed_in(&server, &user), &["tail"]);
    user.fire(&cue);
    tail.line();
    server.kill();
    server.sqlite().execute("DELETE FROM api_keys", []).unwrap();
    server.restart_in_place();
    assert_eq!(tail.end().0, Some(4), "{}", tail.stderr);
}
