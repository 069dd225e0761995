//! The receiver of the webhooks: answers 200 at once and notes how late each was.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use jiff::Timestamp;
use parking_lot::{Condvar, Mutex, MutexGuard};

use crate::clock::Clock;

const SCHEDULED_FOR: &str = "x-cueapi-scheduled-for";

/// A receiver on a free port of loopback, with a thread for each connection. It ends with the process.
pub struct Receiver {
    address: SocketAddr,
    shared: Arc<ReceiverState>,
}

#[derive(Default)]
struct ReceiverState {
    /// Milliseconds by which the requests came after their instants.
    lateness: Mutex<Vec<f64>>,
    more: Condvar,
}

impl Receiver {
    /// Starts to listen.
    pub fn start() -> io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let (address, shared) = (listener.local_addr()?, Arc::new(ReceiverState::default()));
        let for_thread = Arc::clone(&shared);
        let accept = move || {
            for stream in listener.incoming().flatten() {
                let shared = Arc::clone(&for_thread);
                // Without the thread its sender sees a connection that closes.
                drop(thread::Builder::new().stack_size(128 * 1024).spawn(move || serve(stream, &shared)));
            }
        };
        thread::Builder::new().name("receiver".to_owned()).spawn(accept)?;
        Ok(Self { address, shared })
    }

    /// Where callbacks go.
    pub fn url(&self) -> String {
        format!("http://{}/hook", self.address)
    }

    /// Waits until so many requests have come, or for `longest`; takes what was noted.
    pub fn take(&self, wanted: usize, longest: Duration) -> Vec<f64> {
        let mut lateness = self.shared.lock();
        self.shared.more.wait_while_for(&mut lateness, |lateness| lateness.len() < wanted, longest);
        std::mem::take(&mut lateness)
    }
}

impl ReceiverState {
    fn lock(&self) -> MutexGuard<'_, Vec<f64>> {
        self.lateness.lock()
    }
}

/// Answers the requests of one connection until it closes; a fault closes it.
fn serve(mut stream: TcpStream, shared: &ReceiverState) {
    let clock = Clock::system();
    let mut read = Vec::with_capacity(4_096);
    let mut chunk = [0; 8_192];
    if stream.set_nodelay(true).is_err() {
        return;
    }
    loop {
        while let Some((late, length)) = request(&read, &clock) {
            read.drain(..length);
            let mut lateness = shared.lock();
            lateness.push(late);
            shared.more.notify_all();
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

/// How late the first request in `read` came, and its length, once it is whole.
fn request(read: &[u8], clock: &Clock) -> Option<(f64, usize)> {
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
