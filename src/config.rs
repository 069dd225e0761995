//! The settings of `cued serve` and their defaults.

use std::path::PathBuf;
use std::time::Duration;

use crate::billing::stripe::StripeConfig;
use crate::domain::account::plan::Plans;
use crate::domain::account::user::RegistrationPolicy;
use crate::domain::cue::retention::Retention;
use crate::domain::webhook::address_policy::{AddressPolicy, Cidr};
use crate::mail::MailTransport;

#[derive(Debug, Clone)]
pub struct Config {
    pub db: PathBuf,
    /// The start puts the file on hold (contract §1.6).
    pub held: bool,
    /// The address at which callers reach the server, without a trailing slash.
    pub public_url: String,
    /// `public_url` was given, not derived from the address of the listener.
    pub has_public_url: bool,
    /// A browser on this machine may sign in without a credential (`cued serve --dev`).
    pub dev: bool,
    /// `None` is what an operator has set, at first one user.
    pub registration: Option<RegistrationPolicy>,
    /// The folder for the backups of operators; `None` turns them off.
    pub backup_dir: Option<PathBuf>,
    pub callbacks: AddressPolicy,
    pub plans: Plans,
    pub retention: Retention,
    /// The payment provider; `None` is manual billing.
    pub stripe: Option<StripeConfig>,
    pub delivery_threads: usize,
    /// Extra certificate authorities that deliveries trust, in PEM format.
    pub callback_ca: Option<Vec<u8>>,
    pub mail: MailTransport,
    /// Mails in any hour, all together.
    pub max_mails: usize,
    pub http: HttpLimits,
}

impl Config {
    /// The settings that `cued serve` has without flags, for the database file `db`. They are safe on a network:
    /// one user can register, and callbacks reach public addresses only.
    pub fn new(db: PathBuf) -> Self {
        Self {
            db,
            held: false,
            public_url: "http://127.0.0.1:8000".to_owned(),
            has_public_url: false,
            dev: false,
            registration: None,
            backup_dir: None,
            callbacks: AddressPolicy::default(),
            plans: Plans::default(),
            retention: Retention::default(),
            stripe: None,
            delivery_threads: 64,
            callback_ca: None,
            mail: MailTransport::Log { stdout: false },
            max_mails: 200,
            http: HttpLimits::default(),
        }
    }
}

impl Config {
    /// The URL that the paths of the documentation come after, if the server has it. Without a public URL the paths stand
    /// alone: nobody knows the name that the caller has for this server.
    pub fn docs_base(&self) -> Option<&str> {
        let base = if self.has_public_url { self.public_url.as_str() } else { "" };
        self.http.page.then_some(base)
    }
}

/// Limits of the HTTP server (contract §11.2). The timeouts run on the system's clock, even under a test clock.
#[derive(Debug, Clone)]
pub struct HttpLimits {
    pub trusted_proxies: Vec<Cidr>,
    /// The hosts that a request may name; `None` permits all.
    pub allowed_hosts: Option<Vec<String>>,
    /// Further connections wait in the kernel's accept queue.
    pub max_connections: usize,
    /// Bytes of all bodies and replies under way. Without a bound, 4,096 connections with 2 MB each would need 8 GB.
    pub max_buffered: usize,
    pub header_time: Duration,
    pub idle_time: Duration,
    pub request_time: Duration,
    /// Time in which the client must take a part of a response. A client that reads takes some within a round trip.
    pub response_time: Duration,
    /// Maximum number of open event streams; 0 turns them off.
    pub max_streams: usize,
    /// Time between two signs of life on an event stream. A revoked key ends its streams within it.
    pub beat_interval: Duration,
    pub drain_time: Duration,
    pub page: bool,
}

impl Default for HttpLimits {
    fn default() -> Self {
        Self {
            trusted_proxies: Vec::new(),
            allowed_hosts: None,
            max_connections: 4_096,
            max_buffered: 64 << 20,
            header_time: Duration::from_secs(10),
            idle_time: Duration::from_secs(75),
            request_time: Duration::from_secs(30),
            response_time: Duration::from_secs(10),
            max_streams: 64,
            beat_interval: Duration::from_secs(15),
            drain_time: Duration::from_secs(30),
            page: true,
        }
    }
}
