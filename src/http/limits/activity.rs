//! The time that a connection may take: to send the head of a request, to stay idle, and to read a response. A connection
//! that exceeds it is closed, and so is an idle one whose place another needs, never one with a request that has arrived.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use hyper::Version;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::config::HttpLimits;
use crate::system::locks::Mutex;

/// The activity of one connection; shared by its socket, its requests, and the task that drives it.
#[derive(Debug, Clone)]
pub struct Activity {
    state: Arc<Mutex<State>>,
    eviction: Arc<Notify>,
}

#[derive(Debug)]
struct State {
    /// The time when the connection was opened, or when its last request ended.
    idle_since: Instant,
    /// The time of the first byte of an incomplete head (HTTP/1.1 only).
    head_since: Option<Instant>,
    /// The time since which the socket accepts no more bytes, because the peer does not read.
    blocked_since: Option<Instant>,
    /// The connection has not received a request yet.
    is_new: bool,
    is_http2: bool,
    /// Requests whose response is not yet passed to the socket completely.
    open: usize,
    /// Requests whose bodies have arrived.
    running: usize,
    /// The responses under way, each with the deadline for its client to take a part of it.
    replies: BTreeMap<u64, Instant>,
    next_reply: u64,
    /// The last body was not read to its end.
    has_unread_body: bool,
    /// The connection was asked to close, and has received no request since.
    is_evicted: bool,
    /// The connection ends, whatever it receives.
    must_close: bool,
}

/// The reason to close a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CloseReason {
    /// No request for too long.
    Idle,
    /// The head of a request takes too long.
    Head,
    /// The peer reads no more of a response.
    Stuck,
    /// Another connection needs its place.
    Evicted,
}

/// A request under way. Dropped when its response is passed to the socket completely, or when it is aborted.
#[derive(Debug)]
pub struct RequestGuard {
    activity: Activity,
    began: Instant,
    has_unread_body: bool,
    is_running: bool,
    reply: Option<(u64, Duration)>,
}

impl Activity {
    pub fn new() -> Self {
        let state = State {
            idle_since: Instant::now(),
            head_since: None,
            blocked_since: None,
            is_new: true,
            is_http2: false,
            open: 0,
            running: 0,
            replies: BTreeMap::new(),
            next_reply: 0,
            has_unread_body: false,
            is_evicted: false,
            must_close: false,
        };
        Self { state: Arc::new(Mutex::new(state)), eviction: Arc::default() }
    }

    /// The time at which the connection is closed if nothing changes; `None` while a request runs.
    pub fn close_at(&self, limits: &HttpLimits) -> Option<(Instant, CloseReason)> {
        let state = self.state.lock();
        let blocked_until = state.blocked_since.map(|since| since + limits.response_time);
        if let Some(stuck_at) = state.replies.values().copied().chain(blocked_until).min() {
            Some((stuck_at, CloseReason::Stuck))
        } else if state.open > 0 {
            None
        } else if let Some(since) = state.head_since {
            Some((since + limits.header_time, CloseReason::Head))
        } else {
            let time = if state.is_new { limits.header_time } else { limits.idle_time };
            Some((state.idle_since + time, CloseReason::Idle))
        }
    }

    /// The reason to close the connection, if its time is over.
    pub fn overdue(&self, limits: &HttpLimits) -> Option<CloseReason> {
        self.close_at(limits).filter(|(at, _)| *at <= Instant::now()).map(|(_, reason)| reason)
    }

    /// Idle since this time; `None` while a request runs, or after the connection was asked to close.
    pub fn idle_since(&self) -> Option<Instant> {
        let state = self.state.lock();
        (state.running == 0 && !state.is_evicted).then_some(state.idle_since)
    }

    /// Asks the connection to close, unless it has received a request that its task has not seen yet.
    pub fn evict(&self) {
        self.state.lock().is_evicted = true;
        self.eviction.notify_one();
    }

    /// Waits until the connection is asked to end. Returns whether it may: no request has come since, or it must.
    pub async fn evicted(&self) -> bool {
        self.eviction.notified().await;
        let state = self.state.lock();
        state.is_evicted || state.must_close
    }

    /// Returns whether the peer may still be sending a body that is not read.
    pub fn has_unread_body(&self) -> bool {
        self.state.lock().has_unread_body
    }

    pub fn record_read(&self, bytes: &[u8]) {
        let mut state = self.state.lock();
        // No method of HTTP/1.1 begins like the preface of HTTP/2.
        state.is_http2 |= state.is_new && state.head_since.is_none() && bytes.starts_with(b"PRI ");
        if !bytes.is_empty() && state.open == 0 && !state.is_http2 && !state.has_unread_body {
            state.head_since.get_or_insert_with(Instant::now);
        }
    }

    pub fn record_write(&self, is_blocked: bool) {
        let mut state = self.state.lock();
        if is_blocked {
            state.blocked_since.get_or_insert_with(Instant::now);
        } else {
            state.blocked_since = None;
        }
    }

    /// Records a request with a complete head.
    pub fn begin_request(&self, version: Version, has_body: bool) -> RequestGuard {
        let mut state = self.state.lock();
        if state.open == 0 {
            state.idle_since = Instant::now();
        }
        state.open += 1;
        (state.is_new, state.is_evicted, state.has_unread_body) = (false, false, false);
        state.is_http2 = version == Version::HTTP_2;
        let began = state.head_since.take().unwrap_or_else(Instant::now);
        RequestGuard {
            activity: self.clone(),
            began,
            has_unread_body: has_body,
            is_running: false,
            reply: None,
        }
    }
}

impl RequestGuard {
    /// The arrival of the first byte of its head.
    pub fn began(&self) -> Instant {
        self.began
    }

    /// Ends the connection, with the other requests on it.
    pub fn close_connection(&self) {
        self.activity.state.lock().must_close = true;
        self.activity.eviction.notify_one();
    }

    /// Records that the body has arrived: from now on the connection is not closed for another.
    pub fn body_arrived(&mut self) {
        (self.has_unread_body, self.is_running) = (false, true);
        let mut state = self.activity.state.lock();
        state.running += 1;
        state.is_evicted = false;
    }

    /// Records that the response begins. The client must take a part of it within `patience`, and again after each.
    pub fn reply_begins(&mut self, patience: Duration) {
        let mut state = self.activity.state.lock();
        self.reply = Some((state.next_reply, patience));
        state.replies.insert(self.reply.map_or(0, |(number, _)| number), Instant::now() + patience);
        state.next_reply += 1;
        state.has_unread_body |= self.has_unread_body;
    }

    /// Records that a part of the response was asked for, taken or written.
    pub fn reply_moves(&self) {
        if let Some((number, patience)) = self.reply {
            self.activity.state.lock().replies.insert(number, Instant::now() + patience);
        }
    }
}

impl Drop for RequestGuard {
    fn drop(&mut self) {
        let mut state = self.activity.state.lock();
        state.open -= 1;
        state.running -= usize::from(self.is_running);
        if let Some((number, _)) = self.reply {
            state.replies.remove(&number);
        }
        if state.open == 0 {
            state.idle_since = Instant::now();
        }
    }
}
