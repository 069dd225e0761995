//! Live events in memory: those of the last moments, and the streams that read them (contract §8.13).
//!
//! A commit puts its events into one ring that all streams share; a stream is a position in it. So a slow stream costs
//! nothing, and the writer thread waits for no reader. Only users with a stream, and those who had one a minute ago, have
//! their events recorded.

mod recording;
mod ring;
mod share;

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::watch;

use crate::domain::notification::event::{Emitted, Event, EventFilter, EventSink};
use crate::domain::text::hex;
use crate::domain::text::word_enum::word_enum;
use crate::error::Result;
use crate::events::recording::{FollowedUser, Recording};
use crate::events::share::Share;
use crate::locks::Mutex;
use crate::metrics::{Counter, Stopwatch};
use crate::random;

pub use crate::events::ring::{RingEvent, RingEventBody};

/// Streams of one user: two devices with a page and a terminal each.
pub const MAX_STREAMS_PER_USER: usize = 5;

/// Events and bytes of them that a stream takes at a time. They bound its memory: an event has about 500 bytes.
const MAX_TAKEN: usize = 32;
const MAX_TAKEN_BYTES: usize = 4 << 10;

/// The events of the server's users.
pub struct Events {
    boot: String,
    is_watched: AtomicBool,
    state: Mutex<Recording>,
    /// The number of the last event. Its change wakes the streams.
    last: watch::Sender<u64>,
    clock: Stopwatch,
    max_streams: usize,
    recorded: Counter,
}

/// A position in the events of this start of the program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventId {
    boot: String,
    number: u64,
}

impl EventId {
    /// Reads an id as a stream sends it, such as `5f3a9c-1842`.
    pub fn parse(text: &str) -> Option<Self> {
        let (boot, number) = text.split_once('-')?;
        let is_boot = boot.len() == 6 && boot.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        let is_number = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
        let number = if is_number { number.parse().ok()? } else { return None };
        is_boot.then(|| Self { boot: boot.to_owned(), number })
    }
}

word_enum! {
    /// The reason for which a client must read anew what it shows.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum ResetReason {
        /// The id belongs to an earlier start of the program.
        Restart = "restart",
        /// Events after the id are no longer kept, or were not recorded.
        Gap = "gap",
        /// The stream was too slow.
        Lagged = "lagged",
    }
}

/// The beginning of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StreamStart {
    /// With the present.
    Now,
    /// After the id that the client gave.
    Resumed,
    /// With the present, because the id is of no use.
    Reset(ResetReason),
}

/// The reason for which a stream is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TooManyStreams {
    /// Of the user.
    OfUser,
    /// Of the server, at this limit.
    OfServer(usize),
}

impl Events {
    /// No event is recorded before the first stream begins. At most `max_streams` are open at a time.
    /// Errors: the operating system returns no random bytes.
    pub fn new(max_streams: usize) -> Result<Self> {
        Ok(Self {
            boot: hex::encode(&random::bytes::<3>()?),
            is_watched: AtomicBool::new(false),
            state: Mutex::default(),
            last: watch::Sender::new(0),
            clock: Stopwatch::start(),
            max_streams,
            recorded: Counter::default(),
        })
    }

    /// The number of open streams.
    pub fn streams(&self) -> usize {
        self.state.lock().streams.len()
    }

    /// The number of events that were recorded since the start.
    pub fn recorded(&self) -> u64 {
        self.recorded.get()
    }

    /// Begins a stream of a user at `address`, after `after` if that is possible. Where the server has the most streams,
    /// one that gives way ends.
    /// Errors: the user has the most streams already, or the server has and none gives way.
    pub fn subscribe(
        self: &Arc<Self>,
        user_key: i64,
        address: IpAddr,
        after: Option<&EventId>,
    ) -> std::result::Result<(EventStream, StreamStart), TooManyStreams> {
        let now = self.clock.elapsed();
        let mut state = self.state.lock();
        state.forget_left(now);
        if state.users.get(&user_key).is_some_and(|user| user.streams >= MAX_STREAMS_PER_USER) {
            return Err(TooManyStreams::OfUser);
        }
        if state.streams.len() >= self.max_streams {
            let ends = state.stream_to_end(user_key, address);
            state.end(ends.ok_or(TooManyStreams::OfServer(self.max_streams))?, now);
            // Wakes it.
            self.last.send_replace(state.ring.last());
        }
        let number = state.begin(user_key, address);
        let Recording { ring, users, .. } = &mut *state;
        let user = users.entry(user_key).or_insert_with(|| {
            // A number of its own: an id of an earlier recording must not seem to be one of this.
            let since = ring.skip();
            FollowedUser { streams: 0, since, is_complete: false, left_at: now, share: Share::default() }
        });
        user.streams += 1;
        let present = ring.last();
        let (position, start) = match after {
            None => (present, StreamStart::Now),
            Some(id) if id.boot != self.boot => (present, StreamStart::Reset(ResetReason::Restart)),
            Some(id)
                if id.number >= user.since && id.number <= present && ring.is_complete_after(id.number) =>
            {
                (id.number, StreamStart::Resumed)
            }
            Some(_) => (present, StreamStart::Reset(ResetReason::Gap)),
        };
        self.is_watched.store(true, Ordering::SeqCst);
        let changed = self.last.subscribe();
        Ok((EventStream { events: Arc::clone(self), number, user_key, position, changed }, start))
    }

    /// Hands out the `burst` of a user, also one that is not due.
    pub fn flush(&self, user_key: i64) {
        let mut state = self.state.lock();
        let before = state.ring.last();
        state.end_burst(user_key);
        let last = state.ring.last();
        drop(state);
        self.recorded.add(last - before);
        self.last.send_replace(last);
    }

    /// Hands out an event of the server, which all streams get.
    pub fn publish_server(&self, event: Event) {
        if self.is_watched() {
            self.publish(vec![Emitted::Event(event)]);
        }
    }
}

impl EventSink for Events {
    fn is_watched(&self) -> bool {
        self.is_watched.load(Ordering::Relaxed)
    }

    fn is_watched_by(&self, user_key: i64) -> bool {
        let now = self.clock.elapsed();
        let mut state = self.state.lock();
        if state.forget_left(now) {
            self.is_watched.store(false, Ordering::SeqCst);
        }
        state.users.contains_key(&user_key)
    }

    fn publish(&self, events: Vec<Emitted>) {
        let now = self.clock.elapsed();
        let mut state = self.state.lock();
        let before = state.ring.last();
        state.record(events, now);
        let last = state.ring.last();
        drop(state);
        self.recorded.add(last - before);
        // Also without a new event: a burst may have begun, whose end the streams await.
        self.last.send_replace(last);
    }
}

/// The place of one stream in the events. Dropping it makes room for another.
pub struct EventStream {
    events: Arc<Events>,
    number: u64,
    user_key: i64,
    /// The number of the last event that it has passed.
    position: u64,
    changed: watch::Receiver<u64>,
}

impl EventStream {
    /// The id of its position.
    pub fn id(&self) -> String {
        self.id_of(self.position)
    }

    pub fn user_key(&self) -> i64 {
        self.user_key
    }

    /// Returns whether the stream has given way to another.
    pub fn has_ended(&self) -> bool {
        self.events.state.lock().position(self.number).is_none()
    }

    pub fn id_of(&self, number: u64) -> String {
        format!("{}-{number}", self.events.boot)
    }

    /// The next events of the user that `filter` admits, a few at a time; empty at the end of the ring. A stream that is
    /// too slow is moved to the present.
    /// Errors: events after its position are no longer in the ring.
    pub fn take(&mut self, filter: &EventFilter) -> std::result::Result<Vec<Arc<RingEvent>>, ResetReason> {
        // Before the look, so that an event in between wakes the stream.
        self.changed.borrow_and_update();
        let state = self.events.state.lock();
        if !state.ring.is_complete_after(self.position) {
            self.position = state.ring.last();
            return Err(ResetReason::Lagged);
        }
        let (mut taken, mut bytes) = (Vec::new(), 0);
        for event in state.ring.after(self.position) {
            let is_own = event.user_key.is_none_or(|user_key| user_key == self.user_key);
            if is_own && event.body.is_admitted_by(filter) {
                if taken.len() == MAX_TAKEN || bytes > MAX_TAKEN_BYTES {
                    return Ok(taken);
                }
                bytes += event.body.bytes();
                taken.push(Arc::clone(event));
            }
            self.position = event.number;
        }
        Ok(taken)
    }

    /// Waits for further events, or for the beginning of a burst.
    pub fn changes(&mut self) -> &mut watch::Receiver<u64> {
        &mut self.changed
    }

    /// The time until the burst of the user is due, if one has begun.
    pub fn burst_due_in(&self) -> Option<Duration> {
        let now = self.events.clock.elapsed();
        let state = self.events.state.lock();
        state
            .users
            .get(&self.user_key)
            .and_then(|user| user.share.due_at())
            .map(|due| due.saturating_sub(now))
    }

    /// Returns whether a write may be open that began before the events of the user were recorded. Nobody gets its events:
    /// its end must be awaited before a client reads what its events would change.
    pub fn awaits_earlier_writes(&self) -> bool {
        let state = self.events.state.lock();
        !state.users.get(&self.user_key).is_some_and(|user| user.is_complete)
    }

    /// Records that the writes which [`EventStream::awaits_earlier_writes`] means have ended.
    pub fn earlier_writes_ended(&self) {
        if let Some(user) = self.events.state.lock().users.get_mut(&self.user_key) {
            user.is_complete = true;
        }
    }

    /// Hands out the burst of the user, also one that is not due.
    pub fn flush(&self) {
        self.events.flush(self.user_key);
    }
}

impl Drop for EventStream {
    fn drop(&mut self) {
        let now = self.events.clock.elapsed();
        self.events.state.lock().end(self.number, now);
    }
}
