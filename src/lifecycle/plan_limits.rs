//! Pauses that a lower plan brings (contract §8).

use jiff::Timestamp;
use rusqlite::params;

use crate::error::Result;
use crate::store::WriteTx;
use crate::store::cues::due_cues::account_for_overdue;
use crate::store::cues::find_by_key;
use crate::store::db::columns::millis;

/// The newest active cues of user ?1 above the ?2 oldest.
const ABOVE_LIMIT: &str =
    "SELECT key FROM cues WHERE user_key = ?1 AND status = 'active' ORDER BY key LIMIT -1 OFFSET ?2";

/// Pauses the user's newest active cues, so that at most `limit` are left; the answer is how many. What they were due
/// for and has not fired yet is accounted for.
///
/// # Errors
/// When the file cannot be written.
pub fn pause_above_limit(
    tx: &WriteTx<'_>,
    user_key: i64,
    limit: Option<u32>,
    now: Timestamp,
) -> Result<usize> {
    let Some(limit) = limit else { return Ok(0) };
    let overdue: Vec<i64> = tx
        .prepare_cached(&format!("SELECT key FROM cues WHERE key IN ({ABOVE_LIMIT}) AND next_run <= ?3"))?
        .query_map(params![user_key, limit, millis(now)], |row| row.get(0))?
        .collect::<rusqlite::Result<_>>()?;
    for key in overdue {
        if let Some(cue) = find_by_key(tx, key)? {
            account_for_overdue(tx, &cue, now)?;
        }
    }
    let paused = tx
        .prepare_cached(&format!(
            "UPDATE cues SET status = 'paused', next_run = NULL, updated_at = ?3 WHERE key IN ({ABOVE_LIMIT})"
        ))?
        .execute(params![user_key, limit, millis(now)])?;
    tx.tally().active_cues(user_key, -i64::try_from(paused).unwrap_or(i64::MAX));
    Ok(paused)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cues_above_the_limit_are_found_without_a_scan() {
        let file = rusqlite::Connection::open_in_memory().unwrap();
        file.execute_batch(include_str!("../../schema.sql")).unwrap();
        let mut plan = file.prepare(&format!("EXPLAIN QUERY PLAN {ABOVE_LIMIT}")).unwrap();
        let steps = plan.query_map([1, 10], |row| row.get::<_, String>("detail")).unwrap();
        let steps: Vec<String> = steps.map(rusqlite::Result::unwrap).collect();
        let step = "SEARCH cues USING COVERING INDEX cues_by_user_and_status (user_key=? AND status=?)";
        assert_eq!(steps, [step]);
    }
}
