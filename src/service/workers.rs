//! Worker heartbeats and removal.

use jiff::Timestamp;

use crate::app::App;
use crate::domain::api_error::ErrorCode;
use crate::domain::execution::worker::DEAD_AFTER;
use crate::domain::time::saturating_sub;
use crate::error::Error;
use crate::service::events;
use crate::store::Pending;
use crate::store::executions::workers;

/// Records a heartbeat of the user's worker and the tasks it handles, a JSON array; returns the server's time. At the
/// limit of workers the oldest dead one gives way to a new one. Refused with `worker_limit_exceeded` if none is dead.
pub fn record_heartbeat(app: &App, user_key: i64, worker_id: String, handlers: String) -> Pending<Timestamp> {
    let (now, limit) = (app.clock.now(), app.config.plans.max_workers());
    app.store.write_for(user_key, move |tx| {
        events::worker_seen(tx, user_key, &worker_id, now)?;
        if workers::record_heartbeat(tx, user_key, &worker_id, &handlers, now)? {
            return Ok(now);
        }
        if let Some(limit) = limit
            && workers::has_at_least(tx, user_key, limit)?
            && !workers::delete_oldest(tx, user_key, saturating_sub(now, DEAD_AFTER))?
        {
            let message = format!(
                "The account has {limit} workers that are alive, which is the limit: let workers keep their worker_id \
                 across restarts, or remove one with DELETE /v1/workers/{{worker_id}}"
            );
            return Err(Error::refused(ErrorCode::WorkerLimitExceeded, message));
        }
        workers::insert(tx, user_key, &worker_id, &handlers, now)?;
        Ok(now)
    })
}

/// Removes a worker of the user. Its claims last until their leases expire. Refused with `worker_not_found`.
pub fn remove(app: &App, user_key: i64, worker_id: String) -> Pending<()> {
    app.store.write_for(user_key, move |tx| {
        if workers::delete(tx, user_key, &worker_id)? {
            Ok(())
        } else {
            Err(Error::refused(ErrorCode::WorkerNotFound, "Worker not found"))
        }
    })
}
