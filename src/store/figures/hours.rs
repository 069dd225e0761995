//! The figures of each user and hour (table `hours`). [`CounterDeltas`](crate::store::db::counters::CounterDeltas) has the
//! statement that changes them, once per user, hour and write.

use rusqlite::params;

use crate::domain::account::figures::{Figures, Grid};
use crate::error::Result;
use crate::store::db::columns::{row, row_count};
use crate::store::{ReadTx, WriteTx};

/// Users looked at in one step of the clean-up: about a millisecond.
const USER_BATCH: i64 = 1_000;

/// Rows deleted in one write.
const BATCH: i64 = 500;

row!(
    columns,
    "",
    Figures { succeeded, failed, retried, missed, measured, late_sum_ms, late_max_ms, took_sum_ms }
);

const LIST: &str =
    concat!("SELECT hour, ", columns!(), " FROM hours WHERE user_key = ?1 AND hour >= ?2 AND hour < ?3");

// By user: an index by hour alone would be one more page to write in every hour of a user.
const EXPIRED: &str = "SELECT key, EXISTS (SELECT 1 FROM hours WHERE user_key = users.key AND hour < ?2)
   FROM users WHERE key > ?1 ORDER BY key LIMIT ?3 + 0";

const DELETE: &str = "DELETE FROM hours WHERE user_key = ?1 AND hour IN (
    SELECT hour FROM hours WHERE user_key = ?1 AND hour < ?2 ORDER BY hour LIMIT ?3 + 0)";

pub fn series(read: &ReadTx<'_>, user_key: i64, grid: &Grid) -> Result<Vec<Figures>> {
    let mut series = vec![Figures::default(); grid.len()];
    let (first, end) = grid.hours();
    for (hour, figures) in read.all::<(i64, Figures)>(LIST, [user_key, first, end])? {
        if let Some(place) = grid.place(hour).and_then(|place| series.get_mut(place)) {
            place.add(&figures);
        }
    }
    Ok(series)
}

/// A step of the search for hours that are older than they are kept.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ExpiredHours {
    pub users: Vec<i64>,
    /// The last user looked at; `None` if there was none.
    pub last: Option<i64>,
}

/// Looks for hours before `hour`, of the next users after row `after`.
pub fn find_expired(read: &ReadTx<'_>, after: i64, hour: i64) -> Result<ExpiredHours> {
    let found: Vec<(i64, bool)> = read.all(EXPIRED, [after, hour, USER_BATCH])?;
    let last = found.last().map(|(user_key, _)| *user_key);
    let expired = found.into_iter().filter(|(_, is_expired)| *is_expired);
    Ok(ExpiredHours { users: expired.map(|(user_key, _)| user_key).collect(), last })
}

/// Deletes hours of `users` before `hour`, one batch. Returns whether there may be more.
pub fn delete_expired(tx: &WriteTx<'_>, users: &[i64], hour: i64) -> Result<bool> {
    let mut left = BATCH;
    for user_key in users {
        left -= row_count(tx.change(DELETE, params![user_key, hour, left])?);
        if left <= 0 {
            return Ok(true);
        }
    }
    Ok(false)
}

#[cfg(test)]
crate::store::test_support::plan_test! { hours_are_found_by_their_user:
    LIST => "SEARCH hours USING PRIMARY KEY (user_key=? AND hour>? AND hour<?)",
    EXPIRED => "SEARCH users USING INTEGER PRIMARY KEY (rowid>?)",
    EXPIRED => "SEARCH hours USING PRIMARY KEY (user_key=? AND hour<?)",
    DELETE => "SEARCH hours USING PRIMARY KEY (user_key=? AND hour=?)",
}
