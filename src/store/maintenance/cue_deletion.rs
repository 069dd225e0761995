//! The end of a cue: it is gone for every reader at once, and what it leaves behind goes bit by bit. A history of
//! hundreds of thousands in one transaction would hold up every other write for seconds.

use jiff::Timestamp;
use rusqlite::{OptionalExtension, params};

use crate::error::Result;
use crate::store::cues::payloads;
use crate::store::db::batch::{BATCH, delete_found};
use crate::store::maintenance::retention;
use crate::store::{ReadTx, WakeSet, WriteTx};

// The newest first: what still waits to be sent or claimed is found there, as a rule.
const EXECUTIONS: &str = "SELECT key FROM executions WHERE cue_key = ?1 ORDER BY key DESC LIMIT ?2 + 0";

const MISSED: &str = "SELECT key FROM missed_runs WHERE cue_key = ?1 LIMIT ?2 + 0";

/// Removes the user's cue and all that belongs to it; tells whether there was one.
///
/// # Errors
/// When the file cannot be written.
pub fn remove(tx: &WriteTx<'_>, user_key: i64, id: &str) -> Result<bool> {
    let removed: Option<i64> = tx
        .prepare_cached("DELETE FROM cues WHERE id = ?2 AND user_key = ?1 RETURNING key")?
        .query_row(params![user_key, id], |row| row.get(0))
        .optional()?;
    let Some(cue_key) = removed else { return Ok(false) };
    tx.prepare_cached("DELETE FROM retention_queue WHERE cue_key = ?1")?.execute([cue_key])?;
    if !erase(tx, cue_key)? {
        tx.prepare_cached("INSERT INTO deleted_cues (cue_key, user_key) VALUES (?1, ?2)")?
            .execute([cue_key, user_key])?;
        tx.wake(WakeSet { schedule: Some(Timestamp::MIN), ..WakeSet::default() });
    }
    Ok(true)
}

/// A cue that is gone and has left something behind.
///
/// # Errors
/// When the file cannot be read.
pub fn first(read: &ReadTx<'_>) -> Result<Option<i64>> {
    Ok(read
        .prepare_cached("SELECT cue_key FROM deleted_cues ORDER BY cue_key LIMIT 1")?
        .query_row([], |row| row.get(0))
        .optional()?)
}

/// Whether a cue of the user is gone and has left something behind.
///
/// # Errors
/// When the file cannot be read.
pub fn any_of(read: &ReadTx<'_>, user_key: i64) -> Result<bool> {
    Ok(read.prepare_cached("SELECT 1 FROM deleted_cues WHERE user_key = ?1")?.exists([user_key])?)
}

/// Takes away one batch of what a removed cue has left behind; tells whether nothing is left.
///
/// # Errors
/// When the file cannot be written.
pub fn erase(tx: &WriteTx<'_>, cue_key: i64) -> Result<bool> {
    let is_over = delete_found(tx, EXECUTIONS, [cue_key, BATCH], |key| retention::delete_execution(tx, key))?
        && payloads::delete_all(tx, cue_key)?
        && delete_found(tx, MISSED, [cue_key, BATCH], |key| {
            tx.prepare_cached("DELETE FROM missed_runs WHERE key = ?1")?.execute([key])?;
            Ok(0)
        })?;
    if is_over {
        tx.prepare_cached("DELETE FROM deleted_cues WHERE cue_key = ?1")?.execute([cue_key])?;
    }
    Ok(is_over)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::test_support::plan;

    #[test]
    fn rows_of_a_deleted_cue_are_found_by_index() {
        let executions = "SEARCH executions USING COVERING INDEX executions_by_cue (cue_key=?)";
        assert_eq!(plan(EXECUTIONS), [executions]);
        assert_eq!(plan(MISSED), ["SEARCH missed_runs USING COVERING INDEX missed_runs_by_cue (cue_key=?)"]);
    }
}
