//! Fair sharing of the delivery threads: among accounts, and among the destinations of an account. Hosts that hang must
//! not hold up the others, whoever has them called.
//!
//! This file only counts. `store::fair_queue` decides which row is tried next.

use std::collections::HashMap;

use crate::store::fair_queue::Grant;

/// Idle accounts and destinations kept in memory for their limits, of each kind. Bounds the memory of users whose every
/// callback hangs.
const MAX_REMEMBERED: usize = 512;

/// Counts the threads that each account and each of its destinations (host and port) hold. An attempt holds one thread
/// from its claim to its end.
///
/// Accounts:
/// - An account that holds no thread may take any free one, and the last quarter of the threads is reserved for such
///   accounts.
/// - An account holds at most half of the threads that the others leave: the first gets half of all threads, the second
///   a quarter.
///
/// Destinations of an account. The same host called by two accounts is two destinations, so that no account can spoil
/// the limits of another:
/// - The last eighth of an account's share is reserved for its destinations that hold no thread.
/// - A destination starts with a sixteenth of the threads and earns one more with each attempt that ends in time.
///   After a timeout it gets one thread at a time until an attempt ends in time.
/// - Destinations that timed out last hold at most a sixteenth of the threads together, however many there are.
/// - Destinations without a result yet hold at most `limit` threads together; the last quarter of it is reserved for
///   those that hold no thread. The limit starts with an eighth of the threads, grows by one with each attempt of the
///   account that ends in time, and halves with each new destination that times out. An account that names a new host
///   for every attempt therefore gets one thread for all of them.
#[derive(Debug, Clone)]
pub struct FairShare {
    threads: usize,
    in_use: usize,
    accounts: HashMap<i64, AccountSlots>,
    destinations: HashMap<(i64, i64), DestinationSlots>,
}

#[derive(Debug, Clone, Copy)]
struct AccountSlots {
    in_use: usize,
    /// Threads at destinations without a result yet.
    untested: usize,
    /// Threads at destinations that timed out last.
    timed_out: usize,
    /// The limit of `untested`.
    limit: usize,
}

#[derive(Debug, Clone, Copy)]
struct DestinationSlots {
    in_use: usize,
    /// Threads that the destination has earned.
    limit: usize,
    last: LastAttempt,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LastAttempt {
    /// None has ended yet.
    Untested,
    InTime,
    TimedOut,
}

impl AccountSlots {
    /// The threads at destinations with this last attempt, if they are limited together.
    fn limited(&mut self, last: LastAttempt) -> Option<&mut usize> {
        match last {
            LastAttempt::Untested => Some(&mut self.untested),
            LastAttempt::TimedOut => Some(&mut self.timed_out),
            LastAttempt::InTime => None,
        }
    }
}

impl FairShare {
    /// `threads` below one count as one.
    #[must_use]
    pub fn new(threads: usize) -> Self {
        Self { threads: threads.max(1), in_use: 0, accounts: HashMap::new(), destinations: HashMap::new() }
    }

    #[must_use]
    pub fn free(&self) -> usize {
        self.threads - self.in_use
    }

    #[must_use]
    pub fn in_use(&self) -> usize {
        self.in_use
    }

    /// Takes a thread for `destination` of the account `user_key`, if it may have one now.
    pub fn try_acquire(&mut self, user_key: i64, destination: i64) -> Grant {
        let (free, sixteenth, limit) = (self.free(), self.sixteenth(), self.initial_limit());
        let account = AccountSlots { in_use: 0, untested: 0, timed_out: 0, limit };
        let account = self.accounts.entry(user_key).or_insert(account);
        let share = (free + account.in_use).div_ceil(2);
        let unreserved = free.saturating_sub(self.threads / 4);
        let room = match account.in_use {
            0 => share.min(unreserved.max(1)).min(free),
            held => share.saturating_sub(held).min(unreserved),
        };
        if room == 0 {
            return Grant::AccountBusy;
        }
        let slots = DestinationSlots { in_use: 0, limit: sixteenth, last: LastAttempt::Untested };
        let slots = self.destinations.entry((user_key, destination)).or_insert(slots);
        let has_room = slots.in_use == 0 || (slots.in_use < slots.limit && room > share.div_ceil(8));
        let is_below_limit = match slots.last {
            LastAttempt::Untested if slots.in_use > 0 => {
                account.untested < account.limit - account.limit.div_ceil(4)
            }
            LastAttempt::Untested => account.untested < account.limit,
            LastAttempt::TimedOut => account.timed_out < sixteenth,
            LastAttempt::InTime => true,
        };
        if !has_room || !is_below_limit {
            return Grant::DestinationBusy;
        }
        slots.in_use += 1;
        account.in_use += 1;
        self.in_use += 1;
        if let Some(limited) = account.limited(slots.last) {
            *limited += 1;
        }
        Grant::Granted
    }

    /// Returns the thread of an attempt to `destination` of the account `user_key` that has ended.
    pub fn release(&mut self, user_key: i64, destination: i64, timed_out: bool) {
        let (Some(account), Some(slots)) =
            (self.accounts.get_mut(&user_key), self.destinations.get_mut(&(user_key, destination)))
        else {
            return;
        };
        if let Some(limited) = account.limited(slots.last) {
            *limited -= slots.in_use;
        }
        slots.in_use -= 1;
        account.in_use -= 1;
        self.in_use -= 1;
        if timed_out {
            // A destination that is known to hang holds few threads anyway.
            if slots.last != LastAttempt::TimedOut {
                account.limit = (account.limit / 2).max(1);
            }
            (slots.limit, slots.last) = (1, LastAttempt::TimedOut);
        } else {
            account.limit = self.threads.min(account.limit + 1);
            (slots.limit, slots.last) = (self.threads.min(slots.limit + 1), LastAttempt::InTime);
        }
        if let Some(limited) = account.limited(slots.last) {
            *limited += slots.in_use;
        }
    }

    /// Drops the counts of destinations that hold no thread, except of those that timed out, and of accounts that hold
    /// none once there are many.
    pub fn forget_idle(&mut self) {
        let sixteenth = self.sixteenth();
        self.destinations.retain(|_, slots| {
            slots.in_use > 0 || slots.last == LastAttempt::TimedOut || slots.limit < sixteenth
        });
        if self.destinations.len() > MAX_REMEMBERED + self.in_use {
            self.destinations.retain(|_, slots| slots.in_use > 0);
        }
        let most = MAX_REMEMBERED + self.in_use;
        if self.accounts.len() > most {
            let initial_limit = self.initial_limit();
            self.accounts.retain(|_, account| account.in_use > 0 || account.limit < initial_limit);
        }
        if self.accounts.len() > most {
            self.accounts.retain(|_, account| account.in_use > 0);
        }
    }

    /// The first limit of untested destinations: two at least, so that one that hangs does not hold up another.
    fn initial_limit(&self) -> usize {
        (self.threads / 8).max(2)
    }

    fn sixteenth(&self) -> usize {
        (self.threads / 16).max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn acquire_all(slots: &mut FairShare, user_key: i64, destination: i64) -> usize {
        std::iter::repeat_with(|| slots.try_acquire(user_key, destination))
            .take_while(|grant| *grant == Grant::Granted)
            .count()
    }

    /// The threads that new destinations from `first` on of an account get, one each.
    fn acquire_each(slots: &mut FairShare, user_key: i64, first: i64) -> usize {
        (first..).take_while(|it| slots.try_acquire(user_key, *it) == Grant::Granted).count()
    }

    /// Lets `destination` and its account earn their full limits.
    fn trusted(slots: &mut FairShare, user_key: i64, destination: i64) {
        for _ in 0..64 {
            assert_eq!(slots.try_acquire(user_key, destination), Grant::Granted);
            slots.release(user_key, destination, false);
        }
    }

    fn release_all(
        slots: &mut FairShare,
        user_key: i64,
        destinations: std::ops::Range<i64>,
        timed_out: bool,
    ) {
        destinations.for_each(|destination| slots.release(user_key, destination, timed_out));
    }

    #[test]
    fn a_destination_starts_with_few_threads_and_earns_up_to_its_accounts_share() {
        let mut slots = FairShare::new(64);
        assert_eq!(acquire_all(&mut slots, 1, 1), 4);
        for _ in 0..4 {
            slots.release(1, 1, false);
        }
        assert_eq!(acquire_all(&mut slots, 1, 1), 8);
        for _ in 0..8 {
            slots.release(1, 1, false);
        }
        trusted(&mut slots, 1, 1);
        assert_eq!(acquire_all(&mut slots, 1, 1), 28);
        assert_eq!(acquire_each(&mut slots, 1, 2), 4, "the account's other destinations");
        assert_eq!(slots.try_acquire(1, 99), Grant::AccountBusy);
    }

    #[test]
    fn a_destination_that_timed_out_gets_one_thread_until_an_attempt_ends_in_time() {
        let mut slots = FairShare::new(64);
        assert_eq!(acquire_all(&mut slots, 1, 1), 4);
        for _ in 0..4 {
            slots.release(1, 1, true);
        }
        slots.forget_idle();
        assert_eq!(acquire_all(&mut slots, 1, 1), 1);
        slots.release(1, 1, false);
        slots.forget_idle();
        assert_eq!(acquire_all(&mut slots, 1, 1), 2);
    }

    #[test]
    fn busy_accounts_that_stall_leave_a_quarter_of_the_threads_to_others() {
        let mut slots = FairShare::new(64);
        (1..=4).for_each(|user| trusted(&mut slots, user, 0));
        let held: Vec<_> = (1..=4)
            .map(|user| acquire_all(&mut slots, user, 0) + acquire_each(&mut slots, user, 1))
            .collect();
        assert_eq!(held, [32, 16, 1, 1]);
        let newcomers = (100..).take_while(|user| slots.try_acquire(*user, 0) == Grant::Granted).count();
        assert_eq!(newcomers, 64 - 50);
        assert_eq!(slots.free(), 0);
    }

    #[test]
    fn an_account_whose_hosts_hang_holds_few_threads_whether_it_names_old_or_new_ones() {
        let mut slots = FairShare::new(64);
        assert_eq!(acquire_each(&mut slots, 1, 0), 8, "new hosts of a new account");
        release_all(&mut slots, 1, 0..8, true);
        slots.forget_idle();
        assert_eq!(acquire_each(&mut slots, 1, 0), 4, "hosts that are known to hang");
        assert_eq!(acquire_each(&mut slots, 1, 100), 1, "new ones");
        release_all(&mut slots, 1, 0..4, true);
        slots.release(1, 100, true);
        slots.forget_idle();
        trusted(&mut slots, 1, 200);
        assert_eq!(acquire_all(&mut slots, 1, 200), 28, "a host that answers is not affected");
    }

    #[test]
    fn one_dead_host_among_many_does_not_narrow_its_account() {
        let mut slots = FairShare::new(64);
        trusted(&mut slots, 1, 1);
        for _ in 0..100 {
            assert_eq!(slots.try_acquire(1, 666), Grant::Granted);
            slots.release(1, 666, true);
        }
        slots.forget_idle();
        assert_eq!(acquire_each(&mut slots, 1, 1_000), 32);
    }

    #[test]
    fn an_account_does_not_change_the_limits_of_another_at_the_same_host() {
        let mut slots = FairShare::new(64);
        assert_eq!(acquire_all(&mut slots, 1, 1), 4);
        for _ in 0..4 {
            slots.release(1, 1, true);
        }
        assert_eq!(acquire_all(&mut slots, 2, 1), 4);
    }

    #[test]
    fn two_threads_are_shared() {
        let mut slots = FairShare::new(2);
        assert_eq!(acquire_all(&mut slots, 1, 1), 1);
        assert_eq!(acquire_all(&mut slots, 2, 1), 1);
        assert_eq!(FairShare::new(0).try_acquire(1, 1), Grant::Granted);
    }

    #[test]
    fn idle_accounts_and_destinations_are_kept_up_to_a_bound() {
        let mut slots = FairShare::new(64);
        for user in 0..5_000 {
            for destination in 0..2 {
                assert_eq!(slots.try_acquire(user, destination), Grant::Granted);
                slots.release(user, destination, destination == 0 || user % 2 == 0);
                slots.forget_idle();
            }
        }
        assert!(slots.destinations.len() <= MAX_REMEMBERED + 1, "{}", slots.destinations.len());
        assert!(slots.accounts.len() <= MAX_REMEMBERED + 1, "{}", slots.accounts.len());
        assert_eq!(slots.in_use(), 0);
    }
}
