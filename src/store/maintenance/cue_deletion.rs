//! Deletion of cues. The cue disappears for every reader at once; its executions, payloads and missed runs are deleted
//! in batches. A history of hundreds of thousands of rows in one transaction would block every other write for seconds.

use jiff::Timestamp;
use rusqlite::params;

use crate::error::Result;
use crate::store::cues::payloads;
use crate::store::db::batch::{BATCH, delete_matching};
use crate::store::maintenance::retention;
use crate::store::{ReadTx, WakeSet, WriteTx};

// Newest first: executions that still wait to be sent or claimed are usually the newest.
const EXECUTIONS: &str = "SELECT key FROM executions WHERE cue_key = ?1 ORDER BY key DESC LIMIT ?2 + 0";

const MISSED: &str = "SELECT key FROM missed_runs WHERE cue_key = ?1 LIMIT ?2 + 0";

/// Deletes a cue of the user and the first batch of its rows. Returns false if there is no such cue.
pub fn delete(tx: &WriteTx<'_>, user_key: i64, id: &str) -> Result<bool> {
    let Some(cue_key) = delete_cue(tx, user_key, id)? else { return Ok(false) };
    if !erase_batch(tx, cue_key)? {
        wake_eraser(tx);
    }
    Ok(true)
}

/// As [`delete`], but leaves all rows of the cue to the background task. For many cues in one write.
pub fn delete_later(tx: &WriteTx<'_>, user_key: i64, id: &str) -> Result<bool> {
    let is_deleted = delete_cue(tx, user_key, id)?.is_some();
    if is_deleted {
        wake_eraser(tx);
    }
    Ok(is_deleted)
}

/// As [`delete_later`], for the user's first `limit` cues. Returns whether there may be more.
pub fn delete_first(tx: &WriteTx<'_>, user_key: i64, limit: u32) -> Result<bool> {
    let ids: Vec<String> =
        tx.all("SELECT id FROM cues WHERE user_key = ?1 LIMIT ?2 + 0", params![user_key, limit])?;
    for id in &ids {
        delete_later(tx, user_key, id)?;
    }
    Ok(u32::try_from(ids.len()) == Ok(limit))
}

fn delete_cue(tx: &WriteTx<'_>, user_key: i64, id: &str) -> Result<Option<i64>> {
    let sql = "DELETE FROM cues WHERE id = ?2 AND user_key = ?1 RETURNING key";
    let Some(cue_key) = tx.find(sql, params![user_key, id])? else { return Ok(None) };
    tx.run("DELETE FROM retention_queue WHERE cue_key = ?1", [cue_key])?;
    // First: the trigger that subtracts the bytes of a payload finds the user by it.
    tx.run("INSERT INTO deleted_cues (cue_key, user_key) VALUES (?1, ?2)", [cue_key, user_key])?;
    Ok(Some(cue_key))
}

fn wake_eraser(tx: &WriteTx<'_>) {
    tx.wake(WakeSet { schedule: Some(Timestamp::MIN), ..WakeSet::default() });
}

pub fn first_pending(read: &ReadTx<'_>) -> Result<Option<i64>> {
    read.find("SELECT cue_key FROM deleted_cues ORDER BY cue_key LIMIT 1", [])
}

/// True if a deleted cue of the user still has rows.
pub fn has_pending(read: &ReadTx<'_>, user_key: i64) -> Result<bool> {
    read.any("SELECT 1 FROM deleted_cues WHERE user_key = ?1", [user_key])
}

/// Deletes one batch of the rows of a deleted cue. Returns whether none are left.
pub fn erase_batch(tx: &WriteTx<'_>, cue_key: i64) -> Result<bool> {
    let has_no_execution =
        delete_matching(tx, EXECUTIONS, [cue_key, BATCH], |key| retention::delete_execution(tx, key))?;
    let is_done = has_no_execution
        && payloads::delete_all(tx, cue_key)?
        && delete_matching(tx, MISSED, [cue_key, BATCH], |key| {
            tx.run("DELETE FROM missed_runs WHERE key = ?1", [key])?;
            Ok(0)
        })?;
    if is_done {
        tx.run("DELETE FROM deleted_cues WHERE cue_key = ?1", [cue_key])?;
    }
    Ok(is_done)
}

#[cfg(test)]
crate::store::test_support::plan_test! { rows_of_a_deleted_cue_are_found_by_index:
    EXECUTIONS => "SEARCH executions USING INDEX executions_by_cue (cue_key=?)",
    MISSED => "SEARCH missed_runs USING INDEX missed_runs_by_cue (cue_key=?)",
}
