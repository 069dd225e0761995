//! Protection against web pages that use a browser to reach this server (contract §2.13).
//!
//! A page can make its visitor's browser send requests to any address, also to loopback and private networks. `Host`
//! tells a name that an attacker points at this machine (DNS rebinding); `Origin` tells the page that sent a request.

use hyper::Method;
use hyper::Version;
use hyper::header::{self, HeaderMap, HeaderName, HeaderValue};
use hyper::http::request::Parts;

use crate::domain::api_error::{ErrorCode, Refusal};
use crate::http::router::{Access, Route};

const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// The hosts that a request may name, and the origin of the server's own pages.
#[derive(Debug)]
pub struct BrowserGuard {
    /// `None` permits all.
    allowed_hosts: Option<Vec<String>>,
    public_url: String,
}

impl BrowserGuard {
    /// Accepts the given hosts beside the names of this machine, or all with `None`.
    pub fn new(allowed_hosts: Option<Vec<String>>, public_url: String) -> Self {
        Self { allowed_hosts, public_url }
    }

    /// Checks the host that a request names.
    pub fn check_host(&self, host: &str) -> Result<(), Refusal> {
        let Some(allowed) = &self.allowed_hosts else { return Ok(()) };
        // In lower case, and an address in its usual form: `2130706433` is `127.0.0.1`.
        let name = url::Host::parse(host_name(host)).map_or_else(|_| String::new(), |name| name.to_string());
        let is_own = ["localhost", "127.0.0.1", "[::1]"].contains(&name.as_str());
        let is_localhost = name.ends_with(".localhost");
        if is_own || is_localhost || allowed.iter().any(|known| known.eq_ignore_ascii_case(&name)) {
            return Ok(());
        }
        Err(Refusal::new(
            ErrorCode::ForbiddenHost,
            "This server accepts only the names of its own machine; use http://127.0.0.1 or http://localhost, or start \
             cued with --allow-host and the name in the `Host` header, or with --public-url if it is behind a proxy",
        ))
    }

    /// Checks the page that sent a request to a route that changes anything without a key.
    /// Errors: 403 `cross_site_request`.
    pub fn check_origin(&self, route: &Route, source: &RequestSource<'_>) -> Result<(), Refusal> {
        if route.access == Access::ApiKey || route.method == Method::GET {
            return Ok(());
        }
        // A second `Origin` header cannot come from a browser; each must pass. `null` may come from any site, by a
        // sandboxed frame; the forms of our own pages have an origin (`Referrer-Policy: same-origin`).
        let mut origins = source.headers.get_all(header::ORIGIN).iter();
        if origins.all(|origin| self.is_own_origin(origin, source)) {
            return Ok(());
        }
        Err(cross_site())
    }

    /// Checks the page that sent a request by session: the browser adds the cookie, whoever asks it to.
    /// Errors: 403 `cross_site_request`.
    pub fn check_session_request(&self, method: &Method, source: &RequestSource<'_>) -> Result<(), Refusal> {
        let is_read = *method == Method::GET;
        let mut sites = source.headers.get_all(SEC_FETCH_SITE).iter().peekable();
        let is_own = if sites.peek().is_some() {
            // `none` is what a person typed or opened from a bookmark.
            sites.all(|site| site == "same-origin" || (is_read && site == "none"))
        } else {
            // Of a browser that sends `Sec-Fetch-Site` to trustworthy addresses only, or of none.
            let mut origins = source.headers.get_all(header::ORIGIN).iter().peekable();
            is_read || origins.peek().is_some() && origins.all(|origin| self.is_own_origin(origin, source))
        };
        if is_own { Ok(()) } else { Err(cross_site()) }
    }

    fn is_own_origin(&self, origin: &HeaderValue, source: &RequestSource<'_>) -> bool {
        origin.to_str().is_ok_and(|origin| {
            is_origin_of(origin, source.host)
                || source.forwarded_host.is_some_and(|host| is_origin_of(origin, host))
                || is_origin_of_url(origin, &self.public_url)
        })
    }
}

/// The headers that name the origin of a request.
#[derive(Debug, Clone, Copy)]
pub struct RequestSource<'a> {
    /// The host that the request names.
    pub host: &'a str,
    /// The host that a trusted proxy was asked for.
    pub forwarded_host: Option<&'a str>,
    pub headers: &'a HeaderMap,
}

/// Checks that a sign-in comes from a page of this server or from no browser: a page of another site could sign its
/// visitor in to an account of its own. A cross-site page can send no JSON without asking first, which gets no answer.
/// Errors: 403 `cross_site_request`, 400 `invalid_request`.
pub fn check_sign_in(headers: &HeaderMap) -> Result<(), Refusal> {
    if headers.get_all(SEC_FETCH_SITE).iter().any(|site| site != "same-origin") {
        return Err(cross_site());
    }
    let content_type = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let essence = content_type.and_then(|value| value.split(';').next()).unwrap_or_default().trim();
    if essence.eq_ignore_ascii_case("application/json") {
        return Ok(());
    }
    let message = "A sign-in needs the header `Content-Type: application/json`";
    Err(Refusal::new(ErrorCode::InvalidRequest, message))
}

fn cross_site() -> Refusal {
    Refusal::new(
        ErrorCode::CrossSiteRequest,
        "A page of another site sent this request; send it from a page of this server or without an `Origin` header, \
         or start cued with the address of its pages as --public-url",
    )
}

/// Returns the host that a request names: that of its target if it has one, otherwise the `Host` header. Requests of
/// HTTP/1.0 may have none, and return an empty one.
/// Errors: 400 without exactly one `Host` header, which no client leaves out and which proxies may read differently.
pub fn host_of(head: &Parts) -> Result<&str, Refusal> {
    let mut values = head.headers.get_all(header::HOST).iter();
    let (first, second) = (values.next(), values.next());
    let target = head.uri.authority().map(|authority| authority.as_str());
    let is_complete = match head.version {
        Version::HTTP_11 => first.is_some(),
        Version::HTTP_09 | Version::HTTP_10 => true,
        _ => first.is_some() || target.is_some(),
    };
    let named = first.map_or(Ok(""), |value| value.to_str());
    match (is_complete && second.is_none(), named) {
        (true, Ok(named)) => Ok(target.unwrap_or(named)),
        _ => Err(Refusal::new(
            ErrorCode::BadRequest,
            "The request needs exactly one `Host` header; send the host and port of this server in it",
        )),
    }
}

/// The host without its port; an IPv6 address keeps its brackets.
pub fn host_name(host: &str) -> &str {
    let end = if host.starts_with('[') { host.find(']').map(|at| at + 1) } else { host.find(':') };
    &host[..end.unwrap_or(host.len())]
}

/// Returns `true` if `origin` is `http://` or `https://` and `host`, which may leave out the port of the scheme.
fn is_origin_of(origin: &str, host: &str) -> bool {
    let parts = [("http://", ":80"), ("https://", ":443")];
    parts.into_iter().any(|(scheme, port)| {
        let bare = |text: &str| text.strip_suffix(port).unwrap_or(text).to_ascii_lowercase();
        origin.strip_prefix(scheme).is_some_and(|named| !host.is_empty() && bare(named) == bare(host))
    })
}

/// Returns `true` if `url` begins with `origin`: scheme, host and port are the same.
fn is_origin_of_url(origin: &str, url: &str) -> bool {
    let Some((scheme, rest)) = url.split_once("://") else { return false };
    let host = rest.split('/').next().unwrap_or_default();
    let has_scheme = origin.split_once("://").is_some_and(|(other, _)| other.eq_ignore_ascii_case(scheme));
    has_scheme && is_origin_of(origin, host)
}

#[cfg(test)]
mod tests {
    use hyper::Request;

    use super::*;
    use crate::error::Result;
    use crate::http::request;
    use crate::http::response::Response;
    use crate::routes;

    async fn ok(_: request::Request) -> Result<Response> {
        Ok(Response::no_content())
    }

    static TABLE: &[Route] = routes! {
        POST "/public" Public ok,
        POST "/page"   Page   ok,
        POST "/key"    ApiKey ok,
        GET  "/read"   Public ok,
    };

    #[test]
    fn only_hosts_of_this_machine_and_allowed_ones_pass() {
        let guard =
            BrowserGuard::new(Some(vec!["cue.test".to_owned(), "[fd00::1]".to_owned()]), String::new());
        let own = "localhost LOCALHOST:8000 127.0.0.1 127.0.0.1:1 [::1] [::1]:8000 a.localhost a.b.localhost:80 \
                   cue.test Cue.Test:8000 [fd00::1]:80 2130706433:8000";
        for host in own.split(' ') {
            assert_eq!(guard.check_host(host), Ok(()), "{host}");
        }
        let foreign = " :8000 evil.com evil.com:8000 localhost.evil.com evillocalhost 127.0.0.1.evil.com 127.0.0.2 \
                       0.0.0.0 [::] [::1 ::1 a.cue.test localhost@evil.com";
        for host in foreign.split(' ') {
            assert_eq!(guard.check_host(host).map_err(|it| it.code), Err(ErrorCode::ForbiddenHost), "{host}");
        }
        assert_eq!(BrowserGuard::new(None, String::new()).check_host("evil.com"), Ok(()));
    }

    #[test]
    fn only_pages_of_this_server_may_change_anything_without_a_key() {
        let guard = BrowserGuard::new(None, "https://cue.example.com/base".to_owned());
        let check = |route: usize, host: &str, headers: &[(&'static str, &str)]| {
            let headers = headers.iter().map(|(name, value)| {
                (header::HeaderName::from_static(name), header::HeaderValue::from_str(value).unwrap())
            });
            let headers = headers.collect();
            guard
                .check_origin(&TABLE[route], &RequestSource { host, forwarded_host: None, headers: &headers })
                .is_ok()
        };
        let (public, page, key, read) = (0, 1, 2, 3);
        for (host, origin) in [
            ("127.0.0.1:8000", "http://127.0.0.1:8000"),
            ("cue.test", "https://cue.test"),
            ("cue.test:443", "https://Cue.test"),
            ("cue.test", "http://cue.test:80"),
            ("127.0.0.1:8000", "https://cue.example.com"),
        ] {
            assert!(check(public, host, &[("origin", origin)]), "{origin} → {host}");
        }
        for (host, origin) in [
            ("127.0.0.1:8000", "http://evil.com"),
            ("127.0.0.1:8000", "http://127.0.0.1"),
            ("127.0.0.1:8000", "http://127.0.0.1:3000"),
            ("127.0.0.1:8000", "127.0.0.1:8000"),
            ("127.0.0.1:8000", "null"),
            ("127.0.0.1:8000", ""),
            ("127.0.0.1:8000", "http://cue.example.com"),
            ("127.0.0.1:8000", "https://cue.example.com.evil.com"),
            ("", "http://"),
        ] {
            assert!(!check(public, host, &[("origin", origin)]), "{origin} → {host}");
            assert!(check(key, host, &[("origin", origin)]) && check(read, host, &[("origin", origin)]));
        }
        assert!(check(public, "cue.test", &[]), "a client that is no browser");
        assert!(!check(public, "cue.test", &[("origin", "http://cue.test"), ("origin", "http://evil.com")]));
        for site in ["same-origin", "none", "cross-site"] {
            for route in [public, page] {
                assert!(!check(route, "cue.test", &[("origin", "null"), ("sec-fetch-site", site)]), "{site}");
            }
        }
        assert!(!check(page, "cue.test", &[("origin", "null")]));
        assert!(check(page, "cue.test", &[("origin", "http://cue.test")]));
    }

    #[test]
    fn a_request_names_exactly_one_host() {
        let host = |version, uri: &str, hosts: &[&str]| {
            let request = Request::builder().version(version).uri(uri);
            let request = hosts.iter().fold(request, |request, host| request.header("host", *host));
            host_of(&request.body(()).unwrap().into_parts().0).map(str::to_owned).map_err(|it| it.code)
        };
        let (old, one, two) = (Version::HTTP_10, Version::HTTP_11, Version::HTTP_2);
        assert_eq!(host(one, "/", &["a:1"]).as_deref(), Ok("a:1"));
        assert_eq!(host(one, "/", &[""]).as_deref(), Ok(""));
        assert_eq!(host(one, "http://b/", &["a"]).as_deref(), Ok("b"), "the target wins");
        assert_eq!(host(two, "http://b/", &[]).as_deref(), Ok("b"));
        assert_eq!(host(two, "/", &["a"]).as_deref(), Ok("a"));
        assert_eq!(host(old, "/", &[]).as_deref(), Ok(""));
        for (version, uri, hosts) in [
            (one, "/", &[][..]),
            (one, "http://b/", &[]),
            (one, "/", &["a", "a"]),
            (one, "/", &["ä"]),
            (two, "/", &[]),
            (old, "/", &["a", "b"]),
        ] {
            assert_eq!(host(version, uri, hosts), Err(ErrorCode::BadRequest), "{version:?} {uri} {hosts:?}");
        }
    }
}
