//! `cued sink`.

use std::fs;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};

use cued::domain::webhook::signature::{SigningSecrets, signature_headers};
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::support::client::Connection;
use crate::support::client_command::ClientHome;
use crate::support::server::{DEV_UNLIMITED, HANG_TIMEOUT, Server, bounded, signal};
use crate::support::sink::Sink;

const SECRET: &str = "whsec_0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
const ID: &str = "0190a5c0-0000-7000-8000-000000000001";

/// The headers of a delivery that is signed `age` seconds ago.
fn signed(secret: &str, age: i64, body: &str) -> Vec<(&'static str, String)> {
    let at = Timestamp::now().as_second() - age;
    let secrets = SigningSecrets { current: secret, previous: None };
    let mut headers = signature_headers(secrets, ID, at, body.as_bytes()).to_vec();
    headers.extend([("X-CueAPI-Execution-Id", ID.to_owned()), ("X-CueAPI-Attempt", "2".to_owned())]);
    headers
}

fn with_secret() -> ClientHome {
    ClientHome::new().env("CUED_WEBHOOK_SECRET", SECRET)
}

#[test]
fn a_delivery_is_a_line_and_its_body() {
    let mut sink = Sink::start(&with_secret(), &[]);
    assert_eq!(sink.note(), "signatures are checked with the secret of CUED_WEBHOOK_SECRET");
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
    let standard: Vec<_> =
        signed("whsec_AAAA", 0, "{}").into_iter().filter(|(name, _)| name.starts_with("webhook-")).collect();
    assert_eq!(reason(&standard), "not verified: wrong webhook-signature");
    let old = reason(&signed(SECRET, 400, "{}"));
    assert!(old.starts_with("not verified: timestamp too old, 40"), "{old}");
    let mut broken = signed(SECRET, 0, "{}");
    broken[0].1 = "soon".to_owned();
    assert_eq!(reason(&broken), "not verified: X-CueAPI-Timestamp is no time");
    let mut none = Sink::alone(&["--no-body"]);
    assert!(none.note().starts_with("signatures are not checked yet: nobody is signed in;"));
    none.post(&signed(SECRET, 0, "{}"), "{}");
    assert!(none.line().contains("  not verified: no secret given  "));
}

#[test]
fn a_secret_can_come_from_a_file_or_standard_input() {
    let home = ClientHome::new();
    let file = home.folder().join("secret");
    fs::write(&file, format!("{SECRET}\n")).unwrap();
    let mut sink = Sink::start(&home, &["--secret", &format!("@{}", file.display()), "--no-body"]);
    assert_eq!(sink.note(), "signatures are checked with the secret of --secret");
    sink.post(&signed(SECRET, 0, "{}"), "{}");
    assert!(sink.line().contains("  verified  "));
    let error = home.fails(&["sink", "--secret", "-"], 2);
    assert!(error.contains("the secret is empty"), "{error}");
    let error = home.json_error(&["sink", "--secret", "@none"], 2);
    assert!(error["message"].as_str().unwrap().contains("cannot read none"), "{error}");
}

#[test]
fn the_answers_follow_the_script_and_its_last_step_repeats() {
    let mut sink = Sink::alone(&["--script", "500,429:5,204", "--no-body", "--exit-after", "4"]);
    let answers = [0; 4].map(|_| sink.post(&[], "{}"));
    assert_eq!(answers.each_ref().map(|it| it.status), [500, 429, 204, 204]);
    let waits = answers.each_ref().map(|it| it.header("retry-after"));
    assert_eq!(waits, [None, Some("5"), None, None]);
    let lines = [0; 3].map(|_| sink.line());
    assert!(lines[0].ends_with("→ 500") && lines[1].ends_with("→ 429, Retry-After 5 s"), "{lines:?}");
    let (code, rest, notes) = sink.end();
    assert_eq!((code, rest.lines().count()), (Some(0), 1));
    assert!(notes.ends_with("4 deliveries, 0 verified\n"), "{notes}");
}

#[test]
fn a_timeout_lasts_until_the_sender_gives_up() {
    let mut sink = Sink::alone(&["--script", "timeout,200", "--no-body", "--exit-after", "22"]);
    let mut waiting = sink.send(&[], "{}");
    assert!(sink.line().ends_with("→ no answer"));
    // Others are answered meanwhile, and the sink does not end: one of its deliveries has not.
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
fn a_script_that_cannot_be_read_is_wrong_usage() {
    for script in ["500,,200", "OK", "199", "429:soon"] {
        let error = ClientHome::new().fails(&["sink", "--script", script], 2);
        assert!(error.contains("500,timeout,429:5,200"), "{error}");
    }
}

#[test]
fn a_port_in_use_is_told_with_a_way_out() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = taken.local_addr().unwrap().to_string();
    let error = ClientHome::new().fails(&["sink", "--listen", &addr], 1);
    assert!(error.contains(&format!("cannot listen on {addr}")) && error.contains("127.0.0.1:0"), "{error}");
}

#[test]
fn a_request_with_too_large_a_body_or_head_is_refused_and_takes_no_step() {
    let mut sink = Sink::alone(&["--json", "--no-body", "--exit-after", "1"]);
    sink.note();
    let mut connection = Connection::open(sink.addr).unwrap();
    connection.stream().write_all(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 8388609\r\n\r\n").unwrap();
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
    let mut wide = Sink::start(&with_secret(), &["--output=wide"]);
    wide.post(&signed(SECRET, 0, "{}"), "{}");
    assert!(wide.line().contains("  verified  "));
    assert_eq!([wide.line(), wide.line()], ["  host: a", "  content-length: 2"]);
}

#[test]
fn a_signal_ends_a_sink_whose_reader_does_not_read() {
    let mut sink = Sink::alone(&["--json"]);
    let large = format!("\"{}\"", "a".repeat(3 << 20));
    let _waiting = sink.send(&[], &large);
    // It prints now, and cannot go on.
    sink.stdout.read_exact(&mut [0]).unwrap();
    signal("-TERM", sink.child.0.id());
    let code = bounded("the sink ends", move || sink.child.0.wait().unwrap().code());
    assert_eq!(code, Some(0));
}

#[test]
fn the_end_of_the_reader_ends_the_sink() {
    let Sink { mut child, addr, stdout, stderr } = Sink::alone(&[]);
    drop(stdout);
    // Its delivery is not printed, so it has no answer.
    let mut stream = TcpStream::connect(addr).unwrap();
    stream.set_read_timeout(Some(HANG_TIMEOUT)).unwrap();
    stream.write_all(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\n{}").unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    assert_eq!(String::from_utf8_lossy(&answer), "");
    let code = bounded("the sink ends", move || child.0.wait().unwrap().code());
    assert_eq!(code, Some(0));
    drop(stderr);
}

#[test]
fn the_secret_of_the_account_is_found_also_after_the_start() {
    let server = Server::start(DEV_UNLIMITED);
    let user = server.user();
    let home = ClientHome::new();
    let mut early = Sink::start(&home, &["--no-body"]);
    assert!(early.note().contains("nobody is signed in"));
    fs::create_dir_all(home.credentials().parent().unwrap()).unwrap();
    let profile = json!({"url": server.url(), "api_key": user.key()});
    let credentials = json!({"current": "default", "profiles": {"default": profile}});
    write_private(&home, &credentials.to_string());
    let mut signed_in = Sink::start(&ClientHome::signed_in(&server, &user), &["--no-body"]);
    let origin = format!("signatures are checked with the secrets of your account at {}", server.url());
    assert_eq!(signed_in.note(), origin);
    for sink in [&mut early, &mut signed_in] {
        let cue = user.create(&json!({
            "name": sink.addr.to_string(),
            "schedule": {"type": "once", "at": "2099-01-01T00:00:00Z"},
            "callback": {"url": sink.url()},
            "payload": {"hello": "world"},
        }));
        let fire = format!("/v1/cues/{}/fire", cue["id"].as_str().unwrap());
        let fired = user.post(&fire, &json!({})).expect(200);
        let (line, id) = (sink.line(), fired["execution_id"].as_str().unwrap());
        assert!(line.ends_with(&format!("POST /hook  {id}  attempt 1  18 B  verified  → 200")), "{line}");
    }
    assert_eq!(early.note(), origin);
}

#[test]
fn a_server_that_cannot_be_reached_does_not_keep_a_sink_from_starting() {
    let mut sink = Sink::start(&ClientHome::without_server(), &["--no-body"]);
    let note = sink.note();
    assert!(note.contains("not checked yet: cannot reach") && !note.contains("cue_sk_none"), "{note}");
    sink.post(&[], "{}");
    assert!(sink.line().contains("no signature header"));
    let shown = ClientHome::without_server().ok(&["sink", "--curl"]);
    assert!(shown.starts_with("curl http://127.0.0.1:1/v1/auth/webhook-secret "), "{shown}");
}

fn write_private(home: &ClientHome, text: &str) {
    use std::os::unix::fs::OpenOptionsExt as _;
    let mut file =
        fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(home.credentials());
    file.as_mut().unwrap().write_all(text.as_bytes()).unwrap();
}
