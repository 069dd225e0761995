//! Rows for `cued bench`: the baseline, which SQLite alone writes without writer thread and batches, and a long history.

use std::path::Path;

use jiff::Timestamp;

use crate::domain::cue::Cue;
use crate::domain::cue::payload::Payload;
use crate::error::{Error, Result};
use crate::store::WriteTx;
use crate::store::cues;
use crate::store::db::columns::millis;
use crate::store::db::open;
use crate::store::db::writer::commit_single;

/// Commits the cues that `next` returns, each with `payload` in a transaction of its own, until `next` returns `None`.
/// Returns their number. No other process may have the file open.
pub fn single_commits(
    path: &Path,
    payload: &Payload,
    next: &mut dyn FnMut() -> Result<Option<Cue>>,
) -> Result<u32> {
    let connection = open::open_writer(path)
        .map_err(|error| Error::storage_from("the database file cannot be used now", error))?;
    let mut count = 0;
    while let Some(cue) = next()? {
        commit_single(&connection, |tx| cues::insert(tx, cue, Some(payload)))?;
        count += 1;
    }
    Ok(count)
}

// One execution a minute, in turn for each cue; each tenth has failed.
const HISTORY: &str = "WITH RECURSIVE number (value) AS (SELECT ?2 UNION ALL SELECT value - 1 FROM number WHERE value > 1),
         own (first, count) AS (SELECT min(key), count(*) FROM cues WHERE user_key = ?1)
    INSERT INTO executions (id, cue_key, user_key, transport, status, scheduled_for, triggered_by, attempts, started_at,
                            last_attempt_at, delivered_at, http_status, created_at, updated_at, duration_ms)
    SELECT randomblob(16), own.first + value % own.count, ?1, 'webhook', iif(value % 10 = 0, 'failed', 'success'), at,
           'schedule', 1, at, at, iif(value % 10 = 0, NULL, at), iif(value % 10 = 0, 503, 200), at, at, 20
      FROM own JOIN (SELECT value, ?3 - value * 60000 AS at FROM number)";

const STREAKS: &str = "INSERT INTO consecutive_failures (cue_key, failures)
    SELECT cue_key, count(*) FROM executions WHERE user_key = ?1 AND status = 'failed' GROUP BY cue_key";

/// Gives the user's cues, which are in consecutive rows, `count` ended executions before `now`.
pub fn insert_history(tx: &WriteTx<'_>, user_key: i64, count: u32, now: Timestamp) -> Result<()> {
    tx.prepare_cached(HISTORY)?.execute((user_key, count, millis(now)))?;
    tx.prepare_cached(STREAKS)?.execute([user_key])?;
    Ok(())
}
