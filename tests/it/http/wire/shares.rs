//! The shares of one client: bodies, memory for bodies and responses, connections.

use std::io::Read;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use cued::config::HttpLimits;

use super::test_routes::{HELD, LARGE, TestServer, get, post};
use crate::http::wire::http1::assert_headers;
use crate::support::client::Connection;
use crate::support::server::until;

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
        connection.send(&format!("GET /items/a HTTP/1.1\r\nHost: x\r\n{framing}\r\n"));
        assert_eq!(connection.response().status, 200);
    }
    for framing in ["Content-Length: 2", "Transfer-Encoding: chunked"] {
        for line in ["GET /items/a", "HEAD /items/a", "GET /free/a", "GET /poll"] {
            // The body never comes.
            let mut connection = server.connect();
            connection.send(&format!("{line} HTTP/1.1\r\nHost: x\r\n{framing}\r\n\r\n"));
            let is_head = line.starts_with("HEAD");
            let response = if is_head { connection.response_without_body() } else { connection.response() };
            assert_eq!(
                (response.status, response.header("connection")),
                (400, Some("close")),
                "{line} {framing}"
            );
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
    assert_eq!((response.status, response.code().as_str()), (413, "payload_too_large"));
    // Before the body, which never comes.
    let mut connection = server.connect();
    connection.send("POST /keyless HTTP/1.1\r\nHost: x\r\nContent-Length: 65537\r\n\r\n");
    assert_eq!(connection.response().status, 413);
}

#[test]
fn a_request_without_exactly_one_host_is_refused_and_closed() {
    let server = TestServer::start();
    for hosts in ["", "Host: x\r\nHost: x\r\n", "Host: x\r\nHost: y\r\n"] {
        for line in ["GET /items/a", "GET /free/a", "POST /echo", "GET /nowhere"] {
            let mut connection = server.connect();
            connection.send(&format!("{line} HTTP/1.1\r\n{hosts}\r\n"));
            let response = connection.response();
            assert_eq!((response.status, response.code().as_str()), (400, "bad_request"), "{line} {hosts}");
            assert_eq!(response.header("connection"), Some("close"));
            assert_headers(&response);
            assert_eq!(connection.rest(), "");
        }
    }
    assert_eq!(server.request("GET /items/a HTTP/1.0\r\n\r\n").status, 200, "HTTP/1.0 has no such header");
}

/// Sends a head that declares 1 MB, and `bytes` of the body.
fn begin_body(connection: &mut Connection, bytes: usize) {
    let head = "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n";
    connection.send(&[head, &"x".repeat(bytes)].concat());
}

#[test]
fn unfinished_bodies_of_one_client_leave_room_for_others() {
    // A quarter is 256 KiB.
    let server =
        TestServer::with(HttpLimits { max_buffered: 1 << 20, request_time: LONG, ..HttpLimits::default() });
    let mut open: Vec<_> = (0..2).map(|_| server.connect()).collect();
    begin_body(&mut open[0], 0);
    // What is only declared holds nothing.
    assert_eq!(server.request(&post("/echo", &"x".repeat(200_000))).status, 200);
    open.push(server.connect());
    for connection in &mut open[1..] {
        begin_body(connection, 200_000);
    }
    let refused = until("one of the two is refused", || open.iter().position(Connection::has_response));
    let response = open.swap_remove(refused).response();
    assert_eq!((response.status, response.code().as_str()), (503, "server_busy"));
    assert_eq!((response.header("retry-after"), response.header("connection")), (Some("1"), Some("close")));
    let mut other = server.connect_from(OTHER);
    other.send(&post("/echo", &"x".repeat(200_000)));
    assert_eq!(other.response().status, 200, "another client has its own quarter");
    assert_eq!(server.request(&get("/items/a")).status, 200, "a small response needs no room");
    drop(open);
    until("the bytes are returned", || {
        (server.request(&post("/echo", &"x".repeat(200_000))).status == 200).then_some(())
    });
}

#[test]
fn unfinished_bodies_of_many_clients_leave_room_for_a_newcomer() {
    let server =
        TestServer::with(HttpLimits { max_buffered: 1 << 20, request_time: LONG, ..HttpLimits::default() });
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
        connection.send(&get("/items/a"));
        assert_eq!(connection.response().status, 200);
    }
    for _ in 0..3 {
        assert_eq!(server.request(&post("/echo", &"x".repeat(900))).status, 200);
    }
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
    let server = TestServer::with(HttpLimits {
        max_buffered: 9 * LARGE,
        response_time: LONG,
        ..HttpLimits::default()
    });
    let (mut first, mut second) = (server.connect(), server.connect());
    begin_response(&mut first);
    begin_response(&mut second);
    let response = server.request(&get("/large"));
    assert_eq!((response.status, response.code().as_str()), (503, "server_busy"));
    assert_eq!(response.header("retry-after"), Some("1"));
    let refused = server.request(&post("/large", ""));
    refused.expect_error(503, "server_busy");
    assert_eq!(refused.header("retry-after"), Some("1"), "nothing was done, so it may be repeated");
    assert_eq!(server.request(&get("/items/a")).status, 200);
    let mut other = server.connect_from(OTHER);
    other.send(&get("/large"));
    assert_eq!(other.response().status, 200);
    drop((first, second));
    until("the bytes are returned", || (server.request(&get("/large")).status == 200).then_some(()));
}

#[test]
fn a_client_that_reads_slowly_gets_its_whole_response() {
    let limit = Duration::from_secs(3);
    let server = TestServer::with(HttpLimits { response_time: limit, ..HttpLimits::default() });
    let mut connection = server.connect();
    connection.send(&get("/large"));
    let (begun, mut read, mut part) = (Instant::now(), 0, vec![0; LARGE / 64]);
    while read < LARGE {
        let length = connection.stream().read(&mut part).unwrap();
        assert!(length > 0, "cut after {read} bytes");
        read += length;
        // The whole response takes longer than the limit.
        std::thread::park_timeout(Duration::from_millis(70).mul_f64(length as f64 / part.len() as f64));
    }
    assert!(begun.elapsed() > limit, "{:?}", begun.elapsed());
}

#[test]
fn a_client_holds_a_part_of_the_connections() {
    let config = HttpLimits {
        header_time: LONG,
        max_connections: 20,
        drain_time: Duration::ZERO,
        ..HttpLimits::default()
    };
    let server = TestServer::with(config);
    let busy = |mut connection: Connection| {
        let before = HELD.load(Ordering::SeqCst);
        connection.send(&get("/hold"));
        until("the handler runs", || (HELD.load(Ordering::SeqCst) > before).then_some(()));
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
