//! Callers that want more than their share, against the program with its default limits: another caller is served all
//! the same, and memory stays bounded. Times are bounded widely: they show that nobody waits for a time-out.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use serde_json::json;

use crate::support::client::Client;
use crate::support::server::{DEV_UNLIMITED, Server, peak_mb, resident_mb, until_within};

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

/// `count` connections from an address of this machine, which have sent `request`.
fn open_from(source: &str, addr: SocketAddr, count: usize, request: &[u8]) -> Vec<TcpStream> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build().unwrap();
    let connect = |_| {
        let stream = runtime.block_on(async {
            let socket = tokio::net::TcpSocket::new_v4().unwrap();
            socket.bind(SocketAddr::new(source.parse().unwrap(), 0)).unwrap();
            socket.connect(addr).await.unwrap().into_std().unwrap()
        });
        stream.set_nonblocking(false).unwrap();
        // The server may have closed it already.
        drop((&stream).write_all(request));
        stream
    };
    (0..count).map(connect).collect()
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

/// A connection of HTTP/2 that takes no body of a response, and 128 requests.
fn http2_requests() -> Vec<u8> {
    let frame = |kind: u8, flags: u8, stream: u8, payload: &[u8]| {
        [&[0, 0, u8::try_from(payload.len()).unwrap(), kind, flags, 0, 0, 0, stream], payload].concat()
    };
    let literal = |name: &str, value: &str| {
        let length = |text: &str| u8::try_from(text.len()).unwrap();
        [&[0, length(name)], name.as_bytes(), &[length(value)], value.as_bytes()].concat()
    };
    let head = [(":method", "GET"), (":scheme", "http"), (":authority", "localhost"), (":path", "/status")];
    let head: Vec<u8> = head.iter().flat_map(|(name, value)| literal(name, value)).collect();
    let requests = (0..128).flat_map(|number: u8| frame(1, 5, number.wrapping_mul(2).wrapping_add(1), &head));
    let settings = frame(4, 0, 0, &[0, 4, 0, 0, 0, 0]);
    [b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec(), settings, requests.collect()].concat()
}

#[test]
fn http2_requests_whose_responses_are_not_read_hold_only_the_share_of_one_address() {
    let server = Server::start(DEV_UNLIMITED);
    let user = server.user();
    let before = resident_mb(server.pid());
    let crowd = open_from("127.0.0.9", server.addr(), 400, &http2_requests());
    assert_served(&user);
    // Without a bound: 300 MB, and they stayed after the end of the connections.
    let peak = peak_mb(server.pid());
    eprintln!("{before} MB before, {peak} MB at most");
    assert!(peak < before + 60, "{before} MB before, {peak} MB at most");
    drop(crowd);
}

#[test]
fn memory_goes_back_to_the_system_after_a_crowd_of_connections() {
    let server = Server::start(DEV_UNLIMITED);
    let user = server.user();
    let before = resident_mb(server.pid());
    let head = [b"GET /status HTTP/1.1\r\nHost: localhost\r\nX-A: ", &[b'a'; 15_500][..]].concat();
    let crowd: Vec<_> = (1..=4)
        .flat_map(|number| open_from(&format!("127.0.1.{number}"), server.addr(), 500, &head))
        .collect();
    assert_served(&user);
    let during = resident_mb(server.pid());
    drop(crowd);
    eprintln!("{before} MB before, {during} MB during the crowd");
    assert!(during > before + 20, "{before} MB before, {during} MB during the crowd");
    until_within("memory goes back", Duration::from_secs(120), || {
        (resident_mb(server.pid()) <= before + 8).then_some(())
    });
}
