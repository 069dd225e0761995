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
    tx.prepare_cached("UPDATE cues SET status = 'paused', next_run = NULL, updated_at = ?2 WHERE key = ?1")?
        .execute(params![cue.key, millis(now)])?;
    Ok(())
}

/// The row keys of the user's newest active recurring cues above `limit` that are overdue at `now`.
pub fn overdue_above_limit(read: &ReadTx<'_>, user_key: i64, limit: u32, now: Timestamp) -> Result<Vec<i64>> {
    let overdue = read
        .prepare_cached(&format!(
            "SELECT key FROM cues WHERE key IN ({ABOVE_LIMIT}) AND next_run <= ?3 AND at IS NULL"
        ))?
        .query_map(params![user_key, limit, millis(now)], |row| row.get(0))?
        .collect::<rusqlite::Result<_>>()?;
    Ok(overdue)
}

/// Pauses the user's newest active cues above `limit`, except `once` cues that are due: these run and end. Returns the
/// row keys of the paused cues.
pub fn pause_above_limit(tx: &WriteTx<'_>, user_key: i64, limit: u32, now: Timestamp) -> Result<Vec<i64>> {
    let paused: Vec<i64> = tx
        .prepare_cached(&format!(
            "UPDATE cues SET status = 'paused', next_run = NULL, updated_at = ?3
              WHERE key IN ({ABOVE_LIMIT}) AND (at IS NULL OR next_run > ?3 OR next_run IS NULL)
              RETURNING key"
        ))?
        .query_map(params![user_key, limit, millis(now)], |row| row.get(0))?
        .collect::<rusqlite::Result<_>>()?;
    let count = i64::try_from(paused.len()).unwrap_or(i64::MAX);
    tx.counters().move_cues(user_key, CueStatus::Active, CueStatus::Paused, count);
    Ok(paused)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::test_support::plan;

    #[test]
    fn cues_above_the_limit_are_found_without_a_scan() {
        let step = "SEARCH cues USING COVERING INDEX cues_by_user_and_status (user_key=? AND status=?)";
        assert_eq!(plan(ABOVE_LIMIT), [step]);
    }
}
