//! Ten thousand connections that send nothing, or an incomplete head: other clients are served all the same.

use std::io::{ErrorKind, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use cued::metrics::process::max_open_files;
use serde_json::json;

use crate::support::client::Client;
use crate::support::server::{DEV_UNLIMITED, Server, resident_mb};

const CROWD: usize = 10_000;

/// Requests after the crowd is complete.
const REQUESTS: usize = 20;

/// The errors of a request on a connection that the server has closed.
const CLOSED: [ErrorKind; 3] = [ErrorKind::ConnectionReset, ErrorKind::BrokenPipe, ErrorKind::UnexpectedEof];

/// File descriptors for the other tests of this process.
const OTHERS: usize = 2_000;

/// The number of connections that this process may open, at most `CROWD`.
fn crowd() -> usize {
    let allowed = || max_open_files().unwrap_or(1_024).saturating_sub(OTHERS).max(500);
    if allowed() < CROWD {
        let pid = std::process::id().to_string();
        let limit = format!("--nofile={}", CROWD + OTHERS);
        // Only a privileged process may raise its limit.
        drop(Command::new("prlimit").args(["--pid", &pid, &limit]).output());
    }
    let crowd = CROWD.min(allowed());
    if crowd < CROWD {
        eprintln!("this process may open too few files: {crowd} connections instead of {CROWD}");
    }
    crowd
}

/// Connects `count` times from several threads and sends `word` on each.
fn connect(addr: SocketAddr, count: usize, word: &[u8]) -> Vec<TcpStream> {
    thread::scope(|scope| {
        let part = |number: usize| {
            let count = count / 8 + usize::from(number < count % 8);
            move || {
                let mut streams = Vec::new();
                for _ in 0..count {
                    let Ok(mut stream) = TcpStream::connect(addr) else { break };
                    // The server may have closed it already.
                    drop(stream.write_all(word));
                    streams.push(stream);
                }
                streams
            }
        };
        let threads: Vec<_> = (0..8).map(|number| scope.spawn(part(number))).collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    })
}

#[test]
fn ten_thousand_idle_or_incomplete_connections_do_not_block_clients() {
    let (server, idle_server) = (Server::start(DEV_UNLIMITED), Server::start(DEV_UNLIMITED));
    let user = server.user();
    let request = |user: &Client| create_before_timeout(user, idle_server.addr());
    let (before, crowd) = (resident_mb(server.pid()), crowd());
    for word in [&b""[..], b"GET /health HTTP/1.1\r\nHo"] {
        let is_complete = AtomicBool::new(false);
        let (requests, streams) = thread::scope(|scope| {
            let (user, is_complete, request) = (user.clone(), &is_complete, &request);
            let client = scope.spawn(move || {
                let mut requests = 0;
                while !is_complete.load(Ordering::SeqCst) {
                    request(&user);
                    requests += 1;
                }
                requests
            });
            let streams = connect(server.addr(), crowd, word);
            is_complete.store(true, Ordering::SeqCst);
            (client.join().unwrap(), streams)
        });
        assert_eq!(streams.len(), crowd);
        (0..REQUESTS).for_each(|_| request(&user));
        let grown = resident_mb(server.pid()).saturating_sub(before);
        assert!(grown < 200, "{grown} MB more than before");
        eprintln!("{requests} requests while the crowd connected; {grown} MB more than before");
    }
}

/// Creates a cue on a new connection. The response must precede the head timeout of a silent connection that was opened
/// before the request, on a server without load: were the places of the crowd freed by that timeout only, a new client
/// would wait longer.
fn create_before_timeout(user: &Client, idle_server: SocketAddr) {
    let silent = TcpStream::connect(idle_server).unwrap();
    silent.set_nonblocking(true).unwrap();
    let daily = json!({"type": "recurring", "cron": "@daily"});
    let cue = json!({"name": "n", "transport": "worker", "schedule": daily});
    // A connection that is older than a thousand later ones of its address closes for them, if its request comes later
    // still: the client connects again.
    let created = loop {
        match user.clone().try_post("/v1/cues", &cue) {
            Err(error) if CLOSED.contains(&error.kind()) => {}
            answered => break answered.unwrap(),
        }
    };
    created.expect(201);
    let read = silent.peek(&mut [0]);
    let is_open = read.as_ref().is_err_and(|error| error.kind() == ErrorKind::WouldBlock);
    assert!(is_open, "the response came after the head timeout: {read:?}");
}
