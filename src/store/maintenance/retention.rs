//! Deletion of history beyond `--retain`, and the release of free pages. The engine's `RetentionSweeper` calls these
//! functions; each write is one batch that occupies the writer for a few milliseconds.
//!
//! An execution is deleted only if it is finished. The table `retention_queue` lists the cues whose history may have
//! more executions than are retained.

use crate::domain::time::EARLIEST_CLOCK;
use crate::error::Result;
use crate::store::cues::payloads;
use crate::store::db::batch::{BATCH, delete_within_limit};
use crate::store::db::meta;
use crate::store::{ReadTx, WriteTx};
use jiff::Timestamp;

/// Pages released in one write: 1 MiB. Each is moved through the log, so a larger number delays other writes longer.
const MAX_PAGES: i64 = 1_024;

const SCAN_ALL: &str = "SELECT key, status = 'success' OR status = 'failed', created_at, updated_at
   FROM executions WHERE key > ?1 ORDER BY key LIMIT ?2 + 0";

const SURPLUS: &str = "SELECT key FROM executions WHERE cue_key = ?1 ORDER BY key DESC LIMIT 1 OFFSET ?2";

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

/// The result of one batch of a scan of executions in key order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HistoryScan {
    pub deletable: Vec<i64>,
    /// The last execution read; `None` if there was none.
    pub last_key: Option<i64>,
    /// The creation time of the first execution that is not old enough; `None` if the scan did not reach it.
    pub first_unexpired: Option<Timestamp>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PageUsage {
    pub pages: i64,
    pub free: i64,
}

pub fn first_queued(read: &ReadTx<'_>) -> Result<Option<i64>> {
    read.find("SELECT cue_key FROM retention_queue ORDER BY cue_key LIMIT 1", [])
}

pub fn queued_cues(read: &ReadTx<'_>) -> Result<Vec<i64>> {
    read.all("SELECT cue_key FROM retention_queue ORDER BY cue_key LIMIT ?1 + 0", [BATCH])
}

/// Removes a cue from the queue once its history is trimmed: up to `scanned_up_to` everything deletable is deleted, and
/// at most `runs` executions follow. Returns false, and leaves the cue in the queue, if the history has grown meanwhile
/// or more superseded payloads remain.
pub fn remove_from_queue(
    tx: &WriteTx<'_>,
    cue_key: i64,
    scanned_up_to: i64,
    runs: Option<u32>,
) -> Result<bool> {
    let has_grown = surplus(tx, cue_key, runs)?.is_some_and(|surplus| surplus > scanned_up_to);
    if has_grown || !payloads::delete_superseded(tx, cue_key)? {
        return Ok(false);
    }
    tx.run("DELETE FROM retention_queue WHERE cue_key = ?1", [cue_key])?;
    Ok(true)
}

/// The newest execution of a cue beyond the `runs` that are retained. `None` if there is none, or no limit.
pub fn surplus(read: &ReadTx<'_>, cue_key: i64, runs: Option<u32>) -> Result<Option<i64>> {
    let Some(runs) = runs else { return Ok(None) };
    read.find(SURPLUS, [cue_key, i64::from(runs)])
}

/// Scans a batch of a cue's executions, after key `after` up to key `surplus`. The finished ones are deletable.
pub fn scan_history(read: &ReadTx<'_>, cue_key: i64, after: i64, surplus: i64) -> Result<HistoryScan> {
    let mut scan = HistoryScan::default();
    for (key, is_over) in read.all(SCAN_CUE, [cue_key, after, surplus, BATCH])? {
        scan.add(key, is_over);
    }
    Ok(scan)
}

/// Scans a batch of all executions, after key `after` up to the first one that was created after `expired`. Those that had
/// finished by then are deletable. Keys grow with time: an execution is at least as new as `newest`, the newest creation
/// before it in the scan, whatever its own date says. One that is dated after `now`, or before any clock was set, stays.
pub fn scan_expired(
    read: &ReadTx<'_>,
    after: i64,
    newest: &mut Timestamp,
    expired: Timestamp,
    now: Timestamp,
) -> Result<HistoryScan> {
    let mut scan = HistoryScan::default();
    let batch: Vec<(i64, bool, Timestamp, Timestamp)> = read.all(SCAN_ALL, [after, BATCH])?;
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

/// Deletes the executions `keys` with their outcomes and single-use payloads. Stops at the size limit of a batch.
/// Returns how many of `keys` it has processed: at least one. Unfinished executions stay.
pub fn delete(tx: &WriteTx<'_>, keys: &[i64]) -> Result<usize> {
    delete_within_limit(keys, |key| {
        let found: Option<(i64, Option<i64>, Option<bool>)> = tx.find(DELETABLE, [key])?;
        let Some((cue_key, single_use_payload, has_superseded_payload)) = found else { return Ok(0) };
        if has_superseded_payload == Some(true) {
            payloads::queue_for_retention(tx, cue_key)?;
        }
        let payload_bytes = single_use_payload.map_or(Ok(0), |payload| payloads::delete(tx, payload))?;
        Ok(payload_bytes + delete_execution(tx, key)?)
    })
}

/// Deletes an execution with its outcome and its attempts. Returns the approximate size of these in bytes.
pub(in crate::store) fn delete_execution(tx: &WriteTx<'_>, key: i64) -> Result<i64> {
    let outcome: Option<i64> = tx.find(DELETE_OUTCOME, [key])?;
    let attempts: Vec<i64> = tx.all(DELETE_ATTEMPTS, [key])?;
    tx.run("DELETE FROM executions WHERE key = ?1", [key])?;
    Ok(outcome.unwrap_or(0) + attempts.iter().sum::<i64>())
}

/// The number of retained executions per cue at the last complete scan of the cues; `None` if there was no limit.
pub fn retained_runs(read: &ReadTx<'_>) -> Result<Option<i64>> {
    meta::find(read, "retained_runs")
}

/// Stores the number of retained executions per cue.
pub fn set_retained_runs(tx: &WriteTx<'_>, runs: Option<i64>) -> Result<()> {
    meta::set(tx, "retained_runs", runs)
}

/// Queues the cues with keys after `after` up to `up_to` that have run more than `runs` times.
pub fn queue_cues(tx: &WriteTx<'_>, after: i64, up_to: i64, runs: i64) -> Result<()> {
    let sql = "INSERT INTO retention_queue (cue_key)
               SELECT key FROM cues WHERE key > ?1 AND key <= ?2 AND run_count > ?3 ON CONFLICT DO NOTHING";
    tx.run(sql, [after, up_to, runs])
}

/// The key of the newest cue, or 0 if there is none.
pub fn last_cue_key(read: &ReadTx<'_>) -> Result<i64> {
    read.one("SELECT coalesce(max(key), 0) FROM cues", [])
}

pub fn page_usage(read: &ReadTx<'_>) -> Result<PageUsage> {
    Ok(PageUsage { pages: read.one("PRAGMA page_count", [])?, free: read.one("PRAGMA freelist_count", [])? })
}

/// Removes up to `MAX_PAGES` free pages from the file. Returns how many. The file itself shrinks at the next
/// checkpoint.
pub fn release_free_pages(tx: &WriteTx<'_>) -> Result<i64> {
    let before = page_usage(tx)?.free;
    let mut vacuum = tx.prepare(&format!("PRAGMA incremental_vacuum({MAX_PAGES})"))?;
    let mut pages = vacuum.raw_query();
    // Each step releases one page.
    while pages.next()?.is_some() {}
    Ok(before - page_usage(tx)?.free)
}

impl HistoryScan {
    fn add(&mut self, key: i64, is_deletable: bool) {
        if is_deletable {
            self.deletable.push(key);
        }
        self.last_key = Some(key);
    }
}

#[cfg(test)]
crate::store::test_support::plan_test! { the_oldest_executions_are_found_by_key_or_index:
    SCAN_ALL => "SEARCH executions USING INTEGER PRIMARY KEY (rowid>?)",
    SURPLUS => "SEARCH executions USING INDEX executions_by_cue (cue_key=?)",
    SCAN_CUE => "SEARCH executions USING INDEX executions_by_cue (cue_key=? AND key>? AND key<?)",
    DELETABLE => "SEARCH e USING INTEGER PRIMARY KEY (rowid=?)",
    DELETABLE => "SEARCH p USING INTEGER PRIMARY KEY (rowid=?) LEFT-JOIN",
    DELETABLE => "SEARCH c USING INTEGER PRIMARY KEY (rowid=?) LEFT-JOIN",
    DELETE_ATTEMPTS => "SEARCH attempts USING PRIMARY KEY (execution_key=?)",
    DELETE_OUTCOME => "SEARCH outcomes USING INTEGER PRIMARY KEY (rowid=?)",
}
