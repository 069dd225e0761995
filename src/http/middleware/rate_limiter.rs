//! Everybody's rate window, in memory: one per user, and one per address for all who show no valid key.

use std::collections::HashMap;
use std::hash::{BuildHasher as _, Hash, RandomState};
use std::net::IpAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};

use jiff::Timestamp;

use crate::domain::account::client_ip::shared;
use crate::domain::account::sliding_window::{RateLimitStatus, SlidingWindow};

/// Requests a minute of all who show no valid key, per address, whatever the plans say (contract §2).
pub const RATE_WITHOUT_KEY: u32 = 60;

/// Parts with a lock of their own, so that one sweep holds up few.
const SHARDS: usize = 16;

/// Most windows of addresses: 32,768 take 10 MB at worst. Above it those that were silent longest give way: their
/// callers may then make 60 requests once more, which whoever has so many addresses can do anyway, and nobody who
/// asks for the first time is turned away.
const ADDRESSES: usize = 32_768;

/// How often, in milliseconds, windows that are over are looked for.
const SWEEP: i64 = 60_000;

/// Whose window a request counts in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RateLimitKey {
    /// A user's, under the limit of its plan; `None` is no limit, for which nothing is kept.
    User(i64, Option<u32>),
    /// That of an address, under [`RATE_WITHOUT_KEY`].
    Address(IpAddr),
}

/// The windows of one server.
#[derive(Debug)]
pub struct RateLimiter {
    users: ShardedWindows<i64>,
    addresses: ShardedWindows<IpAddr>,
}

impl Default for RateLimiter {
    fn default() -> Self {
        // There are no more users than the database has.
        Self { users: ShardedWindows::new(usize::MAX), addresses: ShardedWindows::new(ADDRESSES / SHARDS) }
    }
}

impl RateLimiter {
    /// Counts a request at `now`, or refuses it.
    pub fn admit(&self, payer: RateLimitKey, now: Timestamp) -> RateLimitStatus {
        match payer {
            RateLimitKey::User(_, None) => RateLimitStatus::unused(None, now),
            RateLimitKey::User(user, Some(limit)) => self.users.shard(&user).admit(user, limit, now),
            RateLimitKey::Address(address) => {
                let address = shared(address);
                self.addresses.shard(&address).admit(address, RATE_WITHOUT_KEY, now)
            }
        }
    }

    /// Where a caller without a key stands; counts nothing.
    pub fn look(&self, address: IpAddr, now: Timestamp) -> RateLimitStatus {
        let address = shared(address);
        self.addresses.shard(&address).look(&address, RATE_WITHOUT_KEY, now)
    }
}

#[derive(Debug)]
struct ShardedWindows<K> {
    shards: [Mutex<Shard<K>>; SHARDS],
    hasher: RandomState,
}

impl<K: Copy + Eq + Hash> ShardedWindows<K> {
    fn new(bound: usize) -> Self {
        let shard = |_| Mutex::new(Shard { windows: HashMap::new(), bound, swept: i64::MIN });
        Self { shards: std::array::from_fn(shard), hasher: RandomState::new() }
    }

    fn shard(&self, key: &K) -> MutexGuard<'_, Shard<K>> {
        let hash = usize::try_from(self.hasher.hash_one(key) % SHARDS as u64).unwrap_or(0);
        // Nothing under this lock can leave a window half changed.
        self.shards[hash].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Debug)]
struct Shard<K> {
    windows: HashMap<K, SlidingWindow>,
    bound: usize,
    /// When it was last swept, in milliseconds since 1970.
    swept: i64,
}

impl<K: Copy + Eq + Hash> Shard<K> {
    fn admit(&mut self, key: K, limit: u32, now: Timestamp) -> RateLimitStatus {
        self.sweep(now);
        if self.windows.len() >= self.bound && !self.windows.contains_key(&key) {
            self.make_room();
        }
        self.windows.entry(key).or_default().admit(limit, now)
    }

    fn look(&mut self, key: &K, limit: u32, now: Timestamp) -> RateLimitStatus {
        let window = self.windows.get_mut(key);
        window.map_or_else(|| RateLimitStatus::unused(Some(limit), now), |window| window.look(limit, now))
    }

    /// Drops, once a minute, the windows of those who made no request for one. A clock that went back is no reason
    /// to wait until it has caught up.
    fn sweep(&mut self, now: Timestamp) {
        let at = now.as_millisecond();
        if at.saturating_sub(self.swept).saturating_abs() >= SWEEP {
            self.swept = at;
            self.windows.retain(|_, window| !window.is_over(now));
            self.windows.shrink_to(self.windows.len() * 2);
        }
    }

    /// Drops the half that was silent longest: rare enough that the search does not matter.
    fn make_room(&mut self) {
        let mut newest: Vec<i64> = self.windows.values().map(SlidingWindow::newest).collect();
        let middle = newest.len() / 2;
        let (_, median, _) = newest.select_nth_unstable(middle);
        let median = *median;
        // Of those that are as old as the median only so many go that half of all do.
        let mut equals = middle - newest.iter().filter(|at| **at < median).count();
        self.windows.retain(|_, window| {
            let goes_as_equal = window.newest() == median && equals > 0;
            equals -= usize::from(goes_as_equal);
            window.newest() >= median && !goes_as_equal
        });
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, Ipv6Addr};

    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(1_800_000_000 + seconds).unwrap()
    }

    /// Bytes that the windows take: every slot of every table, and what the windows hold beside themselves.
    fn bytes<K>(sharded: &ShardedWindows<K>) -> usize {
        sharded
            .shards
            .iter()
            .map(|shard| {
                let shard = shard.lock().unwrap();
                // A table has a byte of its own per slot, and fills seven slots of eight at most.
                let slots = shard.windows.capacity() * 8 / 7 + 16;
                // The allocator rounds up and keeps a header.
                let heap: usize = shard.windows.values().map(|window| window.heap() + 24).sum();
                slots * (size_of::<(K, SlidingWindow)>() + 1) + heap
            })
            .sum()
    }

    #[test]
    fn a_million_requests_of_ten_thousand_users_take_less_than_20_mib() {
        for limit in [60, 500] {
            let windows = RateLimiter::default();
            for turn in 0..1_000_000_i64 {
                windows.admit(RateLimitKey::User(turn % 10_000, Some(limit)), at(turn / 20_000));
            }
            let bytes = bytes(&windows.users);
            assert!(bytes < 20 << 20, "{bytes} bytes under a limit of {limit}");
            assert_eq!(windows.admit(RateLimitKey::User(0, Some(limit)), at(50)).used, limit.min(101));
        }
    }

    #[test]
    fn expired_windows_are_dropped_once_a_minute() {
        let windows = RateLimiter::default();
        let kept_at = |seconds| -> usize {
            let shards = windows.users.shards.iter().map(|shard| shard.lock().unwrap());
            shards.map(|mut shard| (shard.sweep(at(seconds)), shard.windows.len()).1).sum()
        };
        assert_eq!(kept_at(0), 0);
        for (users, second) in [(1_000, 0), (100, 30)] {
            for user in 0..users {
                windows.admit(RateLimitKey::User(user, Some(60)), at(second));
            }
        }
        assert_eq!(kept_at(59), 1_000);
        assert_eq!(kept_at(60), 100);
        // After the clock went back too: they last a minute by the new time.
        assert_eq!(kept_at(-3_600), 100);
        assert_eq!(kept_at(-3_540), 0);
    }

    #[test]
    fn a_user_without_a_limit_needs_no_memory() {
        let windows = RateLimiter::default();
        let standing = windows.admit(RateLimitKey::User(1, None), at(0));
        assert_eq!((standing.limit, standing.remaining(), standing.used), (None, None, 0));
        assert!(windows.users.shards.iter().all(|shard| shard.lock().unwrap().windows.is_empty()));
    }

    #[test]
    fn users_and_addresses_have_separate_windows() {
        let windows = RateLimiter::default();
        let address = |text: &str| RateLimitKey::Address(text.parse().unwrap());
        for payer in [RateLimitKey::User(1, Some(60)), RateLimitKey::User(2, Some(60)), address("192.0.2.1")]
        {
            assert_eq!(windows.admit(payer, at(0)).used, 1, "{payer:?}");
        }
        assert_eq!(windows.admit(address("2001:db8::1"), at(0)).used, 1);
        assert_eq!(windows.admit(address("2001:db8::2"), at(0)).used, 2, "the same /64");
        assert_eq!(windows.look("2001:db8::3".parse().unwrap(), at(0)).used, 2);
        assert_eq!(windows.look("192.0.2.9".parse().unwrap(), at(0)).used, 0);
    }

    #[test]
    fn address_windows_are_bounded_and_the_oldest_are_evicted() {
        let windows = RateLimiter::default();
        let busy = RateLimitKey::Address(Ipv4Addr::LOCALHOST.into());
        for turn in 0..200_000_u128 {
            let address = Ipv6Addr::from_bits(turn << 64).into();
            let second = i64::try_from(turn / 10_000).unwrap();
            assert_eq!(windows.admit(RateLimitKey::Address(address), at(second)).refused_for, None);
            if turn % 10_000 == 0 {
                windows.admit(busy, at(second));
            }
        }
        let kept: usize =
            windows.addresses.shards.iter().map(|shard| shard.lock().unwrap().windows.len()).sum();
        assert!((ADDRESSES / 2..=ADDRESSES).contains(&kept), "{kept} windows");
        assert!(bytes(&windows.addresses) < 20 << 20);
        assert_eq!(windows.admit(busy, at(19)).used, 21, "whoever keeps on asking keeps its window");
    }
}
