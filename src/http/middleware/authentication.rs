//! Who sent a request: the client address, the host that it names, the page that sent it (contract §2.13) and the owner of
//! its API key; which rate limit it counts against, and how near the quota is. `session` finds the owner of a cookie.
//!
//! A page can make its visitor's browser send requests to any address, also to loopback and private networks. The host
//! check stops DNS rebinding; `Origin` identifies the page that sent a request.

use std::net::{IpAddr, SocketAddr};

use hyper::header::{HeaderMap, HeaderName, HeaderValue};
use hyper::http::request::Parts;
use hyper::{Method, Version, header};
use jiff::Timestamp;
use url::Url;

use crate::app::App;
use crate::domain::account::credentials::ApiKey;
use crate::domain::account::plan::is_nearly_used_up;
use crate::domain::account::rate_limit::{RATE_WITHOUT_KEY, RateKey, client_address};
use crate::domain::account::session::REQUESTS_PER_MINUTE;
use crate::domain::account::user::{Caller, Credential};
use crate::domain::api_error::{ErrorCode, Refusal};
use crate::error::Result;
use crate::http::limits::Owner as MemoryOwner;
use crate::http::message::Request;
use crate::http::middleware::{RequestContext, ServerState};
use crate::http::router::Route;
use crate::store::accounts::users::{self, Owner, ReadAt};

pub type RefusalResult<T> = std::result::Result<T, Refusal>;

pub const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
const FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");

/// The address of the peer, or the one that a trusted proxy forwards.
pub fn client_ip(server: &ServerState, peer: SocketAddr, headers: &HeaderMap) -> IpAddr {
    // As bytes: a client that sends bytes that are no text does not hide the address that its proxy appends.
    let hops = headers.get_all(FORWARDED_FOR).iter().map(HeaderValue::as_bytes);
    client_address(peer.ip(), hops, &server.app.config.http.trusted_proxies)
}

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
    pub fn check_host(&self, host: &str) -> RefusalResult<()> {
        let Some(allowed) = &self.allowed_hosts else { return Ok(()) };
        // In lower case, and an address in its usual form: `2130706433` is `127.0.0.1`.
        let name = url::Host::parse(host_name(host))
            .map_or_else(|_| String::new(), |name| name.to_string());
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
    pub fn check_origin(&self, route: &Route, source: &RequestSource<'_>) -> RefusalResult<()> {
        if route.access.needs_caller() || route.method == Method::GET {
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

    /// Checks the page that sent a request by session: the browser adds the cookie whichever page asks it to.
    /// Errors: 403 `cross_site_request`.
    pub fn check_session_request(
        &self,
        method: &Method,
        source: &RequestSource<'_>,
    ) -> RefusalResult<()> {
        let is_read = *method == Method::GET;
        let mut sites = source.headers.get_all(SEC_FETCH_SITE).iter().peekable();
        let is_own = if sites.peek().is_some() {
            // `none` means that a person typed the address or opened a bookmark.
            sites.all(|site| site == "same-origin" || (is_read && site == "none"))
        } else {
            // The client is no browser, or one that sends `Sec-Fetch-Site` to trustworthy addresses only.
            let mut origins = source.headers.get_all(header::ORIGIN).iter().peekable();
            is_read
                || origins.peek().is_some()
                    && origins.all(|origin| self.is_own_origin(origin, source))
        };
        if is_own { Ok(()) } else { Err(cross_site()) }
    }

    fn is_own_origin(&self, origin: &HeaderValue, source: &RequestSource<'_>) -> bool {
        let is_of_web = |origin: &Url| matches!(origin.scheme(), "http" | "https");
        let origin = origin.to_str().ok().and_then(|text| Url::parse(text).ok());
        let Some(origin) = origin.filter(is_of_web) else { return false };
        let is_of = |url: &str| Url::parse(url).is_ok_and(|own| own.origin() == origin.origin());
        let mut hosts = [Some(source.host), source.forwarded_host].into_iter().flatten();
        hosts.any(|host| is_of(&format!("{}://{host}", origin.scheme())))
            && !self.is_downgraded(&origin, source)
            || is_of(&self.public_url)
    }

    /// Returns `true` for a page by http of a host that is known to have https: anyone on the network may have made it.
    /// Without a trusted proxy or a public URL, a host that the client reaches by https cannot be told from others.
    fn is_downgraded(&self, origin: &Url, source: &RequestSource<'_>) -> bool {
        let is_secure = |public: Url| {
            public.scheme() == "https"
                && (public.host(), public.port()) == (origin.host(), origin.port())
        };
        let is_known = || Url::parse(&self.public_url).is_ok_and(is_secure);
        origin.scheme() == "http" && (source.is_forwarded_https || is_known())
    }
}

/// What names the origin of a request.
#[derive(Debug, Clone, Copy)]
pub struct RequestSource<'a> {
    /// The host that the request names.
    pub host: &'a str,
    /// The host that the client asked a trusted proxy for.
    pub forwarded_host: Option<&'a str>,
    /// A trusted proxy says that the client asked it by https.
    pub is_forwarded_https: bool,
    pub headers: &'a HeaderMap,
}

impl<'a> RequestSource<'a> {
    pub fn new(app: &App, peer: SocketAddr, host: &'a str, headers: &'a HeaderMap) -> Self {
        let forwarded =
            |name: &HeaderName| last_forwarded(app, peer.ip().to_canonical(), headers, name);
        let forwarded_host = forwarded(&FORWARDED_HOST);
        let is_forwarded_https =
            forwarded(&FORWARDED_PROTO).is_some_and(|it| it.eq_ignore_ascii_case("https"));
        Self { host, forwarded_host, is_forwarded_https, headers }
    }

    pub fn of(request: &'a Request) -> Self {
        Self::new(&request.app, request.peer, &request.host, &request.headers)
    }

    /// The host that the client asked for.
    pub fn asked_host(&self) -> &'a str {
        self.forwarded_host.unwrap_or(self.host)
    }
}

pub fn cross_site() -> Refusal {
    Refusal::new(
        ErrorCode::CrossSiteRequest,
        "A page of another site sent this request; send it from a page of this server or without an `Origin` header, \
         or start cued with the address of its pages as --public-url",
    )
}

/// Returns the host that the request names. A request that names none or a forbidden one counts for the client address.
pub fn named_host<'a>(
    server: &ServerState,
    head: &'a Parts,
    context: &mut RequestContext,
) -> Result<&'a str> {
    let checked = host_of(head)
        .inspect_err(|_| context.must_close = true)
        .and_then(|host| server.browser_guard.check_host(host).map(|()| host));
    checked.map_err(|refusal| {
        context.count(server, context.address_key(), Some(RATE_WITHOUT_KEY));
        refusal.into()
    })
}

/// Returns the host that a request names: that of its target if it has one, otherwise the `Host` header. A request of
/// HTTP/1.0 may name none: its host is empty.
/// Errors: 400 without exactly one `Host` header. Of two, different proxies use different ones.
fn host_of(head: &Parts) -> RefusalResult<&str> {
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

/// The last value of a header of a proxy: the one that the proxy itself wrote. `None` if the peer is no trusted proxy.
fn last_forwarded<'a>(
    app: &App,
    peer: IpAddr,
    headers: &'a HeaderMap,
    name: &HeaderName,
) -> Option<&'a str> {
    if !app.config.http.trusted_proxies.iter().any(|proxy| proxy.contains(peer)) {
        return None;
    }
    let value = headers.get_all(name).iter().next_back()?.to_str().ok()?;
    value.rsplit(',').next().map(str::trim).filter(|value| !value.is_empty())
}

/// Finds the owner of the API key in the header `Authorization`.
pub async fn find_key_owner(
    app: &App,
    headers: &HeaderMap,
    now: Timestamp,
) -> Result<Option<Caller>> {
    let Some(key) = bearer_token(headers).and_then(ApiKey::parse) else { return Ok(None) };
    let hash = key.hash();
    let found = read_key_owner(app, hash, now).await?;
    Ok(found.map(|owner| {
        let credential = Credential::ApiKey { key: owner.key, hash };
        let Owner { user_key, user_id, plan, is_operator, executions, .. } = owner;
        let limits = app.config.plans.limits(&plan);
        Caller { user_key, user_id, credential, plan, limits, is_operator, executions }
    }))
}

pub async fn read_key_owner(app: &App, hash: [u8; 32], now: Timestamp) -> Result<Option<Owner>> {
    let read_at = ReadAt::new(&app.store, now, app.clock.monotonic());
    if let Some(owner) = app.key_owners.find(&hash, read_at) {
        return Ok(Some(owner));
    }
    let found = app.store.read_inline(move |read| users::find_owner(read, &hash, now)).await?;
    if let Some(owner) = &found {
        app.key_owners.keep(hash, owner.clone(), read_at);
    }
    Ok(found)
}

/// Returns the token of `Authorization: Bearer TOKEN`. A missing, repeated or malformed header counts as none.
fn bearer_token(headers: &HeaderMap) -> Option<&str> {
    let mut values = headers.get_all(header::AUTHORIZATION).iter();
    let (value, None) = (values.next()?, values.next()) else { return None };
    let (scheme, token) = value.to_str().ok()?.trim().split_once(' ')?;
    let token = token.trim_start();
    (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty() && !token.contains(' '))
        .then_some(token)
}

/// Counts the request against a rate limit, and keeps in its context what the rest of it needs of the caller.
///
/// A request with a valid key counts for its user, one of a session in a window of its own, so that an open page takes
/// nothing from the user's programs. Every other request counts for the client address, also one with an invalid key:
/// otherwise a client could guess keys without a limit. So does a request by session that a page of another site sent:
/// otherwise such a page could use up the window of the user's own page.
/// Errors: that of `found`.
pub fn count_request(
    server: &ServerState,
    context: &mut RequestContext,
    found: Result<Option<Caller>>,
) -> Result<()> {
    let (key, limit) = match &found {
        Ok(Some(Caller { user_key, credential: Credential::Session { .. }, .. })) => {
            (RateKey::Sessions(*user_key), Some(REQUESTS_PER_MINUTE))
        }
        Ok(Some(caller)) => (RateKey::User(caller.user_key), caller.limits.requests_per_minute),
        _ => (context.address_key(), Some(RATE_WITHOUT_KEY)),
    };
    context.count(server, key, limit);
    context.caller = found?;
    if let Some(caller) = &context.caller {
        context.owner = MemoryOwner::Account(caller.user_key);
        context.near_quota = is_nearly_used_up(caller.limits.executions, caller.executions);
    }
    Ok(())
}

/// Returns whether this request itself created the execution that brought the user near the quota.
///
/// Reads the usage only if one more execution can make the difference.
pub async fn reached_near_quota(server: &ServerState, context: &RequestContext) -> bool {
    let Some(caller) = &context.caller else { return false };
    let (user_key, limit, now) = (caller.user_key, caller.limits.executions, context.now);
    if !is_nearly_used_up(limit, caller.executions + 1) {
        return false;
    }
    match server.app.store.read_inline(move |read| users::monthly_usage(read, user_key, now)).await
    {
        Ok(month) => is_nearly_used_up(limit, month.executions),
        Err(error) => {
            // The handler has finished its work; the next response carries the header instead.
            tracing::warn!(request_id = context.id, error = %error, "cannot read the monthly usage");
            false
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use crate::http::message::Response;
    use crate::routes;

    async fn ok(_: Request) -> Result<Response> {
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
        let guard = BrowserGuard::new(
            Some(vec!["cue.test".to_owned(), "[fd00::1]".to_owned()]),
            String::new(),
        );
        let own = "localhost LOCALHOST:8000 127.0.0.1 127.0.0.1:1 [::1] [::1]:8000 a.localhost a.b.localhost:80 \
                   cue.test Cue.Test:8000 [fd00::1]:80 2130706433:8000";
        for host in own.split(' ') {
            assert_eq!(guard.check_host(host), Ok(()), "{host}");
        }
        let foreign = " :8000 evil.com evil.com:8000 localhost.evil.com evillocalhost 127.0.0.1.evil.com 127.0.0.2 \
                       0.0.0.0 [::] [::1 ::1 a.cue.test localhost@evil.com";
        for host in foreign.split(' ') {
            assert_eq!(
                guard.check_host(host).map_err(|it| it.code),
                Err(ErrorCode::ForbiddenHost),
                "{host}"
            );
        }
        assert_eq!(BrowserGuard::new(None, String::new()).check_host("evil.com"), Ok(()));
    }

    #[test]
    fn only_pages_of_this_server_may_change_anything_without_a_key() {
        let guard = BrowserGuard::new(None, "https://cue.example.com/base".to_owned());
        let check = |route: usize, host: &str, headers: &[(&'static str, &str)]| {
            let headers = headers.iter().map(|(name, value)| {
                (
                    header::HeaderName::from_static(name),
                    header::HeaderValue::from_str(value).unwrap(),
                )
            });
            let headers = headers.collect();
            let source = RequestSource {
                host,
                forwarded_host: None,
                is_forwarded_https: false,
                headers: &headers,
            };
            guard.check_origin(&TABLE[route], &source).is_ok()
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
            ("cue.example.com", "http://cue.example.com"),
            ("cue.example.com", "http://cue.example.com:80"),
            ("127.0.0.1:8000", "https://cue.example.com.evil.com"),
            ("", "http://"),
        ] {
            assert!(!check(public, host, &[("origin", origin)]), "{origin} → {host}");
            assert!(
                check(key, host, &[("origin", origin)]) && check(read, host, &[("origin", origin)])
            );
        }
        assert!(check(public, "cue.test", &[]), "a client that is no browser");
        assert!(!check(
            public,
            "cue.test",
            &[("origin", "http://cue.test"), ("origin", "http://evil.com")]
        ));
        for site in ["same-origin", "none", "cross-site"] {
            for route in [public, page] {
                assert!(
                    !check(route, "cue.test", &[("origin", "null"), ("sec-fetch-site", site)]),
                    "{site}"
                );
            }
        }
        assert!(!check(page, "cue.test", &[("origin", "null")]));
        assert!(check(page, "cue.test", &[("origin", "http://cue.test")]));
    }

    #[test]
    fn a_request_names_exactly_one_host() {
        let host = |version, uri: &str, hosts: &[&str]| {
            let request = hyper::Request::builder().version(version).uri(uri);
            let request = hosts.iter().fold(request, |request, host| request.header("host", *host));
            host_of(&request.body(()).unwrap().into_parts().0)
                .map(str::to_owned)
                .map_err(|it| it.code)
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
            assert_eq!(
                host(version, uri, hosts),
                Err(ErrorCode::BadRequest),
                "{version:?} {uri} {hosts:?}"
            );
        }
    }

    #[test]
    fn the_key_is_read_from_exactly_one_bearer_header() {
        let token = |values: &[&str]| {
            let value = |text: &&str| (header::AUTHORIZATION, HeaderValue::from_str(text).unwrap());
            bearer_token(&values.iter().map(value).collect()).map(str::to_owned)
        };
        for valid in ["Bearer cue_sk_1", "bearer cue_sk_1", "BEARER   cue_sk_1", "Bearer cue_sk_1 "]
        {
            assert_eq!(token(&[valid]).as_deref(), Some("cue_sk_1"), "{valid}");
        }
        for invalid in [
            "cue_sk_1",
            "Bearer",
            "Bearer ",
            "Basic cue_sk_1",
            "Bearer a b",
            "Bearer\tcue_sk_1",
            "",
        ] {
            assert_eq!(token(&[invalid]), None, "{invalid}");
        }
        assert_eq!(token(&[]), None);
        assert_eq!(token(&["Bearer a", "Bearer a"]), None);
    }
}
