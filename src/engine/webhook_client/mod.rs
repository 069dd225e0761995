//! The client that sends webhooks: the trait [`WebhookClient`] and its implementation over HTTP.
//!
//! One call is one attempt. The client does not retry, follow redirects or interpret the response.

pub mod address_guard;
pub mod delivery_error;
pub mod tls;

use std::io::Read;
use std::time::Duration;

use ureq::http::{Request, Response, header};
use ureq::unversioned::resolver::{DefaultResolver, Resolver};
use ureq::{AsSendBody, Body};

use crate::domain::execution::attempt::MAX_SHOWN_BODY;
use crate::domain::webhook::address_policy::AddressPolicy;
use crate::domain::webhook::callback::Method;
use crate::domain::webhook::request::{MAX_KEPT_HEADERS, is_cookie};
use crate::engine::webhook_client::address_guard::{AddressGuard, Monotonic};
use crate::engine::webhook_client::delivery_error::DeliveryError;
use crate::engine::webhook_client::tls::{CertificateError, TlsAgents};

/// Maximum bytes of a response body that are kept: one more than is shown, so that a longer body is known as such.
pub const MAX_KEPT_BODY: usize = MAX_SHOWN_BODY + 1;
/// Maximum bytes of a response body that are read. A connection can be reused only if its response was read to the end;
/// a longer response closes it.
pub const MAX_READ_BODY: u64 = 64 * 1024;

/// Maximum idle connections: two for each of the default 64 delivery threads, so that two herds to different hosts both find
/// theirs open.
pub const MAX_IDLE: usize = 128;

/// The settings of a webhook client.
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
    /// Of a response that is no success, the headers that may be kept: no cookies, at most [`MAX_KEPT_HEADERS`] bytes.
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
    /// Errors: `ca_pem` holds no usable certificate.
    pub fn new(options: &ClientOptions, monotonic: Monotonic) -> Result<Self, CertificateError> {
        Self::with_resolver(options, monotonic, DefaultResolver::default())
    }

    /// A client with another resolver, whose addresses pass the same checks.
    /// Errors: `ca_pem` holds no usable certificate.
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
    let mut room = MAX_KEPT_HEADERS;
    let headers = response.headers().iter().filter(|(name, _)| !is_cookie(name.as_str()));
    let fitting = headers.filter(|(name, value)| {
        let size = name.as_str().len() + value.len();
        let fits = size <= room;
        room -= if fits { size } else { 0 };
        fits
    });
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    fitting.map(|(name, value)| (name.as_str().to_owned(), text(value.as_bytes()))).collect()
}

fn retry_after(response: &Response<Body>) -> Option<String> {
    let value = response.headers().get(header::RETRY_AFTER)?;
    value.to_str().ok().map(str::to_owned)
}
