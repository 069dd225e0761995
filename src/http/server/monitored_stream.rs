//! The socket under one connection: it notes what goes on, so that a silent or stuck peer can be told, and it puts
//! our answer in the place of the bare one that hyper gives to a head that it cannot read.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};

use hyper::Version;
use parking_lot::{Mutex, MutexGuard};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::Instant;

use crate::config::HttpLimits;

/// Writes our answer for a status that hyper wanted to answer by itself.
pub type ErrorRenderer = Box<dyn Fn(u16) -> Vec<u8> + Send>;

/// A socket that reports to its [`ConnectionState`].
pub struct MonitoredStream {
    /// Always there until this is dropped.
    stream: Option<TcpStream>,
    activity: ConnectionState,
    own_answer: ErrorRenderer,
    /// An own answer that is not written yet.
    outbox: Vec<u8>,
}

/// What one connection is doing; shared by its socket, its requests and the task that watches it.
#[derive(Clone)]
pub struct ConnectionState(Arc<Mutex<StreamState>>);

struct StreamState {
    /// When the connection was opened, or its last request ended.
    quiet_since: Instant,
    /// When the first byte of a head came that is not yet complete (HTTP/1.1 only).
    head_since: Option<Instant>,
    /// Since when the peer has taken nothing of what waits in the socket.
    blocked_since: Option<Instant>,
    /// Since when none of the replies that are ready was taken.
    untaken_since: Option<Instant>,
    /// Requests whose reply is not yet handed over whole.
    open: usize,
    /// Those of them whose reply is ready.
    ready: usize,
    /// HTTP/2, by its first bytes.
    h2: bool,
    /// No request has come yet.
    fresh: bool,
    /// What is written belongs to a reply of ours.
    replying: bool,
    /// The last request's body was not read to its end: what comes is no head.
    unread: bool,
    /// It is to end unless a request comes before it does.
    unwanted: bool,
    /// The task that watches the connection.
    watcher: Option<Waker>,
    /// The socket, when the connection is over.
    returned: Option<TcpStream>,
}

/// Why a connection has to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TimeoutReason {
    /// Nothing under way for too long.
    Idle,
    /// A head that began and does not end.
    Head,
    /// The peer does not take what it asked for.
    Stuck,
    /// Others wait for the place of one that has nothing to say.
    Unwanted,
}

/// How little a connection is used, the least first; of those that are alike the one that has been so for longest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Idleness {
    /// It has sent nothing yet.
    Silent(Instant),
    /// It had its answers and may ask again.
    Kept(Instant),
    /// It has sent a part of a head.
    Half(Instant),
}

impl ConnectionState {
    /// A connection that was just opened.
    pub fn begin() -> Self {
        Self(Arc::new(Mutex::new(StreamState {
            quiet_since: Instant::now(),
            head_since: None,
            blocked_since: None,
            untaken_since: None,
            open: 0,
            ready: 0,
            h2: false,
            fresh: true,
            replying: false,
            unread: false,
            unwanted: false,
            watcher: None,
            returned: None,
        })))
    }

    /// The next moment at which the connection may be overdue, and for what; nothing for one that has only to be
    /// looked at again then.
    pub fn next_check(&self, config: &HttpLimits) -> (Instant, Option<TimeoutReason>) {
        let state = self.state();
        if let Some(since) = state.blocked_since.or(state.untaken_since) {
            (since + config.request_time, Some(TimeoutReason::Stuck))
        } else if state.open > 0 {
            (Instant::now() + config.request_time, None)
        } else if state.unwanted {
            (Instant::now(), Some(TimeoutReason::Unwanted))
        } else if let Some(since) = state.head_since {
            (since + config.header_time, Some(TimeoutReason::Head))
        } else if state.fresh {
            (state.quiet_since + config.header_time, Some(TimeoutReason::Idle))
        } else {
            (state.quiet_since + config.idle_time, Some(TimeoutReason::Idle))
        }
    }

    /// How little the connection is used; nothing while a request is under way, or when its end was asked for.
    pub fn idleness(&self) -> Option<Idleness> {
        let state = self.state();
        if state.open > 0 || state.unwanted {
            return None;
        }
        Some(match state.head_since {
            Some(since) => Idleness::Half(since),
            None if state.fresh => Idleness::Silent(state.quiet_since),
            None => Idleness::Kept(state.quiet_since),
        })
    }

    /// Ends the connection, unless a request comes before its task has seen this.
    pub fn give_place(&self) {
        let mut state = self.state();
        state.unwanted = true;
        if let Some(watcher) = state.watcher.take() {
            watcher.wake();
        }
    }

    /// The task that looks at [`ConnectionState::next_check`], to be woken when the answer has changed for another reason
    /// than what the connection does.
    pub fn watched_by(&self, waker: &Waker) {
        let watcher = &mut self.state().watcher;
        if !watcher.as_ref().is_some_and(|known| known.will_wake(waker)) {
            *watcher = Some(waker.clone());
        }
    }

    /// A request's head is complete.
    pub fn request(&self, version: Version) -> RequestGuard {
        let mut state = self.state();
        state.h2 = version == Version::HTTP_2;
        state.open += 1;
        state.fresh = false;
        state.unread = false;
        let began = state.head_since.take().unwrap_or_else(Instant::now);
        RequestGuard { activity: self.clone(), began, ready: false }
    }

    /// The socket once the connection has given it up, and whether a request's body may still be coming in on it.
    pub fn take_back(&self) -> (Option<TcpStream>, bool) {
        let mut state = self.state();
        (state.returned.take(), state.unread)
    }

    fn state(&self) -> MutexGuard<'_, StreamState> {
        self.0.lock()
    }
}

/// A request under way, until its reply is handed over whole (or it is given up).
pub struct RequestGuard {
    activity: ConnectionState,
    began: Instant,
    ready: bool,
}

impl RequestGuard {
    /// When the first byte of its head came.
    pub fn began(&self) -> Instant {
        self.began
    }

    /// Its reply is ready; `unread` says that its body was not read to the end.
    pub fn reply_ready(&mut self, unread: bool) {
        let mut state = self.activity.state();
        self.ready = true;
        state.ready += 1;
        state.untaken_since.get_or_insert_with(Instant::now);
        state.replying = true;
        state.unread |= unread;
    }
}

impl Drop for RequestGuard {
    fn drop(&mut self) {
        let mut state = self.activity.state();
        let now = Instant::now();
        state.open -= 1;
        if self.ready {
            state.ready -= 1;
            state.untaken_since = (state.ready > 0).then_some(now);
        }
        if state.open == 0 {
            state.quiet_since = now;
        }
    }
}

impl MonitoredStream {
    /// A socket that reports to `activity`.
    pub fn new(stream: TcpStream, activity: ConnectionState, own_answer: ErrorRenderer) -> Self {
        Self { stream: Some(stream), activity, own_answer, outbox: Vec::new() }
    }

    fn stream(&mut self) -> io::Result<Pin<&mut TcpStream>> {
        self.stream.as_mut().map(Pin::new).ok_or_else(|| io::ErrorKind::NotConnected.into())
    }

    /// Bytes that hyper writes while no request of ours has asked for any are its own answer to a bad head: one
    /// status line and two headers, always in one piece and always the last thing on the connection.
    fn status_of_own_answer(&self, bytes: &[u8]) -> Option<u16> {
        let state = self.activity.state();
        if state.h2 || state.open > 0 || state.replying {
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
            self.note_write(&written);
            self.outbox = bytes;
            let written = ready!(written)?;
            self.outbox.drain(..written);
        }
        Poll::Ready(Ok(()))
    }

    fn note_write(&self, written: &Poll<io::Result<usize>>) {
        let mut state = self.activity.state();
        if written.is_pending() {
            state.blocked_since.get_or_insert_with(Instant::now);
        } else {
            state.blocked_since = None;
        }
    }
}

impl Drop for MonitoredStream {
    fn drop(&mut self) {
        self.activity.state().returned = self.stream.take();
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
        let mut state = self.activity.state();
        if state.fresh && state.head_since.is_none() {
            // hyper decides by the whole preface; no HTTP/1.1 method begins like it.
            state.h2 = bytes.starts_with(b"PRI ");
        }
        if !bytes.is_empty() && state.open == 0 && !state.h2 && !state.unread {
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
        if let Some(status) = self.status_of_own_answer(bytes) {
            self.outbox = (self.own_answer)(status);
            self.activity.state().unread = true;
            return Poll::Ready(Ok(bytes.len()));
        }
        ready!(self.poll_outbox(context))?;
        let written = self.stream()?.poll_write(context, bytes);
        self.note_write(&written);
        written
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_outbox(context))?;
        // hyper flushes the socket only when its own buffer is empty: all replies handed over are written.
        let mut state = self.activity.state();
        state.replying &= state.open > 0;
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_outbox(context))?;
        self.stream()?.poll_shutdown(context)
    }
}
