//! Workers, registered by their first heartbeat.

use jiff::Timestamp;
use rusqlite::{Row, params};

use crate::domain::execution::worker::Worker;
use crate::error::Result;
use crate::store::db::columns::{instant, invalid_column, millis};
use crate::store::{ReadTx, WriteTx};

/// Workers in one list. The list has no pages, so its length needs a bound; a user with more workers sees those with
/// the latest heartbeats. 1,000 is far above the workers of one user in practice and keeps the response small; it is a
/// choice, not a measurement.
const MAX_LISTED: u32 = 1_000;

/// Records a heartbeat. Registers the worker if it is new.
pub fn record_heartbeat(
    tx: &WriteTx<'_>,
    user_key: i64,
    worker_id: &str,
    handlers: &[String],
    now: Timestamp,
) -> Result<()> {
    tx.prepare_cached(
        "INSERT INTO workers (user_key, worker_id, handlers, last_heartbeat, registered_since)
         VALUES (?1, ?2, ?3, ?4, ?4)
         ON CONFLICT (user_key, worker_id)
         DO UPDATE SET handlers = excluded.handlers, last_heartbeat = excluded.last_heartbeat",
    )?
    .execute(params![
        user_key,
        worker_id,
        serde_json::Value::from(handlers).to_string(),
        millis(now)
    ])?;
    Ok(())
}

/// The user's workers, latest heartbeat first, at most a thousand.
pub fn list(read: &ReadTx<'_>, user_key: i64) -> Result<Vec<Worker>> {
    Ok(read
        .prepare_cached(
            "SELECT worker_id, handlers, last_heartbeat, registered_since FROM workers
              WHERE user_key = ?1 ORDER BY last_heartbeat DESC, worker_id LIMIT ?2 + 0",
        )?
        .query_map(params![user_key, MAX_LISTED], read_worker)?
        .collect::<rusqlite::Result<Vec<_>>>()?)
}

/// Deletes a worker. Returns `false` if there is none with this id.
pub fn delete(tx: &WriteTx<'_>, user_key: i64, worker_id: &str) -> Result<bool> {
    let deleted = tx
        .prepare_cached("DELETE FROM workers WHERE user_key = ?1 AND worker_id = ?2")?
        .execute(params![user_key, worker_id])?;
    Ok(deleted == 1)
}

fn read_worker(row: &Row<'_>) -> rusqlite::Result<Worker> {
    let handlers = serde_json::from_str(row.get_ref("handlers")?.as_str()?)
        .map_err(|error| invalid_column(&error.to_string()))?;
    Ok(Worker {
        worker_id: row.get("worker_id")?,
        handlers,
        last_heartbeat: instant(row, "last_heartbeat")?,
        registered_since: instant(row, "registered_since")?,
    })
}
