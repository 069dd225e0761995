use jiff::Timestamp;
use serde_json::json;

use crate::domain::execution::worker::Worker;
use crate::domain::row_keys::UserKey;
use crate::error::Result;
use crate::store::db::columns::{row, select};
use crate::store::{MAX_LIST_BYTES, ReadTx, WriteTx};

/// Workers in one list, which has no pages; the latest heartbeats first. A choice, not a measurement.
const MAX_LISTED: u32 = 1_000;

const NTH_WORKER: &str =
    "SELECT 1 FROM workers WHERE user_key = ?1 ORDER BY worker_id LIMIT 1 OFFSET ?2";

// Claims are few next to executions, and their index has no others.
const SILENT: &str = "SELECT user_key, worker_id FROM workers
    WHERE last_heartbeat <= ?1 AND (user_key, worker_id) NOT IN (
        SELECT user_key, claimed_by_worker FROM executions
         WHERE lease_expires_at IS NOT NULL AND claimed_by_worker IS NOT NULL)
    ORDER BY last_heartbeat LIMIT ?2 + 0";

// The second part reads deliveries of the user that began lately, which the delivery threads bound, and its claims.
const TAKER_SEEN: &str = "SELECT EXISTS (SELECT 1 FROM workers WHERE user_key = ?1 AND last_heartbeat > ?2
                      AND (handlers = '[]' OR instr(handlers, ?3) > 0))
    OR EXISTS (SELECT 1 FROM executions
                WHERE status = 'delivering' AND user_key = ?1 AND last_attempt_at > ?2 AND claimed_by_worker IS NOT NULL
                  AND task IS ?4)";

/// Returns whether a worker was seen that takes runs of the task: one that names it, or none at all.
pub fn is_taker_seen(
    read: &ReadTx<'_>,
    user_key: UserKey,
    task: Option<&str>,
    since: Timestamp,
) -> Result<bool> {
    // As in the array, with its quotes: a search of the text is faster than to read a thousand arrays.
    let element = task.map(|task| json!(task).to_string());
    read.one(TAKER_SEEN, (user_key, since, element, task))
}

pub fn record_heartbeat(
    tx: &WriteTx<'_>,
    user_key: UserKey,
    worker_id: &str,
    handlers: &str,
    now: Timestamp,
) -> Result<bool> {
    tx.changes(
        "UPDATE workers SET handlers = ?3, last_heartbeat = ?4 WHERE user_key = ?1 AND worker_id = ?2",
        (user_key, worker_id, handlers, now),
    )
}

/// Registers a worker with its first heartbeat. `handlers` is a JSON array.
pub fn insert(
    tx: &WriteTx<'_>,
    user_key: UserKey,
    worker_id: &str,
    handlers: &str,
    now: Timestamp,
) -> Result<()> {
    let columns = "user_key, worker_id, handlers, last_heartbeat, registered_since";
    tx.insert("workers", columns, (user_key, worker_id, handlers, now, now)).map(drop)
}

pub fn has_at_least(read: &ReadTx<'_>, user_key: UserKey, count: i64) -> Result<bool> {
    read.any(NTH_WORKER, (user_key, count - 1))
}

/// If its last heartbeat was at `until` or earlier. Returns `false` if there is none.
pub fn delete_oldest(tx: &WriteTx<'_>, user_key: UserKey, until: Timestamp) -> Result<bool> {
    tx.changes(
        "DELETE FROM workers WHERE user_key = ?1 AND worker_id = (
                 SELECT worker_id FROM workers WHERE user_key = ?1 AND last_heartbeat <= ?2
                  ORDER BY last_heartbeat, worker_id LIMIT 1)",
        (user_key, until),
    )
}

row! {
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SilentWorker {
    user_key: UserKey,
    worker_id: String,
} }
row!(columns, "", Worker { worker_id, handlers, last_heartbeat, registered_since });

pub fn list_silent(read: &ReadTx<'_>, until: Timestamp, limit: u32) -> Result<Vec<SilentWorker>> {
    read.all(SILENT, (until, limit))
}

pub fn delete_silent(tx: &WriteTx<'_>, silent: &[SilentWorker], until: Timestamp) -> Result<()> {
    let sql = "DELETE FROM workers WHERE user_key = ?1 AND worker_id = ?2 AND last_heartbeat <= ?3";
    silent.iter().try_for_each(|worker| tx.run(sql, (worker.user_key, &worker.worker_id, until)))
}

/// The user's workers, latest heartbeat first, at most a thousand and [`MAX_LIST_BYTES`], and whether there are more.
pub fn list(read: &ReadTx<'_>, user_key: UserKey) -> Result<(Vec<Worker>, bool)> {
    let sql = select!(
        columns,
        "FROM workers WHERE user_key = ?1 ORDER BY last_heartbeat DESC, worker_id LIMIT ?2 + 0"
    );
    read.page(sql, (user_key, MAX_LISTED + 1), MAX_LISTED, MAX_LIST_BYTES)
}

pub fn delete(tx: &WriteTx<'_>, user_key: UserKey, worker_id: &str) -> Result<bool> {
    tx.changes("DELETE FROM workers WHERE user_key = ?1 AND worker_id = ?2", (user_key, worker_id))
}

#[cfg(test)]
crate::store::test_support::plan_test! { workers_are_counted_by_user_and_forgotten_by_age:
    TAKER_SEEN => "SEARCH workers USING PRIMARY KEY (user_key=?)",
    TAKER_SEEN => "executions_in_flight (user_key=? AND last_attempt_at>?)",
    NTH_WORKER => "SEARCH workers USING PRIMARY KEY (user_key=?)",
    SILENT => "SEARCH workers USING INDEX workers_by_heartbeat (last_heartbeat<?)",
    SILENT => "executions_leased",
    SILENT => "LIST SUBQUERY",
}
