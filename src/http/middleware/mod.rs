//! The steps that every request passes, in the order of contract §2.9: host, route, API key or session, rate limit, body,
//! handler.
//!
//! A request's future may be dropped at any point, for example when the client disconnects. This is safe: a handler
//! changes data only through a job on a thread of the store, and a submitted job always runs to its end.

pub(in crate::http) mod authentication;
pub(in crate::http) mod browser_guard;
mod context;
pub(in crate::http) mod session_cookie;

use std::net::{IpAddr, SocketAddr};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::Poll;

use hyper::body::{Body, Bytes, Incoming};
use hyper::header::{self, HeaderName, HeaderValue};
use hyper::http::request::Parts;
use hyper::{HeaderMap, Method, Version};
use jiff::SignedDuration;
use tokio::sync::watch;

use crate::app::App;
use crate::domain::account::sliding_window::SlidingWindows;
use crate::domain::account::user::Caller;
use crate::domain::api_error::{ErrorCode, Refusal};
use crate::domain::json::{self, JsonError, JsonText};
use crate::error::{Error, Result};
use crate::http::input::body;
use crate::http::input::body::BufferedBody;
use crate::http::limits::Shares;
use crate::http::limits::activity::RequestGuard;
use crate::http::limits::budget::{Owner, Reservation};
use crate::http::middleware::authentication::{authenticate, reached_near_quota};
use crate::http::middleware::browser_guard::{BrowserGuard, RequestSource, host_of};
use crate::http::middleware::context::{RequestContext, client_ip};
use crate::http::middleware::session_cookie::forwarded_host;
use crate::http::request::Request;
use crate::http::response::{BodyStream, Response};
use crate::http::router::{Access, Route, RouteMatch, match_route};
use crate::http::timeout::until;
use crate::locks::Mutex;
use crate::metrics::Stopwatch;
use crate::panics;

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

/// Requests per minute and address without a valid key, whatever the plans say (contract §2.7).
pub const RATE_WITHOUT_KEY: u32 = 60;

/// The window of a minute that a request counts in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RateKey {
    /// The programs of a user, by row key.
    User(i64),
    /// The sessions of a user: an open page takes nothing from the user's programs.
    Sessions(i64),
    /// An address (IPv6: a /64).
    Address(IpAddr),
}

pub struct ServerState {
    pub app: Arc<App>,
    pub table: &'static [Route],
    pub rates: Mutex<SlidingWindows<RateKey>>,
    pub browser_guard: BrowserGuard,
    pub shares: Arc<Shares>,
    /// Becomes `true` when the server starts to shut down.
    pub stopping: watch::Receiver<bool>,
}

impl ServerState {
    /// The state of a server of `table`. Requests may name `allowed_hosts` beside the names of this machine; `None` permits
    /// all.
    pub fn new(
        app: Arc<App>,
        table: &'static [Route],
        allowed_hosts: Option<Vec<String>>,
        stopping: watch::Receiver<bool>,
    ) -> Self {
        let rates = SlidingWindows::new(RATE_WITHOUT_KEY, SignedDuration::from_mins(1));
        Self {
            table,
            rates: Mutex::new(rates),
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
            let response = catch_panic(dispatch(server, peer, head, body, guard, &mut context)).await;
            (Some(of_head), response)
        }
        Err(error) => {
            context.must_close = true;
            (None, Err(error))
        }
    };
    let response = response.unwrap_or_else(|error| context.error_response(error));
    // No await before this: a response that is rendered and does not count yet would escape the bound.
    let is_done = !method.is_safe() && response.status.is_success();
    let (response, mut of_response) = match context.reserve(server, &response, is_done) {
        Ok(reservation) => (response, reservation),
        Err(error) => (context.error_response(if is_done { without_room(error) } else { error }), None),
    };
    if let Some(caller) = context.handled_for.take().filter(|_| !context.near_quota) {
        context.near_quota = reached_near_quota(server, &caller, &context).await;
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
    let exists = |access| server.has_routes_of(access);
    let matched = match_route(server.table, &head.method, head.uri.path(), exists);
    context.route = if let RouteMatch::Found(route, _) = &matched { Some(route) } else { None };
    let forwarded_host = forwarded_host(&server.app, peer.ip(), &head.headers);
    let source = RequestSource { host, forwarded_host, headers: &head.headers };
    let caller = find_caller(server, context, &source, peer.ip()).await?;
    let (route, params) = match matched {
        RouteMatch::Found(route, params) => (route, params),
        RouteMatch::WrongMethod(allow) => return method_not_allowed(&allow, &context.id),
        RouteMatch::NoPath => return Err(path_not_found()),
    };
    let is_poll = route.access == Access::DevicePoll;
    if !is_poll {
        context.check_rate_limit()?;
    }
    server.browser_guard.check_origin(route, &source)?;
    if route.access == Access::ApiKey && caller.is_none() {
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
        caller: caller.clone(),
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
    context.handled_for = caller;
    if is_poll && is_exempt.load(Ordering::Relaxed) {
        context.uncount_for_address(server);
    } else if is_poll {
        context.check_rate_limit()?;
    }
    response
}

/// Returns the caller of a request that needs or may have one, and counts the request. One to an unknown path counts too.
async fn find_caller(
    server: &ServerState,
    context: &mut RequestContext,
    source: &RequestSource<'_>,
    peer: IpAddr,
) -> Result<Option<Caller>> {
    match context.route.map(|route| route.access) {
        Some(access) if access.is_unmetered() => Ok(None),
        // Counts until it turns out to be exempt: bodies that never come must count.
        Some(Access::DevicePoll) => {
            context.count_for_address(server);
            Ok(None)
        }
        access => authenticate(server, context, source, peer, access).await,
    }
}

/// Returns the host that the request names. A request that names none or a forbidden one counts for the client address.
fn named_host<'a>(server: &ServerState, head: &'a Parts, context: &mut RequestContext) -> Result<&'a str> {
    let checked = host_of(head)
        .inspect_err(|_| context.must_close = true)
        .and_then(|host| server.browser_guard.check_host(host).map(|()| host));
    checked.map_err(|refusal| {
        context.count_for_address(server);
        refusal.into()
    })
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
        return Err(takes_no_body(method));
    }
    if !method.is_safe() {
        server.shares.budget.require_room(context.owner)?;
    }
    let reservation = server.shares.budget.open(context.owner);
    let deadline = guard.began() + server.app.config.http.request_time;
    let body = until(deadline, body::read(body, route.body_limit, reservation)).await;
    body.ok_or_else(body_timeout)?
}

/// Reads a large body as JSON on another thread than those of the connections. One is read at a time, and callers take
/// turns. `None` for a body that is not large, or is a form.
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
    let job = move || {
        // Held until the end, also if the client disconnects.
        let _turn = turn;
        panics::catch("reading a body", || Ok(Some(json::read(&bytes))))
    };
    let read = tokio::task::spawn_blocking(job).await;
    read.map_err(|error| Error::fault_from("a body could not be read on another thread", error))?
}

fn path_not_found() -> Error {
    Error::refused(ErrorCode::NotFound, "There is no endpoint at this path; check the path of the request")
}

fn method_not_allowed(allow: &str, request_id: &str) -> Result<Response> {
    let value = HeaderValue::from_str(allow)
        .map_err(|error| Error::fault_from("the Allow header cannot hold the methods of this path", error))?;
    let message = format!("This path does not support the method of the request; use {allow}");
    let response = Response::error(Error::refused(ErrorCode::MethodNotAllowed, message), request_id);
    Ok(response.with(header::ALLOW, value))
}

fn too_many_headers() -> Error {
    let message = format!("The request has more than {MAX_HEADERS} headers; send fewer");
    Error::refused(ErrorCode::HeadersTooLarge, message)
}

fn invalid_api_key() -> Error {
    let message = "The API key is missing or invalid; send a valid one as `Authorization: Bearer KEY`";
    Error::refused(ErrorCode::InvalidApiKey, message)
}

fn takes_no_body(method: &Method) -> Error {
    let message =
        format!("A {method} of this path takes no body; leave out `Content-Length` and `Transfer-Encoding`");
    Error::refused(ErrorCode::InvalidRequest, message)
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

fn body_timeout() -> Error {
    Error::refused(
        ErrorCode::RequestTimeout,
        "The body of the request did not arrive in time; send the request again",
    )
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
