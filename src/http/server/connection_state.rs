//! The activity of one connection, and the memory that it holds: they decide when an idle, slow or stuck peer is
//! disconnected.

use std::io;
use std::sync::{Arc, MutexGuard};
use std::task::{Poll, Waker};
use std::time::Duration;

use hyper::Version;
use tokio::net::TcpStream;
use tokio::time::Instant;

use crate::config::HttpLimits;
use crate::http::limits::body_wait::BodyWaits;
use crate::http::limits::buffer_budget::BufferReservation;
use crate::http::server::idleness::Idleness;
use crate::http::server::open_streams::OpenStreams;
use crate::locks::Mutex;

/// The bytes that a connection takes of the memory budget, mostly for the buffers of hyper. The program as built for release takes
/// 23 KB, and 27 KB with an incomplete head of 15 KB. This is a little less, so that 64 MiB are enough for 3,276
/// connections; if all of it are connections, they and the rest of the program take 100 MB.
const HTTP1_COST: usize = 20 << 10;
/// The bytes of an HTTP/2 connection without any request: the same, and frames that wait to be written or read.
const HTTP2_COST: usize = 48 << 10;
/// Time until a connection asks again for its memory. Idle connections, which close for it, have returned theirs by then.
const MEMORY_RETRY: Duration = Duration::from_millis(50);

/// The activity of one connection; shared by its socket, its requests and the task that drives it.
#[derive(Clone)]
pub struct ConnectionState(Arc<Mutex<StreamState>>);

struct StreamState {
    /// The part of the memory budget that the connection holds; `None` for a trusted proxy, whose clients share its connections.
    memory: Option<BufferReservation>,
    /// The budget has no room for the connection: nothing is read until it has.
    waits_for_memory: bool,
    /// The budget has no room for what the connection has received.
    lacks_memory: bool,
    /// The time when the connection was opened or its last request ended.
    idle_since: Instant,
    /// The time of the first byte of an incomplete head (HTTP/1.1 only).
    head_since: Option<Instant>,
    /// The time since which the socket accepts no more bytes, because the peer does not read.
    blocked_since: Option<Instant>,
    /// The time since which hyper has not taken a part of any of the ready responses.
    unsent_since: Option<Instant>,
    /// Requests whose response is not yet passed to the socket completely.
    open: usize,
    /// Open requests whose response is ready.
    ready: usize,
    /// Open requests whose response has no end. They are not ready: only their parts can be stuck.
    streams: OpenStreams,
    /// The first bytes are the preface of HTTP/2.
    is_http2: bool,
    /// The open requests whose bodies have not arrived.
    body_waits: BodyWaits,
    /// The connection has not received a request yet.
    is_new: bool,
    /// The bytes written now belong to a response of this program, not of hyper.
    is_responding: bool,
    /// The last body was not read to its end: the next bytes are not a head.
    body_unread: bool,
    /// The connection closes unless a request arrives first.
    is_evicted: bool,
    /// The connection has ended, but its socket still receives.
    is_closing: bool,
    /// The task that drives the connection.
    watcher: Option<Waker>,
    /// The socket after the end of the connection.
    released: Option<TcpStream>,
}

/// The reason to close a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TimeoutReason {
    /// No request for too long.
    Idle,
    /// The head of a request took too long.
    Head,
    /// The peer reads no more of its responses.
    Stuck,
    /// The server is full, and new connections wait.
    Evicted,
    /// Its client, or all clients, hold too much memory.
    NoMemory,
}

impl ConnectionState {
    /// The state of a new connection, whose memory will count in `memory`.
    pub fn new(memory: Option<BufferReservation>) -> Self {
        Self(Arc::new(Mutex::new(StreamState {
            memory,
            waits_for_memory: false,
            lacks_memory: false,
            idle_since: Instant::now(),
            head_since: None,
            blocked_since: None,
            unsent_since: None,
            open: 0,
            ready: 0,
            streams: OpenStreams::default(),
            is_http2: false,
            body_waits: BodyWaits::default(),
            is_new: true,
            is_responding: false,
            body_unread: false,
            is_evicted: false,
            is_closing: false,
            watcher: None,
            released: None,
        })))
    }

    /// Returns the next time limit of the connection and its reason. `None` means: no limit, but check again then.
    pub fn next_check(&self, config: &HttpLimits) -> (Instant, Option<TimeoutReason>) {
        let state = self.lock();
        if state.lacks_memory {
            (Instant::now(), Some(TimeoutReason::NoMemory))
        } else if let Some(since) = state.blocked_since.or(state.unsent_since) {
            (since + config.response_time, Some(TimeoutReason::Stuck))
        } else if state.is_evicted && !state.is_busy() {
            (Instant::now(), Some(TimeoutReason::Evicted))
        } else if let Some(stuck_at) = state.streams.stuck_at(config) {
            (stuck_at, Some(TimeoutReason::Stuck))
        } else if state.open > 0 {
            (Instant::now() + config.response_time, None)
        } else if state.waits_for_memory {
            let end = state.idle_since + config.header_time;
            let retry = Instant::now() + MEMORY_RETRY;
            if retry < end { (retry, None) } else { (end, Some(TimeoutReason::NoMemory)) }
        } else if let Some(since) = state.head_since {
            (since + config.header_time, Some(TimeoutReason::Head))
        } else if state.is_new {
            (state.idle_since + config.header_time, Some(TimeoutReason::Idle))
        } else {
            (state.idle_since + config.idle_time, Some(TimeoutReason::Idle))
        }
    }

    /// The counter in which its requests record that they wait for their bodies.
    pub fn body_waits(&self) -> BodyWaits {
        self.lock().body_waits.clone()
    }

    /// Returns `None` while a request is running, and after [`ConnectionState::evict`].
    pub fn idleness(&self) -> Option<Idleness> {
        let state = self.lock();
        if state.is_busy() || state.is_evicted || state.lacks_memory {
            return None;
        }
        Some(match state.head_since {
            _ if state.open > 0 => Idleness::AwaitingBody(state.idle_since),
            _ if state.is_closing => Idleness::Closing(state.idle_since),
            Some(since) => Idleness::PartialHead(since),
            None if state.is_new => Idleness::Silent(state.idle_since),
            None => Idleness::KeptAlive(state.idle_since),
        })
    }

    /// The memory budget gains if the connection closes.
    pub fn holds_memory(&self) -> bool {
        self.lock().memory.as_ref().is_some_and(|memory| memory.bytes() > 0)
    }

    /// Returns `true` for HTTP/2.
    pub fn is_http2(&self) -> bool {
        self.lock().is_http2
    }

    /// Closes the connection, unless a request arrives before its task runs. Its memory is free for others at once.
    pub fn evict(&self) {
        let mut state = self.lock();
        state.is_evicted = true;
        if let Some(memory) = &mut state.memory {
            memory.release();
        }
        if let Some(watcher) = state.watcher.take() {
            watcher.wake();
        }
    }

    /// Registers the task that polls [`ConnectionState::next_check`]. It is woken when the result changes without any
    /// activity on the connection.
    pub fn set_watcher(&self, waker: &Waker) {
        let watcher = &mut self.lock().watcher;
        if !watcher.as_ref().is_some_and(|known| known.will_wake(waker)) {
            *watcher = Some(waker.clone());
        }
    }

    /// Records a request with a complete head. The request runs until the guard is dropped.
    pub fn begin_request(&self, version: Version) -> RequestGuard {
        let mut state = self.lock();
        state.is_http2 = version == Version::HTTP_2;
        if state.open == 0 {
            state.idle_since = Instant::now();
        }
        state.open += 1;
        state.is_new = false;
        state.body_unread = false;
        let began = state.head_since.take().unwrap_or_else(Instant::now);
        RequestGuard { state: self.clone(), began, ready: false, stream: None }
    }

    /// Waits until the connection is evicted.
    pub async fn evicted(&self) {
        std::future::poll_fn(|context| {
            self.set_watcher(context.waker());
            if self.lock().is_evicted { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }

    /// Ends the HTTP/2 streams whose client does not read. Returns `false` if another reason closes the connection.
    pub fn reset_stuck_streams(&self, config: &HttpLimits) -> bool {
        let mut state = self.lock();
        state.blocked_since.or(state.unsent_since).is_none() && state.streams.reset_stuck(config)
    }

    /// Takes the socket of an ended connection. The flag is `true` if the peer may still be sending a body.
    pub fn take_stream(&self) -> (Option<TcpStream>, bool) {
        let mut state = self.lock();
        state.is_closing = true;
        (state.released.take(), state.body_unread)
    }

    /// Reserves the memory of the connection. Returns `false` as long as the budget has no room for it.
    pub fn admit(&self) -> bool {
        let mut state = self.lock();
        state.waits_for_memory = !state.reserve_memory();
        !state.waits_for_memory
    }

    /// Returns `true` if the socket is to be tried again, because memory may be free now.
    pub fn waits_for_memory(&self) -> bool {
        self.lock().waits_for_memory
    }

    /// Records what was read. Returns `false` if the budget has no room for it: the connection then closes.
    pub fn record_read(&self, bytes: &[u8]) -> bool {
        let mut state = self.lock();
        if state.is_new && state.head_since.is_none() {
            // hyper compares the whole preface, but no method of HTTP/1.1 begins with these bytes.
            state.is_http2 |= bytes.starts_with(b"PRI ");
        }
        if !bytes.is_empty() && state.open == 0 && !state.is_http2 && !state.body_unread {
            state.head_since.get_or_insert_with(Instant::now);
        }
        state.lacks_memory = !state.reserve_memory();
        !state.lacks_memory
    }

    /// Returns `true` after [`ConnectionState::record_read`] returned `false`.
    pub fn lacks_memory(&self) -> bool {
        self.lock().lacks_memory
    }

    /// Records an attempt to write.
    pub fn record_write(&self, written: &Poll<io::Result<usize>>) {
        let mut state = self.lock();
        if written.is_pending() {
            state.blocked_since.get_or_insert_with(Instant::now);
        } else {
            state.blocked_since = None;
        }
    }

    /// Records that all responses passed to the socket are written.
    pub fn record_flush(&self) {
        let mut state = self.lock();
        state.is_responding &= state.open > 0;
    }

    /// Bytes written now are of hyper, not of this program: no request is open, and no response is being written.
    pub fn writes_of_hyper(&self) -> bool {
        let state = self.lock();
        !(state.is_http2 || state.open > 0 || state.is_responding)
    }

    /// Records that the connection ends with an error response, whatever the peer still sends.
    pub fn ends_with_error(&self) {
        self.lock().body_unread = true;
    }

    /// Takes the socket of an ended connection, for a last response.
    pub fn release(&self, stream: Option<TcpStream>) {
        self.lock().released = stream;
    }

    fn lock(&self) -> MutexGuard<'_, StreamState> {
        self.0.lock()
    }
}

impl StreamState {
    /// A request is running: it has its body.
    fn is_busy(&self) -> bool {
        self.open > self.body_waits.count()
    }

    fn reserve_memory(&mut self) -> bool {
        let needed = if self.is_http2 { HTTP2_COST } else { HTTP1_COST };
        self.memory.as_mut().is_none_or(|memory| memory.grow_to(needed).is_ok())
    }
}

/// A running request. Dropped when its response is passed to the socket completely, or when it is aborted.
pub struct RequestGuard {
    state: ConnectionState,
    began: Instant,
    ready: bool,
    /// The number of its stream.
    stream: Option<u64>,
}

impl RequestGuard {
    /// The arrival of the first byte of its head.
    pub fn began(&self) -> Instant {
        self.began
    }

    /// Records that the response is ready.
    pub fn response_ready(&mut self, body_unread: bool) {
        let mut state = self.state.lock();
        self.ready = true;
        state.ready += 1;
        state.unsent_since.get_or_insert_with(Instant::now);
        state.is_responding = true;
        state.body_unread |= body_unread;
    }

    /// Records that the response begins and has no end.
    pub fn stream_begins(&mut self, body_unread: bool) {
        let mut state = self.state.lock();
        (self.stream, state.is_responding) = (Some(state.streams.begin()), true);
        state.body_unread |= body_unread;
    }

    /// Records that hyper asks for the next part of a stream.
    pub fn part_asked(&self) {
        if let Some(stream) = self.stream {
            self.state.lock().streams.asked(stream);
        }
    }

    /// Records that hyper has taken a part of the response, because the peer reads.
    pub fn part_taken(&self) {
        let mut state = self.state.lock();
        match self.stream {
            Some(stream) => state.streams.part_taken(stream),
            None => state.unsent_since = Some(Instant::now()),
        }
    }

    /// Records that a part of the response is written.
    pub fn part_written(&self) {
        if let Some(stream) = self.stream {
            self.state.lock().streams.part_written(stream);
        }
    }
}

impl Drop for RequestGuard {
    fn drop(&mut self) {
        let mut state = self.state.lock();
        let now = Instant::now();
        state.open -= 1;
        if let Some(stream) = self.stream {
            state.streams.end(stream);
        }
        if self.ready {
            state.ready -= 1;
            state.unsent_since = (state.ready > 0).then_some(now);
        }
        if state.open == 0 {
            state.idle_since = now;
        }
    }
}
