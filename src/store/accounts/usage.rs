//! Monthly usage: executions that count against the quota, and reported outcomes. There is one row per user and
//! calendar month, so every number is a single-row read at any history length.

use jiff::Timestamp;
use rusqlite::params;

use crate::domain::account::plan::{Plans, Quota};
use crate::domain::account::user::month_of;
use crate::error::Result;
use crate::store::db::columns::{millis, row};
use crate::store::{ReadTx, WriteTx};

row! { columns, "",
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MonthlyUsage {
    /// Executions that count against the quota.
    pub executions: i64,
    pub outcomes_succeeded: i64,
    pub outcomes_failed: i64,
} }

const FIND: &str = concat!("SELECT ", columns!(), " FROM monthly_usage WHERE user_key = ?1 AND month = ?2");

const QUOTA: &str = "SELECT plan, coalesce(executions, 0), over_quota_since
   FROM users LEFT JOIN monthly_usage ON monthly_usage.user_key = users.key AND month = ?2
  WHERE users.key = ?1 AND disabled_at IS NULL";

pub fn find(read: &ReadTx<'_>, user_key: i64, now: Timestamp) -> Result<MonthlyUsage> {
    Ok(read.find(FIND, params![user_key, month_of(now)])?.unwrap_or_default())
}

/// The user's quota and its use in the month of `now`; `None` if the user is disabled.
pub fn quota(read: &ReadTx<'_>, plans: &Plans, user_key: i64, now: Timestamp) -> Result<Option<Quota>> {
    let found: Option<(String, i64, Option<Timestamp>)> =
        read.find(QUOTA, params![user_key, month_of(now)])?;
    Ok(found.map(|(plan, used, over_quota_since)| Quota {
        limit: plans.limits(&plan).executions,
        used,
        over_quota_since,
    }))
}

/// Stores a quota that [`quota`] read in the same transaction, with the executions used since.
pub fn save_quota(tx: &WriteTx<'_>, user_key: i64, quota: &Quota, now: Timestamp) -> Result<()> {
    let sql = "INSERT INTO monthly_usage
                   (user_key, month, executions, over_quota_since, outcomes_succeeded, outcomes_failed)
               VALUES (?1, ?2, ?3, ?4, 0, 0)
               ON CONFLICT (user_key, month)
               DO UPDATE SET executions = excluded.executions, over_quota_since = excluded.over_quota_since";
    tx.run(sql, params![user_key, month_of(now), quota.used, quota.over_quota_since.map(millis)])
}

pub fn record_outcome(tx: &WriteTx<'_>, user_key: i64, success: bool, now: Timestamp) -> Result<()> {
    tx.run(
        "INSERT INTO monthly_usage (user_key, month, executions, outcomes_succeeded, outcomes_failed)
         VALUES (?1, ?2, 0, ?3, NOT ?3)
         ON CONFLICT (user_key, month)
         DO UPDATE SET outcomes_succeeded = outcomes_succeeded + excluded.outcomes_succeeded,
                       outcomes_failed = outcomes_failed + excluded.outcomes_failed",
        params![user_key, month_of(now), success],
    )
}

#[cfg(test)]
crate::store::test_support::plan_test! { usage_queries_read_one_row_at_any_history_length:
    FIND => "SEARCH monthly_usage USING PRIMARY KEY (user_key=? AND month=?)",
    QUOTA => "SEARCH users USING INTEGER PRIMARY KEY (rowid=?)",
    QUOTA => "SEARCH monthly_usage USING PRIMARY KEY (user_key=? AND month=?) LEFT-JOIN",
}
