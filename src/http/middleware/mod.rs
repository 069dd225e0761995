//! The steps that every request passes, in the order of contract §2.9: host, route, API key or session, rate limit, body,
//! handler.
//!
//! A request's future may be dropped at any point, for example when the client disconnects. This is safe: a handler
//! changes data only through a job on a thread of the store, and a submitted job always runs to its end.

pub(in crate::http) mod authentication;
pub(in crate::http) mod session;

use std::net::{IpAddr, SocketAddr};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::Poll;
use std::time::Duration;

use hyper::body::{Body, Bytes, Incoming};
use hyper::header::{self, HeaderMap, HeaderName, HeaderValue};
use hyper::http::request::Parts;
use hyper::{Method, StatusCode, Version};
use jiff::Timestamp;
use jiff::fmt::rfc2822::DateTimePrinter;
use tokio::sync::watch;

use crate::api::apply::MORE_CUES;
use crate::app::App;
use crate::domain::account::plan::limit_or_max;
use crate::domain::account::rate_limit::{
    RATE_WITHOUT_KEY, RateKey, RateLimitStatus, rate_limit_address,
};
use crate::domain::account::user::Caller;
use crate::domain::api_error::{ErrorCode, Refusal};
use crate::domain::json::{self, JsonError, JsonText};
use crate::error::{Error, Result};
use crate::http::assets;
use crate::http::limits::activity::RequestGuard;
use crate::http::limits::memory::Reservation;
use crate::http::limits::{Owner, Shares};
use crate::http::message::{
    BodyStream, BufferedBody, REQUEST_ID, Request, Response, request_id, run_blocking,
};
use crate::http::middleware::authentication::{
    BrowserGuard, RequestSource, client_ip, count_request, find_key_owner, named_host,
    reached_near_quota,
};
use crate::http::middleware::session::find_session_owner;
use crate::http::pages;
use crate::http::router::{Access, Route, RouteMatch, match_route};
use crate::metrics::{Stopwatch, milliseconds};
use crate::system::locks::Mutex;
use crate::system::panics;
use tokio::time::timeout_at;

/// Bytes of a body that is read as JSON on the thread of its connection. That takes less than a millisecond; passing a
/// larger body to another thread costs little beside reading it.
const INLINE_JSON: usize = 64 << 10;

/// The bytes that a concurrent request of HTTP/2 takes: the state of its stream, its task, the frames of a small response. One of
/// HTTP/1.1 has no more than its connection, and the number of connections is bounded.
const STREAM_COST: usize = 12 << 10;
/// Bytes of parsed headers that do not count. Usual requests have less.
const FREE_HEAD: usize = 4 << 10;
/// A place for a header in a `HeaderMap`: name, value, hash, index and links.
const HEADER_COST: usize = size_of::<HeaderName>() + size_of::<HeaderValue>() + 40;
/// The most headers of a request. hyper limits them in HTTP/1.1 only.
const MAX_HEADERS: usize = 100;

pub struct ServerState {
    pub app: Arc<App>,
    pub table: &'static [Route],
    pub browser_guard: BrowserGuard,
    pub shares: Arc<Shares>,
    /// Becomes `true` when the server starts to shut down.
    pub stopping: watch::Receiver<bool>,
}

impl ServerState {
    /// Requests may name `allowed_hosts` beside the names of this machine; `None` permits all.
    pub fn new(
        app: Arc<App>,
        table: &'static [Route],
        allowed_hosts: Option<Vec<String>>,
        stopping: watch::Receiver<bool>,
    ) -> Self {
        Self {
            table,
            browser_guard: BrowserGuard::new(allowed_hosts, app.config.public_url.clone()),
            shares: Shares::new(app.config.http.max_buffered),
            stopping,
            app,
        }
    }

    /// Returns whether the routes with this access rule exist on this server.
    pub fn has_routes_of(&self, access: Access) -> bool {
        match access {
            Access::TestClock => self.app.clock.is_test(),
            Access::Asset => self.app.config.http.page,
            _ => true,
        }
    }
}

/// A response, with what must be held until it is written.
pub struct Handled {
    pub response: hyper::Response<Bytes>,
    /// In place of the body of the response.
    pub stream: Option<BodyStream>,
    pub memory: [Option<Reservation>; 2],
}

/// Turns a request into a response. Errors and panics become responses too. `None` for a request of HTTP/2 that finds no
/// memory: its client may repeat it.
pub async fn handle(
    server: &ServerState,
    peer: SocketAddr,
    request: hyper::Request<Incoming>,
    guard: &mut RequestGuard,
) -> Option<Handled> {
    let stopwatch = Stopwatch::start();
    let (head, body) = request.into_parts();
    let client_ip = client_ip(server, peer, &head.headers);
    let (method, is_http1) = (head.method.clone(), head.version < Version::HTTP_2);
    let cost = head_cost(&head.headers) + if is_http1 { 0 } else { STREAM_COST };
    let of_head = server.shares.budget.reserve(Owner::from_client(client_ip), cost);
    if of_head.is_err() && !is_http1 {
        // A flood of streams that are refused would hold memory too. The connection of a proxy is that of other clients.
        if client_ip == peer.ip().to_canonical() {
            guard.close_connection();
        }
        return None;
    }
    let mut context = RequestContext::new(server, client_ip, &head.headers);
    let (of_head, response) = match of_head {
        Ok(of_head) => {
            let response =
                catch_panic(dispatch(server, peer, head, body, guard, &mut context)).await;
            (Some(of_head), response)
        }
        Err(error) => {
            context.must_close = true;
            (None, Err(error))
        }
    };
    let response = response.unwrap_or_else(|error| context.error_response(server, error));
    // No await before this: a response that is rendered and does not count yet would escape the bound.
    let is_done = !method.is_safe() && response.status.is_success();
    let (response, mut of_response) = match context.reserve(server, &response, is_done) {
        Ok(reservation) => (response, reservation),
        Err(error) => {
            let error = if is_done { without_room(error) } else { error };
            (context.error_response(server, error), None)
        }
    };
    if context.is_handled && !context.near_quota {
        context.near_quota = reached_near_quota(server, &context).await;
    }
    let (mut response, stream) = context.complete(response);
    // A `HEAD` gets no part of a stream.
    let stream = stream.filter(|_| method != Method::HEAD);
    if context.must_close && is_http1 {
        response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    if method == Method::HEAD {
        response.body_mut().clear();
        of_response = None;
    }
    context.record(server, &method, response.status(), stopwatch.elapsed());
    Some(Handled { response, stream, memory: [of_head, of_response] })
}

/// The bytes of parsed headers, if they count.
fn head_cost(headers: &HeaderMap) -> usize {
    let text: usize = headers.iter().map(|(name, value)| name.as_str().len() + value.len()).sum();
    let cost = headers.capacity() * HEADER_COST + text;
    if cost > FREE_HEAD { cost } else { 0 }
}

/// Runs the steps up to the handler. `context` keeps the results of the steps that ran, also when a later one fails.
async fn dispatch(
    server: &ServerState,
    peer: SocketAddr,
    head: Parts,
    body: Incoming,
    guard: &mut RequestGuard,
    context: &mut RequestContext,
) -> Result<Response> {
    if head.headers.len() > MAX_HEADERS {
        return Err(too_many_headers());
    }
    let host = named_host(server, &head, context)?;
    let source = RequestSource::new(&server.app, peer, host, &head.headers);
    let (route, params) = match find_route(server, context, &head, &source).await? {
        RouteMatch::Found(route, params) => (route, params),
        RouteMatch::WrongMethod(allow) => return method_not_allowed(&allow, &context.id),
        RouteMatch::NoPath => return to_screen(server, &head),
    };
    let is_poll = route.access == Access::DevicePoll;
    if !is_poll {
        context.check_rate_limit()?;
    }
    server.browser_guard.check_origin(route, &source)?;
    if route.access.needs_caller() && context.caller.is_none() {
        return Err(invalid_api_key());
    }
    // Set for the errors of the body: the next request begins after the rest of it, which is not worth reading.
    context.must_close = !body.is_end_stream();
    let body = read_body(server, route, &head.method, body, guard, context).await?;
    guard.body_arrived();
    context.must_close = false;
    let is_exempt = Arc::new(AtomicBool::new(false));
    let json = read_json(server, context.owner, route, &body.bytes).await?;
    let reserved = Arc::new(Mutex::new(server.shares.budget.open(context.owner)));
    let request = Request {
        app: Arc::clone(&server.app),
        id: context.id.clone(),
        now: context.now,
        host: host.to_owned(),
        peer,
        client_ip: context.client_ip,
        query: head.uri.query().unwrap_or_default().to_owned(),
        headers: head.headers,
        stopping: server.stopping.clone(),
        caller: context.caller.clone(),
        rate_limit: context.rate_limit,
        is_exempt: Arc::clone(&is_exempt),
        params,
        body,
        shares: Arc::clone(&server.shares),
        owner: context.owner,
        reserved: Arc::clone(&reserved),
        json: json.map_or_else(OnceLock::new, OnceLock::from),
    };
    let response = (route.handler)(request).await;
    let unused = server.shares.budget.open(context.owner);
    context.reserved = Some(std::mem::replace(&mut *reserved.lock(), unused));
    context.is_handled = true;
    if is_poll && is_exempt.load(Ordering::Relaxed) {
        context.uncount_for_address(server);
    } else if is_poll {
        context.check_rate_limit()?;
    }
    response
}

/// Leads a browser that asks for the path of a screen to the page.
fn to_screen(server: &ServerState, head: &Parts) -> Result<Response> {
    let to_page = Some(head).filter(|_| server.has_routes_of(Access::Asset));
    let message = "There is no endpoint at this path; check the path of the request";
    to_page.and_then(assets::to_screen).ok_or_else(|| Error::refused(ErrorCode::NotFound, message))
}

/// Finds the route and the caller. For everybody but operators the routes of operators do not exist.
async fn find_route(
    server: &ServerState,
    context: &mut RequestContext,
    head: &Parts,
    source: &RequestSource<'_>,
) -> Result<RouteMatch> {
    let find = |is_operator: bool| {
        let exists =
            |access| server.has_routes_of(access) && (is_operator || access != Access::Operator);
        match_route(server.table, &head.method, head.uri.path(), exists)
    };
    let mut matched = find(true);
    context.route = matched.route();
    find_caller(server, context, source).await?;
    let is_operator = context.caller.as_ref().is_some_and(|caller| caller.is_operator);
    if !is_operator && context.route.is_none_or(|route| route.access == Access::Operator) {
        matched = find(false);
        context.route = matched.route();
    }
    Ok(matched)
}

/// Finds the caller, if there is one, and counts the request, also one to an unknown path.
async fn find_caller(
    server: &ServerState,
    context: &mut RequestContext,
    source: &RequestSource<'_>,
) -> Result<()> {
    match context.route.map(|route| route.access) {
        Some(access) if access.is_unmetered() => Ok(()),
        // Counts until it turns out to be exempt: bodies that never come must count.
        Some(Access::DevicePoll) => count_request(server, context, Ok(None)),
        access => {
            // The header wins, valid or not, so that nothing changes for programs. Routes without a key need no session:
            // a page of another site then cannot use one there.
            let found = if source.headers.contains_key(header::AUTHORIZATION) {
                find_key_owner(&server.app, source.headers, context.now).await
            } else if access.is_some_and(Access::needs_caller) {
                find_session_owner(server, context, source).await
            } else {
                Ok(None)
            };
            count_request(server, context, found)
        }
    }
}

async fn read_body(
    server: &ServerState,
    route: &Route,
    method: &Method,
    body: Incoming,
    guard: &RequestGuard,
    context: &RequestContext,
) -> Result<BufferedBody> {
    if route.body_limit == 0 && !body.is_end_stream() {
        let message = format!(
            "A {method} of this path takes no body; leave out `Content-Length` and `Transfer-Encoding`"
        );
        return Err(Error::refused(ErrorCode::InvalidRequest, message));
    }
    if !method.is_safe() {
        server.shares.budget.require_room(context.owner)?;
    }
    let reservation = server.shares.budget.open(context.owner);
    let deadline = guard.began() + server.app.config.http.request_time;
    let body = timeout_at(deadline, BufferedBody::read(body, route.body_limit, reservation)).await;
    let late = "The body of the request did not arrive in time; send the request again";
    let body = body.map_err(|_| Error::refused(ErrorCode::RequestTimeout, late))?;
    body.map_err(|error| match error {
        Error::Refused(mut refusal)
            if refusal.code == ErrorCode::PayloadTooLarge && route.path == "/v1/apply" =>
        {
            refusal.message = format!("{}{MORE_CUES}", refusal.message).into();
            refusal.into()
        }
        error => error,
    })
}

/// Reads a large body as JSON on another thread. One is read at a time, and callers take turns. `None` for a body that is not
/// large, or is a form.
async fn read_json(
    server: &ServerState,
    owner: Owner,
    route: &Route,
    bytes: &Bytes,
) -> Result<Option<std::result::Result<JsonText, JsonError>>> {
    if bytes.len() <= INLINE_JSON || route.access == Access::Page {
        return Ok(None);
    }
    let bytes = bytes.clone();
    let turn = server.shares.large_bodies.wait(owner).await?;
    run_blocking(move || {
        // Held until the end, also if the client disconnects.
        let _turn = turn;
        panics::catch("reading a body", || Ok(Some(json::read(&bytes))))
    })
    .await
}

fn method_not_allowed(allow: &str, request_id: &str) -> Result<Response> {
    let value = HeaderValue::from_str(allow).map_err(|error| {
        Error::fault_from("the Allow header cannot hold the methods of this path", error)
    })?;
    let message = format!("This path does not support the method of the request; use {allow}");
    let response =
        Response::error(Error::refused(ErrorCode::MethodNotAllowed, message), request_id, None);
    Ok(response.with(header::ALLOW, value))
}

fn too_many_headers() -> Error {
    let message = format!("The request has more than {MAX_HEADERS} headers; send fewer");
    Error::refused(ErrorCode::HeadersTooLarge, message)
}

fn invalid_api_key() -> Error {
    let message =
        "The API key is missing or invalid; send a valid one as `Authorization: Bearer KEY`";
    Error::refused(ErrorCode::InvalidApiKey, message)
}

/// The error in place of a response to a change, for which the caller has no room although its handler reserved it: two
/// changes of one account at the same instant can make a stored payload larger than it was. Without `Retry-After`.
fn without_room(error: Error) -> Error {
    match error {
        Error::Refused(refusal) => {
            let message = format!(
                "The request was carried out, but there is no room for its response: {}. Do not repeat it before you \
                 have read the present state",
                refusal.message
            );
            Error::Refused(Refusal { message: message.into(), retry_after: None, ..refusal })
        }
        error => error,
    }
}

/// Runs a handler. A panic in it becomes the error of this one request.
async fn catch_panic<T>(handler: impl Future<Output = Result<T>>) -> Result<T> {
    let mut handler = pin!(handler);
    std::future::poll_fn(|context| {
        panics::catch("a handler", || Ok(handler.as_mut().poll(context)))
            .unwrap_or_else(|error| Poll::Ready(Err(error)))
    })
    .await
}

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
    pub caller: Option<Caller>,
    /// The user has used 80 % of the monthly executions.
    pub near_quota: bool,
    /// HTTP/1.1 only: no further request can follow on the connection.
    pub must_close: bool,
    /// The handler has run.
    pub is_handled: bool,
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
            caller: None,
            near_quota: false,
            must_close: false,
            is_handled: false,
            owner: Owner::from_client(client_ip),
            set_cookie: None,
            reserved: None,
        }
    }

    /// The window of the client address.
    pub fn address_key(&self) -> RateKey {
        RateKey::Address(rate_limit_address(self.client_ip))
    }

    /// Counts the request in a window, unless there is no limit.
    pub fn count(&mut self, server: &ServerState, key: RateKey, limit: Option<u32>) {
        // The clock of a test moves the window of a program, which has a key.
        let is_of_program = matches!(key, RateKey::User(_));
        let now = if is_of_program { self.now } else { server.app.clock.now_moving() };
        self.rate_limit = match limit {
            Some(limit) => server.app.rates.lock().admit_below(key, limit, now),
            None => RateLimitStatus::unused(None, now),
        };
    }

    /// Takes back the count of this request for the client address, or the refusal.
    pub fn uncount_for_address(&mut self, server: &ServerState) {
        if self.rate_limit.refused_for.is_none() {
            server.app.rates.lock().return_unused(self.address_key());
        }
        self.rate_limit = address_status(server, self.client_ip);
    }

    pub fn check_rate_limit(&self) -> Result<()> {
        let Some(seconds) = self.rate_limit.refused_for else { return Ok(()) };
        let limit = limit_or_max(self.rate_limit.limit);
        // The limit of an operator's key is that of the plan.
        let can_lift_limit = self
            .caller
            .as_ref()
            .is_some_and(|caller| caller.is_operator && caller.credential.session_id().is_none());
        let remedy = if can_lift_limit { ", or start this server with --limits off" } else { "" };
        let message = format!(
            "The limit of {limit} requests per minute is exceeded; try again in {seconds} s{remedy}"
        );
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
        let Some(mut reserved) = reserved.filter(|reserved| is_done || reserved.bytes() >= bytes)
        else {
            return server.shares.budget.reserve(self.owner, bytes).map(Some);
        };
        reserved.resize(bytes)?;
        Ok(Some(reserved))
    }

    fn is_page(&self) -> bool {
        self.route.is_some_and(|route| route.access == Access::Page)
    }

    /// Renders an error as HTML for a page, and as JSON for everything else.
    pub fn error_response(&self, server: &ServerState, error: Error) -> Response {
        if self.is_page() {
            pages::error_response(error, &self.id)
        } else {
            Response::error(error, &self.id, server.app.config.docs_base())
        }
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

    /// Counts the finished request and writes its log line. Neither has the path or the query: these contain ids and, on
    /// some routes, tokens. `duration` is that from the end of the head to the response.
    pub fn record(
        &self,
        server: &ServerState,
        method: &Method,
        status: StatusCode,
        duration: Duration,
    ) {
        // `HEAD` counts as the `GET` that handles it.
        let (counted, route) =
            self.route.map_or((NO_ROUTE, NO_ROUTE), |route| (route.method.as_str(), route.path));
        server.app.requests.with([counted, route, status_class(status)]).observe_duration(duration);
        tracing::debug!(
            request_id = self.id,
            method = method_name(method),
            route,
            status = status.as_u16(),
            user_id = self.caller.as_ref().map(|caller| &*caller.user_id),
            duration_ms = milliseconds(duration),
            "request completed"
        );
    }
}

/// The status of a client without a key. Counts nothing.
fn address_status(server: &ServerState, address: IpAddr) -> RateLimitStatus {
    let key = RateKey::Address(rate_limit_address(address));
    server.app.rates.lock().status(&key, RATE_WITHOUT_KEY, server.app.clock.now_moving())
}

/// Returns `unknown` for a method that is not a standard one: a client can send any text as a method.
fn method_name(method: &Method) -> &str {
    let standard = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "CONNECT", "TRACE"];
    if standard.contains(&method.as_str()) { method.as_str() } else { "unknown" }
}

fn status_class(status: StatusCode) -> &'static str {
    ["1xx", "2xx", "3xx", "4xx", "5xx"]
        .get(usize::from(status.as_u16() / 100 - 1))
        .unwrap_or(&"5xx")
}
