//! The newest events of all followed users.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use crate::domain::notification::event::{Event, EventFilter, EventType};

/// Events in the ring: at the usual few a second, a client may be away for many minutes.
const MAX_EVENTS: usize = 4_096;

/// Bytes of events in the ring. An event has about 500, and a long error message makes it 2,000.
const MAX_BYTES: usize = 4 << 20;

/// Bytes of an event beside its texts.
const EVENT_COST: usize = 160;

/// An event with its number.
#[derive(Debug)]
pub struct RingEvent {
    /// Grows with each event; not every number exists.
    pub number: u64,
    /// `None` for an event of the server.
    pub user_key: Option<i64>,
    pub body: RingEventBody,
}

#[derive(Debug)]
pub enum RingEventBody {
    Single(Event),
    Burst(Burst),
}

/// Events that were too many to be kept one by one.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Burst {
    /// From the first to the last of them.
    pub span_ms: u64,
    pub counts: BTreeMap<EventType, u64>,
}

impl Burst {
    /// The part of it that `filter` admits.
    pub fn filtered(&self, filter: &EventFilter) -> BTreeMap<EventType, u64> {
        let all = filter.has_type(EventType::Burst);
        let mut counts = self.counts.clone();
        counts.retain(|event_type, _| all || filter.has_type(*event_type));
        counts
    }
}

impl RingEventBody {
    /// A burst may have events of any cue.
    pub fn is_admitted_by(&self, filter: &EventFilter) -> bool {
        match self {
            Self::Single(event) => filter.admits(event),
            Self::Burst(burst) => !burst.filtered(filter).is_empty(),
        }
    }

    pub fn bytes(&self) -> usize {
        EVENT_COST
            + match self {
                Self::Single(event) => event.data.len() + event.cue_id.as_ref().map_or(0, String::len),
                Self::Burst(burst) => burst.counts.len() * 2 * size_of::<u64>(),
            }
    }
}

/// The events, oldest first.
#[derive(Debug, Default)]
pub struct Ring {
    events: VecDeque<Arc<RingEvent>>,
    bytes: usize,
    /// The number of the last event.
    last: u64,
    /// The number of the last event that was dropped.
    dropped: u64,
}

impl Ring {
    pub fn last(&self) -> u64 {
        self.last
    }

    /// Passes over a number, and returns it.
    pub fn skip(&mut self) -> u64 {
        self.last += 1;
        self.last
    }

    pub fn push(&mut self, user_key: Option<i64>, body: RingEventBody) {
        self.last += 1;
        self.bytes += body.bytes();
        self.events.push_back(Arc::new(RingEvent { number: self.last, user_key, body }));
        while self.events.len() > MAX_EVENTS || self.bytes > MAX_BYTES {
            let Some(oldest) = self.events.pop_front() else { break };
            self.bytes -= oldest.body.bytes();
            self.dropped = oldest.number;
        }
    }

    /// Returns whether no event after `position` was dropped.
    pub fn is_complete_after(&self, position: u64) -> bool {
        position >= self.dropped
    }

    /// The events after `position`.
    pub fn after(&self, position: u64) -> impl Iterator<Item = &Arc<RingEvent>> {
        let from = self.events.partition_point(|event| event.number <= position);
        self.events.range(from..)
    }

    /// Drops all events and their memory.
    pub fn clear(&mut self) {
        self.dropped = self.last;
        self.bytes = 0;
        self.events = VecDeque::new();
    }
}
