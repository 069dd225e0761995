//! Fair shares of the delivery threads: by account, and by destination (host and port) of an account. A host that hangs
//! must not delay the others, whichever account calls it.
//!
//! This file only counts. `store::fair_queue` decides which row is tried next.

use std::collections::HashMap;

use crate::domain::account::holdings::Holdings;
use crate::domain::row_keys::UserKey;
use crate::store::fair_queue::Grant;

/// An account and one of its destinations. The same host called by two accounts is two destinations, so that no account
/// can spoil the share of another.
pub type DestinationKey = (UserKey, i64);

/// Idle destinations whose last attempt is remembered. Bounds the memory of users who call a new host for every
/// attempt.
const MAX_REMEMBERED: usize = 1_024;

/// Something scarce, such as threads or bytes. An account may hold as much of it as it leaves free: the first one half
/// of all, the second a quarter.
#[derive(Debug)]
pub struct AccountShares {
    all: usize,
    held: Holdings<UserKey>,
}

impl AccountShares {
    pub fn new(all: usize) -> Self {
        Self { all, held: Holdings::none() }
    }

    pub fn in_use(&self) -> usize {
        self.held.total()
    }

    pub fn free(&self) -> usize {
        self.all.saturating_sub(self.in_use())
    }

    pub fn held(&self, user_key: UserKey) -> usize {
        self.held.of(user_key)
    }

    pub fn room(&self, user_key: UserKey) -> usize {
        let held = self.held(user_key);
        (self.free() + held).div_ceil(2).saturating_sub(held)
    }

    /// Returns whether the account may take `amount`. One that holds nothing may take all that is free, and the first
    /// one whatever it needs, so that no amount waits forever.
    pub fn has_room(&self, user_key: UserKey, amount: usize) -> bool {
        let most = if self.held(user_key) == 0 { self.free() } else { self.room(user_key) };
        amount <= most || self.in_use() == 0
    }

    pub fn take(&mut self, user_key: UserKey, amount: usize) {
        self.held.add(user_key, amount);
    }

    pub fn release(&mut self, user_key: UserKey, amount: usize) {
        self.held.remove(user_key, amount);
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AttemptEnd {
    /// So soon that the next attempts of the destination may wait in memory: a commit takes about as long.
    Quick,
    InTime,
    TimedOut,
    /// It was not made, because the claim was not committed.
    Unclaimed,
}

/// Grants the attempts that may be under way, from their claim to their end.
///
/// - They may be more than the threads: while a commit records results and claims others, the threads find work in
///   memory. An account has a share of them ([`AccountShares`]).
/// - A destination has at most an eighth of the threads; one that answers quickly has half of what its account may have
///   besides its other destinations, which wait for these threads. After a timeout it has one until it answers.
/// - Destinations that have not answered yet, or timed out last, leave a quarter of the threads to the others, and are
///   shared by account too: with a new host for every attempt, an account does not get far. Where the account has a
///   quarter of the threads under way, each has one.
#[derive(Debug)]
pub struct FairShare {
    threads: usize,
    attempts: AccountShares,
    untested: AccountShares,
    destinations: HashMap<DestinationKey, Destination>,
}

#[derive(Debug, Default)]
struct Destination {
    under_way: usize,
    /// Attempts granted before the destination answered.
    untested: usize,
    last: Option<AttemptEnd>,
}

impl FairShare {
    pub fn new(threads: usize, attempts: usize) -> Self {
        let threads = threads.max(1);
        Self {
            threads,
            attempts: AccountShares::new(attempts.max(1)),
            untested: AccountShares::new(threads - threads / 4),
            destinations: HashMap::new(),
        }
    }

    pub fn under_way(&self) -> usize {
        self.attempts.in_use()
    }

    pub fn under_way_of(&self, key: DestinationKey) -> usize {
        self.destinations.get(&key).map_or(0, |of| of.under_way)
    }

    pub fn is_full(&self) -> bool {
        self.attempts.free() == 0
    }

    pub fn try_acquire(&mut self, user_key: UserKey, destination: i64) -> Grant {
        let key = (user_key, destination);
        if self.is_full() {
            return Grant::NoneLeft;
        }
        if !self.attempts.has_room(user_key, 1) {
            return Grant::AccountBusy;
        }
        let (under_way, last) =
            self.destinations.get(&key).map_or((0, None), |of| (of.under_way, of.last));
        let eighth = (self.threads / 8).max(1);
        let is_untested = matches!(last, None | Some(AttemptEnd::TimedOut));
        let most = match last {
            Some(AttemptEnd::Quick) => {
                eighth.max((self.attempts.room(user_key) + under_way).div_ceil(2))
            }
            Some(AttemptEnd::TimedOut) => 1,
            None if self.attempts.held(user_key) >= self.threads / 4 => 1,
            _ => eighth,
        };
        if under_way >= most || (is_untested && !self.untested.has_room(user_key, 1)) {
            return Grant::DestinationBusy;
        }
        // Only one that was granted an attempt is remembered: an account with many new hosts drives out no other one.
        let of = self.destinations.entry(key).or_default();
        of.under_way += 1;
        of.untested += usize::from(is_untested);
        self.untested.take(user_key, usize::from(is_untested));
        self.attempts.take(user_key, 1);
        Grant::Granted
    }

    pub fn release(&mut self, user_key: UserKey, destination: i64, end: AttemptEnd) {
        let Some(of) = self.destinations.get_mut(&(user_key, destination)) else { return };
        of.under_way -= 1;
        self.attempts.release(user_key, 1);
        // Once it has answered, none of its attempts is untested.
        let answers = matches!(end, AttemptEnd::Quick | AttemptEnd::InTime);
        let tested = if answers { of.untested } else { of.untested.min(1) };
        of.untested -= tested;
        self.untested.release(user_key, tested);
        if end != AttemptEnd::Unclaimed {
            of.last = Some(end);
        }
    }

    /// Bounds the destinations that are remembered: first those that answered last are forgotten.
    pub fn forget_idle(&mut self) {
        let most = MAX_REMEMBERED + self.under_way();
        for keeps_hanging in [true, false] {
            if self.destinations.len() > most {
                let is_kept =
                    |of: &Destination| keeps_hanging && of.last == Some(AttemptEnd::TimedOut);
                self.destinations.retain(|_, of| of.under_way > 0 || is_kept(of));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_account_holds_as_much_as_it_leaves() {
        let mut shares = AccountShares::new(64);
        let mut take = |user: UserKey| {
            (0..100)
                .take_while(|_| shares.has_room(user, 1).then(|| shares.take(user, 1)).is_some())
                .count()
        };
        assert_eq!(
            [1, 2, 3, 4, 5, 6, 7, 8].map(UserKey::new).map(&mut take),
            [32, 16, 8, 4, 2, 1, 1, 0]
        );
        shares.release(UserKey::new(1), 32);
        assert!(
            shares.has_room(UserKey::new(8), 32)
                && !shares.has_room(UserKey::new(2), 17)
                && shares.has_room(UserKey::new(2), 8)
        );
        let mut alone = AccountShares::new(10);
        assert!(alone.has_room(UserKey::new(1), 20), "a single one, however large");
        alone.take(UserKey::new(1), 20);
        assert!(!alone.has_room(UserKey::new(2), 1));
        alone.release(UserKey::new(1), 20);
        assert_eq!((alone.free(), alone.held(UserKey::new(1))), (10, 0));
    }

    #[test]
    fn few_idle_destinations_are_remembered() {
        let mut share = FairShare::new(64, 512);
        for destination in 0..2_000 {
            assert_eq!(share.try_acquire(UserKey::new(9), destination), Grant::Granted);
            share.release(UserKey::new(9), destination, AttemptEnd::InTime);
            share.forget_idle();
        }
        assert!(share.destinations.len() <= MAX_REMEMBERED);
        assert_eq!((share.under_way(), share.untested.in_use()), (0, 0));
    }
}
