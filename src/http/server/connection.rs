//! One connection, HTTP/1.1 or cleartext HTTP/2, with its time limits.
//!
//! hyper's `header_read_timeout` is off. It also runs between two requests, so one value would limit both the time to
//! read a head and the time to stay idle.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use hyper::Request;
use hyper::body::{Body, Buf, Bytes, Frame, Incoming, SizeHint};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::server::graceful::GracefulConnection;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::TcpStream;
use tokio::task::yield_now;
use tokio::time::{Instant, sleep_until, timeout};

use crate::http::limits::activity::{Activity, CloseReason, RequestGuard};
use crate::http::limits::memory::Reservation;
use crate::http::message::BodyStream;
use crate::http::middleware::{self, ServerState};
use crate::system::locks::Mutex;

/// Bytes of a request head, as in Node.js. hyper limits the number of headers to 100.
const MAX_HEAD_BYTES: usize = 16 << 10;
/// Concurrent requests on one HTTP/2 connection. RFC 9113 §6.5.2 recommends at least 100, and clients send that many
/// before they know the limit. Each takes its part of the memory budget.
const MAX_STREAMS: u32 = 100;
/// Unread bytes that a peer may send ahead on one HTTP/2 stream, and on one connection: the least that RFC 9113 §6.9.2
/// permits. Larger windows would speed up large bodies; these bound the memory of a connection outside the budget.
const WINDOW: u32 = 65_535;
/// Streams that a peer may end by errors of its own, which h2 answers with a reset each, until h2 closes the
/// connection.
const MAX_FAULTY_STREAMS: usize = 100;
/// A silent HTTP/2 peer is pinged after this time, and disconnected if it does not respond within the same time.
const PING_INTERVAL: Duration = Duration::from_secs(20);
/// Limits of the final read before a socket closes (see [`close`]). A client needs about one round trip to notice the
/// response, and can have several MB of its body in flight by then.
const CLOSE_DRAIN: Duration = Duration::from_secs(2);
const LINGER_BYTES: usize = 16 << 20;
const LINGER_PART: usize = 4 << 10;
/// The answer to an incomplete head, in the form of hyper's own to one that is not HTTP.
const HEAD_TIMEOUT: &[u8] =
    b"HTTP/1.1 408 Request Timeout\r\nconnection: close\r\ncontent-length: 0\r\n\r\n";

/// Serves one connection to its end and records what it does in `activity`.
pub async fn run(
    server: Arc<ServerState>,
    stream: TcpStream,
    peer: SocketAddr,
    activity: Activity,
) {
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(client_ip = %peer.ip(), error = %error, "cannot set TCP_NODELAY");
    }
    let stream = Arc::new(Mutex::new(stream));
    let socket = Socket { stream: Arc::clone(&stream), activity: activity.clone() };
    let service = service_fn(|request: Request<Incoming>| {
        let guard = activity.begin_request(request.version(), !request.body().is_end_stream());
        respond(Arc::clone(&server), peer, request, guard)
    });
    let builder = builder();
    let mut connection = Box::pin(builder.serve_connection(TokioIo::new(socket), service));
    let end = drive(connection.as_mut(), &server, &activity).await;
    if matches!(end, End::Closed(CloseReason::Idle)) {
        // Sends GOAWAY on HTTP/2: the peer knows that it may repeat a request that it has just sent.
        connection.as_mut().graceful_shutdown();
        drop(timeout(CLOSE_DRAIN, connection.as_mut()).await);
    }
    drop(connection);
    // The final read does not need the server's state.
    drop(server);
    let Some(stream) = Arc::into_inner(stream).map(Mutex::into_inner) else { return };
    match end {
        End::Closed(CloseReason::Head) => close(stream, HEAD_TIMEOUT, &activity).await,
        End::BadHead => close(stream, b"", &activity).await,
        End::Regular if activity.has_unread_body() => close(stream, b"", &activity).await,
        End::Regular | End::Closed(_) => {}
    }
}

/// Answers one request. The handler's future is boxed because its state is large, and of HTTP/2 a place for it would
/// remain until the response is written.
async fn respond(
    server: Arc<ServerState>,
    peer: SocketAddr,
    request: Request<Incoming>,
    mut guard: RequestGuard,
) -> Result<hyper::Response<ResponseBody>, h2::Error> {
    let handled = Box::pin(middleware::handle(&server, peer, request, &mut guard)).await;
    let handled = handled.ok_or(h2::Reason::REFUSED_STREAM)?;
    let limits = &server.app.config.http;
    // A stream may be silent for a keep-alive interval, which begins with a check of the key.
    let silence = if handled.stream.is_some() { limits.beat_interval } else { Duration::ZERO };
    guard.reply_begins(silence + limits.response_time);
    Ok(handled
        .response
        .map(|bytes| ResponseBody::new(bytes, handled.stream, guard, handled.memory)))
}

fn builder() -> auto::Builder<TokioExecutor> {
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new()).header_read_timeout(None).max_buf_size(MAX_HEAD_BYTES);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(MAX_STREAMS)
        .max_header_list_size(MAX_HEAD_BYTES as u32)
        .initial_stream_window_size(WINDOW)
        .initial_connection_window_size(WINDOW)
        .max_send_buf_size(RESPONSE_PART)
        .max_local_error_reset_streams(MAX_FAULTY_STREAMS)
        .keep_alive_interval(PING_INTERVAL)
        .keep_alive_timeout(PING_INTERVAL);
    builder
}

/// The end of a connection.
enum End {
    /// By the peer, or after the last response.
    Regular,
    /// After hyper's answer to a head that is not HTTP, or by a failure of the socket.
    BadHead,
    Closed(CloseReason),
}

/// Drives a connection until it ends, or until a time limit passes. Shuts it down gracefully when the server stops.
async fn drive<C: GracefulConnection>(
    mut connection: Pin<&mut C>,
    server: &ServerState,
    activity: &Activity,
) -> End {
    let limits = &server.app.config.http;
    // A limit that begins during a sleep ends after it.
    let shortest = limits.header_time.min(limits.idle_time).min(limits.response_time);
    let mut stopping = server.stopping.clone();
    let mut is_stopping = false;
    let end = |ended: Result<(), C::Error>| if ended.is_ok() { End::Regular } else { End::BadHead };
    loop {
        let latest = Instant::now() + shortest;
        let next_check = activity.close_at(limits).map_or(latest, |(at, _)| at.min(latest));
        tokio::select! {
            biased;
            ended = connection.as_mut() => return end(ended),
            _ = stopping.wait_for(|stopping| *stopping), if !is_stopping => {
                is_stopping = true;
                connection.as_mut().graceful_shutdown();
            }
            may_end = activity.evicted() => if may_end {
                return End::Closed(CloseReason::Evicted);
            },
            () = sleep_until(next_check) => {}
        }
        if activity.overdue(limits).is_none() {
            continue;
        }
        // On a busy machine, or after a stop of the process, this comes late. What has arrived in time counts.
        yield_now().await;
        tokio::select! {
            biased;
            ended = connection.as_mut() => return end(ended),
            () = std::future::ready(()) => {}
        }
        if let Some(reason) = activity.overdue(limits) {
            return End::Closed(reason);
        }
    }
}

/// Sends a last response, then discards the bytes that the peer still sends. Closing a socket with unread bytes resets
/// the connection, and the peer's kernel then discards the response that it has received. A full server does not wait.
async fn close(mut stream: TcpStream, response: &[u8], activity: &Activity) {
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
        io::Result::Ok(())
    };
    let closed = tokio::select! {
        closed = timeout(CLOSE_DRAIN, linger) => closed.ok(),
        _ = activity.evicted() => None,
    };
    if let Some(Err(error)) = closed {
        tracing::debug!(error = %error, "client disconnected before the end of the response");
    }
}

/// A socket that records its activity, and can be taken back from hyper.
struct Socket {
    stream: Arc<Mutex<TcpStream>>,
    activity: Activity,
}

impl AsyncRead for Socket {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut *self.stream.lock()).poll_read(context, buffer))?;
        self.activity.record_read(&buffer.filled()[before..]);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Socket {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut *self.stream.lock()).poll_write(context, bytes);
        self.activity.record_write(written.is_pending());
        written
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.stream.lock()).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.stream.lock()).poll_shutdown(context)
    }
}

/// Bytes of a response that hyper gets at a time. It takes the next ones only when it has written most of these, so
/// that the client must read for the response to progress.
pub const RESPONSE_PART: usize = 16 << 10;

/// A response body, which hyper takes in parts.
pub struct ResponseBody {
    rest: Bytes,
    /// In place of `rest`.
    stream: Option<BodyStream>,
    hold: Arc<Hold>,
}

/// A part of a body. HTTP/2 keeps parts until the peer's window permits them: each counts as long as it is kept.
pub struct ResponsePart {
    bytes: Bytes,
    hold: Arc<Hold>,
}

/// Dropped when the last part is written: the request then no longer runs, and its memory is free.
struct Hold {
    guard: RequestGuard,
    _memory: [Option<Reservation>; 2],
}

impl ResponseBody {
    /// `memory` is what the request and the response hold of the budget.
    pub fn new(
        rest: Bytes,
        stream: Option<BodyStream>,
        guard: RequestGuard,
        memory: [Option<Reservation>; 2],
    ) -> Self {
        Self { rest, stream, hold: Arc::new(Hold { guard, _memory: memory }) }
    }

    fn next_part(&mut self, context: &mut Context<'_>) -> Poll<Option<Bytes>> {
        let Some(stream) = &mut self.stream else {
            let length = self.rest.len().min(RESPONSE_PART);
            return Poll::Ready((length > 0).then(|| self.rest.split_to(length)));
        };
        // HTTP/2 asks only while the window of the peer permits a part.
        self.hold.guard.reply_moves();
        let part = ready!(stream.poll_part(context));
        if part.is_none() {
            // A future that has ended must not be polled again.
            self.stream = None;
        }
        Poll::Ready(part)
    }
}

impl Body for ResponseBody {
    type Data = ResponsePart;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<ResponsePart>, Infallible>>> {
        let Some(bytes) = ready!(self.next_part(context)) else { return Poll::Ready(None) };
        self.hold.guard.reply_moves();
        Poll::Ready(Some(Ok(Frame::data(ResponsePart { bytes, hold: Arc::clone(&self.hold) }))))
    }

    fn is_end_stream(&self) -> bool {
        self.stream.is_none() && self.rest.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        match &self.stream {
            None => SizeHint::with_exact(self.rest.len() as u64),
            Some(_) => SizeHint::new(),
        }
    }
}

impl Drop for ResponsePart {
    fn drop(&mut self) {
        self.hold.guard.reply_moves();
    }
}

impl Buf for ResponsePart {
    fn remaining(&self) -> usize {
        self.bytes.remaining()
    }

    fn chunk(&self) -> &[u8] {
        self.bytes.chunk()
    }

    fn advance(&mut self, count: usize) {
        self.bytes.advance(count);
    }
}
