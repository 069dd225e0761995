//! Fair sharing of the delivery threads: among accounts, and among the destinations of an account. Hosts that hang must
//! not hold up the others, whoever has them called.
//!
//! This file only counts. `store::fair_queue` decides which row is tried next.

use std::collections::HashMap;
use std::time::Duration;

use crate::engine::delivery::account_slots::{AccountSlots, LastAttempt, Record};
use crate::engine::delivery::destination_slots::DestinationSlots;
use crate::store::fair_queue::Grant;

/// Idle accounts and destinations kept in memory for their limits, of each kind. Bounds the memory of users whose every
/// callback hangs.
const MAX_REMEMBERED: usize = 512;

/// Counts the threads that each account and each of its destinations (host and port) hold. An attempt holds one from its
/// claim to its end, unless it was claimed ahead.
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
///
/// All accounts together. A destination is unproven without a result yet, or if it timed out last. An account is trusted
/// while its limit is above the first one, so attempts of it ended in time; and suspected while it is below:
/// - The first thread of a trusted account at an unproven destination is not limited; its further ones are granted while
///   less than half of the threads are at unproven destinations.
/// - The first of an account without a record is granted while less than three quarters of the threads are.
/// - Its further ones and all those of suspected accounts hold at most a quarter of the threads together; the last half of
///   it is reserved for suspected accounts that hold none.
/// - Accounts whose receivers hang, however many there are, thus leave a quarter of the threads to proven destinations
///   and trusted accounts, and for another half they need a new account for each thread.
///
/// Attempts ahead are claimed without a thread of their own: each follows on a thread of its destination, so that it takes
/// none from others. Only destinations of trusted accounts whose last attempts were quick have some, and all together no
/// more than twice the threads. A thread that such attempts keep busy becomes free later, within a quarter of a second.
/// Nobody therefore goes ahead while it holds more threads than it would get now: an account above its share or while the
/// reserved quarter is in use, and a destination while another one of the account with fewer threads needs one.
#[derive(Debug, Clone)]
pub struct FairShare {
    threads: usize,
    in_use: usize,
    ahead: usize,
    /// Threads at unproven destinations.
    unproven: usize,
    /// Those of them that hold at most a quarter of the threads.
    doubtful: usize,
    accounts: HashMap<i64, AccountSlots>,
    destinations: HashMap<(i64, i64), DestinationSlots>,
}

impl FairShare {
    /// `threads` below one count as one.
    pub fn new(threads: usize) -> Self {
        Self {
            threads: threads.max(1),
            in_use: 0,
            ahead: 0,
            unproven: 0,
            doubtful: 0,
            accounts: HashMap::new(),
            destinations: HashMap::new(),
        }
    }

    pub fn free(&self) -> usize {
        self.threads - self.in_use
    }

    pub fn in_use(&self) -> usize {
        self.in_use
    }

    /// Attempts that are claimed and have no thread yet.
    pub fn ahead(&self) -> usize {
        self.ahead
    }

    /// The most attempts that can be claimed now, ahead or not.
    pub fn claimable(&self) -> usize {
        let ahead = if self.leaves_reserve() { self.most_ahead().saturating_sub(self.ahead) } else { 0 };
        self.free() + ahead
    }

    /// The threads of `destination` of the account `user_key`.
    pub fn threads_of(&self, user_key: i64, destination: i64) -> usize {
        self.destinations.get(&(user_key, destination)).map_or(0, |slots| slots.in_use)
    }

    /// Begins a pass of the dispatcher, which asks for each destination that needs a thread.
    pub fn begin_pass(&mut self) {
        self.accounts.values_mut().for_each(AccountSlots::begin_pass);
    }

    /// Returns whether attempts of the account ended in time, and not too many timed out since.
    pub fn is_trusted(&self, user_key: i64) -> bool {
        self.accounts.get(&user_key).is_some_and(|account| account.record() == Record::Trusted)
    }

    /// Takes a thread for `destination` of the account `user_key`, if it may have one now.
    pub fn try_acquire(&mut self, user_key: i64, destination: i64) -> Grant {
        let grant = self.grant(user_key, destination);
        if grant == Grant::Granted {
            self.acquire(user_key, destination);
        }
        grant
    }

    /// Returns `true` if `destination` of the account `user_key` may have one more thread now.
    pub fn grant(&self, user_key: i64, destination: i64) -> Grant {
        if self.free() == 0 {
            return Grant::NoneLeft;
        }
        let sixteenth = self.sixteenth();
        let account = self.account(user_key);
        let (share, room) = self.room(&account);
        if room == 0 {
            return Grant::AccountBusy;
        }
        let slots = self.destination(user_key, destination);
        let has_room = slots.in_use == 0 || (slots.in_use < slots.limit && room > share.div_ceil(8));
        let may_try = self.may_try_unproven(&account);
        let is_below_limit = match slots.last {
            LastAttempt::Untested if slots.in_use > 0 => {
                may_try && account.untested < account.limit() - account.limit().div_ceil(4)
            }
            LastAttempt::Untested => may_try && account.untested < account.limit(),
            LastAttempt::TimedOut => may_try && account.timed_out < sixteenth,
            LastAttempt::InTime => true,
        };
        match has_room && is_below_limit {
            true => Grant::Granted,
            // None of its destinations can have one. Without this, each of them is tried.
            false if !may_try && account.proven == 0 => Grant::AccountBusy,
            false => Grant::DestinationBusy,
        }
    }

    /// The share of an account, and how many more threads it may have of it.
    fn room(&self, account: &AccountSlots) -> (usize, usize) {
        let free = self.free();
        let share = (free + account.in_use).div_ceil(2);
        let unreserved = free.saturating_sub(self.threads / 4);
        let room = match account.in_use {
            0 => share.min(unreserved.max(1)).min(free),
            held => share.saturating_sub(held).min(unreserved),
        };
        (share, room)
    }

    /// Returns [`Grant::Granted`] if `destination`, which has just been refused a thread, may have an attempt ahead, and
    /// `refusal` or the like otherwise.
    pub fn grant_ahead(&mut self, user_key: i64, destination: i64, refusal: Grant) -> Grant {
        if refusal == Grant::NoneLeft {
            return refusal;
        }
        let (leaves_reserve, has_room_ahead) = (self.leaves_reserve(), self.ahead < self.most_ahead());
        let slots = self.destination(user_key, destination);
        let known = self.account(user_key);
        let (share, room) = self.room(&known);
        let Some(account) = self.accounts.get_mut(&user_key) else { return refusal };
        // One that timed out last is refused by a limit of its own.
        let needs_thread = slots.in_use < slots.limit && slots.last != LastAttempt::TimedOut;
        if needs_thread && (room == 0 || room <= share.div_ceil(8)) {
            account.refuse(slots.in_use);
        }
        let is_within_share = account.in_use <= share && leaves_reserve;
        let is_trusted = account.record() == Record::Trusted;
        match slots.may_go_ahead() && has_room_ahead {
            true if is_trusted && is_within_share && account.may_keep(slots.in_use) => Grant::Granted,
            // It has enough ahead; another destination may not.
            _ if slots.earns_ahead() => Grant::DestinationBusy,
            _ => refusal,
        }
    }

    /// Takes the attempt ahead that was granted.
    pub fn acquire_ahead(&mut self, user_key: i64, destination: i64) {
        if let Some(slots) = self.destinations.get_mut(&(user_key, destination)) {
            slots.ahead += 1;
            self.ahead += 1;
        }
    }

    /// Counts that an attempt to `destination` took this long.
    pub fn count_pace(&mut self, user_key: i64, destination: i64, took: Duration) {
        let most = self.most_ahead();
        if let Some(slots) = self.destinations.get_mut(&(user_key, destination)) {
            slots.earn_ahead(took, most);
        }
    }

    /// An attempt that was claimed is not made. Its destination has none ahead until attempts are quick again.
    pub fn give_back(&mut self, user_key: i64, destination: i64) {
        let Some(slots) = self.destinations.get_mut(&(user_key, destination)) else { return };
        slots.lose_ahead();
        let before = *slots;
        slots.leave();
        let after = *slots;
        self.leave(user_key, before, after, |_| {});
    }

    /// Takes the thread that was granted.
    pub fn acquire(&mut self, user_key: i64, destination: i64) {
        let mut slots = self.destination(user_key, destination);
        slots.in_use += 1;
        self.destinations.insert((user_key, destination), slots);
        self.in_use += 1;
        self.change(user_key, |account| {
            account.in_use += 1;
            if let Some(limited) = account.limited(slots.last) {
                *limited += 1;
            }
        });
    }

    /// Returns the thread of an attempt to `destination` of the account `user_key` that has ended.
    pub fn release(&mut self, user_key: i64, destination: i64, timed_out: bool) {
        let threads = self.threads;
        let Some(slots) = self.destinations.get_mut(&(user_key, destination)) else { return };
        let before = *slots;
        slots.leave();
        (slots.limit, slots.last) = match timed_out {
            true => (1, LastAttempt::TimedOut),
            false => (threads.min(slots.limit + 1), LastAttempt::InTime),
        };
        let after = *slots;
        self.leave(user_key, before, after, |account| match (timed_out, before.last) {
            (false, _) => account.raise_limit(threads),
            (true, LastAttempt::InTime | LastAttempt::Untested) => account.halve_limit(),
            // A destination that is known to hang holds few threads anyway.
            (true, LastAttempt::TimedOut) => {}
        });
    }

    /// Counts an attempt that has left its destination, and what it says about the account.
    fn leave(
        &mut self,
        user_key: i64,
        before: DestinationSlots,
        after: DestinationSlots,
        result: impl FnOnce(&mut AccountSlots),
    ) {
        self.ahead -= before.ahead - after.ahead;
        self.in_use -= before.in_use - after.in_use;
        self.change(user_key, |account| {
            account.in_use -= before.in_use - after.in_use;
            if let Some(limited) = account.limited(before.last) {
                *limited -= before.in_use;
            }
            if let Some(limited) = account.limited(after.last) {
                *limited += after.in_use;
            }
            account.proven += usize::from(after.last == LastAttempt::InTime);
            account.proven -= usize::from(before.last == LastAttempt::InTime);
            result(account);
        });
    }

    /// Changes the counts of an account, and those of all accounts with them.
    fn change(&mut self, user_key: i64, change: impl FnOnce(&mut AccountSlots)) {
        let mut account = self.account(user_key);
        let (unproven, doubtful) = (account.unproven(), account.doubtful());
        change(&mut account);
        self.unproven = self.unproven + account.unproven() - unproven;
        self.doubtful = self.doubtful + account.doubtful() - doubtful;
        self.accounts.insert(user_key, account);
    }

    /// Returns `true` if the other accounts leave this one another thread for an unproven destination.
    fn may_try_unproven(&self, account: &AccountSlots) -> bool {
        let quarter = self.threads / 4;
        match account.record() {
            Record::Trusted => account.unproven() == 0 || self.unproven < (self.threads / 2).max(1),
            Record::None if account.unproven() == 0 => self.unproven < self.threads - quarter,
            Record::None | Record::Suspected if account.unproven() > 0 => {
                self.doubtful < (quarter / 2).max(1)
            }
            Record::None | Record::Suspected => self.doubtful < quarter.max(1),
        }
    }

    fn account(&self, user_key: i64) -> AccountSlots {
        let known = self.accounts.get(&user_key).copied();
        known.unwrap_or_else(|| AccountSlots::new(self.initial_limit()))
    }

    fn destination(&self, user_key: i64, destination: i64) -> DestinationSlots {
        let known = self.destinations.get(&(user_key, destination)).copied();
        known.unwrap_or_else(|| DestinationSlots::new(self.sixteenth()))
    }

    /// Drops the counts of destinations that hold no thread, except of those that timed out, and of accounts that hold
    /// none once there are many.
    pub fn forget_idle(&mut self) {
        let sixteenth = self.sixteenth();
        self.forget_destinations(|slots| slots.last == LastAttempt::TimedOut || slots.limit < sixteenth);
        let most = MAX_REMEMBERED + self.in_use;
        if self.destinations.len() > most {
            self.forget_destinations(|_| false);
        }
        if self.accounts.len() > most {
            self.forget_accounts(|account| account.in_use > 0 || account.record() != Record::None);
        }
        if self.accounts.len() > most {
            self.forget_accounts(|account| account.in_use > 0);
        }
    }

    /// Drops the accounts that `is_kept` refuses, with their destinations, whose number they count.
    fn forget_accounts(&mut self, is_kept: impl Fn(&AccountSlots) -> bool) {
        self.accounts.retain(|_, account| is_kept(account));
        self.destinations.retain(|(user_key, _), _| self.accounts.contains_key(user_key));
    }

    /// Drops the destinations that hold no thread and that `is_kept` refuses.
    fn forget_destinations(&mut self, is_kept: impl Fn(&DestinationSlots) -> bool) {
        let accounts = &mut self.accounts;
        self.destinations.retain(|(user_key, _), slots| {
            let is_kept = slots.in_use > 0 || is_kept(slots);
            if let Some(account) = accounts.get_mut(user_key).filter(|_| !is_kept) {
                account.proven -= usize::from(slots.last == LastAttempt::InTime);
            }
            is_kept
        });
    }

    /// The first limit of untested destinations: two at least, so that one that hangs does not hold up another.
    fn initial_limit(&self) -> usize {
        (self.threads / 8).max(2)
    }

    /// Returns whether the threads that are reserved for accounts without one are free.
    fn leaves_reserve(&self) -> bool {
        self.free() >= (self.threads / 4).max(1)
    }

    /// The most attempts ahead of all destinations together.
    fn most_ahead(&self) -> usize {
        self.threads * 2
    }

    fn sixteenth(&self) -> usize {
        (self.threads / 16).max(1)
    }
}

#[cfg(test)]
#[path = "fair_share_tests.rs"]
mod tests;
