//! Worker heartbeats and removal.

use jiff::Timestamp;

use crate::app::App;
use crate::domain::api_error::ErrorCode;
use crate::error::Error;
use crate::store::Pending;
use crate::store::executions::workers;

/// Records a heartbeat of the user's worker and the tasks it handles; returns the server's time.
pub fn record_heartbeat(
    app: &App,
    user_key: i64,
    worker_id: String,
    handlers: Vec<String>,
) -> Pending<Timestamp> {
    let now = app.clock.now();
    app.store
        .write(move |tx| workers::record_heartbeat(tx, user_key, &worker_id, &handlers, now).map(|()| now))
}

/// Removes a worker of the user. Its claims last until their leases expire.
///
/// Refused with `worker_not_found`.
pub fn remove(app: &App, user_key: i64, worker_id: String) -> Pending<()> {
    app.store.write(move |tx| {
        if workers::delete(tx, user_key, &worker_id)? {
            Ok(())
        } else {
            Err(Error::refused(ErrorCode::WorkerNotFound, "Worker not found"))
        }
    })
}
