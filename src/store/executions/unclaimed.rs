//! Claimable executions that no worker claims. `due_at` of an execution in queue 'claim' is the time of the next check of
//! it: null is at once, the year 9999 is not again. `updated_at` is the time since which it is claimable.

use jiff::Timestamp;
use rusqlite::params;

use crate::domain::execution::worker::NOT_CLAIMED;
use crate::error::Result;
use crate::store::db::columns::{from_row, millis, row, row_count};
use crate::store::db::counters::QueueName;
use crate::store::{ReadTx, WriteTx};

/// In `due_at`: never checked again. The year 9999, because every reader of an execution reads the column as an instant.
const NEVER: Timestamp = Timestamp::constant(253_370_764_800, 0);

/// Executions of a cue in one part, when a new limit of the cue is applied to those that wait. More would hold up other
/// writes.
const PART: u32 = 1_000;

/// The first check of an execution that becomes claimable at `$now`, as SQL: after 15 minutes, or at the limit of its cue.
macro_rules! first_check {
    ($now:literal, $cue_key:literal) => {
        concat!(
            "(",
            $now,
            " + 60000 * min(15, coalesce((SELECT cues.claim_within_minutes FROM cues WHERE cues.key = ",
            $cue_key,
            "), 15)))"
        )
    };
}
pub(in crate::store) use first_check;

const NEXT_CHECK: &str = "SELECT due_at FROM executions WHERE queue_name = 'claim' ORDER BY due_at LIMIT 1";

// Without a comparison of `due_at`: null comes first in the index, and the reader stops at the first later row. A deleted
// cue is missing.
const DUE: &str =
    "SELECT e.due_at, e.key, e.cue_key, e.user_key, e.scheduled_for, e.triggered_by = 'schedule',
        e.task, e.updated_at, c.key IS NULL, c.claim_within_minutes
   FROM executions e LEFT JOIN cues c ON c.key = e.cue_key
  WHERE e.queue_name = 'claim' ORDER BY e.due_at LIMIT ?1 + 0";

const CHECK_AT: &str = "SELECT due_at FROM executions WHERE key = ?1";

const SET_CHECK: &str = "UPDATE executions SET due_at = ?2 WHERE key = ?1 AND queue_name = 'claim'";

const CHANGED: &str =
    "INSERT OR REPLACE INTO changed_claim_limits (cue_key, before) VALUES (?1, 9223372036854775807)";

const FIRST_CHANGED: &str = "SELECT cue_key, before FROM changed_claim_limits ORDER BY cue_key LIMIT 1";

const OLDEST_OF_PART: &str =
    "SELECT key FROM executions WHERE cue_key = ?1 AND key < ?2 ORDER BY key DESC LIMIT 1 OFFSET ?3 - 1";

const RECHECK: &str = "UPDATE executions SET due_at = NULL WHERE queue_name = 'claim' AND key IN (
    SELECT key FROM executions WHERE cue_key = ?1 AND key < ?2 ORDER BY key DESC LIMIT ?3 + 0)";

const SET_BEFORE: &str = "UPDATE changed_claim_limits SET before = ?2 WHERE cue_key = ?1";

const END_RECHECK: &str = "DELETE FROM changed_claim_limits WHERE cue_key = ?1";

const WAITING: &str = "SELECT count(*) FROM (
    SELECT queue_name FROM executions WHERE cue_key = ?1 ORDER BY key DESC LIMIT ?2 + 0) WHERE queue_name = 'claim'";

const FAIL: &str = "UPDATE executions
    SET status = 'failed', queue_name = NULL, due_at = NULL, error_message = ?2, updated_at = ?3
  WHERE key = ?1 AND queue_name = 'claim'";

row! {
/// A claimable execution that is due for a check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnclaimedExecution {
    pub key: i64,
    pub cue_key: i64,
    pub user_key: i64,
    pub scheduled_for: Timestamp,
    pub by_schedule: bool,
    pub task: Option<String>,
    pub claimable_since: Timestamp,
    /// True if its cue has been deleted: its row is about to be.
    pub is_deleted: bool,
    pub claim_within_minutes: Option<u32>,
} }

/// The time of the next check, or of the next part of a changed limit; `None` if there is none to come.
pub fn next_check(read: &ReadTx<'_>) -> Result<Option<Timestamp>> {
    if read.any(FIRST_CHANGED, [])? {
        return Ok(Some(Timestamp::MIN));
    }
    let first: Option<Option<Timestamp>> = read.find(NEXT_CHECK, [])?;
    Ok(first.map(|due_at| due_at.unwrap_or(Timestamp::MIN)).filter(|due_at| *due_at < NEVER))
}

/// The time of the next check of the execution in row `key`.
pub fn check_at(read: &ReadTx<'_>, key: i64) -> Result<Option<Timestamp>> {
    read.one(CHECK_AT, [key])
}

/// The executions that are due for a check at `now`, at most `limit`. The caller fails each, or sets the next check.
pub fn list_due(read: &ReadTx<'_>, now: Timestamp, limit: usize) -> Result<Vec<UnclaimedExecution>> {
    let mut statement = read.prepare_cached(DUE)?;
    let mut rows = statement.query([row_count(limit)])?;
    let mut due = Vec::new();
    while let Some(row) = rows.next()? {
        let (due_at, execution): (Option<Timestamp>, UnclaimedExecution) = from_row(row)?;
        if due_at.is_some_and(|due_at| due_at > now) {
            break;
        }
        due.push(execution);
    }
    Ok(due)
}

/// Sets the time of the next check; `None` is never. `updated_at` stays: the execution waits as before.
pub fn set_check(tx: &WriteTx<'_>, key: i64, at: Option<Timestamp>) -> Result<()> {
    tx.run(SET_CHECK, [key, millis(at.unwrap_or(NEVER))])
}

/// Checks the waiting executions of a cue again, because its limit has changed. [`continue_recheck`] marks them.
pub fn recheck(tx: &WriteTx<'_>, cue_key: i64) -> Result<()> {
    tx.run(CHANGED, [cue_key])
}

/// Marks the waiting executions among the next part of a cue whose limit has changed: they are due for a check at once.
/// Returns false if no limit has changed.
pub fn continue_recheck(tx: &WriteTx<'_>) -> Result<bool> {
    let changed: Option<(i64, i64)> = tx.find(FIRST_CHANGED, [])?;
    let Some((cue_key, before)) = changed else { return Ok(false) };
    let part = params![cue_key, before, PART];
    let oldest: Option<i64> = tx.find(OLDEST_OF_PART, part)?;
    tx.run(RECHECK, part)?;
    match oldest {
        Some(oldest) => tx.run(SET_BEFORE, [cue_key, oldest])?,
        None => tx.run(END_RECHECK, [cue_key])?,
    };
    Ok(true)
}

/// The number of claimable executions among the newest `limit` of a cue.
pub fn count_waiting(read: &ReadTx<'_>, cue_key: i64, limit: u32) -> Result<u32> {
    read.one(WAITING, params![cue_key, limit])
}

/// Fails an execution that was not claimed in time. Returns `false` if it is no longer claimable.
pub fn fail(tx: &WriteTx<'_>, key: i64, now: Timestamp) -> Result<bool> {
    let has_failed = tx.changes(FAIL, params![key, NOT_CLAIMED, millis(now)])?;
    tx.counters().add_queued(QueueName::Claim, -i64::from(has_failed));
    Ok(has_failed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::execution::worker::UNCLAIMED_AFTER;
    use crate::store::test_support::memory_database;

    crate::store::test_support::plan_test! { checks_are_found_by_index_and_never_sorted:
        NEXT_CHECK => "executions_unclaimed",
        DUE => "SCAN e USING INDEX executions_unclaimed",
        FIRST_CHANGED => "SCAN changed_claim_limits",
        OLDEST_OF_PART => "executions_by_cue (cue_key=? AND key<?)",
        RECHECK => "executions_by_cue (cue_key=? AND key<?)",
        WAITING => "executions_by_cue (cue_key=?)",
        SET_CHECK => "SEARCH executions USING INTEGER PRIMARY KEY (rowid=?)",
        FAIL => "SEARCH executions USING INTEGER PRIMARY KEY (rowid=?)",
    }

    #[test]
    fn the_first_check_is_at_the_earlier_of_alert_and_limit() {
        let file = memory_database();
        assert_eq!(UNCLAIMED_AFTER.as_millis(), 15 * 60_000);
        let sql = first_check!("?1", "?2");
        for (minutes, expected) in [(None, 900_001), (Some(5), 300_001), (Some(10_080), 900_001)] {
            let sql = sql.replace("FROM cues", "FROM (SELECT 7 AS key, ?3 AS claim_within_minutes) AS cues");
            let found: i64 =
                file.query_row(&format!("SELECT {sql}"), params![1, 7, minutes], |row| row.get(0)).unwrap();
            assert_eq!(found, expected, "{minutes:?}");
        }
    }
}
