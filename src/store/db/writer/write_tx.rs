//! A write transaction, and its effects after the commit.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::ops::Deref;

use jiff::Timestamp;
use rusqlite::Connection;

use crate::domain::notification::event::{Emitted, Event, EventSink, EventType, MAX_SINGLE_PER_COMMIT};
use crate::error::Result;
use crate::store::db::counters::CounterDeltas;
use crate::store::db::readers::ReadTx;
use crate::store::db::write_stats::{EventCounts, WriteEvent};

/// The engine threads to wake after a commit.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct WakeSet {
    /// Something falls due at this instant, which may be earlier than the scheduler's next pass.
    pub schedule: Option<Timestamp>,
    /// An execution is ready to be sent.
    pub send: bool,
    /// An execution is ready to be claimed.
    pub claim: bool,
    /// A failure notification is ready to be sent.
    pub notifications: bool,
}

impl WakeSet {
    pub(in crate::store::db::writer) fn merge(self, other: Self) -> Self {
        Self {
            schedule: self.schedule.into_iter().chain(other.schedule).min(),
            send: self.send || other.send,
            claim: self.claim || other.claim,
            notifications: self.notifications || other.notifications,
        }
    }
}

pub(in crate::store::db::writer) type CommitHook = Box<dyn FnOnce() + Send>;

/// A write transaction. Dereferences to [`ReadTx`], so that every function that reads also works in a write.
pub struct WriteTx<'a> {
    read: ReadTx<'a>,
    pub(in crate::store::db::writer) wake: Cell<WakeSet>,
    counters: CounterDeltas,
    pub(in crate::store::db::writer) events: EventCounts,
    pub(in crate::store::db::writer) on_commit: RefCell<Vec<CommitHook>>,
    /// The receiver of events; `None` while nobody follows them.
    sink: Option<&'a dyn EventSink>,
    pub(in crate::store::db::writer) emitted: RefCell<Vec<Emitted>>,
    /// Single events of each user.
    singles: RefCell<BTreeMap<i64, u32>>,
}

impl<'a> WriteTx<'a> {
    pub(in crate::store::db::writer) fn new(
        connection: &'a Connection,
        sink: Option<&'a dyn EventSink>,
    ) -> Self {
        Self {
            sink: sink.filter(|sink| sink.is_watched()),
            emitted: RefCell::default(),
            singles: RefCell::default(),
            read: ReadTx::new(connection),
            wake: Cell::default(),
            counters: CounterDeltas::default(),
            events: EventCounts::default(),
            on_commit: RefCell::default(),
        }
    }

    /// A transaction for a part of this write, without effects so far.
    pub(in crate::store::db::writer) fn begin_part(&self) -> Self {
        let part = Self::new(self.read.connection(), self.sink);
        part.singles.replace(self.singles.borrow().clone());
        part
    }

    /// Adds the effects of a part of this write that succeeded.
    pub(in crate::store::db::writer) fn end_part(&self, part: Self) {
        self.wake(part.wake.get());
        self.events.add_all(&part.events);
        self.on_commit.borrow_mut().append(&mut part.on_commit.take());
        self.emitted.borrow_mut().append(&mut part.emitted.take());
        self.singles.replace(part.singles.take());
    }

    /// The changes of this write to the stored counters. They are stored at its end.
    pub fn counters(&self) -> &CounterDeltas {
        &self.counters
    }

    /// Counts events for the metrics, unless this write is rolled back.
    pub fn count(&self, event: WriteEvent, times: u64) {
        self.events.add(event, times);
    }

    /// Wakes the threads in `wake` after the commit that makes this write durable; not if the write fails.
    pub fn wake(&self, wake: WakeSet) {
        self.wake.set(self.wake.get().merge(wake));
    }

    /// Returns whether anybody follows the events of any user.
    pub fn is_watched(&self) -> bool {
        self.sink.is_some()
    }

    /// Emits an event of a user after the commit that makes this write durable, unless the write fails. `build` reads what
    /// the event says, and runs only if the user follows events and gets this one as a single event. An error of it is
    /// logged: whether somebody watches must not change the result of a write.
    pub fn emit(&self, user_key: i64, event_type: EventType, build: impl FnOnce() -> Result<Option<Event>>) {
        if !self.sink.is_some_and(|sink| sink.is_watched_by(user_key)) {
            return;
        }
        let is_counted = {
            let mut singles = self.singles.borrow_mut();
            let singles = singles.entry(user_key).or_default();
            *singles += 1;
            *singles > MAX_SINGLE_PER_COMMIT
        };
        let emitted = match build_unless(is_counted, build) {
            Ok(None) => Some(Emitted::Counted { user_key, event_type }),
            Ok(Some(event)) => event.map(Emitted::Event),
            Err(error) => {
                self.on_commit(move || {
                    tracing::error!(event_type = event_type.as_str(), %error, "an event cannot be built");
                });
                None
            }
        };
        self.emitted.borrow_mut().extend(emitted);
    }

    /// Runs `action` after the commit that makes this write durable, before its caller gets the result; not at all if
    /// the write fails. For log lines: inside the transaction they would report what may still be rolled back.
    ///
    /// It runs on the writer's thread, so other writes wait for it.
    pub fn on_commit(&self, action: impl FnOnce() + Send + 'static) {
        self.on_commit.borrow_mut().push(Box::new(action));
    }
}

impl<'a> Deref for WriteTx<'a> {
    type Target = ReadTx<'a>;

    fn deref(&self) -> &ReadTx<'a> {
        &self.read
    }
}

/// `None` if the event is only counted.
fn build_unless(
    is_counted: bool,
    build: impl FnOnce() -> Result<Option<Event>>,
) -> Result<Option<Option<Event>>> {
    if is_counted { Ok(None) } else { build().map(Some) }
}
