//! Claimable executions that no worker claims. `due_at` of an execution in queue 'claim' is the time of the next look at
//! it: null is at once, the year 9999 is not again. `updated_at` is the time since which it is claimable.

use jiff::Timestamp;
use rusqlite::{OptionalExtension, Row, params};

use crate::domain::execution::unclaimed::NOT_CLAIMED;
use crate::error::Result;
use crate::store::db::columns::{instant, maybe_instant, millis, read_instant};
use crate::store::db::counters::QueueName;
use crate::store::{ReadTx, WriteTx};

/// In `due_at`: nobody looks again. The year 9999, because every reader of an execution reads the column as an instant.
const NEVER: Timestamp = Timestamp::constant(253_370_764_800, 0);

/// Executions of a cue in one part, when a new limit of the cue is applied to those that wait. More would hold up other
/// writes.
const PART: u32 = 1_000;

/// The first look at an execution that becomes claimable at `$now`, as SQL: after 15 minutes, or at the limit of its cue.
macro_rules! first_look {
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
pub(in crate::store) use first_look;

const NEXT_LOOK: &str = "SELECT due_at FROM executions WHERE queue_name = 'claim' ORDER BY due_at LIMIT 1";

// Without a comparison of `due_at`: null comes first in the index, and the reader stops at the first later row. A deleted
// cue is missing.
const DUE: &str =
    "SELECT e.key, e.cue_key, e.user_key, e.scheduled_for, e.triggered_by = 'schedule' AS by_schedule,
        e.task, e.updated_at, e.due_at, c.key IS NULL AS is_deleted, c.claim_within_minutes
   FROM executions e LEFT JOIN cues c ON c.key = e.cue_key
  WHERE e.queue_name = 'claim' ORDER BY e.due_at LIMIT ?1 + 0";

const LOOK_AT: &str = "SELECT due_at FROM executions WHERE key = ?1";

const SET_LOOK: &str = "UPDATE executions SET due_at = ?2 WHERE key = ?1 AND queue_name = 'claim'";

// The cues whose limit has changed are rows of `meta`, so that a restart loses none. The value is the key before which the
// executions of the cue remain: the newest come first.
const CHANGED: &str =
    "INSERT INTO meta (name, value) VALUES ('claim_limit_changed:' || ?1, 9223372036854775807)
    ON CONFLICT (name) DO UPDATE SET value = excluded.value";

const ANY_CHANGED: &str = "SELECT EXISTS (SELECT 1 FROM meta WHERE name >= 'claim_limit_changed:' AND name < 'claim_limit_changed;')";

const FIRST_CHANGED: &str =
    "SELECT name, CAST(substr(name, length('claim_limit_changed:') + 1) AS INTEGER), value
   FROM meta WHERE name >= 'claim_limit_changed:' AND name < 'claim_limit_changed;' ORDER BY name LIMIT 1";

const OLDEST_OF_PART: &str =
    "SELECT key FROM executions WHERE cue_key = ?1 AND key < ?2 ORDER BY key DESC LIMIT 1 OFFSET ?3 - 1";

const LOOK_AGAIN: &str = "UPDATE executions SET due_at = NULL WHERE queue_name = 'claim' AND key IN (
    SELECT key FROM executions WHERE cue_key = ?1 AND key < ?2 ORDER BY key DESC LIMIT ?3 + 0)";

const SET_REST: &str = "UPDATE meta SET value = ?2 WHERE name = ?1";

const END_CHANGE: &str = "DELETE FROM meta WHERE name = ?1";

const WAITING: &str = "SELECT count(*) FROM (
    SELECT queue_name FROM executions WHERE cue_key = ?1 ORDER BY key DESC LIMIT ?2 + 0) WHERE queue_name = 'claim'";

const FAIL: &str = "UPDATE executions
    SET status = 'failed', queue_name = NULL, due_at = NULL, error_message = ?2, updated_at = ?3
  WHERE key = ?1 AND queue_name = 'claim'";

/// A claimable execution that is due for a look.
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
}

/// The time of the next look, or of the next part of a changed limit; `None` if there is none to come.
pub fn next_look(read: &ReadTx<'_>) -> Result<Option<Timestamp>> {
    if read.prepare_cached(ANY_CHANGED)?.query_row([], |row| row.get(0))? {
        return Ok(Some(Timestamp::MIN));
    }
    let first = read.prepare_cached(NEXT_LOOK)?.query_row([], |row| row.get(0)).optional()?;
    let Some(due_at) = first else { return Ok(None) };
    let due_at: Option<i64> = due_at;
    let due_at = due_at.map(read_instant).transpose()?.unwrap_or(Timestamp::MIN);
    Ok((due_at < NEVER).then_some(due_at))
}

/// The time of the next look at the execution in row `key`.
pub fn look_at(read: &ReadTx<'_>, key: i64) -> Result<Option<Timestamp>> {
    let due_at: Option<i64> = read.prepare_cached(LOOK_AT)?.query_row([key], |row| row.get(0))?;
    Ok(due_at.map(read_instant).transpose()?)
}

/// The executions that are due for a look at `now`, at most `limit`. The caller fails each, or sets the next look.
pub fn list_due(read: &ReadTx<'_>, now: Timestamp, limit: usize) -> Result<Vec<UnclaimedExecution>> {
    let mut statement = read.prepare_cached(DUE)?;
    let mut rows = statement.query([i64::try_from(limit).unwrap_or(i64::MAX)])?;
    let mut due = Vec::new();
    while let Some(row) = rows.next()? {
        if maybe_instant(row, "due_at")?.is_some_and(|due_at| due_at > now) {
            break;
        }
        due.push(UnclaimedExecution {
            key: row.get("key")?,
            cue_key: row.get("cue_key")?,
            user_key: row.get("user_key")?,
            scheduled_for: instant(row, "scheduled_for")?,
            by_schedule: row.get("by_schedule")?,
            task: row.get("task")?,
            claimable_since: instant(row, "updated_at")?,
            is_deleted: row.get("is_deleted")?,
            claim_within_minutes: row.get("claim_within_minutes")?,
        });
    }
    Ok(due)
}

/// Sets the time of the next look; `None` is never. `updated_at` stays: the execution waits as before.
pub fn set_look(tx: &WriteTx<'_>, key: i64, at: Option<Timestamp>) -> Result<()> {
    tx.prepare_cached(SET_LOOK)?.execute([key, millis(at.unwrap_or(NEVER))])?;
    Ok(())
}

/// Lets the waiting executions of a cue be looked at now, because its limit has changed. [`continue_change`] marks them.
pub fn look_again(tx: &WriteTx<'_>, cue_key: i64) -> Result<()> {
    tx.prepare_cached(CHANGED)?.execute([cue_key])?;
    Ok(())
}

/// Marks the waiting executions among the next part of a cue whose limit has changed: they are due for a look at once.
/// Returns false if no limit has changed.
pub fn continue_change(tx: &WriteTx<'_>) -> Result<bool> {
    let read = |row: &Row<'_>| Ok((row.get(0)?, row.get(1)?, row.get(2)?));
    let changed = tx.prepare_cached(FIRST_CHANGED)?.query_row([], read).optional()?;
    let Some((name, cue_key, before)) = changed else { return Ok(false) };
    let (name, cue_key, before): (String, i64, i64) = (name, cue_key, before);
    let part = params![cue_key, before, PART];
    let oldest: Option<i64> =
        tx.prepare_cached(OLDEST_OF_PART)?.query_row(part, |row| row.get(0)).optional()?;
    tx.prepare_cached(LOOK_AGAIN)?.execute(part)?;
    match oldest {
        Some(oldest) => tx.prepare_cached(SET_REST)?.execute(params![name, oldest])?,
        None => tx.prepare_cached(END_CHANGE)?.execute([name])?,
    };
    Ok(true)
}

/// The number of claimable executions among the newest `limit` of a cue.
pub fn count_waiting(read: &ReadTx<'_>, cue_key: i64, limit: u32) -> Result<u32> {
    Ok(read.prepare_cached(WAITING)?.query_row(params![cue_key, limit], |row| row.get(0))?)
}

/// Fails an execution that was not claimed in time. Returns `false` if it is no longer claimable.
pub fn fail(tx: &WriteTx<'_>, key: i64, now: Timestamp) -> Result<bool> {
    let failed = tx.prepare_cached(FAIL)?.execute(params![key, NOT_CLAIMED, millis(now)])?;
    tx.counters().add_queued(QueueName::Claim, -i64::from(failed == 1));
    Ok(failed == 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::execution::unclaimed::UNCLAIMED_AFTER;
    use crate::store::test_support::{memory_database, plan};

    #[test]
    fn looks_are_found_by_index_and_never_sorted() {
        let by_look = "executions USING INDEX executions_unclaimed";
        let of_cue = "executions USING COVERING INDEX executions_by_cue (cue_key=? AND key<?)";
        let changed = "SEARCH meta USING PRIMARY KEY (name>? AND name<?)".to_owned();
        for (sql, expected) in [
            (NEXT_LOOK, "SCAN executions USING COVERING INDEX executions_unclaimed".to_owned()),
            (DUE, format!("SCAN e{}", by_look.trim_start_matches("executions"))),
            (ANY_CHANGED, changed.clone()),
            (FIRST_CHANGED, changed),
            (OLDEST_OF_PART, format!("SEARCH {of_cue}")),
            (LOOK_AGAIN, format!("SEARCH {of_cue}")),
            (WAITING, "SEARCH executions USING INDEX executions_by_cue (cue_key=?)".to_owned()),
            (SET_LOOK, "SEARCH executions USING INTEGER PRIMARY KEY (rowid=?)".to_owned()),
            (FAIL, "SEARCH executions USING INTEGER PRIMARY KEY (rowid=?)".to_owned()),
        ] {
            let steps = plan(sql);
            assert!(steps.contains(&expected), "{sql}: {steps:?}");
            assert!(!steps.iter().any(|step| step.contains("TEMP B-TREE")), "{sql}: {steps:?}");
        }
    }

    #[test]
    fn the_first_look_is_at_the_earlier_of_alert_and_limit() {
        let file = memory_database();
        assert_eq!(UNCLAIMED_AFTER.as_millis(), 15 * 60_000);
        let sql = first_look!("?1", "?2");
        for (minutes, expected) in [(None, 900_001), (Some(5), 300_001), (Some(10_080), 900_001)] {
            let sql = sql.replace("FROM cues", "FROM (SELECT 7 AS key, ?3 AS claim_within_minutes) AS cues");
            let found: i64 =
                file.query_row(&format!("SELECT {sql}"), params![1, 7, minutes], |row| row.get(0)).unwrap();
            assert_eq!(found, expected, "{minutes:?}");
        }
    }
}
