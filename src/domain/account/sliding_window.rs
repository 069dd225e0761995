//! The sliding window of the rate limit (contract §2): arithmetic only. The windows of all callers are in
//! `http/middleware/rate_limiter.rs`.

use std::collections::VecDeque;

use jiff::Timestamp;

/// The length of the window, in milliseconds.
const SPAN: i64 = 60_000;

/// A clock step backward of up to this many milliseconds, or two requests that overtook each other, leave a window
/// unchanged. Larger steps move the window with the clock.
/// 5 s covers the corrections of a time service and the time a request may wait for a thread; it is small against the
/// minute of the window, so a request leaves the window at most 5 s late.
const SLACK: i64 = 5_000;

/// The requests of one caller in the last 60 seconds. Holds at most as many instants as the limit.
#[derive(Debug, Default)]
pub struct SlidingWindow {
    /// The base of the offsets, in milliseconds since 1970.
    epoch: i64,
    offsets: VecDeque<u32>,
}

/// A caller's state in its window, as shown in the headers of every response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RateLimitStatus {
    /// Requests in any 60 seconds; `None` is no limit, and nothing is counted.
    pub limit: Option<u32>,
    /// Requests in the last 60 seconds, including this one if it was counted.
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

impl SlidingWindow {
    /// Counts a request at `now`, or rejects it, without counting, when the window holds `limit` requests.
    pub fn admit(&mut self, limit: u32, now: Timestamp) -> RateLimitStatus {
        let present = self.advance_to(now);
        let refused_for =
            (self.used() >= limit).then(|| self.seconds_until_free(limit, now.as_millisecond()));
        if refused_for.is_none() {
            self.push(present, limit);
        }
        RateLimitStatus { refused_for, ..self.status_at(limit, now) }
    }

    /// Takes back the newest request, if there is one: it turned out not to count.
    pub fn give_back(&mut self) {
        self.offsets.pop_back();
    }

    /// The state at `now`. Counts nothing.
    pub fn status(&mut self, limit: u32, now: Timestamp) -> RateLimitStatus {
        self.advance_to(now);
        self.status_at(limit, now)
    }

    /// Removes requests older than 60 seconds at `now`. Returns whether the window is empty.
    pub fn is_empty_at(&mut self, now: Timestamp) -> bool {
        self.advance_to(now);
        self.offsets.is_empty()
    }

    /// The newest counted request, in milliseconds since 1970; the earliest instant if there is none.
    pub fn newest(&self) -> i64 {
        self.offsets.back().map_or(i64::MIN, |offset| self.epoch + i64::from(*offset))
    }

    /// Heap memory of the window, in bytes.
    pub fn heap_bytes(&self) -> usize {
        self.offsets.capacity() * size_of::<u32>()
    }

    /// Advances the window to `now`. Returns its present, which is never before its newest request.
    fn advance_to(&mut self, now: Timestamp) -> i64 {
        let (now, newest) = (now.as_millisecond(), self.newest());
        if !self.offsets.is_empty() && newest - now > SLACK {
            // The clock went back. The window moves with it and stays as full as it was: an unmoved window would
            // reject its caller until the clock has caught up, an emptied one would lift the limit for everyone.
            self.epoch -= newest - now;
        }
        let present = now.max(self.newest());
        while self.offsets.front().is_some_and(|oldest| self.epoch + i64::from(*oldest) <= present - SPAN) {
            self.offsets.pop_front();
        }
        present
    }

    fn push(&mut self, at: i64, limit: u32) {
        let Some(oldest) = self.offsets.front().copied() else {
            self.epoch = at;
            self.grow(limit);
            return self.offsets.push_back(0);
        };
        if at - self.epoch > i64::from(u32::MAX) {
            // Offsets end after 49 days, which a window that is never empty can reach.
            self.epoch += i64::from(oldest);
            self.offsets.iter_mut().for_each(|offset| *offset -= oldest);
        }
        self.grow(limit);
        // The remaining requests are within the span, so the offset fits.
        self.offsets.push_back(u32::try_from(at - self.epoch).unwrap_or(u32::MAX));
    }

    /// Grows by doubling, to at most `limit`.
    fn grow(&mut self, limit: u32) {
        if self.offsets.len() == self.offsets.capacity() {
            let left = limit.saturating_sub(self.used());
            self.offsets.reserve_exact(self.offsets.len().max(4).min(usize::try_from(left).unwrap_or(4)));
        }
    }

    /// Seconds until fewer than `limit` requests are in the window.
    fn seconds_until_free(&self, limit: u32, now: i64) -> u32 {
        let surplus = usize::try_from(self.used().saturating_sub(limit)).unwrap_or(usize::MAX);
        // With a limit of 0 no request is ever accepted, so that any time will do.
        let free_at = self.offsets.get(surplus).map_or(now, |offset| self.epoch + i64::from(*offset)) + SPAN;
        u32::try_from(ceil_seconds(free_at - now)).unwrap_or(1).max(1)
    }

    fn used(&self) -> u32 {
        u32::try_from(self.offsets.len()).unwrap_or(u32::MAX)
    }

    fn status_at(&self, limit: u32, now: Timestamp) -> RateLimitStatus {
        let empty = if self.offsets.is_empty() { now.as_millisecond() } else { self.newest() + SPAN };
        RateLimitStatus {
            limit: Some(limit),
            used: self.used(),
            reset: ceil_seconds(empty),
            refused_for: None,
        }
    }
}

fn ceil_seconds(millis: i64) -> i64 {
    (millis + 999).div_euclid(1_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// This many milliseconds into a day.
    fn at(millis: i64) -> Timestamp {
        Timestamp::from_millisecond(1_800_000_000_000 + millis).unwrap()
    }

    fn full(limit: u32, at: Timestamp) -> SlidingWindow {
        let mut window = SlidingWindow::default();
        (0..limit).for_each(|_| assert_eq!(window.admit(limit, at).refused_for, None));
        window
    }

    #[test]
    fn any_sixty_seconds_have_at_most_the_limit() {
        let mut window = SlidingWindow::default();
        for second in 0..60 {
            let standing = window.admit(60, at(second * 1_000));
            assert_eq!((standing.used, standing.refused_for), (u32::try_from(second).unwrap() + 1, None));
        }
        assert_eq!(window.admit(60, at(59_001)).refused_for, Some(1));
        assert_eq!(window.admit(60, at(59_999)).refused_for, Some(1));
        // The request of second 0 has left; that of second 1 has not.
        assert_eq!(window.admit(60, at(60_000)).refused_for, None);
        assert_eq!(window.admit(60, at(60_000)).refused_for, Some(1));
    }

    #[test]
    fn a_refused_request_does_not_count() {
        let mut window = full(3, at(0));
        for millis in [0, 30_000, 59_999] {
            assert_eq!(window.admit(3, at(millis)).used, 3);
        }
        assert_eq!(
            window.admit(3, at(60_000)),
            RateLimitStatus { limit: Some(3), used: 1, reset: 1_800_000_120, refused_for: None }
        );
    }

    #[test]
    fn a_rejection_names_the_seconds_until_the_oldest_expires_rounded_up() {
        let mut window = full(2, at(0));
        for (millis, seconds) in [(0, 60), (1, 60), (999, 60), (1_000, 59), (58_999, 2), (59_001, 1)] {
            assert_eq!(window.admit(2, at(millis)).refused_for, Some(seconds), "after {millis} ms");
        }
    }

    #[test]
    fn under_a_lower_limit_the_surplus_must_expire_first() {
        let mut window = SlidingWindow::default();
        for second in 0..5 {
            window.admit(5, at(second * 1_000));
        }
        // Of five, four must leave before two may be: the one of second 3 is the last of them.
        let standing = window.admit(2, at(10_000));
        assert_eq!((standing.remaining(), standing.refused_for), (Some(0), Some(53)));
        assert_eq!(window.admit(2, at(63_000)).refused_for, None);
        assert_eq!(window.admit(0, at(63_000)).refused_for, Some(60));
    }

    #[test]
    fn status_counts_nothing() {
        let mut window = full(2, at(0));
        let standing = window.status(3, at(500));
        assert_eq!((standing.used, standing.remaining(), standing.refused_for), (2, Some(1), None));
        assert_eq!(window.status(3, at(60_000)).used, 0);
        assert_eq!(window.status(3, at(60_500)).reset, 1_800_000_061);
    }

    #[test]
    fn a_clock_step_backward_neither_locks_out_nor_frees_a_caller() {
        let mut window = full(2, at(86_400_000));
        assert_eq!(window.admit(2, at(0)).refused_for, Some(60));
        assert_eq!(window.admit(2, at(59_999)).refused_for, Some(1));
        assert_eq!(window.admit(2, at(60_000)).refused_for, None);
        // A step of seconds, or two requests that overtook each other: the window is unchanged.
        let mut window = full(2, at(0));
        assert_eq!(window.admit(2, at(-4_000)).refused_for, Some(64));
        assert_eq!(window.admit(2, at(60_000)).refused_for, None);
    }

    #[test]
    fn a_window_that_is_never_empty_outlives_its_offsets() {
        let mut window = SlidingWindow::default();
        let (step, days) = (40_000, 60);
        for turn in 0..days * 86_400_000 / step {
            assert_eq!(window.admit(3, at(turn * step)).used, if turn == 0 { 1 } else { 2 }, "turn {turn}");
        }
    }

    #[test]
    fn capacity_grows_with_use_and_never_above_the_limit() {
        assert_eq!(full(1, at(0)).heap_bytes(), 4);
        assert_eq!(full(5, at(0)).heap_bytes(), 20);
        assert_eq!(full(60, at(0)).heap_bytes(), 240);
        let mut window = SlidingWindow::default();
        window.admit(1_000_000, at(0));
        assert_eq!(window.heap_bytes(), 16);
    }
}
