//! The settings of a webhook client.

use std::time::Duration;

use crate::domain::webhook::address_policy::AddressPolicy;

/// What a courier may do and how long it may take.
#[derive(Debug, Clone)]
pub struct ClientOptions {
    /// The addresses that may be reached.
    pub policy: AddressPolicy,
    /// The time for a whole exchange, name look-up included.
    pub timeout: Duration,
    /// Sent where the parcel has no `User-Agent`.
    pub user_agent: String,
    /// Certificates in PEM that are trusted beside the web's certificate authorities.
    pub ca_pem: Option<Vec<u8>>,
    /// The most idle connections that are kept open, in all and to one host and port.
    pub max_idle: usize,
    /// The most idle connections that are kept open to one host and port.
    pub max_idle_per_host: usize,
}

impl Default for ClientOptions {
    fn default() -> Self {
        Self {
            policy: AddressPolicy::default(),
            timeout: Duration::from_secs(30),
            user_agent: concat!("cued/", env!("CARGO_PKG_VERSION")).to_owned(),
            ca_pem: None,
            max_idle: 128,
            max_idle_per_host: 64,
        }
    }
}
