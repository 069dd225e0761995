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

const NTH_WORKER: &str = "SELECT 1 FROM workers WHERE user_key = ?1 ORDER BY worker_id LIMIT 1 OFFSET ?2";

// Claims are few next to executions, and their index has no others.
const SILENT: &str = "SELECT user_key, worker_id FROM workers
    WHERE last_heartbeat <= ?1 AND (user_key, worker_id) NOT IN (
        SELECT user_key, claimed_by_worker FROM executions
         WHERE lease_expires_at IS NOT NULL AND claimed_by_worker IS NOT NULL)
    ORDER BY last_heartbeat LIMIT ?2 + 0";

// The second part reads deliveries of the user that began lately, which the delivery threads bound, and its claims.
const ANY_SEEN: &str = "SELECT EXISTS (SELECT 1 FROM workers WHERE user_key = ?1 AND last_heartbeat > ?2)
    OR EXISTS (SELECT 1 FROM executions
                WHERE status = 'delivering' AND user_key = ?1 AND last_attempt_at > ?2 AND claimed_by_worker IS NOT NULL)";

/// Returns whether a worker of the user has sent a heartbeat after `since`, or claimed an execution that it still holds.
pub fn is_any_seen(read: &ReadTx<'_>, user_key: i64, since: Timestamp) -> Result<bool> {
    Ok(read.prepare_cached(ANY_SEEN)?.query_row([user_key, millis(since)], |row| row.get(0))?)
}

/// Records a heartbeat of a known worker with its `handlers`, a JSON array. Returns `false` if the worker is unknown.
pub fn record_heartbeat(
    tx: &WriteTx<'_>,
    user_key: i64,
    worker_id: &str,
    handlers: &str,
    now: Timestamp,
) -> Result<bool> {
    let updated = tx
        .prepare_cached(
            "UPDATE workers SET handlers = ?3, last_heartbeat = ?4 WHERE user_key = ?1 AND worker_id = ?2",
        )?
        .execute(params![user_key, worker_id, handlers, millis(now)])?;
    Ok(updated > 0)
}

/// Registers a worker with its first heartbeat. `handlers` is a JSON array.
pub fn insert(
    tx: &WriteTx<'_>,
    user_key: i64,
    worker_id: &str,
    handlers: &str,
    now: Timestamp,
) -> Result<()> {
    tx.prepare_cached(
        "INSERT INTO workers (user_key, worker_id, handlers, last_heartbeat, registered_since)
         VALUES (?1, ?2, ?3, ?4, ?4)",
    )?
    .execute(params![user_key, worker_id, handlers, millis(now)])?;
    Ok(())
}

/// Returns whether the user has at least `count` workers. Reads no more than those.
pub fn has_at_least(read: &ReadTx<'_>, user_key: i64, count: i64) -> Result<bool> {
    Ok(read.prepare_cached(NTH_WORKER)?.exists([user_key, count - 1])?)
}

/// Deletes the user's worker that was silent longest, if its last heartbeat was at `until` or earlier. Returns `false` if
/// there is none.
pub fn delete_oldest(tx: &WriteTx<'_>, user_key: i64, until: Timestamp) -> Result<bool> {
    let deleted = tx
        .prepare_cached(
            "DELETE FROM workers WHERE user_key = ?1 AND worker_id = (
                 SELECT worker_id FROM workers WHERE user_key = ?1 AND last_heartbeat <= ?2
                  ORDER BY last_heartbeat, worker_id LIMIT 1)",
        )?
        .execute(params![user_key, millis(until)])?;
    Ok(deleted > 0)
}

/// A worker without a heartbeat for a long time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SilentWorker {
    user_key: i64,
    worker_id: String,
}

/// Workers of all users whose last heartbeat was at `until` or earlier and that hold no claim, at most `limit`.
pub fn list_silent(read: &ReadTx<'_>, until: Timestamp, limit: u32) -> Result<Vec<SilentWorker>> {
    let mut query = read.prepare_cached(SILENT)?;
    let silent = query.query_map(params![millis(until), limit], |row| {
        Ok(SilentWorker { user_key: row.get(0)?, worker_id: row.get(1)? })
    })?;
    Ok(silent.collect::<rusqlite::Result<Vec<_>>>()?)
}

/// Deletes `silent` workers, except those with a heartbeat after `until`.
pub fn delete_silent(tx: &WriteTx<'_>, silent: &[SilentWorker], until: Timestamp) -> Result<()> {
    let mut delete = tx.prepare_cached(
        "DELETE FROM workers WHERE user_key = ?1 AND worker_id = ?2 AND last_heartbeat <= ?3",
    )?;
    for SilentWorker { user_key, worker_id } in silent {
        delete.execute(params![user_key, worker_id, millis(until)])?;
    }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::test_support::plan;

    #[test]
    fn workers_are_counted_by_user_and_forgotten_by_age() {
        let steps = plan(ANY_SEEN);
        for index in [
            "workers USING PRIMARY KEY (user_key=?)",
            "executions_in_flight (user_key=? AND last_attempt_at>?)",
        ] {
            assert!(steps.iter().any(|step| step.starts_with("SEARCH") && step.contains(index)), "{steps:?}");
        }
        assert_eq!(plan(NTH_WORKER), ["SEARCH workers USING PRIMARY KEY (user_key=?)"]);
        let steps = plan(SILENT);
        assert_eq!(steps[0], "SEARCH workers USING COVERING INDEX workers_by_heartbeat (last_heartbeat<?)");
        assert!(steps.iter().any(|step| step.contains("executions_leased")), "{steps:?}");
        assert!(!steps.iter().any(|step| step.contains("ORDER BY")), "{steps:?}");
    }
}
