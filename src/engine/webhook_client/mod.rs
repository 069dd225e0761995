//! The client that sends webhooks: the trait [`WebhookClient`] and its implementation over HTTP.
//!
//! One call is one attempt. The client does not retry, follow redirects or interpret the response.

pub mod address_guard;
pub mod tls;

use std::io::{ErrorKind, Read};
use std::time::Duration;

use thiserror::Error;
use ureq::http::{Request, Response, header};
use ureq::unversioned::resolver::{DefaultResolver, Resolver};
use ureq::{AsSendBody, Body};

use crate::domain::execution::attempt::{FailureCause, MAX_SHOWN_BODY};
use crate::domain::webhook::address_policy::AddressPolicy;
use crate::domain::webhook::callback::Method;
use crate::engine::webhook_client::address_guard::{AddressGuard, Monotonic, ResolveError};
use crate::engine::webhook_client::tls::{CertificateError, TlsAgents};

/// Maximum bytes of a response body that are kept: one more than is shown, so that a longer body is known as such.
pub const MAX_KEPT_BODY: usize = MAX_SHOWN_BODY + 1;
/// Maximum bytes of a response body that are read. A connection can be reused only if its response was read to the end;
/// a longer response closes it.
pub const MAX_READ_BODY: u64 = 64 * 1024;

/// Maximum idle connections: two for each of the default 64 delivery threads, so that two herds to different hosts both find
/// theirs open.
pub const MAX_IDLE: usize = 128;

#[derive(Debug, Clone)]
pub struct ClientOptions {
    pub policy: AddressPolicy,
    /// Limit for a whole exchange, including DNS.
    pub timeout: Duration,
    /// Default of the `User-Agent` header.
    pub user_agent: String,
    /// Certificate authorities in PEM that are trusted in addition to the public ones.
    pub ca_pem: Option<Vec<u8>>,
}

impl Default for ClientOptions {
    fn default() -> Self {
        Self {
            policy: AddressPolicy::default(),
            timeout: Duration::from_secs(30),
            user_agent: concat!("cued/", env!("CARGO_PKG_VERSION")).to_owned(),
            ca_pem: None,
        }
    }
}

/// The seam to the outside: tests replace the network by a client of their own.
pub trait WebhookClient: Send + Sync {
    /// Sends one request and waits for the complete response.
    /// Errors: no complete response arrived. Whether the receiver got the request is unknown.
    fn send(&self, webhook_request: &WebhookRequest) -> Result<WebhookResponse, DeliveryError>;
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WebhookRequest {
    /// With GET and DELETE the body is not sent.
    pub method: Method,
    /// Absolute `http` or `https` URL.
    pub url: String,
    /// All headers except `Host` and those that frame the body.
    pub headers: Vec<(String, String)>,
    /// `None` is sent as an empty body if the method has one.
    pub body: Option<Vec<u8>>,
    /// Most bytes of the body of a 2xx response that are kept; of another one, [`MAX_KEPT_BODY`].
    pub max_response: usize,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WebhookResponse {
    pub http_status: u16,
    /// The `Retry-After` header, parsed by `domain::execution::attempt::requested_pause`.
    pub retry_after: Option<String>,
    /// The headers of a response that is no success.
    pub headers: Vec<(String, String)>,
    /// The first bytes of the body, as many as are kept.
    pub body: Vec<u8>,
}

/// Sends over HTTP/1.1 with keep-alive. All delivery threads share one.
pub struct HttpWebhookClient {
    agents: TlsAgents,
    timeout: Duration,
}

impl HttpWebhookClient {
    /// A client that uses the resolver of the operating system.
    pub fn new(options: &ClientOptions, monotonic: Monotonic) -> Result<Self, CertificateError> {
        Self::with_resolver(options, monotonic, DefaultResolver::default())
    }

    /// A client with another resolver, whose addresses pass the same checks.
    pub fn with_resolver(
        options: &ClientOptions,
        monotonic: Monotonic,
        resolver: impl Resolver,
    ) -> Result<Self, CertificateError> {
        let guard = AddressGuard::new(resolver, options.policy.clone(), monotonic.clone());
        Ok(Self { agents: TlsAgents::new(options, guard, monotonic)?, timeout: options.timeout })
    }

    fn exchange(&self, webhook_request: &WebhookRequest) -> Result<Response<Body>, ureq::Error> {
        if webhook_request.method.has_body() {
            self.agents.run(request(webhook_request, webhook_request.body.as_deref().unwrap_or_default())?)
        } else {
            self.agents.run(request(webhook_request, ())?)
        }
    }
}

impl WebhookClient for HttpWebhookClient {
    fn send(&self, webhook_request: &WebhookRequest) -> Result<WebhookResponse, DeliveryError> {
        let delivery_error = |status, error| DeliveryError::from_ureq(error, status, self.timeout);
        let mut response = self.exchange(webhook_request).map_err(|error| delivery_error(None, error))?;
        let http_status = response.status().as_u16();
        let is_success = response.status().is_success();
        let kept = if is_success { webhook_request.max_response } else { MAX_KEPT_BODY };
        let body =
            read_body(response.body_mut(), kept).map_err(|error| delivery_error(Some(http_status), error))?;
        let headers = if is_success { Vec::new() } else { headers(&response) };
        Ok(WebhookResponse { http_status, retry_after: retry_after(&response), headers, body })
    }
}

fn request<B: AsSendBody>(webhook_request: &WebhookRequest, body: B) -> Result<Request<B>, ureq::Error> {
    let mut request = Request::builder().method(webhook_request.method.as_str()).uri(&webhook_request.url);
    for (name, value) in &webhook_request.headers {
        request = request.header(name, value);
    }
    Ok(request.body(body)?)
}

/// Reads beyond the kept part, so that the connection can be reused.
fn read_body(body: &mut Body, kept: usize) -> Result<Vec<u8>, ureq::Error> {
    let mut reader = body.as_reader().take(MAX_READ_BODY.max(kept as u64));
    let mut body_start = Vec::new();
    let mut chunk = [0; 4096];
    loop {
        let count = reader.read(&mut chunk)?;
        if count == 0 {
            return Ok(body_start);
        }
        let stored = count.min(kept - body_start.len());
        body_start.extend_from_slice(&chunk[..stored]);
    }
}

fn headers(response: &Response<Body>) -> Vec<(String, String)> {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    response
        .headers()
        .iter()
        .map(|(name, value)| (name.as_str().to_owned(), text(value.as_bytes())))
        .collect()
}

fn retry_after(response: &Response<Body>) -> Option<String> {
    let value = response.headers().get(header::RETRY_AFTER)?;
    value.to_str().ok().map(str::to_owned)
}

/// The reason why an attempt got no complete response, worded for the user who asks why a cue did not run (contract §6.4).
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum DeliveryError {
    #[error("{}", describe_timeout(*within, *status))]
    Timeout {
        within: Duration,
        /// The status, if the response had begun.
        status: Option<u16>,
    },
    /// The host has no address that callbacks may reach. Nothing was sent.
    #[error("{0}")]
    NoAddress(ResolveError),
    /// No connection, a broken one, or a response that is not HTTP.
    #[error("{0}")]
    Connection(String),
    /// No trusted TLS connection.
    #[error("{0}")]
    Tls(String),
    /// The URL or a header is not valid in a request. Nothing was sent.
    #[error("{0}")]
    Unsendable(String),
    /// An error of the program or of its database.
    #[error("internal error in cued; the operator finds the cause in its log")]
    Internal,
}

impl DeliveryError {
    pub fn cause(&self) -> FailureCause {
        match self {
            Self::Timeout { .. } => FailureCause::Timeout,
            Self::NoAddress(ResolveError::Blocked { .. }) => FailureCause::BlockedAddress,
            Self::NoAddress(ResolveError::Unknown { .. }) => FailureCause::UnknownName,
            Self::Connection(_) => FailureCause::Connection,
            Self::Tls(_) => FailureCause::Tls,
            Self::Unsendable(_) => FailureCause::Unsendable,
            Self::Internal => FailureCause::Fault,
        }
    }

    /// More than the text says, for the operator's log only.
    pub fn detail(&self) -> Option<String> {
        match self {
            Self::NoAddress(error) => Some(error.detail()),
            _ => None,
        }
    }

    /// Converts an error of the HTTP library. `status` is set if the error occurred while the body was read.
    fn from_ureq(error: ureq::Error, status: Option<u16>, within: Duration) -> Self {
        match error {
            ureq::Error::Timeout(_) => Self::Timeout { within, status },
            ureq::Error::Other(other) => match other.downcast::<ResolveError>() {
                Ok(error) => Self::NoAddress(*error),
                Err(other) => Self::Connection(other.to_string()),
            },
            ureq::Error::Io(error) if error.kind() == ErrorKind::InvalidData => {
                Self::Tls(tls(&error.to_string()))
            }
            ureq::Error::Io(error) => Self::Connection(after(status, &connection(&error))),
            ureq::Error::Rustls(error) => Self::Tls(tls(&error.to_string())),
            ureq::Error::Tls(what) => Self::Tls(tls(what)),
            ureq::Error::Protocol(what) => {
                Self::Connection(after(status, &format!("the response is not valid HTTP ({what})")))
            }
            ureq::Error::LargeResponseHeader(..) => {
                Self::Connection("the headers of the response are too large".to_owned())
            }
            ureq::Error::Http(what) => Self::Unsendable(format!("the request is not valid: {what}")),
            ureq::Error::BadUri(what) => Self::Unsendable(format!("the request is not valid: {what}")),
            other => Self::Connection(after(status, &other.to_string())),
        }
    }
}

fn connection(error: &std::io::Error) -> String {
    match error.kind() {
        ErrorKind::ConnectionRefused => "the connection was refused".to_owned(),
        ErrorKind::UnexpectedEof
        | ErrorKind::ConnectionReset
        | ErrorKind::ConnectionAborted
        | ErrorKind::BrokenPipe => "the connection was closed before the response was complete".to_owned(),
        _ => format!("the connection failed: {error}"),
    }
}

fn tls(what: &str) -> String {
    if what.contains("UnknownIssuer") {
        return "the certificate is from an issuer that is not trusted (a certificate authority of your own is named \
                with --callback-ca)"
            .to_owned();
    }
    format!("no encrypted connection: {what}")
}

fn after(status: Option<u16>, what: &str) -> String {
    match status {
        Some(status) => format!("returned {status}, but {what}"),
        None => what.to_owned(),
    }
}

fn describe_timeout(within: Duration, status: Option<u16>) -> String {
    let seconds = within.as_secs_f64();
    match status {
        None => format!("no response within {seconds} s"),
        Some(status) => format!("returned {status}, but the body did not end within {seconds} s"),
    }
}
