//! The sliding window of requests (contract §2): arithmetic only. Who has which window is in `http/window.rs`.

use std::collections::VecDeque;

use jiff::Timestamp;

/// How long a request counts, in milliseconds.
const SPAN: i64 = 60_000;

/// A clock that went back by no more than this, or two requests that passed each other, leave a window as it is.
const SLACK: i64 = 5_000;

/// The requests that one caller made in the last 60 seconds. Never holds more instants than its limit.
#[derive(Debug, Default)]
pub struct SlidingWindow {
    /// What the offsets count from, in milliseconds since 1970.
    epoch: i64,
    /// Milliseconds, oldest first.
    offsets: VecDeque<u32>,
}

/// Where a caller stands in its window, as every response tells it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RateLimitStatus {
    /// Requests in any 60 seconds; `None` is no limit, and nothing is counted then.
    pub limit: Option<u32>,
    /// Requests in the last 60 seconds, this one included where it was counted.
    pub used: u32,
    /// When the window is empty again if nothing more comes, in epoch seconds.
    pub reset: i64,
    /// Set when this request is one too many: seconds until one passes again, at least 1.
    pub refused_for: Option<u32>,
}

impl RateLimitStatus {
    /// That of a caller who has made no request that counts.
    #[must_use]
    pub fn unused(limit: Option<u32>, now: Timestamp) -> Self {
        Self { limit, used: 0, reset: seconds_up(now.as_millisecond()), refused_for: None }
    }

    /// How many requests are left; `None` where there is no limit.
    #[must_use]
    pub fn remaining(&self) -> Option<u32> {
        self.limit.map(|limit| limit.saturating_sub(self.used))
    }
}

impl SlidingWindow {
    /// Counts a request at `now`, unless it is one too many for `limit`: then it is refused and does not count.
    pub fn admit(&mut self, limit: u32, now: Timestamp) -> RateLimitStatus {
        let present = self.advance_to(now);
        let refused_for = (self.used() >= limit).then(|| self.wait(limit, now.as_millisecond()));
        if refused_for.is_none() {
            self.push(present, limit);
        }
        RateLimitStatus { refused_for, ..self.standing(limit, now) }
    }

    /// Where the caller stands at `now`; counts nothing.
    pub fn look(&mut self, limit: u32, now: Timestamp) -> RateLimitStatus {
        self.advance_to(now);
        self.standing(limit, now)
    }

    /// Lets go of what is older than 60 seconds at `now`; answers whether nothing is left.
    pub fn is_over(&mut self, now: Timestamp) -> bool {
        self.advance_to(now);
        self.offsets.is_empty()
    }

    /// The newest request that counts, in milliseconds since 1970; the earliest instant where there is none.
    #[must_use]
    pub fn newest(&self) -> i64 {
        self.offsets.back().map_or(i64::MIN, |offset| self.epoch + i64::from(*offset))
    }

    /// Bytes that it holds beside itself.
    #[must_use]
    pub fn heap(&self) -> usize {
        self.offsets.capacity() * size_of::<u32>()
    }

    /// Brings the window to `now` and answers its present, which never lies before its newest request.
    fn advance_to(&mut self, now: Timestamp) -> i64 {
        let (now, newest) = (now.as_millisecond(), self.newest());
        if !self.offsets.is_empty() && newest - now > SLACK {
            // The clock went back. The window goes with it, as full as it was: left where it stands it would lock
            // its caller out until the clock has caught up, and emptied it would free everybody.
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
            // A window that is never empty outlives its offsets after 49 days.
            self.epoch += i64::from(oldest);
            self.offsets.iter_mut().for_each(|offset| *offset -= oldest);
        }
        self.grow(limit);
        // What is left is no older than the span: the offset fits.
        self.offsets.push_back(u32::try_from(at - self.epoch).unwrap_or(u32::MAX));
    }

    /// Makes room by doubling, but never for more than `limit`.
    fn grow(&mut self, limit: u32) {
        if self.offsets.len() == self.offsets.capacity() {
            let left = limit.saturating_sub(self.used());
            self.offsets.reserve_exact(self.offsets.len().max(4).min(usize::try_from(left).unwrap_or(4)));
        }
    }

    /// Seconds until fewer than `limit` requests are in the window.
    fn wait(&self, limit: u32, now: i64) -> u32 {
        let surplus = usize::try_from(self.used().saturating_sub(limit)).unwrap_or(usize::MAX);
        // Under a limit of 0 nothing ever passes: as good a time as any.
        let leaves = self.offsets.get(surplus).map_or(now, |offset| self.epoch + i64::from(*offset)) + SPAN;
        u32::try_from(seconds_up(leaves - now)).unwrap_or(1).max(1)
    }

    fn used(&self) -> u32 {
        u32::try_from(self.offsets.len()).unwrap_or(u32::MAX)
    }

    fn standing(&self, limit: u32, now: Timestamp) -> RateLimitStatus {
        let empty = if self.offsets.is_empty() { now.as_millisecond() } else { self.newest() + SPAN };
        RateLimitStatus { limit: Some(limit), used: self.used(), reset: seconds_up(empty), refused_for: None }
    }
}

fn seconds_up(millis: i64) -> i64 {
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
    fn retry_after_is_in_whole_seconds_rounded_up() {
        let mut window = full(2, at(0));
        for (millis, seconds) in [(0, 60), (1, 60), (999, 60), (1_000, 59), (58_999, 2), (59_001, 1)] {
            assert_eq!(window.admit(2, at(millis)).refused_for, Some(seconds), "after {millis} ms");
        }
    }

    #[test]
    fn a_lowered_limit_waits_until_enough_requests_expire() {
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
    fn reading_the_status_counts_nothing() {
        let mut window = full(2, at(0));
        let standing = window.look(3, at(500));
        assert_eq!((standing.used, standing.remaining(), standing.refused_for), (2, Some(1), None));
        assert_eq!(window.look(3, at(60_000)).used, 0);
        assert_eq!(window.look(3, at(60_500)).reset, 1_800_000_061);
    }

    #[test]
    fn a_clock_moved_back_neither_blocks_nor_frees() {
        let mut window = full(2, at(86_400_000));
        assert_eq!(window.admit(2, at(0)).refused_for, Some(60));
        assert_eq!(window.admit(2, at(59_999)).refused_for, Some(1));
        assert_eq!(window.admit(2, at(60_000)).refused_for, None);
        // A step of seconds, or two requests that passed each other: the window stands still.
        let mut window = full(2, at(0));
        assert_eq!(window.admit(2, at(-4_000)).refused_for, Some(64));
        assert_eq!(window.admit(2, at(60_000)).refused_for, None);
    }

    #[test]
    fn a_never_empty_window_continues_after_offset_overflow() {
        let mut window = SlidingWindow::default();
        let (step, days) = (40_000, 60);
        for turn in 0..days * 86_400_000 / step {
            assert_eq!(window.admit(3, at(turn * step)).used, if turn == 0 { 1 } else { 2 }, "turn {turn}");
        }
    }

    #[test]
    fn memory_grows_with_use_up_to_the_limit() {
        assert_eq!(full(1, at(0)).heap(), 4);
        assert_eq!(full(5, at(0)).heap(), 20);
        assert_eq!(full(60, at(0)).heap(), 240);
        let mut window = SlidingWindow::default();
        window.admit(1_000_000, at(0));
        assert_eq!(window.heap(), 16);
    }
}
