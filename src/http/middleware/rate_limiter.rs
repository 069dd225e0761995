//! Sliding rate-limit windows in memory: one per user, one for the sessions of a
//! user, and one per address for requests without a valid key.

use std::collections::HashMap;
use std::hash::{BuildHasher as _, Hash, RandomState};
use std::net::IpAddr;
use std::sync::MutexGuard;

use jiff::Timestamp;

use crate::domain::account::client_ip::{rate_limit_address, rate_limit_site};
use crate::domain::account::session::REQUESTS_PER_MINUTE;
use crate::domain::account::sliding_window::{RateLimitStatus, SlidingWindow};
use crate::locks::Mutex;

/// Requests per minute and address without a valid key, whatever the plans say (contract §2.7).
pub const RATE_WITHOUT_KEY: u32 = 60;

/// As [`RATE_WITHOUT_KEY`], for a whole IPv6 /48: a site with so many /64 networks counts as at most 16 clients.
const RATE_OF_SITE: u32 = 16 * RATE_WITHOUT_KEY;

/// Each shard has its own lock, so that a sweep blocks only 1/16 of the callers. More shards shorten that wait further
/// but split the room for addresses more unevenly; the number was chosen without a measurement.
const SHARDS: usize = 16;

/// Windows of addresses: 32,768 need 10 MB at worst. Above it the windows that were silent longest are dropped. Their
/// owners may then send another 60 requests, which a client with so many addresses can do anyway, and a client that
/// sends its first request is never rejected.
const MAX_ADDRESSES: usize = 32_768;

/// Windows of IPv6 sites: 4,096 of up to 960 requests need 16 MB at worst, which takes 65,000 requests a second.
const MAX_SITES: usize = 4_096;

/// Time between two searches for windows without a request in the last minute.
const SWEEP_INTERVAL_MS: i64 = 60_000;

/// The window that a request counts in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RateLimitKey {
    /// The key of a user and the limit of its plan. `None` means no limit; such a user needs no window.
    User(i64, Option<u32>),
    /// The key of a user whose sessions share a window, with the limit [`REQUESTS_PER_MINUTE`].
    Sessions(i64),
    /// An address, with the limit [`RATE_WITHOUT_KEY`], and for IPv6 its site, with the limit [`RATE_OF_SITE`].
    Address(IpAddr),
}

#[derive(Debug)]
pub struct RateLimiter {
    users: ShardedWindows<i64>,
    sessions: ShardedWindows<i64>,
    addresses: ShardedWindows<IpAddr>,
    sites: ShardedWindows<IpAddr>,
}

impl Default for RateLimiter {
    fn default() -> Self {
        // The database bounds the number of users.
        Self {
            users: ShardedWindows::new(usize::MAX),
            sessions: ShardedWindows::new(usize::MAX),
            addresses: ShardedWindows::new(MAX_ADDRESSES / SHARDS),
            sites: ShardedWindows::new(MAX_SITES / SHARDS),
        }
    }
}

impl RateLimiter {
    /// Counts a request at `now`, or refuses it.
    pub fn admit(&self, key: RateLimitKey, now: Timestamp) -> RateLimitStatus {
        match key {
            RateLimitKey::User(_, None) => RateLimitStatus::unused(None, now),
            RateLimitKey::User(user, Some(limit)) => self.users.shard(&user).admit(user, limit, now),
            RateLimitKey::Sessions(user) => self.sessions.shard(&user).admit(user, REQUESTS_PER_MINUTE, now),
            RateLimitKey::Address(address) => self.admit_address(address, now),
        }
    }

    /// A request that one of the two windows refuses counts in neither.
    fn admit_address(&self, address: IpAddr, now: Timestamp) -> RateLimitStatus {
        let site = rate_limit_site(address);
        let refusal = site.and_then(|site| self.sites.shard(&site).refusal(&site, RATE_OF_SITE, now));
        if let Some(refused) = refusal {
            return refused;
        }
        let address = rate_limit_address(address);
        let status = self.addresses.shard(&address).admit(address, RATE_WITHOUT_KEY, now);
        if let (Some(site), None) = (site, status.refused_for) {
            // Requests that pass the first check at the same instant may exceed the limit by their number.
            self.sites.shard(&site).admit(site, RATE_OF_SITE, now);
        }
        status
    }

    /// Takes back the newest request of a client without a key.
    pub fn give_back(&self, address: IpAddr) {
        if let Some(site) = rate_limit_site(address) {
            self.sites.shard(&site).give_back(&site);
        }
        let network = rate_limit_address(address);
        self.addresses.shard(&network).give_back(&network);
    }

    /// Returns the status of a client without a key, without counting a request.
    pub fn status(&self, address: IpAddr, now: Timestamp) -> RateLimitStatus {
        let address = rate_limit_address(address);
        self.addresses.shard(&address).status(&address, RATE_WITHOUT_KEY, now)
    }
}

#[derive(Debug)]
struct ShardedWindows<K> {
    shards: [Mutex<Shard<K>>; SHARDS],
    hasher: RandomState,
}

impl<K: Copy + Eq + Hash> ShardedWindows<K> {
    fn new(max_per_shard: usize) -> Self {
        let shard = |_| {
            Mutex::new(Shard { windows: HashMap::new(), max_windows: max_per_shard, swept_at_ms: i64::MIN })
        };
        Self { shards: std::array::from_fn(shard), hasher: RandomState::new() }
    }

    fn shard(&self, key: &K) -> MutexGuard<'_, Shard<K>> {
        let index = usize::try_from(self.hasher.hash_one(key) % SHARDS as u64).unwrap_or(0);
        // A panic under this lock cannot leave a window half changed.
        self.shards[index].lock()
    }
}

#[derive(Debug)]
struct Shard<K> {
    windows: HashMap<K, SlidingWindow>,
    max_windows: usize,
    swept_at_ms: i64,
}

impl<K: Copy + Eq + Hash> Shard<K> {
    fn admit(&mut self, key: K, limit: u32, now: Timestamp) -> RateLimitStatus {
        self.sweep(now);
        if self.windows.len() >= self.max_windows && !self.windows.contains_key(&key) {
            self.evict_half();
        }
        self.windows.entry(key).or_default().admit(limit, now)
    }

    /// The refusal of a full window; `None` if a request would be admitted. Counts nothing.
    fn refusal(&mut self, key: &K, limit: u32, now: Timestamp) -> Option<RateLimitStatus> {
        let window = self.windows.get_mut(key)?;
        // A full window refuses without counting.
        (window.status(limit, now).used >= limit).then(|| window.admit(limit, now))
    }

    fn give_back(&mut self, key: &K) {
        if let Some(window) = self.windows.get_mut(key) {
            window.give_back();
        }
    }

    fn status(&mut self, key: &K, limit: u32, now: Timestamp) -> RateLimitStatus {
        let window = self.windows.get_mut(key);
        window.map_or_else(|| RateLimitStatus::unused(Some(limit), now), |window| window.status(limit, now))
    }

    /// Drops, once a minute, the windows without a request in the last minute.
    ///
    /// Compares the absolute difference: after the clock was set back, the next sweep does not wait for the old time.
    fn sweep(&mut self, now: Timestamp) {
        let now_ms = now.as_millisecond();
        if now_ms.saturating_sub(self.swept_at_ms).saturating_abs() >= SWEEP_INTERVAL_MS {
            self.swept_at_ms = now_ms;
            self.windows.retain(|_, window| !window.is_empty_at(now));
            self.windows.shrink_to(self.windows.len() * 2);
        }
    }

    /// Drops the half that was silent longest. Dropping half makes this rare enough that its cost does not matter.
    fn evict_half(&mut self) {
        let mut newest: Vec<i64> = self.windows.values().map(SlidingWindow::newest).collect();
        let middle = newest.len() / 2;
        let (_, median, _) = newest.select_nth_unstable(middle);
        let median = *median;
        // Of the windows as old as the median, drop only as many as complete the half.
        let mut equals = middle - newest.iter().filter(|at| **at < median).count();
        self.windows.retain(|_, window| {
            let is_dropped_equal = window.newest() == median && equals > 0;
            equals -= usize::from(is_dropped_equal);
            window.newest() >= median && !is_dropped_equal
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

    /// Memory of the windows in bytes: every slot of every hash table, plus the heap of each window.
    fn bytes<K>(sharded: &ShardedWindows<K>) -> usize {
        sharded
            .shards
            .iter()
            .map(|shard| {
                let shard = shard.lock();
                // A hash table has one control byte per slot and fills at most seven of eight slots.
                let slots = shard.windows.capacity() * 8 / 7 + 16;
                // 24 bytes for the header and the rounding of the allocator.
                let heap: usize = shard.windows.values().map(|window| window.heap_bytes() + 24).sum();
                slots * (size_of::<(K, SlidingWindow)>() + 1) + heap
            })
            .sum()
    }

    #[test]
    fn a_million_requests_of_ten_thousand_users_need_less_than_20_mib() {
        for limit in [60, 500] {
            let limiter = RateLimiter::default();
            for turn in 0..1_000_000_i64 {
                limiter.admit(RateLimitKey::User(turn % 10_000, Some(limit)), at(turn / 20_000));
            }
            let bytes = bytes(&limiter.users);
            assert!(bytes < 20 << 20, "{bytes} bytes under a limit of {limit}");
            assert_eq!(limiter.admit(RateLimitKey::User(0, Some(limit)), at(50)).used, limit.min(101));
        }
    }

    #[test]
    fn expired_windows_are_dropped_once_a_minute() {
        let limiter = RateLimiter::default();
        let windows_at = |seconds| -> usize {
            let shards = limiter.users.shards.iter().map(|shard| shard.lock());
            shards.map(|mut shard| (shard.sweep(at(seconds)), shard.windows.len()).1).sum()
        };
        assert_eq!(windows_at(0), 0);
        for (users, second) in [(1_000, 0), (100, 30)] {
            for user in 0..users {
                limiter.admit(RateLimitKey::User(user, Some(60)), at(second));
            }
        }
        assert_eq!(windows_at(59), 1_000);
        assert_eq!(windows_at(60), 100);
        // After the clock was set back, a window lasts one minute of the new time.
        assert_eq!(windows_at(-3_600), 100);
        assert_eq!(windows_at(-3_540), 0);
    }

    #[test]
    fn a_user_without_a_limit_needs_no_window() {
        let limiter = RateLimiter::default();
        let status = limiter.admit(RateLimitKey::User(1, None), at(0));
        assert_eq!((status.limit, status.remaining(), status.used), (None, None, 0));
        assert!(limiter.users.shards.iter().all(|shard| shard.lock().windows.is_empty()));
    }

    #[test]
    fn users_and_addresses_have_separate_windows() {
        let limiter = RateLimiter::default();
        let address = |text: &str| RateLimitKey::Address(text.parse().unwrap());
        for key in [RateLimitKey::User(1, Some(60)), RateLimitKey::User(2, Some(60)), address("192.0.2.1")] {
            assert_eq!(limiter.admit(key, at(0)).used, 1, "{key:?}");
        }
        assert_eq!(limiter.admit(address("2001:db8::1"), at(0)).used, 1);
        assert_eq!(limiter.admit(address("2001:db8::2"), at(0)).used, 2, "the same /64");
        assert_eq!(limiter.status("2001:db8::3".parse().unwrap(), at(0)).used, 2);
        assert_eq!(limiter.status("192.0.2.9".parse().unwrap(), at(0)).used, 0);
    }

    #[test]
    fn an_ipv6_site_counts_as_at_most_sixteen_clients() {
        let limiter = RateLimiter::default();
        let admit = |site: u128, network: u128, second| {
            let address = Ipv6Addr::from_bits((0x2001_0db8 << 96) | (site << 80) | (network << 64));
            limiter.admit(RateLimitKey::Address(address.into()), at(second))
        };
        for turn in 0..16 * 60 {
            assert_eq!(admit(1, turn, turn as i64 / 60).refused_for, None, "request {turn}");
        }
        let refused = admit(1, 5_000, 20);
        assert_eq!((refused.limit, refused.remaining(), refused.refused_for), (Some(960), Some(0), Some(40)));
        assert_eq!(admit(2, 5_000, 20).used, 1, "another site");
        // What was refused has not counted in the window of its network.
        assert_eq!(admit(1, 5_000, 60).used, 1);
        // What the network's window refuses does not count in that of the site.
        let limiter = RateLimiter::default();
        let one = RateLimitKey::Address("2001:db8:1::1".parse().unwrap());
        let refused = (0..2_000).filter(|_| limiter.admit(one, at(0)).refused_for.is_some()).count();
        let other = RateLimitKey::Address("2001:db8:1:1::1".parse().unwrap());
        assert_eq!((refused, limiter.admit(other, at(0)).refused_for), (1_940, None));
    }

    #[test]
    fn the_number_of_address_windows_is_bounded_and_the_oldest_are_evicted() {
        let limiter = RateLimiter::default();
        let busy = RateLimitKey::Address(Ipv4Addr::LOCALHOST.into());
        for turn in 0..200_000_u128 {
            let address = Ipv6Addr::from_bits(turn << 80).into();
            let second = i64::try_from(turn / 10_000).unwrap();
            assert_eq!(limiter.admit(RateLimitKey::Address(address), at(second)).refused_for, None);
            if turn % 10_000 == 0 {
                limiter.admit(busy, at(second));
            }
        }
        let kept: usize = limiter.addresses.shards.iter().map(|shard| shard.lock().windows.len()).sum();
        assert!((MAX_ADDRESSES / 2..=MAX_ADDRESSES).contains(&kept), "{kept} windows");
        let sites: usize = limiter.sites.shards.iter().map(|shard| shard.lock().windows.len()).sum();
        assert!(sites <= MAX_SITES, "{sites} windows of sites");
        assert!(bytes(&limiter.addresses) < 20 << 20);
        assert_eq!(limiter.admit(busy, at(19)).used, 21, "an active client keeps its window");
    }
}
