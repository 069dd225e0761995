//! Timeouts and limits of connections, and the graceful stop.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::sync::atomic::Ordering;
use std::time::Duration;

use cued::config::HttpLimits;

use super::test_routes::{CROWD, CROWD_PEAK, FOREVER, TestServer, get};
use crate::http::wire::http1::assert_headers;
use crate::support::server::until;

const SHORT: Duration = Duration::from_millis(300);
/// A timeout that no test reaches.
const LONG: Duration = Duration::from_secs(300);

/// Limits under which the connections of a test count as those of many clients, as behind a proxy.
fn many_clients() -> HttpLimits {
    HttpLimits { trusted_proxies: vec!["127.0.0.0/8".parse().unwrap()], ..HttpLimits::default() }
}

#[test]
fn a_silent_connection_is_closed_without_a_response() {
    let server = TestServer::with(HttpLimits { header_time: SHORT, ..HttpLimits::default() });
    assert_eq!(server.connect().rest(), "");
}

#[test]
fn an_incomplete_head_gets_408() {
    let server = TestServer::with(HttpLimits { header_time: SHORT, ..HttpLimits::default() });
    for good_ones in [0, 1] {
        let mut connection = server.connect();
        for _ in 0..good_ones {
            connection.send(&get("/items/a"));
            assert_eq!(connection.response().status, 200);
        }
        connection.send("GET /items/a HTTP/1.1\r\nHo");
        let response = connection.response();
        assert_eq!((response.status, response.header("connection")), (408, Some("close")));
        assert_eq!(connection.rest(), "");
    }
}

#[test]
fn a_later_head_has_the_same_timeout_as_the_first() {
    let server = TestServer::with(HttpLimits { header_time: SHORT, ..HttpLimits::default() });
    let mut connection = server.connect();
    connection.send(&get("/items/a"));
    assert_eq!(connection.response().status, 200);
    // The end of a silent connection shows that this one is past its head timeout and counts as idle.
    assert_eq!(server.connect().rest(), "");
    connection.send("GET /items/a HTTP/1.1\r\nHo");
    assert_eq!(connection.response().status, 408);
}

#[test]
fn a_slowly_sent_head_has_the_same_timeout() {
    let server = TestServer::with(HttpLimits { header_time: SHORT, ..HttpLimits::default() });
    let mut connection = server.connect();
    connection.send("GET /items/a HTTP/1.1\r\n");
    let stream = connection.stream();
    stream.set_read_timeout(Some(SHORT / 10)).unwrap();
    let mut response = [0; 12];
    // One header after the other, until the response comes.
    let read = until("the server responds", || {
        stream.write_all(b"X: y\r\n").unwrap();
        match stream.read(&mut response) {
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => None,
            read => Some(read.unwrap()),
        }
    });
    assert_eq!(&response[..read], b"HTTP/1.1 408");
}

#[test]
fn an_incomplete_body_gets_408() {
    let server = TestServer::with(HttpLimits { request_time: SHORT, ..HttpLimits::default() });
    let mut connection = server.connect();
    connection.send("POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\n12");
    let response = connection.response();
    assert_eq!((response.status, response.code().as_str()), (408, "request_timeout"));
    assert_eq!(response.header("connection"), Some("close"));
    assert_headers(&response);
}

#[test]
fn an_idle_connection_is_closed_after_the_idle_timeout() {
    let server =
        TestServer::with(HttpLimits { header_time: LONG, idle_time: SHORT, ..HttpLimits::default() });
    let mut connection = server.connect();
    connection.send(&get("/items/a"));
    assert_eq!(connection.response().status, 200);
    assert_eq!(connection.rest(), "");
}

#[test]
fn an_idle_connection_outlives_the_head_timeout() {
    let server =
        TestServer::with(HttpLimits { header_time: SHORT, idle_time: LONG, ..HttpLimits::default() });
    let mut idle = server.connect();
    idle.send(&get("/items/a"));
    assert_eq!(idle.response().status, 200);
    // A connection opened later reaches its head timeout, so the idle one has passed its own.
    assert_eq!(server.connect().rest(), "");
    idle.send(&get("/items/a"));
    assert_eq!(idle.response().status, 200);
}

#[test]
fn a_client_that_does_not_read_its_response_is_disconnected() {
    let server =
        TestServer::with(HttpLimits { max_connections: 1, response_time: SHORT, ..HttpLimits::default() });
    let mut unread = server.connect();
    unread.send(&get("/large"));
    // Served only once the first connection is closed. Of the same address it would be refused.
    let mut other = server.connect_from("127.0.0.2");
    other.send(&get("/items/a"));
    assert_eq!(other.response().status, 200);
}

#[test]
fn concurrent_connections_stay_within_the_limit() {
    let server = TestServer::with(HttpLimits { max_connections: CROWD, ..many_clients() });
    let request = get("/crowd").replace("Host: x", "Host: x\r\nConnection: close");
    let mut clients = Vec::new();
    for _ in 0..12 {
        let mut connection = server.connect();
        connection.send(&request);
        clients.push(connection);
    }
    for mut connection in clients {
        assert_eq!(connection.response().status, 204);
    }
    assert_eq!(CROWD_PEAK.load(Ordering::SeqCst), CROWD);
}

#[test]
fn at_the_limit_a_new_connection_closes_the_one_that_is_idle_longest() {
    let config = HttpLimits { header_time: LONG, max_connections: 3, ..many_clients() };
    let server = TestServer::with(config);
    let (mut silent, mut kept, mut half) = (server.connect(), server.connect(), server.connect());
    for connection in [&mut kept, &mut half] {
        connection.send(&get("/items/a"));
        assert_eq!(connection.response().status, 200);
    }
    half.send("GET /items/a HTTP/1.1\r\n");
    let mut newcomers = Vec::new();
    for gone in [&mut silent, &mut kept] {
        let mut newcomer = server.connect();
        newcomer.send(&[get("/items/a"), get("/poll")].concat());
        assert_eq!(newcomer.response().status, 200);
        assert_eq!(gone.rest(), "");
        newcomers.push(newcomer);
    }
    half.send("Host: x\r\n\r\n");
    assert_eq!(half.response().status, 200, "its place was not needed");
}

#[test]
fn a_stop_ends_long_polls_and_closes_idle_connections() {
    let mut server = TestServer::with(HttpLimits { drain_time: LONG, ..HttpLimits::default() });
    let (mut idle, mut fresh, mut polling) = (server.connect(), server.connect(), server.connect());
    idle.send(&get("/items/a"));
    assert_eq!(idle.response().status, 200);
    // The poll is the second request: it is read as soon as the first has its response.
    polling.send(&[get("/items/a"), get("/poll")].concat());
    assert_eq!(polling.response().status, 200);
    server.stop();
    assert_eq!(polling.response().json()["ended"], "by the stop");
    assert_eq!(polling.rest(), "");
    assert_eq!(idle.rest(), "");
    assert_eq!(fresh.rest(), "");
    server.wait_until_stopped();
    assert!(TcpStream::connect(server.addr).is_err());
}

#[test]
fn a_disconnect_and_the_end_of_the_drain_cancel_the_handler() {
    let until_running = |count| {
        until("handlers start or end", || (FOREVER.load(Ordering::SeqCst) == count).then_some(()));
    };
    let mut server = TestServer::with(HttpLimits { drain_time: SHORT, ..HttpLimits::default() });
    let (mut first, mut second) = (server.connect(), server.connect());
    first.send(&get("/forever"));
    second.send(&get("/forever"));
    until_running(2);
    drop(first);
    until_running(1);
    server.stop();
    server.wait_until_stopped();
    until_running(0);
}
