//! Time limits for futures, measured by the system clock.

use std::time::Duration;

use tokio::time::{Instant, timeout, timeout_at};

/// Runs `future` for at most `limit`. Returns `None` if it does not finish in time.
pub async fn within<F: Future>(limit: Duration, future: F) -> Option<F::Output> {
    timeout(limit, future).await.ok()
}

/// Runs `future` until `deadline`. Returns `None` if it does not finish in time.
pub async fn until<F: Future>(deadline: Instant, future: F) -> Option<F::Output> {
    timeout_at(deadline, future).await.ok()
}
