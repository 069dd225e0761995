//! Who carries a webhook: the `WebhookClient`, and the one that does it over HTTP.
//!
//! One call is one attempt: no retry, no redirect, no judgement of the answer. What is sent is decided elsewhere.

pub mod address_guard;
pub mod client_options;
pub mod delivery_error;
pub mod tls;

pub use crate::engine::webhook_client::client_options::ClientOptions;

use std::io::Read;
use std::time::Duration;

use ureq::http::{Request, Response, header};
use ureq::unversioned::resolver::{DefaultResolver, Resolver};
use ureq::{AsSendBody, Body};

use crate::domain::webhook::callback::Method;
use crate::engine::webhook_client::address_guard::{AddressGuard, Monotonic};
use crate::engine::webhook_client::delivery_error::DeliveryError;
use crate::engine::webhook_client::tls::{CertificateError, TlsAgents};

/// The most bytes of an answer's body that are kept.
pub const MAX_KEPT_BODY: usize = 2000;
/// The most bytes of an answer's body that are read, so that the connection can be used again.
pub const MAX_READ_BODY: u64 = 64 * 1024;

/// Carries a parcel to its destination and brings back a receipt.
pub trait WebhookClient: Send + Sync {
    /// Sends one request and waits for its whole answer.
    ///
    /// # Errors
    /// There was no complete answer; whether the receiver saw the request is then unknown.
    fn send(&self, parcel: &WebhookRequest) -> Result<WebhookResponse, DeliveryError>;
}

/// One request, ready to be sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WebhookRequest {
    /// The method; with GET and DELETE the body stays at home.
    pub method: Method,
    /// An absolute `http` or `https` URL.
    pub url: String,
    /// All headers but `Host` and those that frame the body.
    pub headers: Vec<(String, String)>,
    /// The bytes to send; none is sent as an empty body where the method has one.
    pub body: Option<Vec<u8>>,
}

/// What came back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WebhookResponse {
    /// The status of the answer, redirects included.
    pub http_status: u16,
    /// The `Retry-After` header as it was sent; `domain::retry_after` reads it.
    pub retry_after: Option<String>,
    /// The first 2,000 bytes of the body.
    pub body: Vec<u8>,
}

/// The courier that goes out over HTTP/1.1, with keep-alive; one for all threads.
pub struct HttpWebhookClient {
    trust: TlsAgents,
    timeout: Duration,
}

impl HttpWebhookClient {
    /// A courier that looks names up by the system's resolver.
    ///
    /// # Errors
    /// `ca_pem` holds no usable certificate.
    pub fn new(options: &ClientOptions, monotonic: Monotonic) -> Result<Self, CertificateError> {
        Self::with_resolver(options, monotonic, DefaultResolver::default())
    }

    /// A courier that looks names up by another resolver, whose answers are checked like the system's.
    ///
    /// # Errors
    /// `ca_pem` holds no usable certificate.
    pub fn with_resolver(
        options: &ClientOptions,
        monotonic: Monotonic,
        resolver: impl Resolver,
    ) -> Result<Self, CertificateError> {
        let guard = AddressGuard::new(resolver, options.policy.clone(), monotonic.clone());
        Ok(Self { trust: TlsAgents::new(options, guard, monotonic)?, timeout: options.timeout })
    }

    fn exchange(&self, parcel: &WebhookRequest) -> Result<Response<Body>, ureq::Error> {
        if parcel.method.has_body() {
            self.trust.run(request(parcel, parcel.body.as_deref().unwrap_or_default())?)
        } else {
            self.trust.run(request(parcel, ())?)
        }
    }
}

impl WebhookClient for HttpWebhookClient {
    fn send(&self, parcel: &WebhookRequest) -> Result<WebhookResponse, DeliveryError> {
        let delivery_error = |status, error| DeliveryError::from_ureq(error, status, self.timeout);
        let mut response = self.exchange(parcel).map_err(|error| delivery_error(None, error))?;
        let http_status = response.status().as_u16();
        let body =
            read_body(response.body_mut()).map_err(|error| delivery_error(Some(http_status), error))?;
        Ok(WebhookResponse { http_status, retry_after: retry_after(&response), body })
    }
}

fn request<B: AsSendBody>(parcel: &WebhookRequest, body: B) -> Result<Request<B>, ureq::Error> {
    let mut request = Request::builder().method(parcel.method.as_str()).uri(&parcel.url);
    for (name, value) in &parcel.headers {
        request = request.header(name, value);
    }
    Ok(request.body(body)?)
}

/// Reads on behind what is kept: a connection whose body was not read to its end cannot be used again.
fn read_body(body: &mut Body) -> Result<Vec<u8>, ureq::Error> {
    let mut reader = body.as_reader().take(MAX_READ_BODY);
    let mut kept = Vec::new();
    let mut chunk = [0; 4096];
    loop {
        let count = reader.read(&mut chunk)?;
        if count == 0 {
            return Ok(kept);
        }
        let wanted = count.min(MAX_KEPT_BODY - kept.len());
        kept.extend_from_slice(&chunk[..wanted]);
    }
}

fn retry_after(response: &Response<Body>) -> Option<String> {
    let value = response.headers().get(header::RETRY_AFTER)?;
    value.to_str().ok().map(str::to_owned)
}
