//! Workers, registered by their first heartbeat.

use jiff::Timestamp;
use rusqlite::{Row, params};

use crate::domain::execution::worker::Worker;
use crate::domain::json::JsonText;
use crate::error::Result;
use crate::store::db::columns::{instant, millis};
use crate::store::{MAX_LIST_BYTES, ReadTx, WriteTx};

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

/// The user's workers, latest heartbeat first, at most a thousand and [`MAX_LIST_BYTES`], and whether there are more.
pub fn list(read: &ReadTx<'_>, user_key: i64) -> Result<(Vec<Worker>, bool)> {
    let mut statement = read.prepare_cached(
        "SELECT worker_id, handlers, last_heartbeat, registered_since FROM workers
          WHERE user_key = ?1 ORDER BY last_heartbeat DESC, worker_id LIMIT ?2 + 0",
    )?;
    let mut rows = statement.query(params![user_key, MAX_LISTED + 1])?;
    let (mut workers, mut bytes) = (Vec::new(), 0);
    while let Some(row) = rows.next()? {
        if bytes > MAX_LIST_BYTES || workers.len() >= MAX_LISTED as usize {
            return Ok((workers, true));
        }
        let worker = read_worker(row)?;
        bytes += worker.worker_id.len() + worker.handlers.as_str().len();
        workers.push(worker);
    }
    Ok((workers, false))
}

/// Deletes a worker. Returns `false` if there is none with this id.
pub fn delete(tx: &WriteTx<'_>, user_key: i64, worker_id: &str) -> Result<bool> {
    let deleted = tx
        .prepare_cached("DELETE FROM workers WHERE user_key = ?1 AND worker_id = ?2")?
        .execute(params![user_key, worker_id])?;
    Ok(deleted == 1)
}

fn read_worker(row: &Row<'_>) -> rusqlite::Result<Worker> {
    Ok(Worker {
        worker_id: row.get("worker_id")?,
        handlers: JsonText::stored(row.get("handlers")?),
        last_heartbeat: instant(row, "last_heartbeat")?,
        registered_since: instant(row, "registered_since")?,
    })
}
