//! `cued tail`: lines while things happen.

use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::process::Stdio;
use std::sync::{Arc, Mutex};
use std::thread;

use serde_json::{Value, json};

use crate::support::client::Client;
use crate::support::client_command::ClientHome;
use crate::support::live_command::LiveCommand;
use crate::support::receiver::{Reaction, Receiver};
use crate::support::server::{DEV_UNLIMITED, Process, Server, until};

const START: &str = "2030-01-01T00:00:00Z";

/// A cue that fires only by request, with attempts a minute apart.
pub fn cue(user: &Client, name: &str, receiver: &Receiver, attempts: u32) -> String {
    let cue = json!({
        "name": name,
        "schedule": {"type": "recurring", "cron": "0 0 1 1 *"},
        "callback": {"url": receiver.url()},
        "retry": {"max_attempts": attempts, "backoff_minutes": [1]},
    });
    user.create(&cue)["id"].as_str().unwrap().to_owned()
}

/// Fires a cue; returns the id of the run.
pub fn fire(user: &Client, cue: &str) -> String {
    let fired = user.post(&format!("/v1/cues/{cue}/fire"), &json!({})).expect(200);
    fired["id"].as_str().unwrap().to_owned()
}

fn words(line: &str) -> Vec<&str> {
    line.split_whitespace().collect()
}

#[test]
fn each_result_is_a_line_with_the_id_of_its_run() {
    let (server, receiver) = (Server::with_test_clock(START), Receiver::start());
    let user = server.user();
    let (good, bad) = (cue(&user, "nightly-backup", &receiver, 4), cue(&user, "sync\u{1b}[2J", &receiver, 2));
    let mut tail = LiveCommand::following(&ClientHome::signed_in(&server, &user), &["tail"]);
    let run = fire(&user, &good);
    user.settle();
    assert_eq!(tail.line(), "2030-01-01", "the date, because it is not that of today");
    let line = tail.line();
    assert!(line.starts_with("00:00:00.000  ●  nightly-backup    success      200  "), "{line}");
    assert!(line.ends_with(&format!("  {run}  +0 ms")), "{line}");
    receiver.react(Reaction::Status(503));
    let run = fire(&user, &bad);
    user.settle();
    let line = tail.line();
    assert!(line.starts_with("00:00:00.000  ↻  sync\u{fffd}[2J          attempt 1/2  503  "), "{line}");
    assert!(line.contains(&format!("  {run}  next in 60.0 s  \"the callback returned 503\"")), "{line}");
    user.advance("PT1M");
    let line = tail.line();
    assert_eq!(words(&line)[..2], ["00:01:00.000", "✕"], "{line}");
    assert!(line.contains("failed 2/2   503") && line.contains(&run), "{line}");
}

#[test]
fn other_forms_are_json_or_ids_and_nothing_else() {
    let (server, receiver) = (Server::with_test_clock(START), Receiver::start());
    let user = server.user();
    let cue = cue(&user, "a", &receiver, 1);
    let home = ClientHome::signed_in(&server, &user);
    let forms = [["tail", "--json"], ["tail", "-q"], ["tail", "--output=yaml"]];
    let [mut json, mut ids, mut yaml] = forms.map(|form| LiveCommand::following(&home, &form));
    let run = fire(&user, &cue);
    let event: Value = serde_json::from_str(&json.line()).unwrap();
    assert_eq!(event["event"], "execution.succeeded");
    assert_eq!(event["data"]["execution_id"], json!(run));
    assert!(event["id"].as_str().unwrap().contains('-'));
    assert_eq!(ids.line(), run);
    assert_eq!(yaml.line(), "---");
    until("the type", || Some(yaml.line()).filter(|line| line == "event: execution.succeeded"));
}

#[test]
fn failures_alone_with_the_bodies_of_their_responses_in_ascii() {
    let (server, receiver) = (Server::with_test_clock(START), Receiver::start());
    let user = server.user();
    let (first, second) = (cue(&user, "first", &receiver, 1), cue(&user, "second", &receiver, 1));
    let home = ClientHome::signed_in(&server, &user);
    let mut all = LiveCommand::following(&home, &["tail", "--failed", "--body", "--json"]);
    let mut one = home.command(&["tail", "--failed", "--body", "--cue", "second", "--verbose"]);
    one.env("LANG", "C.UTF-8").env("LC_ALL", "C").stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut one = LiveCommand::of(one.spawn().unwrap());
    one.wait_for_note("/v1/events");
    fire(&user, &first);
    user.settle();
    receiver.react(Reaction::Full(500, vec![], "no \u{1b}[2Jspace\nleft\n".to_owned()));
    fire(&user, &first);
    fire(&user, &second);
    let event: Value = serde_json::from_str(&all.line()).unwrap();
    assert_eq!(event["event"], "execution.failed", "the success is no failure");
    assert_eq!(event["response_body"], "no \u{1b}[2Jspace\nleft\n");
    assert_eq!(one.line(), "2030-01-01");
    let line = one.line();
    assert!(line.starts_with("00:00:00.000  x  second            failed 1/1   500  "), "{line}");
    assert_eq!(one.lines(2), ["                 no \u{fffd}[2Jspace", "                 left"]);
}

#[test]
fn the_past_comes_first_in_its_order_and_is_not_repeated() {
    let (server, receiver) = (Server::with_test_clock(START), Receiver::start());
    let user = server.user();
    let cue = cue(&user, "a", &receiver, 2);
    fire(&user, &cue);
    user.advance("PT1H");
    receiver.react(Reaction::Status(500));
    let failed = fire(&user, &cue);
    user.advance("PT30S");
    receiver.react(Reaction::Status(200));
    let good = fire(&user, &cue);
    user.advance("PT30S");
    user.settle();
    // Later than the retry: events of one millisecond have no order in a list.
    user.advance("PT1S");
    let home = ClientHome::signed_in(&server, &user);
    let mut tail = LiveCommand::following(&home, &["tail", "--since", "10m"]);
    let next = fire(&user, &cue);
    let lines = tail.lines(3);
    assert_eq!(lines[0], "2030-01-01");
    for (line, (begin, run)) in lines[1..].iter().zip([("01:00:30", &good), ("01:01:00", &failed)]) {
        assert!(line.starts_with(begin) && line.contains("success") && line.contains(run), "{lines:?}");
    }
    // The list or the stream has the end of the next run, or both.
    let line = tail.line();
    assert!(line.contains("success") && line.contains(&next), "{line}");
    fire(&user, &cue);
    assert!(!tail.line().contains(&next));
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
        self.open.lock().unwrap().drain(..).for_each(|stream| drop(stream.shutdown(Shutdown::Both)));
    }
}

#[test]
fn a_lost_connection_misses_nothing_and_a_restart_shows_as_a_gap() {
    let (mut server, receiver) = (Server::start(DEV_UNLIMITED), Receiver::start());
    let mut user = server.user();
    let cue = cue(&user, "a", &receiver, 1);
    let relay = Relay::to(server.addr());
    let home =
        ClientHome::new().env("CUED_URL", format!("http://{}", relay.addr)).env("CUED_API_KEY", user.key());
    let mut ids = LiveCommand::following(&home, &["tail", "-q"]);
    let mut events = LiveCommand::following(&home, &["tail", "--json"]);
    for _ in 0..2 {
        let mut runs = BTreeSet::from([fire(&user, &cue)]);
        relay.cut();
        // They end before the command is back, most likely.
        runs.extend([fire(&user, &cue), fire(&user, &cue)]);
        let shown = ids.lines(3);
        assert_eq!(shown.into_iter().collect::<BTreeSet<_>>(), runs, "each is shown once");
        assert_eq!(events.lines(3).iter().filter(|line| line.contains("execution.succeeded")).count(), 3);
        ids.wait_for_note("reconnected");
    }
    server.kill();
    server.restart_in_place();
    // A client that has no connection to the old process.
    user = user.at(server.addr());
    ids.wait_for_note("gap: some events were missed (restart)");
    let gap = until("the gap", || Some(events.line()).filter(|line| !line.contains("server.state")));
    let gap: Value = serde_json::from_str(&gap).unwrap();
    assert_eq!((&gap["event"], &gap["data"]["reason"]), (&json!("reset"), &json!("restart")));
    let run = fire(&user, &cue);
    assert_eq!(ids.line(), run);
    ids.signal("-INT");
    assert_eq!(ids.end(), (Some(130), vec![]), "nothing is shown twice");
}

#[test]
fn it_ends_by_a_signal_between_two_lines_and_when_nobody_reads() {
    let (server, receiver) = (Server::start(DEV_UNLIMITED), Receiver::start());
    let user = server.user();
    let cue = cue(&user, "a", &receiver, 1);
    let home = ClientHome::signed_in(&server, &user);
    for (name, code) in [("-INT", 130), ("-TERM", 143)] {
        let mut tail = LiveCommand::following(&home, &["tail", "--types", "execution"]);
        fire(&user, &cue);
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
    assert_eq!(until("tail ends", || child.0.try_wait().unwrap()).code(), Some(0), "without a further event");
}

#[test]
fn what_prevents_the_first_connection_is_told_at_once() {
    let server = Server::start(DEV_UNLIMITED);
    let user = server.user();
    let home = ClientHome::signed_in(&server, &user);
    assert_eq!(ClientHome::without_server().json_error(&["tail"], 1)["code"], "unreachable");
    let unknown = ClientHome::new().env("CUED_URL", server.url()).env("CUED_API_KEY", "cue_sk_unknown");
    assert_eq!(unknown.json_error(&["tail"], 4)["code"], "invalid_api_key");
    assert_eq!(
        ClientHome::new().env("CUED_URL", server.url()).json_error(&["tail"], 4)["code"],
        "not_signed_in"
    );
    home.fails(&["tail", "--cue", "nothing"], 3);
    home.fails(&["tail", "--cue", "cue_aaaaaaaaaaaa"], 3);
    assert!(home.fails(&["tail", "--types", "nothing"], 5).contains("execution.failed"));
    home.fails(&["tail", "--since", "soon"], 2);
    let curl = home.ok(&["tail", "--curl"]);
    assert!(curl.starts_with("curl --no-buffer") && !curl.contains(user.key()), "{curl}");
    let open: Vec<LiveCommand> = (0..5).map(|_| LiveCommand::following(&home, &["tail"])).collect();
    assert_eq!(home.json_error(&["tail"], 6)["code"], "too_many_streams");
    drop(open);
}

#[test]
fn a_revoked_key_ends_it() {
    let (mut server, receiver) = (Server::start(DEV_UNLIMITED), Receiver::start());
    let user = server.user();
    let cue = cue(&user, "a", &receiver, 1);
    let mut tail = LiveCommand::following(&ClientHome::signed_in(&server, &user), &["tail"]);
    fire(&user, &cue);
    tail.line();
    server.kill();
    server.sqlite().execute("DELETE FROM api_keys", []).unwrap();
    server.restart_in_place();
    assert_eq!(tail.end().0, Some(4), "{}", tail.stderr);
}
