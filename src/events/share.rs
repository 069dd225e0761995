//! The number of single events that one user gets in a second; the others are counted in a `burst`.

use std::time::Duration;

use crate::domain::notification::event::EventType;
use crate::events::ring::Burst;

/// Single events of a user in a second. A page redraws no faster, and the ring holds 20 seconds of it.
const MAX_PER_SECOND: u32 = 200;

const WINDOW: Duration = Duration::from_secs(1);

/// The events that a user has got in the present second. A second begins with the first event after the last one.
#[derive(Debug, Default)]
pub struct Share {
    began: Duration,
    singles: u32,
    /// Events that are only counted, and the time of the first of them.
    pending: Burst,
    pending_since: Duration,
}

impl Share {
    /// Takes a place for a single event at `now`. After the first refusal there is none before the end of the second, so
    /// that no single event overtakes a burst.
    pub fn has_room(&mut self, now: Duration) -> bool {
        self.begin_if_over(now);
        let has_room = self.singles < MAX_PER_SECOND;
        self.singles += u32::from(has_room);
        has_room
    }

    /// Counts an event that gets no place.
    pub fn count(&mut self, event_type: EventType, now: Duration) {
        self.begin_if_over(now);
        if self.pending.counts.is_empty() {
            self.pending_since = now;
        }
        self.pending.span_ms =
            u64::try_from(now.saturating_sub(self.pending_since).as_millis()).unwrap_or(u64::MAX);
        *self.pending.counts.entry(event_type).or_default() += 1;
    }

    /// The burst of a commit, unless the second has no more single events: then it waits for the end of the second.
    pub fn take_of_commit(&mut self, now: Duration) -> Option<Burst> {
        if self.singles < MAX_PER_SECOND { self.take() } else { self.take_due(now) }
    }

    /// The burst of a second that is over.
    pub fn take_due(&mut self, now: Duration) -> Option<Burst> {
        if self.due_at().is_some_and(|due| due <= now) { self.take() } else { None }
    }

    /// The end of the second, if a burst waits for it.
    pub fn due_at(&self) -> Option<Duration> {
        (!self.pending.counts.is_empty()).then_some(self.began + WINDOW)
    }

    fn begin_if_over(&mut self, now: Duration) {
        if now >= self.began + WINDOW && self.pending.counts.is_empty() {
            (self.began, self.singles) = (now, 0);
        }
    }

    /// The burst, also before the end of the second.
    pub fn take(&mut self) -> Option<Burst> {
        let burst = std::mem::take(&mut self.pending);
        (!burst.counts.is_empty()).then_some(burst)
    }
}
