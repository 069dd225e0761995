//! The HTTP agent of the client, and which certificates it trusts.

use std::path::PathBuf;
use std::time::Duration;

use thiserror::Error as ThisError;
use ureq::Agent;
use ureq::config::AutoHeaderValue;
use ureq::tls::{Certificate, PemItem, RootCerts, TlsConfig, parse_pem};

use crate::client::server_url::is_loopback;

/// Connections that are kept for the next request. A worker makes a request per slot at a time; beyond this number it opens
/// connections anew, which costs time and no correctness.
const KEPT_CONNECTIONS: usize = 32;

/// The certificates that are trusted; the public authorities by default.
#[derive(Debug, Clone, Default)]
pub struct TlsOptions {
    /// Only the authorities of this file, in PEM.
    pub ca: Option<PathBuf>,
    /// Any certificate.
    pub is_insecure: bool,
}

/// The file of `--ca` is not usable.
#[derive(Debug, ThisError)]
pub enum CertificateError {
    #[error("cannot read {path}: {source}")]
    File { path: PathBuf, source: std::io::Error },
    #[error("{path} is no certificate authority in PEM: {source}")]
    Pem { path: PathBuf, source: ureq::Error },
    #[error("{0} is no certificate authority in PEM: it has no `BEGIN CERTIFICATE` block")]
    Empty(PathBuf),
}

/// The agent for the server at `url`. A proxy of the environment (`HTTP_PROXY` and others) cannot reach a server on a
/// loopback address of this machine, and is not asked for it.
pub(in crate::client) fn agent(
    url: &str,
    options: &TlsOptions,
    connect: Duration,
) -> Result<Agent, CertificateError> {
    let roots = match &options.ca {
        None => RootCerts::WebPki,
        Some(path) => RootCerts::new_with_certs(&certificates(path)?),
    };
    let tls = TlsConfig::builder().root_certs(roots).disable_verification(options.is_insecure).build();
    let config = Agent::config_builder()
        // A redirect would send the key to another place.
        .max_redirects(0)
        .http_status_as_error(false)
        .timeout_connect(Some(connect))
        .tls_config(tls)
        .max_idle_connections_per_host(KEPT_CONNECTIONS)
        .user_agent(concat!("cued/", env!("CARGO_PKG_VERSION")))
        .accept(AutoHeaderValue::None)
        .accept_encoding(AutoHeaderValue::None);
    let config = if is_loopback(url) { config.proxy(None) } else { config };
    Ok(config.build().new_agent())
}

fn certificates(path: &PathBuf) -> Result<Vec<Certificate<'static>>, CertificateError> {
    let pem = std::fs::read(path).map_err(|source| CertificateError::File { path: path.clone(), source })?;
    let mut certificates = Vec::new();
    for item in parse_pem(&pem) {
        let item = item.map_err(|source| CertificateError::Pem { path: path.clone(), source })?;
        if let PemItem::Certificate(certificate) = item {
            certificates.push(certificate);
        }
    }
    if certificates.is_empty() {
        return Err(CertificateError::Empty(path.clone()));
    }
    Ok(certificates)
}
