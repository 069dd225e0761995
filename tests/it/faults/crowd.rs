//! Ten thousand connections that send nothing, or an incomplete head: other clients are served all the same.

use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use cued::metrics::process::max_open_files;
use serde_json::json;

use crate::support::client::Client;
use crate::support::server::{DEV_UNLIMITED, Server, resident_mb};

const CROWD: usize = 10_000;

/// Responses that a client gets at least while the crowd connects, and again once it is complete. Were new clients
/// served only after the timeouts of idle connections (10 s), the crowd would be complete before the first response.
const RESPONSES: usize = 20;

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
    let server = Server::start(DEV_UNLIMITED);
    let user = server.user();
    let (before, crowd) = (resident_mb(server.pid()), crowd());
    for word in [&b""[..], b"GET /health HTTP/1.1\r\nHo"] {
        let is_complete = AtomicBool::new(false);
        let (responses, streams) = thread::scope(|scope| {
            let (user, is_complete) = (user.clone(), &is_complete);
            let client = scope.spawn(move || {
                let mut responses = 0;
                while !is_complete.load(Ordering::SeqCst) {
                    create(&user);
                    responses += 1;
                }
                responses
            });
            let streams = connect(server.addr(), crowd, word);
            is_complete.store(true, Ordering::SeqCst);
            (client.join().unwrap(), streams)
        });
        assert_eq!(streams.len(), crowd);
        assert!(responses >= RESPONSES, "{responses} responses while the crowd connected");
        (0..RESPONSES).for_each(|_| create(&user));
        let grown = resident_mb(server.pid()).saturating_sub(before);
        assert!(grown < 200, "{grown} MB more than before");
        eprintln!("{responses} responses while the crowd connected; {grown} MB more than before");
    }
}

/// Creates a cue on a new connection.
fn create(user: &Client) {
    let daily = json!({"type": "recurring", "cron": "@daily"});
    user.clone().create(&json!({"name": "n", "transport": "worker", "schedule": daily}));
}
