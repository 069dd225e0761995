//! The users whose events are recorded, and the record.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::domain::notification::event::{Emitted, MAX_SINGLE_PER_COMMIT};
use crate::events::ring::{Ring, RingEventBody};
use crate::events::share::Share;

/// Time for which events of a user are recorded after the end of the last stream: a client that lost its connection
/// resumes without a gap.
const KEPT_AFTER_LAST: Duration = Duration::from_secs(60);

#[derive(Default)]
pub struct Recording {
    pub ring: Ring,
    pub users: BTreeMap<i64, FollowedUser>,
    pub streams: usize,
}

/// A user whose events are recorded.
pub struct FollowedUser {
    pub streams: usize,
    /// The number of the last event before the recording began.
    pub since: u64,
    /// Every write that began before the recording has ended. Those writes have no events.
    pub is_complete: bool,
    /// The end of the last stream.
    pub left_at: Duration,
    pub share: Share,
}

impl Recording {
    pub fn record(&mut self, events: Vec<Emitted>, now: Duration) {
        let mut of_commit = BTreeMap::<i64, u32>::new();
        for emitted in events {
            let (user_key, event_type, event) = match emitted {
                Emitted::Counted { user_key, event_type } => (user_key, event_type, None),
                Emitted::Event(event) => match event.user_key {
                    Some(user_key) => (user_key, event.event_type, Some(event)),
                    None => {
                        self.end_bursts();
                        self.ring.push(None, RingEventBody::Single(event));
                        continue;
                    }
                },
            };
            let Some(user) = self.users.get_mut(&user_key) else { continue };
            if let Some(burst) = user.share.take_due(now) {
                self.ring.push(Some(user_key), RingEventBody::Burst(burst));
            }
            let singles = of_commit.entry(user_key).or_default();
            *singles += 1;
            match event.filter(|_| *singles <= MAX_SINGLE_PER_COMMIT && user.share.has_room(now)) {
                Some(event) => self.ring.push(Some(user_key), RingEventBody::Single(event)),
                None => user.share.count(event_type, now),
            }
        }
        for user_key in of_commit.into_keys() {
            let burst = self.users.get_mut(&user_key).and_then(|user| user.share.take_of_commit(now));
            if let Some(burst) = burst {
                self.ring.push(Some(user_key), RingEventBody::Burst(burst));
            }
        }
    }

    /// Forgets users whose last stream ended a while ago. Returns whether nobody is left.
    pub fn forget_left(&mut self, now: Duration) -> bool {
        self.users.retain(|_, user| user.streams > 0 || now < user.left_at + KEPT_AFTER_LAST);
        if self.users.is_empty() {
            self.ring.clear();
        }
        self.users.is_empty()
    }

    /// Hands out the burst of a user, also one that is not due.
    pub fn end_burst(&mut self, user_key: i64) {
        if let Some(burst) = self.users.get_mut(&user_key).and_then(|user| user.share.take()) {
            self.ring.push(Some(user_key), RingEventBody::Burst(burst));
        }
    }

    /// Hands out all bursts: an event of the server comes after all that has happened before it.
    fn end_bursts(&mut self) {
        for (user_key, user) in &mut self.users {
            if let Some(burst) = user.share.take() {
                self.ring.push(Some(*user_key), RingEventBody::Burst(burst));
            }
        }
    }
}
