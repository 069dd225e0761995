//! Monthly usage: executions that count against the quota, and reported outcomes. There is one row per user and
//! calendar month, so every number is a single-row read at any history length.

use jiff::Timestamp;
use rusqlite::{OptionalExtension, Row, params};

use crate::domain::account::plan::Plans;
use crate::domain::account::quota::Quota;
use crate::domain::account::user::month_of;
use crate::error::Result;
use crate::store::db::columns::{maybe_instant, millis};
use crate::store::{ReadTx, WriteTx};

/// A user's usage in one month.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MonthlyUsage {
    /// Executions that count against the quota.
    pub executions: i64,
    pub outcomes_succeeded: i64,
    pub outcomes_failed: i64,
}

const FIND: &str = "SELECT executions, outcomes_succeeded, outcomes_failed FROM monthly_usage
    WHERE user_key = ?1 AND month = ?2";

const QUOTA: &str = "SELECT plan, executions, over_quota_since
   FROM users LEFT JOIN monthly_usage ON monthly_usage.user_key = users.key AND month = ?2
  WHERE users.key = ?1 AND disabled_at IS NULL";

/// The user's usage in the month of `now`.
pub fn find(read: &ReadTx<'_>, user_key: i64, now: Timestamp) -> Result<MonthlyUsage> {
    let found =
        read.prepare_cached(FIND)?.query_row(params![user_key, month_of(now)], read_month).optional()?;
    Ok(found.unwrap_or_default())
}

/// The user's quota and its use in the month of `now`; `None` if the user is disabled.
pub fn quota(read: &ReadTx<'_>, plans: &Plans, user_key: i64, now: Timestamp) -> Result<Option<Quota>> {
    Ok(read
        .prepare_cached(QUOTA)?
        .query_row(params![user_key, month_of(now)], |row| {
            let limit = plans.limits(row.get_ref("plan")?.as_str()?).executions;
            let used: Option<i64> = row.get("executions")?;
            Ok(Quota {
                limit,
                used: used.unwrap_or(0),
                over_quota_since: maybe_instant(row, "over_quota_since")?,
            })
        })
        .optional()?)
}

/// Stores a quota that [`quota`] read in the same transaction, with the executions used since.
pub fn save_quota(tx: &WriteTx<'_>, user_key: i64, quota: &Quota, now: Timestamp) -> Result<()> {
    tx.prepare_cached(
        "INSERT INTO monthly_usage (user_key, month, executions, over_quota_since, outcomes_succeeded, outcomes_failed)
         VALUES (?1, ?2, ?3, ?4, 0, 0)
         ON CONFLICT (user_key, month)
         DO UPDATE SET executions = excluded.executions, over_quota_since = excluded.over_quota_since",
    )?
    .execute(params![user_key, month_of(now), quota.used, quota.over_quota_since.map(millis)])?;
    Ok(())
}

/// Counts an outcome reported at `now`.
pub fn record_outcome(tx: &WriteTx<'_>, user_key: i64, success: bool, now: Timestamp) -> Result<()> {
    tx.prepare_cached(
        "INSERT INTO monthly_usage (user_key, month, executions, outcomes_succeeded, outcomes_failed)
         VALUES (?1, ?2, 0, ?3, NOT ?3)
         ON CONFLICT (user_key, month)
         DO UPDATE SET outcomes_succeeded = outcomes_succeeded + excluded.outcomes_succeeded,
                       outcomes_failed = outcomes_failed + excluded.outcomes_failed",
    )?
    .execute(params![user_key, month_of(now), success])?;
    Ok(())
}

fn read_month(row: &Row<'_>) -> rusqlite::Result<MonthlyUsage> {
    Ok(MonthlyUsage {
        executions: row.get("executions")?,
        outcomes_succeeded: row.get("outcomes_succeeded")?,
        outcomes_failed: row.get("outcomes_failed")?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::test_support::plan;

    #[test]
    fn usage_queries_read_one_row_at_any_history_length() {
        assert_eq!(plan(FIND), ["SEARCH monthly_usage USING PRIMARY KEY (user_key=? AND month=?)"]);
        assert_eq!(
            plan(QUOTA),
            [
                "SEARCH users USING INTEGER PRIMARY KEY (rowid=?)",
                "SEARCH monthly_usage USING PRIMARY KEY (user_key=? AND month=?) LEFT-JOIN"
            ]
        );
    }
}
