//! History that is kept no longer, and the room that it leaves in the file. Everything here comes in batches that hold
//! the writer for some milliseconds at the most; who asks for them is the engine's sweeper.

use jiff::Timestamp;
use rusqlite::{OptionalExtension, params};

use crate::error::Result;
use crate::store::cues::payloads;
use crate::store::db::batch::{BATCH, in_bounds};
use crate::store::db::columns::{millis, read_instant};
use crate::store::{ReadTx, WriteTx};

/// Pages given back at a time.
const MAX_PAGES: i64 = 1_024;

const BY_AGE: &str = "SELECT key, status = 'success' OR status = 'failed', updated_at, created_at
   FROM executions WHERE key > ?1 ORDER BY key LIMIT ?2 + 0";

const SURPLUS: &str = "SELECT key FROM executions WHERE cue_key = ?1 ORDER BY key DESC LIMIT 1 OFFSET ?2";

const OF_CUE: &str = "SELECT key, status = 'success' OR status = 'failed'
   FROM executions WHERE cue_key = ?1 AND key > ?2 AND key <= ?3 ORDER BY key LIMIT ?4 + 0";

// The cue may be gone.
const WHAT_GOES: &str =
    "SELECT e.cue_key, iif(p.is_single_use = 1, p.key, NULL), p.is_single_use = 0 AND c.payload_key IS NOT p.key
   FROM executions e LEFT JOIN payloads p ON p.key = e.payload_key LEFT JOIN cues c ON c.key = e.cue_key
  WHERE e.key = ?1 AND (e.status = 'success' OR e.status = 'failed')";

const DELETE_OUTCOME: &str = "DELETE FROM outcomes WHERE execution_key = ?1
    RETURNING coalesce(octet_length(result), 0) + coalesce(octet_length(error), 0)
        + coalesce(octet_length(metadata), 0) + coalesce(octet_length(evidence), 0)";

/// Executions that were looked at in the order of their keys.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HistoryScan {
    /// Those that may go.
    pub over: Vec<i64>,
    /// The last that was looked at; none where there was none.
    pub up_to: Option<i64>,
    /// When the first was made that is too young; none where it was not reached.
    pub young: Option<Timestamp>,
}

/// How the pages of the file are used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PageUsage {
    /// All of them.
    pub pages: i64,
    /// Those that hold nothing.
    pub free: i64,
}

/// A cue whose history is to be looked at.
///
/// # Errors
/// When the file cannot be read.
pub fn first_marked(read: &ReadTx<'_>) -> Result<Option<i64>> {
    Ok(read
        .prepare_cached("SELECT cue_key FROM retention_queue ORDER BY cue_key LIMIT 1")?
        .query_row([], |row| row.get(0))
        .optional()?)
}

/// Cues whose history is to be looked at, a batch at the most.
///
/// # Errors
/// When the file cannot be read.
pub fn marked(read: &ReadTx<'_>) -> Result<Vec<i64>> {
    let mut marked =
        read.prepare_cached("SELECT cue_key FROM retention_queue ORDER BY cue_key LIMIT ?1 + 0")?;
    Ok(marked.query_map([BATCH], |row| row.get(0))?.collect::<rusqlite::Result<_>>()?)
}

/// Takes the mark of a cue away whose history is as it is to be: nothing over below `looked_up_to`, and no more than
/// `runs` above. Where it has grown meanwhile the mark stays; tells whether it is gone.
///
/// # Errors
/// When the file cannot be written.
pub fn unmark(tx: &WriteTx<'_>, cue_key: i64, looked_up_to: i64, runs: Option<u32>) -> Result<bool> {
    let grown = surplus(tx, cue_key, runs)?.is_some_and(|surplus| surplus > looked_up_to);
    if grown || !payloads::delete_superseded(tx, cue_key)? {
        return Ok(false);
    }
    tx.prepare_cached("DELETE FROM retention_queue WHERE cue_key = ?1")?.execute([cue_key])?;
    Ok(true)
}

/// The newest execution of a cue that is too many where `runs` are kept.
///
/// # Errors
/// When the file cannot be read.
pub fn surplus(read: &ReadTx<'_>, cue_key: i64, runs: Option<u32>) -> Result<Option<i64>> {
    let Some(runs) = runs else { return Ok(None) };
    Ok(read.prepare_cached(SURPLUS)?.query_row([cue_key, i64::from(runs)], |row| row.get(0)).optional()?)
}

/// The next batch of a cue's executions, from behind `after` up to `surplus`; those that are over may go.
///
/// # Errors
/// When the file cannot be read.
pub fn of_cue(read: &ReadTx<'_>, cue_key: i64, after: i64, surplus: i64) -> Result<HistoryScan> {
    let mut looked = HistoryScan::default();
    let mut rows = read.prepare_cached(OF_CUE)?;
    let mut rows = rows.query(params![cue_key, after, surplus, BATCH])?;
    while let Some(row) = rows.next()? {
        looked.see(row.get(0)?, row.get(1)?);
    }
    Ok(looked)
}

/// The next batch of all executions, from behind `after` up to the first that was made after `expired`; those that
/// were over then may go.
///
/// # Errors
/// When the file cannot be read.
pub fn by_age(read: &ReadTx<'_>, after: i64, expired: Timestamp) -> Result<HistoryScan> {
    let mut looked = HistoryScan::default();
    let mut rows = read.prepare_cached(BY_AGE)?;
    let mut rows = rows.query([after, BATCH])?;
    while let Some(row) = rows.next()? {
        let made = row.get(3)?;
        if made > millis(expired) {
            looked.young = Some(read_instant(made)?);
            break;
        }
        let over_since: i64 = row.get(2)?;
        looked.see(row.get(0)?, row.get::<_, bool>(1)? && over_since <= millis(expired));
    }
    Ok(looked)
}

/// Takes executions away with what belongs to them alone, as many of `keys` as one batch can bear and one at least;
/// answers how many it has come to. One that is not over stays.
///
/// # Errors
/// When the file cannot be written.
pub fn delete(tx: &WriteTx<'_>, keys: &[i64]) -> Result<usize> {
    in_bounds(keys, |key| {
        let mut found = tx.prepare_cached(WHAT_GOES)?;
        let mut found = found.query([key])?;
        let Some(row) = found.next()? else { return Ok(0) };
        if row.get::<_, Option<bool>>(2)? == Some(true) {
            payloads::queue_for_retention(tx, row.get(0)?)?;
        }
        let own_payload = row.get::<_, Option<i64>>(1)?;
        let payload_bytes = own_payload.map_or(Ok(0), |payload| payloads::delete(tx, payload))?;
        Ok(payload_bytes + delete_execution(tx, key)?)
    })
}

/// Takes an execution away with its outcome; answers about how many bytes that were beside its row.
///
/// # Errors
/// When the file cannot be written.
pub(in crate::store) fn delete_execution(tx: &WriteTx<'_>, key: i64) -> Result<i64> {
    let bytes = tx.prepare_cached(DELETE_OUTCOME)?.query_row([key], |row| row.get(0)).optional()?;
    tx.prepare_cached("DELETE FROM executions WHERE key = ?1")?.execute([key])?;
    Ok(bytes.unwrap_or(0))
}

/// How many executions of a cue were kept when all histories were last looked at; none where all were.
///
/// # Errors
/// When the file cannot be read.
pub fn runs_kept(read: &ReadTx<'_>) -> Result<Option<i64>> {
    Ok(read
        .prepare_cached("SELECT value FROM meta WHERE name = 'retained_runs'")?
        .query_row([], |row| row.get(0))
        .optional()?)
}

/// Notes how many executions of a cue are kept from now on.
///
/// # Errors
/// When the file cannot be written.
pub fn set_runs_kept(tx: &WriteTx<'_>, runs: Option<i64>) -> Result<()> {
    let sql = "INSERT INTO meta (name, value) SELECT 'retained_runs', ?1 WHERE ?1 IS NOT NULL
               ON CONFLICT (name) DO UPDATE SET value = excluded.value";
    match runs {
        Some(runs) => tx.prepare_cached(sql)?.execute([runs])?,
        None => tx.prepare_cached("DELETE FROM meta WHERE name = 'retained_runs'")?.execute([])?,
    };
    Ok(())
}

/// Marks the cues in the rows behind `after` up to `up_to` that have run more than `runs` times.
///
/// # Errors
/// When the file cannot be written.
pub fn mark_all(tx: &WriteTx<'_>, after: i64, up_to: i64, runs: i64) -> Result<()> {
    tx.prepare_cached(
        "INSERT INTO retention_queue (cue_key) SELECT key FROM cues WHERE key > ?1 AND key <= ?2 AND run_count > ?3
         ON CONFLICT DO NOTHING",
    )?
    .execute([after, up_to, runs])?;
    Ok(())
}

/// The newest cue's row; 0 where there is none.
///
/// # Errors
/// When the file cannot be read.
pub fn last_cue(read: &ReadTx<'_>) -> Result<i64> {
    Ok(read.prepare_cached("SELECT coalesce(max(key), 0) FROM cues")?.query_row([], |row| row.get(0))?)
}

/// How the pages of the file are used.
///
/// # Errors
/// When the file cannot be read.
pub fn space(read: &ReadTx<'_>) -> Result<PageUsage> {
    let figure = |sql| read.prepare_cached(sql)?.query_row([], |row| row.get(0));
    Ok(PageUsage { pages: figure("PRAGMA page_count")?, free: figure("PRAGMA freelist_count")? })
}

/// Gives some pages that hold nothing back to the file system; answers how many.
///
/// # Errors
/// When the file cannot be written.
pub fn give_back(tx: &WriteTx<'_>) -> Result<i64> {
    let before = space(tx)?.free;
    let mut step = tx.prepare(&format!("PRAGMA incremental_vacuum({MAX_PAGES})"))?;
    let mut pages = step.raw_query();
    // One row a page.
    while pages.next()?.is_some() {}
    Ok(before - space(tx)?.free)
}

impl HistoryScan {
    fn see(&mut self, key: i64, may_go: bool) {
        if may_go {
            self.over.push(key);
        }
        self.up_to = Some(key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::test_support::plan;

    #[test]
    fn the_oldest_executions_are_found_by_key_or_index() {
        for (sql, steps) in [
            (BY_AGE, &["SEARCH executions USING INTEGER PRIMARY KEY (rowid>?)"][..]),
            (SURPLUS, &["SEARCH executions USING COVERING INDEX executions_by_cue (cue_key=?)"]),
            (OF_CUE, &["SEARCH executions USING INDEX executions_by_cue (cue_key=? AND key>? AND key<?)"]),
            (
                WHAT_GOES,
                &[
                    "SEARCH e USING INTEGER PRIMARY KEY (rowid=?)",
                    "SEARCH p USING INTEGER PRIMARY KEY (rowid=?) LEFT-JOIN",
                    "SEARCH c USING INTEGER PRIMARY KEY (rowid=?) LEFT-JOIN",
                ],
            ),
            (DELETE_OUTCOME, &["SEARCH outcomes USING INTEGER PRIMARY KEY (rowid=?)"]),
        ] {
            assert_eq!(plan(sql), steps, "{sql}");
        }
    }
}
