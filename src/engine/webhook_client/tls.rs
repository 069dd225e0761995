//! Whose certificates the courier trusts, and the HTTP agents that do: the web's authorities, and those of a home
//! network beside them.
//!
//! The HTTP library trusts one set or the other, so there is an agent for each; a failed handshake has sent nothing.

use std::collections::HashSet;
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use thiserror::Error as ThisError;
use ureq::config::AutoHeaderValue;
use ureq::http::{Request, Response};
use ureq::tls::{Certificate, PemItem, RootCerts, TlsConfig, parse_pem};
use ureq::unversioned::transport::DefaultConnector;
use ureq::{Agent, AsSendBody, Body, Error};

use crate::engine::webhook_client::address_guard::{AddressGuard, Monotonic};
use crate::engine::webhook_client::client_options::ClientOptions;

/// A connection's buffers; the library's own 128 KiB each would be paid for every delivery under way.
/// The headers of an answer have to fit into the first, or a delivered webhook would count as failed.
const INPUT_BUFFER: usize = 16 * 1024;
const OUTPUT_BUFFER: usize = 8 * 1024;
/// The most hosts whose agent is remembered.
const MAX_REMEMBERED: usize = 1024;

/// The certificates of `--callback-ca` are not usable.
#[derive(Debug, ThisError)]
pub enum CertificateError {
    #[error("not a certificate authority in PEM: the PEM text cannot be read: {0}")]
    Pem(#[from] ureq::Error),
    #[error("not a certificate authority in PEM: there is no `BEGIN CERTIFICATE` block in it")]
    Empty,
}

pub(in crate::engine) struct TlsAgents {
    web: Agent,
    home: Option<PrivateCa>,
}

struct PrivateCa {
    agent: Agent,
    timeout: Duration,
    monotonic: Monotonic,
    /// Hosts that the home authorities vouched for last time: there the home agent goes first.
    hosts: Mutex<HashSet<String>>,
}

impl TlsAgents {
    pub fn new(
        options: &ClientOptions,
        guard: AddressGuard,
        monotonic: Monotonic,
    ) -> Result<Self, CertificateError> {
        let home = match &options.ca_pem {
            None => None,
            Some(pem) => Some(PrivateCa {
                agent: agent(options, guard.clone(), RootCerts::new_with_certs(&certificates(pem)?)),
                timeout: options.timeout,
                monotonic,
                hosts: Mutex::default(),
            }),
        };
        Ok(Self { web: agent(options, guard, RootCerts::WebPki), home })
    }

    /// Runs one request; over TLS, with the other agent as well where the first one does not trust the certificate.
    pub fn run<B: AsSendBody + Clone>(&self, request: Request<B>) -> Result<Response<Body>, Error> {
        let Some(home) = &self.home else { return self.web.run(request) };
        let host = request.uri().authority().map(ToString::to_string).unwrap_or_default();
        let at_home = home.hosts().contains(&host);
        let (first, second) = if at_home { (&home.agent, &self.web) } else { (&self.web, &home.agent) };
        let began = (home.monotonic)();
        match first.run(request.clone()) {
            Err(error) if is_distrust(&error) => {}
            answer => return answer,
        }
        let left = home.timeout.saturating_sub((home.monotonic)().saturating_sub(began));
        let response = second.run(second.configure_request(request).timeout_global(Some(left)).build())?;
        home.remember(host, !at_home);
        Ok(response)
    }
}

impl PrivateCa {
    fn hosts(&self) -> MutexGuard<'_, HashSet<String>> {
        self.hosts.lock()
    }

    fn remember(&self, host: String, at_home: bool) {
        let mut hosts = self.hosts();
        if !at_home {
            hosts.remove(&host);
        } else if hosts.len() < MAX_REMEMBERED {
            hosts.insert(host);
        }
    }
}

/// Whether the handshake ended because nobody trusted vouches for the certificate.
fn is_distrust(error: &Error) -> bool {
    // The TLS library's own type is out of reach here; its text begins with these words for this fault only.
    match error {
        Error::Io(error) => error.to_string().starts_with("invalid peer certificate"),
        Error::Rustls(error) => error.to_string().starts_with("invalid peer certificate"),
        _ => false,
    }
}

fn agent(options: &ClientOptions, guard: AddressGuard, roots: RootCerts) -> Agent {
    let config = Agent::config_builder()
        // The default reads HTTP_PROXY, and a proxy would look names up behind the guard's back.
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
        // A full buffer without the end of the headers is then called too large, not a lost connection.
        .max_response_header_size(INPUT_BUFFER - 1)
        .max_idle_connections(options.max_idle)
        .max_idle_connections_per_host(options.max_idle_per_host)
        .build();
    Agent::with_parts(config, DefaultConnector::default(), guard)
}

fn certificates(pem: &[u8]) -> Result<Vec<Certificate<'static>>, CertificateError> {
    let mut found = Vec::new();
    for item in parse_pem(pem) {
        match item {
            Ok(PemItem::Certificate(certificate)) => found.push(certificate),
            Ok(_) => {}
            Err(error) => return Err(error.into()),
        }
    }
    if found.is_empty() {
        return Err(CertificateError::Empty);
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use ureq::unversioned::resolver::DefaultResolver;

    use super::*;

    fn trust(ca_pem: Option<&str>) -> Result<TlsAgents, CertificateError> {
        let ca_pem = ca_pem.map(|pem| pem.as_bytes().to_vec());
        let options = ClientOptions { ca_pem, ..ClientOptions::default() };
        let monotonic: Monotonic = Arc::new(|| Duration::ZERO);
        let guard = AddressGuard::new(DefaultResolver::default(), options.policy.clone(), monotonic.clone());
        TlsAgents::new(&options, guard, monotonic)
    }

    #[test]
    fn no_agent_goes_through_a_proxy_or_follows_redirects() {
        let trust = trust(Some(CERTIFICATE)).unwrap();
        for agent in [&trust.web, &trust.home.as_ref().unwrap().agent] {
            assert!(agent.config().proxy().is_none());
            assert_eq!(agent.config().max_redirects(), 0);
            assert_eq!(agent.config().timeouts().global, Some(Duration::from_secs(30)));
        }
    }

    #[test]
    fn a_file_without_certificates_is_refused() {
        let broken = CERTIFICATE.replace('M', "!");
        for pem in ["", "not PEM", "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n", &broken]
        {
            assert!(trust(Some(pem)).is_err(), "{pem}");
        }
        assert!(trust(None).unwrap().home.is_none());
    }

    #[test]
    fn hosts_are_remembered_up_to_a_bound() {
        let home = trust(Some(CERTIFICATE)).unwrap().home.unwrap();
        (0..=MAX_REMEMBERED).for_each(|n| home.remember(format!("{n}.example"), true));
        assert_eq!(home.hosts().len(), MAX_REMEMBERED);
        home.remember("0.example".to_owned(), false);
        assert!(!home.hosts().contains("0.example"));
    }

    /// A certificate in form only; nothing here looks inside.
    const CERTIFICATE: &str = "-----BEGIN CERTIFICATE-----\nMAAA\n-----END CERTIFICATE-----\n";
}
