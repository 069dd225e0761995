//! What users did in a calendar month: executions against their quota, outcomes. One row per user and month, so that
//! every figure is a point read however long the history is.

use jiff::Timestamp;
use rusqlite::{OptionalExtension, Row, params};

use crate::domain::account::plan::Plans;
use crate::domain::account::quota::Quota;
use crate::domain::account::user::month_of;
use crate::error::Result;
use crate::store::db::columns::{maybe_instant, millis};
use crate::store::{ReadTx, WriteTx};

/// A user's month so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MonthlyUsage {
    /// Executions that count against the quota.
    pub executions: i64,
    /// Outcomes reported as successes.
    pub succeeded: i64,
    /// Outcomes reported as failures.
    pub failed: i64,
}

const FIND: &str = "SELECT executions, succeeded, failed FROM months WHERE user_key = ?1 AND month = ?2";

const QUOTA: &str = "SELECT plan, executions, over_since
   FROM users LEFT JOIN months ON months.user_key = users.key AND month = ?2
  WHERE users.key = ?1 AND disabled_at IS NULL";

/// The user's month of `now`.
///
/// # Errors
/// When the file cannot be read.
pub fn find(read: &ReadTx<'_>, user_key: i64, now: Timestamp) -> Result<MonthlyUsage> {
    let found =
        read.prepare_cached(FIND)?.query_row(params![user_key, month_of(now)], read_month).optional()?;
    Ok(found.unwrap_or_default())
}

/// The user's executions in the month of `now` against its plan's quota; none where the user is disabled.
///
/// # Errors
/// When the file cannot be read.
pub fn quota(read: &ReadTx<'_>, plans: &Plans, user_key: i64, now: Timestamp) -> Result<Option<Quota>> {
    Ok(read
        .prepare_cached(QUOTA)?
        .query_row(params![user_key, month_of(now)], |row| {
            let limit = plans.limits(row.get_ref("plan")?.as_str()?).executions;
            let used: Option<i64> = row.get("executions")?;
            Ok(Quota { limit, used: used.unwrap_or(0), over_since: maybe_instant(row, "over_since")? })
        })
        .optional()?)
}

/// Stores what [`quota`] read in the same transaction and what was then taken of it.
///
/// # Errors
/// When the file cannot be written.
pub fn save_quota(tx: &WriteTx<'_>, user_key: i64, quota: &Quota, now: Timestamp) -> Result<()> {
    tx.prepare_cached(
        "INSERT INTO months (user_key, month, executions, over_since, succeeded, failed)
         VALUES (?1, ?2, ?3, ?4, 0, 0)
         ON CONFLICT (user_key, month)
         DO UPDATE SET executions = excluded.executions, over_since = excluded.over_since",
    )?
    .execute(params![user_key, month_of(now), quota.used, quota.over_since.map(millis)])?;
    Ok(())
}

/// Ends the user's time of grace: the next execution above the quota begins another.
///
/// # Errors
/// When the file cannot be written.
pub fn end_grace(tx: &WriteTx<'_>, user_key: i64) -> Result<()> {
    tx.prepare_cached("UPDATE months SET over_since = NULL WHERE user_key = ?1 AND over_since IS NOT NULL")?
        .execute([user_key])?;
    Ok(())
}

/// Counts an outcome that is reported at `now`.
///
/// # Errors
/// When the file cannot be written.
pub fn count_outcome(tx: &WriteTx<'_>, user_key: i64, success: bool, now: Timestamp) -> Result<()> {
    tx.prepare_cached(
        "INSERT INTO months (user_key, month, executions, succeeded, failed) VALUES (?1, ?2, 0, ?3, NOT ?3)
         ON CONFLICT (user_key, month)
         DO UPDATE SET succeeded = succeeded + excluded.succeeded, failed = failed + excluded.failed",
    )?
    .execute(params![user_key, month_of(now), success])?;
    Ok(())
}

fn read_month(row: &Row<'_>) -> rusqlite::Result<MonthlyUsage> {
    Ok(MonthlyUsage {
        executions: row.get("executions")?,
        succeeded: row.get("succeeded")?,
        failed: row.get("failed")?,
    })
}

#[cfg(test)]
mod tests {
    use rusqlite::Connection;

    use super::*;

    #[test]
    fn usage_queries_read_one_row_at_any_history_length() {
        let connection = Connection::open_in_memory().unwrap();
        connection.execute_batch(include_str!("../../../schema.sql")).unwrap();
        let plan = |sql: &str| -> Vec<String> {
            let mut explain = connection.prepare(&format!("EXPLAIN QUERY PLAN {sql}")).unwrap();
            explain
                .query_map([0, 0], |row| row.get("detail"))
                .unwrap()
                .map(std::result::Result::unwrap)
                .collect()
        };
        assert_eq!(plan(FIND), ["SEARCH months USING PRIMARY KEY (user_key=? AND month=?)"]);
        assert_eq!(
            plan(QUOTA),
            [
                "SEARCH users USING INTEGER PRIMARY KEY (rowid=?)",
                "SEARCH months USING PRIMARY KEY (user_key=? AND month=?) LEFT-JOIN"
            ]
        );
    }
}
