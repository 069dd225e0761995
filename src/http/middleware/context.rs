//! The facts about one request that its response and its log line need, and what every response has in common.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use hyper::body::Bytes;
use hyper::header::{self, HeaderMap, HeaderName, HeaderValue};
use hyper::{Method, StatusCode};
use jiff::Timestamp;
use jiff::fmt::rfc2822::DateTimePrinter;
use uuid::Uuid;

use crate::domain::account::client_ip::{client_address, rate_limit_address};
use crate::domain::account::credentials::may_contain_secret;
use crate::domain::account::plan::limit_or_max;
use crate::domain::account::sliding_window::RateLimitStatus;
use crate::domain::account::user::Caller;
use crate::domain::api_error::{ErrorCode, Refusal};
use crate::error::{Error, Result};
use crate::http::limits::budget::{Owner, Reservation};
use crate::http::middleware::{RATE_WITHOUT_KEY, RateKey, ServerState};
use crate::http::pages;
use crate::http::response::{BodyStream, Response};
use crate::http::router::{Access, Route};
use crate::metrics::milliseconds;

const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

/// Bytes of a response that need no room in the memory budget, so that a caller without room still gets an error. The
/// limits on connections bound the sum of these, and hyper copies a response of this size in any case.
const FREE_RESPONSE: usize = 1_024;

/// Method and route, in the metrics, of a request that matched no route.
const NO_ROUTE: &str = "none";

/// Complete enough for a response at every stage: a request that fails early keeps the defaults of the later fields.
pub struct RequestContext {
    pub id: String,
    pub now: Timestamp,
    pub client_ip: IpAddr,
    pub rate_limit: RateLimitStatus,
    /// `None` until a route matches.
    pub route: Option<&'static Route>,
    /// `None` without a valid API key or session.
    pub user_id: Option<String>,
    /// The user has used 80 % of the monthly executions.
    pub near_quota: bool,
    /// HTTP/1.1 only: no further request can follow on the connection.
    pub must_close: bool,
    /// The caller of a handler that has run.
    pub handled_for: Option<Caller>,
    /// The owner of the memory for the body and the response.
    pub owner: Owner,
    /// The session cookie with a later end.
    pub set_cookie: Option<HeaderValue>,
    /// What a handler that has run has reserved for its response.
    pub reserved: Option<Reservation>,
}

impl RequestContext {
    pub fn new(server: &ServerState, client_ip: IpAddr, headers: &HeaderMap) -> Self {
        Self {
            id: request_id(headers),
            now: server.app.clock.now(),
            client_ip,
            rate_limit: address_status(server, client_ip),
            route: None,
            user_id: None,
            near_quota: false,
            must_close: false,
            handled_for: None,
            owner: Owner::from_client(client_ip),
            set_cookie: None,
            reserved: None,
        }
    }

    /// Counts the request for the client address.
    pub fn count_for_address(&mut self, server: &ServerState) {
        self.count(server, RateKey::Address(rate_limit_address(self.client_ip)), Some(RATE_WITHOUT_KEY));
    }

    /// Counts the request in a window, unless there is no limit.
    pub fn count(&mut self, server: &ServerState, key: RateKey, limit: Option<u32>) {
        // The clock of a test moves the window of a program, which has a key.
        let is_of_program = matches!(key, RateKey::User(_));
        let now = if is_of_program { self.now } else { server.app.clock.now_moving() };
        self.rate_limit = match limit {
            Some(limit) => server.rates.lock().admit_below(key, limit, now),
            None => RateLimitStatus::unused(None, now),
        };
    }

    /// Takes back the count of this request for the client address, or the refusal.
    pub fn uncount_for_address(&mut self, server: &ServerState) {
        if self.rate_limit.refused_for.is_none() {
            server.rates.lock().give_back(RateKey::Address(rate_limit_address(self.client_ip)));
        }
        self.rate_limit = address_status(server, self.client_ip);
    }

    pub fn check_rate_limit(&self) -> Result<()> {
        let Some(seconds) = self.rate_limit.refused_for else { return Ok(()) };
        let limit = limit_or_max(self.rate_limit.limit);
        let message =
            format!("The limit of {limit} requests per minute is exceeded; try again in {seconds} s");
        Err(Refusal::new(ErrorCode::RateLimitExceeded, message).retry_after(seconds).into())
    }

    /// Reserves the memory of a response until it is written. What the handler has reserved becomes a part of it. A
    /// change that `is_done` gets a little more than there is room for: it was made because there was room for an
    /// ordinary response.
    /// Errors: 503 if the caller leaves too many responses unread.
    pub fn reserve(
        &mut self,
        server: &ServerState,
        response: &Response,
        is_done: bool,
    ) -> Result<Option<Reservation>> {
        let (bytes, reserved) = (response.body.len(), self.reserved.take());
        // What its handler has reserved counts as long as it is open.
        if response.stream.is_some() {
            return Ok(reserved);
        }
        if bytes <= FREE_RESPONSE {
            return Ok(None);
        }
        let Some(mut reserved) = reserved.filter(|reserved| is_done || reserved.bytes() >= bytes) else {
            return server.shares.budget.reserve(self.owner, bytes).map(Some);
        };
        reserved.resize(bytes)?;
        Ok(Some(reserved))
    }

    fn is_page(&self) -> bool {
        self.route.is_some_and(|route| route.access == Access::Page)
    }

    /// Renders an error as HTML for a page, and as JSON for everything else.
    pub fn error_response(&self, error: Error) -> Response {
        if self.is_page() { pages::error_response(error, &self.id) } else { Response::error(error, &self.id) }
    }

    /// Adds the headers of every response (contract §2.2). One that the response has already wins. Returns the stream apart
    /// from the response.
    pub fn complete(&self, response: Response) -> (hyper::Response<Bytes>, Option<BodyStream>) {
        let mut headers = HeaderMap::with_capacity(16);
        headers.insert("x-ratelimit-limit", limit_or_max(self.rate_limit.limit).into());
        headers.insert("x-ratelimit-remaining", limit_or_max(self.rate_limit.remaining()).into());
        headers.insert("x-ratelimit-reset", self.rate_limit.reset.into());
        if self.near_quota {
            headers.insert("x-cueapi-usage-warning", HeaderValue::from_static("approaching_limit"));
        }
        headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        if let Ok(id) = HeaderValue::from_str(&self.id) {
            headers.insert(REQUEST_ID, id);
        }
        // Replaces the `Date` of hyper, which reads the system clock: a test clock must govern this header too.
        if let Ok(date) = DateTimePrinter::new().timestamp_to_rfc9110_string(&self.now)
            && let Ok(date) = HeaderValue::try_from(date)
        {
            headers.insert(header::DATE, date);
        }
        if self.is_page() {
            headers.insert(header::CONTENT_SECURITY_POLICY, pages::CONTENT_SECURITY_POLICY.clone());
            // With `no-referrer` browsers send `Origin: null` with the forms of these pages, as sandboxed frames do.
            headers.insert(header::REFERRER_POLICY, HeaderValue::from_static("same-origin"));
            headers.insert(header::X_FRAME_OPTIONS, HeaderValue::from_static("DENY"));
        }
        // A 304 may only give the length of the response that it stands for.
        if response.status != 204 && response.status != 304 && response.stream.is_none() {
            headers.insert(header::CONTENT_LENGTH, response.body.len().into());
        }
        if let Some(cookie) = &self.set_cookie {
            headers.insert(header::SET_COOKIE, cookie.clone());
        }
        headers.extend(response.headers);
        let mut complete = hyper::Response::new(response.body);
        *complete.status_mut() = response.status;
        *complete.headers_mut() = headers;
        (complete, response.stream)
    }

    /// Counts the finished request in the metrics and writes its log line. Neither has the path or the query of the
    /// request: these contain ids and, on some routes, tokens. `duration` is that from the end of the head to the response.
    pub fn record(&self, server: &ServerState, method: &Method, status: StatusCode, duration: Duration) {
        // `HEAD` counts as the `GET` that handles it.
        let (counted, route) =
            self.route.map_or((NO_ROUTE, NO_ROUTE), |route| (route.method.as_str(), route.path));
        server.app.requests.with([counted, route, status_class(status)]).observe_duration(duration);
        tracing::debug!(
            request_id = self.id,
            method = method_name(method),
            route,
            status = status.as_u16(),
            user_id = self.user_id.as_deref(),
            duration_ms = milliseconds(duration),
            "request completed"
        );
    }
}

/// The address of the peer, or the one that a trusted proxy forwards.
pub fn client_ip(server: &ServerState, peer: SocketAddr, headers: &HeaderMap) -> IpAddr {
    // As bytes: what a client sends that is no text does not hide the address that its proxy appends.
    let hops = headers.get_all(FORWARDED_FOR).iter().map(HeaderValue::as_bytes);
    client_address(peer.ip(), hops, &server.app.config.http.trusted_proxies)
}

/// The status of a client without a key. Counts nothing.
fn address_status(server: &ServerState, address: IpAddr) -> RateLimitStatus {
    let key = RateKey::Address(rate_limit_address(address));
    server.rates.lock().status(&key, RATE_WITHOUT_KEY, server.app.clock.now_moving())
}

/// Returns the `X-Request-Id` of the client if it is safe to log, otherwise a new id.
fn request_id(headers: &HeaderMap) -> String {
    let is_safe = |id: &&str| {
        // Clients do send API keys in the wrong header; the log must not store them.
        !may_contain_secret(id)
            && (1..=128).contains(&id.len())
            && id.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-'))
    };
    let sent = headers.get(REQUEST_ID).and_then(|value| value.to_str().ok()).filter(is_safe);
    sent.map_or_else(|| Uuid::new_v4().to_string(), str::to_owned)
}

/// Returns `unknown` for a method that is not a standard one: a client can send any text as a method.
fn method_name(method: &Method) -> &str {
    let standard = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "CONNECT", "TRACE"];
    if standard.contains(&method.as_str()) { method.as_str() } else { "unknown" }
}

fn status_class(status: StatusCode) -> &'static str {
    ["1xx", "2xx", "3xx", "4xx", "5xx"].get(usize::from(status.as_u16() / 100 - 1)).unwrap_or(&"5xx")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_id_of_the_client_is_kept_only_if_it_is_safe() {
        let id = |value: &str| {
            let value = HeaderValue::from_str(value).unwrap();
            request_id(&HeaderMap::from_iter([(REQUEST_ID, value)]))
        };
        assert_eq!(id("Req-1_a.b"), "Req-1_a.b");
        assert_eq!(id(&"a".repeat(128)).len(), 128);
        let secrets = ["cue_sk_0123456789abcdef0123456789abcdef", "whsec_0", "Bearer-cue_sk_0"];
        for unsafe_id in
            ["", "a b", "a/b", "a\tb", "<script>", "ä", &"a".repeat(129)].into_iter().chain(secrets)
        {
            assert!(Uuid::parse_str(&id(unsafe_id)).is_ok(), "{unsafe_id}");
        }
    }
}
