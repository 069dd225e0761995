//! Pauses a cue, or a user's newest active cues above a limit.

use jiff::Timestamp;
use rusqlite::params;

use crate::domain::cue::{Cue, CueStatus};
use crate::error::Result;
use crate::store::db::columns::millis;
use crate::store::{ReadTx, WriteTx};

/// The newest active cues of user ?1 above the ?2 oldest.
const ABOVE_LIMIT: &str =
    "SELECT key FROM cues WHERE user_key = ?1 AND status = 'active' ORDER BY key LIMIT -1 OFFSET ?2";

/// Pauses `cue`, which holds its state before the pause.
pub fn pause(tx: &WriteTx<'_>, cue: &Cue, now: Timestamp) -> Result<()> {
    tx.counters().move_cues(cue.user_key, cue.status, CueStatus::Paused, 1);
    tx.run(
        "UPDATE cues SET status = 'paused', next_run = NULL, updated_at = ?2 WHERE key = ?1",
        params![cue.key, millis(now)],
    )
}

/// The row keys of the user's newest active recurring cues above `limit` that are overdue at `now`.
pub fn overdue_above_limit(read: &ReadTx<'_>, user_key: i64, limit: u32, now: Timestamp) -> Result<Vec<i64>> {
    let sql = format!("SELECT key FROM cues WHERE key IN ({ABOVE_LIMIT}) AND next_run <= ?3 AND at IS NULL");
    read.all(&sql, params![user_key, limit, millis(now)])
}

/// Pauses the user's newest active cues above `limit`, except `once` cues that are due: these run and end. Returns the
/// row keys of the paused cues.
pub fn pause_above_limit(tx: &WriteTx<'_>, user_key: i64, limit: u32, now: Timestamp) -> Result<Vec<i64>> {
    let sql = format!(
        "UPDATE cues SET status = 'paused', next_run = NULL, updated_at = ?3
          WHERE key IN ({ABOVE_LIMIT}) AND (at IS NULL OR next_run > ?3 OR next_run IS NULL) RETURNING key"
    );
    let paused: Vec<i64> = tx.all(&sql, params![user_key, limit, millis(now)])?;
    let count = i64::try_from(paused.len()).unwrap_or(i64::MAX);
    tx.counters().move_cues(user_key, CueStatus::Active, CueStatus::Paused, count);
    Ok(paused)
}

#[cfg(test)]
crate::store::test_support::plan_test! { cues_above_the_limit_are_found_without_a_scan:
    ABOVE_LIMIT => "SEARCH cues USING INDEX cues_by_user_and_status (user_key=? AND status=?)",
}
