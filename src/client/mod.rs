//! A client of a server's API: where the server is and with which key, one request and its answer, retries.
//!
//! Nothing here prints; `cli` does.

pub mod credentials;
pub mod curl;
pub mod error;
pub mod event_stream;
pub mod request;
pub mod retry;
pub mod server_url;
pub mod tls;

use std::time::Duration;

use ureq::http::{HeaderName, HeaderValue, Response};
use ureq::{Agent, Body};

use crate::client::error::{ClientError, RefusedRequest};
use crate::client::request::{Answer, ApiRequest, RawAnswer};
use crate::client::retry::{Failure, pause_before_retry};
use crate::client::tls::TlsOptions;
use crate::clock::Clock;

/// More than any answer of the API has.
const MAX_ANSWER: u64 = 64 << 20;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Of a whole request. The server ends its own after 30 seconds.
const TIMEOUT: Duration = Duration::from_secs(60);

/// The address of the server, and the key.
#[derive(Clone)]
pub struct Connection {
    /// Without a slash at its end.
    pub url: String,
    pub key: Option<String>,
    pub tls: TlsOptions,
}

/// A finished exchange, for `--verbose`.
#[derive(Debug)]
pub struct Exchange<'a> {
    pub method: &'a str,
    pub url: &'a str,
    /// `None` if there was no answer.
    pub status: Option<u16>,
    pub duration: Duration,
    pub request_id: Option<&'a str>,
}

/// A client of one server.
pub struct Client {
    connection: Connection,
    agent: Agent,
    clock: Clock,
    on_exchange: Box<dyn Fn(&Exchange<'_>) + Send + Sync>,
    on_pause: Box<dyn Fn(Duration) + Send + Sync>,
}

impl Client {
    /// Errors: if the certificates of the connection cannot be read.
    pub fn new(connection: Connection) -> Result<Self, ClientError> {
        let agent = tls::agent(&connection.url, &connection.tls, CONNECT_TIMEOUT)?;
        Ok(Self {
            connection,
            agent,
            clock: Clock::system(),
            on_exchange: Box::new(|_| ()),
            on_pause: Box::new(|_| ()),
        })
    }

    /// Reports each exchange.
    pub fn watch(&mut self, on_exchange: impl Fn(&Exchange<'_>) + Send + Sync + 'static) {
        self.on_exchange = Box::new(on_exchange);
    }

    /// Reports each pause before a retry.
    pub fn watch_pauses(&mut self, on_pause: impl Fn(Duration) + Send + Sync + 'static) {
        self.on_pause = Box::new(on_pause);
    }

    pub fn connection(&self) -> &Connection {
        &self.connection
    }

    pub fn clock(&self) -> &Clock {
        &self.clock
    }

    /// Sends a request, again if that is safe, and returns the answer of success (2xx).
    /// Errors: if the server refuses the request or cannot be reached.
    pub fn send(&self, request: &ApiRequest) -> Result<Answer, ClientError> {
        self.success(self.call(request)?)
    }

    /// Sends a request, again if that is safe, and returns the answer whatever its status.
    /// Errors: if the server cannot be reached.
    pub fn call(&self, request: &ApiRequest) -> Result<RawAnswer, ClientError> {
        let mut attempt = 1;
        loop {
            let result = self.call_once(request);
            let failure = match &result {
                Ok(answer) => self.refusal(answer).as_ref().and_then(Failure::of),
                Err(error) => Failure::of(error),
            };
            match failure.filter(|_| request.is_repeatable()).and_then(|it| pause_before_retry(attempt, it)) {
                Some(pause) => {
                    (self.on_pause)(pause);
                    // The clock's pauses are short; the rest of a long one follows.
                    self.pause(pause);
                }
                None => return result,
            }
            attempt += 1;
        }
    }

    /// The error that an answer stands for; `None` for a success (2xx).
    pub fn refusal(&self, answer: &RawAnswer) -> Option<ClientError> {
        if answer.is_success() {
            return None;
        }
        let url = &self.connection.url;
        let refused = RefusedRequest::read(answer.status, answer.header("retry-after"), &answer.body, url);
        Some(refused.map_or_else(|error| error, |refused| ClientError::Refused(Box::new(refused))))
    }

    /// Blocks for the whole of `pause`.
    pub fn pause(&self, pause: Duration) {
        let end = self.clock.monotonic() + pause;
        while let Some(left) = end.checked_sub(self.clock.monotonic()).filter(|left| !left.is_zero()) {
            self.clock.sleep(left);
        }
    }

    /// Sends a request once.
    pub fn send_once(&self, request: &ApiRequest) -> Result<Answer, ClientError> {
        self.success(self.call_once(request)?)
    }

    fn call_once(&self, request: &ApiRequest) -> Result<RawAnswer, ClientError> {
        let mut response = self.exchange(request, Some(request.timeout.unwrap_or(TIMEOUT)), None)?;
        let header = |(name, value): (&HeaderName, &HeaderValue)| {
            (name.as_str().to_owned(), String::from_utf8_lossy(value.as_bytes()).into_owned())
        };
        let headers = response.headers().iter().map(header).collect();
        let status = response.status();
        let body = response.body_mut().with_config().limit(MAX_ANSWER).read_to_vec();
        let body = body.map_err(|source| self.unreachable(source))?;
        let reason = status.canonical_reason().unwrap_or_default();
        Ok(RawAnswer { status: status.as_u16(), reason, headers, body })
    }

    fn success(&self, answer: RawAnswer) -> Result<Answer, ClientError> {
        match self.refusal(&answer) {
            Some(error) => Err(error),
            None => {
                let content_type = answer.header("content-type").map(str::to_owned);
                Ok(Answer { status: answer.status, content_type, body: answer.body })
            }
        }
    }

    /// Opens a stream, whose answer has no end. It fails after a `silence`, in which no byte arrives, and after the time-out
    /// of the request, if there is one.
    pub fn open_stream(
        &self,
        request: &ApiRequest,
        silence: Duration,
    ) -> Result<Response<Body>, ClientError> {
        let mut response = self.exchange(request, request.timeout, Some(silence))?;
        let status = response.status().as_u16();
        if status == 200 {
            return Ok(response);
        }
        let retry_after =
            response.headers().get("retry-after").and_then(|it| it.to_str().ok()).map(str::to_owned);
        let body = response.body_mut().with_config().limit(MAX_ANSWER).read_to_vec();
        let body = body.map_err(|source| self.unreachable(source))?;
        let refused = RefusedRequest::read(status, retry_after.as_deref(), &body, &self.connection.url)?;
        Err(ClientError::Refused(Box::new(refused)))
    }

    /// `timeout` of the whole exchange, `silence` before each of its bytes.
    fn exchange(
        &self,
        request: &ApiRequest,
        timeout: Option<Duration>,
        silence: Option<Duration>,
    ) -> Result<Response<Body>, ClientError> {
        let url = format!("{}{}", self.connection.url, request.target());
        let mut builder = ureq::http::Request::builder().method(request.method).uri(&url);
        if let Some(key) = self.connection.key.as_deref().filter(|_| !request.is_anonymous) {
            builder = builder.header("authorization", format!("Bearer {key}"));
        }
        for (name, value) in &request.headers {
            builder = builder.header(name.as_ref(), value);
        }
        if request.body.is_some() && !request.has_header("content-type") {
            builder = builder.header("content-type", "application/json");
        }
        let body = request.body.clone().unwrap_or_default();
        let built = builder.body(body).map_err(|error| self.unreachable(error.into()))?;
        let config = self.agent.configure_request(built).timeout_global(timeout).timeout_per_read(silence);
        let begin = self.clock.monotonic();
        let result = self.agent.run(config.build());
        let response = result.as_ref().ok();
        (self.on_exchange)(&Exchange {
            method: request.method,
            url: &url,
            status: response.map(|response| response.status().as_u16()),
            duration: self.clock.monotonic().saturating_sub(begin),
            request_id: response
                .and_then(|response| response.headers().get("x-request-id"))
                .and_then(|id| id.to_str().ok()),
        });
        result.map_err(|source| self.unreachable(source))
    }

    fn unreachable(&self, source: ureq::Error) -> ClientError {
        let url = self.connection.url.clone();
        match source {
            ureq::Error::Timeout(ureq::Timeout::Connect | ureq::Timeout::Resolve) => {
                ClientError::Unreachable { url, source }
            }
            ureq::Error::Timeout(_) => ClientError::NoAnswer { url, source },
            source => ClientError::Unreachable { url, source },
        }
    }
}
