//! Limits on what each caller does within minutes or hours, counted in memory: failed sign-ins (contract §3.11), registrations
//! (§3.2), and the calls of accounts whose address is unconfirmed (§3.10).

use std::collections::{HashMap, VecDeque};
use std::hash::Hash;

use jiff::{SignedDuration, Timestamp};

use crate::domain::time::saturating_add;

/// Callers that are counted, with about 1 KB each at the largest limit. Above it the one that was silent longest is dropped,
/// which whoever has so many addresses or accounts gains nothing from.
const MAX_CALLERS: usize = 4_096;

/// What each caller did within the window. A restart forgets it.
#[derive(Debug)]
pub struct WindowedLimiter<K> {
    limit: usize,
    window: SignedDuration,
    counted: HashMap<K, VecDeque<Timestamp>>,
}

impl<K: Copy + Eq + Hash> WindowedLimiter<K> {
    pub fn new(limit: usize, window: SignedDuration) -> Self {
        Self { limit, window, counted: HashMap::new() }
    }

    /// Counts one at `now`, until it is taken back. Returns the seconds until another is admitted if this one is not.
    pub fn admit(&mut self, caller: K, now: Timestamp) -> Option<u32> {
        let refused_for = self.refused_for(caller, now);
        if refused_for.is_none() {
            if self.counted.len() >= MAX_CALLERS && !self.counted.contains_key(&caller) {
                self.make_room(now);
            }
            self.counted.entry(caller).or_default().push_back(now);
        }
        refused_for
    }

    /// The seconds until another is admitted, if none is at `now`. Counts nothing.
    pub fn refused_for(&mut self, caller: K, now: Timestamp) -> Option<u32> {
        let counted = self.counted.get_mut(&caller)?;
        forget(counted, self.window, now);
        let oldest = counted.front().filter(|_| counted.len() >= self.limit)?;
        let millis = saturating_add(*oldest, self.window).duration_since(now).as_millis();
        Some(u32::try_from((millis + 999) / 1_000).unwrap_or(1).max(1))
    }

    /// Takes back the newest one, which turned out not to count.
    pub fn give_back(&mut self, caller: K) {
        if let Some(counted) = self.counted.get_mut(&caller) {
            counted.pop_back();
            if counted.is_empty() {
                self.counted.remove(&caller);
            }
        }
    }

    /// Forgets the caller, who is no longer limited.
    pub fn forget(&mut self, caller: K) {
        self.counted.remove(&caller);
    }

    fn make_room(&mut self, now: Timestamp) {
        let window = self.window;
        self.counted.retain(|_, counted| {
            forget(counted, window, now);
            !counted.is_empty()
        });
        let silent = self.counted.iter().min_by_key(|(_, counted)| counted.back().copied());
        if let Some(silent) = silent.map(|(caller, _)| *caller).filter(|_| self.counted.len() >= MAX_CALLERS)
        {
            self.counted.remove(&silent);
        }
    }
}

/// Drops what is outside the window, also what is later than `now` by a clock that was set back.
fn forget(counted: &mut VecDeque<Timestamp>, window: SignedDuration, now: Timestamp) {
    counted.retain(|at| *at <= now && saturating_add(*at, window) > now);
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::*;

    /// Ten in 15 minutes.
    fn limiter() -> WindowedLimiter<IpAddr> {
        WindowedLimiter::new(10, SignedDuration::from_mins(15))
    }

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(1_900_000_000 + seconds).unwrap()
    }

    #[test]
    fn the_11th_waits_until_the_first_has_left_the_window() {
        let (mut limiter, client) = (limiter(), "192.0.2.1".parse().unwrap());
        for second in 0..10 {
            assert_eq!(limiter.admit(client, at(second)), None);
        }
        assert_eq!([limiter.refused_for(client, at(10)), limiter.admit(client, at(10))], [Some(890); 2]);
        assert_eq!(limiter.admit("192.0.2.2".parse().unwrap(), at(10)), None);
        assert_eq!(limiter.admit(client, at(899)), Some(1));
        assert_eq!(limiter.admit(client, at(900)), None);
    }

    #[test]
    fn what_is_taken_back_does_not_count() {
        let (mut limiter, client) = (limiter(), "2001:db8::1".parse().unwrap());
        for _ in 0..100 {
            assert_eq!(limiter.admit(client, at(0)), None);
            limiter.give_back(client);
        }
        assert!(limiter.counted.is_empty());
    }

    #[test]
    fn the_number_of_callers_is_bounded() {
        let mut limiter = limiter();
        for number in 0..5_000_u32 {
            assert_eq!(limiter.admit(IpAddr::from(number.to_be_bytes()), at(i64::from(number) / 100)), None);
        }
        assert_eq!(limiter.counted.len(), MAX_CALLERS);
        limiter.admit(IpAddr::from([9, 9, 9, 9]), at(2_000));
        assert_eq!(limiter.counted.len(), 1);
    }
}
