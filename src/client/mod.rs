//! A client of a server's API: where the server is and with which key, one request and its answer, retries.
//!
//! Nothing here prints; `cli` does.

pub mod credentials;
pub mod event_stream;
pub mod request;

use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicI64, AtomicU64};
use std::time::Duration;

use jiff::fmt::rfc2822::DateTimeParser;
use jiff::{SignedDuration, Timestamp};
use ureq::config::AutoHeaderValue;
use ureq::http::{HeaderName, HeaderValue, Response};
use ureq::tls::{Certificate, PemItem, RootCerts, TlsConfig, parse_pem};
use ureq::{Agent, Body};

use crate::client::credentials::is_loopback;
use crate::client::request::{ApiRequest, ApiResponse, ClientError, RefusedRequest};
use crate::clock::Clock;
use crate::domain::secret::Secret;

/// More than any response of the API has.
const MAX_RESPONSE: u64 = 64 << 20;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Timeout of a whole request. The server ends its own after 30 seconds.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Idle connections. A worker makes a request per run at a time; beyond this number it opens new ones.
const KEPT_CONNECTIONS: usize = 32;

/// The address of the server, and the key.
#[derive(Debug, Clone)]
pub struct Connection {
    /// Without a slash at its end.
    pub url: String,
    pub key: Option<Secret>,
    pub tls: TlsOptions,
}

/// The certificates that are trusted; by default the public authorities, and then those of the system.
#[derive(Debug, Clone, Default)]
pub struct TlsOptions {
    /// Only the authorities of this file, in PEM.
    pub ca: Option<PathBuf>,
    /// Any certificate.
    pub is_insecure: bool,
}

/// A client of one server.
pub struct Client {
    connection: Connection,
    agent: Agent,
    /// In place of the agent, once the public authorities have not issued the certificate of the server.
    of_system: OnceLock<Agent>,
    clock: Clock,
    /// By how many milliseconds the clock of the server is ahead of that of this machine.
    server_ahead: AtomicI64,
    /// Called with a line about each finished exchange.
    pub on_exchange: fn(&str),
    /// Called before the pause of a retry, with the reason of the server if it has one. Requests side by side have one
    /// pause.
    pub on_pause: fn(Duration, &str),
    /// Until when another pause is taken for the same one, on the clock, in milliseconds.
    paused_until: AtomicU64,
}

impl Client {
    pub fn new(connection: Connection) -> Result<Self, ClientError> {
        Ok(Self {
            agent: match &connection.tls.ca {
                None => agent(&connection, RootCerts::WebPki),
                Some(path) => agent(&connection, RootCerts::new_with_certs(&certificates(path)?)),
            },
            of_system: OnceLock::new(),
            connection,
            clock: Clock::system(),
            server_ahead: AtomicI64::new(0),
            on_exchange: |_| (),
            on_pause: |_, _| (),
            paused_until: AtomicU64::new(0),
        })
    }

    pub fn connection(&self) -> &Connection {
        &self.connection
    }

    pub fn clock(&self) -> &Clock {
        &self.clock
    }

    /// The time of the server, by its last answer.
    pub fn server_time(&self) -> Timestamp {
        let now = self.clock.now();
        now.checked_add(SignedDuration::from_millis(self.server_ahead.load(Relaxed))).unwrap_or(now)
    }

    /// The header has whole seconds: clocks that differ by less count as equal.
    fn compare_clocks(&self, date: Option<&HeaderValue>) {
        let date = date.and_then(|date| date.to_str().ok());
        if let Some(date) = date.and_then(|date| DateTimeParser::new().parse_timestamp(date).ok()) {
            let ahead = date.as_millisecond().saturating_sub(self.clock.now().as_millisecond());
            self.server_ahead.store(if ahead.abs() < 2_000 { 0 } else { ahead }, Relaxed);
        }
    }

    /// Sends a request, again if that is safe, and returns the answer of success (2xx).
    pub fn send(&self, request: &ApiRequest) -> Result<ApiResponse, ClientError> {
        self.success(self.call(request)?)
    }

    /// Sends a request, again if that is safe, and returns the answer whatever its status.
    pub fn call(&self, request: &ApiRequest) -> Result<ApiResponse, ClientError> {
        let mut attempt = 1;
        loop {
            let result = self.call_once(request);
            let refusal = result.as_ref().ok().and_then(|answer| self.refusal(answer));
            let error = refusal.as_ref().or(result.as_ref().err());
            let pause = error.and_then(|error| error.pause_before_retry(attempt));
            let Some(pause) = pause.filter(|_| request.is_repeatable()) else { return result };
            let reason = match error {
                Some(ClientError::Refused(refused)) => refused.message.as_str(),
                _ => "",
            };
            self.note_pause(pause, reason);
            self.pause(pause);
            attempt += 1;
        }
    }

    fn note_pause(&self, pause: Duration, reason: &str) {
        let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        let now = self.clock.monotonic();
        let end = millis(now + pause / 2);
        if self.paused_until.fetch_max(end, Relaxed) <= millis(now) {
            (self.on_pause)(pause, reason);
        }
    }

    pub fn send_once(&self, request: &ApiRequest) -> Result<ApiResponse, ClientError> {
        self.success(self.call_once(request)?)
    }

    /// The error that an answer stands for; `None` for a success (2xx).
    pub fn refusal(&self, answer: &ApiResponse) -> Option<ClientError> {
        (!(200..300).contains(&answer.status))
            .then(|| RefusedRequest::read(answer, &self.connection.url))
    }

    fn success(&self, answer: ApiResponse) -> Result<ApiResponse, ClientError> {
        self.refusal(&answer).map_or(Ok(answer), Err)
    }

    /// Blocks for the whole of `pause`. The clock's own pauses are short.
    pub fn pause(&self, pause: Duration) {
        let end = self.clock.monotonic() + pause;
        while let Some(left) =
            end.checked_sub(self.clock.monotonic()).filter(|left| !left.is_zero())
        {
            self.clock.sleep(left);
        }
    }

    /// Opens a stream, whose answer has no end. It fails after the read timeout of the request without a byte, and after
    /// its timeout, if there is one.
    pub fn open_stream(&self, request: &ApiRequest) -> Result<Response<Body>, ClientError> {
        let mut response = self.exchange(request)?;
        if response.status() == 200 {
            return Ok(response);
        }
        Err(RefusedRequest::read(&self.read(&mut response)?, &self.connection.url))
    }

    /// Sends a request once, and returns the answer whatever its status.
    fn call_once(&self, request: &ApiRequest) -> Result<ApiResponse, ClientError> {
        self.read(&mut self.exchange(request)?)
    }

    fn read(&self, response: &mut Response<Body>) -> Result<ApiResponse, ClientError> {
        let header = |(name, value): (&HeaderName, &HeaderValue)| {
            (name.as_str().to_owned(), String::from_utf8_lossy(value.as_bytes()).into_owned())
        };
        let headers = response.headers().iter().map(header).collect();
        let status = response.status();
        let body = response.body_mut().with_config().limit(MAX_RESPONSE).read_to_vec();
        let body = body.map_err(|source| self.unreachable(source))?;
        let reason = status.canonical_reason().unwrap_or_default();
        Ok(ApiResponse { status: status.as_u16(), reason, headers, body })
    }

    fn exchange(&self, request: &ApiRequest) -> Result<Response<Body>, ClientError> {
        let agent = self.of_system.get().unwrap_or(&self.agent);
        let result = self.exchange_with(agent, request);
        let takes_system = self.connection.tls.ca.is_none() && self.of_system.get().is_none();
        match result {
            // A handshake that failed has sent nothing.
            Err(error) if takes_system && is_untrusted(&error) => {
                let agent = self.of_system.get_or_init(|| agent_of_system(&self.connection));
                self.exchange_with(agent, request)
            }
            result => result,
        }
    }

    fn exchange_with(
        &self,
        agent: &Agent,
        request: &ApiRequest,
    ) -> Result<Response<Body>, ClientError> {
        let url = format!("{}{}", self.connection.url, request.target());
        let mut builder = ureq::http::Request::builder().method(request.method).uri(&url);
        if let Some(key) = self.connection.key.as_ref().filter(|_| !request.is_anonymous) {
            builder = builder.header("authorization", format!("Bearer {}", key.expose()));
        }
        for (name, value) in &request.headers {
            builder = builder.header(name.as_ref(), value);
        }
        if request.body.is_some() && !request.has_header("content-type") {
            builder = builder.header("content-type", "application/json");
        }
        let body = request.body.clone().unwrap_or_default();
        let built = builder.body(body).map_err(|error| self.unreachable(error.into()))?;
        let usual = request.read_timeout.is_none().then_some(TIMEOUT);
        let config = agent
            .configure_request(built)
            .timeout_global(request.timeout.or(usual))
            .timeout_per_read(request.read_timeout);
        let begin = self.clock.monotonic();
        let result = agent.run(config.build());
        let millis = self.clock.monotonic().saturating_sub(begin).as_millis();
        let (status, id) = match &result {
            Ok(response) => {
                self.compare_clocks(response.headers().get("date"));
                let id = response.headers().get("x-request-id").and_then(|id| id.to_str().ok());
                (
                    response.status().as_u16().to_string(),
                    id.map(|id| format!(" {id}")).unwrap_or_default(),
                )
            }
            Err(_) => ("no answer".to_owned(), String::new()),
        };
        (self.on_exchange)(&format!("{} {url} {status} {millis} ms{id}", request.method));
        result.map_err(|source| self.unreachable(source))
    }

    fn unreachable(&self, source: ureq::Error) -> ClientError {
        let url = self.connection.url.clone();
        match source {
            ureq::Error::Timeout(step)
                if !matches!(step, ureq::Timeout::Connect | ureq::Timeout::Resolve) =>
            {
                ClientError::ConnectionFailed { url, source }
            }
            source => ClientError::Unreachable { url, source },
        }
    }
}

/// The agent for a server. A proxy of the environment (`HTTP_PROXY` and others) cannot reach a server on a loopback
/// address of this machine, and is not asked for it.
fn agent(Connection { url, tls, .. }: &Connection, roots: RootCerts) -> Agent {
    let tls = TlsConfig::builder().root_certs(roots).disable_verification(tls.is_insecure).build();
    let config = Agent::config_builder()
        // A redirect would send the key to another place.
        .max_redirects(0)
        .http_status_as_error(false)
        .timeout_connect(Some(CONNECT_TIMEOUT))
        .tls_config(tls)
        .max_idle_connections_per_host(KEPT_CONNECTIONS)
        .user_agent(concat!("cued/", env!("CARGO_PKG_VERSION")))
        .accept(AutoHeaderValue::None)
        .accept_encoding(AutoHeaderValue::None);
    let config = if is_loopback(url) { config.proxy(None) } else { config };
    config.build().new_agent()
}

fn is_untrusted(error: &ClientError) -> bool {
    matches!(error, ClientError::Unreachable { source, .. } if source.to_string().contains("UnknownIssuer"))
}

/// The agent that trusts the authorities of the system: where a company or a person adds their own.
fn agent_of_system(connection: &Connection) -> Agent {
    let stored = rustls_native_certs::load_native_certs().certs;
    let certificates: Vec<_> =
        stored.iter().map(|it| Certificate::from_der(it).to_owned()).collect();
    agent(connection, RootCerts::new_with_certs(&certificates))
}

fn certificates(path: &Path) -> Result<Vec<Certificate<'static>>, ClientError> {
    let path_text = path.display();
    let failed = |fault: String| ClientError::Certificate(fault);
    let pem =
        std::fs::read(path).map_err(|error| failed(format!("cannot read {path_text}: {error}")))?;
    let is_no_authority =
        |fault: String| failed(format!("{path_text} is no certificate authority in PEM: {fault}"));
    let mut certificates = Vec::new();
    for item in parse_pem(&pem) {
        if let PemItem::Certificate(it) =
            item.map_err(|error| is_no_authority(error.to_string()))?
        {
            certificates.push(it);
        }
    }
    if certificates.is_empty() {
        return Err(is_no_authority("it has no `BEGIN CERTIFICATE` block".to_owned()));
    }
    Ok(certificates)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use super::*;

    static NOTED: AtomicUsize = AtomicUsize::new(0);

    #[test]
    fn requests_side_by_side_have_one_pause() {
        let tls = TlsOptions { ca: None, is_insecure: false };
        let connection = Connection { url: "http://127.0.0.1:9".to_owned(), key: None, tls };
        let mut client = Client::new(connection).unwrap();
        client.on_pause = |_, _| {
            NOTED.fetch_add(1, Relaxed);
        };
        for _ in 0..8 {
            client.note_pause(Duration::from_secs(60), "");
        }
        assert_eq!(NOTED.load(Relaxed), 1);
    }
}
