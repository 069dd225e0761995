//! Deletion of history and of cues, in batches of a few milliseconds. Only finished executions are deleted. A deleted
//! cue disappears for every reader at once, its rows follow.

use jiff::Timestamp;

use crate::domain::row_keys::{CueKey, ExecutionKey, UserKey};
use crate::domain::time::EARLIEST_CLOCK;
use crate::error::Result;
use crate::store::cues::flows;
use crate::store::cues::{
    self, OLDEST_FIRST, SharedPayload, current_payload_key, find_shared_payload,
};
use crate::store::db::columns::{FromRow, ToRow, row_count};
use crate::store::db::meta;
use crate::store::{ReadTx, WakeSet, WriteTx};

/// Rows of one batch. A larger one delays requests longer; 200 rows need a few milliseconds.
const BATCH: i64 = 200;

/// Bytes after which a batch ends early: freeing the pages of large values lasts longer than deleting rows. 4,096
/// pages.
const MAX_BYTES: i64 = 4 << 20;

/// Pages released in one write: 1 MiB. Each is moved through the log, so a larger number delays other writes longer.
const MAX_PAGES: i64 = 1_024;

const SCAN_ALL: &str = "SELECT key, status = 'success' OR status = 'failed', created_at, updated_at
   FROM executions WHERE key > ?1 ORDER BY key LIMIT ?2 + 0";

const SURPLUS: &str =
    "SELECT key FROM executions WHERE cue_key = ?1 ORDER BY key DESC LIMIT 1 OFFSET ?2";

const SCAN_CUE: &str = "SELECT key, status = 'success' OR status = 'failed'
   FROM executions WHERE cue_key = ?1 AND key > ?2 AND key <= ?3 ORDER BY key LIMIT ?4 + 0";

// The cue may already be deleted.
const DELETABLE: &str =
    "SELECT e.cue_key, iif(p.is_single_use = 1, p.key, NULL), p.is_single_use = 0 AND c.payload_key IS NOT p.key
   FROM executions e LEFT JOIN payloads p ON p.key = e.payload_key LEFT JOIN cues c ON c.key = e.cue_key
  WHERE e.key = ?1 AND (e.status = 'success' OR e.status = 'failed')";

const DELETE_OUTCOME: &str = "DELETE FROM outcomes WHERE execution_key = ?1
    RETURNING coalesce(octet_length(result), 0) + coalesce(octet_length(error), 0)
        + coalesce(octet_length(metadata), 0) + coalesce(octet_length(evidence), 0)";

// Before the foreign key does it, to know the size.
const DELETE_ATTEMPTS: &str = "DELETE FROM attempts WHERE execution_key = ?1
    RETURNING coalesce(octet_length(response_body), 0) + coalesce(octet_length(response_headers), 0)
        + coalesce(octet_length(error_message), 0)";

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HistoryScan {
    pub deletable: Vec<ExecutionKey>,
    pub last_key: Option<ExecutionKey>,
    /// The creation time of the first execution that is not old enough; `None` if the scan did not reach it.
    pub first_unexpired: Option<Timestamp>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PageUsage {
    pub pages: i64,
    pub free: i64,
}

pub fn first_queued(read: &ReadTx<'_>) -> Result<Option<CueKey>> {
    read.find("SELECT cue_key FROM retention_queue ORDER BY cue_key LIMIT 1", ())
}

pub fn queued_cues(read: &ReadTx<'_>) -> Result<Vec<CueKey>> {
    read.all("SELECT cue_key FROM retention_queue ORDER BY cue_key LIMIT ?1 + 0", [BATCH])
}

/// Returns false, and leaves the cue, if its history has grown beyond `scanned_up_to` or more superseded payloads
/// remain.
pub fn remove_from_queue(
    tx: &WriteTx<'_>,
    cue_key: CueKey,
    scanned_up_to: ExecutionKey,
    runs: Option<u32>,
) -> Result<bool> {
    let has_grown = surplus(tx, cue_key, runs)?.is_some_and(|surplus| surplus > scanned_up_to);
    if has_grown || !delete_superseded_payloads(tx, cue_key)? {
        return Ok(false);
    }
    tx.run("DELETE FROM retention_queue WHERE cue_key = ?1", [cue_key])?;
    Ok(true)
}

/// The newest execution of a cue beyond the `runs` that are retained. `None` if there is none, or no limit.
pub fn surplus(
    read: &ReadTx<'_>,
    cue_key: CueKey,
    runs: Option<u32>,
) -> Result<Option<ExecutionKey>> {
    let Some(runs) = runs else { return Ok(None) };
    read.find(SURPLUS, (cue_key, runs))
}

pub fn scan_history(
    read: &ReadTx<'_>,
    cue_key: CueKey,
    after: ExecutionKey,
    surplus: ExecutionKey,
) -> Result<HistoryScan> {
    let mut scan = HistoryScan::default();
    for (key, is_over) in read.all(SCAN_CUE, (cue_key, after, surplus, BATCH))? {
        scan.add(key, is_over);
    }
    Ok(scan)
}

/// Keys grow with time: an execution is at least as new as `newest`, the newest creation before it, whatever its own
/// date says. One dated after `now`, or before any clock was set, stays.
pub fn scan_expired(
    read: &ReadTx<'_>,
    after: ExecutionKey,
    newest: &mut Timestamp,
    expired: Timestamp,
    now: Timestamp,
) -> Result<HistoryScan> {
    let mut scan = HistoryScan::default();
    let batch: Vec<(ExecutionKey, bool, Timestamp, Timestamp)> =
        read.all(SCAN_ALL, (after, BATCH))?;
    for (key, is_over, created_at, ended_at) in batch {
        let is_ahead = created_at > now;
        if !is_ahead {
            *newest = created_at.max(*newest);
        }
        if *newest > expired {
            scan.first_unexpired = Some(created_at);
            break;
        }
        let is_dated = !is_ahead && *newest >= EARLIEST_CLOCK;
        scan.add(key, is_dated && ended_at <= expired && is_over);
    }
    Ok(scan)
}

/// Stops at the size limit of a batch. Returns how many it has processed: at least one. Unfinished ones stay.
pub fn delete_executions(tx: &WriteTx<'_>, keys: &[ExecutionKey]) -> Result<usize> {
    delete_within_limit(keys, |key| {
        let found: Option<(CueKey, Option<i64>, Option<bool>)> = tx.find(DELETABLE, [key])?;
        let Some((cue_key, single_use_payload, has_superseded_payload)) = found else {
            return Ok(0);
        };
        if has_superseded_payload == Some(true) {
            cues::queue_for_retention(tx, cue_key)?;
        }
        let payload_bytes =
            single_use_payload.map_or(Ok(0), |payload| cues::delete_payload(tx, payload))?;
        Ok(payload_bytes + delete_execution(tx, key)?)
    })
}

pub(in crate::store) fn delete_execution(tx: &WriteTx<'_>, key: ExecutionKey) -> Result<i64> {
    let outcome: Option<i64> = tx.find(DELETE_OUTCOME, [key])?;
    let attempts: Vec<i64> = tx.all(DELETE_ATTEMPTS, [key])?;
    tx.run("DELETE FROM executions WHERE key = ?1", [key])?;
    Ok(outcome.unwrap_or(0) + attempts.iter().sum::<i64>())
}

/// The number of retained executions per cue at the last complete scan of the cues; `None` if there was no limit.
pub fn retained_runs(read: &ReadTx<'_>) -> Result<Option<i64>> {
    meta::find(read, "retained_runs")
}

pub fn set_retained_runs(tx: &WriteTx<'_>, runs: Option<i64>) -> Result<()> {
    meta::set(tx, "retained_runs", runs)
}

pub fn queue_cues(tx: &WriteTx<'_>, after: CueKey, up_to: CueKey, runs: i64) -> Result<()> {
    let sql = "INSERT INTO retention_queue (cue_key)
               SELECT key FROM cues WHERE key > ?1 AND key <= ?2 AND run_count > ?3 ON CONFLICT DO NOTHING";
    tx.run(sql, (after, up_to, runs))
}

pub fn last_cue_key(read: &ReadTx<'_>) -> Result<CueKey> {
    read.one("SELECT coalesce(max(key), 0) FROM cues", ())
}

pub fn page_usage(read: &ReadTx<'_>) -> Result<PageUsage> {
    Ok(PageUsage {
        pages: read.one("PRAGMA page_count", ())?,
        free: read.one("PRAGMA freelist_count", ())?,
    })
}

/// Returns how many. The file itself shrinks at the next checkpoint.
pub fn release_free_pages(tx: &WriteTx<'_>) -> Result<i64> {
    let before = page_usage(tx)?.free;
    let mut vacuum = tx.prepare(&format!("PRAGMA incremental_vacuum({MAX_PAGES})"))?;
    let mut pages = vacuum.raw_query();
    while pages.next()?.is_some() {}
    Ok(before - page_usage(tx)?.free)
}

impl HistoryScan {
    fn add(&mut self, key: ExecutionKey, is_deletable: bool) {
        if is_deletable {
            self.deletable.push(key);
        }
        self.last_key = Some(key);
    }
}

const SUPERSEDED_PAYLOADS: &str = "SELECT key FROM payloads
    WHERE cue_key = ?1 AND is_single_use = 0 AND key < ?3 ORDER BY key LIMIT ?2 + 0";

const PAYLOADS: &str = "SELECT key FROM payloads WHERE cue_key = ?1 LIMIT ?2 + 0";

// Newest first: executions that still wait to be sent or claimed are usually the newest.
const CUE_EXECUTIONS: &str =
    "SELECT key FROM executions WHERE cue_key = ?1 ORDER BY key DESC LIMIT ?2 + 0";

const CUE_MISSED: &str = "SELECT key FROM missed_runs WHERE cue_key = ?1 LIMIT ?2 + 0";

/// Deletes a cue of the user and the first batch of its rows. Returns false if there is no such cue.
pub fn delete_cue(tx: &WriteTx<'_>, user_key: UserKey, id: &str) -> Result<bool> {
    let Some(cue_key) = remove_cue(tx, user_key, id)? else { return Ok(false) };
    if !erase_batch(tx, cue_key)? {
        wake_eraser(tx);
    }
    Ok(true)
}

/// As [`delete_cue`], but leaves all rows of the cue to the background task. For many cues in one write.
pub fn delete_cue_later(tx: &WriteTx<'_>, user_key: UserKey, id: &str) -> Result<bool> {
    let is_deleted = remove_cue(tx, user_key, id)?.is_some();
    if is_deleted {
        wake_eraser(tx);
    }
    Ok(is_deleted)
}

pub fn delete_first_cues(tx: &WriteTx<'_>, user_key: UserKey, limit: u32) -> Result<bool> {
    let ids: Vec<String> =
        tx.all("SELECT id FROM cues WHERE user_key = ?1 LIMIT ?2 + 0", (user_key, limit))?;
    for id in &ids {
        delete_cue_later(tx, user_key, id)?;
    }
    Ok(u32::try_from(ids.len()) == Ok(limit))
}

fn remove_cue(tx: &WriteTx<'_>, user_key: UserKey, id: &str) -> Result<Option<CueKey>> {
    let Some(cue_key) = cues::find_key(tx, user_key, id)? else { return Ok(None) };
    flows::leave(tx, cue_key)?;
    tx.run("DELETE FROM cues WHERE key = ?1", [cue_key])?;
    tx.run("DELETE FROM retention_queue WHERE cue_key = ?1", [cue_key])?;
    // First: the trigger that subtracts the bytes of a payload finds the user by it.
    tx.run("INSERT INTO deleted_cues (cue_key, user_key) VALUES (?1, ?2)", (cue_key, user_key))?;
    Ok(Some(cue_key))
}

fn wake_eraser(tx: &WriteTx<'_>) {
    tx.wake(WakeSet { schedule: Some(Timestamp::MIN), ..WakeSet::default() });
}

pub fn first_deleted_cue(read: &ReadTx<'_>) -> Result<Option<CueKey>> {
    read.find("SELECT cue_key FROM deleted_cues ORDER BY cue_key LIMIT 1", ())
}

pub fn has_deleted_cues(read: &ReadTx<'_>, user_key: UserKey) -> Result<bool> {
    read.any("SELECT 1 FROM deleted_cues WHERE user_key = ?1", [user_key])
}

pub fn erase_batch(tx: &WriteTx<'_>, cue_key: CueKey) -> Result<bool> {
    let has_no_execution =
        delete_matching(tx, CUE_EXECUTIONS, (cue_key, BATCH), |key| delete_execution(tx, key))?;
    let is_done = has_no_execution
        && delete_payloads(tx, cue_key)?
        && delete_matching(tx, CUE_MISSED, (cue_key, BATCH), |key: i64| {
            tx.run("DELETE FROM missed_runs WHERE key = ?1", [key])?;
            Ok(0)
        })?;
    if is_done {
        tx.run("DELETE FROM deleted_cues WHERE cue_key = ?1", [cue_key])?;
    }
    Ok(is_done)
}

/// Returns `true` if none is left, or if the oldest executions do not show which are in use: then it deletes none.
fn delete_superseded_payloads(tx: &WriteTx<'_>, cue_key: CueKey) -> Result<bool> {
    let oldest_in_use = match find_shared_payload(tx, OLDEST_FIRST, cue_key)? {
        SharedPayload::Found(oldest) => oldest,
        SharedPayload::None => current_payload_key(tx, cue_key)?.unwrap_or(i64::MAX),
        SharedPayload::Unknown => return Ok(true),
    };
    delete_matching(tx, SUPERSEDED_PAYLOADS, (cue_key, BATCH, oldest_in_use), |key| {
        cues::delete_payload(tx, key)
    })
}

fn delete_payloads(tx: &WriteTx<'_>, cue_key: CueKey) -> Result<bool> {
    delete_matching(tx, PAYLOADS, (cue_key, BATCH), |key| cues::delete_payload(tx, key))
}

/// `find` limits itself to [`BATCH`] rows. Returns whether no rows are left.
fn delete_matching<K: FromRow + Copy>(
    tx: &WriteTx<'_>,
    find: &str,
    parameters: impl ToRow,
    delete: impl FnMut(K) -> Result<i64>,
) -> Result<bool> {
    let keys: Vec<K> = tx.all(find, parameters)?;
    let done = delete_within_limit(&keys, delete)?;
    Ok(done == keys.len() && row_count(done) < BATCH)
}

/// Stops at [`MAX_BYTES`]. Returns the number of rows deleted: at least one, unless `keys` is empty.
fn delete_within_limit<K: Copy>(
    keys: &[K],
    mut delete: impl FnMut(K) -> Result<i64>,
) -> Result<usize> {
    let mut bytes = 0;
    for (done, key) in keys.iter().enumerate() {
        if bytes >= MAX_BYTES {
            return Ok(done);
        }
        bytes += delete(*key)?;
    }
    Ok(keys.len())
}

#[cfg(test)]
crate::store::test_support::plan_test! { every_statement_uses_its_index:
    SCAN_ALL => "SEARCH executions USING INTEGER PRIMARY KEY (rowid>?)",
    SURPLUS => "SEARCH executions USING INDEX executions_by_cue (cue_key=?)",
    SCAN_CUE => "SEARCH executions USING INDEX executions_by_cue (cue_key=? AND key>? AND key<?)",
    DELETABLE => "SEARCH e USING INTEGER PRIMARY KEY (rowid=?)",
    DELETABLE => "SEARCH p USING INTEGER PRIMARY KEY (rowid=?) LEFT-JOIN",
    DELETABLE => "SEARCH c USING INTEGER PRIMARY KEY (rowid=?) LEFT-JOIN",
    DELETE_ATTEMPTS => "SEARCH attempts USING PRIMARY KEY (execution_key=?)",
    DELETE_OUTCOME => "SEARCH outcomes USING INTEGER PRIMARY KEY (rowid=?)",
    CUE_EXECUTIONS => "SEARCH executions USING INDEX executions_by_cue (cue_key=?)",
    CUE_MISSED => "SEARCH missed_runs USING INDEX missed_runs_by_cue (cue_key=?)",
    PAYLOADS => "SEARCH payloads USING INDEX payloads_by_cue (cue_key=?)",
    SUPERSEDED_PAYLOADS => "SEARCH payloads USING INDEX payloads_by_cue (cue_key=? AND is_single_use=? AND key<?)",
}
