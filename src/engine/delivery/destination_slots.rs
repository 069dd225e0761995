//! The delivery threads of one destination of an account, and its attempts ahead.

use std::time::Duration;

use crate::engine::delivery::account_slots::LastAttempt;

/// Attempts ahead for each thread that a destination holds. Its threads find the next attempt at once while the results
/// of the last ones are committed, and the next ones claimed. On a slow disk that takes as long as many attempts: with
/// commits of 12 ms, two ahead made 3,200 deliveries a second and four 4,600.
const AHEAD_PER_THREAD: usize = 4;

/// An attempt up to this duration earns an attempt ahead. A commit takes a few milliseconds, so to be ahead of it saves
/// little where attempts take longer.
const QUICK: Duration = Duration::from_millis(50);

#[derive(Debug, Clone, Copy)]
pub struct DestinationSlots {
    pub in_use: usize,
    /// Threads that the destination has earned.
    pub limit: usize,
    pub last: LastAttempt,
    /// Attempts taken ahead: each follows on one of the threads.
    pub ahead: usize,
    /// Attempts ahead that the destination has earned: one for each quick attempt, none after one that was not.
    ahead_limit: usize,
}

impl DestinationSlots {
    pub fn new(limit: usize) -> Self {
        Self { in_use: 0, limit, last: LastAttempt::Untested, ahead: 0, ahead_limit: 0 }
    }

    /// Returns `true` if its attempts so far allow another one ahead.
    pub fn may_go_ahead(&self) -> bool {
        let most = self.ahead_limit.min(self.in_use * AHEAD_PER_THREAD);
        self.last == LastAttempt::InTime && self.ahead < most
    }

    /// Returns `true` if it may have attempts ahead, now or when others have ended.
    pub fn earns_ahead(&self) -> bool {
        self.ahead_limit > 0
    }

    /// Counts an attempt that took this long. `most` is the limit of all attempts ahead.
    pub fn earn_ahead(&mut self, took: Duration, most: usize) {
        self.ahead_limit = if took <= QUICK { most.min(self.ahead_limit + 1) } else { 0 };
    }

    pub fn lose_ahead(&mut self) {
        self.ahead_limit = 0;
    }

    /// An attempt has left: the next one ahead follows on its thread, which is free if there is none.
    pub fn leave(&mut self) {
        match self.ahead.checked_sub(1) {
            Some(left) => self.ahead = left,
            None => self.in_use = self.in_use.saturating_sub(1),
        }
    }
}
