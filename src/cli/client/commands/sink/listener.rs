//! The HTTP server of a sink.

use std::convert::Infallible;
use std::future::pending;
use std::io;
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
use hyper_util::server::graceful::GracefulShutdown;
use thiserror::Error as ThisError;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use crate::cli::client::commands::sink::{Delivery, End, Receiver, Step};
use crate::cli::error::{CliError, cannot, failed};

/// A payload has at most 1 MiB of compact UTF-8. Sending non-ASCII as \uXXXX makes it up to three times larger.
const MAX_BODY: usize = 8 << 20;
/// A delivery has up to 32 headers of the user with 4 KiB each.
const MAX_HEAD: usize = 192 << 10;
/// Time for the head of a request, and between two of them.
const HEAD_TIME: Duration = Duration::from_secs(60);
/// Before the next try if the system has no file descriptor for a connection.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// Time for the last answers at the end.
const LAST_ANSWERS: Duration = Duration::from_secs(1);

/// The connection ends without an answer.
#[derive(Debug, ThisError)]
#[error("the connection ends without an answer")]
struct Disconnect;

type SinkResponse = Response<Full<Bytes>>;

pub async fn bind(address: SocketAddr) -> Result<(TcpListener, SocketAddr), CliError> {
    let failed = |error: io::Error| {
        let way = "give another --listen, such as 127.0.0.1:0 for a free port";
        failed(format!("cannot listen on {address}: {error}; {way}"))
    };
    let listener = TcpListener::bind(address).await.map_err(failed)?;
    let address = listener.local_addr().map_err(failed)?;
    Ok((listener, address))
}

/// Receives until a signal, or until the receiver ends it.
pub async fn serve(listener: TcpListener, receiver: Arc<Receiver>, mut ends: mpsc::Receiver<End>) -> End {
    let handle = |kind| signal(kind).map_err(|error| cannot("listen for signals", error));
    let (mut interrupt, mut terminate) = (handle(SignalKind::interrupt())?, handle(SignalKind::terminate())?);
    let graceful = GracefulShutdown::new();
    let end = loop {
        let accepted = tokio::select! {
            biased;
            end = ends.recv() => break end.unwrap_or(Ok(())),
            _ = interrupt.recv() => break Ok(()),
            _ = terminate.recv() => break Ok(()),
            accepted = listener.accept() => accepted,
        };
        let Ok((stream, _)) = accepted else {
            drop(timeout(ACCEPT_PAUSE, pending::<Infallible>()).await);
            continue;
        };
        let receiver = Arc::clone(&receiver);
        let service = service_fn(move |request| respond(request, Arc::clone(&receiver)));
        let mut builder = http1::Builder::new();
        builder.timer(TokioTimer::new()).header_read_timeout(HEAD_TIME).max_buf_size(MAX_HEAD);
        let connection = graceful.watch(builder.serve_connection(TokioIo::new(stream), service));
        // However the connection ends, that is the sender's choice.
        tokio::spawn(async move { drop(connection.await) });
    };
    drop(listener);
    // A connection that takes longer is cut off.
    drop(timeout(LAST_ANSWERS, graceful.shutdown()).await);
    end
}

async fn respond(request: Request<Incoming>, receiver: Arc<Receiver>) -> Result<SinkResponse, Disconnect> {
    let (head, body) = request.into_parts();
    if body.size_hint().lower() > MAX_BODY as u64 {
        return Ok(too_large(&receiver));
    }
    let body = match Limited::new(body, MAX_BODY).collect().await {
        Ok(body) => body.to_bytes(),
        Err(error) if error.is::<LengthLimitError>() => return Ok(too_large(&receiver)),
        Err(_) => return Err(Disconnect),
    };
    let text = |value: &HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
    let delivery = Delivery {
        received_at: receiver.context.client.clock().now(),
        method: head.method.to_string(),
        target: head.uri.to_string(),
        headers: head.headers.iter().map(|(name, value)| (name.to_string(), text(value))).collect(),
        body,
    };
    let taker = Arc::clone(&receiver);
    // Runs to its end even if the sender gives up.
    let taken = spawn_blocking(move || taker.receive(&delivery).map(|step| (step, FinishedDelivery(taker))));
    let (step, _finished) = taken.await.ok().flatten().ok_or(Disconnect)?;
    let Step::Answer { status, retry_after } = step else {
        // hyper drops this future when the sender closes the connection.
        return pending().await;
    };
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
    Ok(answer)
}

/// Counts a delivery as finished when it is dropped: also if the sender gave up.
struct FinishedDelivery(Arc<Receiver>);

impl Drop for FinishedDelivery {
    fn drop(&mut self) {
        self.0.finish();
    }
}

/// The answer to a request that is no delivery: it takes no step of the script.
fn too_large(receiver: &Receiver) -> SinkResponse {
    let status = StatusCode::PAYLOAD_TOO_LARGE;
    // A note that cannot be written is lost; the sender has the answer in any case.
    let note = format!("refused a request with {status}: its body has more than 8 MiB");
    drop(receiver.context.output.note(&note));
    let mut answer = Response::new(Full::default());
    *answer.status_mut() = status;
    answer.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    answer
}
