//! The address policy of callbacks: parses the values of `--allow-callbacks-to` and decides which addresses are
//! allowed.
//!
//! The classes of addresses are defined in `ip_class`.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use crate::domain::webhook::echo::EchoToken;
use crate::domain::webhook::ip_class::{AddressClass, classify};

/// One value of `--allow-callbacks-to`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AllowRule {
    /// `public`: the public internet.
    Public,
    /// `private`: RFC 1918 and IPv6 unique local addresses. Not link-local ones, where clouds serve credentials.
    Private,
    Loopback,
    /// A network, regardless of the class of its addresses.
    Network(Cidr),
}

/// A network in CIDR notation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cidr {
    base: IpAddr,
    length: u32,
}

/// An invalid value of `--allow-callbacks-to`, with the reason.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ParseAllowRuleError(String);

/// The addresses that callbacks may reach. The default is the public internet only.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AddressPolicy {
    public: bool,
    private: bool,
    loopback: bool,
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
        Self { public: true, private: false, loopback: false, networks: Vec::new(), exemption: None }
    }
}

impl AddressPolicy {
    /// The union of the given rules; with none given, the default.
    pub fn new(rules: &[AllowRule]) -> Self {
        if rules.is_empty() {
            return Self::default();
        }
        let mut policy = Self { public: false, ..Self::default() };
        for rule in rules {
            match rule {
                AllowRule::Public => policy.public = true,
                AllowRule::Private => policy.private = true,
                AllowRule::Loopback => policy.loopback = true,
                AllowRule::Network(cidr) => policy.networks.push(*cidr),
            }
        }
        policy
    }

    /// Also allows `http(s)://host:port/folder/TOKEN`, an echo token below `folder` (which starts and ends with a
    /// slash), whatever address the host resolves to. An IPv6 host is written without brackets.
    pub fn with_exemption(mut self, host: &str, port: u16, folder: &str) -> Self {
        let host = host.to_ascii_lowercase();
        self.exemption = Some(Exemption { host, port, folder: folder.to_owned() });
        self
    }

    pub fn allows(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        let by_class = match classify(address) {
            AddressClass::Public => self.public,
            AddressClass::Private => self.private,
            AddressClass::Loopback => self.loopback,
            _ => false,
        };
        by_class || self.networks.iter().any(|network| network.contains(address))
    }

    /// The classes that can be allowed.
    pub const CLASSES: [&'static str; 3] =
        [AddressClass::Public.as_str(), AddressClass::Private.as_str(), AddressClass::Loopback.as_str()];

    /// The allowed ones of [`Self::CLASSES`]. Single networks are the operator's configuration and not listed.
    pub fn words(&self) -> Vec<&'static str> {
        let all = Self::CLASSES.into_iter().zip([self.public, self.private, self.loopback]);
        all.filter_map(|(word, allowed)| allowed.then_some(word)).collect()
    }

    /// Returns whether the target is the exempt path of this server, for which no address is blocked.
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
        match (self.base, address) {
            (IpAddr::V4(base), IpAddr::V4(address)) => {
                (base.to_bits() ^ address.to_bits()).checked_shr(32 - self.length).unwrap_or(0) == 0
            }
            (IpAddr::V6(base), IpAddr::V6(address)) => {
                (base.to_bits() ^ address.to_bits()).checked_shr(128 - self.length).unwrap_or(0) == 0
            }
            _ => false,
        }
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
        let digits = length.map(|digits| digits.bytes().all(|b| b.is_ascii_digit()).then_some(digits));
        let length = match digits {
            None => Some(longest),
            Some(digits) => digits.and_then(|digits| digits.parse().ok()).filter(|length| *length <= longest),
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

/// Rejects IPv4-mapped IPv6 networks: addresses are compared in their IPv4 form, so that such a network would never
/// match.
fn reject_mapped_v4(network: Cidr) -> Result<Cidr, ParseAllowRuleError> {
    match (network.base.to_canonical(), network.base) {
        (IpAddr::V4(v4), IpAddr::V6(_)) if network.length >= 96 => Err(ParseAllowRuleError(format!(
            "write `{network}` as {}",
            Cidr::new(v4.into(), network.length - 96)
        ))),
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

#[cfg(test)]
mod tests {
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
        assert!(!policy.exempts("cue.example", 8001, path) && !policy.exempts("other.example", 8000, path));
        assert!(!AddressPolicy::default().exempts("cue.example", 8000, path));
    }
}
