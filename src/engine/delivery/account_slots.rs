//! The delivery threads of one account, and what its attempts so far say about it.

use std::cmp::Ordering;

#[derive(Debug, Clone, Copy)]
pub struct AccountSlots {
    pub in_use: usize,
    /// Threads at destinations without a result yet.
    pub untested: usize,
    /// Threads at destinations that timed out last.
    pub timed_out: usize,
    /// Its remembered destinations whose last attempt ended in time.
    pub proven: usize,
    /// Of its destinations that had no room for another thread in this pass of the dispatcher, and in the one before, the
    /// fewest threads that one held.
    pub refused: [Option<usize>; 2],
    /// The limit of `untested`: one more for each attempt in time, half for each destination that times out.
    limit: usize,
    initial_limit: usize,
}

/// The last attempt at a destination.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LastAttempt {
    /// None has ended yet.
    Untested,
    InTime,
    TimedOut,
}

/// The record of an account.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Record {
    /// More of its destinations have timed out than its attempts in time make up for.
    Suspected,
    None,
    /// Attempts ended in time.
    Trusted,
}

impl AccountSlots {
    pub fn new(initial_limit: usize) -> Self {
        Self {
            in_use: 0,
            untested: 0,
            timed_out: 0,
            proven: 0,
            refused: [None; 2],
            limit: initial_limit,
            initial_limit,
        }
    }

    pub fn limit(&self) -> usize {
        self.limit
    }

    /// After an attempt in time, up to the number of `threads`.
    pub fn raise_limit(&mut self, threads: usize) {
        // Above the first one also with a single thread: such an account has a good record.
        self.limit = threads.max(self.initial_limit + 1).min(self.limit + 1);
    }

    /// After a timeout of a destination that had not timed out before.
    pub fn halve_limit(&mut self) {
        self.limit = (self.limit / 2).max(1);
    }

    pub fn record(&self) -> Record {
        match self.limit.cmp(&self.initial_limit) {
            Ordering::Less => Record::Suspected,
            Ordering::Equal => Record::None,
            Ordering::Greater => Record::Trusted,
        }
    }

    /// Counts that a destination with `in_use` threads had no room for another one.
    pub fn refuse(&mut self, in_use: usize) {
        let [now, _] = &mut self.refused;
        *now = Some(now.map_or(in_use, |fewest| fewest.min(in_use)));
    }

    /// Begins a pass of the dispatcher.
    pub fn begin_pass(&mut self) {
        let [now, _] = self.refused;
        self.refused = [None, now];
    }

    /// Returns `true` if a destination with `in_use` threads may keep them: none that needs another thread has fewer.
    pub fn may_keep(&self, in_use: usize) -> bool {
        self.refused.iter().flatten().all(|fewest| in_use <= fewest + 1)
    }

    /// Threads at unproven destinations: those without a result yet, and those that timed out last.
    pub fn unproven(&self) -> usize {
        self.untested + self.timed_out
    }

    /// The unproven ones that share a limit with those of other accounts: all but the first of an account without a
    /// record, all of a suspected one, none of a trusted one.
    pub fn doubtful(&self) -> usize {
        match self.record() {
            Record::Suspected => self.unproven(),
            Record::None => self.unproven().saturating_sub(1),
            Record::Trusted => 0,
        }
    }

    /// The threads at destinations with this last attempt, if they are limited together.
    pub fn limited(&mut self, last: LastAttempt) -> Option<&mut usize> {
        match last {
            LastAttempt::Untested => Some(&mut self.untested),
            LastAttempt::TimedOut => Some(&mut self.timed_out),
            LastAttempt::InTime => None,
        }
    }
}
