//! One connection, HTTP/1.1 or cleartext HTTP/2, with its time limits.
//!
//! hyper's `header_read_timeout` is off. It also runs between two requests, so one value would limit both the time to
//! read a head and the time to stay idle. It also closes the connection without a response.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use hyper::body::{Body, Bytes, Frame, Incoming, SizeHint};
use hyper::header::{self, HeaderValue};
use hyper::service::service_fn;
use hyper::{Request, StatusCode};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::server::graceful::GracefulConnection;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep_until};

use crate::config::HttpLimits;
use crate::domain::api_error::{ErrorCode, Refusal};
use crate::http::limits::buffer_budget::BufferReservation;
use crate::http::middleware;
use crate::http::middleware::state::ServerState;
use crate::http::server::monitored_stream::{ConnectionState, MonitoredStream, RequestGuard, TimeoutReason};
use crate::http::timeout::within;

/// Bytes of a request head, as in Node.js. hyper limits the number of headers to 100.
const MAX_HEAD_BYTES: usize = 16 << 10;
/// Concurrent requests on one HTTP/2 connection. RFC 9113 §6.5.2 recommends at least 100.
const MAX_STREAMS: u32 = 128;
/// Unread bytes that a peer may send ahead on one HTTP/2 stream, and on one connection. Larger windows would speed up
/// large bodies; these bound the memory of a connection outside the budget for bodies.
const STREAM_WINDOW: u32 = 64 << 10;
const CONNECTION_WINDOW: u32 = 256 << 10;
/// A silent HTTP/2 peer is pinged after this time, and disconnected if it does not respond within the same time.
const PING_INTERVAL: Duration = Duration::from_secs(20);
/// Bytes of a response that hyper gets at a time. It takes the next ones only when it has written most of these, so that
/// the rest of the response counts in the memory budget as long as the client does not read it.
const RESPONSE_PART: usize = 16 << 10;
/// Limits of the final read before a socket closes (see [`close`]). A client needs about one round trip to notice the
/// response, and can have several MB of its body in flight by then.
const LINGER: Duration = Duration::from_secs(2);
const LINGER_BYTES: usize = 16 << 20;

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
    let service = service_fn(|request: Request<Incoming>| {
        let (server, mut guard) = (Arc::clone(&server), state.begin_request(request.version()));
        async move {
            let deadline = guard.began() + server.app.config.http.request_time;
            let handled = middleware::handle(&server, peer, request, deadline).await;
            guard.response_ready(handled.body_unread);
            let reservation = handled.reservation;
            Ok::<_, Infallible>(handled.response.map(|rest| TrackedBody {
                rest,
                guard,
                _reservation: reservation,
            }))
        }
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
    if timeout == Some(TimeoutReason::Head) {
        let response = to_http1(&invalid_head_response(&server, peer, StatusCode::REQUEST_TIMEOUT.as_u16()));
        close(stream, &response, &state).await;
    } else if body_unread && timeout.is_none() {
        close(stream, b"", &state).await;
    }
}

fn builder() -> auto::Builder<TokioExecutor> {
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new()).header_read_timeout(None).max_buf_size(MAX_HEAD_BYTES);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(MAX_STREAMS)
        .max_header_list_size(MAX_HEAD_BYTES as u32)
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
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
                (due, Some(reason)) if due <= Instant::now() => return Poll::Ready(Some(reason)),
                (due, _) => timer.as_mut().reset(due),
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
        let mut buffer = [0; 4096];
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
        tracing::trace!(error = %error, "client disconnected before the end of the response");
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
    let mut response = middleware::reject_invalid_head(server, peer, Refusal::new(code, message));
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

/// A response body. Its request counts as running, and its memory as used, until hyper has taken all of it.
struct TrackedBody {
    rest: Bytes,
    guard: RequestGuard,
    _reservation: Option<BufferReservation>,
}

impl Body for TrackedBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if self.rest.is_empty() {
            return Poll::Ready(None);
        }
        let length = self.rest.len().min(RESPONSE_PART);
        let part = self.rest.split_to(length);
        self.guard.part_taken();
        Poll::Ready(Some(Ok(Frame::data(part))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.rest.len() as u64)
    }
}
