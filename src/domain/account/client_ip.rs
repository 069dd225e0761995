//! Which address a request comes from: the peer's, or the one that a trusted proxy names (contract §2).

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use crate::domain::webhook::address_policy::Cidr;

/// The address of the caller. `hops` are the values of `X-Forwarded-For` in order; they count only where the peer is
/// one of `trusted`, and then the last of them that is not trusted itself.
#[must_use]
pub fn client_address<'a>(
    peer: IpAddr,
    hops: impl DoubleEndedIterator<Item = &'a str>,
    trusted: &[Cidr],
) -> IpAddr {
    let is_trusted = |address: IpAddr| trusted.iter().any(|network| network.contains(address));
    let mut client = peer.to_canonical();
    for hop in hops.flat_map(|value| value.split(',')).rev() {
        // Whoever is not trusted wrote what stands before it, and may have written anything. What cannot be read was
        // passed on by the hop behind it, which is then all that is known.
        if !is_trusted(client) {
            break;
        }
        let Some(address) = read(hop.trim()) else { break };
        client = address;
    }
    client
}

/// The address that stands for all which are likely one caller's: an IPv6 customer has a whole /64.
#[must_use]
pub fn shared(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(v6) => IpAddr::V6(Ipv6Addr::from_bits(v6.to_bits() & !u128::from(u64::MAX))),
        v4 => v4,
    }
}

/// `192.0.2.1`, `2001:db8::1`, `[2001:db8::1]`, each with or without a port.
fn read(hop: &str) -> Option<IpAddr> {
    let bare = hop.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(hop);
    let address = bare.parse().or_else(|_| hop.parse().map(|socket: SocketAddr| socket.ip()));
    address.ok().map(|address: IpAddr| address.to_canonical())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(peer: &str, hops: &[&str]) -> String {
        let trusted: Vec<Cidr> =
            ["10.0.0.0/8", "::1", "fd00::/8"].map(|network| network.parse().unwrap()).to_vec();
        client_address(peer.parse().unwrap(), hops.iter().copied(), &trusted).to_string()
    }

    #[test]
    fn the_header_of_an_untrusted_peer_is_ignored() {
        assert_eq!(client("192.0.2.1", &["203.0.113.9"]), "192.0.2.1");
        assert_eq!(client("192.0.2.1", &[]), "192.0.2.1");
    }

    #[test]
    fn behind_a_trusted_peer_the_last_untrusted_hop_counts() {
        for (hops, expected) in [
            (vec!["203.0.113.9"], "203.0.113.9"),
            (vec!["198.51.100.1, 203.0.113.9, 10.0.0.2"], "203.0.113.9"),
            (vec!["198.51.100.1", "203.0.113.9 ,10.0.0.2"], "203.0.113.9"),
            (vec!["203.0.113.9:4711"], "203.0.113.9"),
            (vec!["[2001:db8::7]:4711, [fd00::1]"], "2001:db8::7"),
            (vec!["2001:db8::7"], "2001:db8::7"),
            (vec!["::ffff:203.0.113.9"], "203.0.113.9"),
            // All of them trusted: the first is the nearest to the caller.
            (vec!["10.0.0.3, 10.0.0.2"], "10.0.0.3"),
            (vec![], "10.0.0.1"),
            // Not an address: what stands before it was written by nobody who is trusted.
            (vec!["203.0.113.9, unknown"], "10.0.0.1"),
            (vec!["203.0.113.9, unknown, 10.0.0.2"], "10.0.0.2"),
            (vec![""], "10.0.0.1"),
        ] {
            assert_eq!(client("10.0.0.1", &hops), expected, "{hops:?}");
        }
        assert_eq!(client("::ffff:10.0.0.1", &["203.0.113.9"]), "203.0.113.9");
    }

    #[test]
    fn an_ipv6_network_of_64_bits_is_one_client() {
        let shared = |text: &str| shared(text.parse().unwrap()).to_string();
        assert_eq!(shared("2001:db8:1:2:3:4:5:6"), "2001:db8:1:2::");
        assert_eq!(shared("2001:db8:1:3::"), "2001:db8:1:3::");
        assert_eq!(shared("192.0.2.1"), "192.0.2.1");
        assert_eq!(shared("::ffff:192.0.2.1"), "192.0.2.1");
    }
}
