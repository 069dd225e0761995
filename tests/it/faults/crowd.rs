//! Ten thousand connections that send nothing, or the beginning of something: others are served all the same.

use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use cued::metrics::process::descriptors;
use serde_json::json;

use crate::support::client::Client;
use crate::support::server::{ALONE, Server, resident};

const CROWD: usize = 10_000;

/// How long a caller may wait at most while the crowd is there.
const LONGEST_ANSWER: Duration = Duration::from_secs(3);

/// The files that the other tests of this process have open, at most.
const OTHERS: usize = 2_000;

/// As many connections as this process may open, at most `CROWD`.
fn crowd() -> usize {
    let allowed = || descriptors().unwrap_or(1_024).saturating_sub(OTHERS).max(500);
    if allowed() < CROWD {
        let pid = std::process::id().to_string();
        let limit = format!("--nofile={}", CROWD + OTHERS);
        // Only a privileged process may; the others do with what they have.
        drop(Command::new("prlimit").args(["--pid", &pid, &limit]).output());
    }
    let crowd = CROWD.min(allowed());
    if crowd < CROWD {
        eprintln!("this process may open too few files: {crowd} connections in place of {CROWD}");
    }
    crowd
}

/// Connects `count` times, from several threads, and says `word` on each.
fn connect(addr: SocketAddr, count: usize, word: &[u8]) -> Vec<TcpStream> {
    thread::scope(|scope| {
        let part = |number: usize| {
            let count = count / 8 + usize::from(number < count % 8);
            move || {
                let mut streams = Vec::new();
                for _ in 0..count {
                    let Ok(mut stream) = TcpStream::connect(addr) else { break };
                    // It may have been closed already, which is as good.
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
    let server = Server::start(ALONE);
    let user = server.user();
    let (before, crowd) = (resident(server.pid()), crowd());
    for word in [&b""[..], b"GET /health HTTP/1.1\r\nHo"] {
        let gone = AtomicBool::new(false);
        let (waits, streams) = thread::scope(|scope| {
            let (user, gone) = (user.clone(), &gone);
            let asking = scope.spawn(move || {
                let mut waits = Vec::new();
                while !gone.load(Ordering::SeqCst) || waits.len() < 20 {
                    waits.push(ask(&user));
                }
                waits
            });
            let streams = connect(server.addr(), crowd, word);
            gone.store(true, Ordering::SeqCst);
            (asking.join().unwrap(), streams)
        });
        assert_eq!(streams.len(), crowd);
        let longest = waits.iter().max().unwrap();
        assert!(*longest < LONGEST_ANSWER, "one of {} answers took {longest:?}", waits.len());
        let grown = resident(server.pid()).saturating_sub(before);
        assert!(grown < 200, "{grown} MB more than before");
        eprintln!("{} answers, the longest took {longest:?}; {grown} MB more than before", waits.len());
    }
}

/// Asks as a stranger comes, on a connection of its own: how long the answer took.
fn ask(user: &Client) -> Duration {
    let begun = Instant::now();
    let daily = json!({"type": "recurring", "cron": "@daily"});
    user.clone().create(&json!({"name": "n", "transport": "worker", "schedule": daily}));
    begun.elapsed()
}
