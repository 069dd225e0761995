//! A certificate authority, and the TLS servers with its certificates.

use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, date_time_ymd};
use rustls::crypto::ring::default_provider;
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};

/// A server's side of a TLS connection.
pub type TlsStream = StreamOwned<ServerConnection, TcpStream>;

pub struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    pub fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        // A name of its own: certificates name their issuer, and authorities are told apart by it.
        static NUMBER: AtomicU32 = AtomicU32::new(1);
        let name = format!("authority {}", NUMBER.fetch_add(1, Ordering::Relaxed));
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Self(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    /// The certificate of the authority, as `--callback-ca` reads it.
    pub fn pem(&self) -> String {
        self.0.pem()
    }

    /// A server with a valid certificate for this name.
    pub fn server(&self, name: &str) -> Arc<ServerConfig> {
        self.server_until(name, 2100)
    }

    /// A server with a certificate that expires with the beginning of a year.
    pub fn server_until(&self, name: &str, year: i32) -> Arc<ServerConfig> {
        let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        params.not_before = date_time_ymd(2000, 1, 1);
        params.not_after = date_time_ymd(year, 1, 1);
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.0).unwrap();
        let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key.serialize_der()));
        let config = ServerConfig::builder_with_provider(Arc::new(default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![certificate.der().clone()], key);
        Arc::new(config.unwrap())
    }
}

/// The handshake takes place with the first byte that is read or written.
pub fn secure(stream: TcpStream, config: &Arc<ServerConfig>) -> TlsStream {
    StreamOwned::new(ServerConnection::new(Arc::clone(config)).unwrap(), stream)
}
