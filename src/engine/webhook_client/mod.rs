//! The client that sends webhooks: the trait [`WebhookClient`] and its implementation over HTTP.
//!
//! One call is one attempt. The client does not retry, follow redirects or interpret the response. A request on a kept
//! connection that ends without a byte of a response is sent again at once, on a new one: nearly always the receiver
//! has closed it as idle at that moment. If it has taken the request all the same, it gets the same `webhook-id` again.
//!
//! An agent of the HTTP library has one set of authorities, hence two kinds of agents: some trust the public
//! certificate authorities, the others those of `--callback-ca`. Trying the second after the first is safe, because a
//! failed handshake has sent nothing.

pub mod address_guard;
mod gzip;
mod lenient;

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{ErrorKind, Read};
use std::time::Duration;

use thiserror::Error;
use ureq::config::AutoHeaderValue;
use ureq::http::{Request, Response, header};
use ureq::tls::{Certificate, PemItem, RootCerts, TlsConfig, parse_pem};
use ureq::unversioned::resolver::{DefaultResolver, Resolver};
use ureq::unversioned::transport::{Connector as _, DefaultConnector};
use ureq::{Agent, AsSendBody, Body};

use crate::domain::certificate;
use crate::domain::execution::attempt::{FailureCause, MAX_SHOWN_BODY};
use crate::domain::secret::Secret;
use crate::domain::webhook::address_policy::AddressPolicy;
use crate::domain::webhook::callback::{DEFAULT_TIMEOUT_SECONDS, Method};
use crate::engine::webhook_client::address_guard::{AddressGuard, Monotonic, ResolveError};
use crate::engine::webhook_client::lenient::{LenientConnector, Stale};
use crate::metrics::Stopwatch;
use crate::system::locks::Mutex;

/// Maximum bytes of a response body that are kept: one more than is shown, so that a longer body is known as such.
pub const MAX_KEPT_BODY: usize = MAX_SHOWN_BODY + 1;
/// Maximum bytes of a response body that are read. A connection can be reused only if its response was read to the end;
/// a longer response closes it.
pub const MAX_READ_BODY: u64 = 64 * 1024;

/// Maximum idle connections: two for each of the default 64 delivery threads, so that two herds to different hosts both
/// find theirs open.
pub const MAX_IDLE: usize = 128;

/// Buffers of a connection. The library's default of 128 KiB each costs 310 KiB per running delivery, these 62 KiB. The
/// headers of a response must fit into the input buffer, or a delivered webhook would count as failed.
const INPUT_BUFFER: usize = 16 * 1024;
const OUTPUT_BUFFER: usize = 8 * 1024;
/// Agents with the same authorities. For each request an agent compares the hosts of all its idle connections with each
/// other, so its hosts should be few.
const AGENTS: usize = 4;
/// Hosts that are remembered for their certificate.
const MAX_REMEMBERED: usize = 1024;

#[derive(Debug, Clone)]
pub struct ClientOptions {
    pub policy: AddressPolicy,
    /// Limit for a whole exchange, including DNS.
    pub timeout: Duration,
    pub user_agent: String,
    /// Certificate authorities in PEM that are trusted in addition to the public ones.
    pub ca_pem: Option<Vec<u8>>,
}

impl Default for ClientOptions {
    fn default() -> Self {
        Self {
            policy: AddressPolicy::default(),
            timeout: Duration::from_secs(DEFAULT_TIMEOUT_SECONDS.into()),
            user_agent: concat!("cued/", env!("CARGO_PKG_VERSION")).to_owned(),
            ca_pem: None,
        }
    }
}

/// The seam to the outside: tests replace the network by a client of their own.
pub trait WebhookClient: Send + Sync {
    /// Errors: no complete response arrived. Whether the receiver got the request is unknown.
    fn send(&self, webhook_request: &WebhookRequest) -> Result<WebhookResponse, DeliveryError>;
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WebhookRequest {
    /// With GET and DELETE the body is not sent.
    pub method: Method,
    pub url: Secret,
    /// All headers except `Host` and those that frame the body.
    pub headers: Secret<Vec<(String, String)>>,
    /// `None` is sent as an empty body if the method has one.
    pub body: Option<Secret<Vec<u8>>>,
    /// The limit of the exchange, if it is not the client's.
    pub timeout: Option<Duration>,
    /// Most bytes of the body of a 2xx response that are kept; of another one, [`MAX_KEPT_BODY`].
    pub max_response: usize,
    /// The headers of a 2xx response are kept too; otherwise those of other responses only.
    pub keeps_headers: bool,
}

impl WebhookRequest {
    /// A POST within the client's time, of whose response the beginning is kept.
    pub fn post(
        url: Secret,
        headers: Secret<Vec<(String, String)>>,
        body: Option<Secret<Vec<u8>>>,
    ) -> Self {
        let (timeout, max_response, keeps_headers) = (None, MAX_KEPT_BODY, false);
        Self { method: Method::Post, url, headers, body, timeout, max_response, keeps_headers }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WebhookResponse {
    pub http_status: u16,
    /// The `Retry-After` header, parsed by `domain::execution::attempt::requested_pause`.
    pub retry_after: Option<String>,
    /// Empty if they are not kept.
    pub headers: Vec<(String, String)>,
    /// The first bytes of the body, as many as are kept.
    pub body: Vec<u8>,
    /// What was wrong with a 2xx response that counts all the same: its body broke off.
    pub note: Option<String>,
}

#[derive(Debug, Error)]
pub enum CertificateError {
    #[error("not a certificate authority in PEM: the PEM text cannot be read: {0}")]
    Pem(#[from] ureq::Error),
    #[error("not a certificate authority in PEM: no `BEGIN CERTIFICATE` block")]
    Empty,
}

/// Sends over HTTP/1.1 with keep-alive. All delivery threads share one.
pub struct HttpWebhookClient {
    public: Agents,
    private: Option<Agents>,
    /// Hosts whose certificate the private authorities issued last time: their agent goes first.
    private_hosts: Mutex<HashSet<String>>,
    timeout: Duration,
}

impl HttpWebhookClient {
    pub fn new(options: &ClientOptions, monotonic: Monotonic) -> Result<Self, CertificateError> {
        Self::with_resolver(options, monotonic, DefaultResolver::default())
    }

    /// A client with another resolver, whose addresses pass the same checks.
    pub fn with_resolver(
        options: &ClientOptions,
        monotonic: Monotonic,
        resolver: impl Resolver,
    ) -> Result<Self, CertificateError> {
        let guard = AddressGuard::new(resolver, options.policy.clone(), monotonic);
        let certificates = options.ca_pem.as_deref().map(certificates).transpose()?;
        let private =
            certificates.map(|own| Agents::new(options, &guard, &RootCerts::new_with_certs(&own)));
        Ok(Self {
            public: Agents::new(options, &guard, &RootCerts::WebPki),
            private,
            private_hosts: Mutex::default(),
            timeout: options.timeout,
        })
    }

    fn exchange(&self, webhook_request: &WebhookRequest) -> Result<Response<Body>, ureq::Error> {
        let timeout = self.timeout_of(webhook_request);
        if webhook_request.method.has_body() {
            let body = webhook_request.body.as_ref().map_or(&[][..], |body| body.expose());
            self.run(request(webhook_request, body)?, timeout)
        } else {
            self.run(request(webhook_request, ())?, timeout)
        }
    }

    fn timeout_of(&self, webhook_request: &WebhookRequest) -> Duration {
        webhook_request.timeout.unwrap_or(self.timeout)
    }

    /// Runs one request. If the first agent does not trust the certificate, the other one tries.
    fn run<B: AsSendBody + Clone>(
        &self,
        request: Request<B>,
        timeout: Duration,
    ) -> Result<Response<Body>, ureq::Error> {
        let host = request.uri().authority().map(ToString::to_string).unwrap_or_default();
        let public = self.public.for_authority(&host);
        let Some(private) = self.private.as_ref().map(|agents| agents.for_authority(&host)) else {
            return within(public, request, timeout);
        };
        let is_private = self.private_hosts.lock().contains(&host);
        let (first, second) = if is_private { (private, public) } else { (public, private) };
        let started = Stopwatch::start();
        match within(first, request.clone(), timeout) {
            Err(error) if is_untrusted(&error) => {}
            answer => return answer,
        }
        let response = within(second, request, timeout.saturating_sub(started.elapsed()))?;
        let mut hosts = self.private_hosts.lock();
        if is_private {
            hosts.remove(&host);
        } else if hosts.len() < MAX_REMEMBERED {
            hosts.insert(host);
        }
        Ok(response)
    }
}

impl WebhookClient for HttpWebhookClient {
    fn send(&self, webhook_request: &WebhookRequest) -> Result<WebhookResponse, DeliveryError> {
        let timeout = self.timeout_of(webhook_request);
        let delivery_error = |status, error| DeliveryError::from_ureq(error, status, timeout);
        let mut response =
            self.exchange(webhook_request).map_err(|error| delivery_error(None, error))?;
        let http_status = response.status().as_u16();
        let is_success = response.status().is_success();
        let kept = if is_success { webhook_request.max_response } else { MAX_KEPT_BODY };
        let is_gzip = response.headers().get(header::CONTENT_ENCODING).is_some_and(gzip::is_gzip);
        let read = if is_gzip { kept.max(MAX_READ_BODY as usize) } else { kept };
        let (mut body, error) = read_body(response.body_mut(), read);
        let error = error.map(|error| delivery_error(Some(http_status), error));
        let note = match error {
            // The receiver has done its work. A timeout is a failure: without one, the body might never end.
            Some(DeliveryError::Connection(note)) if is_success => Some(note),
            Some(error) => return Err(error),
            None => None,
        };
        if let Some(text) = is_gzip.then(|| gzip::decode(&body, kept)).flatten() {
            body = text;
        }
        body.truncate(kept);
        let retry_after =
            response.headers().get(header::RETRY_AFTER).and_then(|value| value.to_str().ok());
        let keeps_headers = webhook_request.keeps_headers || !is_success;
        Ok(WebhookResponse {
            http_status,
            retry_after: retry_after.map(str::to_owned),
            headers: if keeps_headers { headers(&response) } else { Vec::new() },
            body,
            note,
        })
    }
}

fn within<B: AsSendBody + Clone>(
    agent: &Agent,
    request: Request<B>,
    timeout: Duration,
) -> Result<Response<Body>, ureq::Error> {
    let started = Stopwatch::start();
    let again = request.clone();
    let result = if agent.config().timeouts().global == Some(timeout) {
        agent.run(request)
    } else {
        agent.run(agent.configure_request(request).timeout_global(Some(timeout)).build())
    };
    match result {
        Err(ureq::Error::Other(error)) if error.is::<Stale>() => {
            let left = timeout.saturating_sub(started.elapsed());
            // No kept connection is young enough: this one is new.
            let again = agent.configure_request(again).max_idle_age(Duration::ZERO);
            agent.run(again.timeout_global(Some(left)).build())
        }
        result => result,
    }
}

/// Agents with the same authorities. Each host and port has one of them.
struct Agents(Vec<Agent>);

impl Agents {
    fn new(options: &ClientOptions, guard: &AddressGuard, roots: &RootCerts) -> Self {
        Self((0..AGENTS).map(|_| agent(options, guard.clone(), roots.clone())).collect())
    }

    fn for_authority(&self, authority: &str) -> &Agent {
        let mut hasher = DefaultHasher::new();
        authority.hash(&mut hasher);
        &self.0[hasher.finish() as usize % self.0.len()]
    }
}

fn is_untrusted(error: &ureq::Error) -> bool {
    // The error type of the TLS library is not accessible here. Only this error begins with these words.
    let text = match error {
        ureq::Error::Io(error) => error.to_string(),
        ureq::Error::Rustls(error) => error.to_string(),
        _ => return false,
    };
    text.starts_with("invalid peer certificate")
}

fn agent(options: &ClientOptions, guard: AddressGuard, roots: RootCerts) -> Agent {
    let config = Agent::config_builder()
        // The default reads HTTP_PROXY, and a proxy would resolve names past the guard.
        .proxy(None)
        .max_redirects(0)
        .http_status_as_error(false)
        .timeout_global(Some(options.timeout))
        .tls_config(TlsConfig::builder().root_certs(roots).build())
        .user_agent(options.user_agent.as_str())
        .accept(AutoHeaderValue::None)
        .accept_encoding(AutoHeaderValue::None)
        .input_buffer_size(INPUT_BUFFER)
        .output_buffer_size(OUTPUT_BUFFER)
        // A full buffer without the end of the headers is then reported as too large, not as a lost connection.
        .max_response_header_size(INPUT_BUFFER - 1)
        .max_idle_connections(MAX_IDLE / AGENTS)
        .max_idle_connections_per_host(MAX_IDLE / AGENTS)
        .build();
    Agent::with_parts(config, DefaultConnector::default().chain(LenientConnector), guard)
}

fn certificates(pem: &[u8]) -> Result<Vec<Certificate<'static>>, CertificateError> {
    let mut found = Vec::new();
    for item in parse_pem(pem) {
        if let PemItem::Certificate(certificate) = item? {
            found.push(certificate);
        }
    }
    if found.is_empty() { Err(CertificateError::Empty) } else { Ok(found) }
}

fn request<B: AsSendBody>(
    webhook_request: &WebhookRequest,
    body: B,
) -> Result<Request<B>, ureq::Error> {
    let mut request = Request::builder()
        .method(webhook_request.method.as_str())
        .uri(webhook_request.url.expose());
    for (name, value) in webhook_request.headers.expose() {
        request = request.header(name, value);
    }
    Ok(request.body(body)?)
}

/// Reads beyond the kept part, so that the connection can be reused. Returns what was read before an error, too.
fn read_body(body: &mut Body, kept: usize) -> (Vec<u8>, Option<ureq::Error>) {
    let mut reader = body.as_reader().take(MAX_READ_BODY.max(kept as u64));
    let mut body_start = Vec::new();
    let mut chunk = [0; 4096];
    loop {
        let count = match reader.read(&mut chunk) {
            Ok(0) => return (body_start, None),
            Ok(count) => count,
            Err(error) => return (body_start, Some(error.into())),
        };
        let stored = count.min(kept - body_start.len());
        body_start.extend_from_slice(&chunk[..stored]);
    }
}

fn headers(response: &Response<Body>) -> Vec<(String, String)> {
    let text = |value: &header::HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
    response.headers().iter().map(|(name, value)| (name.as_str().to_owned(), text(value))).collect()
}

/// The reason why an attempt got no complete response, worded for the user who asks why a cue did not run (contract
/// §6.4).
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
    #[error("{0}")]
    Tls(String),
    /// The URL or a header is not valid in a request. Nothing was sent.
    #[error("{0}")]
    Unsendable(String),
    #[error("internal error in cued; the operator finds the cause in its log")]
    Internal,
}

impl DeliveryError {
    pub fn cause(&self) -> FailureCause {
        match self {
            Self::Timeout { .. } => FailureCause::Timeout,
            Self::NoAddress(error) => error.cause,
            Self::Connection(_) => FailureCause::Connection,
            Self::Tls(_) => FailureCause::Tls,
            Self::Unsendable(_) => FailureCause::Unsendable,
            Self::Internal => FailureCause::Fault,
        }
    }

    /// More than the text says, for the operator's log only.
    pub fn detail(&self) -> Option<String> {
        match self {
            Self::NoAddress(error) => Some(error.detail.clone()),
            _ => None,
        }
    }

    /// Converts an error of the HTTP library. `status` is set if the error occurred while the body was read.
    fn from_ureq(error: ureq::Error, status: Option<u16>, within: Duration) -> Self {
        let broken = |what: &str| match status {
            Some(status) => Self::Connection(format!("returned {status}, but {what}")),
            None => Self::Connection(what.to_owned()),
        };
        match error {
            ureq::Error::Timeout(_) => Self::Timeout { within, status },
            ureq::Error::Other(other) => match other.downcast::<ResolveError>() {
                Ok(error) => Self::NoAddress(*error),
                Err(other) => Self::Connection(other.to_string()),
            },
            ureq::Error::Io(error) => match error.kind() {
                ErrorKind::InvalidData => Self::Tls(tls(&error.to_string())),
                ErrorKind::ConnectionRefused => broken("the connection was refused"),
                ErrorKind::UnexpectedEof
                | ErrorKind::ConnectionReset
                | ErrorKind::ConnectionAborted
                | ErrorKind::BrokenPipe => {
                    broken("the connection was closed before the response was complete")
                }
                _ => broken(&format!("the connection failed: {error}")),
            },
            ureq::Error::Rustls(error) => Self::Tls(tls(&error.to_string())),
            ureq::Error::Tls(what) => Self::Tls(tls(what)),
            ureq::Error::Protocol(what) => {
                broken(&format!("the response is not valid HTTP ({what})"))
            }
            ureq::Error::LargeResponseHeader(..) => {
                Self::Connection("the headers of the response are too large".to_owned())
            }
            ureq::Error::Http(what) => {
                Self::Unsendable(format!("the request is not valid: {what}"))
            }
            ureq::Error::BadUri(what) => {
                Self::Unsendable(format!("the request is not valid: {what}"))
            }
            other => broken(&other.to_string()),
        }
    }
}

fn tls(what: &str) -> String {
    certificate::fault(what, "--callback-ca")
        .unwrap_or_else(|| format!("no encrypted connection: {what}"))
}

fn describe_timeout(within: Duration, status: Option<u16>) -> String {
    let seconds = within.as_secs_f64();
    match status {
        None => format!("no response within {seconds} s"),
        Some(status) => format!("returned {status}, but the body did not end within {seconds} s"),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn client(ca_pem: Option<&str>) -> Result<HttpWebhookClient, CertificateError> {
        let ca_pem = ca_pem.map(|pem| pem.as_bytes().to_vec());
        let options = ClientOptions { ca_pem, ..ClientOptions::default() };
        HttpWebhookClient::new(&options, Arc::new(|| Duration::ZERO))
    }

    const CERTIFICATE: &str = "-----BEGIN CERTIFICATE-----\nMAAA\n-----END CERTIFICATE-----\n";

    #[test]
    fn no_agent_goes_through_a_proxy_or_follows_redirects_and_a_private_authority_adds_to_the_public_ones()
     {
        assert!(client(None).unwrap().private.is_none());
        let client = client(Some(&CERTIFICATE.repeat(2))).unwrap();
        let agents = [&client.public.0[0], &client.private.as_ref().unwrap().0[0]];
        for agent in agents {
            assert!(agent.config().proxy().is_none());
            assert_eq!(agent.config().max_redirects(), 0);
            assert_eq!(agent.config().timeouts().global, Some(Duration::from_secs(30)));
        }
        let roots = agents.map(|agent| agent.config().tls_config().root_certs().clone());
        assert!(
            matches!(&roots, [RootCerts::WebPki, RootCerts::Specific(given)] if given.len() == 2)
        );
    }

    #[test]
    fn a_file_without_certificates_is_refused() {
        let broken = CERTIFICATE.replace('M', "!");
        let key = "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n";
        for pem in ["", "not PEM", key, &broken] {
            assert!(client(Some(pem)).is_err(), "{pem}");
        }
    }
}
