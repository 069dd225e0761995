//! The memory of requests and responses under way, and the shares of callers.

use std::io::{Read, Write};

use crate::http::wire::http1::assert_headers;
use crate::http::wire::test_routes::{HELD, LARGE, TestServer, get, post};
use crate::support::*;

/// Another client than that of `TestServer::connect`, which is 127.0.0.1.
const OTHER: &str = "127.0.0.2";

/// A timeout that no test reaches.
const LONG: Duration = Duration::from_secs(300);

#[test]
fn a_request_that_takes_no_body_is_refused_at_once_with_one() {
    let server = TestServer::start();
    let mut connection = server.connect();
    // Without a body it is served, also with a declared length of 0.
    for framing in ["", "Content-Length: 0\r\n"] {
        assert_eq!(
            connection.ask(&format!("GET /items/a HTTP/1.1\r\nHost: x\r\n{framing}\r\n")).status,
            200
        );
    }
    for framing in ["Content-Length: 2", "Transfer-Encoding: chunked"] {
        for line in ["GET /items/a", "HEAD /items/a", "GET /free/a", "GET /poll"] {
            // The body never comes.
            let mut connection = server.connect();
            connection.send(&format!("{line} HTTP/1.1\r\nHost: x\r\n{framing}\r\n\r\n"));
            let is_head = line.starts_with("HEAD");
            let response =
                if is_head { connection.response_without_body() } else { connection.response() };
            assert_eq!(response.status, 400, "{line} {framing}");
            assert_eq!(response.header("connection"), Some("close"), "{line} {framing}");
            if !is_head {
                assert_eq!(response.code(), "invalid_request");
            }
            connection.stream().shutdown(std::net::Shutdown::Write).unwrap();
            assert_eq!(connection.rest(), "");
        }
    }
}

#[test]
fn a_body_without_a_key_has_at_most_64_kib() {
    let server = TestServer::start();
    assert_eq!(server.request(&post("/keyless", &"x".repeat(65_536))).json()["length"], 65_536);
    let response = server.request(&post("/keyless", &"x".repeat(65_537)));
    response.expect_error(413, "payload_too_large");
    // Before the body, which never comes.
    let mut connection = server.connect();
    assert_eq!(
        connection.ask("POST /keyless HTTP/1.1\r\nHost: x\r\nContent-Length: 65537\r\n\r\n").status,
        413
    );
}

#[test]
fn a_request_without_exactly_one_host_is_refused_and_closed() {
    let server = TestServer::start();
    for hosts in ["", "Host: x\r\nHost: x\r\n", "Host: x\r\nHost: y\r\n"] {
        for line in ["GET /items/a", "GET /free/a", "POST /echo", "GET /nowhere"] {
            let mut connection = server.connect();
            let response = connection.ask(&format!("{line} HTTP/1.1\r\n{hosts}\r\n"));
            assert_eq!(response.status, 400, "{line} {hosts}");
            assert_eq!(response.code().as_str(), "bad_request", "{line} {hosts}");
            assert_eq!(response.header("connection"), Some("close"));
            assert_headers(&response);
            assert_eq!(connection.rest(), "");
        }
    }
    // HTTP/1.0 has no such header.
    assert_eq!(server.request("GET /items/a HTTP/1.0\r\n\r\n").status, 200);
}

/// A server with so many bytes for bodies, which closes no connection while the test runs.
fn with_room(max_buffered: usize) -> TestServer {
    TestServer::with(|limits| {
        (limits.header_time, limits.idle_time) = (LONG, LONG);
        (limits.request_time, limits.response_time) = (LONG, LONG);
        (limits.max_buffered, limits.drain_time) = (max_buffered, Duration::ZERO);
    })
}

/// Sends a head that declares 1 MB, and `bytes` of the body.
fn begin_body(connection: &mut Connection, bytes: usize) {
    let head = "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n";
    connection.send(&[head, &"x".repeat(bytes)].concat());
}

#[test]
fn unfinished_bodies_of_one_client_leave_room_for_others() {
    // A quarter is 256 KiB.
    let server = with_room(1 << 20);
    let mut open: Vec<_> = (0..2).map(|_| server.connect()).collect();
    begin_body(&mut open[0], 0);
    // What is only declared holds nothing.
    assert_eq!(server.request(&post("/echo", &"x".repeat(200_000))).status, 200);
    open.push(server.connect());
    for connection in &mut open[1..] {
        begin_body(connection, 200_000);
    }
    let refused =
        until("one of the two is refused", || open.iter().position(Connection::has_response));
    let response = open.swap_remove(refused).response();
    response.refuses_for(1, 503, "server_busy");
    assert_eq!(response.header("connection"), Some("close"));
    let mut other = server.connect_from(OTHER);
    assert_eq!(
        other.ask(&post("/echo", &"x".repeat(200_000))).status,
        200,
        "another client has its own quarter"
    );
    assert_eq!(server.request(&get("/items/a")).status, 200, "a small response needs no room");
    drop(open);
    until_true("the bytes are returned", || {
        server.request(&post("/echo", &"x".repeat(200_000))).status == 200
    });
}

#[test]
fn unfinished_bodies_of_many_clients_leave_room_for_a_newcomer() {
    let server = with_room(1 << 20);
    let mut open = Vec::new();
    // Four times as many as hold almost a quarter each. They get less and less, and the last ones an error.
    for client in 2..18 {
        for _ in 0..15 {
            let mut connection = server.connect_from(&format!("127.0.0.{client}"));
            begin_body(&mut connection, 16 << 10);
            open.push(connection);
        }
    }
    // The server has read the bodies when it answers each of these clients.
    for client in 2..18 {
        let mut connection = server.connect_from(&format!("127.0.0.{client}"));
        assert_eq!(connection.ask(&get("/items/a")).status, 200);
    }
    (0..3).for_each(|_| assert_eq!(server.request(&post("/echo", &"x".repeat(900))).status, 200));
    drop(open);
}

/// Requests a large response and reads only its first bytes.
fn begin_response(connection: &mut Connection) {
    connection.send(&get("/large"));
    let mut start = [0; 12];
    connection.stream().read_exact(&mut start).unwrap();
    assert_eq!(&start, b"HTTP/1.1 200");
}

#[test]
fn unread_responses_of_one_client_leave_room_for_others() {
    // Two large responses fit into a quarter.
    let server = with_room(9 * LARGE);
    let (mut first, mut second) = (server.connect(), server.connect());
    begin_response(&mut first);
    begin_response(&mut second);
    let response = server.request(&get("/large"));
    response.refuses_for(1, 503, "server_busy");
    let refused = server.request(&post("/large", ""));
    refused.refuses_for(1, 503, "server_busy");
    assert_eq!(server.request(&get("/items/a")).status, 200);
    let mut other = server.connect_from(OTHER);
    assert_eq!(other.ask(&get("/large")).status, 200);
    drop((first, second));
    until_true("the bytes are returned", || server.request(&get("/large")).status == 200);
}

#[test]
fn a_client_that_reads_slowly_gets_its_whole_response() {
    let limit = Duration::from_secs(3);
    let server = TestServer::with(|limits| limits.response_time = limit);
    let mut connection = server.connect();
    connection.send(&get("/large"));
    let (begun, mut read, mut part) = (Instant::now(), 0, vec![0; LARGE / 64]);
    while read < LARGE {
        let length = connection.stream().read(&mut part).unwrap();
        assert!(length > 0, "cut after {read} bytes");
        read += length;
        // The whole response takes longer than the limit.
        std::thread::park_timeout(
            Duration::from_millis(70).mul_f64(length as f64 / part.len() as f64),
        );
    }
    assert!(begun.elapsed() > limit, "{:?}", begun.elapsed());
}

#[test]
fn a_client_holds_a_part_of_the_connections() {
    let server = TestServer::with(|limits| {
        (limits.header_time, limits.drain_time) = (LONG, Duration::ZERO);
        limits.max_connections = 20;
    });
    let busy = |mut connection: Connection| {
        let before = HELD.load(Ordering::SeqCst);
        connection.send(&get("/hold"));
        until_true("the handler runs", || HELD.load(Ordering::SeqCst) > before);
        connection
    };
    let mut silent = server.connect();
    let mut held: Vec<_> = (0..15).map(|_| busy(server.connect())).collect();
    // At its part, the client's own idle connection gives way to its next one.
    held.push(busy(server.connect()));
    assert_eq!(silent.rest(), "");
    assert_eq!(server.connect().rest(), "", "closed at once, for all are busy");
    held.push(busy(server.connect_from(OTHER)));
    drop(held);
}

/// A client may use a quarter of it: the memory of 32 requests.
const MAX_BUFFERED: usize = 1 << 20;

const SETTINGS: u8 = 4;
const HEADERS: u8 = 1;

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

fn literal(name: &str, value: &str) -> Vec<u8> {
    let text = |text: &str| [&[u8::try_from(text.len()).unwrap()], text.as_bytes()].concat();
    [vec![0], text(name), text(value)].concat()
}

/// The preface, and settings with a window of 0: the peer of this connection takes no body of a response.
fn preface() -> Vec<u8> {
    [&b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"[..], &frame(SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 0])].concat()
}

/// The `number`th `GET` of a connection.
fn get_frame(number: u32, path: &str, headers: &[u8]) -> Vec<u8> {
    let pseudo = [(":method", "GET"), (":scheme", "http"), (":authority", "x"), (":path", path)];
    let pseudo: Vec<u8> = pseudo.iter().flat_map(|(name, value)| literal(name, value)).collect();
    frame(HEADERS, 5, 2 * number + 1, &[&pseudo, headers].concat())
}

fn send(connection: &mut Connection, frames: &[Vec<u8>]) {
    connection.stream().write_all(&frames.concat()).unwrap();
}

/// The next frame, by its kind and payload.
fn next_frame(connection: &mut Connection) -> (u8, Vec<u8>) {
    let mut head = [0; 9];
    connection.stream().read_exact(&mut head).unwrap();
    let mut payload = vec![0; u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize];
    connection.stream().read_exact(&mut payload).unwrap();
    (head[3], payload)
}

/// The next `count` frames of `kinds`.
fn frames_of(connection: &mut Connection, kinds: &[u8], count: usize) -> Vec<(u8, Vec<u8>)> {
    let frames = std::iter::repeat_with(|| next_frame(connection));
    frames.filter(|(kind, _)| kinds.contains(kind)).take(count).collect()
}

#[test]
fn responses_that_an_http2_client_does_not_take_hold_its_memory() {
    let server = with_room(MAX_BUFFERED);
    let mut connection = server.connect();
    let requests = |from, until| -> Vec<_> {
        (from..until).map(|number| get_frame(number, "/items/a", &[])).collect()
    };
    send(&mut connection, &[vec![preface()], requests(0, 15)].concat());
    assert_eq!(frames_of(&mut connection, &[HEADERS], 15).len(), 15);
    assert_eq!(server.request(&post("/echo", &"x".repeat(200_000))).status, 503);
    let mut other = server.connect_from(OTHER);
    assert_eq!(
        other.ask(&post("/echo", &"x".repeat(200_000))).status,
        200,
        "another client has its own quarter"
    );
    // More would be above its quarter: the connection is closed whole.
    send(&mut connection, &requests(15, 40));
    until_true("the memory is returned", || {
        server.request(&post("/echo", &"x".repeat(200_000))).status == 200
    });
}

#[test]
fn a_request_of_http2_has_at_most_100_headers() {
    let server = with_room(MAX_BUFFERED);
    let mut connection = server.connect();
    let headers = |count| literal("a", "").repeat(count);
    send(
        &mut connection,
        &[
            preface(),
            get_frame(0, "/items/a", &headers(100)),
            get_frame(1, "/items/a", &headers(101)),
        ],
    );
    let answers = frames_of(&mut connection, &[HEADERS], 2);
    // The status is the first field: 200 has an index of its own, 431 is a literal in Huffman's code.
    assert_eq!(answers.iter().filter(|(_, block)| block[0] == 0x88).count(), 1);
    assert_eq!(
        answers.iter().filter(|(_, block)| block.starts_with(&[0x48, 0x83, 105, 144, 255])).count(),
        1,
        "{answers:?}"
    );
}
