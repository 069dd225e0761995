//! The state that all requests of one server share.

use std::sync::Arc;

use tokio::sync::watch;

use crate::app::App;
use crate::http::limits::body_wait::PollBodies;
use crate::http::limits::buffer_budget::BufferBudget;
use crate::http::limits::long_polls::LongPolls;
use crate::http::limits::request_share::Turns;
use crate::http::middleware::browser_guard::BrowserGuard;
use crate::http::middleware::rate_limiter::RateLimiter;
use crate::http::router::{Access, Route};

pub struct ServerState {
    pub app: Arc<App>,
    pub table: &'static [Route],
    pub rate_limiter: RateLimiter,
    pub browser_guard: BrowserGuard,
    /// Memory for bodies and replies under way.
    pub buffers: Arc<BufferBudget>,
    pub long_polls: Arc<LongPolls>,
    pub turns: Arc<Turns>,
    pub poll_bodies: Arc<PollBodies>,
    /// Becomes `true` when the server starts to shut down.
    pub stopping: watch::Receiver<bool>,
}

impl ServerState {
    /// Returns whether the routes with this access rule exist on this server.
    pub fn has_routes_of(&self, access: Access) -> bool {
        match access {
            Access::TestClock => self.app.clock.is_test(),
            Access::Asset => self.app.config.http.page,
            _ => true,
        }
    }
}
