//! The steps that every request passes, in the order of contract §2.9: host, route, API key or session, rate limit, body,
//! handler.
//!
//! A request's future may be dropped at any point, for example when the client disconnects. This is safe: a handler
//! changes data only through a job on a thread of the store, and a submitted job always runs to its end.

mod access_log;
pub(in crate::http) mod admission;
pub(in crate::http) mod authentication;
pub(in crate::http) mod browser_guard;
mod common_headers;
mod context;
pub(in crate::http) mod rate_limiter;
pub(in crate::http) mod session_cookie;
pub(in crate::http) mod state;

use std::net::{IpAddr, SocketAddr};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::Poll;
use std::time::Duration;

use hyper::body::{Body, Bytes, Incoming};
use hyper::header::{self, HeaderValue};
use hyper::http::request::Parts;
use hyper::{Method, Version};
use tokio::time::Instant;

use crate::domain::account::user::Caller;
use crate::domain::api_error::{ErrorCode, Refusal};
use crate::domain::json::{self, JsonError, JsonText};
use crate::error::{Error, Result};
use crate::http::input::body;
use crate::http::input::body::BufferedBody;
use crate::http::limits::body_wait::BodyWaits;
use crate::http::limits::buffer_budget::BufferReservation;
use crate::http::limits::request_share::RequestShare;
use crate::http::middleware::authentication::{authenticate, reached_near_quota};
use crate::http::middleware::browser_guard::{RequestSource, host_of};
use crate::http::middleware::common_headers::with_common_headers;
use crate::http::middleware::context::{RequestContext, client_ip, new_request_id, request_id};
use crate::http::middleware::session_cookie::forwarded_host;
use crate::http::middleware::state::ServerState;
use crate::http::request::Request;
use crate::http::response::{BodyStream, Response};
use crate::http::router::{Access, Route, RouteMatch, match_route};
use crate::http::timeout::until;
use crate::metrics::Stopwatch;
use crate::panics;

/// Bytes of a body that is read as JSON on the thread of its connection. That takes less than a millisecond; passing a
/// larger body to another thread costs little beside reading it.
const INLINE_JSON: usize = 64 << 10;

/// A response, and the facts about it that the connection needs.
pub struct Handled {
    pub response: hyper::Response<Bytes>,
    /// In place of the body of the response.
    pub stream: Option<BodyStream>,
    pub body_unread: bool,
    /// To be held until the response is written.
    pub reservation: Option<BufferReservation>,
}

/// Turns a request into a response. Errors and panics become responses too. The body must arrive before `deadline`.
pub async fn handle(
    server: &ServerState,
    peer: SocketAddr,
    request: hyper::Request<Incoming>,
    deadline: Instant,
) -> Handled {
    let stopwatch = Stopwatch::start();
    let (head, body) = request.into_parts();
    let client_ip = client_ip(server, peer, &head.headers);
    let mut context =
        RequestContext::new(server, request_id(&head.headers), client_ip, !body.is_end_stream());
    let (method, version) = (head.method.clone(), head.version);
    let response = match catch_panic(dispatch(server, peer, head, body, deadline, &mut context)).await {
        Ok(response) => response,
        Err(error) => context.error_response(error),
    };
    // No await before this: a response that is rendered and does not count yet would escape the bound.
    let is_done = !method.is_safe() && response.status.is_success();
    let (response, mut reservation) = match context.reserve(server, &response, is_done) {
        Ok(reservation) => (response, reservation),
        Err(error) => (context.error_response(if is_done { without_room(error) } else { error }), None),
    };
    if let Some(caller) = context.handled_for.take().filter(|_| !context.near_quota) {
        context.near_quota = reached_near_quota(server, &caller, &context).await;
    }
    let (mut response, stream) = with_common_headers(response, &context);
    // A `HEAD` gets no part of a stream.
    let stream = stream.filter(|_| method != Method::HEAD);
    if context.must_close && version < Version::HTTP_2 {
        response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    if method == Method::HEAD {
        response.body_mut().clear();
        reservation = None;
    }
    context.record(server, Some(&method), response.status(), stopwatch.elapsed());
    Handled { response, stream, body_unread: context.body_unread, reservation }
}

/// Renders the response to a request that is not looked at: its head is malformed, too large or too slow, or it finds no
/// memory.
pub fn reject_unread(server: &ServerState, peer: SocketAddr, error: Error) -> hyper::Response<Bytes> {
    let mut context = RequestContext::new(server, new_request_id(), peer.ip(), false);
    context.count_for_address(server);
    let (response, _) = with_common_headers(Response::error(error, &context.id), &context);
    context.record(server, None, response.status(), Duration::ZERO);
    response
}

/// Runs the steps up to the handler. `context` keeps the results of the steps that ran, also when a later one fails.
async fn dispatch(
    server: &ServerState,
    peer: SocketAddr,
    head: Parts,
    body: Incoming,
    deadline: Instant,
    context: &mut RequestContext,
) -> Result<Response> {
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
    context.must_close = context.body_unread;
    let body = read_body(server, route, &head, body, deadline, context).await?;
    (context.body_unread, context.must_close) = (false, false);
    let is_exempt = Arc::new(AtomicBool::new(false));
    let share = RequestShare::new(&server.turns, &server.buffers, context.owner);
    let json = read_json(&share, route, &body.bytes).await?;
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
        long_polls: Arc::clone(&server.long_polls),
        caller: caller.clone(),
        rate_limit: context.rate_limit,
        is_exempt: Arc::clone(&is_exempt),
        params,
        body,
        share: share.clone(),
        json: json.map_or_else(OnceLock::new, OnceLock::from),
    };
    let response = (route.handler)(request).await;
    (context.handled_for, context.share) = (caller, Some(share));
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
    head: &Parts,
    body: Incoming,
    deadline: Instant,
    context: &RequestContext,
) -> Result<BufferedBody> {
    let method = &head.method;
    let _waits = head.extensions.get::<BodyWaits>().map(BodyWaits::begin);
    let _poll = match route.access {
        Access::DevicePoll => Some(server.poll_bodies.admit(context.client_ip)?),
        _ => None,
    };
    if route.body_limit == 0 && !body.is_end_stream() {
        return Err(takes_no_body(method));
    }
    if !method.is_safe() {
        server.buffers.require_room(context.owner)?;
    }
    let reservation = server.buffers.open(context.owner);
    let body = until(deadline, body::read(body, route.body_limit, reservation)).await;
    body.ok_or_else(body_timeout)?
}

/// Reads a large body as JSON on another thread than those of the connections. One is read at a time, and callers take
/// turns. `None` for a body that is not large, or is a form.
async fn read_json(
    share: &RequestShare,
    route: &Route,
    bytes: &Bytes,
) -> Result<Option<std::result::Result<JsonText, JsonError>>> {
    if bytes.len() <= INLINE_JSON || route.access == Access::Page {
        return Ok(None);
    }
    let bytes = bytes.clone();
    let turn = share.large_body_turn().await?;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_panic_is_caught_with_its_message() {
        let number = 7;
        let caught = catch_panic(async {
            if number == 7 {
                panic!("seven: {number}")
            }
            Ok(())
        })
        .await;
        assert_eq!(caught.unwrap_err().to_string(), "a handler panicked: seven: 7");
    }
}
