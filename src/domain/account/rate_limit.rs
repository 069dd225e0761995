//! Rate limits (contract §2, §3): the client that a request counts for, and the sliding windows in memory of all limits
//! that count callers in time.

use std::collections::{HashMap, VecDeque};
use std::hash::Hash;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use jiff::{SignedDuration, Timestamp};

use crate::domain::row_keys::UserKey;
use crate::domain::webhook::address_policy::Cidr;

/// The client address: the peer's, or the one that a trusted proxy names. `hops` are the values of `X-Forwarded-For` in
/// order. They count only if the peer is in `trusted`; the client is then the last hop that is not trusted itself. Empty
/// hops do not count (RFC 9110).
pub fn client_address<'a>(
    peer: IpAddr,
    hops: impl DoubleEndedIterator<Item = &'a [u8]>,
    trusted: &[Cidr],
) -> IpAddr {
    let is_trusted = |address: IpAddr| trusted.iter().any(|network| network.contains(address));
    let mut client = peer.to_canonical();
    let hops = hops.flat_map(|value| value.split(|byte| *byte == b',')).map(<[u8]>::trim_ascii);
    for hop in hops.filter(|hop| !hop.is_empty()).rev() {
        // An untrusted hop wrote the text before it and may have forged it. The hop after an unreadable one passed that
        // one on and is the best address known.
        if !is_trusted(client) {
            break;
        }
        let Some(address) = str::from_utf8(hop).ok().and_then(read_hop) else { break };
        client = address;
    }
    client
}

/// The network that counts as one client: an IPv6 customer has a whole /64. Of IPv4, the address.
pub fn rate_limit_address(address: IpAddr) -> IpAddr {
    network(address, 64)
}

/// The network that counts as one client for what all users share: providers give a customer up to a /56.
pub fn customer_network(address: IpAddr) -> IpAddr {
    network(address, 56)
}

fn network(address: IpAddr, bits: u32) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(v6) => {
            IpAddr::V6(Ipv6Addr::from_bits(v6.to_bits() & (u128::MAX << (128 - bits))))
        }
        v4 => v4,
    }
}

/// Reads `192.0.2.1`, `2001:db8::1`, `[2001:db8::1]`, each with or without a port.
fn read_hop(hop: &str) -> Option<IpAddr> {
    let bare = hop.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(hop);
    let address = bare.parse().or_else(|_| hop.parse().map(|socket: SocketAddr| socket.ip()));
    address.ok().map(|address: IpAddr| address.to_canonical())
}

/// Requests per minute and address without a valid key, whatever the plans say (contract §2.7).
pub const RATE_WITHOUT_KEY: u32 = 60;

/// The window of a minute that a request counts in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RateKey {
    /// The programs of a user, by row key.
    User(UserKey),
    /// The sessions of a user: an open page takes nothing from the user's programs.
    Sessions(UserKey),
    /// An address (IPv6: a /64).
    Address(IpAddr),
}

/// A clock step backward of up to this many milliseconds, or two requests that overtook each other, leave a window
/// unchanged: a time service corrects less. Larger steps move the window with the clock.
const SLACK: i64 = 5_000;

/// Keys of one kind; a window of 60 takes some 600 bytes. At this number, the half that was silent longest is dropped.
const MAX_KEYS: usize = 16_384;

/// Milliseconds between two searches for windows that are empty.
const SWEEP_INTERVAL: i64 = 60_000;

/// The windows of one kind of callers; each caller may act `limit` times in any `span`.
#[derive(Debug)]
pub struct SlidingWindows<K> {
    limit: u32,
    span: i64,
    windows: HashMap<K, Window>,
    swept_at: i64,
}

/// What one caller did, in milliseconds since 1970: at most as many instants as the limit.
#[derive(Debug, Default)]
struct Window(VecDeque<i64>);

/// A caller's state in its window, as shown in the headers of every response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RateLimitStatus {
    /// Requests in any span; `None` is no limit, and nothing is counted.
    pub limit: Option<u32>,
    /// Requests in the last span, including this one if it was counted.
    pub used: u32,
    /// The instant at which the window is empty if no request follows, in epoch seconds.
    pub reset: i64,
    /// Set on a rejected request: seconds until one is accepted, at least 1.
    pub refused_for: Option<u32>,
}

impl RateLimitStatus {
    pub fn unused(limit: Option<u32>, now: Timestamp) -> Self {
        Self { limit, used: 0, reset: ceil_seconds(now.as_millisecond()), refused_for: None }
    }

    pub fn remaining(&self) -> Option<u32> {
        self.limit.map(|limit| limit.saturating_sub(self.used))
    }
}

impl<K: Copy + Eq + Hash> SlidingWindows<K> {
    pub fn new(limit: u32, span: SignedDuration) -> Self {
        let span = i64::try_from(span.as_millis()).unwrap_or(i64::MAX);
        Self { limit, span, windows: HashMap::new(), swept_at: i64::MIN }
    }

    pub fn clear(&mut self) {
        self.windows.clear();
    }

    /// Counts one at `now`. Returns the seconds until one is admitted if this one is not; it does not count then.
    pub fn admit(&mut self, key: K, now: Timestamp) -> Option<u32> {
        self.admit_below(key, self.limit, now).refused_for
    }

    /// As [`SlidingWindows::admit`], under a limit of this caller.
    pub fn admit_below(&mut self, key: K, limit: u32, now: Timestamp) -> RateLimitStatus {
        self.make_room(&key, now.as_millisecond());
        let window = self.windows.entry(key).or_default();
        let present = window.advance_to(now.as_millisecond(), self.span);
        let refused_for = window.refused_for(limit, now.as_millisecond(), self.span);
        if refused_for.is_none() {
            window.0.push_back(present);
        }
        RateLimitStatus { refused_for, ..window.status(limit, now, self.span) }
    }

    /// The state under a limit of this caller. Counts nothing.
    pub fn status(&mut self, key: &K, limit: u32, now: Timestamp) -> RateLimitStatus {
        let Some(window) = self.windows.get_mut(key) else {
            return RateLimitStatus::unused(Some(limit), now);
        };
        window.advance_to(now.as_millisecond(), self.span);
        window.status(limit, now, self.span)
    }

    /// The seconds until another is admitted, if none is at `now`. Counts nothing.
    pub fn refused_for(&mut self, key: K, now: Timestamp) -> Option<u32> {
        let window = self.windows.get_mut(&key)?;
        window.advance_to(now.as_millisecond(), self.span);
        window.refused_for(self.limit, now.as_millisecond(), self.span)
    }

    /// Removes the newest one, which turned out not to count.
    pub fn return_unused(&mut self, key: K) {
        if let Some(window) = self.windows.get_mut(&key) {
            window.0.pop_back();
            if window.0.is_empty() {
                self.windows.remove(&key);
            }
        }
    }

    pub fn forget(&mut self, key: K) {
        self.windows.remove(&key);
    }

    /// Drops empty windows once a minute, also after the clock was set back, and at [`MAX_KEYS`] the silent half.
    fn make_room(&mut self, key: &K, now: i64) {
        if now.saturating_sub(self.swept_at).saturating_abs() >= SWEEP_INTERVAL {
            self.swept_at = now;
            let span = self.span;
            self.windows.retain(|_, window| {
                window.advance_to(now, span);
                !window.0.is_empty()
            });
            self.windows.shrink_to(self.windows.len() * 2);
        }
        if self.windows.len() >= MAX_KEYS && !self.windows.contains_key(key) {
            let mut newest: Vec<_> =
                self.windows.values().map(|window| window.0.back().copied()).collect();
            let (_, median, _) = newest.select_nth_unstable(MAX_KEYS / 2);
            let median = *median;
            self.windows.retain(|_, window| window.0.back().copied() > median);
        }
    }
}

impl Window {
    /// Drops what is outside the span at `now`. Returns the present, which is never before the newest instant.
    fn advance_to(&mut self, now: i64, span: i64) -> i64 {
        let newest = self.0.back().copied().unwrap_or(i64::MIN);
        if newest.saturating_sub(now) > SLACK && !self.0.is_empty() {
            // The clock went back. The window moves with it and stays as full as it was: an unmoved window would
            // reject its caller until the clock has caught up, an emptied one would lift the limit for everyone.
            self.0.iter_mut().for_each(|at| *at -= newest - now);
        }
        let present = now.max(self.0.back().copied().unwrap_or(now));
        while self.0.front().is_some_and(|oldest| oldest.saturating_add(span) <= present) {
            self.0.pop_front();
        }
        present
    }

    /// The seconds until fewer than `limit` are in the window, rounded up, if it has as many.
    fn refused_for(&self, limit: u32, now: i64, span: i64) -> Option<u32> {
        let surplus = usize::try_from(self.used().checked_sub(limit)?).unwrap_or(usize::MAX);
        // With a limit of 0 nothing is ever accepted, so that any time will do.
        let free_at = self.0.get(surplus).copied().unwrap_or(now).saturating_add(span);
        Some(u32::try_from(ceil_seconds(free_at - now)).unwrap_or(1).max(1))
    }

    fn status(&self, limit: u32, now: Timestamp, span: i64) -> RateLimitStatus {
        let empty =
            self.0.back().map_or(now.as_millisecond(), |newest| newest.saturating_add(span));
        let reset = ceil_seconds(empty);
        RateLimitStatus { limit: Some(limit), used: self.used(), reset, refused_for: None }
    }

    fn used(&self) -> u32 {
        u32::try_from(self.0.len()).unwrap_or(u32::MAX)
    }
}

fn ceil_seconds(millis: i64) -> i64 {
    millis.saturating_add(999).div_euclid(1_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(peer: &str, hops: &[&str]) -> String {
        let trusted: Vec<Cidr> =
            ["10.0.0.0/8", "::1", "fd00::/8"].map(|network| network.parse().unwrap()).to_vec();
        client_address(peer.parse().unwrap(), hops.iter().map(|hop| hop.as_bytes()), &trusted)
            .to_string()
    }

    #[test]
    fn behind_a_trusted_peer_the_last_untrusted_hop_counts() {
        assert_eq!(client("192.0.2.1", &["203.0.113.9"]), "192.0.2.1");
        assert_eq!(client("192.0.2.1", &[]), "192.0.2.1");
        for (hops, expected) in [
            (&["203.0.113.9"][..], "203.0.113.9"),
            (&["198.51.100.1, 203.0.113.9, 10.0.0.2"], "203.0.113.9"),
            (&["198.51.100.1", "203.0.113.9 ,10.0.0.2"], "203.0.113.9"),
            (&["203.0.113.9:4711"], "203.0.113.9"),
            (&["[2001:db8::7]:4711, [fd00::1]"], "2001:db8::7"),
            (&["2001:db8::7"], "2001:db8::7"),
            (&["::ffff:203.0.113.9"], "203.0.113.9"),
            // All are trusted: the first is nearest to the client.
            (&["10.0.0.3, 10.0.0.2"], "10.0.0.3"),
            // Not an address: the text before it was not written by a trusted proxy.
            (&["203.0.113.9, unknown"], "10.0.0.1"),
            (&["203.0.113.9, unknown, 10.0.0.2"], "10.0.0.2"),
            // Empty elements of the list.
            (&[" , ,"], "10.0.0.1"),
            (&["198.51.100.1,,203.0.113.9,"], "203.0.113.9"),
            (&["203.0.113.9", ""], "203.0.113.9"),
            (&["203.0.113.9,, 10.0.0.2, \t"], "203.0.113.9"),
        ] {
            assert_eq!(client("10.0.0.1", hops), expected, "{hops:?}");
        }
        assert_eq!(client("::ffff:10.0.0.1", &["203.0.113.9"]), "203.0.113.9");
    }

    #[test]
    fn an_ipv6_network_of_64_bits_is_one_client() {
        let address = |text: &str| rate_limit_address(text.parse().unwrap()).to_string();
        assert_eq!(address("2001:db8:1:2:3:4:5:6"), "2001:db8:1:2::");
        assert_eq!(address("2001:db8:1:3::"), "2001:db8:1:3::");
        assert_eq!(address("192.0.2.1"), "192.0.2.1");
        assert_eq!(address("::ffff:192.0.2.1"), "192.0.2.1");
        assert_eq!(
            customer_network("2001:db8:1:ff02::1".parse().unwrap()).to_string(),
            "2001:db8:1:ff00::"
        );
    }

    fn at(millis: i64) -> Timestamp {
        Timestamp::from_millisecond(1_800_000_000_000 + millis).unwrap()
    }

    fn minute(limit: u32) -> SlidingWindows<u32> {
        SlidingWindows::new(limit, SignedDuration::from_mins(1))
    }

    fn full(limit: u32, at: Timestamp) -> SlidingWindows<u32> {
        let mut windows = minute(limit);
        (0..limit).for_each(|_| assert_eq!(windows.admit(1, at), None));
        windows
    }

    #[test]
    fn any_span_has_at_most_the_limit() {
        let mut windows = minute(60);
        for second in 0..60 {
            assert_eq!(windows.admit(1, at(second * 1_000)), None);
        }
        assert_eq!([59_001, 59_999].map(|millis| windows.admit(1, at(millis))), [Some(1); 2]);
        assert_eq!(windows.admit(2, at(59_999)), None, "another caller has a window of its own");
        // The request of second 0 has left; that of second 1 has not.
        assert_eq!([60_000, 60_000].map(|millis| windows.admit(1, at(millis))), [None, Some(1)]);
    }

    #[test]
    fn a_refusal_does_not_count_and_names_the_seconds_until_the_oldest_expires() {
        let mut windows = full(2, at(0));
        for (millis, seconds) in
            [(0, 60), (1, 60), (999, 60), (1_000, 59), (58_999, 2), (59_001, 1)]
        {
            assert_eq!(windows.refused_for(1, at(millis)), Some(seconds), "after {millis} ms");
            assert_eq!(windows.admit(1, at(millis)), Some(seconds), "after {millis} ms");
        }
        let expected =
            RateLimitStatus { limit: Some(2), used: 1, reset: 1_800_000_120, refused_for: None };
        assert_eq!(windows.admit_below(1, 2, at(60_000)), expected);
    }

    #[test]
    fn a_clock_step_backward_neither_locks_out_nor_frees_a_caller() {
        let mut windows = full(2, at(86_400_000));
        assert_eq!(windows.admit(1, at(0)), Some(60));
        assert_eq!([59_999, 60_000].map(|millis| windows.admit(1, at(millis))), [Some(1), None]);
        // A step of seconds, or two requests that overtook each other: the window is unchanged.
        let mut windows = full(2, at(0));
        assert_eq!([-4_000, 60_000].map(|millis| windows.admit(1, at(millis))), [Some(64), None]);
    }

    #[test]
    fn the_number_of_keys_is_bounded_and_a_busy_one_stays() {
        let mut windows = minute(60);
        for key in 0..50_000 {
            assert_eq!(windows.admit(key, at(i64::from(key))), None);
            if key % 5_000 == 0 {
                windows.admit(u32::MAX, at(i64::from(key)));
            }
        }
        assert!(
            (MAX_KEYS / 2..=MAX_KEYS).contains(&windows.windows.len()),
            "{}",
            windows.windows.len()
        );
        assert_eq!(windows.status(&u32::MAX, 60, at(50_000)).used, 10);
    }
}
