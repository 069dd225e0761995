//! The state that all requests of one server share.

use std::sync::Arc;

use tokio::sync::{Semaphore, watch};

use crate::app::App;
use crate::http::middleware::rate_limiter::RateLimiter;
use crate::http::router::Route;

pub struct ServerState {
    pub app: Arc<App>,
    pub table: &'static [Route],
    pub rate_limiter: RateLimiter,
    /// Bytes of request bodies that may be in memory at once (`input::body::BUDGET`).
    pub body_budget: Arc<Semaphore>,
    /// Becomes `true` when the server starts to shut down.
    pub stopping: watch::Receiver<bool>,
}
