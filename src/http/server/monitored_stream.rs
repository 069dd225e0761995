//! A socket that records the activity of its connection. The records decide when an idle, slow or stuck peer is
//! disconnected.
//!
//! It also replaces the bare error response of hyper to an unreadable head by one in the format of this API.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, MutexGuard};
use std::task::{Context, Poll, Waker, ready};

use hyper::Version;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::Instant;

use crate::config::HttpLimits;
use crate::locks::Mutex;

/// Renders the response that replaces an error response of hyper with the given status.
pub type ErrorRenderer = Box<dyn Fn(u16) -> Vec<u8> + Send>;

/// A socket that records its activity in a [`ConnectionState`].
pub struct MonitoredStream {
    /// `Some` until this is dropped.
    stream: Option<TcpStream>,
    state: ConnectionState,
    render_error: ErrorRenderer,
    /// The unwritten rest of an error response.
    outbox: Vec<u8>,
}

/// The activity of one connection; shared by its socket, its requests and the task that drives it.
#[derive(Clone)]
pub struct ConnectionState(Arc<Mutex<StreamState>>);

struct StreamState {
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
    /// The first bytes are the preface of HTTP/2.
    is_http2: bool,
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
}

/// The order in which a full server closes connections: by kind, then the longest idle first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Idleness {
    /// It has its last response, and what the peer still sends is discarded.
    Closing(Instant),
    /// It has sent nothing yet.
    Silent(Instant),
    /// It has received all its responses and is kept alive for another request.
    KeptAlive(Instant),
    /// It has sent a part of a head.
    PartialHead(Instant),
}

impl ConnectionState {
    pub fn new() -> Self {
        Self(Arc::new(Mutex::new(StreamState {
            idle_since: Instant::now(),
            head_since: None,
            blocked_since: None,
            unsent_since: None,
            open: 0,
            ready: 0,
            is_http2: false,
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
        if let Some(since) = state.blocked_since.or(state.unsent_since) {
            (since + config.response_time, Some(TimeoutReason::Stuck))
        } else if state.open > 0 {
            (Instant::now() + config.response_time, None)
        } else if state.is_evicted {
            (Instant::now(), Some(TimeoutReason::Evicted))
        } else if let Some(since) = state.head_since {
            (since + config.header_time, Some(TimeoutReason::Head))
        } else if state.is_new {
            (state.idle_since + config.header_time, Some(TimeoutReason::Idle))
        } else {
            (state.idle_since + config.idle_time, Some(TimeoutReason::Idle))
        }
    }

    /// Returns `None` while a request is running, and after [`ConnectionState::evict`].
    pub fn idleness(&self) -> Option<Idleness> {
        let state = self.lock();
        if state.open > 0 || state.is_evicted {
            return None;
        }
        Some(match state.head_since {
            _ if state.is_closing => Idleness::Closing(state.idle_since),
            Some(since) => Idleness::PartialHead(since),
            None if state.is_new => Idleness::Silent(state.idle_since),
            None => Idleness::KeptAlive(state.idle_since),
        })
    }

    /// Closes the connection, unless a request arrives before its task runs.
    pub fn evict(&self) {
        let mut state = self.lock();
        state.is_evicted = true;
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
        state.open += 1;
        state.is_new = false;
        state.body_unread = false;
        let began = state.head_since.take().unwrap_or_else(Instant::now);
        RequestGuard { state: self.clone(), began, ready: false }
    }

    /// Waits until the connection is evicted.
    pub async fn evicted(&self) {
        std::future::poll_fn(|context| {
            self.set_watcher(context.waker());
            if self.lock().is_evicted { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }

    /// Takes the socket of an ended connection. The flag is `true` if the peer may still be sending a body.
    pub fn take_stream(&self) -> (Option<TcpStream>, bool) {
        let mut state = self.lock();
        state.is_closing = true;
        (state.released.take(), state.body_unread)
    }

    fn lock(&self) -> MutexGuard<'_, StreamState> {
        self.0.lock()
    }
}

/// A running request. Dropped when its response is passed to the socket completely, or when it is aborted.
pub struct RequestGuard {
    state: ConnectionState,
    began: Instant,
    ready: bool,
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

    /// Records that hyper has taken a part of the response, because the peer reads.
    pub fn part_taken(&self) {
        self.state.lock().unsent_since = Some(Instant::now());
    }
}

impl Drop for RequestGuard {
    fn drop(&mut self) {
        let mut state = self.state.lock();
        let now = Instant::now();
        state.open -= 1;
        if self.ready {
            state.ready -= 1;
            state.unsent_since = (state.ready > 0).then_some(now);
        }
        if state.open == 0 {
            state.idle_since = now;
        }
    }
}

impl MonitoredStream {
    pub fn new(stream: TcpStream, state: ConnectionState, render_error: ErrorRenderer) -> Self {
        Self { stream: Some(stream), state, render_error, outbox: Vec::new() }
    }

    fn stream(&mut self) -> io::Result<Pin<&mut TcpStream>> {
        self.stream.as_mut().map(Pin::new).ok_or_else(|| io::ErrorKind::NotConnected.into())
    }

    /// Returns the status of an error response of hyper.
    ///
    /// Bytes that hyper writes while no request is open are its response to an invalid head: a status line and two
    /// headers, always in one write, and always the last bytes of the connection.
    fn hyper_error_status(&self, bytes: &[u8]) -> Option<u16> {
        let state = self.state.lock();
        if state.is_http2 || state.open > 0 || state.is_responding {
            return None;
        }
        let status =
            bytes.strip_prefix(b"HTTP/1.1 ").or_else(|| bytes.strip_prefix(b"HTTP/1.0 "))?.get(..3)?;
        std::str::from_utf8(status).ok()?.parse().ok()
    }

    fn poll_outbox(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.outbox.is_empty() {
            let bytes = std::mem::take(&mut self.outbox);
            let written = self.stream()?.poll_write(context, &bytes);
            self.record_write(&written);
            self.outbox = bytes;
            let written = ready!(written)?;
            self.outbox.drain(..written);
        }
        Poll::Ready(Ok(()))
    }

    fn record_write(&self, written: &Poll<io::Result<usize>>) {
        let mut state = self.state.lock();
        if written.is_pending() {
            state.blocked_since.get_or_insert_with(Instant::now);
        } else {
            state.blocked_since = None;
        }
    }
}

impl Drop for MonitoredStream {
    fn drop(&mut self) {
        self.state.lock().released = self.stream.take();
    }
}

impl AsyncRead for MonitoredStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(self.stream()?.poll_read(context, buffer))?;
        let bytes = &buffer.filled()[before..];
        let mut state = self.state.lock();
        if state.is_new && state.head_since.is_none() {
            // hyper compares the whole preface, but no method of HTTP/1.1 begins with these bytes.
            state.is_http2 = bytes.starts_with(b"PRI ");
        }
        if !bytes.is_empty() && state.open == 0 && !state.is_http2 && !state.body_unread {
            state.head_since.get_or_insert_with(Instant::now);
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for MonitoredStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        if let Some(status) = self.hyper_error_status(bytes) {
            self.outbox = (self.render_error)(status);
            self.state.lock().body_unread = true;
            return Poll::Ready(Ok(bytes.len()));
        }
        ready!(self.poll_outbox(context))?;
        let written = self.stream()?.poll_write(context, bytes);
        self.record_write(&written);
        written
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_outbox(context))?;
        // hyper flushes the socket only when its own buffer is empty: all responses passed to it are written.
        let mut state = self.state.lock();
        state.is_responding &= state.open > 0;
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_outbox(context))?;
        self.stream()?.poll_shutdown(context)
    }
}
