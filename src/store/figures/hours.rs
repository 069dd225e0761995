//! The figures of each user and hour (table `hours`). [`CounterDeltas`](crate::store::db::counters::CounterDeltas) has the
//! statement that changes them, once per user, hour and write.

use rusqlite::{Row, params};

use crate::domain::account::figures::{Figures, Grid};
use crate::error::Result;
use crate::store::{ReadTx, WriteTx};

/// Users looked at in one step of the clean-up: about a millisecond.
const USER_BATCH: i64 = 1_000;

/// Rows deleted in one write.
const BATCH: i64 = 500;

const LIST: &str =
    "SELECT hour, succeeded, failed, retried, missed, measured, late_sum_ms, late_max_ms, took_sum_ms
   FROM hours WHERE user_key = ?1 AND hour >= ?2 AND hour < ?3";

// By user: an index by hour alone would be one more page to write in every hour of a user.
const EXPIRED: &str = "SELECT key, EXISTS (SELECT 1 FROM hours WHERE user_key = users.key AND hour < ?2)
   FROM users WHERE key > ?1 ORDER BY key LIMIT ?3 + 0";

const DELETE: &str = "DELETE FROM hours WHERE user_key = ?1 AND hour IN (
    SELECT hour FROM hours WHERE user_key = ?1 AND hour < ?2 ORDER BY hour LIMIT ?3 + 0)";

/// The user's figures in each step of `grid`.
pub fn series(read: &ReadTx<'_>, user_key: i64, grid: &Grid) -> Result<Vec<Figures>> {
    let mut series = vec![Figures::default(); grid.len()];
    let (first, end) = grid.hours();
    let mut list = read.prepare_cached(LIST)?;
    let mut rows = list.query([user_key, first, end])?;
    while let Some(row) = rows.next()? {
        if let Some(place) = grid.place(row.get(0)?).and_then(|place| series.get_mut(place)) {
            place.add(&read_figures(row)?);
        }
    }
    Ok(series)
}

/// Reads figures from a row with the columns of [`LIST`].
pub(super) fn read_figures(row: &Row<'_>) -> rusqlite::Result<Figures> {
    Ok(Figures {
        succeeded: row.get(1)?,
        failed: row.get(2)?,
        retried: row.get(3)?,
        missed: row.get(4)?,
        measured: row.get(5)?,
        late_sum_ms: row.get(6)?,
        late_max_ms: row.get(7)?,
        took_sum_ms: row.get(8)?,
    })
}

/// A step of the search for hours that are older than they are kept.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ExpiredHours {
    /// Users with such hours.
    pub users: Vec<i64>,
    /// The last user looked at; `None` if there was none.
    pub last: Option<i64>,
}

/// Looks for hours before `hour`, of the next users after row `after`.
pub fn find_expired(read: &ReadTx<'_>, after: i64, hour: i64) -> Result<ExpiredHours> {
    let mut expired = ExpiredHours::default();
    let mut find = read.prepare_cached(EXPIRED)?;
    let mut rows = find.query([after, hour, USER_BATCH])?;
    while let Some(row) = rows.next()? {
        let user_key = row.get(0)?;
        expired.last = Some(user_key);
        if row.get(1)? {
            expired.users.push(user_key);
        }
    }
    Ok(expired)
}

/// Deletes hours of `users` before `hour`, one batch. Returns whether there may be more.
pub fn delete_expired(tx: &WriteTx<'_>, users: &[i64], hour: i64) -> Result<bool> {
    let mut left = BATCH;
    for user_key in users {
        let deleted = tx.prepare_cached(DELETE)?.execute(params![user_key, hour, left])?;
        left -= i64::try_from(deleted).unwrap_or(i64::MAX);
        if left <= 0 {
            return Ok(true);
        }
    }
    Ok(false)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::test_support::plan;

    #[test]
    fn hours_are_found_by_their_user() {
        let by_user = "SEARCH hours USING PRIMARY KEY (user_key=? AND hour>? AND hour<?)";
        assert_eq!(plan(LIST), [by_user]);
        assert_eq!(
            plan(EXPIRED),
            [
                "SEARCH users USING INTEGER PRIMARY KEY (rowid>?)",
                "CORRELATED SCALAR SUBQUERY 1",
                "SEARCH hours USING PRIMARY KEY (user_key=? AND hour<?)"
            ]
        );
        let steps = plan(DELETE);
        assert_eq!(steps[0], "SEARCH hours USING PRIMARY KEY (user_key=? AND hour=?)");
        assert!(
            steps.iter().all(|step| !step.starts_with("SCAN") && !step.contains("TEMP B-TREE")),
            "{steps:?}"
        );
    }
}
