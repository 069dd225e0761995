//! Receiver of the webhooks: responds with 200 at once and records the lateness of each.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, MutexGuard};
use std::thread;
use std::time::Duration;

use jiff::Timestamp;

use crate::clock::Clock;
use crate::locks::{Condvar, Mutex};

const SCHEDULED_FOR: &str = "x-cueapi-scheduled-for";

/// A receiver on a free loopback port, with one thread per connection. It runs until the process exits.
pub struct Receiver {
    address: SocketAddr,
    shared: Arc<ReceiverState>,
}

#[derive(Default)]
struct ReceiverState {
    /// Lateness of each request in milliseconds.
    lateness: Mutex<Vec<f64>>,
    received: Condvar,
}

impl Receiver {
    pub fn start() -> io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let (address, shared) = (listener.local_addr()?, Arc::new(ReceiverState::default()));
        let for_thread = Arc::clone(&shared);
        let accept = move || {
            for stream in listener.incoming().flatten() {
                let shared = Arc::clone(&for_thread);
                // If the thread cannot start, the connection closes and the sender retries.
                drop(thread::Builder::new().stack_size(128 * 1024).spawn(move || serve(stream, &shared)));
            }
        };
        thread::Builder::new().name("receiver".to_owned()).spawn(accept)?;
        Ok(Self { address, shared })
    }

    pub fn url(&self) -> String {
        format!("http://{}/hook", self.address)
    }

    /// Waits for `count` requests or until `timeout`; returns and clears the recorded lateness.
    pub fn take(&self, count: usize, timeout: Duration) -> Vec<f64> {
        let incomplete = |lateness: &mut Vec<f64>| lateness.len() < count;
        std::mem::take(&mut self.shared.received.wait_timeout_while(self.shared.lock(), timeout, incomplete))
    }
}

impl ReceiverState {
    fn lock(&self) -> MutexGuard<'_, Vec<f64>> {
        self.lateness.lock()
    }
}

/// Serves one connection until it closes or fails.
fn serve(mut stream: TcpStream, shared: &ReceiverState) {
    let clock = Clock::system();
    let mut read = Vec::with_capacity(4_096);
    let mut chunk = [0; 8_192];
    if stream.set_nodelay(true).is_err() {
        return;
    }
    loop {
        while let Some((late, length)) = parse_request(&read, &clock) {
            read.drain(..length);
            let mut lateness = shared.lock();
            lateness.push(late);
            shared.received.notify_all();
            drop(lateness);
            if stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").is_err() {
                return;
            }
        }
        match stream.read(&mut chunk) {
            Ok(0) | Err(_) => return,
            Ok(count) => read.extend_from_slice(&chunk[..count]),
        }
    }
}

/// Parses the first request in `read`. Returns its lateness in milliseconds and its length, or `None` while it is
/// incomplete.
fn parse_request(read: &[u8], clock: &Clock) -> Option<(f64, usize)> {
    let head = read.windows(4).position(|window| window == b"\r\n\r\n")? + 4;
    let text = std::str::from_utf8(&read[..head]).ok()?;
    let (mut length, mut late) = (0, 0.0);
    for (name, value) in text.split("\r\n").filter_map(|line| line.split_once(':')) {
        if name.eq_ignore_ascii_case("content-length") {
            length = value.trim().parse().ok()?;
        } else if name.eq_ignore_ascii_case(SCHEDULED_FOR) {
            let scheduled: Timestamp = value.trim().parse().ok()?;
            late = clock.now_precise().duration_since(scheduled).as_secs_f64() * 1_000.0;
        }
    }
    (read.len() >= head + length).then_some((late, head + length))
}
