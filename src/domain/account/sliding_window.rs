//! Sliding windows in memory, by key: how often each caller did something in the last minute or hour (contract §2, §3).
//! All limits of the program that count callers in time use them. A restart forgets them.

use std::collections::{HashMap, VecDeque};
use std::hash::Hash;

use jiff::{SignedDuration, Timestamp};

/// A clock step backward of up to this many milliseconds, or two requests that overtook each other, leave a window
/// unchanged. Larger steps move the window with the clock.
/// 5 s covers the corrections of a time service and the time a request may wait for a thread; it is small against the
/// minute of the shortest window, so a request leaves the window at most 5 s late.
const SLACK: i64 = 5_000;

/// Keys of one kind; a window of 60 takes some 600 bytes. At this number, the half that was silent longest is dropped:
/// a caller with so many addresses or accounts gains nothing from it, and no request is refused for it.
const MAX_KEYS: usize = 16_384;

/// Milliseconds between two searches for windows that are empty.
const SWEEP_INTERVAL: i64 = 60_000;

/// The windows of one kind of callers; each caller may act `limit` times in any `span`.
#[derive(Debug)]
pub struct SlidingWindows<K> {
    limit: u32,
    span: i64,
    windows: HashMap<K, Window>,
    swept_at: i64,
}

/// What one caller did, in milliseconds since 1970: at most as many instants as the limit.
#[derive(Debug, Default)]
struct Window(VecDeque<i64>);

/// A caller's state in its window, as shown in the headers of every response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RateLimitStatus {
    /// Requests in any span; `None` is no limit, and nothing is counted.
    pub limit: Option<u32>,
    /// Requests in the last span, including this one if it was counted.
    pub used: u32,
    /// The instant at which the window is empty if no request follows, in epoch seconds.
    pub reset: i64,
    /// Set on a rejected request: seconds until one is accepted, at least 1.
    pub refused_for: Option<u32>,
}

impl RateLimitStatus {
    /// The state of a caller without requests.
    pub fn unused(limit: Option<u32>, now: Timestamp) -> Self {
        Self { limit, used: 0, reset: ceil_seconds(now.as_millisecond()), refused_for: None }
    }

    /// The remaining requests; `None` is no limit.
    pub fn remaining(&self) -> Option<u32> {
        self.limit.map(|limit| limit.saturating_sub(self.used))
    }
}

impl<K: Copy + Eq + Hash> SlidingWindows<K> {
    pub fn new(limit: u32, span: SignedDuration) -> Self {
        let span = i64::try_from(span.as_millis()).unwrap_or(i64::MAX);
        Self { limit, span, windows: HashMap::new(), swept_at: i64::MIN }
    }

    /// Counts one at `now`. Returns the seconds until one is admitted if this one is not; it does not count then.
    pub fn admit(&mut self, key: K, now: Timestamp) -> Option<u32> {
        self.admit_below(key, self.limit, now).refused_for
    }

    /// As [`SlidingWindows::admit`], under a limit of this caller.
    pub fn admit_below(&mut self, key: K, limit: u32, now: Timestamp) -> RateLimitStatus {
        self.make_room(&key, now.as_millisecond());
        let window = self.windows.entry(key).or_default();
        let present = window.advance_to(now.as_millisecond(), self.span);
        let refused_for = window.refused_for(limit, now.as_millisecond(), self.span);
        if refused_for.is_none() {
            window.0.push_back(present);
        }
        RateLimitStatus { refused_for, ..window.status(limit, now, self.span) }
    }

    /// The state under a limit of this caller. Counts nothing.
    pub fn status(&mut self, key: &K, limit: u32, now: Timestamp) -> RateLimitStatus {
        let Some(window) = self.windows.get_mut(key) else {
            return RateLimitStatus::unused(Some(limit), now);
        };
        window.advance_to(now.as_millisecond(), self.span);
        window.status(limit, now, self.span)
    }

    /// The seconds until another is admitted, if none is at `now`. Counts nothing.
    pub fn refused_for(&mut self, key: K, now: Timestamp) -> Option<u32> {
        let window = self.windows.get_mut(&key)?;
        window.advance_to(now.as_millisecond(), self.span);
        window.refused_for(self.limit, now.as_millisecond(), self.span)
    }

    /// Takes back the newest one, which turned out not to count.
    pub fn give_back(&mut self, key: K) {
        if let Some(window) = self.windows.get_mut(&key) {
            window.0.pop_back();
            if window.0.is_empty() {
                self.windows.remove(&key);
            }
        }
    }

    /// Forgets the caller, who is no longer limited.
    pub fn forget(&mut self, key: K) {
        self.windows.remove(&key);
    }

    /// Drops empty windows once a minute, and at [`MAX_KEYS`] the half that was silent longest.
    /// Compares the absolute difference: after the clock was set back, the next sweep does not wait for the old time.
    fn make_room(&mut self, key: &K, now: i64) {
        if now.saturating_sub(self.swept_at).saturating_abs() >= SWEEP_INTERVAL {
            self.swept_at = now;
            let span = self.span;
            self.windows.retain(|_, window| {
                window.advance_to(now, span);
                !window.0.is_empty()
            });
            self.windows.shrink_to(self.windows.len() * 2);
        }
        if self.windows.len() >= MAX_KEYS && !self.windows.contains_key(key) {
            let mut newest: Vec<_> = self.windows.values().map(|window| window.0.back().copied()).collect();
            let (_, median, _) = newest.select_nth_unstable(MAX_KEYS / 2);
            let median = *median;
            self.windows.retain(|_, window| window.0.back().copied() > median);
        }
    }
}

impl Window {
    /// Drops what is outside the span at `now`. Returns the present, which is never before the newest instant.
    fn advance_to(&mut self, now: i64, span: i64) -> i64 {
        let newest = self.0.back().copied().unwrap_or(i64::MIN);
        if newest.saturating_sub(now) > SLACK && !self.0.is_empty() {
            // The clock went back. The window moves with it and stays as full as it was: an unmoved window would
            // reject its caller until the clock has caught up, an emptied one would lift the limit for everyone.
            self.0.iter_mut().for_each(|at| *at -= newest - now);
        }
        let present = now.max(self.0.back().copied().unwrap_or(now));
        while self.0.front().is_some_and(|oldest| oldest.saturating_add(span) <= present) {
            self.0.pop_front();
        }
        present
    }

    /// The seconds until fewer than `limit` are in the window, rounded up, if it has as many.
    fn refused_for(&self, limit: u32, now: i64, span: i64) -> Option<u32> {
        let surplus = usize::try_from(self.used().checked_sub(limit)?).unwrap_or(usize::MAX);
        // With a limit of 0 nothing is ever accepted, so that any time will do.
        let free_at = self.0.get(surplus).copied().unwrap_or(now).saturating_add(span);
        Some(u32::try_from(ceil_seconds(free_at - now)).unwrap_or(1).max(1))
    }

    fn status(&self, limit: u32, now: Timestamp, span: i64) -> RateLimitStatus {
        let empty = self.0.back().map_or(now.as_millisecond(), |newest| newest.saturating_add(span));
        let reset = ceil_seconds(empty);
        RateLimitStatus { limit: Some(limit), used: self.used(), reset, refused_for: None }
    }

    fn used(&self) -> u32 {
        u32::try_from(self.0.len()).unwrap_or(u32::MAX)
    }
}

fn ceil_seconds(millis: i64) -> i64 {
    millis.saturating_add(999).div_euclid(1_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// This many milliseconds into a day.
    fn at(millis: i64) -> Timestamp {
        Timestamp::from_millisecond(1_800_000_000_000 + millis).unwrap()
    }

    fn minute(limit: u32) -> SlidingWindows<u32> {
        SlidingWindows::new(limit, SignedDuration::from_mins(1))
    }

    fn full(limit: u32, at: Timestamp) -> SlidingWindows<u32> {
        let mut windows = minute(limit);
        (0..limit).for_each(|_| assert_eq!(windows.admit(1, at), None));
        windows
    }

    #[test]
    fn any_span_has_at_most_the_limit() {
        let mut windows = minute(60);
        for second in 0..60 {
            assert_eq!(windows.admit(1, at(second * 1_000)), None);
        }
        assert_eq!([59_001, 59_999].map(|millis| windows.admit(1, at(millis))), [Some(1); 2]);
        assert_eq!(windows.admit(2, at(59_999)), None, "another caller has a window of its own");
        // The request of second 0 has left; that of second 1 has not.
        assert_eq!([60_000, 60_000].map(|millis| windows.admit(1, at(millis))), [None, Some(1)]);
    }

    #[test]
    fn a_refusal_does_not_count_and_names_the_seconds_until_the_oldest_expires() {
        let mut windows = full(2, at(0));
        for (millis, seconds) in [(0, 60), (1, 60), (999, 60), (1_000, 59), (58_999, 2), (59_001, 1)] {
            assert_eq!(windows.refused_for(1, at(millis)), Some(seconds), "after {millis} ms");
            assert_eq!(windows.admit(1, at(millis)), Some(seconds), "after {millis} ms");
        }
        let expected = RateLimitStatus { limit: Some(2), used: 1, reset: 1_800_000_120, refused_for: None };
        assert_eq!(windows.admit_below(1, 2, at(60_000)), expected);
    }

    #[test]
    fn under_a_lower_limit_the_surplus_must_expire_first() {
        let mut windows = minute(5);
        for second in 0..5 {
            windows.admit(1, at(second * 1_000));
        }
        // Of five, four must leave before two may be: the one of second 3 is the last of them.
        let status = windows.admit_below(1, 2, at(10_000));
        assert_eq!((status.remaining(), status.refused_for), (Some(0), Some(53)));
        assert_eq!(windows.admit_below(1, 2, at(63_000)).refused_for, None);
        assert_eq!(windows.admit_below(1, 0, at(63_000)).refused_for, Some(60));
    }

    #[test]
    fn status_counts_nothing() {
        let mut windows = full(2, at(0));
        let status = windows.status(&1, 3, at(500));
        assert_eq!((status.used, status.remaining(), status.refused_for), (2, Some(1), None));
        assert_eq!(windows.status(&1, 3, at(60_500)), RateLimitStatus::unused(Some(3), at(60_500)));
        assert_eq!((windows.status(&9, 3, at(60_500)).used, windows.windows.len()), (0, 1));
        // What is taken back does not count either.
        for _ in 0..3 {
            assert_eq!(windows.admit(2, at(0)), None);
            windows.give_back(2);
        }
        assert!(!windows.windows.contains_key(&2));
    }

    #[test]
    fn a_clock_step_backward_neither_locks_out_nor_frees_a_caller() {
        let mut windows = full(2, at(86_400_000));
        assert_eq!(windows.admit(1, at(0)), Some(60));
        assert_eq!([59_999, 60_000].map(|millis| windows.admit(1, at(millis))), [Some(1), None]);
        // A step of seconds, or two requests that overtook each other: the window is unchanged.
        let mut windows = full(2, at(0));
        assert_eq!([-4_000, 60_000].map(|millis| windows.admit(1, at(millis))), [Some(64), None]);
    }

    #[test]
    fn empty_windows_are_dropped_once_a_minute() {
        let mut windows = minute(60);
        for (keys, second) in [(1_000, 0), (100, 30)] {
            (0..keys).for_each(|key| assert_eq!(windows.admit(key, at(second * 1_000)), None));
        }
        let mut count_at = |second: i64| {
            windows.make_room(&0, at(second * 1_000).as_millisecond());
            windows.windows.len()
        };
        assert_eq!([59, 60, 89, 120].map(&mut count_at), [1_000, 100, 100, 0]);
    }

    #[test]
    fn the_number_of_keys_is_bounded_and_a_busy_one_stays() {
        let mut windows = minute(60);
        for key in 0..50_000 {
            assert_eq!(windows.admit(key, at(i64::from(key))), None);
            if key % 5_000 == 0 {
                windows.admit(u32::MAX, at(i64::from(key)));
            }
        }
        assert!((MAX_KEYS / 2..=MAX_KEYS).contains(&windows.windows.len()), "{}", windows.windows.len());
        assert_eq!(windows.status(&u32::MAX, 60, at(50_000)).used, 10);
    }
}
