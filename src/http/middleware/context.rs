//! The facts about one request that its response and its log line need.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use hyper::header::{HeaderMap, HeaderName, HeaderValue};
use hyper::{Method, StatusCode};
use jiff::Timestamp;
use uuid::Uuid;

use crate::domain::account::client_ip::client_address;
use crate::domain::account::credentials::may_contain_secret;
use crate::domain::account::plan::limit_or_max;
use crate::domain::account::sliding_window::RateLimitStatus;
use crate::domain::account::user::Caller;
use crate::domain::api_error::{ErrorCode, Refusal};
use crate::error::{Error, Result};
use crate::http::limits::buffer_budget::{BufferOwner, BufferReservation};
use crate::http::limits::request_share::RequestShare;
use crate::http::middleware::access_log::{self, AccessLogEntry};
use crate::http::middleware::rate_limiter::RateLimitKey;
use crate::http::middleware::state::ServerState;
use crate::http::pages;
use crate::http::response::Response;
use crate::http::router::{Access, Route};

pub const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

/// Bytes of a response that need no room in the memory budget, so that a caller without room still gets an error. The
/// limits on connections bound the sum of these, and hyper copies a response of this size in any case.
const FREE_RESPONSE: usize = 1_024;

/// Complete enough for a response at every stage: a request that fails early keeps the defaults of the later fields.
pub struct RequestContext {
    pub id: String,
    pub now: Timestamp,
    /// The address of the peer, or the one that a trusted proxy forwards.
    pub client_ip: IpAddr,
    pub rate_limit: RateLimitStatus,
    /// `None` until a route matches.
    pub route: Option<&'static Route>,
    /// `None` without a valid API key or session.
    pub user_id: Option<String>,
    /// The user has used 80 % of the monthly executions.
    pub near_quota: bool,
    /// The body has not been read to its end.
    pub body_unread: bool,
    /// HTTP/1.1 only: no further request can follow on the connection.
    pub must_close: bool,
    /// The caller of a handler that has run.
    pub handled_for: Option<Caller>,
    /// The owner of the memory for the body and the response.
    pub owner: BufferOwner,
    /// The session cookie with a later end.
    pub set_cookie: Option<HeaderValue>,
    /// The share of a request whose handler has run.
    pub share: Option<RequestShare>,
}

impl RequestContext {
    pub fn new(server: &ServerState, id: String, client_ip: IpAddr, body_unread: bool) -> Self {
        let now = server.app.clock.now();
        let rate_limit = server.rate_limiter.status(client_ip, server.app.clock.now_moving());
        Self {
            id,
            now,
            client_ip,
            rate_limit,
            route: None,
            user_id: None,
            near_quota: false,
            body_unread,
            must_close: false,
            handled_for: None,
            owner: BufferOwner::from_client(client_ip),
            set_cookie: None,
            share: None,
        }
    }

    /// Counts the request for the client address.
    pub fn count_for_address(&mut self, server: &ServerState) {
        self.count_for(server, RateLimitKey::Address(self.client_ip));
    }

    /// Counts the request in a window.
    pub fn count_for(&mut self, server: &ServerState, key: RateLimitKey) {
        // The clock of a test moves the window of a program, which has a key.
        let is_of_program = matches!(key, RateLimitKey::User(..));
        let now = if is_of_program { self.now } else { server.app.clock.now_moving() };
        self.rate_limit = server.rate_limiter.admit(key, now);
    }

    /// Takes back the count of this request for the client address, or the refusal.
    pub fn uncount_for_address(&mut self, server: &ServerState) {
        if self.rate_limit.refused_for.is_none() {
            server.rate_limiter.give_back(self.client_ip);
        }
        self.rate_limit = server.rate_limiter.status(self.client_ip, server.app.clock.now_moving());
    }

    /// Errors: 429 if the request is above its rate limit.
    pub fn check_rate_limit(&self) -> Result<()> {
        let Some(seconds) = self.rate_limit.refused_for else { return Ok(()) };
        let limit = limit_or_max(self.rate_limit.limit);
        let message =
            format!("The limit of {limit} requests per minute is exceeded; try again in {seconds} s");
        let refusal = Refusal::new(ErrorCode::RateLimitExceeded, message);
        Err(Error::Refused(Refusal { retry_after: Some(seconds), ..refusal }))
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
    ) -> Result<Option<BufferReservation>> {
        let bytes = response.body.len();
        let reserved = self.share.take().map(|share| share.take_reservation(&server.buffers));
        // What its handler has reserved counts as long as it is open.
        if response.stream.is_some() {
            return Ok(reserved);
        }
        if bytes <= FREE_RESPONSE {
            return Ok(None);
        }
        let Some(mut reserved) = reserved.filter(|reserved| is_done || reserved.bytes() >= bytes) else {
            return server.buffers.reserve(self.owner, bytes).map(Some);
        };
        reserved.resize(bytes)?;
        Ok(Some(reserved))
    }

    pub fn is_page(&self) -> bool {
        self.route.is_some_and(|route| route.access == Access::Page)
    }

    /// Renders an error as HTML for a page, and as JSON for everything else.
    pub fn error_response(&self, error: Error) -> Response {
        if self.is_page() { pages::error_response(error, &self.id) } else { Response::error(error, &self.id) }
    }

    /// Counts the finished request and writes its log line.
    pub fn record(
        &self,
        server: &ServerState,
        method: Option<&Method>,
        status: StatusCode,
        duration: Duration,
    ) {
        let (request_id, route, user_id) = (&self.id, self.route, self.user_id.as_deref());
        let entry = AccessLogEntry { request_id, route, method, user_id, status, duration };
        access_log::record(server, &entry);
    }
}

pub fn client_ip(server: &ServerState, peer: SocketAddr, headers: &HeaderMap) -> IpAddr {
    // As bytes: what a client sends that is no text does not hide the address that its proxy appends.
    let hops = headers.get_all(FORWARDED_FOR).iter().map(HeaderValue::as_bytes);
    client_address(peer.ip(), hops, &server.app.config.http.trusted_proxies)
}

/// Returns the `X-Request-Id` of the client if it is safe to log, otherwise a new id.
pub fn request_id(headers: &HeaderMap) -> String {
    let is_safe = |id: &&str| {
        // Clients do send API keys in the wrong header; the log must not store them.
        !may_contain_secret(id)
            && (1..=128).contains(&id.len())
            && id.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-'))
    };
    let sent = headers.get(REQUEST_ID).and_then(|value| value.to_str().ok()).filter(is_safe);
    sent.map_or_else(new_request_id, str::to_owned)
}

pub fn new_request_id() -> String {
    Uuid::new_v4().to_string()
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
