//! The settings of a webhook client.

use std::time::Duration;

use crate::domain::webhook::address_policy::AddressPolicy;

/// Maximum idle connections: four for each of the default 64 delivery threads, so that herds to different hosts find theirs
/// open.
pub const MAX_IDLE: usize = 256;

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
