//! The settings of a webhook client.

use std::time::Duration;

use crate::domain::webhook::address_policy::AddressPolicy;

#[derive(Debug, Clone)]
pub struct ClientOptions {
    pub policy: AddressPolicy,
    /// Limit for a whole exchange, including DNS.
    pub timeout: Duration,
    /// Default of the `User-Agent` header.
    pub user_agent: String,
    /// Certificate authorities in PEM that are trusted in addition to the public ones.
    pub ca_pem: Option<Vec<u8>>,
    /// Maximum idle connections. Twice the default number of delivery threads, so that two herds to different hosts both
    /// find theirs open.
    pub max_idle: usize,
    /// Maximum idle connections to one host and port: one for each of the default 64 delivery threads.
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
