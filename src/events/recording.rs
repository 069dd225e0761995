//! The users whose events are recorded, and the record.

use std::collections::BTreeMap;
use std::net::IpAddr;
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
    /// In the order of their numbers.
    pub streams: Vec<OpenStream>,
    last_stream: u64,
}

pub struct OpenStream {
    number: u64,
    user_key: i64,
    address: IpAddr,
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
    /// Adds a stream and returns its number.
    pub fn begin(&mut self, user_key: i64, address: IpAddr) -> u64 {
        self.last_stream += 1;
        self.streams.push(OpenStream { number: self.last_stream, user_key, address });
        self.last_stream
    }

    /// Removes a stream, unless it has given way before.
    pub fn end(&mut self, number: u64, now: Duration) {
        let Some(index) = self.position(number) else { return };
        let stream = self.streams.remove(index);
        if let Some(user) = self.users.get_mut(&stream.user_key) {
            user.streams = user.streams.saturating_sub(1);
            user.left_at = now;
        }
    }

    /// The position of an open stream.
    pub fn position(&self, number: u64) -> Option<usize> {
        self.streams.binary_search_by_key(&number, |stream| stream.number).ok()
    }

    /// The stream that gives way to one of `user_key` at `address`: the newest of the user, or else of the address, that
    /// has most. Only to a user or an address without a stream, and only one of several.
    pub fn stream_to_end(&self, user_key: i64, address: IpAddr) -> Option<u64> {
        let (mut of_user, mut of_address) = (BTreeMap::new(), BTreeMap::new());
        for stream in &self.streams {
            *of_user.entry(stream.user_key).or_insert(0) += 1;
            *of_address.entry(stream.address).or_insert(0) += 1;
        }
        let (is_new_user, is_new_address) =
            (!of_user.contains_key(&user_key), !of_address.contains_key(&address));
        let ranks = self.streams.iter().map(|it| (of_user[&it.user_key], of_address[&it.address], it.number));
        let may_end = |(user, address, _): &(u32, u32, u64)| match (is_new_user, is_new_address) {
            (true, true) => *user > 1 || *address > 1,
            (true, false) => *user > 1,
            (false, true) => *address > 1,
            (false, false) => false,
        };
        ranks.filter(may_end).max().map(|(_, _, number)| number)
    }

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
