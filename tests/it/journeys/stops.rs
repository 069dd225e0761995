//! Starts and stops: graceful, sudden and refused.

use std::io::BufReader;

use crate::journeys::{at, id, webhook};
use crate::support::*;

const START: &str = "2026-01-05T00:00:00Z";

/// A server whose clock moves, a delivery that hangs, its cue, and whether the move has had an answer.
fn delivering() -> (Server, Client, Receiver, Value, thread::JoinHandle<bool>) {
    let ((server, user), receiver) = (Server::with_clock_and_user(START), Receiver::start());
    receiver.react(Reaction::Hang);
    let cue = user.create(&webhook(&receiver, at("2026-01-05T01:00:00Z")));
    let (moving, hour) = (user.clone(), json!({"advance": "PT1H"}));
    let moved = thread::spawn(move || moving.try_post("/v1/test/clock", &hour).is_ok());
    receiver.wait_hanging(1);
    (server, user, receiver, cue, moved)
}

#[test]
fn a_graceful_stop_waits_for_the_running_delivery_and_leaves_one_file() {
    let (mut server, user, receiver, cue, moved) = delivering();
    server.terminate();
    until("the port is closed", || TcpStream::connect(server.addr()).err());
    assert_eq!(receiver.hanging(), 1, "the delivery goes on");
    receiver.release();
    assert_eq!(server.wait_for_exit(), Some(0), "{}", server.log());
    moved.join().unwrap();
    let wal = server.db().with_extension("db-wal");
    // The write-ahead log is back in the file.
    assert!(fs::metadata(&wal).map_or(0, |it| it.len()) == 0);

    let user = user.at(server.restart_at("2026-01-05T02:00:00Z"));
    user.settle();
    let execution = user.only_execution(id(&cue));
    assert_eq!((&execution["status"], &execution["attempts"]), (&json!("success"), &json!(1)));
    assert_eq!(receiver.count(), 1, "it is not delivered again");
}

#[test]
fn a_stop_does_not_wait_for_a_moving_test_clock() {
    let (mut server, user) = Server::with_clock_and_user(START);
    let cue = user.create(&worker_cue("w", "* * * * *"));
    let moving = user.clone();
    // Years of minutes, longer than any test waits.
    let moved =
        thread::spawn(move || moving.try_post("/v1/test/clock", &json!({"advance": "P9Y"})));
    until("the clock is moving", || (user.cue(&cue)["run_count"] != json!(0)).then_some(()));
    assert_eq!(server.stop(), Some(0), "{}", server.log());
    assert_eq!(moved.join().unwrap().unwrap().status, 503);
}

#[test]
fn a_delivery_interrupted_by_a_crash_is_repeated() {
    let (mut server, user, receiver, cue, moved) = delivering();
    server.kill();
    assert!(!moved.join().unwrap());
    receiver.release();
    let user = user.at(server.restart_at("2026-01-05T01:00:01Z"));
    user.settle();
    assert_eq!(user.cue(&cue)["status"], "completed");
    let execution = user.only_execution(id(&cue));
    let deliveries = receiver.deliveries();
    assert_eq!(deliveries.len(), 2);
    assert!(deliveries.iter().all(|it| it.execution_id == id(&execution)));
    // Why the receiver got it twice.
    let path = format!("/v1/executions/{}/attempts", id(&execution));
    let list = user.read(&path);
    let listed = list.list("attempts").iter();
    let listed: Vec<Value> =
        listed.map(|it| json!([it["attempt"], it["result"], it["started_at"]])).collect();
    let [cut, repeated] = ["2026-01-05T01:00:00Z", "2026-01-05T01:00:01Z"];
    assert_eq!(json!(listed), json!([[1, "cut", cut], [1, "success", repeated]]));
    assert_eq!(receiver.overlaps(), Vec::<String>::new());
}

#[test]
fn a_second_server_on_the_same_file_is_refused_and_shown_the_owner() {
    let server = Server::start(DEV_UNLIMITED);
    let refused = start_on(&server.db(), &[]);
    assert!(refused.contains(&server.pid().to_string()), "{refused}");
    server.user(); // the first server continues
}

#[test]
fn an_ephemeral_server_leaves_no_file_behind() {
    let dir = TempDir::new().unwrap();
    let mut command = cued(&["serve", "--ephemeral"]);
    let mut server = Process(
        command
            .env("TMPDIR", dir.path())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap(),
    );
    let addr = read_addr(&mut BufReader::new(server.0.stdout.take().unwrap())).unwrap();
    Client::new(addr).register("someone@example.com");
    assert!(fs::read_dir(dir.path()).unwrap().count() > 0, "the file is where temporary files are");
    signal("-INT", server.0.id());
    assert_eq!(server.0.wait().unwrap().code(), Some(0));
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
}

/// Starts a server that must exit with code 1; returns its error message.
fn start_on(db: &Path, flags: &[&str]) -> String {
    let fixed = ["serve", "--listen", "127.0.0.1:0", "--db", db.to_str().unwrap()];
    let output = run(&[&fixed, flags].concat());
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!((output.status.code(), output.stdout.as_slice()), (Some(1), &b""[..]), "{stderr}");
    assert!(!stderr.is_empty());
    stderr
}
