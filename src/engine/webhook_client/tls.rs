//! The HTTP agents of the webhook client: some trust the public certificate authorities, the others those of
//! `--callback-ca`.
//!
//! An agent of the HTTP library has one set of authorities, hence two kinds of agents. Trying the second after the first is
//! safe, because a failed handshake has sent nothing.

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::MutexGuard;
use std::time::Duration;

use thiserror::Error as ThisError;
use ureq::config::AutoHeaderValue;
use ureq::http::{Request, Response};
use ureq::tls::{Certificate, PemItem, RootCerts, TlsConfig, parse_pem};
use ureq::unversioned::transport::DefaultConnector;
use ureq::{Agent, AsSendBody, Body, Error};

use crate::engine::webhook_client::address_guard::{AddressGuard, Monotonic};
use crate::engine::webhook_client::{ClientOptions, MAX_IDLE};
use crate::locks::Mutex;

/// Buffers of a connection. The library's default of 128 KiB each costs 310 KiB per running delivery, these 62 KiB. The
/// headers of a response must fit into the input buffer, or a delivered webhook would count as failed.
const INPUT_BUFFER: usize = 16 * 1024;
const OUTPUT_BUFFER: usize = 8 * 1024;
/// Agents with the same authorities. For each request an agent compares the hosts of all its idle connections with each
/// other, so its hosts should be few.
const AGENTS: usize = 4;
/// Maximum hosts in the set of [`PrivateCa`].
const MAX_REMEMBERED: usize = 1024;

/// The certificates of `--callback-ca` are not usable.
#[derive(Debug, ThisError)]
pub enum CertificateError {
    #[error("not a certificate authority in PEM: the PEM text cannot be read: {0}")]
    Pem(#[from] ureq::Error),
    #[error("not a certificate authority in PEM: no `BEGIN CERTIFICATE` block")]
    Empty,
}

/// Agents with the same authorities. Each host and port has one of them.
struct Agents(Vec<Agent>);

pub(in crate::engine) struct TlsAgents {
    public: Agents,
    private: Option<PrivateCa>,
}

struct PrivateCa {
    agents: Agents,
    timeout: Duration,
    monotonic: Monotonic,
    /// Hosts whose certificate the private authorities issued last time: their agent goes first.
    hosts: Mutex<HashSet<String>>,
}

impl Agents {
    fn new(options: &ClientOptions, guard: &AddressGuard, roots: &RootCerts) -> Self {
        Self((0..AGENTS).map(|_| agent(options, guard.clone(), roots.clone())).collect())
    }

    fn of(&self, authority: &str) -> &Agent {
        let mut hasher = DefaultHasher::new();
        authority.hash(&mut hasher);
        &self.0[hasher.finish() as usize % self.0.len()]
    }
}

impl TlsAgents {
    pub fn new(
        options: &ClientOptions,
        guard: AddressGuard,
        monotonic: Monotonic,
    ) -> Result<Self, CertificateError> {
        let private = match &options.ca_pem {
            None => None,
            Some(pem) => Some(PrivateCa {
                agents: Agents::new(options, &guard, &RootCerts::new_with_certs(&certificates(pem)?)),
                timeout: options.timeout,
                monotonic,
                hosts: Mutex::default(),
            }),
        };
        Ok(Self { public: Agents::new(options, &guard, &RootCerts::WebPki), private })
    }

    /// Runs one request. If the first agent does not trust the certificate, the other one tries.
    pub fn run<B: AsSendBody + Clone>(&self, request: Request<B>) -> Result<Response<Body>, Error> {
        let host = request.uri().authority().map(ToString::to_string).unwrap_or_default();
        let Some(private) = &self.private else { return self.public.of(&host).run(request) };
        let is_private = private.hosts().contains(&host);
        let (public, of_private) = (self.public.of(&host), private.agents.of(&host));
        let (first, second) = if is_private { (of_private, public) } else { (public, of_private) };
        let started = (private.monotonic)();
        match first.run(request.clone()) {
            Err(error) if is_untrusted(&error) => {}
            answer => return answer,
        }
        let left = private.timeout.saturating_sub((private.monotonic)().saturating_sub(started));
        let response = second.run(second.configure_request(request).timeout_global(Some(left)).build())?;
        private.remember(host, !is_private);
        Ok(response)
    }
}

impl PrivateCa {
    fn hosts(&self) -> MutexGuard<'_, HashSet<String>> {
        self.hosts.lock()
    }

    fn remember(&self, host: String, is_private: bool) {
        let mut hosts = self.hosts();
        if !is_private {
            hosts.remove(&host);
        } else if hosts.len() < MAX_REMEMBERED {
            hosts.insert(host);
        }
    }
}

/// Returns whether the handshake failed because no trusted authority issued the certificate.
fn is_untrusted(error: &Error) -> bool {
    // The error type of the TLS library is not accessible here. Only this error begins with these words.
    match error {
        Error::Io(error) => error.to_string().starts_with("invalid peer certificate"),
        Error::Rustls(error) => error.to_string().starts_with("invalid peer certificate"),
        _ => false,
    }
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

    fn agents(ca_pem: Option<&str>) -> Result<TlsAgents, CertificateError> {
        let ca_pem = ca_pem.map(|pem| pem.as_bytes().to_vec());
        let options = ClientOptions { ca_pem, ..ClientOptions::default() };
        let monotonic: Monotonic = Arc::new(|| Duration::ZERO);
        let guard = AddressGuard::new(DefaultResolver::default(), options.policy.clone(), monotonic.clone());
        TlsAgents::new(&options, guard, monotonic)
    }

    #[test]
    fn no_agent_goes_through_a_proxy_or_follows_redirects_and_a_private_authority_adds_to_the_public_ones() {
        assert!(agents(None).unwrap().private.is_none());
        let agents = agents(Some(&CERTIFICATE.repeat(2))).unwrap();
        let (public, private) = (&agents.public.0[0], &agents.private.as_ref().unwrap().agents.0[0]);
        for agent in [public, private] {
            assert!(agent.config().proxy().is_none());
            assert_eq!(agent.config().max_redirects(), 0);
            assert_eq!(agent.config().timeouts().global, Some(Duration::from_secs(30)));
        }
        let roots = [public, private].map(|agent| agent.config().tls_config().root_certs().clone());
        assert!(matches!(&roots, [RootCerts::WebPki, RootCerts::Specific(given)] if given.len() == 2));
    }

    #[test]
    fn a_file_without_certificates_is_refused() {
        let broken = CERTIFICATE.replace('M', "!");
        for pem in ["", "not PEM", "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n", &broken]
        {
            assert!(agents(Some(pem)).is_err(), "{pem}");
        }
    }

    #[test]
    fn hosts_are_remembered_up_to_a_bound() {
        let private = agents(Some(CERTIFICATE)).unwrap().private.unwrap();
        (0..=MAX_REMEMBERED).for_each(|n| private.remember(format!("{n}.example"), true));
        assert_eq!(private.hosts().len(), MAX_REMEMBERED);
        private.remember("0.example".to_owned(), false);
        assert!(!private.hosts().contains("0.example"));
    }

    /// A certificate in form only; nothing here looks inside.
    const CERTIFICATE: &str = "-----BEGIN CERTIFICATE-----\nMAAA\n-----END CERTIFICATE-----\n";
}
