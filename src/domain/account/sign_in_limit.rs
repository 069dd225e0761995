//! The limit on failed sign-ins of a client address (contract §3.11), counted in memory.

use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;

use jiff::{SignedDuration, Timestamp};

use crate::domain::account::client_ip::rate_limit_address;
use crate::domain::time::saturating_add;

/// The window in which failed sign-ins are counted.
pub const WINDOW: SignedDuration = SignedDuration::from_mins(15);

/// Failed sign-ins of a client address in [`WINDOW`].
pub const MAX_FAILURES: usize = 10;

/// Addresses with failures, about 200 bytes each. Above it that whose last failure is oldest is dropped, which a client
/// with so many addresses gains nothing from.
const MAX_ADDRESSES: usize = 4_096;

/// The failed sign-ins of the last 15 minutes.
#[derive(Debug, Default)]
pub struct SignInLimiter {
    failures: HashMap<IpAddr, VecDeque<Timestamp>>,
}

impl SignInLimiter {
    /// Counts an attempt as failed until it is taken back, so that attempts at once cannot exceed the limit. Returns the
    /// seconds until another is admitted if this one is not.
    pub fn admit(&mut self, client: IpAddr, now: Timestamp) -> Option<u32> {
        let client = rate_limit_address(client);
        if self.failures.len() >= MAX_ADDRESSES && !self.failures.contains_key(&client) {
            self.make_room(now);
        }
        let failures = self.failures.entry(client).or_default();
        forget(failures, now);
        let Some(oldest) = failures.front().filter(|_| failures.len() >= MAX_FAILURES) else {
            failures.push_back(now);
            return None;
        };
        let millis = saturating_add(*oldest, WINDOW).duration_since(now).as_millis();
        Some(u32::try_from((millis + 999) / 1_000).unwrap_or(1).max(1))
    }

    /// Takes back the newest attempt, which did not fail.
    pub fn give_back(&mut self, client: IpAddr) {
        let client = rate_limit_address(client);
        if let Some(failures) = self.failures.get_mut(&client) {
            failures.pop_back();
            if failures.is_empty() {
                self.failures.remove(&client);
            }
        }
    }

    fn make_room(&mut self, now: Timestamp) {
        self.failures.retain(|_, failures| {
            forget(failures, now);
            !failures.is_empty()
        });
        let silent = self.failures.iter().min_by_key(|(_, failures)| failures.back().copied());
        if let Some(silent) =
            silent.map(|(client, _)| *client).filter(|_| self.failures.len() >= MAX_ADDRESSES)
        {
            self.failures.remove(&silent);
        }
    }
}

/// Drops what is outside the window, also what is later than `now` by a clock that was set back.
fn forget(failures: &mut VecDeque<Timestamp>, now: Timestamp) {
    failures.retain(|at| *at <= now && saturating_add(*at, WINDOW) > now);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(1_900_000_000 + seconds).unwrap()
    }

    #[test]
    fn the_11th_failure_waits_until_the_first_is_15_minutes_old() {
        let (mut limiter, client) = (SignInLimiter::default(), "192.0.2.1".parse().unwrap());
        for second in 0..10 {
            assert_eq!(limiter.admit(client, at(second)), None);
        }
        assert_eq!(limiter.admit(client, at(10)), Some(890));
        assert_eq!(limiter.admit("192.0.2.2".parse().unwrap(), at(10)), None);
        assert_eq!(limiter.admit(client, at(899)), Some(1));
        assert_eq!(limiter.admit(client, at(900)), None);
    }

    #[test]
    fn an_attempt_that_did_not_fail_does_not_count() {
        let (mut limiter, client) = (SignInLimiter::default(), "2001:db8::1".parse().unwrap());
        for _ in 0..100 {
            assert_eq!(limiter.admit(client, at(0)), None);
            limiter.give_back(client);
        }
        assert!(limiter.failures.is_empty());
    }

    #[test]
    fn the_number_of_addresses_is_bounded() {
        let mut limiter = SignInLimiter::default();
        for number in 0..5_000_u32 {
            assert_eq!(limiter.admit(IpAddr::from(number.to_be_bytes()), at(i64::from(number) / 100)), None);
        }
        assert_eq!(limiter.failures.len(), MAX_ADDRESSES);
        limiter.admit(IpAddr::from([9, 9, 9, 9]), at(2_000));
        assert_eq!(limiter.failures.len(), 1);
    }
}
