//! `cued sink`: receives deliveries, verifies and prints them, and answers by a script.

use std::fmt;
use std::future::pending;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use clap::Args;
use http_body_util::{BodyExt as _, Full, LengthLimitError, Limited};
use hyper::body::{Body as _, Bytes, Incoming};
use hyper::header::{CONNECTION, CONTENT_TYPE, HeaderValue, RETRY_AFTER};
use hyper::http::request::Parts;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use jiff::Timestamp;
use serde_json::{Map, Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Builder;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::task::spawn_blocking;
use tokio::time::timeout;
use unicode_width::UnicodeWidthStr as _;

use crate::cli::client::command::ClientAction;
use crate::cli::client::context::{Context, environment};
use crate::cli::client::live_output::{watch_reader, watch_signals};
use crate::cli::client::words::in_words;
use crate::cli::error::{CliError, Result, cannot, failed, usage};
use crate::cli::input;
use crate::cli::output::table::{Style, fitted, indented, text_of};
use crate::cli::output::{Format, print_line, print_note, print_part};
use crate::cli::printable::{printable, printable_lines};
use crate::cli::server::flag_values::socket_address;
use crate::cli::width::cut;
use crate::client::request::{ApiRequest, ClientError};
use crate::domain::secret::Secret;
use crate::domain::text::one_line;
use crate::domain::time::instant;
use crate::domain::webhook::signature::{Verification, verify};
use crate::system::locks::Mutex;

const SECRET_VARIABLE: &str = "CUED_WEBHOOK_SECRET";

/// Timeout of a request for the secrets: short, because a delivery waits for it.
const SECRET_TIMEOUT: Duration = Duration::from_secs(3);

/// A payload has at most 1 MiB of compact UTF-8. Sending non-ASCII as \uXXXX makes it up to three times larger.
const MAX_BODY: usize = 8 << 20;

/// A delivery has up to 32 headers of the user with 4 KiB each.
const MAX_HEAD: usize = 192 << 10;

/// Time for the head of a request, for its body, and between two of them.
const HEAD_TIME: Duration = Duration::from_secs(60);

/// Connections at a time; one more waits. A server has at most 128 deliveries to one destination under way.
const MAX_CONNECTIONS: usize = 128;

/// Time for the last answers at the end.
const LAST_ANSWERS: Duration = Duration::from_secs(1);

/// Bytes of a body that people are shown. A payload has up to 1 MiB.
const MAX_SHOWN: usize = 4 << 10;

const MAX_LINE: usize = 500;

/// Columns that the method and the path of a delivery have at least.
const MIN_PATH: usize = 12;

/// Receive, verify and print deliveries (for testing)
///
/// Prints each delivery, verifies its signatures with the secret of your account (or CUED_WEBHOOK_SECRET), and
/// answers by a script. Of 500,timeout,429:5,200 the first attempt fails, the second times out, the third is asked
/// to wait for five seconds, and all others succeed.
///
/// With --json each delivery is one line of JSON. Ctrl-C ends it.
#[derive(Debug, Args)]
pub struct Sink {
    /// Address and port to listen on; with port 0 a free one
    #[arg(long, value_name = "ADDR:PORT", default_value = "127.0.0.1:9000", value_parser = socket_address)]
    listen: SocketAddr,

    /// Responses, one for each delivery; the last one repeats. A step is a status, a status with the seconds of
    /// Retry-After (429:5), or timeout: no response until the sender gives up
    #[arg(long, value_name = "STEP,…", value_delimiter = ',', default_value = "200", value_parser = step)]
    script: Vec<Step>,

    /// Body of successful responses, such as '{"success": true}'
    #[arg(long, value_name = "TEXT")]
    reply: Option<String>,

    /// End after this many deliveries
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    exit_after: Option<u64>,

    /// Webhook secret: @FILE, or - for standard input; other text is the secret itself, which the list of processes
    /// shows. Prefer CUED_WEBHOOK_SECRET in the environment [default: that of your account]
    #[arg(long, value_name = "@FILE|-|TEXT")]
    secret: Option<Secret>,

    /// Print only the line of each delivery
    #[arg(long)]
    no_body: bool,
}

impl ClientAction for Sink {
    fn run(self, context: &Context) -> Result {
        if context.is_curl() {
            context.send(&ApiRequest::get("/v1/auth/webhook-secret"))?;
        }
        let secrets = given_secret(self.secret.as_ref())?;
        let runtime = Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| cannot("start the receiver", error))?;
        let (listener, address) = runtime.block_on(bind(self.listen))?;
        let line = format!("listening on http://{address}");
        if context.output.format.is_for_programs() {
            print_note(&line)
        } else {
            print_line(&line)
        }?;
        if !address.ip().is_loopback() {
            print_note("whoever reaches this address can post to it, not only cued")?;
        }
        let (end, ends) = mpsc::channel(1);
        let (by_signal, by_reader) = (end.clone(), end.clone());
        // What was read is answered. One end is enough; a second finds the place taken.
        watch_signals(move |_| drop(by_signal.try_send(Ok(()))))?;
        watch_reader(move || drop(by_reader.try_send(Ok(()))))?;
        let receiver = Arc::new(Receiver {
            context: context.reload()?,
            secrets: Mutex::new(secrets),
            sink: self,
            received: AtomicU64::new(0),
            verified: AtomicU64::new(0),
            finished: AtomicU64::new(0),
            end,
        });
        receiver.announce_secrets()?;
        let result = runtime.block_on(serve(listener, Arc::clone(&receiver), ends));
        // A thread may wait for a reader of standard output that has stopped reading.
        runtime.shutdown_background();
        result?;
        let (received, verified) =
            (receiver.received.load(Relaxed), receiver.verified.load(Relaxed));
        let noun = if received == 1 { "delivery" } else { "deliveries" };
        print_note(&format!("{received} {noun}, {verified} verified"))
    }
}

/// The secret of `--secret`, else of the environment; none if that of the account is wanted.
fn given_secret(flag: Option<&Secret>) -> Result<Vec<String>> {
    let variable = environment(SECRET_VARIABLE);
    let given_by = if flag.is_some() { "--secret" } else { SECRET_VARIABLE };
    let flag = flag.map(|secret| secret.expose().as_str());
    let Some(text) = flag.or(variable.as_deref()) else { return Ok(Vec::new()) };
    let secret = input::text(given_by, text)?.trim().to_owned();
    if secret.is_empty() {
        return Err(usage("the secret is empty; `cued account secret` shows yours"));
    }
    Ok(vec![secret])
}

/// The secrets of the account. Reads the credentials again, as they may have changed since the start.
fn account_secrets(context: &Context) -> Result<Vec<String>> {
    let context = context.reload()?;
    if context.target.key.is_none() {
        return Err(ClientError::NotSignedIn.into());
    }
    let mut secrets = Vec::new();
    for (path, field) in [
        ("/v1/auth/webhook-secret", "webhook_secret"),
        ("/v1/auth/alert-webhook-secret", "alert_webhook_secret"),
    ] {
        let answer = context.client.send_once(&ApiRequest::get(path).timeout(SECRET_TIMEOUT))?;
        secrets.push(text_of(&answer.value()?, field));
    }
    secrets.retain(|secret| !secret.is_empty());
    let origin = format!("the secrets of your account at {}", context.target.url);
    print_note(&format!("Signatures are checked with {origin}"))?;
    Ok(secrets)
}

/// An answer: a status, and the seconds of a `Retry-After`. Without a status there is none until the sender gives up.
#[derive(Debug, Clone, Copy, Default)]
struct Step {
    status: Option<u16>,
    retry_after: Option<u32>,
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.status, self.retry_after) {
            (None, _) => f.write_str("→ no response"),
            (Some(status), None) => write!(f, "→ {status}"),
            (Some(status), Some(seconds)) => write!(f, "→ {status}, Retry-After {seconds} s"),
        }
    }
}

fn step(word: &str) -> Result<Step, String> {
    let read = || {
        let word = word.trim();
        if word == "timeout" {
            return Some(Step::default());
        }
        let (status, seconds) =
            word.split_once(':').map_or((word, None), |(status, it)| (status, Some(it)));
        // A number may begin with a plus sign.
        let status = status.parse().ok().filter(|it| (200..=599).contains(it))?;
        let retry_after = seconds.map(str::parse).transpose().ok()?;
        (!word.contains('+')).then_some(Step { status: Some(status), retry_after })
    };
    read().ok_or_else(|| {
        format!(
            "{word:?} is no step; a step is a status from 200 to 599, a status with the seconds of \
             Retry-After such as 429:5, or timeout, and a script is steps such as 500,timeout,429:5,200"
        )
    })
}

struct Delivery {
    received_at: Timestamp,
    head: Parts,
    body: Bytes,
}

impl Delivery {
    /// The first header of this name, if it is plain text.
    fn header(&self, name: &str) -> Option<&str> {
        self.head.headers.get(name)?.to_str().ok()
    }
}

type End = Result;

struct Receiver {
    context: Context,
    /// Empty until the account is signed in.
    secrets: Mutex<Vec<String>>,
    sink: Sink,
    received: AtomicU64,
    verified: AtomicU64,
    /// Deliveries with an answer, or whose sender has given up.
    finished: AtomicU64,
    end: mpsc::Sender<End>,
}

impl Receiver {
    fn announce_secrets(&self) -> Result {
        let mut secrets = self.secrets.lock();
        let note = if secrets.is_empty() {
            match account_secrets(&self.context) {
                Ok(known) => {
                    *secrets = known;
                    return Ok(());
                }
                Err(CliError::Client(ClientError::NotSignedIn)) => {
                    "Signatures are checked once you run `cued login`.".to_owned()
                }
                Err(error) if error.status() == Some(401) => {
                    let why = "the stored key is not valid here. Run `cued login`.";
                    format!("Signatures are not checked: {why}")
                }
                Err(error) => format!("Signatures are not checked: {error}"),
            }
        } else {
            let name = if self.sink.secret.is_some() { "--secret" } else { SECRET_VARIABLE };
            format!("Signatures are checked with the secret of {name}")
        };
        print_note(&note)
    }

    /// Takes a delivery; `None` if the sink is at its end.
    fn receive(&self, delivery: &Delivery) -> Option<Step> {
        // Locked until the line is printed: the lines are in the order of the script.
        let mut secrets = self.secrets.lock();
        let check = |secrets: &[String]| {
            verify(
                secrets,
                &|name: &str| delivery.header(name),
                &delivery.body,
                delivery.received_at,
            )
        };
        let mut verification = check(&secrets);
        if verification == Verification::NoSecret
            && let Ok(known) = account_secrets(&self.context)
        {
            *secrets = known;
            verification = check(&secrets);
        }
        let index = self.received.load(Relaxed);
        if self.sink.exit_after.is_some_and(|limit| index >= limit) {
            return None;
        }
        // The last step repeats.
        let (script, place) = (&self.sink.script, usize::try_from(index).unwrap_or(usize::MAX));
        let step = script.get(place).or(script.last()).copied().unwrap_or_default();
        let end = match print_part(&self.text(delivery, verification, step)) {
            Ok(true) => {
                self.received.fetch_add(1, Relaxed);
                self.verified.fetch_add(u64::from(verification.is_verified()), Relaxed);
                return Some(step);
            }
            // The reader has closed the pipe.
            Ok(false) => Ok(()),
            Err(error) => Err(error),
        };
        // One end is enough; a second finds the place taken.
        drop(self.end.try_send(end));
        None
    }

    /// The text to print, with the end of its line; empty if the form has nothing of this delivery.
    fn text(&self, delivery: &Delivery, verification: Verification, step: Step) -> String {
        match self.context.output.format {
            Format::Json | Format::Jsonl => {
                format!("{}\n", self.json(delivery, verification, step))
            }
            // JSON is YAML.
            Format::Yaml => format!("---\n{}\n", self.json(delivery, verification, step)),
            Format::Id => delivery
                .header("x-cueapi-execution-id")
                .map(|id| line(id) + "\n")
                .unwrap_or_default(),
            Format::Table | Format::Wide => self.lines(delivery, verification, step),
        }
    }

    fn lines(&self, delivery: &Delivery, verification: Verification, step: Step) -> String {
        let Delivery { received_at, head, body } = delivery;
        let (output, styles) = (&self.context.output, &self.context.output.styles);
        let style = match verification {
            Verification::Verified => Style::Good,
            Verification::NoSecret => Style::Warning,
            _ => Style::Bad,
        };
        let header = |name: &str| delivery.header(name).map(line).unwrap_or_default();
        let attempt = match header("x-cueapi-attempt") {
            _ if delivery.header("x-cueapi-test") == Some("true") => "test".to_owned(),
            attempt if attempt.is_empty() => attempt,
            attempt => format!("attempt {attempt}"),
        };
        let mut parts = vec![
            (output.times.time_of_day(*received_at), Style::Faint),
            (format!("{} {}", head.method, line(&head.uri.to_string())), Style::Plain),
            (output.id(&header("x-cueapi-execution-id")), Style::Plain),
            (attempt, Style::Plain),
            (format!("{} B", body.len()), Style::Plain),
            (verification.to_string(), style),
            (step.to_string(), Style::Plain),
        ];
        let width = styles.width.filter(|_| output.is_short()).unwrap_or(usize::MAX);
        let beside_path = |parts: &[(String, Style)]| {
            let others =
                parts.iter().enumerate().filter(|(index, part)| *index != 1 && !part.0.is_empty());
            others.map(|(_, (text, _))| text.width() + 2).sum::<usize>()
        };
        // The status must be seen: the reason is shorter where there is no room, then other parts are left out.
        let reason = in_words(verification.code().unwrap_or("verified"));
        for (index, text) in [(5, reason), (4, String::new()), (3, String::new())] {
            if beside_path(&parts) + MIN_PATH.min(parts[1].0.width()) > width {
                parts[index].0 = text;
            }
        }
        // The path has the room that the others leave.
        parts[1].0 = cut(&parts[1].0, width.saturating_sub(beside_path(&parts)).max(MIN_PATH));
        let mut text = fitted(&parts, width, styles) + "\n";
        if !self.sink.no_body {
            let shown = body.get(..MAX_SHOWN).unwrap_or(body);
            text +=
                &indented(printable_lines(&String::from_utf8_lossy(shown)), Style::Plain, styles);
            if shown.len() < body.len() {
                text += &format!("  … {} bytes more\n", body.len() - shown.len());
            }
        }
        text
    }

    fn json(&self, delivery: &Delivery, verification: Verification, step: Step) -> Value {
        let mut headers = Map::new();
        for name in delivery.head.headers.keys() {
            let values = delivery.head.headers.get_all(name).iter();
            let values: Vec<_> =
                values.map(|value| String::from_utf8_lossy(value.as_bytes())).collect();
            headers.insert(name.to_string(), json!(values.join(", ")));
        }
        let mut object = json!({
            "received_at": instant(delivery.received_at),
            "method": delivery.head.method.as_str(),
            "path": delivery.head.uri.to_string(),
            "execution_id": delivery.header("x-cueapi-execution-id"),
            "cue_id": delivery.header("x-cueapi-cue-id"),
            "attempt": delivery.header("x-cueapi-attempt").and_then(|attempt| attempt.parse::<u32>().ok()),
            "headers": headers,
            "size": delivery.body.len(),
            "verified": verification.is_verified(),
            "reason": verification.code(),
            "answer": {"status": step.status, "retry_after": step.retry_after},
        });
        if !self.sink.no_body {
            let text = || json!(String::from_utf8_lossy(&delivery.body));
            object["body"] = serde_json::from_slice(&delivery.body).unwrap_or_else(|_| text());
        }
        object
    }
}

/// A text from outside as a part of a line.
fn line(text: &str) -> String {
    printable(&one_line(text, MAX_LINE))
}

async fn bind(address: SocketAddr) -> Result<(TcpListener, SocketAddr)> {
    let failed = |error: io::Error| {
        let way = "give another --listen, such as 127.0.0.1:0 for a free port";
        failed(format!("cannot listen on {address}: {error}; {way}"))
    };
    let listener = TcpListener::bind(address).await.map_err(failed)?;
    let address = listener.local_addr().map_err(failed)?;
    Ok((listener, address))
}

/// Receives until an end arrives.
async fn serve(
    listener: TcpListener,
    receiver: Arc<Receiver>,
    mut ends: mpsc::Receiver<End>,
) -> End {
    let graceful = GracefulShutdown::new();
    let places = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    let end = loop {
        let accepted = tokio::select! {
            biased;
            end = ends.recv() => break end.unwrap_or(Ok(())),
            accepted = accept(&listener, &places) => accepted,
        };
        let (stream, place) = match accepted {
            Ok(accepted) => accepted,
            // The sender was faster.
            Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => continue,
            Err(error) => break Err(cannot("accept connections", error)),
        };
        let receiver = Arc::clone(&receiver);
        let service = service_fn(move |request| respond(request, Arc::clone(&receiver)));
        let mut builder = http1::Builder::new();
        builder.timer(TokioTimer::new()).header_read_timeout(HEAD_TIME).max_buf_size(MAX_HEAD);
        let connection = graceful.watch(builder.serve_connection(TokioIo::new(stream), service));
        // However the connection ends, that is the sender's choice.
        tokio::spawn(async move {
            drop(connection.await);
            drop(place);
        });
    };
    drop(listener);
    // A connection that takes longer is cut off.
    drop(timeout(LAST_ANSWERS, graceful.shutdown()).await);
    end
}

async fn accept(
    listener: &TcpListener,
    places: &Arc<Semaphore>,
) -> io::Result<(TcpStream, OwnedSemaphorePermit)> {
    let place = Arc::clone(places).acquire_owned().await.map_err(io::Error::other)?;
    Ok((listener.accept().await?.0, place))
}

/// Answers a request. Errors: the connection ends without an answer.
async fn respond(
    request: Request<Incoming>,
    receiver: Arc<Receiver>,
) -> io::Result<Response<Full<Bytes>>> {
    let disconnect = || io::Error::from(io::ErrorKind::ConnectionAborted);
    let (head, body) = request.into_parts();
    if body.size_hint().lower() > MAX_BODY as u64 {
        return Ok(too_large());
    }
    let body = match timeout(HEAD_TIME, Limited::new(body, MAX_BODY).collect()).await {
        Ok(Ok(body)) => body.to_bytes(),
        Ok(Err(error)) if error.is::<LengthLimitError>() => return Ok(too_large()),
        Ok(Err(_)) | Err(_) => return Err(disconnect()),
    };
    let delivery = Delivery { received_at: receiver.context.client.clock().now(), head, body };
    let taker = Arc::clone(&receiver);
    // Runs to its end even if the sender gives up.
    let taken = spawn_blocking(move || {
        taker.receive(&delivery).map(|step| (step, FinishedDelivery(taker)))
    });
    let (step, _finished) = taken.await.ok().flatten().ok_or_else(disconnect)?;
    let Some(status) = step.status else {
        // hyper drops this future when the sender closes the connection.
        return pending().await;
    };
    let mut answer =
        empty(StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR));
    if let Some(seconds) = step.retry_after {
        answer.headers_mut().insert(RETRY_AFTER, HeaderValue::from(seconds));
    }
    let reply = receiver.sink.reply.as_ref().filter(|_| matches!(status, 200..=203 | 206..=299));
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
        let finished = self.0.finished.fetch_add(1, Relaxed) + 1;
        if self.0.sink.exit_after == Some(finished) {
            drop(self.0.end.try_send(Ok(())));
        }
    }
}

/// The answer to a request that is no delivery: it takes no step of the script.
fn too_large() -> Response<Full<Bytes>> {
    let mut answer = empty(StatusCode::PAYLOAD_TOO_LARGE);
    // A note that cannot be written is lost; the sender has the answer in any case.
    let note = format!("refused a request with {}: its body has more than 8 MiB", answer.status());
    drop(print_note(&note));
    answer.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    answer
}

fn empty(status: StatusCode) -> Response<Full<Bytes>> {
    let mut answer = Response::new(Full::default());
    *answer.status_mut() = status;
    answer
}
