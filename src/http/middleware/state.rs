//! The state that all requests of one server share.

use std::net::IpAddr;
use std::sync::Arc;

use jiff::SignedDuration;
use tokio::sync::watch;

use crate::app::App;
use crate::domain::account::sliding_window::SlidingWindows;
use crate::http::limits::Shares;
use crate::http::middleware::browser_guard::BrowserGuard;
use crate::http::router::{Access, Route};
use crate::locks::Mutex;

/// Requests per minute and address without a valid key, whatever the plans say (contract §2.7).
pub const RATE_WITHOUT_KEY: u32 = 60;

/// The window of a minute that a request counts in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RateKey {
    /// The programs of a user, by row key.
    User(i64),
    /// The sessions of a user: an open page takes nothing from the user's programs.
    Sessions(i64),
    /// An address (IPv6: a /64).
    Address(IpAddr),
}

pub struct ServerState {
    pub app: Arc<App>,
    pub table: &'static [Route],
    pub rates: Mutex<SlidingWindows<RateKey>>,
    pub browser_guard: BrowserGuard,
    pub shares: Arc<Shares>,
    /// Becomes `true` when the server starts to shut down.
    pub stopping: watch::Receiver<bool>,
}

impl ServerState {
    /// The state of a server of `table`. Requests may name `allowed_hosts` beside the names of this machine; `None` permits
    /// all.
    pub fn new(
        app: Arc<App>,
        table: &'static [Route],
        allowed_hosts: Option<Vec<String>>,
        stopping: watch::Receiver<bool>,
    ) -> Self {
        let rates = SlidingWindows::new(RATE_WITHOUT_KEY, SignedDuration::from_mins(1));
        Self {
            table,
            rates: Mutex::new(rates),
            browser_guard: BrowserGuard::new(allowed_hosts, app.config.public_url.clone()),
            shares: Shares::new(app.config.http.max_buffered),
            stopping,
            app,
        }
    }

    /// Returns whether the routes with this access rule exist on this server.
    pub fn has_routes_of(&self, access: Access) -> bool {
        match access {
            Access::TestClock => self.app.clock.is_test(),
            Access::Asset => self.app.config.http.page,
            _ => true,
        }
    }
}
