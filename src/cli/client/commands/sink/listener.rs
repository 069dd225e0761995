//! The HTTP server of a sink.

use std::convert::Infallible;
use std::future::pending;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::{BodyExt as _, Full, LengthLimitError, Limited};
use hyper::body::{Body as _, Bytes, Incoming};
use hyper::header::{CONNECTION, CONTENT_TYPE, HeaderValue, RETRY_AFTER};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::{GracefulConnection, GracefulShutdown};
use thiserror::Error as ThisError;
use tokio::net::{TcpListener, TcpStream};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{Semaphore, mpsc, watch};
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use crate::cli::client::commands::sink::delivery::Delivery;
use crate::cli::client::commands::sink::receiver::{End, Receiver};
use crate::cli::client::commands::sink::script::Step;
use crate::cli::error::CliError;

/// A payload has at most 1 MiB of compact UTF-8. Sending non-ASCII as \uXXXX makes it up to three times larger.
const MAX_BODY: usize = 8 << 20;
/// MiB of all bodies that are read or printed at a time: eight of the largest.
const MAX_BUFFERED: usize = 64;
/// A delivery has up to 32 headers of the user with 4 KiB each.
const MAX_HEAD: usize = 192 << 10;
/// More than one server has deliveries in progress.
const MAX_CONNECTIONS: usize = 256;
/// Time for the head of a request, and between two of them.
const HEAD_TIME: Duration = Duration::from_secs(60);
/// Time for a body. A delivery has 30 seconds in all.
const BODY_TIME: Duration = Duration::from_secs(30);
/// The longest time without an answer: no sender waits so long.
const SILENCE: Duration = Duration::from_secs(600);
/// Before the next try if the system has no file descriptor for a connection.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// Time for the last answers at the end.
const LAST_ANSWERS: Duration = Duration::from_secs(1);

/// The connection ends without an answer.
#[derive(Debug, ThisError)]
#[error("no answer")]
struct NoAnswer;

type Answer = Response<Full<Bytes>>;

/// The state that all connections share.
struct Shared {
    receiver: Arc<Receiver>,
    buffered: Semaphore,
    /// Becomes true when the sink ends.
    stopping: watch::Receiver<bool>,
}

/// Listens on an address.
///
/// # Errors
/// If the address is not free.
pub async fn bind(address: SocketAddr) -> Result<(TcpListener, SocketAddr), CliError> {
    let bound = match TcpListener::bind(address).await {
        Ok(listener) => listener.local_addr().map(|address| (listener, address)),
        Err(error) => Err(error),
    };
    bound.map_err(|error| {
        let way = "give another --listen, such as 127.0.0.1:0 for a free port";
        CliError::Failed(format!("cannot listen on {address}: {error}; {way}"))
    })
}

/// Receives until a signal, or until the receiver ends it.
///
/// # Errors
/// That of the receiver.
pub async fn serve(listener: TcpListener, receiver: Arc<Receiver>, mut ends: mpsc::Receiver<End>) -> End {
    let handle =
        |kind| signal(kind).map_err(|error| CliError::Failed(format!("cannot listen for signals: {error}")));
    let (mut interrupt, mut terminate) = (handle(SignalKind::interrupt())?, handle(SignalKind::terminate())?);
    let (stop, stopping) = watch::channel(false);
    let shared = Arc::new(Shared { receiver, buffered: Semaphore::new(MAX_BUFFERED), stopping });
    let connections = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    let graceful = GracefulShutdown::new();
    let end = loop {
        let accepted = async {
            // Never closed, so there is always a permit in the end.
            let permit = Arc::clone(&connections).acquire_owned().await;
            (listener.accept().await, permit)
        };
        let (accepted, permit) = tokio::select! {
            biased;
            end = ends.recv() => break end.unwrap_or(Ok(())),
            _ = interrupt.recv() => break Ok(()),
            _ = terminate.recv() => break Ok(()),
            accepted = accepted => accepted,
        };
        let Ok((stream, _)) = accepted else {
            pause(ACCEPT_PAUSE).await;
            continue;
        };
        let connection = graceful.watch(connect(stream, Arc::clone(&shared)));
        tokio::spawn(async move {
            // However the connection ends, that is the sender's choice.
            drop(connection.await);
            drop(permit);
        });
    };
    drop(listener);
    stop.send_replace(true);
    // A connection that takes longer is cut off.
    drop(timeout(LAST_ANSWERS, graceful.shutdown()).await);
    end
}

fn connect(stream: TcpStream, shared: Arc<Shared>) -> impl GracefulConnection + Send + 'static {
    let service = service_fn(move |request| answer(request, Arc::clone(&shared)));
    http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIME)
        .max_buf_size(MAX_HEAD)
        .serve_connection(TokioIo::new(stream), service)
}

async fn answer(request: Request<Incoming>, shared: Arc<Shared>) -> Result<Answer, NoAnswer> {
    let (head, body) = request.into_parts();
    let wanted = body.size_hint().upper().unwrap_or(MAX_BODY as u64);
    if wanted > MAX_BODY as u64 {
        return Ok(refusal(&shared, StatusCode::PAYLOAD_TOO_LARGE, "its body has more than 8 MiB"));
    }
    let mebibytes = u32::try_from(wanted.div_ceil(1 << 20)).unwrap_or(u32::MAX);
    let memory = shared.buffered.acquire_many(mebibytes).await.map_err(|_| NoAnswer)?;
    let body = match timeout(BODY_TIME, Limited::new(body, MAX_BODY).collect()).await {
        Ok(Ok(body)) => body.to_bytes(),
        Ok(Err(error)) if error.is::<LengthLimitError>() => {
            return Ok(refusal(&shared, StatusCode::PAYLOAD_TOO_LARGE, "its body has more than 8 MiB"));
        }
        Ok(Err(_)) => return Err(NoAnswer),
        Err(_) => return Ok(refusal(&shared, StatusCode::REQUEST_TIMEOUT, "its body took too long")),
    };
    let text = |value: &HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
    let delivery = Delivery {
        received_at: shared.receiver.context.client.clock().now(),
        method: head.method.to_string(),
        target: head.uri.to_string(),
        headers: head.headers.iter().map(|(name, value)| (name.to_string(), text(value))).collect(),
        body,
    };
    let receiver = Arc::clone(&shared.receiver);
    // Runs to its end also if the sender gives up meanwhile.
    let taken = spawn_blocking(move || receiver.receive(&delivery).map(|step| (step, Finished(receiver))));
    let (step, _finished) = taken.await.ok().flatten().ok_or(NoAnswer)?;
    drop(memory);
    match step {
        Step::Answer { status, retry_after } => Ok(scripted(&shared.receiver, status, retry_after)),
        Step::Timeout => {
            let mut stopping = shared.stopping.clone();
            // hyper drops this future when the sender closes the connection.
            drop(timeout(SILENCE, stopping.wait_for(|stopping| *stopping)).await);
            Err(NoAnswer)
        }
    }
}

/// Counts a delivery as finished when it is dropped: also if the sender gave up.
struct Finished(Arc<Receiver>);

impl Drop for Finished {
    fn drop(&mut self) {
        self.0.finish();
    }
}

fn scripted(receiver: &Receiver, status: u16, retry_after: Option<u32>) -> Answer {
    let mut answer = Response::new(Full::default());
    // The script has statuses from 200 to 599 only.
    *answer.status_mut() = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    if let Some(seconds) = retry_after {
        answer.headers_mut().insert(RETRY_AFTER, HeaderValue::from(seconds));
    }
    let reply = receiver.reply.as_ref().filter(|_| matches!(status, 200..=203 | 206..=299));
    if let Some(reply) = reply {
        let is_json = serde_json::from_str::<serde::de::IgnoredAny>(reply).is_ok();
        let kind = if is_json { "application/json" } else { "text/plain; charset=utf-8" };
        answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
        *answer.body_mut() = Full::from(reply.clone());
    }
    answer
}

/// The answer to a request that is no delivery: it takes no step of the script.
fn refusal(shared: &Shared, status: StatusCode, reason: &str) -> Answer {
    // Without standard error there is nobody to tell; the sender is told in any case.
    drop(shared.receiver.context.output.note(&format!("refused a request with {status}: {reason}")));
    let mut answer = Response::new(Full::default());
    *answer.status_mut() = status;
    answer.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    answer
}

async fn pause(time: Duration) {
    drop(timeout(time, pending::<Infallible>()).await);
}
