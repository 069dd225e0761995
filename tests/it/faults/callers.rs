//! Callers that want more than their share, against the program with its default limits: another caller is served all
//! the same, and memory stays bounded. Times are bounded widely: they show that nobody waits for a time-out.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use serde_json::json;

use crate::support::client::Client;
use crate::support::server::{DEV_UNLIMITED, Server, peak_mb};

/// The longest time for a request of another caller; the time-outs are 10 s and more.
const SOON: Duration = Duration::from_secs(3);

/// A list of 4 MB.
const LIST: &str = "/v1/executions/claimable";

/// Peak memory of a server under attack.
const PEAK_MB: u64 = 250;

/// A connection that has sent `request`. The server may have closed it already.
fn open(addr: SocketAddr, request: &[u8]) -> TcpStream {
    let mut stream = TcpStream::connect(addr).unwrap();
    drop(stream.write_all(request));
    stream
}

/// Creates a cue and reads the status, each on a new connection.
#[track_caller]
fn assert_served(user: &Client) {
    let begun = Instant::now();
    let daily = json!({"type": "recurring", "cron": "@daily"});
    user.clone().create(&json!({"name": "n", "transport": "worker", "schedule": daily}));
    user.with_key("none").get("/status").expect(200);
    assert!(begun.elapsed() < SOON, "served only after {:?}", begun.elapsed());
}

#[track_caller]
fn assert_bounded(server: &Server) {
    let peak = peak_mb(server.pid());
    eprintln!("{peak} MB at most");
    assert!(peak < PEAK_MB, "{peak} MB");
}

#[test]
fn bodies_that_never_come_on_free_routes_hold_no_connection() {
    let server = Server::start(&[DEV_UNLIMITED, &["--max-connections", "64"]].concat());
    let user = server.user();
    let request = b"GET /status HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n";
    let crowd: Vec<_> = (0..64).map(|_| open(server.addr(), request)).collect();
    assert_served(&user);
    drop(crowd);
}

#[test]
fn unfinished_large_bodies_of_one_account_leave_room_for_others() {
    let server = Server::start(DEV_UNLIMITED);
    let (user, greedy) = (server.user(), server.user());
    let head = format!(
        "POST /v1/cues HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {}\r\nContent-Length: 2000000\r\n\r\n",
        greedy.key()
    );
    let request = [head.as_bytes(), &vec![b' '; 1_990_000]].concat();
    let crowd: Vec<_> = (0..64).map(|_| open(server.addr(), &request)).collect();
    assert_served(&user);
    let large = json!({"name": "n", "transport": "worker", "schedule": {"type": "recurring", "cron": "@daily"},
                       "payload": {"text": "x".repeat(1_000_000)}});
    user.post("/v1/cues", &large).expect(201);
    greedy.post("/v1/cues", &large).expect_error(503, "server_busy");
    assert_bounded(&server);
    drop(crowd);
}

#[test]
fn unread_responses_of_one_account_hold_only_its_share() {
    let server = Server::start(DEV_UNLIMITED);
    let (user, greedy) = (server.user(), server.user());
    let large = json!({"name": "n", "transport": "worker", "schedule": {"type": "recurring", "cron": "@daily"},
                       "payload": {"text": "x".repeat(1_000_000)}});
    let fire = format!("/v1/cues/{}/fire", greedy.create(&large)["id"].as_str().unwrap());
    for _ in 0..4 {
        greedy.post(&fire, &json!({})).expect(200);
    }
    let request =
        format!("GET {LIST} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {}\r\n\r\n", greedy.key());
    let mut crowd: Vec<_> = (0..40).map(|_| open(server.addr(), request.as_bytes())).collect();
    // Each has the beginning of a response, and most of them an error.
    let statuses = crowd.iter_mut().map(|stream| {
        let mut start = [0; 12];
        stream.read_exact(&mut start).unwrap();
        String::from_utf8_lossy(&start[9..]).into_owned()
    });
    let statuses: Vec<_> = statuses.collect();
    assert!(statuses.iter().all(|status| status == "200" || status == "503"), "{statuses:?}");
    assert!(statuses.iter().any(|status| status == "503"), "{statuses:?}");
    assert_served(&user);
    assert_bounded(&server);
    drop(crowd);
    crate::support::server::until("the share is returned", || {
        (greedy.clone().get(LIST).status == 200).then_some(())
    });
}

#[test]
fn malformed_http2_frames_do_not_flood_the_log() {
    let server = Server::start(DEV_UNLIMITED);
    let user = server.user();
    let settings = [0, 0, 0, 4, 0, 0, 0, 0, 0];
    // A PING that acknowledges one that was never sent, of which the library warns.
    let ping = [&[0, 0, 8, 6, 1, 0, 0, 0, 0][..], &[7; 8]].concat();
    // WINDOW_UPDATE of 0, on stream 1, which is an error of the protocol.
    let update = [0, 0, 4, 8, 0, 0, 0, 0, 1, 0, 0, 0, 0];
    for frames in [ping.repeat(2_000), update.to_vec()] {
        for _ in 0..20 {
            let mut stream =
                open(server.addr(), &[&b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"[..], &settings, &frames].concat());
            stream.shutdown(std::net::Shutdown::Write).unwrap();
            // Until the server has read all of it.
            drop(stream.read_to_end(&mut Vec::new()));
        }
    }
    assert_served(&user);
    let log = server.log();
    assert!(log.lines().count() < 10, "{} lines: {:?}", log.lines().count(), log.lines().last());
}
