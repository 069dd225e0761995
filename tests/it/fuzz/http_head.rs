//! The HTTP server of this process on mutated requests: it answers or closes, and still serves afterwards.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Instant;

use cued::http::routes::ROUTES;

use crate::fuzz::mutator::{Mutator, budget, report};
use crate::support::fixture::Fixture;
use crate::support::http_server::HttpServer;
use crate::support::server::HANG_TIMEOUT;

const INPUTS: u64 = 160_000;
/// Requests of one connection. The first bad one ends it, and its port is kept for a while: there are some 28,000.
const PIPELINED: u64 = 8;

#[rustfmt::skip]
const SEEDS: &[&str] = &[
    "GET /status HTTP/1.1\r\nHost: x\r\n\r\n",
    "HEAD /v1/info HTTP/1.1\r\nHost: localhost\r\nX-Request-Id: abc\r\n\r\n",
    "GET /v1/cues?limit=5&offset=%20 HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer cue_sk_0123\r\n\r\n",
    "POST /v1/auth/device-code HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}",
    "POST /v1/echo/0123456789abcdef HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
    "OPTIONS * HTTP/1.1\r\nHost: x\r\nOrigin: http://a.example\r\nX-Forwarded-For: 1.2.3.4, ::1\r\n\r\n",
    "GET /v1/auth/verify?token=a&device_code=b HTTP/1.0\r\n\r\n",
    "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0",
];
#[rustfmt::skip]
const WORDS: &[&str] = &[
    "\r\n", "\n", "\r", "\r\n\r\n", " ", "\t", ":", ": ", "GET ", "POST ", "CONNECT ", "/", "//", "*", "?", "#",
    "%", "%00",
    "%2f", "..", "http://x/", "HTTP/1.1", "HTTP/1.0", "HTTP/2.0", "HTTP/9.9", "Host: x\r\n", "Host: y\r\n",
    "Host:\r\n",
    "Content-Length: 0\r\n", "Content-Length: -1\r\n", "Content-Length: 1\r\nContent-Length: 2\r\n",
    "Content-Length: 99999999999\r\n",
    "Transfer-Encoding: chunked\r\n", "Transfer-Encoding: identity, chunked\r\n", "Expect: 100-continue\r\n",
    "Connection: close\r\n", "Connection: upgrade\r\nUpgrade: h2c\r\n", "Idempotency-Key: k\r\n", "Cookie: a=b\r\n",
    "X-Forwarded-For: ,,\r\n", "Authorization: Bearer \r\n", " folded\r\n", "\0", "\u{7f}", "é", "{", "}",
    "0\r\n\r\n",
    "FFFFFFFFFFFFFFFF\r\n", "X: y\r\n", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
];

#[test]
fn http_heads() {
    let fixture = Fixture::new();
    let server = HttpServer::start(Arc::clone(&fixture.app), ROUTES);
    let mut mutator = Mutator::new("HTTP head", SEEDS, WORDS);
    let (begun, inputs, mut answers) = (Instant::now(), budget(INPUTS).next_multiple_of(PIPELINED), 0);
    for number in 0..inputs / PIPELINED {
        let mut sent = Vec::new();
        for _ in 0..PIPELINED {
            // Half of the requests are sound, so that the others are not all cut off by the first.
            if mutator.random.below(2) == 0 {
                sent.extend_from_slice(SEEDS[0].as_bytes());
            } else {
                sent.extend_from_slice(mutator.next());
            }
        }
        let reply = exchange(server.addr, &sent);
        let is_http =
            reply.is_empty() || reply.starts_with(b"HTTP/1.") || sent.starts_with(b"PRI * HTTP/2.0");
        assert!(is_http, "connection {number}: {} got {}", sent.escape_ascii(), reply.escape_ascii());
        let head = b"HTTP/1.";
        answers += reply.windows(head.len()).filter(|part| part == head).count() as u64;
        let fault = b"HTTP/1.1 500";
        let is_fault = reply.windows(fault.len()).any(|part| part == fault);
        assert!(!is_fault, "{} got {}", sent.escape_ascii(), reply.escape_ascii());
        if number % 1_000 == 0 {
            assert_eq!(server.request("GET /status HTTP/1.1\r\nHost: x\r\n\r\n").status, 200);
        }
    }
    assert_eq!(server.request("GET /status HTTP/1.1\r\nHost: x\r\n\r\n").status, 200);
    assert!(answers > 0);
    report("HTTP head", inputs, answers, begun);
}

/// Sends all and reads until the server closes the connection, which it must do: the client has closed its side.
fn exchange(addr: SocketAddr, sent: &[u8]) -> Vec<u8> {
    let mut stream = TcpStream::connect(addr).unwrap();
    stream.set_read_timeout(Some(HANG_TIMEOUT)).unwrap();
    // The server may have closed after a bad request, with a reset if bytes are unread.
    if stream.write_all(sent).is_ok() {
        drop(stream.shutdown(Shutdown::Write));
    }
    let mut reply = Vec::new();
    match stream.read_to_end(&mut reply) {
        Err(error) if error.kind() == ErrorKind::WouldBlock => {
            panic!("the server keeps the connection open after {}", sent.escape_ascii())
        }
        Ok(_) | Err(_) => reply,
    }
}
