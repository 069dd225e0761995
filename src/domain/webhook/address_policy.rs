//! Classes of network addresses, the address that a host written as a number stands for, and the address policy of
//! callbacks (contract §6): parses the values of `--allow-callbacks-to` and decides which addresses are allowed.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use url::Host;

use crate::domain::text::word_enum;
use crate::domain::webhook::echo::EchoToken;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AllowRule {
    Public,
    /// `private`: RFC 1918 and IPv6 unique local addresses. Not link-local ones, where clouds serve credentials.
    Private,
    Loopback,
    /// A network, regardless of the class of its addresses.
    Network(Cidr),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cidr {
    base: IpAddr,
    length: u32,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ParseAllowRuleError(String);

/// The addresses that callbacks may reach. The default is the public internet only.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AddressPolicy {
    classes: Vec<AddressClass>,
    networks: Vec<Cidr>,
    exemption: Option<Exemption>,
}

/// A path of this server that callbacks may always reach, whatever address its name resolves to.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Exemption {
    host: String,
    port: u16,
    folder: String,
}

impl Default for AddressPolicy {
    fn default() -> Self {
        Self { classes: vec![AddressClass::Public], networks: Vec::new(), exemption: None }
    }
}

impl AddressPolicy {
    pub fn new(rules: &[AllowRule]) -> Self {
        if rules.is_empty() {
            return Self::default();
        }
        let mut policy = Self { classes: Vec::new(), ..Self::default() };
        for rule in rules {
            match rule {
                AllowRule::Public => policy.classes.push(AddressClass::Public),
                AllowRule::Private => policy.classes.push(AddressClass::Private),
                AllowRule::Loopback => policy.classes.push(AddressClass::Loopback),
                AllowRule::Network(cidr) => policy.networks.push(*cidr),
            }
        }
        policy
    }

    /// Also allows the echo tokens below `folder`, whatever address the host resolves to. An IPv6 host has no brackets.
    pub fn with_exemption(mut self, host: &str, port: u16, folder: &str) -> Self {
        let host = host.to_ascii_lowercase();
        self.exemption = Some(Exemption { host, port, folder: folder.to_owned() });
        self
    }

    pub fn allows(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        self.classes.contains(&classify(address))
            || self.networks.iter().any(|network| network.contains(address))
    }

    pub const CLASSES: [&'static str; 3] = [
        AddressClass::Public.as_str(),
        AddressClass::Private.as_str(),
        AddressClass::Loopback.as_str(),
    ];

    /// The allowed ones of [`Self::CLASSES`]. Single networks are the operator's configuration and not listed.
    pub fn words(&self) -> Vec<&'static str> {
        let is_allowed = |word: &&str| self.classes.iter().any(|class| class.as_str() == *word);
        Self::CLASSES.into_iter().filter(is_allowed).collect()
    }

    /// Whether users may learn that a name exists: where they may call private addresses, they could find out anyway.
    pub fn shows_names(&self) -> bool {
        self.classes.contains(&AddressClass::Private)
    }

    /// What an address of a class that is not allowed is, as the end of a sentence.
    pub fn refusal(&self, class: AddressClass) -> String {
        let article = if class == AddressClass::Unspecified { "an" } else { "a" };
        let remedy = self.remedy(class);
        format!(
            "{article} {class} address, which callbacks may not reach; the operator can allow it: {remedy}"
        )
    }

    /// What the operator writes to allow a class too: the flag replaces the default.
    pub fn remedy(&self, class: AddressClass) -> String {
        let mut words = self.words();
        words.push(
            Self::CLASSES.into_iter().find(|word| *word == class.as_str()).unwrap_or("ADDRESS"),
        );
        let words = words.join(",");
        format!("`cued serve --allow-callbacks-to {words}` or CUED_ALLOW_CALLBACKS_TO")
    }

    pub fn exempts(&self, host: &str, port: u16, path: &str) -> bool {
        self.exemption.as_ref().is_some_and(|own| {
            // A token only: a proxy in front of this server could read `..` or `%2e` as another path.
            let token = path.strip_prefix(own.folder.as_str()).and_then(EchoToken::parse);
            own.port == port && own.host.eq_ignore_ascii_case(host) && token.is_some()
        })
    }
}

impl Cidr {
    pub fn contains(&self, address: IpAddr) -> bool {
        self.base.is_ipv4() == address.is_ipv4()
            && Self::new(address, self.length).base == self.base
    }

    fn new(base: IpAddr, length: u32) -> Self {
        let base = match base {
            IpAddr::V4(v4) => {
                IpAddr::V4((v4.to_bits() & u32::MAX.checked_shl(32 - length).unwrap_or(0)).into())
            }
            IpAddr::V6(v6) => {
                IpAddr::V6((v6.to_bits() & u128::MAX.checked_shl(128 - length).unwrap_or(0)).into())
            }
        };
        Self { base, length }
    }
}

impl fmt::Display for Cidr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.base, self.length)
    }
}

impl FromStr for Cidr {
    type Err = ParseAllowRuleError;

    fn from_str(text: &str) -> Result<Self, ParseAllowRuleError> {
        let (address, length) = match text.split_once('/') {
            Some((address, length)) => (address, Some(length)),
            None => (text, None),
        };
        let Ok(base) = address.parse::<IpAddr>() else {
            return Err(ParseAllowRuleError(format!(
                "`{text}` is not public, private, loopback or a network such as 192.168.1.0/24"
            )));
        };
        let longest = if base.is_ipv4() { 32 } else { 128 };
        let digits =
            length.map(|digits| digits.bytes().all(|b| b.is_ascii_digit()).then_some(digits));
        let length = match digits {
            None => Some(longest),
            Some(digits) => {
                digits.and_then(|digits| digits.parse().ok()).filter(|length| *length <= longest)
            }
        };
        let Some(length) = length else {
            return Err(ParseAllowRuleError(format!(
                "the length after the slash in `{text}` must be 0 to {longest}"
            )));
        };
        let network = Self::new(base, length);
        if network.base != base {
            return Err(ParseAllowRuleError(format!(
                "`{text}` has bits set after its length; write {network}"
            )));
        }
        reject_mapped_v4(network)
    }
}

/// Addresses are compared in their IPv4 form: an IPv4-mapped network would never match.
fn reject_mapped_v4(network: Cidr) -> Result<Cidr, ParseAllowRuleError> {
    match (network.base.to_canonical(), network.base) {
        (IpAddr::V4(v4), IpAddr::V6(_)) if network.length >= 96 => Err(ParseAllowRuleError(
            format!("write `{network}` as {}", Cidr::new(v4.into(), network.length - 96)),
        )),
        _ => Ok(network),
    }
}

impl FromStr for AllowRule {
    type Err = ParseAllowRuleError;

    fn from_str(text: &str) -> Result<Self, ParseAllowRuleError> {
        match text {
            "public" => Ok(Self::Public),
            "private" => Ok(Self::Private),
            "loopback" => Ok(Self::Loopback),
            _ => text.parse().map(Self::Network),
        }
    }
}

word_enum! {
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
    pub enum AddressClass {
        Public = "public",
        Private = "private",
        Loopback = "loopback",
        /// The local link; clouds serve their metadata there.
        LinkLocal = "link-local",
        CarrierNat = "carrier-grade NAT",
        Benchmarking = "benchmarking",
        Multicast = "multicast",
        /// `0.0.0.0/8` and `::`, which many systems route to this machine.
        Unspecified = "unspecified",
        Documentation = "documentation",
        /// Services of a cloud at addresses that look private or public.
        Metadata = "cloud metadata",
        /// Anything else that is not the public internet, including contradictory embedded addresses.
        Reserved = "reserved",
    }
}

impl fmt::Display for AddressClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The class of an address. An address that embeds another is judged by both.
pub fn classify(address: IpAddr) -> AddressClass {
    match address {
        IpAddr::V4(v4) => classify_v4(v4),
        IpAddr::V6(v6) => classify_v6(v6),
    }
}

/// The address of a host written as a number in any notation (`127.1`, `0x7f000001`, `[::1]`); `None` for a name.
pub fn literal(host: &str) -> Option<IpAddr> {
    match Host::parse(host).ok()? {
        Host::Ipv4(address) => Some(address.into()),
        Host::Ipv6(address) => Some(address.into()),
        Host::Domain(_) => None,
    }
}

const V4: [(Ipv4Addr, u32, AddressClass); 16] = [
    (Ipv4Addr::new(0, 0, 0, 0), 8, AddressClass::Unspecified),
    (Ipv4Addr::new(10, 0, 0, 0), 8, AddressClass::Private),
    (Ipv4Addr::new(100, 64, 0, 0), 10, AddressClass::CarrierNat),
    (Ipv4Addr::new(127, 0, 0, 0), 8, AddressClass::Loopback),
    // Azure's host agent: it looks public but is reachable only from inside.
    (Ipv4Addr::new(168, 63, 129, 16), 32, AddressClass::Metadata),
    (Ipv4Addr::new(169, 254, 0, 0), 16, AddressClass::LinkLocal),
    (Ipv4Addr::new(172, 16, 0, 0), 12, AddressClass::Private),
    (Ipv4Addr::new(192, 0, 0, 0), 24, AddressClass::Reserved),
    (Ipv4Addr::new(192, 0, 2, 0), 24, AddressClass::Documentation),
    (Ipv4Addr::new(192, 88, 99, 0), 24, AddressClass::Reserved),
    (Ipv4Addr::new(192, 168, 0, 0), 16, AddressClass::Private),
    (Ipv4Addr::new(198, 18, 0, 0), 15, AddressClass::Benchmarking),
    (Ipv4Addr::new(198, 51, 100, 0), 24, AddressClass::Documentation),
    (Ipv4Addr::new(203, 0, 113, 0), 24, AddressClass::Documentation),
    (Ipv4Addr::new(224, 0, 0, 0), 4, AddressClass::Multicast),
    (Ipv4Addr::new(240, 0, 0, 0), 4, AddressClass::Reserved),
];

/// The first matching row counts. Addresses without a row (discard-only, SRv6, site-local …) are reserved.
const V6: [(Ipv6Addr, u32, AddressClass); 12] = [
    (Ipv6Addr::UNSPECIFIED, 128, AddressClass::Unspecified),
    (Ipv6Addr::LOCALHOST, 128, AddressClass::Loopback),
    // The metadata services of AWS and Google Cloud, in the middle of the private range.
    (Ipv6Addr::new(0xfd00, 0x0ec2, 0, 0, 0, 0, 0, 0), 32, AddressClass::Metadata),
    (Ipv6Addr::new(0xfd20, 0x00ce, 0, 0, 0, 0, 0, 0x254), 128, AddressClass::Metadata),
    (Ipv6Addr::new(0xfc00, 0, 0, 0, 0, 0, 0, 0), 7, AddressClass::Private),
    (Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0), 10, AddressClass::LinkLocal),
    (Ipv6Addr::new(0xff00, 0, 0, 0, 0, 0, 0, 0), 8, AddressClass::Multicast),
    (Ipv6Addr::new(0x2001, 0x0db8, 0, 0, 0, 0, 0, 0), 32, AddressClass::Documentation),
    (Ipv6Addr::new(0x3fff, 0, 0, 0, 0, 0, 0, 0), 20, AddressClass::Documentation),
    (Ipv6Addr::new(0x2001, 0x0002, 0, 0, 0, 0, 0, 0), 48, AddressClass::Benchmarking),
    // IETF protocol assignments, ORCHID among them.
    (Ipv6Addr::new(0x2001, 0, 0, 0, 0, 0, 0, 0), 23, AddressClass::Reserved),
    (Ipv6Addr::new(0x2000, 0, 0, 0, 0, 0, 0, 0), 3, AddressClass::Public),
];

fn classify_v4(address: Ipv4Addr) -> AddressClass {
    let bits = address.to_bits();
    V4.iter()
        .find(|(base, length, _)| (bits ^ base.to_bits()) >> (32 - length) == 0)
        .map_or(AddressClass::Public, |row| row.2)
}

fn classify_v6(address: Ipv6Addr) -> AddressClass {
    let o = address.octets();
    let prefix = classify_embedded(address).unwrap_or_else(|| classify_by_table(address));
    match o[8..12] {
        // ISATAP embeds an IPv4 address in the second half, behind any prefix.
        [0 | 2, 0, 0x5e, 0xfe] => {
            stricter(prefix, classify_v4(Ipv4Addr::new(o[12], o[13], o[14], o[15])))
        }
        _ => prefix,
    }
}

fn classify_by_table(address: Ipv6Addr) -> AddressClass {
    let bits = address.to_bits();
    V6.iter()
        .find(|(base, length, _)| (bits ^ base.to_bits()) >> (128 - length) == 0)
        .map_or(AddressClass::Reserved, |row| row.2)
}

/// The class of the IPv4 addresses that the prefix says are embedded; `None` if it says nothing.
fn classify_embedded(address: Ipv6Addr) -> Option<AddressClass> {
    let o = address.octets();
    let v4 =
        |a: usize, b: usize, c: usize, d: usize| classify_v4(Ipv4Addr::new(o[a], o[b], o[c], o[d]));
    let class = match address.segments() {
        [0, 0, 0, 0, 0, 0, 0, 0 | 1] => return None,
        // IPv4-mapped; NAT64 with the well-known prefix and with the local one. A local prefix of another length puts
        // the address where only that network knows (RFC 6052): those stay reserved.
        [0, 0, 0, 0, 0, 0xffff, ..] | [0x64, 0xff9b, 0 | 1, 0, 0, 0, ..] => v4(12, 13, 14, 15),
        // 6to4.
        [0x2002, ..] => v4(2, 3, 4, 5),
        // IPv4-compatible: deprecated, so nothing public is reachable this way.
        [0, 0, 0, 0, 0, 0, ..] => match v4(12, 13, 14, 15) {
            AddressClass::Public => AddressClass::Reserved,
            class => class,
        },
        // Teredo: the server, and the client with all bits inverted.
        [0x2001, 0, ..] => {
            let client = u32::from_be_bytes([o[12], o[13], o[14], o[15]]);
            stricter(v4(4, 5, 6, 7), classify_v4(Ipv4Addr::from_bits(!client)))
        }
        _ => return None,
    };
    Some(class)
}

/// One class for an address with two readings: public only if both are.
fn stricter(one: AddressClass, other: AddressClass) -> AddressClass {
    match (one, other) {
        (AddressClass::Public, class) | (class, AddressClass::Public) => class,
        (one, other) if one == other => one,
        _ => AddressClass::Reserved,
    }
}

#[cfg(test)]
mod tests {
    use super::AddressClass::*;
    use super::*;

    fn policy(values: &str) -> AddressPolicy {
        let rules: Vec<AllowRule> = values.split_whitespace().map(|v| v.parse().unwrap()).collect();
        AddressPolicy::new(&rules)
    }

    #[test]
    fn a_policy_allows_classes_and_networks() {
        for (values, allowed, blocked) in [
            (
                "",
                "8.8.8.8 2606:4700::1111 64:ff9b::8.8.8.8",
                "10.0.0.1 127.0.0.1 169.254.169.254 ::1 fd12::1 ::ffff:10.0.0.1 64:ff9b::7f00:1 100.64.0.1 \
                 168.63.129.16 0.0.0.0 255.255.255.255",
            ),
            // Local networks, but no metadata service.
            (
                "private",
                "10.0.0.1 192.168.1.9 172.20.0.1 fd12::1 ::ffff:192.168.1.9",
                "169.254.169.254 fd00:ec2::254 fd20:ce::254 fe80::1 127.0.0.1 ::1 0.0.0.0 100.64.0.1 8.8.8.8",
            ),
            ("loopback", "127.0.0.1 127.9.9.9 ::1 ::ffff:7f00:1", "0.0.0.0 :: 10.0.0.1 8.8.8.8"),
            // A network allows its addresses whatever their class.
            (
                "169.254.0.0/16 100.64.0.0/10 fe80::/10 10.1.2.3 fd00:ec2::254",
                "169.254.169.254 100.64.0.1 100.127.255.255 fe80::1 10.1.2.3 ::ffff:10.1.2.3 fd00:ec2::254",
                "10.1.2.4 169.253.0.1 100.128.0.1 fec0::1 fd00:ec2::253 64:ff9b::a01:203 8.8.8.8",
            ),
            ("0.0.0.0/0", "0.0.0.0 10.0.0.1 255.255.255.255 ::ffff:127.0.0.1", "::1 2a00::1"),
            ("::/0", ":: ::1 2a00::1 fe80::1", "127.0.0.1 8.8.8.8"),
        ] {
            for (list, is_allowed) in [(allowed, true), (blocked, false)] {
                for text in list.split(' ') {
                    assert_eq!(
                        policy(values).allows(text.parse().unwrap()),
                        is_allowed,
                        "{values:?}: {text}"
                    );
                }
            }
        }
        assert_eq!(policy(""), policy("public"));
    }

    #[test]
    fn an_invalid_value_error_names_the_valid_ones() {
        for (values, says) in [
            ("Public localhost 10.0/8", "not public"),
            ("10.0.0.0/33 10.0.0.0/ 10.0.0.0/+8", "0 to 32"),
            ("fd00::/129", "0 to 128"),
            ("10.1.2.3/8", "write 10.0.0.0/8"),
            ("fd00::1/8", "write fd00::/8"),
            ("::ffff:10.0.0.0/104", "as 10.0.0.0/8"),
        ] {
            for text in values.split(' ') {
                let error = text.parse::<AllowRule>().unwrap_err().to_string();
                assert!(error.contains(says), "{text}: {error}");
            }
        }
        assert!("".parse::<AllowRule>().is_err());
    }

    #[test]
    fn the_exemption_is_one_path_prefix_of_one_host_and_port() {
        let policy = policy("public").with_exemption("Cue.example", 8000, "/v1/echo/");
        assert!(policy.exempts("cue.EXAMPLE", 8000, "/v1/echo/0123456789-DEF_123"));
        let paths = "/v1/echo/ /v1/echo /v1/echo/0123456789abcdef/b /v1/echo/0123456789abcdef/.. \
                     /v1/echo/../cues/0123456789abcdef /v1/echo/..%2fcues%2f0123456789abcdef \
                     /v1/echo/%2e%2e%2e%2e%2e%2e /v1/echo/short /v1/echo//0123456789abcdef \
                     /V1/echo/0123456789abcdef /v1/cues /";
        for path in paths.split_whitespace() {
            assert!(!policy.exempts("cue.example", 8000, path), "{path}");
        }
        let path = "/v1/echo/0123456789abcdef";
        assert!(
            !policy.exempts("cue.example", 8001, path)
                && !policy.exempts("other.example", 8000, path)
        );
        assert!(!AddressPolicy::default().exempts("cue.example", 8000, path));
    }

    #[test]
    fn every_range_has_its_class_from_the_first_to_the_last_address() {
        let table: &[(&str, AddressClass)] = &[
            ("0.0.0.0 0.255.255.255 ::", Unspecified),
            ("1.0.0.0 9.255.255.255 11.0.0.0 8.8.8.8 93.184.216.34 223.255.255.255", Public),
            (
                "10.0.0.0 10.255.255.255 172.16.0.0 172.31.255.255 192.168.0.0 192.168.255.255",
                Private,
            ),
            (
                "100.63.255.255 100.128.0.0 126.255.255.255 128.0.0.0 172.15.255.255 172.32.0.0",
                Public,
            ),
            ("100.64.0.0 100.127.255.255 100.100.100.200", CarrierNat),
            ("127.0.0.0 127.0.0.1 127.255.255.255 ::1", Loopback),
            ("169.254.0.0 169.254.169.254 169.254.170.2 169.254.255.255", LinkLocal),
            ("169.253.255.255 169.255.0.0 192.167.255.255 192.169.0.0 192.0.1.0 192.0.3.0", Public),
            ("192.0.0.0 192.0.0.192 192.0.0.255 192.88.99.0 192.88.99.255", Reserved),
            ("192.0.2.0 192.0.2.255 198.51.100.7 203.0.113.255", Documentation),
            ("198.18.0.0 198.19.255.255 2001:2::1", Benchmarking),
            (
                "198.17.255.255 198.20.0.0 203.0.112.255 203.0.114.0 168.63.129.15 168.63.129.17",
                Public,
            ),
            ("224.0.0.0 239.255.255.255 ff00:: ff02::1 ff0e::1", Multicast),
            ("240.0.0.0 254.1.2.3 255.255.255.255", Reserved),
            ("168.63.129.16 fd00:ec2::254 fd00:ec2::23 fd20:ce::254", Metadata),
            ("fc00:: fd12:3456:789a::1 fdff:ffff::1 fd00:ec3::254 fd20:ce::255", Private),
            ("fe80::1 fe80::abcd:1 febf:ffff::1", LinkLocal),
            ("fec0::1 feff::1 100::1 100:0:0:1::1 5f00::1 4000::1 1fff::1 fe00::1", Reserved),
            ("2001:10::1 2001:20::1 2001:3::1 2001:1::1 2001:1ff::1", Reserved),
            ("2001:db8::1 3fff::1 3fff:fff::1", Documentation),
            (
                "2001:200::1 2001:4860:4860::8888 2606:4700::1111 2620:fe::fe 3fff:1000::1 2a00::1",
                Public,
            ),
        ];
        check(table);
    }

    #[test]
    fn an_embedded_address_is_classified_too() {
        let table: &[(&str, AddressClass)] = &[
            (
                "::ffff:127.0.0.1 ::ffff:7f00:1 ::127.0.0.1 64:ff9b::127.0.0.1 2002:7f00:1::",
                Loopback,
            ),
            (
                "::ffff:10.0.0.1 ::10.0.0.1 64:ff9b::a00:1 2002:a00:1::1 2002:c0a8:101::c0a8:101",
                Private,
            ),
            ("::ffff:169.254.169.254 64:ff9b::a9fe:a9fe 2002:a9fe:a9fe::", LinkLocal),
            ("::ffff:0.0.0.0 64:ff9b:: 2002::1 ::0.0.0.2", Unspecified),
            ("::ffff:8.8.8.8 64:ff9b::8.8.8.8 2002:808:808::1 64:ff9b:1::8.8.8.8", Public),
            ("::8.8.8.8 ::ffff:0:8.8.8.8 ::ffff:0:127.0.0.1", Reserved),
            // Teredo: server, then client with all bits inverted (80ff:fffe is 127.0.0.1, f5ff:fffe is 10.0.0.1).
            ("2001:0:808:808:0:0:80ff:fffe 2001:0:7f00:1:0:0:f7f7:f7f7", Loopback),
            ("2001:0:808:808:0:0:f5ff:fffe 2001:0:a00:1::f5ff:fffe", Private),
            ("2001:0:808:808:0:0:f7f7:f7f7", Public),
            ("2001:0:a00:1:0:0:80ff:fffe", Reserved),
            // Local NAT64, the address at /96; then at /64, /56 and /48.
            ("64:ff9b:1::127.0.0.1 64:ff9b:1::7f00:1", Loopback),
            ("64:ff9b:1::10.0.0.1", Private),
            ("64:ff9b:1:0:7f:0:100:0 64:ff9b:1:7f:0:0:100:0 64:ff9b:1:7f00:0:100::", Reserved),
            // ISATAP behind a public, a private and a link-local prefix.
            ("2a00::5efe:127.0.0.1 2a00::200:5efe:127.0.0.1", Loopback),
            ("2a00::5efe:10.0.0.1 fd12::200:5efe:10.0.0.1 fd12::5efe:8.8.8.8", Private),
            ("fe80::5efe:10.0.0.1 fd12::5efe:127.0.0.1", Reserved),
            ("2a00::200:5efe:8.8.8.8", Public),
        ];
        check(table);
    }

    fn check(table: &[(&str, AddressClass)]) {
        for (list, class) in table {
            for text in list.split(' ') {
                assert_eq!(classify(text.parse().unwrap()), *class, "{text}");
            }
        }
    }
}
