//! One request from its head to its response, in the contract's order: path and method, key, rate, body size, body.
//!
//! Dropping the future of a request (a client that hangs up) is safe at every point: a handler changes something
//! only by awaiting a job on a lane of the store, and a job that was handed over runs to its end there.

mod access_log;
pub(in crate::http) mod rate_limiter;

use std::any::Any;
use std::net::{IpAddr, SocketAddr};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::{Arc, OnceLock};
use std::task::Poll;
use std::time::Duration;

use hyper::body::{Body, Bytes, Incoming};
use hyper::header::{self, HeaderMap, HeaderName, HeaderValue};
use hyper::http::request::Parts;
use hyper::{Method, StatusCode, Version};
use jiff::Timestamp;
use jiff::fmt::rfc2822::DateTimePrinter;
use tokio::time::Instant;
use uuid::Uuid;

use crate::app::App;
use crate::domain::account::client_ip::client_address;
use crate::domain::account::credentials::{ApiKey, may_hold_a_secret};
use crate::domain::account::plan::limit_or_max;
use crate::domain::account::quota::is_near;
use crate::domain::account::sliding_window::RateLimitStatus;
use crate::domain::account::user::Caller;
use crate::domain::api_error::{ErrorCode, Refusal};
use crate::error::{Error, Result};
use crate::http::middleware::access_log::AccessLogEntry;
use crate::http::middleware::rate_limiter::RateLimitKey;
use crate::http::pages;
use crate::http::request::Request;
use crate::http::response::Response;
use crate::http::routes::{Access, Route, RouteMatch, match_route};
use crate::http::server::{ServerState, body, connection};
use crate::metrics::Stopwatch;
use crate::store::accounts::api_keys;
use crate::store::accounts::api_keys::Owner;
use crate::store::accounts::usage;

const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

/// A response, and what the connection must know of the request.
pub struct Handled {
    /// The response.
    pub response: hyper::Response<Bytes>,
    /// The request's body was not read to its end.
    pub unread: bool,
}

/// What is known of a request when its response is written, however far it came.
struct RequestContext {
    id: String,
    now: Timestamp,
    /// The caller's address: the peer's, or the one that a trusted proxy names.
    client: IpAddr,
    rate: RateLimitStatus,
    /// The row of the table that it leads to.
    route: Option<&'static Route>,
    /// The id of the user whose key it shows.
    user_id: Option<String>,
    /// The caller has used 80 % of its executions of the month.
    near_quota: bool,
    unread: bool,
}

/// Answers one request. `deadline` is when its body must have come.
pub async fn answer(
    server: &ServerState,
    peer: SocketAddr,
    request: hyper::Request<Incoming>,
    deadline: Instant,
) -> Handled {
    let stopwatch = Stopwatch::start();
    let (head, body) = request.into_parts();
    let client = client_of(server, peer, &head.headers);
    let mut visit = RequestContext::begin(server, request_id(&head.headers), client, !body.is_end_stream());
    let (method, version) = (head.method.clone(), head.version);
    let reply = match caught(handle(server, peer, head, body, deadline, &mut visit)).await {
        Ok(Ok(reply)) => reply,
        Ok(Err(error)) => visit.failed(error),
        Err(panic) => visit.failed(Error::Fault(format!("a handler panicked: {}", said(&*panic)))),
    };
    let mut response = with_common_headers(reply, &visit);
    // The rest of this body is not worth reading, and what comes after it cannot be found.
    let cut = visit.unread && [408, 413].contains(&response.status().as_u16());
    if cut && version < Version::HTTP_2 {
        response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    if method == Method::HEAD {
        response.body_mut().clear();
    }
    visit.note(server, Some(&method), response.status(), stopwatch.elapsed());
    Handled { response, unread: visit.unread }
}

/// The response to what never became a request: a head that cannot be read, or did not come in time.
pub fn answer_without_request(
    server: &ServerState,
    peer: SocketAddr,
    refusal: Refusal,
) -> hyper::Response<Bytes> {
    let mut visit = RequestContext::begin(server, fresh_id(), peer.ip(), false);
    visit.rate = server.windows.admit(RateLimitKey::Address(visit.client), visit.now);
    let response = with_common_headers(Response::failed(refusal.into(), &visit.id), &visit);
    visit.note(server, None, response.status(), Duration::ZERO);
    response
}

impl RequestContext {
    fn begin(server: &ServerState, id: String, client: IpAddr, unread: bool) -> Self {
        let now = server.app.clock.now();
        let rate = server.windows.look(client, now);
        Self { id, now, client, rate, route: None, user_id: None, near_quota: false, unread }
    }

    fn is_page(&self) -> bool {
        self.route.is_some_and(|route| route.access == Access::Page)
    }

    fn note(&self, server: &ServerState, method: Option<&Method>, status: StatusCode, took: Duration) {
        let (id, route, user_id) = (&self.id, self.route, self.user_id.as_deref());
        access_log::note(server, &AccessLogEntry { id, route, method, user_id, status, took });
    }

    fn failed(&self, error: Error) -> Response {
        if self.is_page() { pages::failed(error, &self.id) } else { Response::failed(error, &self.id) }
    }
}

async fn handle(
    server: &ServerState,
    peer: SocketAddr,
    head: Parts,
    body: Incoming,
    deadline: Instant,
    visit: &mut RequestContext,
) -> Result<Response> {
    let found = match_route(server.table, &head.method, head.uri.path());
    visit.route = if let RouteMatch::Found(route, _) = &found { Some(route) } else { None };
    let is_free = visit.route.is_some_and(|route| route.access == Access::Unmetered);
    let caller = if is_free { None } else { authenticate(server, visit, bearer(&head.headers)).await? };
    let (route, params) = match found {
        RouteMatch::Found(route, params) => (route, params),
        RouteMatch::WrongMethod(allow) => return method_not_allowed(&allow, &visit.id),
        RouteMatch::NoPath => {
            return Err(Error::refused(ErrorCode::NotFound, "There is nothing at this path"));
        }
    };
    if let Some(seconds) = visit.rate.refused_for {
        return Err(rate_exceeded(limit_or_max(visit.rate.limit), seconds));
    }
    if route.access == Access::ApiKey && caller.is_none() {
        return Err(Error::refused(ErrorCode::InvalidApiKey, "Invalid or missing API key"));
    }
    let loaded = connection::until(deadline, body::read(body, route.body_limit, &server.bodies)).await;
    let body = loaded.ok_or_else(too_slow)??;
    visit.unread = false;
    let request = Request {
        app: Arc::clone(&server.app),
        id: visit.id.clone(),
        now: visit.now,
        peer,
        client: visit.client,
        query: head.uri.query().unwrap_or_default().to_owned(),
        headers: head.headers,
        stopping: server.stopping.clone(),
        caller: caller.clone(),
        rate: visit.rate,
        params,
        body,
        object: OnceLock::new(),
    };
    let reply = (route.handler)(request).await;
    if let Some(caller) = caller.filter(|_| !visit.near_quota) {
        visit.near_quota = is_near_by_now(server, &caller, visit).await;
    }
    reply
}

/// Looks the key up and counts the request: in the window of its user, or in the address's of all who show no valid
/// key; they are counted too, else keys could be tried without end.
async fn authenticate(
    server: &ServerState,
    visit: &mut RequestContext,
    key: Option<&str>,
) -> Result<Option<Caller>> {
    let known = match key {
        Some(key) => caller_of(&server.app, key, visit.now).await,
        None => Ok(None),
    };
    let payer = match &known {
        Ok(Some(caller)) => RateLimitKey::User(caller.user_key, caller.limits.requests_per_minute),
        _ => RateLimitKey::Address(visit.client),
    };
    visit.rate = server.windows.admit(payer, visit.now);
    let caller = known?;
    visit.user_id = caller.as_ref().map(|caller| caller.user_id.clone());
    visit.near_quota =
        caller.as_ref().is_some_and(|caller| is_near(caller.limits.executions, caller.executions));
    Ok(caller)
}

/// Whether the request itself made the execution from which on the quota is near. Only one that stood right before it
/// is looked after.
async fn is_near_by_now(server: &ServerState, caller: &Caller, visit: &RequestContext) -> bool {
    let (user_key, limit, now) = (caller.user_key, caller.limits.executions, visit.now);
    if !is_near(limit, caller.executions + 1) {
        return false;
    }
    match server.app.store.read_inline_single(move |read| usage::find(read, user_key, now)).await {
        Ok(month) => is_near(limit, month.executions),
        Err(error) => {
            // What the handler did stands; the next response carries the header.
            tracing::warn!(request_id = visit.id, "the quota could not be read: {error}");
            false
        }
    }
}

/// The caller behind a key, if it is known and not revoked.
async fn caller_of(app: &App, key: &str, now: Timestamp) -> Result<Option<Caller>> {
    let Some(key) = ApiKey::parse(key) else { return Ok(None) };
    let key_hash = key.hash();
    let found = app.store.read_inline_single(move |read| api_keys::find_owner(read, &key_hash, now)).await?;
    Ok(found.map(|Owner { key, user_key, user_id, plan, executions }| {
        let limits = app.config.plans.limits(&plan);
        Caller { user_key, user_id, key, key_hash, plan, limits, executions }
    }))
}

fn client_of(server: &ServerState, peer: SocketAddr, headers: &HeaderMap) -> IpAddr {
    // What is no text is no address: nothing that stands before it is believed.
    let hops = headers.get_all(FORWARDED_FOR).iter().map(|value| value.to_str().unwrap_or("-"));
    client_address(peer.ip(), hops, &server.app.config.http.trusted_proxies)
}

/// The key of `Authorization: Bearer KEY`; nothing when the header is missing, double or something else.
fn bearer(headers: &HeaderMap) -> Option<&str> {
    let mut values = headers.get_all(header::AUTHORIZATION).iter();
    let (value, None) = (values.next()?, values.next()) else { return None };
    let (scheme, key) = value.to_str().ok()?.trim().split_once(' ')?;
    let key = key.trim_start();
    (scheme.eq_ignore_ascii_case("bearer") && !key.is_empty() && !key.contains(' ')).then_some(key)
}

/// The caller's id for this request if it is a sane one, else a new one.
fn request_id(headers: &HeaderMap) -> String {
    let sane = |id: &&str| {
        // It goes to the log, where no key may be that somebody sent in the wrong header.
        !may_hold_a_secret(id)
            && (1..=128).contains(&id.len())
            && id.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-'))
    };
    let sent = headers.get(REQUEST_ID).and_then(|value| value.to_str().ok()).filter(sane);
    sent.map_or_else(fresh_id, str::to_owned)
}

fn fresh_id() -> String {
    Uuid::new_v4().to_string()
}

fn method_not_allowed(allow: &str, id: &str) -> Result<Response> {
    let value = HeaderValue::from_str(allow).map_err(|error| Error::Fault(format!("Allow: {error}")))?;
    let message = format!("This path takes {allow}");
    Ok(Response::failed(Error::refused(ErrorCode::MethodNotAllowed, message), id).with(header::ALLOW, value))
}

fn rate_exceeded(limit: u32, seconds: u32) -> Error {
    let message = format!("More than {limit} requests in a minute; try again in {seconds} s");
    Error::Refused(Refusal {
        retry_after: Some(seconds),
        ..Refusal::new(ErrorCode::RateLimitExceeded, message)
    })
}

fn too_slow() -> Error {
    Error::refused(ErrorCode::RequestTimeout, "The request's body did not come in time")
}

/// Adds the headers that every response has; those of the reply itself win.
fn with_common_headers(reply: Response, visit: &RequestContext) -> hyper::Response<Bytes> {
    let mut headers = HeaderMap::with_capacity(16);
    headers.insert("x-ratelimit-limit", limit_or_max(visit.rate.limit).into());
    headers.insert("x-ratelimit-remaining", limit_or_max(visit.rate.remaining()).into());
    headers.insert("x-ratelimit-reset", visit.rate.reset.into());
    if visit.near_quota {
        headers.insert("x-cueapi-usage-warning", HeaderValue::from_static("approaching_limit"));
    }
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    if let Ok(id) = HeaderValue::from_str(&visit.id) {
        headers.insert(REQUEST_ID, id);
    }
    // Ours and not hyper's: a test clock governs everything that has a time in it.
    if let Ok(date) = DateTimePrinter::new().timestamp_to_rfc9110_string(&visit.now)
        && let Ok(date) = HeaderValue::try_from(date)
    {
        headers.insert(header::DATE, date);
    }
    if visit.is_page() {
        headers.insert(header::CONTENT_SECURITY_POLICY, pages::POLICY.clone());
        headers.insert(header::REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
        headers.insert(header::X_FRAME_OPTIONS, HeaderValue::from_static("DENY"));
    }
    if reply.status != 204 {
        headers.insert(header::CONTENT_LENGTH, reply.body.len().into());
    }
    headers.extend(reply.headers);
    let mut response = hyper::Response::new(reply.body);
    *response.status_mut() = reply.status;
    *response.headers_mut() = headers;
    response
}

/// Runs a future so that a panic in it ends it and nothing else.
async fn caught<F: Future>(future: F) -> std::result::Result<F::Output, Box<dyn Any + Send>> {
    let mut future = pin!(future);
    std::future::poll_fn(|context| match catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(context))) {
        Ok(Poll::Pending) => Poll::Pending,
        Ok(Poll::Ready(output)) => Poll::Ready(Ok(output)),
        Err(panic) => Poll::Ready(Err(panic)),
    })
    .await
}

fn said(panic: &(dyn Any + Send)) -> &str {
    let literal = panic.downcast_ref::<&str>().copied();
    literal.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("(no message)")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(name: HeaderName, values: &[&str]) -> HeaderMap {
        values.iter().map(|value| (name.clone(), HeaderValue::from_str(value).unwrap())).collect()
    }

    #[test]
    fn a_key_is_read_from_one_bearer_header_only() {
        let key = |values: &[&str]| bearer(&headers(header::AUTHORIZATION, values)).map(str::to_owned);
        for good in ["Bearer cue_sk_1", "bearer cue_sk_1", "BEARER   cue_sk_1", "Bearer cue_sk_1 "] {
            assert_eq!(key(&[good]).as_deref(), Some("cue_sk_1"), "{good}");
        }
        for odd in ["cue_sk_1", "Bearer", "Bearer ", "Basic cue_sk_1", "Bearer a b", "Bearer\tcue_sk_1", ""] {
            assert_eq!(key(&[odd]), None, "{odd}");
        }
        assert_eq!(key(&[]), None);
        assert_eq!(key(&["Bearer a", "Bearer a"]), None);
    }

    #[test]
    fn a_client_id_is_kept_only_if_it_is_valid() {
        let id = |value: &str| request_id(&headers(REQUEST_ID, &[value]));
        assert_eq!(id("Req-1_a.b"), "Req-1_a.b");
        assert_eq!(id(&"a".repeat(128)).len(), 128);
        let secrets = ["cue_sk_0123456789abcdef0123456789abcdef", "whsec_0", "Bearer-cue_sk_0"];
        for odd in ["", "a b", "a/b", "a\tb", "<script>", "ä", &"a".repeat(129)].into_iter().chain(secrets) {
            assert!(Uuid::parse_str(&id(odd)).is_ok(), "{odd}");
        }
    }

    #[tokio::test]
    async fn a_panic_is_caught_with_its_message() {
        let number = 7;
        let caught = caught(async {
            if number == 7 {
                panic!("seven: {number}")
            }
        })
        .await;
        assert_eq!(caught.map_err(|panic| said(&*panic).to_owned()), Err("seven: 7".to_owned()));
    }
}
