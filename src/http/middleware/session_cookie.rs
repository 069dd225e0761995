//! The cookie of a session (contract §3.11): its name and its attributes.

use std::net::IpAddr;

use hyper::header::{self, HeaderMap, HeaderName, HeaderValue};
use jiff::{SignedDuration, Timestamp};

use crate::app::App;
use crate::domain::account::session::SessionToken;
use crate::error::{Error, Result};

const FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
const FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");

/// Cookies of the name that are looked up. A browser has one; pages at other ports and paths of the host can set more.
const MAX_TOKENS: usize = 4;

/// The cookie of this server, as the browser of one request has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionCookie {
    name: String,
    path: String,
    is_secure: bool,
    /// The origin of the request, at which a session is valid.
    pub origin: String,
}

impl SessionCookie {
    /// The cookie for a request with these headers to `host` from `peer`.
    pub fn of_request(app: &App, peer: IpAddr, headers: &HeaderMap, host: &str) -> Self {
        let public_url = &app.config.public_url;
        let origin = origin(app, peer, headers, host);
        Self::new(app.instance, public_url, is_https(app, peer, headers), origin)
    }

    fn new(instance: u32, public_url: &str, is_secure: bool, origin: String) -> Self {
        let path = base_path(public_url);
        // The prefix keeps other hosts of the same domain from setting the cookie. It demands `Secure` and the path `/`.
        let prefix = if is_secure && path == "/" { "__Host-" } else { "" };
        Self { name: format!("{prefix}cued_{instance:08x}"), path, is_secure, origin }
    }

    /// The tokens in the cookies of this name, at most [`MAX_TOKENS`]: what another program on this host has set beside
    /// that of this server signs nobody out. Cookies of other programs may have any bytes.
    pub fn read(&self, headers: &HeaderMap) -> impl Iterator<Item = SessionToken> {
        let values = headers.get_all(header::COOKIE).iter().map(HeaderValue::as_bytes);
        let cookies = values.flat_map(|value| value.split(|byte| *byte == b';')).map(<[u8]>::trim_ascii);
        let of_name = |cookie: &[u8]| {
            let value = cookie.strip_prefix(self.name.as_bytes())?.strip_prefix(b"=")?;
            SessionToken::parse(std::str::from_utf8(value).ok()?)
        };
        cookies.filter_map(of_name).take(MAX_TOKENS)
    }

    /// The header that sets the cookie until `expires_at`.
    pub fn set(&self, token: &SessionToken, now: Timestamp, expires_at: Timestamp) -> Result<HeaderValue> {
        self.header(token.reveal(), expires_at.duration_since(now).max(SignedDuration::ZERO).as_secs())
    }

    /// The header that removes the cookie.
    pub fn clear(&self) -> Result<HeaderValue> {
        self.header("", 0)
    }

    fn header(&self, value: &str, max_age: i64) -> Result<HeaderValue> {
        let Self { name, path, is_secure, .. } = self;
        let secure = if *is_secure { "; Secure" } else { "" };
        let text =
            format!("{name}={value}; Path={path}; Max-Age={max_age}; HttpOnly; SameSite=Strict{secure}");
        let mut header = HeaderValue::try_from(text)
            .map_err(|error| Error::fault_from("a header cannot hold the session cookie", error))?;
        header.set_sensitive(true);
        Ok(header)
    }
}

/// The address by which a request reached this server, without a trailing slash: the public URL if one was given,
/// otherwise what the request, or a trusted proxy, names as its host.
pub fn base_url(app: &App, peer: IpAddr, headers: &HeaderMap, host: &str) -> String {
    if app.config.has_public_url || forwarded_host(app, peer, headers).unwrap_or(host).is_empty() {
        return app.config.public_url.clone();
    }
    origin(app, peer, headers, host)
}

/// Scheme, host and port of the page that sent a request to `host`, as a trusted proxy was asked for them.
fn origin(app: &App, peer: IpAddr, headers: &HeaderMap, host: &str) -> String {
    let host = forwarded_host(app, peer, headers).unwrap_or(host);
    let scheme = if is_https(app, peer, headers) { "https" } else { "http" };
    format!("{scheme}://{}", host.to_ascii_lowercase())
}

/// The host that a trusted proxy was asked for.
pub fn forwarded_host<'a>(app: &App, peer: IpAddr, headers: &'a HeaderMap) -> Option<&'a str> {
    last_forwarded(app, peer, headers, &FORWARDED_HOST)
}

/// True if browsers reach this server by https.
fn is_https(app: &App, peer: IpAddr, headers: &HeaderMap) -> bool {
    let is_public =
        app.config.public_url.get(..8).is_some_and(|start| start.eq_ignore_ascii_case("https://"));
    is_public
        || last_forwarded(app, peer, headers, &FORWARDED_PROTO)
            .is_some_and(|scheme| scheme.eq_ignore_ascii_case("https"))
}

/// The last value of a header of a proxy, which the proxy itself has written. `None` if the peer is no trusted proxy.
fn last_forwarded<'a>(app: &App, peer: IpAddr, headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    let peer = peer.to_canonical();
    if !app.config.http.trusted_proxies.iter().any(|proxy| proxy.contains(peer)) {
        return None;
    }
    let value = headers.get_all(name).iter().next_back()?.to_str().ok()?;
    value.rsplit(',').next().map(str::trim).filter(|value| !value.is_empty())
}

/// The path of a URL, as the attribute of a cookie can hold it; `/` if it cannot.
fn base_path(url: &str) -> String {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let path = rest.find('/').map_or("", |at| &rest[at..]).trim_end_matches('/');
    let is_plain =
        path.bytes().all(|byte| byte.is_ascii_graphic() && !matches!(byte, b';' | b',' | b'?' | b'#'));
    if path.is_empty() || !is_plain { "/".to_owned() } else { path.to_owned() }
}

#[cfg(test)]
mod tests {
    use std::slice;

    use super::*;

    fn token() -> SessionToken {
        SessionToken::from_random([0; 32])
    }

    #[test]
    fn a_path_that_a_cookie_cannot_hold_becomes_the_root() {
        for (url, expected) in [("http://h/a;b", "/"), ("http://h/a/b/", "/a/b"), ("http://h", "/")] {
            assert_eq!(base_path(url), expected, "{url}");
        }
    }

    #[test]
    fn only_the_cookie_of_this_server_is_read() {
        let cookie = SessionCookie::new(42, "", false, String::new());
        let (token, other) = (token(), SessionToken::from_random([1; 32]));
        let read = |values: &[String]| {
            let value = |text: &String| (header::COOKIE, HeaderValue::from_bytes(text.as_bytes()).unwrap());
            cookie.read(&values.iter().map(value).collect()).collect::<Vec<_>>()
        };
        let own = format!("cued_0000002a={}", token.reveal());
        let of_another = format!("cued_0000002b={}", other.reveal());
        assert_eq!(read(&[format!("a=b; {of_another};{own}; c")]), slice::from_ref(&token));
        assert_eq!(read(&["x=y".to_owned(), own.clone()]), slice::from_ref(&token));
        assert_eq!(read(&[format!("theme=blåu; {own}")]), slice::from_ref(&token), "another program's text");
        let second = format!("cued_0000002a={}", other.reveal());
        assert_eq!(read(&[format!("cued_0000002a=x; {own}"), second]), [token.clone(), other]);
        assert_eq!(read(&[[own.as_str(); 9].join("; ")]), vec![token; 4], "the look-ups are bounded");
        for foreign in [
            of_another,
            format!("__Host-{own}"),
            "cued_0000002a=short".to_owned(),
            "cued_0000002a=ä".to_owned(),
            String::new(),
        ] {
            assert_eq!(read(&[foreign]), []);
        }
    }
}
