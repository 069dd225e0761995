//! Executions created in a range of time, without an index of its own.
//!
//! Row keys grow with each execution and ids begin with the time, so the ids around the ends of a range bound the keys
//! of the rows that need to be read. The clock may have been set back, so `created_at` decides, and the bounds leave
//! room for it.

use jiff::{SignedDuration, Timestamp};

use crate::domain::ids::ExecutionId;
use crate::domain::time::{saturating_add, saturating_sub};
use crate::error::Result;
use crate::store::ReadTx;
use crate::store::db::columns::millis;

/// Corrections of the clock up to this are allowed for: an hour is the largest that a wrong setting of daylight saving
/// causes. Rows created while the clock was wrong by more are found by the time that it showed, unless the range begins
/// or ends within that time.
const CLOCK_SLACK: SignedDuration = SignedDuration::from_hours(1);

const FIRST_FROM: &str = "SELECT key FROM executions WHERE id >= ?1 ORDER BY id LIMIT 1";
const LAST_BEFORE: &str = "SELECT key FROM executions WHERE id < ?1 ORDER BY id DESC LIMIT 1";

/// A range of creation times. An end that is `None` is open.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CreatedRange {
    /// The first instant.
    pub since: Option<Timestamp>,
    /// The first instant after the range.
    pub until: Option<Timestamp>,
}

/// The row keys between which all executions of a range are, both included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeyBounds {
    pub first: i64,
    pub last: i64,
}

impl CreatedRange {
    /// Returns whether every instant is in the range.
    pub fn is_open(&self) -> bool {
        *self == Self::default()
    }

    /// Bounds of the row keys. Rows between them may still be outside of the range.
    pub fn key_bounds(&self, read: &ReadTx<'_>) -> Result<KeyBounds> {
        let mut bounds = KeyBounds { first: i64::MIN, last: i64::MAX };
        // The neighbours on both sides count: where one of them was created by a clock that was wrong, the other one
        // bounds the keys.
        if let Some(since) = self.since {
            let id = ExecutionId::lowest_at(saturating_sub(since, CLOCK_SLACK));
            let (from, before) = (key_of(read, FIRST_FROM, id)?, key_of(read, LAST_BEFORE, id)?);
            bounds.first = match (from, before) {
                (_, None) => i64::MIN,
                (None, Some(_)) => i64::MAX,
                (Some(from), Some(before)) => from.min(before + 1),
            };
        }
        if let Some(until) = self.until {
            let id = ExecutionId::lowest_at(saturating_add(until, CLOCK_SLACK));
            let (from, before) = (key_of(read, FIRST_FROM, id)?, key_of(read, LAST_BEFORE, id)?);
            bounds.last = match (from, before) {
                (None, _) => i64::MAX,
                (Some(_), None) => i64::MIN,
                (Some(from), Some(before)) => before.max(from - 1),
            };
        }
        Ok(bounds)
    }

    /// Conditions on executions `e` with their parameters. They hold for the rows in the range, and an index that ends
    /// in `key` bounds the rows that are read.
    pub fn conditions(&self, read: &ReadTx<'_>) -> Result<Vec<(&'static str, i64)>> {
        let bounds = self.key_bounds(read)?;
        let mut conditions = Vec::new();
        if let Some(since) = self.since {
            conditions.push(("e.key >= ?", bounds.first));
            conditions.push(("e.created_at >= ?", millis(since)));
        }
        if let Some(until) = self.until {
            conditions.push(("e.key <= ?", bounds.last));
            conditions.push(("e.created_at < ?", millis(until)));
        }
        Ok(conditions)
    }
}

fn key_of(read: &ReadTx<'_>, sql: &str, id: ExecutionId) -> Result<Option<i64>> {
    read.find(sql, [id.bytes()])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::test_support::plan;

    #[test]
    fn the_ends_of_a_range_are_one_entry_each_of_the_index_of_ids() {
        for sql in [FIRST_FROM, LAST_BEFORE] {
            let steps = plan(sql);
            assert_eq!(steps.len(), 1, "{steps:?}");
            assert!(
                steps[0].starts_with("SEARCH executions USING COVERING INDEX sqlite_autoindex"),
                "{steps:?}"
            );
        }
    }
}
