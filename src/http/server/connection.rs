//! One connection, HTTP/1.1 or cleartext HTTP/2, with its time limits.
//!
//! hyper's `header_read_timeout` is off. It also runs between two requests, so one value would limit both the time to
//! read a head and the time to stay idle. It also closes the connection without a response.

use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Poll, ready};
use std::time::Duration;

use hyper::body::{Bytes, Incoming};
use hyper::header::{self, HeaderValue};
use hyper::service::service_fn;
use hyper::{Request, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::server::graceful::GracefulConnection;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep_until};

use crate::config::HttpLimits;
use crate::domain::api_error::ErrorCode;
use crate::error::Error;
use crate::http::limits::buffer_budget::caller_busy;
use crate::http::middleware;
use crate::http::middleware::Handled;
use crate::http::middleware::admission::{Admission, Denial, admit};
use crate::http::middleware::state::ServerState;
use crate::http::server::connection_state::{ConnectionState, RequestGuard, TimeoutReason};
use crate::http::server::monitored_stream::MonitoredStream;
use crate::http::server::response_body::{RESPONSE_PART, ResponseBody};
use crate::http::server::stream_executor::StreamExecutor;
use crate::http::timeout::within;

/// Bytes of a request head, as in Node.js. hyper limits the number of headers to 100.
const MAX_HEAD_BYTES: usize = 16 << 10;
/// Concurrent requests on one HTTP/2 connection. RFC 9113 §6.5.2 recommends at least 100, and clients send that many before
/// they know the limit. Each takes its part of the memory budget.
const MAX_STREAMS: u32 = 100;
/// Unread bytes that a peer may send ahead on one HTTP/2 stream, and on one connection: the least that RFC 9113 §6.9.2
/// permits. Larger windows would speed up large bodies; these bound the memory of a connection outside the budget.
const STREAM_WINDOW: u32 = 65_535;
const CONNECTION_WINDOW: u32 = 65_535;
/// Streams that a peer may end by errors of its own, which h2 answers with a reset each, until h2 closes the connection.
const MAX_FAULTY_STREAMS: usize = 100;
/// A silent HTTP/2 peer is pinged after this time, and disconnected if it does not respond within the same time.
const PING_INTERVAL: Duration = Duration::from_secs(20);
/// Limits of the final read before a socket closes (see [`close`]). A client needs about one round trip to notice the
/// response, and can have several MB of its body in flight by then.
const LINGER: Duration = Duration::from_secs(2);
const LINGER_BYTES: usize = 16 << 20;
const LINGER_PART: usize = 4 << 10;
/// The only frames of an HTTP/2 connection that finds no memory: SETTINGS, and GOAWAY with the code ENHANCE_YOUR_CALM.
const HTTP2_REFUSAL: &[u8] = b"\0\0\0\x04\0\0\0\0\0\0\0\x08\x07\0\0\0\0\0\0\0\0\0\0\0\0\x0b";

/// Serves one connection to its end and keeps `state` up to date.
pub async fn run(server: Arc<ServerState>, stream: TcpStream, peer: SocketAddr, state: ConnectionState) {
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(client_ip = %peer.ip(), error = %error, "cannot set TCP_NODELAY");
    }
    let render_error = {
        let server = Arc::clone(&server);
        move |status| to_http1(&invalid_head_response(&server, peer, status))
    };
    let socket = MonitoredStream::new(stream, state.clone(), Box::new(render_error));
    let service = service_fn(|mut request: Request<Incoming>| {
        request.extensions_mut().insert(state.body_waits());
        let guard = state.begin_request(request.version());
        // A request that is not admitted is dropped here: the headers of many would take much memory.
        let admitted = admit(&server, peer, &request).map(|admission| (admission, request));
        respond(Arc::clone(&server), peer, admitted, guard)
    });
    let builder = builder();
    let mut connection = Box::pin(builder.serve_connection(TokioIo::new(socket), service));
    let timeout = watch(connection.as_mut(), &server, &state).await;
    if timeout == Some(TimeoutReason::Idle) {
        // Sends GOAWAY on HTTP/2: the peer knows that it may repeat a request that it has just sent.
        connection.as_mut().graceful_shutdown();
        within(LINGER, connection.as_mut()).await;
    }
    drop(connection);
    let (stream, body_unread) = state.take_stream();
    let Some(stream) = stream else { return };
    let last_response = match timeout {
        Some(TimeoutReason::Head) => {
            to_http1(&invalid_head_response(&server, peer, StatusCode::REQUEST_TIMEOUT.as_u16()))
        }
        Some(TimeoutReason::NoMemory) if state.is_http2() => HTTP2_REFUSAL.to_vec(),
        Some(TimeoutReason::NoMemory) => to_http1(&rejection(&server, peer, caller_busy())),
        None if body_unread => Vec::new(),
        _ => return,
    };
    // Drops the server's state, of which the final read needs nothing.
    drop(server);
    close(stream, &last_response, &state).await;
}

/// Answers one request. Boxed, because the state of a handler is large, and of HTTP/2 a place for it would remain until the
/// response is written.
async fn respond(
    server: Arc<ServerState>,
    peer: SocketAddr,
    admitted: Result<(Admission, Request<Incoming>), Denial>,
    mut guard: RequestGuard,
) -> Result<hyper::Response<ResponseBody>, h2::Error> {
    let (handled, stream) = match admitted {
        Ok((Admission { stream, head }, request)) => {
            let deadline = guard.began() + server.app.config.http.request_time;
            let handled = Box::pin(middleware::handle(&server, peer, request, deadline)).await;
            drop(head);
            (handled, stream)
        }
        Err(Denial::Reset) => return Err(h2::Reason::REFUSED_STREAM.into()),
        Err(Denial::Respond { error, is_http1, stream }) => {
            let mut response = rejection(&server, peer, error);
            if !is_http1 {
                response.headers_mut().remove(header::CONNECTION);
            }
            (Handled { response, stream: None, body_unread: is_http1, reservation: None }, stream)
        }
    };
    let memory = [stream, handled.reservation];
    Ok(match handled.stream {
        None => {
            guard.response_ready(handled.body_unread);
            handled.response.map(|bytes| ResponseBody::new(bytes, guard, memory))
        }
        Some(parts) => {
            guard.stream_begins(handled.body_unread);
            handled.response.map(|_| ResponseBody::stream(parts, guard, memory))
        }
    })
}

fn builder() -> auto::Builder<StreamExecutor> {
    let mut builder = auto::Builder::new(StreamExecutor);
    builder.http1().timer(TokioTimer::new()).header_read_timeout(None).max_buf_size(MAX_HEAD_BYTES);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(MAX_STREAMS)
        .max_header_list_size(MAX_HEAD_BYTES as u32)
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_send_buf_size(RESPONSE_PART)
        .max_local_error_reset_streams(MAX_FAULTY_STREAMS)
        .keep_alive_interval(PING_INTERVAL)
        .keep_alive_timeout(PING_INTERVAL);
    builder
}

/// Drives a connection until it ends, or until a time limit passes. Shuts it down gracefully when the server stops.
async fn watch<C: GracefulConnection>(
    mut connection: Pin<&mut C>,
    server: &ServerState,
    state: &ConnectionState,
) -> Option<TimeoutReason> {
    let mut stopping = server.stopping.clone();
    let mut is_stopping = false;
    loop {
        tokio::select! {
            biased;
            timeout = drive(connection.as_mut(), state, &server.app.config.http) => return timeout,
            _ = stopping.wait_for(|stopping| *stopping), if !is_stopping => {
                is_stopping = true;
                connection.as_mut().graceful_shutdown();
            }
        }
    }
}

/// Polls a connection, and moves the timer forward if a poll brought an earlier time limit.
async fn drive<C: GracefulConnection>(
    mut connection: Pin<&mut C>,
    state: &ConnectionState,
    config: &HttpLimits,
) -> Option<TimeoutReason> {
    let mut timer = Box::pin(sleep_until(state.next_check(config).0));
    std::future::poll_fn(|context| {
        state.set_watcher(context.waker());
        // The result does not matter: every readable request has its response, and a disconnect is the peer's choice.
        if connection.as_mut().poll(context).is_ready() {
            return Poll::Ready(None);
        }
        loop {
            let (due, _) = state.next_check(config);
            if due < timer.deadline() {
                timer.as_mut().reset(due);
            }
            ready!(timer.as_mut().poll(context));
            match state.next_check(config) {
                (due, Some(reason)) if due <= Instant::now() => {
                    // A stream of HTTP/2 ends alone; the others of the connection go on.
                    if reason != TimeoutReason::Stuck || !state.reset_stuck_streams(config) {
                        return Poll::Ready(Some(reason));
                    }
                }
                (due, _) => timer.as_mut().reset(due),
            }
            if state.waits_for_memory() && connection.as_mut().poll(context).is_ready() {
                return Poll::Ready(None);
            }
        }
    })
    .await
}

/// Sends a last response, then discards the bytes that the peer still sends. Closing a socket with unread bytes resets
/// the connection, and the peer's kernel then discards the response that it has received. A full server does not wait.
async fn close(mut stream: TcpStream, response: &[u8], state: &ConnectionState) {
    let linger = async {
        stream.write_all(response).await?;
        stream.shutdown().await?;
        let mut buffer = vec![0; LINGER_PART];
        let mut left = LINGER_BYTES;
        while left > 0 {
            match stream.read(&mut buffer).await? {
                0 => break,
                read => left = left.saturating_sub(read),
            }
        }
        std::io::Result::Ok(())
    };
    let closed = tokio::select! {
        closed = within(LINGER, linger) => closed,
        () = state.evicted() => None,
    };
    if let Some(Err(error)) = closed {
        tracing::debug!(error = %error, "client disconnected before the end of the response");
    }
}

fn invalid_head_response(server: &ServerState, peer: SocketAddr, status: u16) -> hyper::Response<Bytes> {
    let (code, message) = match status {
        408 => (
            ErrorCode::RequestTimeout,
            "The head of the request did not arrive in time; send the request again",
        ),
        414 => (ErrorCode::UriTooLong, "The URL of the request is too long; shorten it"),
        431 => (
            ErrorCode::HeadersTooLarge,
            "The request has too many or too large headers; send fewer or shorter ones",
        ),
        _ => (ErrorCode::BadRequest, "The request is not valid HTTP; check the request line and the headers"),
    };
    rejection(server, peer, Error::refused(code, message))
}

/// A response that ends its HTTP/1.1 connection.
fn rejection(server: &ServerState, peer: SocketAddr, error: Error) -> hyper::Response<Bytes> {
    let mut response = middleware::reject_unread(server, peer, error);
    response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    response
}

/// Serializes a response as HTTP/1.1.
fn to_http1(response: &hyper::Response<Bytes>) -> Vec<u8> {
    let mut bytes = format!("HTTP/1.1 {}\r\n", response.status()).into_bytes();
    for (name, value) in response.headers() {
        for part in [name.as_str().as_bytes(), b": ", value.as_bytes(), b"\r\n"] {
            bytes.extend_from_slice(part);
        }
    }
    bytes.extend_from_slice(b"\r\n");
    bytes.extend_from_slice(response.body());
    bytes
}
