//! The callback of a cue, checked when the cue is stored (contract §4.6): URL, method and headers; and the host and port of
//! its target.
//!
//! Only the form of a name is checked here. Its addresses are checked at each delivery.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use percent_encoding::{CONTROLS, utf8_percent_encode};
use url::{Host, ParseError};

use crate::domain::api_error::{ErrorCode, Refusal};
use crate::domain::secret::Secret;
use crate::domain::text::word_enum;
use crate::domain::webhook::address_policy::{AddressClass, AddressPolicy, AllowRule, classify};
use crate::domain::webhook::flow::{Flow, key_hash};

pub const MAX_URL: usize = 2048;

pub const MAX_HEADERS: usize = 32;
/// The size of a header value, in bytes: the limit of common servers, and half of a connection's buffer.
pub const MAX_HEADER_VALUE: usize = 4096;
pub const MAX_HEADER_NAME: usize = 256;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Callback {
    /// An absolute `http` or `https` URL, as the user wrote it, but in ASCII: [`CallbackTarget::url`].
    pub url: String,
    pub method: Method,
    pub headers: Secret<Vec<(String, String)>>,
    /// True if the body of a 2xx response is taken as the outcome of the execution (contract §6.10).
    pub outcome_from_response: bool,
    /// The limit of a whole exchange, name resolution included.
    pub timeout_seconds: u32,
    pub flow: Option<Flow>,
}

impl Default for Callback {
    fn default() -> Self {
        Self {
            url: String::new(),
            method: Method::Post,
            headers: Secret::default(),
            outcome_from_response: false,
            timeout_seconds: DEFAULT_TIMEOUT_SECONDS,
            flow: None,
        }
    }
}

impl Callback {
    /// The fairness key of its executions: that of the flow, else that of the host and port.
    pub fn destination_hash(&self) -> i64 {
        self.flow.as_ref().map_or_else(|| destination_hash(&self.url), Flow::destination_hash)
    }
}

pub const DEFAULT_TIMEOUT_SECONDS: u32 = 30;

word_enum! {
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
    pub enum Method {
        #[default]
        Post = "POST",
        Put = "PUT",
        Patch = "PATCH",
        Get = "GET",
        Delete = "DELETE",
    }
}

impl Method {
    pub fn from_request(text: &str) -> Result<Self, Refusal> {
        Self::parse(&text.to_ascii_uppercase()).ok_or_else(|| {
            invalid(format!(
                "callback.method: `{text}` is not allowed; use POST, PUT, PATCH, GET or DELETE"
            ))
        })
    }

    /// Returns whether a delivery with this method has a body, the payload (contract §6).
    pub fn has_body(self) -> bool {
        matches!(self, Self::Post | Self::Put | Self::Patch)
    }
}

pub fn check_headers(headers: &[(String, String)]) -> Result<(), Refusal> {
    if headers.len() > MAX_HEADERS {
        let count = headers.len();
        return Err(invalid(format!(
            "callback.headers: has {count} headers; at most {MAX_HEADERS} are allowed"
        )));
    }
    let is_printable = |byte: u8| byte == b'\t' || (b' '..=b'~').contains(&byte);
    for (position, (name, value)) in headers.iter().enumerate() {
        let is_repeated =
            headers[..position].iter().any(|(earlier, _)| earlier.eq_ignore_ascii_case(name));
        let is_name = (1..=MAX_HEADER_NAME).contains(&name.len()) && name.bytes().all(is_name_byte);
        let problem = if !is_name {
            format!(
                "callback.headers: has {name:?}, which is not a header name; \
                 use 1 to {MAX_HEADER_NAME} letters, digits and hyphens"
            )
        } else if is_reserved_header(name) {
            format!(
                "callback.headers: must not set {name}, which the delivery sets itself; leave it out"
            )
        } else if value.len() > MAX_HEADER_VALUE || !value.bytes().all(is_printable) {
            format!(
                "callback.headers.{name}: {name} has a value that cannot be sent; \
                 use at most {MAX_HEADER_VALUE} printable ASCII characters, with no line break"
            )
        } else if is_repeated {
            format!("callback.headers: has {name} twice, ignoring case; remove one of them")
        } else {
            continue;
        };
        return Err(invalid(problem));
    }
    Ok(())
}

fn invalid(message: String) -> Refusal {
    Refusal::new(ErrorCode::InvalidCallback, message)
}

fn is_name_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

fn is_reserved_header(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    name.starts_with("x-cueapi-")
        || name.starts_with("webhook-")
        || matches!(
            name.as_str(),
            "host"
                | "content-length"
                | "transfer-encoding"
                | "connection"
                | "upgrade"
                | "te"
                | "trailer"
        )
}

/// Whether people see the value of a header only when they ask for it. Programs read it as it is.
pub fn is_secret_header(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    matches!(name.as_str(), "authorization" | "proxy-authorization" | "cookie" | "x-api-key")
        || ["-token", "-key", "-secret"].iter().any(|end| name.ends_with(end))
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallbackTarget {
    /// A lower-case name without a trailing dot, or an address in its usual form without brackets.
    pub host: String,
    pub port: u16,
    pub https: bool,
    pub path: String,
    /// The URL as stored and called: as given, except that a non-ASCII host is in its `xn--` form and that other
    /// characters beyond ASCII are percent-encoded.
    pub url: String,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UrlError {
    #[error("is longer than {MAX_URL} bytes")]
    TooLong,
    #[error("contains {0:?}; percent-encode it")]
    Character(char),
    /// The text with a scheme, if that is a URL.
    #[error("must be absolute and begin with http:// or https://{}", meant(.0.as_deref()))]
    Scheme(Option<String>),
    #[error("must not contain a user name or password; put credentials into callback.headers")]
    UserInfo,
    #[error("has no host")]
    NoHost,
    #[error("has the host `{0}`, which is neither a name nor an address; correct it")]
    Host(String),
    /// A name beyond ASCII, or in its `xn--` form, that UTS 46 does not allow.
    #[error(
        "has the host `{0}`, which is not a valid internationalized name (UTS 46); \
         correct it, or write its xn-- form"
    )]
    InternationalName(String),
    #[error("has the port `{0}`, which is not 1 to 65535")]
    Port(String),
    /// An address, or a name of this machine, that the policy blocks.
    #[error("points to {0}, {1}")]
    Blocked(String, String),
}

impl UrlError {
    /// The refusal of a URL in the field with this path.
    pub fn of_field(&self, field: &str) -> Refusal {
        Refusal::new(ErrorCode::InvalidCallbackUrl, format!("{field}: {self}"))
    }
}

/// Checks the form of a callback URL, and whether the policy allows its host if that is an address or `localhost`.
pub fn check_url(url: &str, policy: &AddressPolicy) -> Result<CallbackTarget, UrlError> {
    let target = CallbackTarget::parse(url)?;
    if !policy.exempts(&target.host, target.port, &target.path) {
        check_policy(&target.host, policy)?;
    }
    Ok(target)
}

impl CallbackTarget {
    pub fn parse(url: &str) -> Result<Self, UrlError> {
        if url.len() > MAX_URL {
            return Err(UrlError::TooLong);
        }
        let (scheme, rest) =
            url.split_once("://").ok_or_else(|| UrlError::Scheme(with_scheme(url)))?;
        let https = match scheme {
            _ if scheme.eq_ignore_ascii_case("http") => false,
            _ if scheme.eq_ignore_ascii_case("https") => true,
            _ => return Err(UrlError::Scheme(None)),
        };
        let (authority, tail) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
        if authority.contains('@') {
            return Err(UrlError::UserInfo);
        }
        let (host, port) = split_port(authority)?;
        let port = match port {
            Some(digits) => parse_port(digits)?,
            None if https => 443,
            None => 80,
        };
        let parsed = parse_host(host)?;
        let start = &url[..url.len() - tail.len()];
        let start = if host.is_ascii() {
            start.to_owned()
        } else {
            start.replacen(host, &parsed.to_string(), 1)
        };
        let is_refused =
            |c: &char| c.is_ascii() && (!c.is_ascii_graphic() || "\"<>\\`".contains(*c));
        if let Some(bad) = tail.chars().find(is_refused) {
            return Err(UrlError::Character(bad));
        }
        // As browsers send it. Control characters are refused above.
        let tail = utf8_percent_encode(tail, CONTROLS).to_string();
        let url = start + &tail;
        if url.len() > MAX_URL {
            return Err(UrlError::TooLong);
        }
        let path =
            tail.split(['?', '#']).next().filter(|path| !path.is_empty()).unwrap_or("/").to_owned();
        let host = match parsed {
            Host::Domain(name) => name.strip_suffix('.').unwrap_or(&name).to_owned(),
            Host::Ipv4(address) => address.to_string(),
            Host::Ipv6(address) => address.to_string(),
        };
        Ok(Self { host, port, https, path, url })
    }

    pub fn authority(&self) -> String {
        let (host, port) = (&self.host, self.port);
        if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
    }

    /// The fairness key: equal for all callbacks to one host and port, whatever the scheme. It is stored and must not
    /// change.
    pub fn destination_hash(&self) -> i64 {
        key_hash(&self.authority())
    }
}

/// `host:port` of a stored URL; empty if it cannot be parsed.
pub fn authority_of(url: &str) -> String {
    CallbackTarget::parse(url).map_or_else(|_| String::new(), |target| target.authority())
}

/// The host of a stored URL; empty if it cannot be parsed.
pub fn host_of(url: &str) -> String {
    CallbackTarget::parse(url).map_or_else(|_| String::new(), |target| target.host)
}

/// The fairness key of a stored URL; URLs that cannot be parsed share one.
pub fn destination_hash(url: &str) -> i64 {
    CallbackTarget::parse(url).map_or(0, |target| target.destination_hash())
}

fn split_port(authority: &str) -> Result<(&str, Option<&str>), UrlError> {
    let host_end = if authority.starts_with('[') {
        authority
            .find(']')
            .map(|end| end + 1)
            .ok_or_else(|| UrlError::Host(authority.to_owned()))?
    } else {
        authority.find(':').unwrap_or(authority.len())
    };
    match authority.split_at(host_end) {
        ("", _) => Err(UrlError::NoHost),
        (host, "") => Ok((host, None)),
        (host, port) => match port.strip_prefix(':') {
            Some(port) => Ok((host, Some(port))),
            None => Err(UrlError::Host(authority.to_owned())),
        },
    }
}

fn parse_port(digits: &str) -> Result<u16, UrlError> {
    let plain = digits.len() <= 5 && digits.bytes().all(|byte| byte.is_ascii_digit());
    match digits.parse() {
        Ok(port) if plain && port > 0 => Ok(port),
        _ => Err(UrlError::Port(digits.to_owned())),
    }
}

/// A host as browsers read it: letters beyond ASCII are mapped by UTS 46, so that `１２７。0。0。1` is the address 127.0.0.1,
/// and an address may have any notation. A label in `xn--` form must be the result of such a mapping itself.
fn parse_host(text: &str) -> Result<Host, UrlError> {
    // `Host` would decode `%6c` as well.
    let parsed = if text.contains('%') { Err(ParseError::IdnaError) } else { Host::parse(text) };
    let is_encoded =
        |label: &str| label.get(..4).is_some_and(|start| start.eq_ignore_ascii_case("xn--"));
    match parsed {
        Ok(host) if !matches!(&host, Host::Domain(name) if !is_name(name)) => Ok(host),
        Err(ParseError::IdnaError | ParseError::InvalidIpv6Address)
            if !text.is_ascii() || text.split('.').any(is_encoded) =>
        {
            Err(UrlError::InternationalName(text.to_owned()))
        }
        _ => Err(UrlError::Host(text.to_owned())),
    }
}

/// The text with the scheme that its host probably has.
fn with_scheme(text: &str) -> Option<String> {
    let url = format!("http://{text}");
    let host = CallbackTarget::parse(&url).ok()?.host;
    Some(if is_local(&host) { url } else { format!("https://{text}") })
}

fn meant(url: Option<&str>) -> String {
    url.map(|url| format!("; did you mean {url}?")).unwrap_or_default()
}

/// Ends of names that only a local network knows. Certificates for them are rare.
const LOCAL_SUFFIXES: [&str; 6] =
    [".localhost", ".local", ".lan", ".home", ".internal", ".home.arpa"];

/// Whether a host is of this machine or of a local network, where servers rarely have a certificate.
pub fn is_local(host: &str) -> bool {
    let policy = AddressPolicy::new(&[AllowRule::Private, AllowRule::Loopback]);
    match host.parse::<IpAddr>() {
        Ok(address) => policy.allows(address),
        Err(_) => {
            let name = host.trim_end_matches('.');
            !name.contains('.') || LOCAL_SUFFIXES.iter().any(|suffix| name.ends_with(suffix))
        }
    }
}

fn is_name(text: &str) -> bool {
    let name = text.strip_suffix('.').unwrap_or(text);
    let is_label = |label: &str| {
        (1..=63).contains(&label.len())
            && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
    };
    name.len() <= 253 && name.split('.').all(is_label)
}

fn check_policy(host: &str, policy: &AddressPolicy) -> Result<(), UrlError> {
    let blocked = |class| Err(UrlError::Blocked(host.to_owned(), policy.refusal(class)));
    if let Ok(address) = host.parse::<IpAddr>() {
        return if policy.allows(address) { Ok(()) } else { blocked(classify(address)) };
    }
    let is_this_machine = host == "localhost" || host.ends_with(".localhost");
    let is_allowed =
        || policy.allows(Ipv4Addr::LOCALHOST.into()) || policy.allows(Ipv6Addr::LOCALHOST.into());
    if is_this_machine && !is_allowed() { blocked(AddressClass::Loopback) } else { Ok(()) }
}

impl From<UrlError> for Refusal {
    fn from(error: UrlError) -> Self {
        error.of_field("callback.url")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::webhook::address_policy::AllowRule;

    fn check(url: &str) -> Result<CallbackTarget, UrlError> {
        check_url(url, &AddressPolicy::default())
    }

    #[test]
    fn a_url_is_split_into_its_parts() {
        for (url, authority, https, path) in [
            ("http://example.com", "example.com:80", false, "/"),
            ("https://example.com/", "example.com:443", true, "/"),
            ("HTTPS://Example.COM:8443/A/b?c=d#e", "example.com:8443", true, "/A/b"),
            ("http://example.com?x=/y", "example.com:80", false, "/"),
            ("http://example.com#x", "example.com:80", false, "/"),
            ("http://example.com./x", "example.com:80", false, "/x"),
            ("http://my_app-1.web:00080/", "my_app-1.web:80", false, "/"),
            ("http://xn--bcher-kva.example/%C3%BC", "xn--bcher-kva.example:80", false, "/%C3%BC"),
            ("http://8.8.8.8:9/", "8.8.8.8:9", false, "/"),
            ("http://134744072/", "8.8.8.8:80", false, "/"),
            ("https://[2606:4700:0::1111]/", "[2606:4700::1111]:443", true, "/"),
            ("http://[2606:4700::1111]:81/a{b}|c^d~", "[2606:4700::1111]:81", false, "/a{b}|c^d~"),
        ] {
            let found = check(url).unwrap();
            assert_eq!(
                (found.authority().as_str(), found.https, found.path.as_str()),
                (authority, https, path),
                "{url}"
            );
        }
    }

    #[test]
    fn an_unusable_url_is_refused() {
        let list = "example.com/x //example.com http:example.com http:/example.com ftp://example.com file:///etc";
        for url in list.split(' ').chain(["", " http://example.com"]) {
            assert!(matches!(check(url), Err(UrlError::Scheme(_))), "{url:?}");
        }
        for url in ["http://", "http:///x", "http://:80/", "http://::1/"] {
            assert_eq!(check(url), Err(UrlError::NoHost), "{url}");
        }
        for user in ["me@", "me:pw@", "example.com@127.0.0.1", "example.com\\@127.0.0.1"] {
            assert_eq!(check(&format!("http://{user}/")), Err(UrlError::UserInfo), "{user}");
        }
        for port in ["0", "", "65536", "+80", "80:81", "8a"] {
            let refused = Err(UrlError::Port(port.to_owned()));
            assert_eq!(check(&format!("http://example.com:{port}/")), refused, "{port}");
        }
        let list = "example..com .example.com example.com.. . example.com\\.evil %31%32%37.0.0.1 %6c%6fcalhost \
                    1.2.3.4.5 256.1.1.1 1.2.3.256 1.2.65536 1.16777216 4294967296 0x100000000 08.0.0.1 a.0x7f a.b.09. \
                    +1.1.1.1 0x+1 1..1 127.0.0.1.. [::1 [::1]x [::1%eth0] [fe80::1%25eth0] [127.0.0.1] [] [v1.a]";
        for host in
            list.split_whitespace().chain(["exa mple.com", "exa\tmple.com", "example.com\r\n"])
        {
            let refused = Err(UrlError::Host(host.to_owned()));
            assert_eq!(check(&format!("http://{host}/")), refused, "{host:?}");
        }
        for path in ["a b", "a\r\nHost: x", "\0", "\u{7f}", "ü b", "?q=\"x\"", "a\\b"] {
            let found = check(&format!("http://example.com/{path}"));
            assert!(matches!(found, Err(UrlError::Character(_))), "{path:?}");
        }
    }

    #[test]
    fn characters_beyond_ascii_are_percent_encoded_after_the_host() {
        for (url, expected, path) in [
            (
                "https://example.com/käse?q=ü#Ω",
                "https://example.com/k%C3%A4se?q=%C3%BC#%CE%A9",
                "/k%C3%A4se",
            ),
            ("http://example.com?q=日", "http://example.com?q=%E6%97%A5", "/"),
            ("http://example.com/🙂", "http://example.com/%F0%9F%99%82", "/%F0%9F%99%82"),
            // What is encoded already stays, and so does the case of its digits.
            ("http://example.com/%c3%bc/ü", "http://example.com/%c3%bc/%C3%BC", "/%c3%bc/%C3%BC"),
            (
                "http://bücher.example/bücher",
                "http://xn--bcher-kva.example/b%C3%BCcher",
                "/b%C3%BCcher",
            ),
            // Spaces and line breaks beyond ASCII are harmless once they are encoded.
            (
                "http://example.com/\u{a0}\u{2028}",
                "http://example.com/%C2%A0%E2%80%A8",
                "/%C2%A0%E2%80%A8",
            ),
        ] {
            let found = check(url).unwrap();
            assert_eq!((found.url.as_str(), found.path.as_str()), (expected, path), "{url}");
            assert_eq!(check(&found.url).unwrap(), found, "read back");
        }
    }

    #[test]
    fn length_limits_are_exact() {
        let base = "http://example.com/";
        let url = format!("{base}{}", "x".repeat(MAX_URL - base.len()));
        assert!(check(&url).is_ok());
        assert_eq!(check(&format!("{url}x")), Err(UrlError::TooLong));
        // The converted URL is longer: `ü.example` becomes `xn--tda.example`.
        let url =
            format!("http://ü.example/{}", "x".repeat(MAX_URL - "http://xn--tda.example/".len()));
        assert_eq!(check(&url).unwrap().url.len(), MAX_URL);
        assert_eq!(check(&format!("{url}x")), Err(UrlError::TooLong));
        // `ü` takes six bytes in place of two.
        let url = format!(
            "http://example.com/ü{}",
            "x".repeat(MAX_URL - "http://example.com/%C3%BC".len())
        );
        assert_eq!(check(&url).unwrap().url.len(), MAX_URL);
        assert_eq!(check(&format!("{url}x")), Err(UrlError::TooLong));
        assert!(check(&format!("http://{}.com/", "a".repeat(63))).is_ok());
        assert!(check(&format!("http://{}.com/", "a".repeat(64))).is_err());
        assert!(check(&format!("http://{}com/", "a.".repeat(125))).is_ok());
        assert!(check(&format!("http://{}com/", "a.".repeat(126))).is_err());
    }

    #[test]
    fn an_address_in_any_notation_is_refused_unless_allowed_and_a_name_that_resembles_one_is_not() {
        let open = AddressPolicy::new(&[AllowRule::Private, AllowRule::Loopback]);
        let list = "127.0.0.1 127.1 2130706433 0x7f000001 0x7f.1 0177.0.0.1 0177.1 017700000001 127.0.0.1. \
                    127.0.1 0X7F000001 0x7f.0.0.0x1 0000177.0.0.01 127.0x1 2130706433. 127.255.255.254 [::1] [::ffff:127.0.0.1] [::ffff:7f00:1] [::127.0.0.1] \
                    [64:ff9b::7f00:1] [2002:7f00:1::] [0:0:0:0:0:0:0:1] localhost LOCALHOST localhost. \
                    api.localhost a.b.LocalHost. 10.0.0.1 10.1 167772161 192.168.1.1 172.16.0.1 \
                    [fd12::1] [::ffff:10.0.0.1] [64:ff9b::a00:1] [2001:0:808:808:0:0:f5ff:fffe]";
        for host in list.split_whitespace() {
            let url = format!("http://{host}:8080/hook");
            assert!(matches!(check(&url), Err(UrlError::Blocked(..))), "{url}");
            assert!(check_url(&url, &open).is_ok(), "{url}");
        }
        for host in
            "0.0.0.0 0 [::] 169.254.169.254 0xa9fea9fe 2852039166 [::ffff:a9fe:a9fe] [fe80::1]"
                .split(' ')
        {
            let url = format!("http://{host}/");
            assert!(matches!(check_url(&url, &open), Err(UrlError::Blocked(..))), "{url}");
        }
        for name in
            ["localhost.example.com", "mylocalhost", "127.0.0.1.nip.io", "10.example.com", "1e3"]
        {
            assert!(check(&format!("http://{name}/")).is_ok(), "{name}");
        }
    }

    #[test]
    fn a_destination_hash_is_one_per_host_and_port_and_never_changes() {
        let open = AddressPolicy::new(&[AllowRule::Public, AllowRule::Loopback]);
        let hash = |url| check_url(url, &open).unwrap().destination_hash();
        assert_eq!(hash("http://example.com/a"), hash("http://EXAMPLE.com.:80/b?c"));
        assert_eq!(hash("http://example.com:443"), hash("https://example.com"));
        assert_eq!(hash("http://127.1"), hash("http://2130706433"));
        assert_ne!(hash("http://example.com"), hash("https://example.com"));
        assert_ne!(hash("http://example.com"), hash("http://example.org"));
        assert_eq!(hash("http://example.com/a"), 3_018_306_507);
    }

    #[test]
    fn a_header_that_may_be_secret_is_known_by_its_name() {
        for name in [
            "Authorization",
            "proxy-authorization",
            "COOKIE",
            "X-Api-Key",
            "x-gitlab-token",
            "X-Secret",
        ] {
            assert!(is_secret_header(name), "{name}");
        }
        for name in ["X-Authorization", "Token", "X-Token-Kind", "Set-Cookie", "Idempotency"] {
            assert!(!is_secret_header(name), "{name}");
        }
    }

    #[test]
    fn a_header_name_has_at_most_256_bytes_and_a_value_4096() {
        let check = |name, value| check_headers(&[("x".repeat(name), "y".repeat(value))]).is_ok();
        assert_eq!([check(256, 4096), check(257, 1), check(1, 4097)], [true, false, false]);
    }

    #[test]
    fn a_name_beyond_ascii_is_converted_by_uts_46() {
        for row in [
            "http://bücher.example/ http://xn--bcher-kva.example/ xn--bcher-kva.example",
            "https://BÜCHER.Example:8443/A?b#c https://xn--bcher-kva.example:8443/A?b#c xn--bcher-kva.example",
            "http://bu\u{308}cher.example./ http://xn--bcher-kva.example./ xn--bcher-kva.example",
            "http://faß.example http://xn--fa-hia.example xn--fa-hia.example",
            "http://例え。テスト/x http://xn--r8jz45g.xn--zckzah/x xn--r8jz45g.xn--zckzah",
            "http://my_app.bücher.example/ http://my_app.xn--bcher-kva.example/ my_app.xn--bcher-kva.example",
            "http://ｅｘａｍｐｌｅ.com/ http://example.com/ example.com",
            "http://ex\u{ad}ample.com/ http://example.com/ example.com",
            // The xn-- form stays as it was written.
            "http://xn--bcher-kva.example/ http://xn--bcher-kva.example/ xn--bcher-kva.example",
            "http://XN--Bcher-kva.Example/ http://XN--Bcher-kva.Example/ xn--bcher-kva.example",
            // Scripts may be mixed: UTS 46 has no rule against it.
            "http://раypal.example/ http://xn--ypal-43d9g.example/ xn--ypal-43d9g.example",
            "http://８．８.8.8/ http://8.8.8.8/ 8.8.8.8",
        ] {
            let [url, converted, host] = row.split(' ').collect::<Vec<_>>().try_into().unwrap();
            let found = check(url).unwrap();
            assert_eq!((found.url.as_str(), found.host.as_str()), (converted, host), "{url}");
            let again = check(&found.url).unwrap();
            assert_eq!(again, found, "{url}: the converted URL is its own form");
        }
    }

    #[test]
    fn a_name_that_uts_46_does_not_allow_is_refused() {
        for bad in [
            "xn--",
            "xn--a",
            "xn--\u{fc}",
            "xn--bcher-kva-.example",
            "XN--1.example",
            // The xn-- form of letters that UTS 46 replaces by others.
            "xn--8g7ccp.0.0.1",
            "bücher%2e.example",
            "bücher.exa mple",
            "bü\u{200d}cher.example",
            "\u{308}a.example",
            "a\u{5d0}1\u{661}.example",
            "example.com／ü",
            "user＠bücher.example",
            "bücher.example：80",
            "\u{fffd}.example",
        ] {
            let url = format!("http://{bad}/");
            let refused = UrlError::InternationalName(bad.to_owned());
            assert_eq!(check(&url), Err(refused), "{url}");
        }
        // Valid names that are too long once they are converted, or that are empty.
        for bad in [
            format!("{}.example", "ü".repeat(60)),
            format!("{}example", "bücher.".repeat(30)),
            "\u{ad}".to_owned(),
        ] {
            assert_eq!(check(&format!("http://{bad}/")), Err(UrlError::Host(bad)));
        }
        assert_eq!(check("http://[::ü]/"), Err(UrlError::InternationalName("[::ü]".to_owned())));
    }

    #[test]
    fn an_address_in_other_digits_is_that_address() {
        for host in [
            "１２７.0.0.1",
            "127。0。0。1",
            "①②⑦.0.0.1",
            "１２７．０．０．１",
            "𝟏𝟐𝟕.𝟎.𝟎.𝟏",
            "０ｘ7f.1",
            "²¹³⁰⁷⁰⁶⁴³³",
            "ｌｏｃａｌｈｏｓｔ",
            "ⓛⓞⓒⓐⓛⓗⓞⓢⓣ",
            "api.LOCALHOſT",
            "127.0.0.1\u{3002}",
        ] {
            let url = format!("http://{host}/");
            assert!(
                matches!(check(&url), Err(UrlError::Blocked(_, why)) if why.starts_with("a loopback address")),
                "{url}: {:?}",
                check(&url)
            );
        }
        assert!(matches!(check("http://１６９.254.169.254/"), Err(UrlError::Blocked(..))));
    }
}
