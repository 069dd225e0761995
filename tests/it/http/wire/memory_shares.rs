//! The memory that requests of one client of HTTP/2 hold.

use std::io::{Read, Write};
use std::time::Duration;

use cued::config::HttpLimits;

use super::test_routes::{TestServer, post};
use crate::support::client::Connection;
use crate::support::server::until;

/// Another client than that of `TestServer::connect`, which is 127.0.0.1.
const OTHER: &str = "127.0.0.2";
/// A timeout that no test reaches.
const LONG: Duration = Duration::from_secs(300);
/// Of which a client has a quarter: the memory of 32 requests.
const MAX_BUFFERED: usize = 1 << 20;

const SETTINGS: u8 = 4;
const HEADERS: u8 = 1;

fn server(limits: HttpLimits) -> TestServer {
    TestServer::with(HttpLimits { max_buffered: MAX_BUFFERED, drain_time: Duration::ZERO, ..limits })
}

/// Limits that cut nobody off while the test runs.
fn patient() -> HttpLimits {
    HttpLimits {
        header_time: LONG,
        idle_time: LONG,
        request_time: LONG,
        response_time: LONG,
        ..HttpLimits::default()
    }
}

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
    let server = server(patient());
    let mut connection = server.connect();
    let requests =
        |from, until| -> Vec<_> { (from..until).map(|number| get_frame(number, "/items/a", &[])).collect() };
    send(&mut connection, &[vec![preface()], requests(0, 15)].concat());
    assert_eq!(frames_of(&mut connection, &[HEADERS], 15).len(), 15);
    assert_eq!(server.request(&post("/echo", &"x".repeat(200_000))).status, 503);
    let mut other = server.connect_from(OTHER);
    other.send(&post("/echo", &"x".repeat(200_000)));
    assert_eq!(other.response().status, 200, "another client has its own quarter");
    // More would be above its quarter: the connection is closed whole.
    send(&mut connection, &requests(15, 40));
    until("the memory is returned", || {
        (server.request(&post("/echo", &"x".repeat(200_000))).status == 200).then_some(())
    });
}

#[test]
fn a_request_of_http2_has_at_most_100_headers() {
    let server = server(patient());
    let mut connection = server.connect();
    let headers = |count| literal("a", "").repeat(count);
    send(
        &mut connection,
        &[preface(), get_frame(0, "/items/a", &headers(100)), get_frame(1, "/items/a", &headers(101))],
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
