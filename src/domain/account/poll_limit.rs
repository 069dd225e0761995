//! The rate limit of device polls: 30 a minute per code (contract §3), counted in memory.

use std::collections::HashMap;

use jiff::Timestamp;

use crate::domain::account::device_login::MAX_POLLS;
use crate::domain::account::sliding_window::SlidingWindow;

/// Windows kept before empty ones are searched for. A search visits all windows, so the next one waits until their
/// number has doubled.
const MIN_WINDOWS_TO_SWEEP: usize = 1_000;

/// The polls of the last minute by the hash of their code. Count existing codes only: their number is limited.
#[derive(Debug, Default)]
pub struct PollLimiter {
    windows: HashMap<[u8; 32], SlidingWindow>,
    sweep_at: usize,
}

impl PollLimiter {
    /// Counts a poll at `now`. A rejected poll does not count; returns the seconds until one is accepted.
    pub fn admit(&mut self, code: [u8; 32], now: Timestamp) -> Option<u32> {
        if self.windows.len() >= self.sweep_at.max(MIN_WINDOWS_TO_SWEEP) {
            self.windows.retain(|_, window| !window.is_empty_at(now));
            self.sweep_at = self.windows.len() * 2;
        }
        self.windows.entry(code).or_default().admit(MAX_POLLS, now).refused_for
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: i64) -> Timestamp {
        Timestamp::from_millisecond(millis).unwrap()
    }

    #[test]
    fn the_31st_poll_waits_until_the_first_is_a_minute_old() {
        let mut polls = PollLimiter::default();
        for second in 0..30 {
            assert_eq!(polls.admit([1; 32], at(second * 1000)), None);
        }
        assert_eq!(polls.admit([1; 32], at(29_500)), Some(31));
        assert_eq!(polls.admit([2; 32], at(29_500)), None, "another code has its own window");
        assert_eq!(polls.admit([1; 32], at(59_999)), Some(1));
        assert_eq!(polls.admit([1; 32], at(60_000)), None);
        assert_eq!(polls.admit([1; 32], at(60_000)), Some(1));
    }

    #[test]
    fn empty_windows_are_removed() {
        let mut polls = PollLimiter::default();
        for number in 0..100_000_i64 {
            let mut code = [0; 32];
            code[..8].copy_from_slice(&number.to_le_bytes());
            polls.admit(code, at(number * 1000));
        }
        assert!(polls.windows.len() <= MIN_WINDOWS_TO_SWEEP, "{}", polls.windows.len());
    }
}
