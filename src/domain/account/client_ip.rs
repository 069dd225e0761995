//! The client address of a request: the peer's, or the one named by a trusted proxy (contract §2).

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use crate::domain::webhook::address_policy::Cidr;

/// The client address. `hops` are the values of `X-Forwarded-For` in order. They count only if the peer is in
/// `trusted`; the client is then the last hop that is not trusted itself. Empty hops do not count (RFC 9110).
pub fn client_address<'a>(
    peer: IpAddr,
    hops: impl DoubleEndedIterator<Item = &'a [u8]>,
    trusted: &[Cidr],
) -> IpAddr {
    let is_trusted = |address: IpAddr| trusted.iter().any(|network| network.contains(address));
    let mut client = peer.to_canonical();
    let hops = hops.flat_map(|value| value.split(|byte| *byte == b',')).map(<[u8]>::trim_ascii);
    for hop in hops.filter(|hop| !hop.is_empty()).rev() {
        // Text before an untrusted hop was written by that hop and may be forged. An unreadable hop was passed on by
        // the hop after it, which is the best address known.
        if !is_trusted(client) {
            break;
        }
        let Some(address) = str::from_utf8(hop).ok().and_then(read) else { break };
        client = address;
    }
    client
}

/// The network that counts as one client: an IPv6 customer has a whole /64. Of IPv4, the address.
pub fn rate_limit_address(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(v6) => IpAddr::V6(Ipv6Addr::from_bits(v6.to_bits() >> 64 << 64)),
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
        client_address(peer.parse().unwrap(), hops.iter().map(|hop| hop.as_bytes()), &trusted).to_string()
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
    }
}
