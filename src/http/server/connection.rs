//! One connection from its first byte to its last: HTTP/1.1 or cleartext HTTP/2, and the times that end it.
//!
//! hyper's own `header_read_timeout` is off: it runs between two requests too, so that it would be one time for two
//! things (how long a head may take, how long a connection may idle), and it ends without an answer.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use http_body_util::Full;
use hyper::body::{Body, Bytes, Frame, Incoming, SizeHint};
use hyper::header::{self, HeaderValue};
use hyper::service::service_fn;
use hyper::{Request, StatusCode};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::server::graceful::GracefulConnection;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep_until, timeout, timeout_at};

use crate::config::HttpLimits;
use crate::domain::api_error::{ErrorCode, Refusal};
use crate::http::middleware;
use crate::http::server::ServerState;
use crate::http::server::monitored_stream::{ConnectionState, MonitoredStream, RequestGuard, TimeoutReason};

/// Most bytes of a head; the most headers are 100, hyper's default.
const HEAD_LIMIT: usize = 16 << 10;
/// Requests at once on one HTTP/2 connection.
const STREAMS: u32 = 128;
/// Bytes of bodies that one HTTP/2 stream, and one connection, may send ahead of our reading.
const STREAM_WINDOW: u32 = 64 << 10;
const CONNECTION_WINDOW: u32 = 256 << 10;
/// A peer on HTTP/2 that sent nothing for this long is pinged, and given up when it does not answer for as long.
const PING: Duration = Duration::from_secs(20);
/// How long what a peer still sends is thrown away before the socket closes, and how much of it.
const LINGER: Duration = Duration::from_secs(2);
const LINGER_BYTES: usize = 16 << 20;

/// What `future` yields, or nothing if it takes longer than `limit`.
pub async fn within<F: Future>(limit: Duration, future: F) -> Option<F::Output> {
    timeout(limit, future).await.ok()
}

/// What `future` yields, or nothing if it has not by then.
pub async fn until<F: Future>(deadline: Instant, future: F) -> Option<F::Output> {
    timeout_at(deadline, future).await.ok()
}

/// Serves one connection to its end; what it is doing is told to `activity`.
pub async fn run(server: Arc<ServerState>, stream: TcpStream, peer: SocketAddr, activity: ConnectionState) {
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%peer, %error, "TCP_NODELAY could not be set");
    }
    let own_answer = {
        let server = Arc::clone(&server);
        move |status| rendered(&without_request(&server, peer, status))
    };
    let socket = MonitoredStream::new(stream, activity.clone(), Box::new(own_answer));
    let service = service_fn(|request: Request<Incoming>| {
        let (server, mut underway) = (Arc::clone(&server), activity.request(request.version()));
        async move {
            let deadline = underway.began() + server.app.config.http.request_time;
            let answered = middleware::answer(&server, peer, request, deadline).await;
            underway.reply_ready(answered.unread);
            Ok::<_, Infallible>(
                answered.response.map(|body| TrackedBody { body: Full::new(body), _underway: underway }),
            )
        }
    });
    let builder = builder();
    let mut connection = Box::pin(builder.serve_connection(TokioIo::new(socket), service));
    let overdue = watch(connection.as_mut(), &server, &activity).await;
    if overdue == Some(TimeoutReason::Idle) {
        // A peer on HTTP/2 is told; what it had just sent it may then send again elsewhere.
        connection.as_mut().graceful_shutdown();
        within(LINGER, connection.as_mut()).await;
    }
    drop(connection);
    let (stream, unread) = activity.take_back();
    let Some(stream) = stream else { return };
    if overdue == Some(TimeoutReason::Head) {
        let answer = rendered(&without_request(&server, peer, StatusCode::REQUEST_TIMEOUT.as_u16()));
        close(stream, &answer).await;
    } else if unread && overdue.is_none() {
        close(stream, b"").await;
    }
}

fn builder() -> auto::Builder<TokioExecutor> {
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new()).header_read_timeout(None).max_buf_size(HEAD_LIMIT);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(STREAMS)
        .max_header_list_size(HEAD_LIMIT as u32)
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .keep_alive_interval(PING)
        .keep_alive_timeout(PING);
    builder
}

/// Drives a connection until it ends by itself, gracefully once the server stops, or until it is overdue.
async fn watch<C: GracefulConnection>(
    mut connection: Pin<&mut C>,
    server: &ServerState,
    activity: &ConnectionState,
) -> Option<TimeoutReason> {
    let mut stopping = server.stopping.clone();
    let mut stopped = false;
    loop {
        tokio::select! {
            biased;
            overdue = drive(connection.as_mut(), activity, &server.app.config.http) => return overdue,
            _ = stopping.wait_for(|stopping| *stopping), if !stopped => {
                stopped = true;
                connection.as_mut().graceful_shutdown();
            }
        }
    }
}

/// Polls a connection, and after each poll looks whether its timer must ring earlier than it is set to.
async fn drive<C: GracefulConnection>(
    mut connection: Pin<&mut C>,
    activity: &ConnectionState,
    config: &HttpLimits,
) -> Option<TimeoutReason> {
    let mut timer = Box::pin(sleep_until(activity.next_check(config).0));
    std::future::poll_fn(|context| {
        activity.watched_by(context.waker());
        // How it ended is no news: what can be answered was, and a peer that broke off is not our fault.
        if connection.as_mut().poll(context).is_ready() {
            return Poll::Ready(None);
        }
        loop {
            let (due, _) = activity.next_check(config);
            if due < timer.deadline() {
                timer.as_mut().reset(due);
            }
            ready!(timer.as_mut().poll(context));
            match activity.next_check(config) {
                (due, Some(overdue)) if due <= Instant::now() => return Poll::Ready(Some(overdue)),
                (due, _) => timer.as_mut().reset(due),
            }
        }
    })
    .await
}

/// Sends a last answer, then reads what the peer is still sending: a socket that is closed with bytes unread makes
/// the peer's kernel throw away the answer that it has received.
async fn close(mut stream: TcpStream, answer: &[u8]) {
    let farewell = async {
        stream.write_all(answer).await?;
        stream.shutdown().await?;
        let mut waste = [0; 4096];
        let mut left = LINGER_BYTES;
        while left > 0 {
            match stream.read(&mut waste).await? {
                0 => break,
                read => left = left.saturating_sub(read),
            }
        }
        std::io::Result::Ok(())
    };
    if let Some(Err(error)) = within(LINGER, farewell).await {
        tracing::trace!(%error, "the peer did not wait for the end");
    }
}

fn without_request(server: &ServerState, peer: SocketAddr, status: u16) -> hyper::Response<Bytes> {
    let (code, message) = match status {
        408 => (ErrorCode::RequestTimeout, "The request's head did not come in time"),
        414 => (ErrorCode::UriTooLong, "The address is too long"),
        431 => (ErrorCode::HeadersTooLarge, "The request's headers are too large or too many"),
        _ => (ErrorCode::BadRequest, "This is no valid HTTP request"),
    };
    let mut response = middleware::answer_without_request(server, peer, Refusal::new(code, message));
    response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    response
}

/// A response as HTTP/1.1 writes it.
fn rendered(response: &hyper::Response<Bytes>) -> Vec<u8> {
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

/// A reply's body; its request is under way until hyper has taken it.
struct TrackedBody {
    body: Full<Bytes>,
    _underway: RequestGuard,
}

impl Body for TrackedBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
